"""The buffers of a plan on a device: inputs that are there already, inputs that are copied, workspace and results."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

import numpy
from numpy.typing import NDArray

from tapml.errors import DeviceError
from tapml.kernels.device_memory import Block, Memory
from tapml.kernels.plan import Plan
from tapml.kernels.runner import Input

Handle = TypeVar("Handle")
Upload = Callable[[Handle, NDArray[numpy.uint8]], None]


class PlanMemory:
    """Which buffers a run of a plan needs.

    ``sizes``: bytes of each buffer, a multiple of 4; ``others``: the buffers that are no parameters, whose contents are
    anything when :meth:`place` has taken them.
    """

    def __init__(self, plan: Plan) -> None:
        self.sizes = tuple(buffer.bound_bytes for buffer in plan.buffers)
        self.others = tuple(i for i in range(len(plan.buffers)) if i not in plan.parameters)
        self._plan = plan
        self._written = {
            index
            for step in plan.steps
            for index, writes in zip(step.buffers, plan.kernels[step.kernel].writes, strict=True)
            if writes
        }

    def place(
        self, memory: Memory[Handle], inputs: Mapping[int, Input], taken: list[Block[Handle]], upload: Upload[Handle]
    ) -> list[Block[Handle]]:
        """A block for each buffer of the plan, parameters with their bytes.

        ``taken`` gets those that are to be given back after the run; inputs with a key are kept in ``memory`` instead,
        unless a kernel writes to them.  ``upload(handle, data)`` copies an input to the device.  Raises
        :class:`DeviceError` for an input of another size than the plan's.
        """
        blocks: dict[int, Block[Handle]] = {}
        for index in dict.fromkeys(self._plan.parameters):  # some share a buffer
            blocks[index] = self._input(memory, index, inputs[index], taken, upload)
        for index in self.others:
            blocks[index] = memory.take(self.sizes[index])
            taken.append(blocks[index])
        return [blocks[index] for index in range(len(self.sizes))]

    def _input(
        self,
        memory: Memory[Handle],
        index: int,
        given: Input,
        taken: list[Block[Handle]],
        upload: Upload[Handle],
    ) -> Block[Handle]:
        nbytes = self._plan.buffers[index].nbytes
        if given.data.nbytes != nbytes:
            raise DeviceError(f"parameter {index}: expected {nbytes:,} bytes, found {given.data.nbytes:,}")
        key = f"{given.key} {nbytes}" if given.key and index not in self._written else ""
        kept = memory.find(key) if key else None
        if kept is not None:
            return kept
        block = memory.take(self.sizes[index])
        if nbytes:
            upload(block.handle, given.data)
        if key:
            memory.keep(key, block)
        else:
            taken.append(block)
        return block
