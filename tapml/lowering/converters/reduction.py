"""Reductions.

TVM's front end accumulates in the input's dtype, drops NaN, ignores ``correction`` and lacks ``any``/``all`` without
dimensions.  Here sums of integers and bools accumulate in int64, and floats arrive as float32 or float64 (see
:mod:`tapml.lowering.lower`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from tvm import te, tirx

from tapml.lowering.context import Context, cast, constant, scalar_dtype
from tapml.lowering.converters import scalar
from tapml.lowering.converters.scalar import select
from tapml.lowering.registry import converter
from tapml.suite.call import dtype_name, torch_dtype

Dims = Sequence[int] | int | None


def axes_of(rank: int, dim: Dims) -> tuple[int, ...]:
    """Sorted non-negative axes that ``dim`` names; all of them for ``None`` or an empty list."""
    if dim is None or (not isinstance(dim, int) and len(dim) == 0):
        return tuple(range(rank))
    dims = [dim] if isinstance(dim, int) else list(dim)
    return tuple(sorted({d % rank if rank else 0 for d in dims} if rank else set()))


def reduced_shape(shape: Sequence[int], axes: Sequence[int], keepdim: bool) -> tuple[int, ...]:
    if keepdim:
        return tuple(1 if a in axes else e for a, e in enumerate(shape))
    return tuple(e for a, e in enumerate(shape) if a not in axes)


def reduce(
    ctx: Context,
    x: Any,
    dim: Dims,
    keepdim: bool,
    reducer: Callable[..., Any],
    element: Callable[[Any], Any] = lambda value: value,
    finish: Callable[[Any], Any] | None = None,
) -> Any:
    """Reduce ``element(x)`` over ``dim`` with a TE reducer, then apply ``finish`` to each result."""
    shape = ctx.shape(x)
    axes = axes_of(len(shape), dim)
    out_shape = reduced_shape(shape, axes, keepdim)
    empty = 0 in (shape[a] for a in axes)

    def build(tensor: Any) -> Any:
        # TVM 0.27 leaves the result of a reduction over no elements uninitialised: reduce the identity instead
        ks = [te.reduce_axis((0, max(shape[a], 1) if empty else shape[a]), name=f"k{a}") for a in axes]

        def value(*index: Any) -> Any:
            if empty:
                return _no_elements(reducer, element, tensor)
            return reducer(element(tensor[source_index(len(shape), axes, keepdim, index, ks)]), axis=ks)

        if not axes:
            total = te.compute(out_shape, lambda *i: element(tensor[i]), name="reduce")
        else:
            total = te.compute(out_shape, value, name="reduce")
        return total if finish is None else te.compute(out_shape, lambda *i: finish(total[i]), name="finish")

    return ctx.te(build, x, name=ctx.operator.split(".")[1])


def _no_elements(reducer: Callable[..., Any], element: Callable[[Any], Any], tensor: Any) -> Any:
    """What ``reducer`` gives for no elements; ``tensor`` has the dtype of what is missing."""
    sample = element(tirx.const(0, str(tensor.dtype)))
    return reducer.identity(scalar_dtype(sample))  # type: ignore[attr-defined]


def source_index(
    rank: int, axes: Sequence[int], keepdim: bool, index: Sequence[Any], ks: Sequence[Any]
) -> tuple[Any, ...]:
    """Index into the unreduced tensor for the result's ``index`` and the reduction variables ``ks``."""
    if keepdim:
        return tuple(ks[axes.index(a)] if a in axes else index[a] for a in range(rank))
    kept = iter(index)
    return tuple(ks[axes.index(a)] if a in axes else next(kept) for a in range(rank))


def _reducer(function: Callable[[Any, Any], Any], identity: Callable[[str], Any], name: str) -> Callable[..., Any]:
    reducer: Callable[..., Any] = te.comm_reducer(function, identity, name=name)
    reducer.identity = identity  # type: ignore[attr-defined]
    return reducer


sum_of = _reducer(lambda a, b: a + b, lambda t: tirx.const(0, t), "sum")
product_of = _reducer(lambda a, b: a * b, lambda t: tirx.const(1, t), "prod")


def lowest(dtype: str) -> Any:
    """The identity of max: minus infinity, or the smallest integer."""
    return constant(float("-inf"), dtype) if dtype.startswith("float") else _integer_limit(dtype, low=True)


def highest(dtype: str) -> Any:
    """The identity of min."""
    return constant(float("inf"), dtype) if dtype.startswith("float") else _integer_limit(dtype, low=False)


def _integer_limit(dtype: str, *, low: bool) -> Any:
    if dtype == "bool":
        return constant(not low, dtype)
    info = torch.iinfo(torch_dtype(dtype))
    return tirx.const(info.min if low else info.max, dtype)


max_of = _reducer(scalar.maximum, lowest, "max")
min_of = _reducer(scalar.minimum, highest, "min")


def _sum_dtype(ctx: Context, x: Any, dtype: Any) -> str:
    if dtype is not None:
        return dtype_name(dtype)
    found = ctx.dtype(x)
    return found if found.startswith("float") else "int64"


@converter("aten.sum.default", "aten.sum.dim_IntList")
def sum(ctx: Context, x: Any, dim: Dims = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
    out = _sum_dtype(ctx, x, dtype)
    return reduce(ctx, x, dim, keepdim, sum_of, lambda v: cast(v, out))


@converter("aten.mean.default", "aten.mean.dim")
def mean(ctx: Context, x: Any, dim: Dims = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
    out = dtype_name(dtype) if dtype is not None else ctx.dtype(x)
    count = _count(ctx, x, dim)
    return reduce(ctx, x, dim, keepdim, sum_of, lambda v: cast(v, out), lambda s: divided(s, count))


def divided(value: Any, divisor: float) -> Any:
    """``value / divisor``; TVM refuses a constant 0, which gives NaN or infinity in PyTorch."""
    if divisor == 0:
        return scalar.select(
            tirx.EQ(value, scalar.like(value, 0)), nan(value), value * scalar.like(value, float("inf"))
        )
    return value / scalar.like(value, divisor)


def nan(value: Any) -> Any:
    """NaN of ``value``'s dtype."""
    return tirx.const(float("nan"), scalar_dtype(value))


def _count(ctx: Context, x: Any, dim: Dims) -> int:
    shape = ctx.shape(x)
    count = 1
    for axis in axes_of(len(shape), dim):
        count *= shape[axis]
    return count


@converter("aten.prod.default")
def prod(ctx: Context, x: Any, *, dtype: Any = None) -> Any:
    out = _sum_dtype(ctx, x, dtype)
    if out == "bool":
        return ctx.cast(_logical(ctx, x, None, False, min_of), out)
    return reduce(ctx, x, None, False, product_of, lambda v: cast(v, out))


@converter("aten.prod.dim_int")
def prod_dim(ctx: Context, x: Any, dim: int, keepdim: bool = False, *, dtype: Any = None) -> Any:
    out = _sum_dtype(ctx, x, dtype)
    if out == "bool":
        return ctx.cast(_logical(ctx, x, dim, keepdim, min_of), out)
    return reduce(ctx, x, dim, keepdim, product_of, lambda v: cast(v, out))


@converter("aten.any.default", "aten.any.dim", "aten.any.dims")
def any(ctx: Context, x: Any, dim: Dims = None, keepdim: bool = False) -> Any:
    return _logical(ctx, x, dim, keepdim, max_of)


@converter("aten.all.default", "aten.all.dim", "aten.all.dims")
def all(ctx: Context, x: Any, dim: Dims = None, keepdim: bool = False) -> Any:
    return _logical(ctx, x, dim, keepdim, min_of)


def _logical(ctx: Context, x: Any, dim: Dims, keepdim: bool, reducer: Callable[..., Any]) -> Any:
    """Over 0 and 1 as uint8: TVM cannot reduce bools."""
    result = reduce(ctx, x, dim, keepdim, reducer, lambda v: cast(cast(v, "bool"), "uint8"))
    return result if ctx.dtype(x) == "uint8" else ctx.cast(result, "bool")


@converter("aten.amax.default", "aten.max.default")
def amax(ctx: Context, x: Any, dim: Dims = None, keepdim: bool = False) -> Any:
    return any(ctx, x, dim, keepdim) if ctx.dtype(x) == "bool" else reduce(ctx, x, dim, keepdim, max_of)


@converter("aten.amin.default", "aten.min.default")
def amin(ctx: Context, x: Any, dim: Dims = None, keepdim: bool = False) -> Any:
    return all(ctx, x, dim, keepdim) if ctx.dtype(x) == "bool" else reduce(ctx, x, dim, keepdim, min_of)


def _arg_reducer(better: Callable[[Any, Any], Any], identity: Callable[[str], Any], name: str) -> Callable[..., Any]:
    """Reducer over (index, value) pairs: the first best value, where a NaN beats everything."""

    def combine(a: tuple[Any, Any], b: tuple[Any, Any]) -> tuple[Any, Any]:
        a_wins: Any = better(a[1], b[1])
        tie: Any = tirx.EQ(a[1], b[1])
        if scalar.is_float(a[1]):
            a_nan, b_nan = tirx.isnan(a[1]), tirx.isnan(b[1])
            a_wins = tirx.Or(a_wins, tirx.And(a_nan, tirx.Not(b_nan)))
            a_wins = tirx.And(a_wins, tirx.Or(a_nan, tirx.Not(b_nan)))
            tie = tirx.Or(tie, tirx.And(a_nan, b_nan))
        pick = tirx.Or(a_wins, tirx.And(tie, a[0] <= b[0]))
        return select(pick, a[0], b[0]), select(pick, a[1], b[1])

    def start(index_dtype: str, value_dtype: str) -> tuple[Any, Any]:
        return tirx.const(2**31 - 1, index_dtype), identity(value_dtype)

    return te.comm_reducer(combine, start, name=name)  # type: ignore[no-any-return]


argmax_of = _arg_reducer(lambda a, b: a > b, lowest, "argmax")
argmin_of = _arg_reducer(lambda a, b: a < b, highest, "argmin")


def _arg_reduce(ctx: Context, x: Any, dim: int | None, keepdim: bool, reducer: Callable[..., Any]) -> tuple[Any, Any]:
    """(index, value) of the best element along ``dim``, or over the flattened tensor."""
    if ctx.dtype(x) == "bool":
        index, value = _arg_reduce(ctx, ctx.cast(x, "uint8"), dim, keepdim, reducer)
        return index, ctx.cast(value, "bool")
    shape = ctx.shape(x)
    axes = axes_of(len(shape), dim)
    out_shape = reduced_shape(shape, axes, keepdim)

    def build(tensor: Any) -> Any:
        ks = [te.reduce_axis((0, shape[a]), name=f"k{a}") for a in axes]
        position: Any = tirx.const(0, "int64")
        for a, k in zip(axes, ks, strict=True):
            position = position * shape[a] + k.var.astype("int64")

        def value(*index: Any) -> Any:
            source = source_index(len(shape), axes, keepdim, index, ks)
            return reducer((position, tensor[source]), axis=ks)

        if not axes:
            zero = te.compute(out_shape, lambda *i: tirx.const(0, "int64"), name="index")
            return zero, te.compute(out_shape, lambda *i: tensor[i], name="value")
        return te.compute(out_shape, value, name="arg")

    index, best = ctx.te(build, x, name="arg_reduce")
    return index, best


@converter("aten.argmax.default")
def argmax(ctx: Context, x: Any, dim: int | None = None, keepdim: bool = False) -> Any:
    return _arg_reduce(ctx, x, dim, keepdim, argmax_of)[0]


@converter("aten.argmin.default")
def argmin(ctx: Context, x: Any, dim: int | None = None, keepdim: bool = False) -> Any:
    return _arg_reduce(ctx, x, dim, keepdim, argmin_of)[0]


@converter("aten.max.dim")
def max_dim(ctx: Context, x: Any, dim: int, keepdim: bool = False) -> Any:
    index, value = _arg_reduce(ctx, x, dim, keepdim, argmax_of)
    return [value, index]


@converter("aten.min.dim")
def min_dim(ctx: Context, x: Any, dim: int, keepdim: bool = False) -> Any:
    index, value = _arg_reduce(ctx, x, dim, keepdim, argmin_of)
    return [value, index]


def _variance(ctx: Context, x: Any, dim: Dims, correction: float | None, keepdim: bool) -> tuple[Any, Any]:
    """(variance, mean), both with dimensions as ``keepdim`` says; two passes."""
    average = mean(ctx, x, dim, True)
    squares = ctx.pointwise(lambda a, m: (a - m) * (a - m), x, average)
    divisor = max(0.0, _count(ctx, x, dim) - (1 if correction is None else correction))
    variance = reduce(ctx, squares, dim, keepdim, sum_of, finish=lambda s: divided(s, divisor))
    return variance, average if keepdim else mean(ctx, x, dim, False)


@converter("aten.var.correction")
def var(ctx: Context, x: Any, dim: Dims = None, *, correction: float | None = None, keepdim: bool = False) -> Any:
    return _variance(ctx, x, dim, correction, keepdim)[0]


@converter("aten.std.correction")
def std(ctx: Context, x: Any, dim: Dims = None, *, correction: float | None = None, keepdim: bool = False) -> Any:
    return ctx.pointwise(tirx.sqrt, _variance(ctx, x, dim, correction, keepdim)[0])


@converter("aten.var_mean.correction")
def var_mean(ctx: Context, x: Any, dim: Dims = None, *, correction: float | None = None, keepdim: bool = False) -> Any:
    return list(_variance(ctx, x, dim, correction, keepdim))


@converter("aten.std_mean.correction")
def std_mean(ctx: Context, x: Any, dim: Dims = None, *, correction: float | None = None, keepdim: bool = False) -> Any:
    variance, average = _variance(ctx, x, dim, correction, keepdim)
    return [ctx.pointwise(tirx.sqrt, variance), average]


@converter("aten.linalg_vector_norm.default")
def vector_norm(
    ctx: Context, x: Any, ord: float = 2, dim: Dims = None, keepdim: bool = False, *, dtype: Any = None
) -> Any:
    x = ctx.cast(x, dtype_name(dtype)) if dtype is not None else x
    if ord == 2:
        return reduce(ctx, x, dim, keepdim, sum_of, lambda v: v * v, tirx.sqrt)
    if ord == 1:
        return reduce(ctx, x, dim, keepdim, sum_of, tirx.abs)
    if ord == float("inf"):
        return reduce(ctx, x, dim, keepdim, max_of, tirx.abs)
    if ord == float("-inf"):
        return reduce(ctx, x, dim, keepdim, min_of, tirx.abs)
    like = ctx.dtype(x)
    if ord == 0:
        return reduce(ctx, x, dim, keepdim, sum_of, lambda v: cast(tirx.NE(v, tirx.const(0, like)), like))
    power = tirx.const(float(ord), like)
    root = tirx.const(1.0 / float(ord), like)
    return reduce(ctx, x, dim, keepdim, sum_of, lambda v: tirx.power(tirx.abs(v), power), lambda s: tirx.power(s, root))


@converter("aten.logsumexp.default")
def logsumexp(ctx: Context, x: Any, dim: Dims, keepdim: bool = False) -> Any:
    top = amax(ctx, x, dim, True)
    safe = ctx.pointwise(lambda m: select(tirx.isinf(m), tirx.const(0.0, ctx.dtype(x)), m), top)
    shifted = ctx.pointwise(lambda a, m: tirx.exp(a - m), x, safe)
    total = reduce(ctx, shifted, dim, True, sum_of)
    result = ctx.pointwise(lambda s, m: tirx.log(s) + m, total, safe)
    return result if keepdim else reduce(ctx, result, dim, False, sum_of)
