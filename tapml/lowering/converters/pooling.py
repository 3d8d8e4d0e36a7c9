"""Pooling over any number of dimensions.

TVM's front end returns indices of the wrong dtype, drops NaN, and does not know ``divisor_override``; for adaptive
windows of unequal size it averages over too many elements.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tvm import te, tirx

from tapml.lowering.context import Context, constant
from tapml.lowering.converters.reduction import argmax_of, lowest, sum_of
from tapml.lowering.converters.scalar import truncate_divide
from tapml.lowering.registry import converter

_OUTSIDE = 2**31 - 1
"""Position of an element in the padding: it never wins a tie."""


@dataclass(frozen=True)
class Window:
    """The window of one dimension: for an output position, its first input position and how many it has; the most it
    has; the distance between two."""

    first: Callable[[Any], Any]
    count: Callable[[Any], Any]
    most: int
    step: int = 1


def _per_dimension(value: int | Sequence[int], rank: int, default: Sequence[int] = ()) -> list[int]:
    values = [value] if isinstance(value, int) else list(value)
    return (values or list(default)) * (rank if len(values or default) == 1 else 1)


def fixed_windows(
    kernel: Sequence[int], stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int]
) -> list[Window]:
    """Windows of ``kernel`` elements which begin ``stride`` apart."""

    def window(k: int, s: int, p: int, d: int) -> Window:
        return Window(lambda o: o * s - p, lambda o: constant(k, "int64"), k, d)

    return [window(*sizes) for sizes in zip(kernel, stride, padding, dilation, strict=True)]


def adaptive_windows(inputs: Sequence[int], outputs: Sequence[int]) -> list[Window]:
    """Windows from ``floor(o*in/out)`` up to ``ceil((o+1)*in/out)``."""

    def window(extent: int, out: int) -> Window:
        def first(o: Any) -> Any:
            return tirx.floordiv(o * extent, out)

        def count(o: Any) -> Any:
            return tirx.floordiv((o + 1) * extent + out - 1, out) - first(o)

        most = max(-((-(o + 1) * extent) // out) - o * extent // out for o in range(out)) if out else 1
        return Window(first, count, most)

    return [window(*sizes) for sizes in zip(inputs, outputs, strict=True)]


def _elements(
    shape: Sequence[int], windows: Sequence[Window], index: Sequence[Any], ks: Sequence[Any]
) -> tuple[list[Any], Any]:
    """(input positions, whether they are inside) of window element ``ks`` for output ``index``."""
    inside: Any = tirx.const(True, "bool")
    at = list(index[: len(index) - len(windows)])
    for o, k, extent, window in zip(index[len(at) :], ks, shape[len(at) :], windows, strict=True):
        place = window.first(o.astype("int64")) + k.astype("int64") * window.step
        inside = tirx.all(inside, k.astype("int64") < window.count(o.astype("int64")), place >= 0, place < extent)
        at.append(place)
    return at, inside


def max_pool(ctx: Context, x: Any, windows: Sequence[Window]) -> list[Any]:
    """[largest value of each window, its position in the flattened spatial dimensions]; NaN counts as largest."""
    shape, dtype = ctx.shape(x), ctx.dtype(x)
    out, _ = ctx.results[0] or ((), "")

    def build(tensor: Any) -> Any:
        ks = [te.reduce_axis((0, w.most), name=f"k{n}") for n, w in enumerate(windows)]

        def element(*index: Any) -> Any:
            at, inside = _elements(shape, windows, index, [k.var for k in ks])
            position: Any = tirx.const(0, "int64")
            for extent, place in zip(shape[-len(windows) :], at[-len(windows) :], strict=True):
                position = position * extent + place
            value = tirx.if_then_else(inside, tensor[tuple(at)], lowest(dtype))
            return argmax_of((tirx.if_then_else(inside, position, tirx.const(_OUTSIDE, "int64")), value), axis=ks)

        return te.compute(out, element, name="max_pool")

    position, value = ctx.te(build, x, name="max_pool")
    return [value, position]


def sum_pool(ctx: Context, x: Any, windows: Sequence[Window], divisor: Callable[[Sequence[Any]], Any]) -> Any:
    """Sum of each window, divided by ``divisor(output index)``."""
    shape, dtype = ctx.shape(x), ctx.dtype(x)
    out, _ = ctx.results[0] or ((), "")
    quotient = truncate_divide if dtype.startswith(("int", "uint")) else (lambda a, b: a / b)

    def build(tensor: Any) -> Any:
        ks = [te.reduce_axis((0, w.most), name=f"k{n}") for n, w in enumerate(windows)]

        def element(*index: Any) -> Any:
            at, inside = _elements(shape, windows, index, [k.var for k in ks])
            return sum_of(tirx.if_then_else(inside, tensor[tuple(at)], constant(0, dtype)), axis=ks)

        total = te.compute(out, element, name="sum_pool")
        return te.compute(out, lambda *i: quotient(total[i], divisor(i).astype(dtype)), name="average")

    return ctx.te(build, x, name="avg_pool")


@converter("aten.max_pool2d_with_indices.default", "aten.max_pool3d_with_indices.default")
def max_pool_with_indices(
    ctx: Context,
    x: Any,
    kernel_size: Any,
    stride: Any = (),
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
) -> list[Any]:
    rank = 3 if "3d" in ctx.operator else 2
    kernel = _per_dimension(kernel_size, rank)
    windows = fixed_windows(
        kernel, _per_dimension(stride, rank, kernel), _per_dimension(padding, rank), _per_dimension(dilation, rank)
    )
    return max_pool(ctx, x, windows)


@converter("aten.avg_pool1d.default", "aten.avg_pool2d.default", "aten.avg_pool3d.default")
def avg_pool(
    ctx: Context,
    x: Any,
    kernel_size: Any,
    stride: Any = (),
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Any:
    rank = next(n for n in (1, 2, 3) if f"{n}d" in ctx.operator)
    kernel, pads = _per_dimension(kernel_size, rank), _per_dimension(padding, rank)
    strides = _per_dimension(stride, rank, kernel)
    extents = ctx.shape(x)[-rank:]

    def divisor(index: Sequence[Any]) -> Any:
        if divisor_override is not None:
            return tirx.const(divisor_override, "int64")
        size: Any = tirx.const(1, "int64")
        for o, k, s, p, extent in zip(index[-rank:], kernel, strides, pads, extents, strict=True):
            first = o.astype("int64") * s - p
            last = tirx.Min(first + k, tirx.const(extent + p, "int64"))
            if not count_include_pad:
                first = tirx.Max(first, tirx.const(0, "int64"))
                last = tirx.Min(last, tirx.const(extent, "int64"))
            size = size * (last - first)
        return size

    return sum_pool(ctx, x, fixed_windows(kernel, strides, pads, [1] * rank), divisor)


@converter("aten._adaptive_avg_pool2d.default", "aten._adaptive_avg_pool3d.default")
def adaptive_avg_pool(ctx: Context, x: Any, output_size: Sequence[int]) -> Any:
    rank = len(output_size)
    windows = adaptive_windows(ctx.shape(x)[-rank:], output_size)

    def divisor(index: Sequence[Any]) -> Any:
        size: Any = tirx.const(1, "int64")
        for o, window in zip(index[-rank:], windows, strict=True):
            size = size * window.count(o.astype("int64"))
        return size

    return sum_pool(ctx, x, windows, divisor)


@converter("aten.adaptive_max_pool2d.default", "aten.adaptive_max_pool3d.default")
def adaptive_max_pool(ctx: Context, x: Any, output_size: Sequence[int]) -> list[Any]:
    return max_pool(ctx, x, adaptive_windows(ctx.shape(x)[-len(output_size) :], output_size))
