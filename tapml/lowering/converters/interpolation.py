"""Resampling of images, signals and volumes: nearest, linear and cubic.

Positions are computed as ``aten/src/ATen/native/UpSample.h`` does, in the arithmetic dtype of the values.  TVM's front
end knows two of the operators, and those for contiguous floats only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tvm import te, tirx

from tapml.lowering.context import Context, constant
from tapml.lowering.registry import converter

Taps = list[tuple[Any, Any]]
"""Input positions with their weights."""


def _scale(inputs: int, outputs: int, align_corners: bool, given: float | None) -> float:
    if align_corners:
        return (inputs - 1) / (outputs - 1) if outputs > 1 else 0.0
    return 1.0 / given if given else inputs / outputs


def _resample(ctx: Context, x: Any, output_size: Sequence[int], taps: Callable[[int, Any], Taps]) -> Any:
    """Every output is a sum over the products of the taps of its dimensions; ``taps(dimension, output position)``."""
    shape = ctx.shape(x)
    rank = len(output_size)
    lead = len(shape) - rank

    def build(tensor: Any) -> Any:
        def element(*index: Any) -> Any:
            terms: list[tuple[tuple[Any, ...], Any]] = [(tuple(index[:lead]), None)]
            for n in range(rank):
                found = taps(n, index[lead + n])
                terms = [
                    ((*at, place), weight if factor is None else (factor if weight is None else factor * weight))
                    for at, factor in terms
                    for place, weight in found
                ]
            total: Any = None
            for at, factor in terms:
                value = tensor[at] if factor is None else tensor[at] * factor
                total = value if total is None else total + value
            return total

        return te.compute((*shape[:lead], *output_size), element, name="resample")

    return ctx.te(build, x, name="resample")


def _clip(position: Any, extent: int) -> Any:
    return tirx.Max(tirx.Min(position, tirx.const(extent - 1, "int64")), tirx.const(0, "int64"))


@converter(*(f"aten.{name}{n}d.default" for name in ("upsample_nearest", "_upsample_nearest_exact") for n in (1, 2, 3)))
def nearest(ctx: Context, x: Any, output_size: Sequence[int], *scales: float | None) -> Any:
    extents = ctx.shape(x)[-len(output_size) :]
    shift = 0.5 if "exact" in ctx.operator else 0.0

    def taps(n: int, o: Any) -> Taps:
        factor = _scale(extents[n], output_size[n], False, scales[n] if n < len(scales) else None)
        place = tirx.floor((o.astype("float32") + constant(shift, "float32")) * constant(factor, "float32"))
        return [(_clip(place.astype("int64"), extents[n]), None)]

    return _resample(ctx, x, output_size, taps)


@converter("aten.upsample_linear1d.default", "aten.upsample_bilinear2d.default", "aten.upsample_trilinear3d.default")
def linear(ctx: Context, x: Any, output_size: Sequence[int], align_corners: bool, *scales: float | None) -> Any:
    dtype = ctx.dtype(x)
    extents = ctx.shape(x)[-len(output_size) :]

    def taps(n: int, o: Any) -> Taps:
        place = _source(o, extents[n], output_size[n], align_corners, scales[n] if n < len(scales) else None, dtype)
        place = tirx.Max(place, constant(0, dtype))
        low = _clip(place.astype("int64"), extents[n])
        weight = tirx.Min(tirx.Max(place - low.astype(dtype), constant(0, dtype)), constant(1, dtype))
        return [(low, constant(1, dtype) - weight), (_clip(low + 1, extents[n]), weight)]

    return _resample(ctx, x, output_size, taps)


@converter("aten.upsample_bicubic2d.default")
def cubic(ctx: Context, x: Any, output_size: Sequence[int], align_corners: bool, *scales: float | None) -> Any:
    dtype = ctx.dtype(x)
    extents = ctx.shape(x)[-len(output_size) :]

    def near(t: Any) -> Any:  # distance below 1, Keys' kernel with a = -0.75
        return (constant(1.25, dtype) * t - constant(2.25, dtype)) * t * t + constant(1, dtype)

    def far(t: Any) -> Any:  # distance from 1 to 2
        a = constant(-0.75, dtype)
        return ((a * t - constant(5, dtype) * a) * t + constant(8, dtype) * a) * t - constant(4, dtype) * a

    def taps(n: int, o: Any) -> Taps:
        place = _source(o, extents[n], output_size[n], align_corners, scales[n] if n < len(scales) else None, dtype)
        base = tirx.floor(place)
        t = place - base
        one = constant(1, dtype)
        weights = [far(t + one), near(t), near(one - t), far(one - t + one)]
        return [(_clip(base.astype("int64") + k - 1, extents[n]), w) for k, w in enumerate(weights)]

    return _resample(ctx, x, output_size, taps)


def _source(o: Any, inputs: int, outputs: int, align_corners: bool, given: float | None, dtype: str) -> Any:
    """Where an output position lies among the inputs, as a number."""
    factor = constant(_scale(inputs, outputs, align_corners, given), dtype)
    half = constant(0.5, dtype)
    return o.astype(dtype) * factor if align_corners else (o.astype(dtype) + half) * factor - half
