"""Conditional loads, for compilers that cannot have them."""

from __future__ import annotations

from typing import Any

import tvm
import tvm_ffi
from tvm import tirx


def load_unconditionally(function: tirx.PrimFunc) -> tirx.PrimFunc:
    """``c ? a[i] : b[j]`` becomes a selection between two loads that both happen, of indices brought into range.

    clspv (as in pyclspv 0.0.1) crashes where two buffers are loaded from under a condition: it has to choose between
    pointers then, which Vulkan's memory model does not know.
    """
    sizes: list[tuple[Any, Any]] = []
    tvm_ffi.structural_walk(function.body, (tirx.DeclBuffer, lambda n: sizes.append((n.buffer, n.buffer.ty.shape))))

    def choose(node: Any) -> Any:
        if getattr(node.op, "name", "") != "prim.if_then_else":
            return node
        condition, yes, no = node.args
        if not (_loads(yes) or _loads(no)):
            return node
        return tirx.Select(condition, _safe(yes, sizes), _safe(no, sizes))

    return tvm_ffi.structural_map(function, (tvm.ir.Call, choose))


def _loads(node: Any) -> bool:
    found: list[Any] = []
    tvm_ffi.structural_walk(node, (tvm.ir.TensorLoad, found.append))
    return bool(found)


def _safe(node: Any, sizes: list[tuple[Any, Any]]) -> Any:
    """The expression with the index of every load in range, whatever it is."""

    def clamp(load: Any) -> Any:
        extents = next((shape for buffer, shape in sizes if buffer.same_as(load.source)), load.source.ty.shape)
        indices = [
            tirx.Max(tirx.Min(i, tirx.const(int(n) - 1, str(i.ty.dtype))), tirx.const(0, str(i.ty.dtype)))
            for i, n in zip(load.indices, extents, strict=True)
        ]
        return tirx.BufferLoad(load.source, indices)

    return tvm_ffi.structural_map(node, (tvm.ir.TensorLoad, clamp))
