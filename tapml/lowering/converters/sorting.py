"""Sorting, selection by rank, and what searches in sorted values.

TVM sorts through a function of its runtime, which no kernel can call, is not stable, and puts NaN anywhere.  Here a line
is merge-sorted by one thread, in memory of its own; NaN counts as the largest value, as in PyTorch.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tvm import relax, te, tirx

from tapml.lowering.context import Context, Promotion, cast, constant
from tapml.lowering.converters import scalar
from tapml.lowering.converters.reduction import amax, amin, sum_of
from tapml.lowering.converters.scan import place
from tapml.lowering.converters.shape import reshape, select_int, slice_axis
from tapml.lowering.registry import converter


def _precedes(a: Any, b: Any, descending: bool) -> Any:
    """Whether ``a`` has to stand before ``b``; False for equal ones, so that the sort is stable."""
    if not scalar.is_float(a):
        return a > b if descending else a < b
    a_nan, b_nan = tirx.isnan(a), tirx.isnan(b)
    if descending:
        return tirx.Or(a > b, tirx.And(a_nan, tirx.Not(b_nan)))
    return tirx.Or(a < b, tirx.And(b_nan, tirx.Not(a_nan)))


def sort_lines(ctx: Context, x: Any, dim: int, descending: bool) -> tuple[Any, Any]:
    """(sorted values, their positions as int64) along ``dim``; equal values keep their order."""
    if ctx.dtype(x) == "bool":
        value, position = sort_lines(ctx, ctx.cast(x, "uint8"), dim, descending)
        return ctx.cast(value, "bool"), position
    shape, dtype = ctx.shape(x), ctx.dtype(x)
    if not shape:
        return ctx.pointwise(lambda a: a, x), ctx.full((), 0, "int64")
    axis = dim % len(shape)
    length = shape[axis]
    lines = 1
    for extent in (*shape[:axis], *shape[axis + 1 :]):
        lines *= extent
    widths = [1 << level for level in range(max(length - 1, 0).bit_length())]

    def build(tensor: Any) -> Any:
        from tvm.script.ir_builder import IRBuilder
        from tvm.script.ir_builder import tirx as T

        def const(number: int) -> Any:
            return tirx.const(number, "int64")

        def body(ins: Any, outs: Any) -> Any:
            source, (values, final, other, cursor) = ins[0], outs

            def at(line: Any, k: Any) -> tuple[Any, ...]:
                return place(line, k, shape, axis)

            with IRBuilder() as builder, T.parallel(0, const(lines)) as line:
                there = final if len(widths) % 2 == 0 else other  # so that the last pass writes into `final`
                with T.serial(0, const(length)) as k:
                    T.buffer_store(there, k, (line, k))
                for width in widths:
                    here, there = there, (other if there.same_as(final) else final)
                    with T.serial(0, const(-(-length // (2 * width)))) as pair:
                        start = pair * (2 * width)
                        middle = tirx.Min(start + width, const(length))
                        end = tirx.Min(start + 2 * width, const(length))
                        T.buffer_store(cursor, start, (line, 0))
                        T.buffer_store(cursor, middle, (line, 1))
                        with T.serial(0, const(2 * width)) as step, T.If(start + step < end), T.Then():
                            left, right = cursor[line, 0], cursor[line, 1]
                            # the order of evaluation matters: neither side may be read past its end
                            from_right = tirx.if_then_else(
                                left >= middle,
                                tirx.const(True, "bool"),
                                tirx.if_then_else(
                                    right >= end,
                                    tirx.const(False, "bool"),
                                    _precedes(
                                        source[at(line, here[line, right])],
                                        source[at(line, here[line, left])],
                                        descending,
                                    ),
                                ),
                            )
                            T.buffer_store(cursor, tirx.if_then_else(from_right, const(1), const(0)), (line, 2))
                            with T.If(cursor[line, 2] > 0):
                                with T.Then():
                                    T.buffer_store(there, here[line, cursor[line, 1]], (line, start + step))
                                    T.buffer_store(cursor, cursor[line, 1] + 1, (line, 1))
                                with T.Else():
                                    T.buffer_store(there, here[line, cursor[line, 0]], (line, start + step))
                                    T.buffer_store(cursor, cursor[line, 0] + 1, (line, 0))
                with T.serial(0, const(length)) as k:
                    T.buffer_store(values, source[at(line, final[line, k])], at(line, k))
            return builder.get()

        flat = (lines, length)
        return te.extern(
            [shape, flat, flat, (lines, 3)], [tensor], body, dtype=[dtype, "int64", "int64", "int64"], name="sort"
        )

    values, positions, *_ = ctx.te(build, x, name="sort")
    return values, _unflatten(ctx, positions, shape, axis)


def _unflatten(ctx: Context, x: Any, shape: Sequence[int], axis: int) -> Any:
    """[lines, length] -> ``shape``, the length at ``axis``."""

    def build(tensor: Any) -> Any:
        def element(*index: Any) -> Any:
            line: Any = tirx.const(0, "int64")
            for a, extent in enumerate(shape):
                line = line if a == axis else line * extent + index[a]
            return tensor[line, index[axis]]

        return te.compute(tuple(shape), element, name="positions")

    return ctx.te(build, x, name="positions")


@converter("aten.sort.default")
def sort(ctx: Context, x: Any, dim: int = -1, descending: bool = False) -> list[Any]:
    return list(sort_lines(ctx, x, dim, descending))


@converter("aten.sort.stable")
def sort_stable(
    ctx: Context, x: Any, *, stable: bool | None = None, dim: int = -1, descending: bool = False
) -> list[Any]:
    return list(sort_lines(ctx, x, dim, descending))


@converter("aten.argsort.default")
def argsort(ctx: Context, x: Any, dim: int = -1, descending: bool = False) -> Any:
    return sort_lines(ctx, x, dim, descending)[1]


@converter("aten.topk.default")
def topk(ctx: Context, x: Any, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> list[Any]:
    both = sort_lines(ctx, x, dim, largest)
    return [part if not ctx.shape(x) else slice_axis(ctx, part, dim, 0, k) for part in both]


@converter("aten.kthvalue.default")
def kthvalue(ctx: Context, x: Any, k: int, dim: int = -1, keepdim: bool = False) -> list[Any]:
    both = sort_lines(ctx, x, dim, False)
    if not ctx.shape(x):
        return list(both)
    if keepdim:
        return [slice_axis(ctx, part, dim, k - 1, 1) for part in both]
    return [select_int(ctx, part, dim, k - 1) for part in both]


@converter("aten.searchsorted.Tensor", "aten.searchsorted.Scalar", "aten.bucketize.Tensor", "aten.bucketize.Scalar")
def searchsorted(
    ctx: Context,
    first: Any,
    second: Any,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Any = None,
) -> Any:
    """Number of boundaries before each value; the last dimension of ``sorted`` [..., n] is searched for [..., m]."""
    boundaries, values = (first, second) if "searchsorted" in ctx.operator else (second, first)
    (out, dtype) = ctx.results[0] or ((), "int64")
    right = right or side == "right"
    compute, _ = ctx.promote((boundaries, values), Promotion.NO_OPMATH)
    if not isinstance(values, relax.Expr):
        values = ctx.full(out, values, compute)
    boundaries, values = ctx.cast(boundaries, compute), ctx.cast(values, compute)
    rank = len(ctx.shape(boundaries))
    if not ctx.shape(boundaries)[-1]:
        return ctx.full(out, 0, dtype)
    inputs = [boundaries, values, *([] if sorter is None else [sorter])]

    def build(line: Any, wanted: Any, *order: Any) -> Any:
        k = te.reduce_axis((0, ctx.shape(boundaries)[-1]), name="k")

        def element(*index: Any) -> Any:
            lead = index[: rank - 1]
            at = (*lead, order[0][(*lead, k)]) if order else (*lead, k)
            bound, value = line[at], wanted[index]
            before = bound <= value if right else bound < value
            if scalar.is_float(value):  # not(bound >= value), which TVM would turn into <
                before = tirx.Or(before, tirx.Or(tirx.isnan(bound), tirx.isnan(value)))
            return sum_of(cast(before, dtype), axis=k)

        return te.compute(out, element, name="searchsorted")

    return ctx.te(build, *inputs, name="searchsorted")


@converter("aten.histc.default")
def histc(ctx: Context, x: Any, bins: int = 100, min: float = 0, max: float = 0) -> Any:
    """Counts of ``bins`` equal intervals of [min, max], the last closed; equal limits mean those of the data."""
    dtype = ctx.dtype(x)
    count = math.prod(ctx.shape(x))
    if not count:
        return ctx.full((bins,), 0, dtype)
    flat = reshape(ctx, x, (count,))
    if min == max:
        low, high = amin(ctx, flat), amax(ctx, flat)
        same = [low, high]
        low = ctx.pointwise(lambda a, b: scalar.select(tirx.EQ(a, b), a - scalar.like(a, 1), a), *same)
        high = ctx.pointwise(lambda a, b: scalar.select(tirx.EQ(a, b), b + scalar.like(a, 1), b), *same)
    else:
        low, high = (ctx.full((), v + (0 if min != max else d), dtype) for v, d in ((min, -1), (max, 1)))

    def build(values: Any, first: Any, last: Any) -> Any:
        k = te.reduce_axis((0, count), name="k")

        def element(b: Any) -> Any:
            value = values[k]
            inside = tirx.And(value >= first[()], value <= last[()])
            place = (value - first[()]) / (last[()] - first[()]) * constant(bins, dtype)
            bin_ = tirx.Min(
                tirx.if_then_else(inside, place, constant(0, dtype)).astype("int64"), constant(bins - 1, "int64")
            )
            return sum_of(cast(tirx.And(inside, tirx.EQ(bin_, b.astype("int64"))), dtype), axis=k)

        return te.compute((bins,), element, name="histc")

    return ctx.te(build, flat, low, high, name="histc")
