"""A schedule for the CPU: read arguments in place, accumulate in vectors, share work between cores.

Accumulating in sixteen partial sums is faster than in one and more accurate as well (the error of a sum grows with the
number of terms in a row, see Higham, "The accuracy of floating point summation", 1993).
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx
from tvm.s_tir.schedule import Schedule, ScheduleError

from tapml.kernels.inlining import REDUCE, SPATIAL, attempt, block_names, inline_movement, is_arranged

_PARALLEL_FROM = 1 << 15
"""Iterations from which a loop is worth a second core (waking one costs some ten microseconds)."""
_LANES = (16, 8, 4)
_LONG, _TURNS = 1 << 13, 64
"""Terms from which partial sums are added up on their own, and how many terms those have a lane, about: with blocks of the
square root of their number the error of a sum grows no more than that (Higham, section 2)."""
_MANY = 256
"""Terms from which a sum across rows has partial sums; a product of matrices has none, as they would have to go to memory."""
_PARTIAL_SUMS = 1 << 22
"""Partial sums that there is memory for."""


def schedule(function: tirx.PrimFunc) -> tirx.PrimFunc:
    """Inline data movement, vectorise reductions, parallelise outer loops.  Never changes what is computed.

    Returns the function as it is when it has no blocks to schedule.
    """
    sch = Schedule(function)
    try:
        sch = inline_movement(sch)
    except ScheduleError:  # no blocks: a function written with extern calls
        return function
    names = block_names(sch)
    for name in names:
        if is_arranged(sch, name):
            continue
        before = sch
        sch = attempt(sch, partial(_vectorise_reduction, name=name))
        if sch is before:
            sch = attempt(sch, partial(_parallelise, name=name))
    return sch.mod["main"]


def _parallelise(sch: Schedule, name: str) -> bool:
    """Fuse outer spatial loops and run them in parallel when there is enough work."""
    block = sch.get_sblock(name)
    kinds = [v.iter_type for v in sch.get(block).iter_vars]
    loops = sch.get_loops(block)
    if len(loops) != len(kinds) or any(k not in (SPATIAL, REDUCE) for k in kinds):
        return False
    work = math.prod(int(sch.get(r).extent) for r in loops)
    spatial = [r for r, kind in zip(loops, kinds, strict=True) if kind == SPATIAL]
    outer = spatial[:-1] if len(spatial) > 1 and REDUCE not in kinds else spatial
    if work < _PARALLEL_FROM or not outer or loops[: len(outer)] != outer:
        return False
    sch.parallel(sch.fuse(*outer))
    return True


def _vectorise_reduction(sch: Schedule, name: str) -> bool:
    """Reductions in vector registers.

    Along contiguous memory the innermost reduction loop is split into lanes that are summed at the end; else the
    innermost spatial loop is moved inside the reduction, when it is the contiguous one.
    """
    handle = sch.get_sblock(name)
    block = sch.get(handle)
    kinds = [v.iter_type for v in block.iter_vars]
    loops = sch.get_loops(handle)
    if REDUCE not in kinds or len(loops) != len(kinds) or any(k not in (SPATIAL, REDUCE) for k in kinds):
        return False
    if kinds[-1] != REDUCE or not isinstance(block.body, tirx.BufferStore):
        return False
    spatial = [r for r, kind in zip(loops, kinds, strict=True) if kind == SPATIAL]
    work = math.prod(int(sch.get(r).extent) for r in loops)
    inner = loops[-1]
    extent = int(sch.get(inner).extent)
    lanes = next((n for n in _LANES if extent % n == 0 and extent >= 2 * n), None)
    rest = lanes is None and extent >= 2 * _LANES[0]  # what is left over is added up at the end of each row
    lanes = _LANES[0] if rest else lanes
    strides = _strides(block.body, block.iter_vars[-1].var)
    if lanes and strides and all(s in (0, 1) for s in strides) and 1 in strides:
        turns = _turns(extent, lanes, outputs=work // extent)
        split = sch.split(inner, [None, turns, lanes] if turns else [None, lanes])
        summed = sch.rfactor(split[-1], factor_axis=len(spatial))
        rf_loops = sch.get_loops(summed)
        if len(rf_loops) != len(loops) + len(split) - 1:
            return False
        if turns:
            summed = sch.rfactor(rf_loops[-3], factor_axis=len(spatial))
            rf_loops = sch.get_loops(summed)
        lane_loop = rf_loops[-1]
        outer = rf_loops[:-1]
        sch.reorder(*outer, lane_loop)
        sch.vectorize(lane_loop)
        if rest:
            for loop in outer[-2:] if turns else outer[-1:]:
                sch.annotate(loop, "pragma_loop_partition_hint", 1)
        if spatial and work >= _PARALLEL_FROM:
            sch.parallel(sch.fuse(*outer[: len(spatial)]))
        return True
    if not spatial or kinds[: len(spatial)] != [SPATIAL] * len(spatial):
        return False
    extents = [int(sch.get(r).extent) for r in spatial]
    place = max((i for i, n in enumerate(extents) if n > 1), default=len(spatial) - 1)  # the innermost that is a loop
    strides = _strides(block.body, block.iter_vars[place].var)
    lanes = next((n for n in _LANES if extents[place] % n == 0), None)
    contiguous = bool(strides) and all(s in (0, 1) for s in strides) and 1 in strides
    parts = (
        work // max(1, math.prod(extents)) >= _MANY and work // _TURNS <= _PARTIAL_SUMS and _is_sum(block, len(spatial))
    )
    if not parts and not (lanes and contiguous):
        return False
    count = len(spatial)
    if parts:
        handle = _partial_sums(sch, loops[count:], place)
        loops = sch.get_loops(handle)
        spatial, count = list(loops[: count + 1]), count + 1
    if not lanes or not contiguous:
        if work >= _PARALLEL_FROM:
            sch.parallel(sch.fuse(*spatial))
        return True
    column = spatial.pop(place)
    terms = sch.get_loops(handle)[count:]
    outer, lane = sch.split(column, [None, lanes])
    sch.reorder(*spatial, outer, *terms, lane)
    if work >= _PARALLEL_FROM:
        sch.parallel(sch.fuse(*spatial, outer))
    sch.vectorize(lane)
    sch.decompose_reduction(handle, terms[0])
    return True


def _is_sum(block: Any, spatial: int) -> bool:
    """Whether what is added up is of one argument (or what was computed of it), each element once: no product of matrices."""
    varying: list[Any] = []
    for axis in block.iter_vars[spatial:]:
        moved = zip((load.source for load in _loads(block.body)), _strides(block.body, axis.var), strict=True)
        varying += [source for source, step in moved if step != 0]
    return bool(varying) and all(source.same_as(varying[0]) for source in varying)


def _partial_sums(sch: Schedule, terms: list[Any], place: int) -> Any:
    """The block of sums of some terms each, which are added up after it; their loop follows those of the outputs, and in
    memory they lie before the outputs' dimension ``place``."""
    fused = sch.fuse(*terms) if len(terms) > 1 else terms[0]
    part, _ = sch.split(fused, [None, _TURNS])
    return sch.rfactor(part, factor_axis=place)


def _turns(extent: int, lanes: int, outputs: int) -> int:
    """How many terms a lane adds up in a row before a new partial sum begins; 0 for all of them.

    A part that is begun has a term for each lane: TVM 0.27 sets partial sums to zero together with their first term.
    """
    if extent < _LONG or outputs * extent // _TURNS > _PARTIAL_SUMS:
        return 0
    return next(n for n in range(_TURNS, extent) if extent % (n * lanes) == 0 or extent % (n * lanes) >= lanes)


def _strides(store: Any, variable: Any) -> list[int | None]:
    """For each load of the store's value: by how many elements its address moves when ``variable`` grows by one."""
    analyzer = tvm.sym.Analyzer()
    found: list[int | None] = []
    for load in _loads(store):
        address: Any = tirx.const(0, "int64")
        for index, extent in zip(load.indices, load.source.shape, strict=True):
            address = address * extent + index
        moved = tvm_ffi.structural_map(address, (tvm.ir.Var, lambda v: v + 1 if v.same_as(variable) else v))
        step = analyzer.simplify(moved - address)
        found.append(int(step.value) if isinstance(step, tirx.IntImm) else None)
    return found


def _loads(store: Any) -> list[Any]:
    """What the store's value reads elsewhere than where it is stored."""
    found: list[Any] = []
    tvm_ffi.structural_walk(store.value, (tvm.ir.expr.TensorLoad, found.append))
    return [load for load in found if not load.source.same_as(store.buffer)]
