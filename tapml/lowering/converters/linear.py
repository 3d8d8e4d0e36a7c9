"""Matrix products."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from tvm import te, tirx

from tapml.lowering.context import Context
from tapml.lowering.converters.reduction import sum_of
from tapml.lowering.converters.scalar import like
from tapml.lowering.registry import converter
from tapml.suite.call import dtype_name


def product(ctx: Context, a: Any, b: Any) -> Any:
    """Batched matrix product: ``a`` [..., M, K] by ``b`` [..., K, N], leading axes broadcast."""
    left, right = ctx.shape(a), ctx.shape(b)
    try:
        batch = torch.broadcast_shapes(left[:-2], right[:-2])  # type: ignore[no-untyped-call]
    except RuntimeError:
        batch = None
    if batch is None or left[-1] != right[-2]:  # attention in PyTorch takes values that do not go with its keys
        raise ctx.unsupported(f"a product of shapes {list(left)} and {list(right)}")
    out = (*batch, left[-2], right[-1])
    if left[-1] == 0:  # TVM 0.27 leaves a sum of no terms uninitialised
        return ctx.full(out, 0, ctx.dtype(a))

    def build(x: Any, y: Any) -> Any:
        k = te.reduce_axis((0, left[-1]), name="k")

        def element(*i: Any) -> Any:
            lead, row, column = i[:-2], i[-2], i[-1]
            at_x = (*_lead(x, lead), row, k)
            at_y = (*_lead(y, lead), k, column)
            return sum_of(x[at_x] * y[at_y], axis=k)

        return te.compute(out, element, name="matmul")

    return ctx.te(build, a, b, name="matmul")


def _lead(tensor: Any, index: Sequence[Any]) -> tuple[Any, ...]:
    extents = tensor.shape[:-2]
    tail = index[len(index) - len(extents) :] if len(extents) else ()
    return tuple(0 if int(e) == 1 else i for e, i in zip(extents, tail, strict=True))


@converter("aten.mm.default", "aten.bmm.default")
def mm(ctx: Context, a: Any, b: Any) -> Any:
    return product(ctx, a, b)


def _scaled_sum(ctx: Context, base: Any, value: Any, beta: float, alpha: float) -> Any:
    if beta == 0:  # PyTorch then ignores the base, NaN included
        return ctx.pointwise(lambda v: v * like(v, alpha), value)

    def function(s: Any, v: Any) -> Any:
        scaled = v if alpha == 1 else v * like(v, alpha)
        return scaled + (s if beta == 1 else s * like(s, beta))

    return ctx.pointwise(function, base, value)


@converter("aten.addmm.default", "aten.baddbmm.default")
def addmm(ctx: Context, base: Any, a: Any, b: Any, *, beta: float = 1, alpha: float = 1) -> Any:
    return _scaled_sum(ctx, base, product(ctx, a, b), beta, alpha)


@converter("aten.addbmm.default")
def addbmm(ctx: Context, base: Any, a: Any, b: Any, *, beta: float = 1, alpha: float = 1) -> Any:
    from tapml.lowering.converters.reduction import reduce

    return _scaled_sum(ctx, base, reduce(ctx, product(ctx, a, b), 0, False, sum_of), beta, alpha)


@converter("aten.addmv.default")
def addmv(ctx: Context, base: Any, a: Any, x: Any, *, beta: float = 1, alpha: float = 1) -> Any:
    return _scaled_sum(ctx, base, mv(ctx, a, x), beta, alpha)


@converter("aten.mv.default")
def mv(ctx: Context, a: Any, x: Any) -> Any:
    from tapml.lowering.converters.shape import reshape

    if 0 in ctx.shape(a):
        return ctx.full((ctx.shape(a)[0],), 0, ctx.dtype(a))
    column = reshape(ctx, x, (*ctx.shape(x), 1))
    return reshape(ctx, product(ctx, a, column), (ctx.shape(a)[0],))


@converter("aten.dot.default", "aten.vdot.default")
def dot(ctx: Context, x: Any, y: Any) -> Any:
    from tapml.lowering.converters.reduction import reduce

    return reduce(ctx, ctx.pointwise(lambda a, b: a * b, x, y), None, False, sum_of)


@converter("aten.linear.default")
def linear(ctx: Context, x: Any, weight: Any, bias: Any = None) -> Any:
    from tapml.lowering.converters.shape import permute, reshape

    shape = ctx.shape(x)
    flat = reshape(ctx, x, (-1 if not shape else _rows(shape), shape[-1]))
    result = reshape(ctx, product(ctx, flat, permute(ctx, weight, [1, 0])), (*shape[:-1], ctx.shape(weight)[0]))
    return result if bias is None else ctx.pointwise(lambda a, b: a + b, result, bias)


def _rows(shape: Sequence[int]) -> int:
    rows = 1
    for extent in shape[:-1]:
        rows *= extent
    return rows


@converter("aten._grouped_mm.default")
def grouped_mm(ctx: Context, a: Any, b: Any, offs: Any = None, bias: Any = None, out_dtype: Any = None) -> Any:
    """Rows of ``a`` [M, K] in consecutive groups, each multiplied by its own matrix of ``b`` [G, K, N].

    ``offs`` [G] holds the end of each group.  Rows past the last group are undefined in PyTorch, and 0 here.
    """
    if len(ctx.shape(a)) != 2 or len(ctx.shape(b)) != 3 or offs is None or bias is not None:
        raise ctx.unsupported("only groups of rows, 2-d by 3-d, without bias")
    (rows, inner), (groups, _, columns) = ctx.shape(a), ctx.shape(b)

    def build(x: Any, y: Any, ends: Any) -> Any:
        k = te.reduce_axis((0, inner), name="k")

        def group(i: Any) -> Any:
            number: Any = tirx.const(0, "int64")
            for g in range(groups):
                number = number + tirx.Select(
                    i >= ends[g].astype("int64"), tirx.const(1, "int64"), tirx.const(0, "int64")
                )
            return number

        which = te.compute((rows,), lambda i: group(i.astype("int64")), name="group")

        def element(i: Any, j: Any) -> Any:
            safe = tirx.Min(which[i], tirx.const(groups - 1, "int64"))
            value = tirx.Select(which[i] < groups, x[i, k] * y[safe, k, j], like(x[i, k], 0.0))
            return sum_of(value, axis=k)

        return te.compute((rows, columns), element, name="grouped_mm")

    out = ctx.te(build, a, b, offs, name="grouped_mm")
    return out if out_dtype is None else ctx.cast(out, dtype_name(out_dtype))
