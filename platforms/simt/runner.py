"""The emulator as a device: every plan is executed with its threads in two orders, in memory that is watched."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy
from numpy.typing import NDArray

from tapml.kernels.plan import Kernel, Plan, Step
from tapml.kernels.runner import POISON, Fault, Input, Ran
from tapml.platforms.simt import faults
from tapml.platforms.simt.compile import compile_translation, library_name, matches
from tapml.platforms.simt.guard import Region
from tapml.platforms.simt.library import Library, Mode, Report
from tapml.platforms.simt.translate import Dialect, Translation, translate

_POISON = POISON * 0x0101_0101_0101_0101
_LARGE, _SMALL = 0x7B7B_7B7B_7B7B_7B7B, 0xFBFB_FBFB_FBFB_FBFB
"""Large and very negative numbers in every format: what depends on memory that nobody wrote differs between passes that
have another poison each.  A NaN alone is not enough, since a maximum drops it."""
_MODERATE = 0x3F3F_3F3F_3F3F_3F3F
"""About 0.75 in float32 and 1.8 in float16: neither lost in a sum of numbers of usual size, nor drowning them."""
_DROPS_NAN = re.compile(rb"\b(f?max|f?min|select)\(|\bcondval")
_ORDER = "threads depend on their order: a barrier is missing, or two threads write to one place"
_EARLY = "threads read what others write only later: a barrier is missing"
_UNWRITTEN = "they depend on memory that nobody writes: a kernel leaves elements out"


class EmulatedRunner:
    """Executes kernels in Metal's or CUDA's language on this machine's CPU.

    ``fast_math``: a model of what Metal does unless told otherwise (and ``nvcc --use_fast_math``): ``tanh``
    as a quotient that is NaN beyond 44, no NaN or infinity in comparisons, subnormal floats as zero.
    """

    def __init__(self, dialect: Dialect, *, fast_math: bool = False) -> None:
        self.dialect: Dialect = dialect
        self.fast_math = fast_math

    def load(self, plan: Plan, files: Mapping[str, bytes]) -> EmulatedPlan:
        """Load the kernels; compile them, unless ``files`` has them compiled by this very emulator.

        Raises :class:`CompileError` when they are no valid source, :class:`UnsupportedError` for what cannot be emulated.
        """
        translation = translate(plan, files, self.dialect)
        compiled = files.get(library_name(self.fast_math), b"")
        if not matches(compiled, translation, self.fast_math):
            compiled = compile_translation(translation, self.fast_math)
        return EmulatedPlan(self, plan, files, translation, Library(compiled, translation))


@dataclass
class _Pass:
    """What one execution gave: the bytes of results, the launches that completed, seconds, faults."""

    outputs: dict[int, NDArray[numpy.uint8]]
    launches: int
    seconds: float
    faults: list[Fault]


class EmulatedPlan:
    """A plan whose kernels are loaded."""

    def __init__(
        self,
        runner: EmulatedRunner,
        plan: Plan,
        files: Mapping[str, bytes],
        translation: Translation,
        library: Library,
    ) -> None:
        self._runner, self._plan, self._files = runner, plan, files
        self._translation, self._library = translation, library

    def run(self, inputs: Mapping[int, Input]) -> Ran:
        """Execute the plan with threads and blocks in forward order, then in reverse, on fresh memory.

        Kernels that can lose a NaN in shared memory are executed thrice more, with other patterns for unwritten memory.
        The results are those of the first pass, poisoned where it had a fault; launches and seconds are of that pass.
        Raises :class:`DeviceError` when the system has no memory, or for a block of more than 1,024 threads.
        """
        forward = self._execute(inputs, order=0, upper=True, poison=_POISON)
        found = list(forward.faults)
        for order, poison in self._passes:
            if found and forward.launches < len(self._plan.steps):
                break
            other = self._execute(inputs, order=order, upper=False, poison=poison)
            # What was written beside a buffer is known better where a guard is there, by thread.
            found = other.faults or found or self._compare(inputs, forward, other, order, poison)
            if other.faults:
                forward.outputs.update(other.outputs)  # poisoned
            if found:
                break
        return Ran(forward.outputs, forward.launches, forward.seconds, tuple(found))

    def execute(self, inputs: Mapping[int, Input], *, order: int) -> Ran:
        """One pass alone, with threads in an order of one's choice: 0 forward, 1 reverse, others pseudo-random."""
        ran = self._execute(inputs, order=order, upper=True, poison=_POISON)
        return Ran(ran.outputs, ran.launches, ran.seconds, tuple(ran.faults))

    @cached_property
    def _passes(self) -> list[tuple[int, int]]:
        """Order and poison of the passes after the first."""
        text = b"".join(self._files[kernel.file] for kernel in self._plan.kernels.values())
        if any(self._translation.shared.values()) and _DROPS_NAN.search(text):
            return [(1, _LARGE), (0, _LARGE), (1, _SMALL), (0, _SMALL)]
        return [(1, _LARGE)]

    def _compare(
        self, inputs: Mapping[int, Input], forward: _Pass, other: _Pass, order: int, poison: int
    ) -> list[Fault]:
        if all(numpy.array_equal(forward.outputs[n], other.outputs[n]) for n in forward.outputs):
            return []
        # Order and poison were both other ones. Which of them was it? Once more, with another poison only.
        again = self._execute(inputs, order=0, upper=True, poison=poison) if order else other
        found = self._differences("uninitialised", _UNWRITTEN, forward, again)
        if not found:
            return self._differences("order-dependent", _ORDER, forward, other)
        return self._read_too_early(inputs) or found

    def _read_too_early(self, inputs: Mapping[int, Input]) -> list[Fault]:
        """Whether what was read before anybody had written it is written by a thread that only comes later.

        Then both orders of threads differ in the same poison.  Memory that no thread writes is poison in either order.
        """
        for poison in (_MODERATE, _SMALL, _LARGE, _POISON):
            one, other = (self._execute(inputs, order=order, upper=True, poison=poison) for order in (0, 1))
            if found := self._differences("order-dependent", _EARLY, one, other):
                return found
        return []

    def _differences(self, code: str, why: str, one: _Pass, other: _Pass) -> list[Fault]:
        found = []
        for place, n in enumerate(self._plan.results):
            if n is not None:
                name = f"result {place}"
                fault = faults.difference(code, why, name, self._plan.buffers[n], one.outputs[n], other.outputs[n])
                found += [fault] if fault else []
        return found

    def _execute(self, inputs: Mapping[int, Input], *, order: int, upper: bool, poison: int) -> _Pass:
        plan = self._plan
        written = {n for s in plan.steps for n, w in zip(s.buffers, plan.kernels[s.kernel].writes, strict=True) if w}
        results = {n for n in plan.results if n is not None}
        used = {n for s in plan.steps for n in s.buffers} | results
        regions = {n: Region("", plan.buffers[n].nbytes) for n in sorted(used)}
        shared: list[Region] = []
        done = _Pass({}, 0, 0.0, [])
        try:
            for n, region in regions.items():
                region.push(upper)
                if n in inputs:
                    region.array()[...] = inputs[n].data
                else:
                    region.fill(poison)
                region.protect(writable=n in written)
            mode = Mode(order, poison, self._runner.fast_math)
            began = time.perf_counter()
            for step in plan.steps:
                fault = self._launch(step, regions, shared, mode, upper)
                if fault:
                    done.faults.append(fault)
                    break
                done.launches += 1
            done.seconds = time.perf_counter() - began
            names = "kernel " + " or ".join(plan.kernels)
            done.faults += [f for r in regions.values() if (f := faults.overwritten(r, names))]
            for n in results:
                if done.faults:
                    regions[n].protect(writable=True)
                    regions[n].fill(_POISON)
                done.outputs[n] = regions[n].array().copy()
        finally:
            for region in [*regions.values(), *shared]:
                region.close()
        return done

    def _launch(
        self, step: Step, regions: Mapping[int, Region], shared: list[Region], mode: Mode, upper: bool
    ) -> Fault | None:
        kernel = self._plan.kernels[step.kernel]
        names = self._translation.shared[kernel.name]
        arrays = []
        for name, size in zip(names, self._library.shared_sizes(kernel), strict=True):
            arrays.append(Region(f"{name} in shared memory", size))
            arrays[-1].push(upper)
        shared += arrays
        for place, n in enumerate(step.buffers):
            regions[n].label = f"buffer argument {place}"
        report = self._library.launch(
            kernel,
            step.grid,
            [regions[n].address for n in step.buffers],
            step.scalars,
            [region.address for region in arrays],
            mode,
            slots=self._runner.dialect == "metal",
        )
        if report.code != Report.COMPLETED:
            return faults.describe(report, kernel, self._source(kernel), [*(regions[n] for n in step.buffers), *arrays])
        for region in arrays:
            fault = faults.overwritten(region, f"kernel {kernel.name}")
            if fault:
                return fault
        return None

    def _source(self, kernel: Kernel) -> str:
        return self._files[kernel.file].decode()
