"""Operators that read or write at positions held in a tensor.

Negative indices count from the end, as in PyTorch.  TVM's front end reads out of bounds for them, and does not know ``None``
among the indices of ``index`` and ``index_put``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from tvm import relax, te, tirx

from tapml.lowering.context import Context, Promotion, broadcast_index, cast, constant
from tapml.lowering.converters.scalar import maximum, minimum, select
from tapml.lowering.converters.shape import reshape
from tapml.lowering.registry import converter


def wrap(position: Any, extent: int) -> Any:
    """A possibly negative index as one from the start, as int64."""
    position = position.astype("int64")
    return select(position < 0, position + extent, position)


@converter("aten.embedding.default")
def embedding(
    ctx: Context, weight: Any, indices: Any, padding_idx: int = -1, scale_grad_by_freq: bool = False, sparse: bool = False
) -> Any:
    return index_select(ctx, weight, 0, indices)


@converter("aten.index_select.default")
def index_select(ctx: Context, x: Any, dim: int, indices: Any) -> Any:
    shape, picked = ctx.shape(x), ctx.shape(indices)
    axis = dim % len(shape)
    out = (*shape[:axis], *picked, *shape[axis + 1 :])

    def build(tensor: Any, index: Any) -> Any:
        def element(*i: Any) -> Any:
            at = index[i[axis : axis + len(picked)]]
            return tensor[(*i[:axis], wrap(at, shape[axis]), *i[axis + len(picked) :])]

        return te.compute(out, element, name="index_select")

    return ctx.te(build, x, indices, name="index_select")


@converter("aten.gather.default")
def gather(ctx: Context, x: Any, dim: int, index: Any, *, sparse_grad: bool = False) -> Any:
    shape = ctx.shape(x)
    if not shape:
        return ctx.pointwise(lambda a: a, x)
    axis = dim % len(shape)

    def build(tensor: Any, positions: Any) -> Any:
        return te.compute(
            ctx.shape(index),
            lambda *i: tensor[tuple(wrap(positions[i], shape[axis]) if a == axis else v for a, v in enumerate(i))],
            name="gather",
        )

    return ctx.te(build, x, index, name="gather")


@converter("aten.take.default")
def take(ctx: Context, x: Any, index: Any) -> Any:
    count = 1
    for extent in ctx.shape(x):
        count *= extent
    return index_select(ctx, reshape(ctx, x, (count,)), 0, index)


def _split_indices(ctx: Context, rank: int, indices: Sequence[Any]) -> tuple[list[int], list[Any]]:
    """Axes that are indexed, and their index tensors.  Masks have results of data-dependent shape: refused."""
    axes = [a for a, index in enumerate(indices) if index is not None]
    tensors = [indices[a] for a in axes]
    if any(ctx.dtype(t) in ("bool", "uint8") for t in tensors):
        raise ctx.unsupported("indexing with a mask, whose result has a shape that depends on data")
    return axes, tensors


def _index_layout(ctx: Context, shape: Sequence[int], axes: Sequence[int], tensors: Sequence[Any]) -> tuple[Any, int, list[int]]:
    """(broadcast shape of the indices, position of their axes in the result, axes that are not indexed).

    PyTorch puts the indexed axes where the first of them was when they are adjacent, else in front.
    """
    picked = torch.broadcast_shapes(*[ctx.shape(t) for t in tensors])
    kept = [a for a in range(len(shape)) if a not in axes]
    adjacent = list(axes) == list(range(axes[0], axes[-1] + 1))
    return picked, axes[0] if adjacent else 0, kept


def _source(
    i: Sequence[Any], shape: Sequence[int], axes: Sequence[int], loaded: Sequence[Any], place: int, rank: int, kept: Sequence[int]
) -> tuple[Any, ...]:
    """Where in the indexed tensor the result's element ``i`` lives."""
    picked = i[place : place + rank]
    rest = [*i[:place], *i[place + rank :]]
    at: dict[int, Any] = dict(zip(kept, rest, strict=True))
    for axis, positions in zip(axes, loaded, strict=True):
        at[axis] = wrap(positions[broadcast_index(positions.shape, picked)], shape[axis])
    return tuple(at[a] for a in range(len(shape)))


@converter("aten.index.Tensor")
def index(ctx: Context, x: Any, indices: Sequence[Any]) -> Any:
    shape = ctx.shape(x)
    axes, tensors = _split_indices(ctx, len(shape), indices)
    picked, place, kept = _index_layout(ctx, shape, axes, tensors)
    rest = [shape[a] for a in kept]
    out = (*rest[:place], *picked, *rest[place:])

    def build(tensor: Any, *loaded: Any) -> Any:
        return te.compute(out, lambda *i: tensor[_source(i, shape, axes, loaded, place, len(picked), kept)], name="index")

    return ctx.te(build, x, *tensors, name="index")


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
    axes = [a for a, position in enumerate(indices) if position is not None]
    masks = [indices[a] for a in axes if ctx.dtype(indices[a]) == "bool"]
    if masks:
        return _masked_put(ctx, x, axes, masks, values, accumulate)
    axes, tensors = _split_indices(ctx, len(shape), indices)
    picked, place, kept = _index_layout(ctx, shape, axes, tensors)
    rest = [shape[a] for a in kept]
    out = (*rest[:place], *picked, *rest[place:])

    def source(i: Sequence[Any], loaded: Sequence[Any]) -> Any:
        return _source(i, shape, axes, loaded, place, len(picked), kept)

    return _write(ctx, x, ctx.cast(values, ctx.dtype(x)), tensors, out, source, _accumulate if accumulate else _replace)


def _masked_put(ctx: Context, x: Any, axes: Sequence[int], masks: Sequence[Any], values: Any, accumulate: bool) -> Any:
    """``x[mask] = value`` for one leading mask and one value for all positions: a selection."""
    if len(masks) != 1 or len(axes) != 1 or axes[0] != 0 or any(e != 1 for e in ctx.shape(values)) or accumulate:
        raise ctx.unsupported("writing several values through a mask")
    mask = masks[0]
    shape = ctx.shape(x)
    mask = reshape(ctx, mask, (*ctx.shape(mask), *([1] * (len(shape) - len(ctx.shape(mask))))))
    value = ctx.cast(reshape(ctx, values, ()), ctx.dtype(x))
    return ctx.select_te(lambda m, a, v: select(m, v, a), mask, [x, value], ctx.dtype(x))


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
        return tuple(wrap(loaded[0][tuple(i)], shape[axis]) if a == axis else v for a, v in enumerate(i))

    return source


@converter("aten.scatter_reduce.two")
def scatter_reduce(ctx: Context, x: Any, dim: int, index: Any, src: Any, reduce: str, *, include_self: bool = True) -> Any:
    functions: dict[str, Callable[[Any, Any], Any]] = {
        "sum": _accumulate,
        "prod": lambda a, b: a * b,
        "amax": maximum,
        "amin": minimum,
    }
    if reduce not in functions or not include_self:
        raise ctx.unsupported(f"reduce={reduce}, include_self={include_self}")
    shape = ctx.shape(x)
    return _write(ctx, x, src, [index], ctx.shape(index), _along(dim % len(shape), shape), functions[reduce])


@converter("aten.index_copy.default", "aten.index_add.default", "aten.index_fill.int_Scalar")
def index_write(ctx: Context, x: Any, dim: int, index: Any, source: Any, *, alpha: float = 1) -> Any:
    shape = ctx.shape(x)
    axis = dim % len(shape)
    if not isinstance(source, relax.Expr):
        source = ctx.full((1,) * len(shape), source, ctx.dtype(x))
    if alpha != 1:
        source = ctx.pointwise(lambda a: a * constant(alpha, ctx.dtype(x)), source)
    out = [*shape]
    out[axis] = ctx.shape(index)[0] if ctx.shape(index) else 1

    def at(i: Sequence[Any], loaded: Sequence[Any]) -> Any:
        position = loaded[0][(i[axis],)] if len(loaded[0].shape) else loaded[0][()]
        return tuple(wrap(position, shape[axis]) if a == axis else v for a, v in enumerate(i))

    return _write(ctx, x, source, [index], out, at, _accumulate if "add" in ctx.operator else _replace)


@converter("aten.one_hot.default")
def one_hot(ctx: Context, x: Any, num_classes: int = -1) -> Any:
    shape, dtype = ctx.results[0] or ((), "int64")

    def build(tensor: Any) -> Any:
        return te.compute(shape, lambda *i: tirx.EQ(tensor[i[:-1]], i[-1].astype("int64")).astype(dtype), name="one_hot")

    return ctx.te(build, x, name="one_hot")


@converter("aten.isin.Tensor_Tensor")
def isin(ctx: Context, elements: Any, tests: Any, *, assume_unique: bool = False, invert: bool = False) -> Any:
    from tapml.lowering.converters.reduction import max_of

    count = 1
    for extent in ctx.shape(tests):
        count *= extent
    dtype = ctx.promote((elements, tests), Promotion.NO_OPMATH)[0]
    values = ctx.cast(elements, dtype)
    candidates = reshape(ctx, ctx.cast(tests, dtype), (count,))

    def build(tensor: Any, wanted: Any) -> Any:
        k = te.reduce_axis((0, count), name="k")
        equal = te.compute(tensor.shape, lambda *i: max_of(cast(tirx.EQ(tensor[i], wanted[k]), "uint8"), axis=k), name="isin")
        return te.compute(tensor.shape, lambda *i: (equal[i] == 0) if invert else (equal[i] != 0), name="found")

    return ctx.te(build, values, candidates, name="isin")
