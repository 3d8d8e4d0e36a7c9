"""Operators that only move elements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from tvm import te, tirx

from tapml.lowering.context import Context
from tapml.lowering.converters.scalar import select
from tapml.lowering.registry import converter
from tapml.suite.call import dtype_name, torch_dtype


def slice_axis(ctx: Context, x: Any, dim: int, start: int, length: int, step: int = 1) -> Any:
    """``x[..., start : start + length * step : step, ...]`` along ``dim``."""
    shape = list(ctx.shape(x))
    axis = dim % len(shape)
    shape[axis] = length

    def build(tensor: Any) -> Any:
        return te.compute(
            tuple(shape), lambda *i: tensor[tuple(v * step + start if a == axis else v for a, v in enumerate(i))]
        )

    return ctx.te(build, x, name="slice")


def reshape(ctx: Context, x: Any, shape: Sequence[int]) -> Any:
    """``x`` with another shape of as many elements."""
    old = ctx.shape(x)

    def build(tensor: Any) -> Any:
        def element(*index: Any) -> Any:
            flat: Any = tirx.const(0, "int64")
            for value, extent in zip(index, shape, strict=True):
                flat = flat * extent + value
            source = []
            for extent in reversed(old):
                source.append(tirx.floormod(flat, extent))
                flat = tirx.floordiv(flat, extent)
            return tensor[tuple(reversed(source))]

        return te.compute(tuple(shape), element, name="reshape")

    return x if tuple(shape) == old else ctx.te(build, x, name="reshape")


@converter("aten.cat.default")
def cat(ctx: Context, tensors: Sequence[Any], dim: int = 0) -> Any:
    legacy_empty = [t for t in tensors if ctx.shape(t) == (0,)]
    parts = [t for t in tensors if t not in legacy_empty and 0 not in ctx.shape(t)] or list(tensors)
    dtype = torch_dtype(ctx.dtype(tensors[0]))
    for tensor in tensors[1:]:
        dtype = torch.promote_types(dtype, torch_dtype(ctx.dtype(tensor)))
    parts = [ctx.cast(t, dtype_name(dtype)) for t in parts]
    axis = dim % len(ctx.shape(parts[0]))
    starts, total = [], 0
    for part in parts:
        starts.append(total)
        total += ctx.shape(part)[axis]
    shape = list(ctx.shape(parts[0]))
    shape[axis] = total

    def build(*inputs: Any) -> Any:
        def element(*index: Any) -> Any:
            def at(n: int) -> Any:
                return inputs[n][tuple(v - starts[n] if a == axis else v for a, v in enumerate(index))]

            value = at(len(inputs) - 1)
            for n in reversed(range(len(inputs) - 1)):
                value = tirx.if_then_else(index[axis] < starts[n + 1], at(n), value)
            return value

        return te.compute(tuple(shape), element, name="cat")

    return ctx.te(build, *parts, name="cat")


@converter("aten.stack.default")
def stack(ctx: Context, tensors: Sequence[Any], dim: int = 0) -> Any:
    shape = ctx.shape(tensors[0])
    axis = dim % (len(shape) + 1)
    lifted = [reshape(ctx, t, (*shape[:axis], 1, *shape[axis:])) for t in tensors]
    return cat(ctx, lifted, axis)


@converter("aten.flip.default")
def flip(ctx: Context, x: Any, dims: Sequence[int]) -> Any:
    shape = ctx.shape(x)
    axes = {d % len(shape) for d in dims} if shape else set()

    def build(tensor: Any) -> Any:
        return te.compute(
            shape, lambda *i: tensor[tuple(shape[a] - 1 - v if a in axes else v for a, v in enumerate(i))], name="flip"
        )

    return ctx.te(build, x, name="flip")


@converter("aten.roll.default")
def roll(ctx: Context, x: Any, shifts: Sequence[int] | int, dims: Sequence[int] | int = ()) -> Any:
    shape = ctx.shape(x)
    shifts = [shifts] if isinstance(shifts, int) else list(shifts)
    dims = [dims] if isinstance(dims, int) else list(dims)
    if not dims:
        count = 1
        for extent in shape:
            count *= extent
        return reshape(ctx, roll(ctx, reshape(ctx, x, (count,)), shifts, [0]), shape)
    by_axis = [0] * len(shape)
    for shift, dim in zip(shifts, dims, strict=True):
        by_axis[dim % len(shape)] += shift

    def build(tensor: Any) -> Any:
        return te.compute(
            shape,
            lambda *i: tensor[
                tuple(tirx.floormod(v - s % e + e, e) for v, s, e in zip(i, by_axis, shape, strict=True))
            ],
            name="roll",
        )

    return ctx.te(build, x, name="roll")


@converter("aten.repeat.default")
def repeat(ctx: Context, x: Any, repeats: Sequence[int]) -> Any:
    shape = ctx.shape(x)
    padded = (1,) * (len(repeats) - len(shape)) + shape
    out = tuple(e * r for e, r in zip(padded, repeats, strict=True))
    lead = len(repeats) - len(shape)

    def build(tensor: Any) -> Any:
        return te.compute(
            out,
            lambda *i: tensor[tuple(tirx.floormod(v, e) for v, e in zip(i[lead:], shape, strict=True))],
            name="repeat",
        )

    return ctx.te(build, x, name="repeat")


@converter("aten.repeat_interleave.self_int")
def repeat_interleave(ctx: Context, x: Any, repeats: int, dim: int | None = None, *, output_size: Any = None) -> Any:
    shape = list(ctx.shape(x))
    if dim is None:
        count = 1
        for extent in shape:
            count *= extent
        x, shape, dim = reshape(ctx, x, (count,)), [count], 0
    axis = dim % len(shape)
    shape[axis] *= repeats

    def build(tensor: Any) -> Any:
        return te.compute(
            tuple(shape),
            lambda *i: tensor[tuple(tirx.floordiv(v, repeats) if a == axis else v for a, v in enumerate(i))],
        )

    return ctx.te(build, x, name="repeat_interleave")


@converter("aten.constant_pad_nd.default")
def constant_pad(ctx: Context, x: Any, pad: Sequence[int], value: float = 0) -> Any:
    shape, dtype = ctx.shape(x), ctx.dtype(x)
    before = [0] * len(shape)
    after = [0] * len(shape)
    for n in range(len(pad) // 2):
        before[len(shape) - 1 - n], after[len(shape) - 1 - n] = pad[2 * n], pad[2 * n + 1]
    out = tuple(b + e + a for b, e, a in zip(before, shape, after, strict=True))

    def build(tensor: Any) -> Any:
        from tapml.lowering.context import constant

        def element(*index: Any) -> Any:
            inside: Any = tirx.const(True, "bool")
            source = []
            for v, b, e in zip(index, before, shape, strict=True):
                source.append(v - b)
                inside = tirx.all(inside, v >= b, v < b + e)
            return tirx.if_then_else(inside, tensor[tuple(source)], constant(value, dtype))

        return te.compute(out, element, name="pad")

    return ctx.te(build, x, name="pad")


def _triangle(ctx: Context, x: Any, diagonal: int, lower: bool) -> Any:
    shape, dtype = ctx.shape(x), ctx.dtype(x)

    def build(tensor: Any) -> Any:
        from tapml.lowering.context import constant

        def element(*i: Any) -> Any:
            keep = i[-1] - i[-2] <= diagonal if lower else i[-1] - i[-2] >= diagonal
            return select(keep, tensor[i], constant(0, dtype))

        return te.compute(shape, element, name="triangle")

    return ctx.te(build, x, name="triangle")


@converter("aten.tril.default")
def tril(ctx: Context, x: Any, diagonal: int = 0) -> Any:
    return _triangle(ctx, x, diagonal, True)


@converter("aten.triu.default")
def triu(ctx: Context, x: Any, diagonal: int = 0) -> Any:
    return _triangle(ctx, x, diagonal, False)


@converter("aten.select.int")
def select_int(ctx: Context, x: Any, dim: int, index: int) -> Any:
    shape = ctx.shape(x)
    axis = dim % len(shape)
    piece = slice_axis(ctx, x, axis, index % shape[axis], 1)
    return reshape(ctx, piece, (*shape[:axis], *shape[axis + 1 :]))


@converter("aten.slice.Tensor")
def slice_tensor(
    ctx: Context, x: Any, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> Any:
    picked = range(ctx.shape(x)[dim])[start:end:step]
    return slice_axis(ctx, x, dim, picked.start, len(picked), step)


@converter("aten.slice_scatter.default")
def slice_scatter(
    ctx: Context, x: Any, source: Any, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> Any:
    shape = ctx.shape(x)
    axis = dim % len(shape)
    picked = range(shape[axis])[start:end:step]
    first, count = picked.start, len(picked)

    def build(base: Any, patch: Any) -> Any:
        def element(*i: Any) -> Any:
            offset = i[axis] - first
            inside = tirx.all(offset >= 0, offset < count * step, tirx.EQ(tirx.floormod(offset, step), 0))
            at = tuple(tirx.floordiv(offset, step) if a == axis else v for a, v in enumerate(i))
            return tirx.if_then_else(inside, patch[at], base[i])

        return te.compute(shape, element, name="slice_scatter")

    return ctx.te(build, x, ctx.cast(source, ctx.dtype(x)), name="slice_scatter")


@converter("aten.view.default", "aten.reshape.default", "aten._unsafe_view.default", "aten.view_copy.default")
def view(ctx: Context, x: Any, shape: Sequence[int]) -> Any:
    known = 1
    for extent in shape:
        known *= extent if extent != -1 else 1
    total = 1
    for extent in ctx.shape(x):
        total *= extent
    return reshape(ctx, x, tuple(total // known if e == -1 else e for e in shape))


@converter("aten.expand.default")
def expand(ctx: Context, x: Any, size: Sequence[int], *, implicit: bool = False) -> Any:
    shape = ctx.shape(x)
    lead = len(size) - len(shape)
    return ctx.broadcast(x, tuple(shape[a - lead] if s == -1 else s for a, s in enumerate(size)))


@converter("aten.permute.default")
def permute(ctx: Context, x: Any, dims: Sequence[int]) -> Any:
    shape = ctx.shape(x)
    order = [d % len(shape) for d in dims]

    def build(tensor: Any) -> Any:
        def element(*index: Any) -> Any:
            at = dict(zip(order, index, strict=True))
            return tensor[tuple(at[a] for a in range(len(shape)))]

        return te.compute(tuple(shape[a] for a in order), element, name="permute")

    return ctx.te(build, x, name="permute")


@converter("aten.transpose.int")
def transpose(ctx: Context, x: Any, dim0: int, dim1: int) -> Any:
    order = list(range(len(ctx.shape(x))))
    if order:
        order[dim0], order[dim1] = order[dim1], order[dim0]
    return permute(ctx, x, order)


@converter("aten.t.default")
def t(ctx: Context, x: Any) -> Any:
    return permute(ctx, x, list(reversed(range(len(ctx.shape(x))))))


@converter("aten.unsqueeze.default")
def unsqueeze(ctx: Context, x: Any, dim: int) -> Any:
    shape = ctx.shape(x)
    axis = dim % (len(shape) + 1)
    return reshape(ctx, x, (*shape[:axis], 1, *shape[axis:]))


@converter("aten.squeeze.default", "aten.squeeze.dim", "aten.squeeze.dims")
def squeeze(ctx: Context, x: Any, dim: Any = None) -> Any:
    shape = ctx.shape(x)
    dims = range(len(shape)) if dim is None else ([dim] if isinstance(dim, int) else dim)
    axes = {d % len(shape) for d in dims} if shape else set()
    return reshape(ctx, x, tuple(e for a, e in enumerate(shape) if a not in axes or e != 1))


@converter("aten.split.Tensor")
def split(ctx: Context, x: Any, split_size: int, dim: int = 0) -> Any:
    extent = ctx.shape(x)[dim]
    return [slice_axis(ctx, x, dim, s, min(split_size, extent - s)) for s in range(0, extent, split_size)]


@converter("aten.split_with_sizes.default")
def split_with_sizes(ctx: Context, x: Any, sizes: Sequence[int], dim: int = 0) -> Any:
    starts = [sum(sizes[:n]) for n in range(len(sizes))]
    return [slice_axis(ctx, x, dim, s, n) for s, n in zip(starts, sizes, strict=True)]


@converter("aten.unbind.int")
def unbind(ctx: Context, x: Any, dim: int = 0) -> Any:
    return [select_int(ctx, x, dim, n) for n in range(ctx.shape(x)[dim])]


@converter("aten.diagonal.default")
def diagonal(ctx: Context, x: Any, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Any:
    shape = ctx.shape(x)
    first, second = dim1 % len(shape), dim2 % len(shape)
    rows, columns = max(0, -offset), max(0, offset)
    length = max(0, min(shape[first] - rows, shape[second] - columns))
    kept = [a for a in range(len(shape)) if a not in (first, second)]

    def build(tensor: Any) -> Any:
        def element(*index: Any) -> Any:
            at = dict(zip(kept, index[:-1], strict=True))
            at[first], at[second] = index[-1] + rows, index[-1] + columns
            return tensor[tuple(at[a] for a in range(len(shape)))]

        return te.compute((*(shape[a] for a in kept), length), element, name="diagonal")

    return ctx.te(build, x, name="diagonal")


@converter("aten.unfold.default")
def unfold(ctx: Context, x: Any, dimension: int, size: int, step: int) -> Any:
    shape = ctx.shape(x)
    axis = dimension % len(shape)
    out = [*shape, size]
    out[axis] = (shape[axis] - size) // step + 1

    def build(tensor: Any) -> Any:
        return te.compute(
            tuple(out), lambda *i: tensor[tuple(v * step + i[-1] if a == axis else v for a, v in enumerate(i[:-1]))]
        )

    return ctx.te(build, x, name="unfold")
