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


def outermost_shared(function: tirx.PrimFunc) -> tirx.PrimFunc:
    """Shared memory that a device function allocates within a loop or a condition is allocated where the function begins.

    OpenCL C and Metal have it nowhere else.  Schedules that load a tile a step (dlight's matrix product) put it there.
    """
    allocated: list[Any] = []

    def visit(nest: Any) -> None:
        tvm_ffi.structural_walk(nest, (tirx.AllocBuffer, lambda node: _note_shared(node, allocated)))

    for kind in (tirx.For, tirx.While, tirx.IfThenElse):
        tvm_ffi.structural_walk(function.body, (kind, visit))
    if not allocated:
        return function

    def without(statement: Any) -> Any:
        kept = [s for s in statement.seq if not any(s.same_as(a) for a in allocated)]
        if len(kept) == len(statement.seq):
            return statement
        return kept[0] if len(kept) == 1 else tirx.SeqStmt(kept)

    body = tvm_ffi.structural_map(function.body, (tirx.SeqStmt, without))
    return tirx.PrimFunc(function.params, tirx.SeqStmt([*allocated, body]), function.ret_type, function.attrs)


def _note_shared(node: Any, allocated: list[Any]) -> None:
    if node.buffer.ty.storage_scope == "shared" and not any(node.same_as(a) for a in allocated):
        allocated.append(node)
