"""Scans.

TVM's own GPU scan is racy and its CPU scan accumulates in the input's dtype; a scan here is a serial loop along its axis,
one thread for each line, in the accumulation dtype.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from tvm import te, tirx

from tapml.lowering.context import Context, cast
from tapml.lowering.converters import scalar
from tapml.lowering.registry import converter
from tapml.suite.call import dtype_name


def scan(ctx: Context, x: Any, dim: int, dtype: str, combine: Callable[[Any, Any], Any]) -> Any:
    """Inclusive scan of ``x`` (as ``dtype``) along ``dim``."""
    shape = ctx.shape(x)
    if not shape:
        return ctx.cast(x, dtype)
    axis = dim % len(shape)
    lines = math.prod(shape) // max(shape[axis], 1)

    def build(tensor: Any) -> Any:
        from tvm.script.ir_builder import IRBuilder
        from tvm.script.ir_builder import tirx as T

        def body(ins: Any, outs: Any) -> Any:
            with IRBuilder() as builder:
                source, target = ins[0], outs[0]
                with T.parallel(0, tirx.const(lines, "int64")) as line:
                    T.buffer_store(
                        target,
                        cast(source[place(line, tirx.const(0, "int64"), shape, axis)], dtype),
                        place(line, tirx.const(0, "int64"), shape, axis),
                    )
                    with T.serial(1, tirx.const(shape[axis], "int64")) as k:
                        value = combine(
                            target[place(line, k - 1, shape, axis)], cast(source[place(line, k, shape, axis)], dtype)
                        )
                        T.buffer_store(target, value, place(line, k, shape, axis))
            return builder.get()

        return te.extern([shape], [tensor], body, dtype=[dtype], name="scan")

    return ctx.te(build, x, name="scan")


def _accumulate_dtype(ctx: Context, x: Any, dtype: Any) -> str:
    if dtype is not None:
        return dtype_name(dtype)
    return ctx.dtype(x) if ctx.dtype(x).startswith("float") else "int64"


@converter("aten.cumsum.default")
def cumsum(ctx: Context, x: Any, dim: int, *, dtype: Any = None) -> Any:
    return scan(ctx, x, dim, _accumulate_dtype(ctx, x, dtype), lambda a, b: a + b)


@converter("aten.cumprod.default")
def cumprod(ctx: Context, x: Any, dim: int, *, dtype: Any = None) -> Any:
    return scan(ctx, x, dim, _accumulate_dtype(ctx, x, dtype), lambda a, b: a * b)


@converter("aten.logcumsumexp.default")
def logcumsumexp(ctx: Context, x: Any, dim: int) -> Any:
    def combine(a: Any, b: Any) -> Any:
        low, high = scalar.minimum(a, b), scalar.maximum(a, b)
        same_infinity = tirx.And(tirx.EQ(low, high), tirx.isinf(low))
        return scalar.select(same_infinity, a, high + tirx.log1p(tirx.exp(low - high)))

    return scan(ctx, x, dim, ctx.dtype(x), combine)


@converter("aten.cummax.default")
def cummax(ctx: Context, x: Any, dim: int) -> list[Any]:
    return _running_best(ctx, x, dim, lambda new, best: new >= best)


@converter("aten.cummin.default")
def cummin(ctx: Context, x: Any, dim: int) -> list[Any]:
    return _running_best(ctx, x, dim, lambda new, best: new <= best)


def _running_best(ctx: Context, x: Any, dim: int, better: Callable[[Any, Any], Any]) -> list[Any]:
    """[best value so far, position of the last such]; a NaN stays the best."""
    if ctx.dtype(x) == "bool":
        value, position = _running_best(ctx, ctx.cast(x, "uint8"), dim, better)
        return [ctx.cast(value, "bool"), position]
    shape = ctx.shape(x)
    if not shape:
        return [ctx.pointwise(lambda a: a, x), ctx.full((), 0, "int64")]
    axis = dim % len(shape)

    def wins(new: Any, best: Any) -> Any:
        if not scalar.is_float(new):
            return better(new, best)
        return tirx.Or(tirx.isnan(new), tirx.And(tirx.Not(tirx.isnan(best)), better(new, best)))

    def build(tensor: Any) -> Any:
        from tvm.script.ir_builder import IRBuilder
        from tvm.script.ir_builder import tirx as T

        lines = math.prod(shape) // max(shape[axis], 1)

        def body(ins: Any, outs: Any) -> Any:
            source, (values, positions) = ins[0], outs
            with IRBuilder() as builder, T.parallel(0, tirx.const(lines, "int64")) as line:
                first = place(line, tirx.const(0, "int64"), shape, axis)
                T.buffer_store(values, source[first], first)
                T.buffer_store(positions, tirx.const(0, "int64"), first)
                with T.serial(1, tirx.const(shape[axis], "int64")) as k:
                    here, before = place(line, k, shape, axis), place(line, k - 1, shape, axis)
                    won = wins(source[here], values[before])
                    T.buffer_store(positions, scalar.select(won, k, positions[before]), here)
                    T.buffer_store(values, scalar.select(won, source[here], values[before]), here)
            return builder.get()

        return te.extern([shape, shape], [tensor], body, dtype=[str(tensor.dtype), "int64"], name="running_best")

    return list(ctx.te(build, x, name="running_best"))


def place(line: Any, k: Any, shape: Sequence[int], axis: int) -> tuple[Any, ...]:
    """Index of element ``k`` of a line along ``axis``."""
    index = []
    for a in reversed(range(len(shape))):
        index.append(k if a == axis else tirx.floormod(line, shape[a]))
        line = line if a == axis else tirx.floordiv(line, shape[a])
    return tuple(reversed(index))
