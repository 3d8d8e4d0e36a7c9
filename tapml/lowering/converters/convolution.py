"""Convolution: any number of dimensions, groups, dilation, transposed or not.

TVM's front end has no transposed one in three dimensions, and imports a bias in 16 bit beside a float32 product.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import te, tirx

from tapml.lowering.context import Context, constant
from tapml.lowering.converters.reduction import sum_of
from tapml.lowering.converters.shape import reshape
from tapml.lowering.registry import converter


@converter("aten.convolution.default")
def convolution(
    ctx: Context,
    x: Any,
    weight: Any,
    bias: Any,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> Any:
    """``x`` [N, C, ...], ``weight`` [O, C / groups, ...], or [C, O / groups, ...] if ``transposed``."""
    out, dtype = ctx.results[0] or ((), "float32")
    rank = len(out) - 2
    stride, padding, dilation = (list(v) * (rank if len(v) == 1 else 1) for v in (stride, padding, dilation))
    inputs = ctx.shape(x)[2:]
    channels = ctx.shape(x)[1] // groups
    outputs = out[1] // groups

    def build(tensor: Any, filters: Any) -> Any:
        c = te.reduce_axis((0, channels), name="c")
        ks = [te.reduce_axis((0, e), name=f"k{n}") for n, e in enumerate(ctx.shape(weight)[2:])]

        def element(*index: Any) -> Any:
            group = tirx.floordiv(index[1], outputs) if groups > 1 else tirx.const(0, "int64")
            inside: list[Any] = []
            at: list[Any] = []
            for n, (o, k, extent) in enumerate(zip(index[2:], ks, inputs, strict=True)):
                if transposed:
                    moved = o + padding[n] - k * dilation[n]
                    inside.append(tirx.EQ(tirx.floormod(moved, stride[n]), 0))
                    place = tirx.floordiv(moved, stride[n])
                else:
                    place = o * stride[n] - padding[n] + k * dilation[n]
                if transposed or padding[n]:
                    inside += [place >= 0, place < extent]
                at.append(place)
            channel = group * channels + c
            taps = (channel, index[1] - group * outputs, *ks) if transposed else (index[1], c, *ks)
            value = tensor[(index[0], channel, *at)]
            if inside:
                value = tirx.if_then_else(tirx.all(*inside), value, constant(0, dtype))
            return sum_of(value * filters[taps], axis=[c, *ks])

        return te.compute(out, element, name="convolution")

    result = ctx.te(build, x, weight, name="convolution")
    if bias is None:
        return result
    return ctx.pointwise(lambda a, b: a + b, result, reshape(ctx, bias, (out[1], *([1] * rank))))
