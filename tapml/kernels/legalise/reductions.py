"""Reductions by max and min, put in the form in which TVM can share them between threads, and back.

TVM knows the combiner ``max(a, b)`` that begins at the lowest finite number.  Converters write a selection that keeps a NaN
and begin at -inf, so that a row of nothing but -inf has the maximum that it should.
"""

from __future__ import annotations

import math
from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.s_tir import SBlock

from tapml.kernels.blocks import with_init

LARGEST = 3.4028234663852886e38


def to_known_reductions(functions: dict[str, tirx.PrimFunc]) -> tuple[dict[str, tirx.PrimFunc], bool]:
    """The functions with ``max`` and ``min`` in place of selections, and finite numbers where reductions begin.

    Also whether the latter was done: it is not where those finite numbers stand for themselves anywhere.
    """
    named = {n: tvm_ffi.structural_map(f, (tirx.Select, _named_extreme)) for n, f in functions.items()}
    if any(_mentions_largest(f) for f in named.values()):
        return named, False
    return {n: tvm_ffi.structural_map(f, (SBlock, _finite_begin)) for n, f in named.items()}, True


def from_known_reductions(function: tirx.PrimFunc) -> tirx.PrimFunc:
    """The lowered function with infinities where :func:`to_known_reductions` put finite numbers."""
    return tvm_ffi.structural_map(function, (tirx.FloatImm, _infinite))


def _mentions_largest(function: tirx.PrimFunc) -> bool:
    found = []

    def visit(node: Any) -> None:
        if abs(float(node.value)) == LARGEST:
            found.append(node)

    tvm_ffi.structural_walk(function, (tirx.FloatImm, visit))
    return bool(found)


def _finite_begin(block: Any) -> Any:
    if block.init is None:
        return block
    init = tvm_ffi.structural_map(block.init, (tirx.FloatImm, _finite))
    return with_init(block, init)


def _finite(node: Any) -> Any:
    value = float(node.value)
    if str(node.ty.dtype) != "float32" or not math.isinf(value):
        return node
    return tirx.FloatImm("float32", math.copysign(LARGEST, value))


def _infinite(node: Any) -> Any:
    value = float(node.value)
    return tirx.FloatImm("float32", math.copysign(math.inf, value)) if abs(value) == LARGEST else node


def _named_extreme(node: Any) -> Any:
    a, b, condition = node.true_value, node.false_value, node.condition
    if not isinstance(condition, tirx.Or) or getattr(getattr(condition.b, "op", None), "name", "") != "tirx.isnan":
        return node
    test = condition.a
    if not isinstance(test, (tirx.GT, tirx.LT)) or not _same(condition.b.args[0], a):
        return node
    if _same(test.a, a) and _same(test.b, b):
        return tirx.Max(a, b) if isinstance(test, tirx.GT) else tirx.Min(a, b)
    if _same(test.a, b) and _same(test.b, a):
        return tirx.Min(a, b) if isinstance(test, tirx.GT) else tirx.Max(a, b)
    return node


def _same(a: Any, b: Any) -> bool:
    return bool(a.same_as(b)) or bool(tvm_ffi.structural_equal(a, b, map_free_vars=False))
