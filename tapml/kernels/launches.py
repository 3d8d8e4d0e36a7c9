"""Host functions -> the launches of a plan.

A host function is interpreted, its shapes being numbers: buffers are declared, workspace allocated, kernels launched, and
nothing else may be done.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx

from tapml.errors import UnsupportedError
from tapml.kernels.plan import Buffer, Kernel, Plan, Step

_AXES = {"blockIdx.x": (0, 0), "blockIdx.y": (0, 1), "blockIdx.z": (0, 2)} | {
    "threadIdx.x": (1, 0),
    "threadIdx.y": (1, 1),
    "threadIdx.z": (1, 2),
}
_SHARED = "tirx.use_dyn_shared_memory"


def expand(plan: Plan, host: Mapping[str, tirx.PrimFunc], kernels: Mapping[str, Kernel]) -> Plan:
    """The plan with each call of a host function replaced by the launches that it makes.

    Raises :class:`UnsupportedError` for anything that would be computed on the host.
    """
    buffers = list(plan.buffers)
    steps: list[Step] = []
    used: dict[str, Kernel] = {}
    for step in plan.steps:
        _Host(host[step.kernel], step.buffers, buffers, steps, kernels, used).run()
    memory = {i: dtype for s in steps for i, dtype in zip(s.buffers, used[s.kernel].pointers, strict=True)}
    stored = [replace(b, stored=memory[i]) if memory.get(i, b.dtype) != b.dtype else b for i, b in enumerate(buffers)]
    return replace(plan, buffers=tuple(stored), steps=tuple(steps), kernels=used)


class _Host:
    def __init__(
        self,
        function: tirx.PrimFunc,
        arguments: tuple[int, ...],
        buffers: list[Buffer],
        steps: list[Step],
        kernels: Mapping[str, Kernel],
        used: dict[str, Kernel],
    ) -> None:
        self._function, self._buffers, self._steps = function, buffers, steps
        self._kernels, self._used = kernels, used
        self._places: list[tuple[Any, int]] = list(zip(function.params, arguments, strict=True))
        self._analyzer = tvm.sym.Analyzer()

    def run(self) -> None:
        self._statement(self._function.body)

    def _statement(self, node: Any) -> None:
        if isinstance(node, tirx.SeqStmt):
            for part in node.seq:
                self._statement(part)
        elif isinstance(node, tirx.AttrStmt):
            self._statement(node.body)
        elif isinstance(node, tirx.DeclBuffer):
            self._places.append((node.buffer, self._place(node.data)))
        elif isinstance(node, tirx.AllocBuffer):
            type_ = node.buffer.ty
            self._buffers.append(Buffer(tuple(self._number(d) for d in type_.shape), str(type_.dtype)))
            self._places.append((node.buffer, len(self._buffers) - 1))
        elif isinstance(node, tirx.Evaluate) and isinstance(node.value, tvm.ir.Call):
            self._launch(node.value)
        elif not isinstance(node, tirx.Evaluate):
            raise UnsupportedError(f"a part of this operator would run on the host: {str(node).strip()[:160]}")

    def _place(self, data: Any) -> int:
        """The index of the buffer that a pointer expression (``buffer.data``) belongs to."""
        holders: list[Any] = []
        tvm_ffi.structural_walk(data, (tvm.ir.Var, holders.append))
        for variable, place in reversed(self._places):
            if any(variable.same_as(h) for h in holders):
                return int(place)
        raise UnsupportedError(f"a pointer of unknown origin: {data}")

    def _number(self, value: Any) -> int:
        simple = self._analyzer.simplify(value) if not isinstance(value, int) else value
        try:
            return int(simple)
        except TypeError as error:
            raise UnsupportedError(f"an extent that depends on data: {simple}") from error

    def _launch(self, call: Any) -> None:
        if getattr(call.op, "name", "") != "tirx.call_ffi_kernel":
            raise UnsupportedError(f"a part of this operator would run on the host: {str(call)[:160]}")
        name = str(call.args[0].value)
        kernel = self._kernels[name]
        arguments = list(call.args[1:])
        pointers, rest = arguments[: len(kernel.pointers)], arguments[len(kernel.pointers) :]
        scalars, extents = rest[: len(kernel.scalars)], rest[len(kernel.scalars) :]
        sizes: list[list[int]] = [[1, 1, 1], [1, 1, 1]]
        shared = 0
        for tag, extent in zip(_launch_params(call), extents, strict=True):
            if tag == _SHARED:
                shared = self._number(extent)
            elif tag in _AXES:
                side, axis = _AXES[tag]
                sizes[side][axis] = self._number(extent)
            else:
                raise UnsupportedError(f"a launch parameter of unknown kind: {tag}")
        grid, block = (_triple(s) for s in sizes)
        self._used[name] = replace(kernel, block=block, shared=shared)
        places = tuple(self._place(p) for p in pointers)
        self._steps.append(Step(name, places, tuple(self._number(s) for s in scalars), grid))


def _triple(sizes: list[int]) -> tuple[int, int, int]:
    x, y, z = sizes
    return x, y, z


def _launch_params(call: Any) -> list[str]:
    return [str(p) for p in call.attrs.launch_params]
