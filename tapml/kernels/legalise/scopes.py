"""Temporaries of one thread that TVM leaves in the scope of all."""

from __future__ import annotations

from typing import Any

import tvm
import tvm_ffi
from tvm import tirx


def local_temporaries(function: tirx.PrimFunc) -> tirx.PrimFunc:
    """Arrays that a device function allocates itself in scope ``global`` are local to its thread (a reduction of pairs)."""
    allocated: list[Any] = []

    def note(node: Any) -> None:
        if node.buffer.ty.storage_scope in ("global", ""):
            allocated.append(node.buffer)

    tvm_ffi.structural_walk(function.body, (tirx.AllocBuffer, note))
    if not allocated:
        return function
    replaced: list[tuple[Any, Any]] = []

    def replace(var: Any, mutator: Any) -> Any:
        for before, after in replaced:
            if before.same_as(var):
                return after
        changed = mutator.default_mutate(var)
        if not any(var.same_as(a) for a in allocated):
            return changed
        t = changed.ty
        local = tirx.BufferType(
            t.dtype, "local", t.shape, t.strides, t.elem_offset, 0, t.offset_factor, t.layout, t.allocated_addr
        )
        after = tirx.Var(var.name, local)
        replaced.append((var, after))
        return after

    return tvm_ffi.structural_mutate(function, (tvm.ir.Var, replace))
