"""Loop nests written by hand (scans, sorts, scatters) onto threads: each iteration of a parallel loop becomes a thread."""

from __future__ import annotations

from typing import Any

import tvm
import tvm_ffi
from tvm import tirx
from tvm.s_tir import SBlock

from tapml.kernels.blocks import with_body

_PARALLEL = tirx.ForKind.PARALLEL


def bind_parallel_loops(function: tirx.PrimFunc, width: int) -> tirx.PrimFunc:
    """Parallel loops become blocks of ``width`` threads; statements beside them are executed by one thread.

    Blocks within threads stay as they are.
    """
    bound: list[Any] = []

    def visit(loop: Any) -> None:
        if loop.kind == tirx.ForKind.THREAD_BINDING:
            tvm_ffi.structural_walk(loop.body, (SBlock, lambda block: bound.append(block.name_hint)))

    tvm_ffi.structural_walk(function.body, (tirx.For, visit))
    names = set(bound)
    return tvm_ffi.structural_map(function, (SBlock, lambda block: _threaded(block, width, names)))


def _threaded(block: Any, width: int, in_threads: set[str]) -> Any:
    if not _is_opaque(block) or block.name_hint in in_threads:
        return block
    statements = list(block.body.seq) if isinstance(block.body, tirx.SeqStmt) else [block.body]
    bound = [_bind(s, width) if _is_parallel(s) else _alone(s) for s in statements]
    body = bound[0] if len(bound) == 1 else tirx.SeqStmt(bound)
    return with_body(block, body)


def _is_opaque(block: Any) -> bool:
    """A block that holds loops instead of being held by them, and has no thread of its own yet."""
    if block.iter_vars or block.name_hint == "root":
        return False
    found = []
    tvm_ffi.structural_walk(block.body, (tirx.For, lambda f: found.append(f.kind)))
    return tirx.ForKind.THREAD_BINDING not in found


def _is_parallel(statement: Any) -> bool:
    return isinstance(statement, tirx.For) and statement.kind == _PARALLEL


def _bind(loop: Any, width: int) -> Any:
    extent = int(loop.extent)
    dtype = str(loop.loop_var.ty.dtype)
    width = min(width, extent)
    block, thread = tirx.Var("block", dtype), tirx.Var("thread", dtype)
    position = block * tirx.const(width, dtype) + thread + loop.min
    body = tvm_ffi.structural_map(loop.body, (tvm.ir.Var, lambda v: position if v.same_as(loop.loop_var) else v))
    if extent % width:
        body = tirx.IfThenElse(position - loop.min < tirx.const(extent, dtype), body, None)
    return _for(block, -(-extent // width), "blockIdx.x", _for(thread, width, "threadIdx.x", body))


def _alone(statement: Any) -> Any:
    block, thread = tirx.Var("block", "int64"), tirx.Var("thread", "int64")
    return _for(block, 1, "blockIdx.x", _for(thread, 1, "threadIdx.x", statement))


def _for(variable: Any, extent: int, tag: str, body: Any) -> Any:
    dtype = str(variable.ty.dtype)
    bound = tirx.IterVar(None, tirx.Var(tag, dtype), tirx.IterVar.ThreadIndex, tag)
    return tirx.For(variable, tirx.const(0, dtype), tirx.const(extent, dtype), tirx.ForKind.THREAD_BINDING, body, bound)
