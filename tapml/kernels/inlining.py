"""What every schedule begins with: values that cost no more to compute again than to load are put in place of their loads."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx
from tvm.s_tir.schedule import Schedule, ScheduleError

_CHEAP_CALLS = {"prim.if_then_else", "tirx.isnan", "prim.likely"}
SPATIAL, REDUCE = tirx.IterVar.DataPar, tirx.IterVar.CommReduce


def block_names(sch: Schedule) -> list[str]:
    """Names of the blocks in the root, in order.  Raises ``ScheduleError`` for a function without blocks."""
    return [sch.get(b).name_hint for b in sch.get_child_blocks(sch.get_sblock("root"))]


def inline_movement(sch: Schedule) -> Schedule:
    """The schedule with cheap element-wise blocks inlined, but for those that somebody has scheduled already.

    Raises ``ScheduleError`` for a function without blocks.
    """
    for name in block_names(sch):
        block = sch.get(sch.get_sblock(name))
        if not is_arranged(sch, name) and _is_cheap_movement(block) and _grows_little(sch, block):
            sch = attempt(sch, partial(_inline, name=name))
    return sch


def is_arranged(sch: Schedule, name: str) -> bool:
    """Whether the loops around a block say how they are to be executed: in threads, in parallel, in vectors."""
    return bool(loop_kinds(sch, name) - {tirx.ForKind.SERIAL})


def loop_kinds(sch: Schedule, name: str) -> set[int]:
    """The kinds (``tirx.ForKind``) of the loops around a block."""
    return {int(sch.get(loop).kind) for loop in sch.get_loops(sch.get_sblock(name))}


def _inline(sch: Schedule, name: str) -> None:
    sch.compute_inline(sch.get_sblock(name))


def attempt(sch: Schedule, change: Callable[[Schedule], Any]) -> Schedule:
    """The schedule after ``change``; as it was when a primitive refuses or ``change`` returns False.

    TVM 0.27 refuses with ``ScheduleError``, and a few times with a failed internal check (``rfactor`` of a reduction to
    a single number) or a ``ValueError`` (a combiner that it does not know).
    """
    trial = sch.copy()
    try:
        done = change(trial)
    except (ScheduleError, tvm.error.InternalError, ValueError):
        return sch
    return sch if done is False else trial


def _is_cheap_movement(block: Any) -> bool:
    """Element by element, and without a transcendental function: computing it again costs no more than loading it."""
    if any(v.iter_type != SPATIAL for v in block.iter_vars):
        return False
    dear = []

    def visit(call: Any) -> None:
        if getattr(call.op, "name", "") not in _CHEAP_CALLS:
            dear.append(call)

    tvm_ffi.structural_walk(block.body, (tvm.ir.Call, visit))
    return not dear


_GROWTH = 32
"""Loads that an inlined value may add; chains of shared values would grow exponentially otherwise."""


def _grows_little(sch: Schedule, block: Any) -> bool:
    """Whether the block's value, put in place of each load of it, leaves the function of moderate size."""
    if not isinstance(block.body, tirx.BufferStore):
        return False
    written = block.body.buffer
    own = _loads(block.body.value, lambda load: True)
    if own <= 1:
        return True
    uses = 0
    for other in sch.get_child_blocks(sch.get_sblock("root")):
        uses += _loads(sch.get(other).body, lambda load: load.source.same_as(written))
    return uses <= 1 or own * (uses - 1) <= _GROWTH


def _loads(node: Any, wanted: Callable[[Any], bool]) -> int:
    found = []

    def visit(load: Any) -> None:
        if wanted(load):
            found.append(load)

    tvm_ffi.structural_walk(node, (tvm.ir.expr.TensorLoad, visit))
    return len(found)
