"""Operators that write at positions held in a tensor, or where a mask is set.

Several values for one position are written in the order of the source, by one thread.  TVM's front end loses ``None``
among the indices of ``index_put``, and negative indices.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

from tvm import relax, te, tirx

from tapml.lowering.context import Context, broadcast_index, cast, constant
from tapml.lowering.converters.indexing import index_layout, source_index, split_indices, wrap
from tapml.lowering.converters.reduction import highest, lowest
from tapml.lowering.converters.scalar import floor_divide, is_float, like, maximum, minimum, select
from tapml.lowering.converters.scan import scan
from tapml.lowering.converters.shape import reshape
from tapml.lowering.registry import converter


def _write(
    ctx: Context,
    x: Any,
    values: Any,
    positions: Sequence[Any],
    out: Sequence[int],
    source: Callable[..., Any],
    combine: Callable[[Any, Any], Any],
) -> Any:
    """``x`` with ``combine(old, values[i])`` stored at ``source(i)`` for every ``i`` of ``out``, one after another."""
    count = 1
    for extent in out:
        count *= extent
    shape, dtype = ctx.shape(x), ctx.dtype(x)
    total = 1
    for extent in shape:
        total *= extent

    def unravel(flat: Any, extents: Sequence[int]) -> tuple[Any, ...]:
        parts = []
        for extent in reversed(extents):
            parts.append(tirx.floormod(flat, extent))
            flat = tirx.floordiv(flat, extent)
        return tuple(reversed(parts))

    def build(tensor: Any, patch: Any, *loaded: Any) -> Any:
        from tvm.script.ir_builder import IRBuilder
        from tvm.script.ir_builder import tirx as T

        def body(ins: Any, outs: Any) -> Any:
            target = outs[0]
            with IRBuilder() as copying, T.serial(0, tirx.const(total, "int64")) as n:
                at = unravel(n, shape)
                T.buffer_store(target, ins[0][at], at)
            with IRBuilder() as writing, T.serial(0, tirx.const(count, "int64")) as m:
                i = unravel(m, out)
                at = source(i, ins[2:])
                T.buffer_store(target, combine(target[at], ins[1][broadcast_index(ins[1].shape, i)]), at)
            return tirx.SeqStmt([copying.get(), writing.get()])

        return te.extern([shape], [tensor, patch, *loaded], body, dtype=[dtype], name="index_write")

    return ctx.te(build, x, values, *positions, name="index_write")


def _replace(old: Any, new: Any) -> Any:
    return new


def _accumulate(old: Any, new: Any) -> Any:
    return tirx.Or(old, new) if str(old.ty.dtype) == "bool" else old + new


@converter("aten.index_put.default", "aten._unsafe_index_put.default")
def index_put(ctx: Context, x: Any, indices: Sequence[Any], values: Any, accumulate: bool = False) -> Any:
    shape = ctx.shape(x)
    given = [position for position in indices if position is not None]
    if any(ctx.dtype(position) == "bool" for position in given):
        if len(given) != 1 or indices[0] is None or accumulate:
            raise ctx.unsupported("a mask among several indices")
        return _masked_put(ctx, x, given[0], ctx.cast(values, ctx.dtype(x)))
    axes, tensors = split_indices(ctx, len(shape), indices)
    picked, place, kept = index_layout(ctx, shape, axes, tensors)
    rest = [shape[a] for a in kept]
    out = (*rest[:place], *picked, *rest[place:])

    def source(i: Sequence[Any], loaded: Sequence[Any]) -> Any:
        return source_index(i, shape, axes, loaded, place, len(picked), kept)

    return _write(ctx, x, ctx.cast(values, ctx.dtype(x)), tensors, out, source, _accumulate if accumulate else _replace)


@converter("aten.scatter.src", "aten.scatter.value", "aten.scatter_add.default")
def scatter(ctx: Context, x: Any, dim: int, index: Any, src: Any) -> Any:
    shape, out = ctx.shape(x), ctx.shape(index)
    axis = dim % len(shape) if shape else 0
    if not isinstance(src, relax.Expr):
        src = ctx.full(out, src, ctx.dtype(x))
    combine = _accumulate if "add" in ctx.operator else _replace
    return _write(ctx, x, src, [index], out, _along(axis, shape), combine)


def _along(axis: int, shape: Sequence[int]) -> Callable[..., Any]:
    def source(i: Sequence[Any], loaded: Sequence[Any]) -> Any:
        at = tuple(i) if len(loaded[0].shape) else ()
        return tuple(wrap(loaded[0][at], shape[axis]) if a == axis else v for a, v in enumerate(i[: len(shape)]))

    return source


@converter("aten.scatter_reduce.two")
def scatter_reduce(
    ctx: Context, x: Any, dim: int, index: Any, src: Any, reduce: str, *, include_self: bool = True
) -> Any:
    shape = ctx.shape(x)
    axis = dim % len(shape) if shape else 0
    return _reduce_into(ctx, x, src, index, ctx.shape(index), _along(axis, shape), reduce, include_self)


@converter("aten.index_reduce.default")
def index_reduce(
    ctx: Context, x: Any, dim: int, index: Any, source: Any, reduce: str, *, include_self: bool = True
) -> Any:
    shape = ctx.shape(x)
    axis = dim % len(shape) if shape else 0
    where = _at_positions(axis, shape)
    return _reduce_into(ctx, x, source, index, _extents(ctx, shape, axis, index), where, reduce, include_self)


def _reduce_into(
    ctx: Context,
    x: Any,
    source: Any,
    index: Any,
    out: Sequence[int],
    where: Callable[..., Any],
    reduce: str,
    include_self: bool,
) -> Any:
    """Combine elements of ``source`` with those of ``x`` that they go to; without ``include_self``, with nothing."""
    dtype = ctx.dtype(x)
    functions: dict[str, tuple[Callable[[Any, Any], Any], Any]] = {
        "sum": (_accumulate, constant(0, dtype)),
        "mean": (_accumulate, constant(0, dtype)),
        "prod": (lambda a, b: tirx.And(a, b) if dtype == "bool" else a * b, constant(1, dtype)),
        "amax": (maximum, lowest(dtype)),
        "amin": (minimum, highest(dtype)),
    }
    combine, identity = functions["prod" if reduce == "multiply" else reduce]
    start = x
    if not include_self:
        start = _write(ctx, x, ctx.full((1,) * len(out), 0, dtype), [index], out, where, lambda old, new: identity)
    total = _write(ctx, start, source, [index], out, where, combine)
    if reduce != "mean":
        return total
    ones = ctx.full(ctx.shape(x), 1 if include_self else 0, dtype)
    counts = _write(ctx, ones, ctx.full((1,) * len(out), 1, dtype), [index], out, where, _accumulate)

    def average(sum_: Any, count: Any) -> Any:
        count = select(count < like(count, 1), like(count, 1), count)
        return floor_divide(sum_, count) if not is_float(sum_) else sum_ / count

    return ctx.pointwise(average, total, counts)


@converter(
    "aten.index_copy.default", "aten.index_add.default", "aten.index_fill.int_Scalar", "aten.index_fill.int_Tensor"
)
def index_write(ctx: Context, x: Any, dim: int, index: Any, source: Any, *, alpha: float = 1) -> Any:
    shape, dtype = ctx.shape(x), ctx.dtype(x)
    axis = dim % len(shape) if shape else 0
    if not isinstance(source, relax.Expr):
        source = ctx.full((1,) * len(shape), source, dtype)
    elif "fill" in ctx.operator:
        source = reshape(ctx, ctx.cast(source, dtype), (1,) * len(shape))
    if alpha != 1:
        source = ctx.pointwise(lambda a: a * constant(alpha, dtype), source)
    combine = _accumulate if "add" in ctx.operator else _replace
    return _write(ctx, x, source, [index], _extents(ctx, shape, axis, index), _at_positions(axis, shape), combine)


def _extents(ctx: Context, shape: Sequence[int], axis: int, index: Any) -> list[int]:
    """Shape of what is written along ``axis`` at the positions of a one-dimensional (or zero-dimensional) index."""
    count = ctx.shape(index)[0] if ctx.shape(index) else 1
    return [count if a == axis else e for a, e in enumerate(shape)] if shape else [count]


def _at_positions(axis: int, shape: Sequence[int]) -> Callable[..., Any]:
    def where(i: Sequence[Any], loaded: Sequence[Any]) -> Any:
        position = loaded[0][(i[axis],)] if len(loaded[0].shape) else loaded[0][()]
        return tuple(wrap(position, shape[axis]) if a == axis else v for a, v in enumerate(i[: len(shape)]))

    return where


@converter("aten.masked_scatter.default")
def masked_scatter(ctx: Context, x: Any, mask: Any, source: Any) -> Any:
    """The elements of ``source``, one after another, where the mask is set."""
    shape = ctx.shape(x)
    mask = ctx.broadcast(mask, shape)
    count = prod(ctx.shape(source))
    return _take_in_turn(ctx, x, mask, reshape(ctx, source, (count,)), len(shape))


def _masked_put(ctx: Context, x: Any, mask: Any, values: Any) -> Any:
    """``x[mask] = values``: slices of ``values``, one after another or the same one, where the leading mask is set."""
    rank = len(ctx.shape(mask))
    rest = ctx.shape(x)[rank:]
    shape = (*(1,) * (1 + len(rest) - len(ctx.shape(values))), *ctx.shape(values))
    return _take_in_turn(ctx, x, mask, reshape(ctx, values, shape), rank)


def _take_in_turn(ctx: Context, x: Any, mask: Any, values: Any, rank: int) -> Any:
    """``x`` [A, B] with ``values`` [n or 1, B or 1] at those of the first ``rank`` dimensions where ``mask`` [A] is set."""
    shape, leading = ctx.shape(x), ctx.shape(mask)
    count = prod(leading)
    flags = ctx.cast(reshape(ctx, mask, (count,)), "int64")
    before = scan(ctx, flags, 0, "int64", lambda a, b: a + b)

    def build(base: Any, chosen: Any, turn: Any, given: Any) -> Any:
        def element(*i: Any) -> Any:
            flat: Any = tirx.const(0, "int64")
            for value, extent in zip(i[:rank], leading, strict=True):
                flat = flat * extent + value
            at = broadcast_index(given.shape, (turn[flat] - 1, *i[rank:]))
            return tirx.if_then_else(cast(chosen[i[:rank]], "bool"), given[at], base[i])

        return te.compute(shape, element, name="masked_put")

    return ctx.te(build, x, mask, before, values, name="masked_put")


@converter("aten.put.default")
def put(ctx: Context, x: Any, index: Any, source: Any, accumulate: bool = False) -> Any:
    shape = ctx.shape(x)
    count = prod(ctx.shape(index))
    flat = [reshape(ctx, t, (prod(ctx.shape(t)),)) for t in (x, source, index)]
    combine = _accumulate if accumulate else _replace
    return reshape(ctx, _write(ctx, flat[0], flat[1], [flat[2]], [count], _along(0, (prod(shape),)), combine), shape)
