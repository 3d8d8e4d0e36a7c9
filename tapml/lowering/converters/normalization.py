"""Softmax and the normalisations, each with all the results that PyTorch gives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from tvm import tirx

from tapml.lowering.context import Context
from tapml.lowering.converters.reduction import amax, mean, reduce, sum_of
from tapml.lowering.converters.scalar import like, select
from tapml.lowering.converters.shape import reshape
from tapml.lowering.registry import converter
from tapml.suite.call import dtype_name, torch_dtype


@converter("aten._softmax.default")
def softmax(ctx: Context, x: Any, dim: int, half_to_float: bool = False) -> Any:
    numerator, total, _ = _exponentials(ctx, x, dim)
    return ctx.pointwise(lambda e, s: e / s, numerator, total)


def _exponentials(ctx: Context, x: Any, dim: int) -> tuple[Any, Any, Any]:
    """``exp(x - max)``, its sum, and the maximum, all along ``dim`` with it kept."""
    top = amax(ctx, x, dim, True)
    numerator = ctx.pointwise(lambda a, m: tirx.exp(a - m), x, top)
    return numerator, reduce(ctx, numerator, dim, True, sum_of), top


@converter("aten._log_softmax.default")
def log_softmax(ctx: Context, x: Any, dim: int, half_to_float: bool = False) -> Any:
    _, total, top = _exponentials(ctx, x, dim)
    return ctx.pointwise(lambda a, m, s: a - m - tirx.log(s), x, top, total)


@converter("aten.softmax.int")
def softmax_int(ctx: Context, x: Any, dim: int, dtype: Any = None) -> Any:
    return softmax(ctx, x if dtype is None else ctx.cast(x, dtype_name(dtype)), dim)


@converter("aten.log_softmax.int")
def log_softmax_int(ctx: Context, x: Any, dim: int, dtype: Any = None) -> Any:
    return log_softmax(ctx, x if dtype is None else ctx.cast(x, dtype_name(dtype)), dim)


@converter("aten._safe_softmax.default")
def safe_softmax(ctx: Context, x: Any, dim: int, dtype: Any = None) -> Any:
    """Softmax in which a row of minus infinities gives zeros."""
    x = x if dtype is None else ctx.cast(x, dtype_name(dtype))
    top = amax(ctx, x, dim, True)
    plain = softmax(ctx, x, dim)
    return ctx.pointwise(lambda p, m: select(tirx.EQ(m, -tirx.infinity(ctx.dtype(x))), like(p, 0.0), p), plain, top)


def _centered(ctx: Context, x: Any, dims: Sequence[int], eps: float) -> tuple[Any, Any, Any]:
    """(``x - mean``, mean, reciprocal standard deviation) over ``dims``, dimensions kept.

    The corrected two-pass algorithm (Chan, Golub, LeVeque, "Algorithms for computing the sample variance", 1983, formula
    1.7): the mean of what the first mean left is what rounding took from it.  So rows of equal values have no variance,
    and long rows the mean that they should; as in PyTorch, a row with an infinity has no mean.  The offsets themselves are
    rounded, by at most u each and those of one binade alike: a rest that this can be is not added to the mean.
    """
    rough = mean(ctx, x, dims, True)
    offset = ctx.pointwise(lambda a, m: a - m, x, rough)
    rest = mean(ctx, offset, dims, True)
    square = mean(ctx, ctx.pointwise(lambda c: c * c, offset), dims, True)
    inverse = ctx.pointwise(lambda s, r: like(s, 1.0) / tirx.sqrt(s - r * r + like(s, eps)), square, rest)
    centered = ctx.pointwise(lambda c, r: c - r, offset, rest)
    unit = torch.finfo(torch_dtype(ctx.dtype(rough))).eps / 2
    average = ctx.pointwise(lambda m, r, s: select(r * r <= s * like(s, unit * unit), m, m + r), rough, rest, square)
    return centered, average, inverse


def _affine(ctx: Context, x: Any, weight: Any, bias: Any) -> Any:
    if weight is not None:
        x = ctx.pointwise(lambda a, w: a * w, x, weight)
    if bias is not None:
        x = ctx.pointwise(lambda a, b: a + b, x, bias)
    return x


@converter("aten.native_layer_norm.default")
def native_layer_norm(ctx: Context, x: Any, normalized_shape: Sequence[int], weight: Any, bias: Any, eps: float) -> Any:
    rank = len(ctx.shape(x))
    dims = list(range(rank - len(normalized_shape), rank))
    centered, average, inverse = _centered(ctx, x, dims, eps)
    normalized = ctx.pointwise(lambda c, r: c * r, centered, inverse)
    return [_affine(ctx, normalized, weight, bias), average, inverse]


@converter("aten.layer_norm.default")
def layer_norm(
    ctx: Context,
    x: Any,
    normalized_shape: Sequence[int],
    weight: Any = None,
    bias: Any = None,
    eps: float = 1e-5,
    *_: Any,
) -> Any:
    return native_layer_norm(ctx, x, normalized_shape, weight, bias, eps)[0]


@converter("aten._fused_rms_norm.default")
def fused_rms_norm(ctx: Context, x: Any, normalized_shape: Sequence[int], weight: Any, eps: float | None) -> Any:
    rank = len(ctx.shape(x))
    epsilon = torch.finfo(torch_dtype(ctx.dtype(x))).eps if eps is None else eps  # of the arithmetic, not of x
    squares = ctx.pointwise(lambda a: a * a, x)
    power = mean(ctx, squares, list(range(rank - len(normalized_shape), rank)), True)
    inverse = ctx.pointwise(lambda v: like(v, 1.0) / tirx.sqrt(v + like(v, epsilon)), power)
    return [_affine(ctx, ctx.pointwise(lambda a, r: a * r, x, inverse), weight, None), inverse]


@converter("aten.native_group_norm.default")
def native_group_norm(
    ctx: Context, x: Any, weight: Any, bias: Any, n: int, channels: int, inner: int, groups: int, eps: float
) -> Any:
    shape = ctx.shape(x)
    grouped = reshape(ctx, x, (n, groups, channels // groups * inner))
    centered, average, inverse = _centered(ctx, grouped, [2], eps)
    normalized = reshape(ctx, ctx.pointwise(lambda c, r: c * r, centered, inverse), shape)
    per_channel = (channels, *([1] * (len(shape) - 2)))
    weight, bias = (None if p is None else reshape(ctx, p, per_channel) for p in (weight, bias))
    return [
        _affine(ctx, normalized, weight, bias),
        reshape(ctx, average, (n, groups)),
        reshape(ctx, inverse, (n, groups)),
    ]


@converter("aten._native_batch_norm_legit_no_training.default")
def batch_norm_inference(
    ctx: Context, x: Any, weight: Any, bias: Any, mean_: Any, variance: Any, momentum: float, eps: float
) -> Any:
    shape = ctx.shape(x)
    per_channel = (shape[1], *([1] * (len(shape) - 2)))
    weight, bias, mean_, variance = (
        None if p is None else reshape(ctx, p, per_channel) for p in (weight, bias, mean_, variance)
    )
    normalized = ctx.pointwise(
        lambda a, m, v: (a - m) * (like(v, 1.0) / tirx.sqrt(v + like(v, eps))), x, mean_, variance
    )
    empty = ctx.full((0,), 0.0, ctx.dtype(x))
    return [_affine(ctx, normalized, weight, bias), empty, empty]


@converter("aten.native_batch_norm.default")
def native_batch_norm(
    ctx: Context, x: Any, weight: Any, bias: Any, mean_: Any, variance: Any, training: bool, momentum: float, eps: float
) -> Any:
    if training:
        raise ctx.unsupported("batch normalisation in training mode")
    return batch_norm_inference(ctx, x, weight, bias, mean_, variance, momentum, eps)
