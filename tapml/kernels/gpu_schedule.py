"""A schedule for GPUs: every block becomes a kernel, an element or a row of it a thread or a block of threads.

What it aims at is a correct kernel of every operator on every target, within the device's limits; operators that deserve
a better one get it from a rule of the target.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import Any

import tvm
import tvm_ffi
from tvm import s_tir, tirx
from tvm.s_tir.schedule import Schedule, ScheduleError

from tapml.kernels.inlining import REDUCE, SPATIAL, attempt, block_names, inline_movement, loop_kinds
from tapml.kernels.opaque import bind_parallel_loops

_ROWS_ALONE = 512
"""Outputs from which one thread computes one of them; below, a block of threads shares each reduction."""
_MOST_BLOCKS = 32768
"""Blocks along x that every device has; beyond, threads take several elements each."""
_WORTH_SHARING = 64
"""Terms from which a reduction is worth being shared between threads."""
_TERMS_A_THREAD = 1 << 15
"""Terms that one thread adds up at most, where there are outputs enough to give every thread one."""
_TILE, _TILED_TERMS = 4, 16
"""Outputs along each of two axes that a thread computes, and terms from which that is worth it."""


@dataclass(frozen=True)
class Threads:
    """How many threads a block may have (``most``) and has where nothing else decides (``usual``).

    ``plain``: one thread an element, which computes it alone and in memory; nothing is inlined.
    """

    most: int = 256
    usual: int = 64
    plain: bool = False


def schedule(function: tirx.PrimFunc, threads: Threads) -> tirx.PrimFunc:
    """Inline data movement and bind every loop nest to threads.  Never changes what is computed.

    What is bound already stays as it is.

    Raises ``ScheduleError`` when a block cannot be bound.
    """
    sch = Schedule(function)
    try:
        sch = sch if threads.plain and block_names(sch) else inline_movement(sch)
    except ScheduleError:  # no blocks: one loop nest, written by hand
        return bind_parallel_loops(function, threads.usual)
    for name in block_names(sch):
        if tirx.ForKind.THREAD_BINDING in loop_kinds(sch, name):
            continue
        block = sch.get_sblock(name)
        kinds = [v.iter_type for v in sch.get(block).iter_vars]
        loops = sch.get_loops(block)
        if not loops and isinstance(sch.get(block).body, tirx.BufferStore):  # of no dimensions
            _bind(sch, [sch.add_unit_loop(block)], threads)
            continue
        if not loops or len(loops) != len(kinds) or any(k not in (SPATIAL, REDUCE) for k in kinds):
            continue  # opaque: it has loops of its own
        if REDUCE not in kinds:
            _bind(sch, loops, threads)
            continue
        if threads.plain:
            sch.reorder(*(r for kind in _nest(sch, name) for r in kind))
            _bind(sch, _nest(sch, name)[0] or [sch.add_unit_loop(loops[0])], threads)
            continue
        before = sch
        for way in (_share_reduction, _tile):
            if sch is before:
                sch = attempt(sch, partial(way, name=name, threads=threads))
        if sch is before:
            sch = _one_thread_each(sch, name, threads)
    return bind_parallel_loops(sch.mod["main"], threads.usual)


def _bind(sch: Schedule, loops: list[Any], threads: Threads) -> Any:
    """Bind loops to blocks and threads; the loop below which one thread is alone."""
    fused = sch.fuse(*loops) if len(loops) > 1 else loops[0]
    extent = int(sch.get(fused).extent)
    width = min(threads.usual, extent)
    if -(-extent // width) > _MOST_BLOCKS:
        repeated, outer, inner = sch.split(fused, [None, _MOST_BLOCKS, width])
        sch.reorder(outer, inner, repeated)
    else:
        repeated = None
        outer, inner = sch.split(fused, [None, width])
    sch.bind(outer, "blockIdx.x")
    sch.bind(inner, "threadIdx.x")
    return repeated or inner


def _nest(sch: Schedule, name: str) -> tuple[list[Any], list[Any]]:
    """Spatial and reduction loops of a block."""
    block = sch.get_sblock(name)
    kinds = [v.iter_type for v in sch.get(block).iter_vars]
    pairs = list(zip(sch.get_loops(block), kinds, strict=True))
    return [r for r, k in pairs if k == SPATIAL], [r for r, k in pairs if k == REDUCE]


def _share_reduction(sch: Schedule, name: str, threads: Threads) -> bool:
    """A block of threads for each output, which add up a part each and then their parts."""
    spatial, reduce = _nest(sch, name)
    outputs = math.prod(int(sch.get(r).extent) for r in spatial)
    terms = math.prod(int(sch.get(r).extent) for r in reduce)
    if terms < _WORTH_SHARING or (outputs >= _ROWS_ALONE and terms <= _TERMS_A_THREAD):
        return False
    width = min(threads.most, 1 << max(5, min(8, (terms // 4).bit_length())))
    sch.reorder(*spatial, *reduce)
    fused = sch.fuse(*reduce) if len(reduce) > 1 else reduce[0]
    _, lane = sch.split(fused, [None, width])
    if spatial:
        row = sch.fuse(*spatial) if len(spatial) > 1 else spatial[0]
    else:
        row = sch.add_unit_loop(sch.get_loops(sch.get_sblock(name))[0])
    sch.bind(row, "blockIdx.x")
    sch.bind(lane, "threadIdx.x")
    s_tir.transform.LowerCrossThreadReduction()(sch.mod)  # raises for a combiner that TVM does not know
    return True


def _tile_size(extent: int) -> int:
    """The largest that divides ``extent``.

    A tile must not reach beyond the outputs: TVM 0.27 may leave out the condition where registers are copied back (a
    product of 2 by 31 and 31 by 257), and clspv crashes over kernels with many conditions.
    """
    return next(size for size in range(_TILE, 0, -1) if extent % size == 0)


def _tile(sch: Schedule, name: str, threads: Threads) -> bool:
    """Four by four outputs a thread, so that a value which is loaded serves four of them (a matrix product).

    Not where a load has a condition (padding): sixteen of them in a loop are slower than what is saved, and
    SwiftShader's compiler does not end over them.
    """
    block = sch.get(sch.get_sblock(name))
    spatial, reduce = _nest(sch, name)
    wide = [r for r in spatial if int(sch.get(r).extent) > 1]
    terms = math.prod(int(sch.get(r).extent) for r in reduce)
    if len(wide) < 2 or len(block.writes) > 1 or terms < _TILED_TERMS or _has_conditions(block.body):
        return False
    row, column = wide[-2:]
    high, broad = (_tile_size(int(sch.get(r).extent)) for r in (row, column))
    if high * broad < _TILE:
        return False
    rows, ii = sch.split(row, [None, high])
    columns, jj = sch.split(column, [None, broad])
    outer = [rows if r is row else columns if r is column else r for r in spatial]
    sch.reorder(*outer, *reduce, ii, jj)
    thread = _bind(sch, outer, threads)
    _add_up_in_register(sch, name, thread)
    begin = _begin_before(sch, name, reduce[0])
    for loop in (ii, jj, *sch.get_loops(begin)[-2:]):
        sch.unroll(loop)
    return True


def _has_conditions(body: Any) -> bool:
    found: list[Any] = []

    def visit(call: Any) -> None:
        if getattr(call.op, "name", "") == "prim.if_then_else":
            found.append(call)

    tvm_ffi.structural_walk(body, (tvm.ir.Call, visit))
    return bool(found)


def _keep_pairs_local(sch: Schedule, name: str) -> None:
    """What only this block uses (the value beside the position, in an argmax) is no business of other threads."""
    block = sch.get(sch.get_sblock(name))
    others = [sch.get(b) for b in sch.get_child_blocks(sch.get_sblock("root")) if sch.get(b).name_hint != name]
    read = [region.source for other in others for region in other.reads]
    given = list(sch.mod["main"].params)
    for i, region in enumerate(block.writes):
        if not any(region.source.same_as(b) for b in (*read, *given)):
            sch.set_scope(sch.get_sblock(name), i, "local")


def _one_thread_each(sch: Schedule, name: str, threads: Threads) -> Schedule:
    """A thread for each output, which adds up in a register; in memory where TVM cannot arrange that."""
    _keep_pairs_local(sch, name)
    spatial, reduce = _nest(sch, name)
    if spatial:
        sch.reorder(*spatial, *reduce)
        thread = _bind(sch, spatial, threads)
    else:
        thread = _bind(sch, [sch.add_unit_loop(reduce[0])], threads)
    if len(sch.get(sch.get_sblock(name)).writes) > 1:
        return sch
    sch = attempt(sch, partial(_add_up_in_register, name=name, thread=thread))
    return attempt(sch, partial(_begin_before, name=name, loop=reduce[0]))


def _begin_before(sch: Schedule, name: str, loop: Any) -> Any:
    """Give sums their first value before the loop, the block that does it; in the loop it would take a condition for
    each of them, over which SwiftShader's compiler does not end."""
    return sch.decompose_reduction(sch.get_sblock(name), loop)


def _add_up_in_register(sch: Schedule, name: str, thread: Any) -> None:
    block = sch.get_sblock(name)
    copied = sch.cache_write(block, 0, "local")
    sch.reverse_compute_at(copied, thread, preserve_unit_loops=True)
