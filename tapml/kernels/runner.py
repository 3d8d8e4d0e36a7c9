"""What a GPU platform has to provide to execute plans: bytes in, launches, bytes out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy
from numpy.typing import NDArray

from tapml.kernels.plan import Plan

POISON = 0xFF
"""Every byte of a result or workspace before a run: what no kernel wrote is a NaN, or -1."""


@dataclass(frozen=True)
class Input:
    """The bytes of one parameter: a one-dimensional array of uint8.

    ``key``: a name of these bytes, the same bytes whenever it comes again, by which the device may keep them.
    """

    data: NDArray[numpy.uint8]
    key: str = ""


@dataclass(frozen=True)
class Fault:
    """Something that is wrong whatever the numbers say: a read out of bounds, a dependence on the order of threads."""

    code: str
    explanation: str


@dataclass(frozen=True)
class Ran:
    """What one execution of a plan gave: the bytes of each buffer in ``plan.results``, by its index; the launches that
    the device completed; seconds between the first launch and the end of the last, without transfers where the device
    can tell."""

    outputs: dict[int, NDArray[numpy.uint8]]
    launches: int
    seconds: float
    faults: tuple[Fault, ...] = ()


class LoadedPlan(Protocol):
    """A plan whose kernels are ready on a device."""

    def run(self, inputs: Mapping[int, Input]) -> Ran:
        """Execute all steps, with a buffer's bytes for each index in ``plan.parameters``.

        Parameters have the same bytes after the run.  All other buffers are filled with :data:`POISON` before it.
        Raises :class:`tapml.errors.DeviceError` when the device fails, in its own words.
        """


class Runner(Protocol):
    """An open device that executes plans."""

    def load(self, plan: Plan, files: Mapping[str, bytes]) -> LoadedPlan:
        """Compile the kernels with the device's driver.

        Raises :class:`tapml.errors.CompileError` when the driver refuses a kernel, with its words.
        """
