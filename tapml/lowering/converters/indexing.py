"""Operators that read at positions held in a tensor.

Negative indices count from the end, as in PyTorch.  TVM's front end reads out of bounds for them, and does not know
``None`` among the indices of ``index``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from tvm import te, tirx

from tapml.lowering.context import Context, Promotion, broadcast_index, cast
from tapml.lowering.converters.scalar import select
from tapml.lowering.converters.shape import reshape
from tapml.lowering.registry import converter


def wrap(position: Any, extent: int) -> Any:
    """A possibly negative index as one from the start, as int64."""
    position = position.astype("int64")
    return select(position < 0, position + extent, position)


@converter("aten.embedding.default")
def embedding(
    ctx: Context,
    weight: Any,
    indices: Any,
    padding_idx: int = -1,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Any:
    return index_select(ctx, weight, 0, indices)


@converter("aten.index_select.default")
def index_select(ctx: Context, x: Any, dim: int, indices: Any) -> Any:
    shape, picked = ctx.shape(x), ctx.shape(indices)
    if not shape:
        return x  # the only index is 0
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


def split_indices(ctx: Context, rank: int, indices: Sequence[Any]) -> tuple[list[int], list[Any]]:
    """Axes that are indexed, and their index tensors.  Masks have results of data-dependent shape: refused."""
    axes = [a for a, index in enumerate(indices) if index is not None]
    tensors = [indices[a] for a in axes]
    if any(ctx.dtype(t) in ("bool", "uint8") for t in tensors):
        raise ctx.unsupported("indexing with a mask, whose result has a shape that depends on data")
    return axes, tensors


def index_layout(
    ctx: Context, shape: Sequence[int], axes: Sequence[int], tensors: Sequence[Any]
) -> tuple[Any, int, list[int]]:
    """(broadcast shape of the indices, position of their axes in the result, axes that are not indexed).

    PyTorch puts the indexed axes where the first of them was when they are adjacent, else in front.
    """
    picked = torch.broadcast_shapes(*[ctx.shape(t) for t in tensors])  # type: ignore[no-untyped-call]
    kept = [a for a in range(len(shape)) if a not in axes]
    adjacent = list(axes) == list(range(axes[0], axes[-1] + 1))
    return picked, axes[0] if adjacent else 0, kept


def source_index(
    i: Sequence[Any],
    shape: Sequence[int],
    axes: Sequence[int],
    loaded: Sequence[Any],
    place: int,
    rank: int,
    kept: Sequence[int],
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
    axes, tensors = split_indices(ctx, len(shape), indices)
    picked, place, kept = index_layout(ctx, shape, axes, tensors)
    rest = [shape[a] for a in kept]
    out = (*rest[:place], *picked, *rest[place:])

    def build(tensor: Any, *loaded: Any) -> Any:
        return te.compute(
            out, lambda *i: tensor[source_index(i, shape, axes, loaded, place, len(picked), kept)], name="index"
        )

    return ctx.te(build, x, *tensors, name="index")


@converter("aten.one_hot.default")
def one_hot(ctx: Context, x: Any, num_classes: int = -1) -> Any:
    shape, dtype = ctx.results[0] or ((), "int64")

    def build(tensor: Any) -> Any:
        return te.compute(
            shape, lambda *i: tirx.EQ(tensor[i[:-1]], i[-1].astype("int64")).astype(dtype), name="one_hot"
        )

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
        zero = tirx.const(0, "uint8")
        equal = te.compute(
            tensor.shape, lambda *i: max_of(cast(tirx.EQ(tensor[i], wanted[k]), "uint8"), axis=k), name="isin"
        )
        return te.compute(
            tensor.shape, lambda *i: tirx.EQ(equal[i], zero) if invert else tirx.NE(equal[i], zero), name="found"
        )

    return ctx.te(build, values, candidates, name="isin")
