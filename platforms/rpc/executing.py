"""A library of functions of tensors, on another machine: bytes there, launches, bytes back."""

from __future__ import annotations

import ctypes
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy
import torch
import tvm
from numpy.typing import NDArray

from tapml.errors import DeviceError
from tapml.kernels.executable import PlanExecutable
from tapml.kernels.plan import Artifact, Buffer, Plan
from tapml.kernels.runner import Fault, Input, Ran
from tapml.platform import Execution
from tapml.platforms.rpc.connection import Connection, Link
from tapml.suite.call import Signature

_KEPT_BYTES = 512 << 20
"""Parameters that the other machine keeps for the time of a session."""
_serial = itertools.count()
LOST = "the connection to the device was lost while this operator ran, and it was run again on a new one"


class RemoteExecutable:
    """See :class:`tapml.platform.Executable`."""

    def __init__(self, connection: Connection, kind: str, artifact: Artifact, signature: Signature) -> None:
        self._plan = RemotePlan(connection, kind, artifact)
        self._plan.load()
        self._executable = PlanExecutable(self._plan, artifact.plan, signature)

    def run(self, tensors: Sequence[torch.Tensor]) -> Execution:
        """See :class:`tapml.platform.Executable`."""
        execution = self._executable.run(tensors)
        return replace(execution, notes=(*execution.notes, LOST)) if self._plan.lost else execution


class RemotePlan:
    """See :class:`tapml.kernels.runner.LoadedPlan`.

    It is loaded on each connection anew.  ``lost``: whether it ever lost one in the middle.
    """

    def __init__(self, connection: Connection, kind: str, artifact: Artifact) -> None:
        self._connection = connection
        self._kind = kind
        self._plan = artifact.plan
        ((name, self._library),) = artifact.files.items()
        self._suffix = name.rpartition(".")[2]
        self.lost = False

    def load(self) -> None:
        """Load it now, to see whether the other machine takes it.  Raises :class:`DeviceError` when it does not."""
        self._lose(self._connection.do(self._loaded)[1])

    def run(self, inputs: Mapping[int, Input]) -> Ran:
        """See :class:`tapml.kernels.runner.LoadedPlan`; results and workspace are not filled before."""
        ran, lost = self._connection.do(lambda link: self._loaded(link).run(inputs))
        self._lose(lost)
        return ran

    def _lose(self, lost: bool) -> None:
        self.lost = self.lost or lost

    def _loaded(self, link: Link) -> _Loaded:
        if self not in link.loaded:
            link.loaded[self] = _Loaded(link, self._kind, self._plan, self._upload(link))
        loaded: _Loaded = link.loaded[self]
        return loaded

    def _upload(self, link: Link) -> Any:
        name = f"tapml-{next(_serial)}.{self._suffix}"
        link.session.upload(bytearray(self._library), target=name)
        try:
            return link.session.load_module(name)
        except Exception as error:
            if not link.alive():
                raise
            text = " ".join(str(error).split())[-300:]
        if self._suffix == "o":
            raise DeviceError(
                f"the other machine could not link a kernel: {text}",
                hint="it needs a C compiler; or install lld here, for Linux and Android there",
            )
        raise DeviceError(f"the other machine's loader refused a compiled kernel: {text}")


class _Loaded:
    """A plan in one session: its functions and buffers there."""

    def __init__(self, link: Link, kind: str, plan: Plan, module: Any) -> None:
        self._kept = link.kept
        self._plan = plan
        self._device = link.session.device(kind)
        self._buffers: dict[int, Any] = {
            i: self._allocate(buffer) for i, buffer in enumerate(plan.buffers) if i not in plan.parameters
        }
        self._own: dict[int, Any] = {}  # of arguments that have no name, to be written to again and again
        self._steps = [(module.time_evaluator(s.kernel, self._device, number=1), s.buffers) for s in plan.steps]
        self._ran = False

    def run(self, inputs: Mapping[int, Input]) -> Ran:
        """Execute.  Each function is called twice, and timed over there the second time: the way there takes longer."""
        for index, given in inputs.items():
            self._buffers[index] = self._sent(index, given)
        seconds = sum(float(time(*[self._buffers[i] for i in buffers]).mean) for time, buffers in self._steps)
        outputs = {i: self._fetch(i) for i in self._plan.results if i is not None}
        faults = () if self._ran else self._faults(inputs)
        self._ran = True
        return Ran(outputs, len(self._steps), seconds, faults)

    def drop(self) -> None:
        """Refer to nothing on the other machine any more."""
        self._buffers.clear()
        self._own.clear()
        self._steps.clear()
        del self._device

    def _faults(self, inputs: Mapping[int, Input]) -> tuple[Fault, ...]:
        written = [i for i, given in inputs.items() if not numpy.array_equal(self._fetch(i), given.data)]
        return tuple(Fault("wrote-input", f"a kernel wrote to its input: buffer {i} has changed") for i in written)

    def _allocate(self, buffer: Buffer) -> Any:
        return tvm.runtime.empty(buffer.shape, buffer.memory, self._device)

    def _sent(self, index: int, given: Input) -> Any:
        buffer = self._plan.buffers[index]
        name = f"{given.key} {buffer.shape} {buffer.memory}" if given.key else ""
        if name in self._kept:
            self._kept[name] = tensor = self._kept.pop(name)  # as the last that was used
            return tensor
        if name or index not in self._own:
            tensor = self._allocate(buffer)
            if not name:
                self._own[index] = tensor
        else:
            tensor = self._own[index]
        if buffer.nbytes:
            data = numpy.ascontiguousarray(given.data)
            _ffi("TVMTensorCopyFromBytes")(tensor, data.ctypes.data_as(ctypes.c_void_p), buffer.nbytes)
        if name:
            self._keep(name, tensor)
        return tensor

    def _keep(self, name: str, tensor: Any) -> None:
        self._kept[name] = tensor
        size = sum(_nbytes(kept) for kept in self._kept.values())
        while size > _KEPT_BYTES:
            oldest = next(iter(self._kept))
            size -= _nbytes(self._kept.pop(oldest))

    def _fetch(self, index: int) -> NDArray[numpy.uint8]:
        data = numpy.empty(self._plan.buffers[index].nbytes, numpy.uint8)
        if data.size:
            copy = _ffi("TVMTensorCopyToBytes")
            copy(self._buffers[index], data.ctypes.data_as(ctypes.c_void_p), data.size)
        return data


def _nbytes(tensor: Any) -> int:
    return math.prod(int(extent) for extent in tensor.shape) * -(-int(tvm.DataType(tensor.dtype).bits) // 8)


_ffi = partial(getattr, tvm.runtime._ffi_api)
