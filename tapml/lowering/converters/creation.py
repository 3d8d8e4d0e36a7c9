"""Operators that make tensors from arguments alone.

Shape and dtype are those of the reference's result, which PyTorch has already worked out.
"""

from __future__ import annotations

from typing import Any

from tvm import te, tirx

from tapml.lowering.context import Context, cast, constant
from tapml.lowering.registry import converter


def _filled(ctx: Context, value: Any) -> Any:
    shape, dtype = ctx.results[0] or ((), "float32")
    return ctx.full(shape, value, dtype)


@converter("aten.full.default", "aten.new_full.default", "aten.full_like.default")
def full(ctx: Context, *args: Any, **_: Any) -> Any:
    return _filled(ctx, args[-1] if len(args) > 1 else _["fill_value"])


@converter("aten.scalar_tensor.default")
def scalar_tensor(ctx: Context, value: Any, **_: Any) -> Any:
    return _filled(ctx, value)


@converter("aten.ones.default", "aten.new_ones.default", "aten.ones_like.default")
def ones(ctx: Context, *args: Any, **_: Any) -> Any:
    return _filled(ctx, 1)


@converter("aten.zeros.default", "aten.new_zeros.default", "aten.zeros_like.default")
def zeros(ctx: Context, *args: Any, **_: Any) -> Any:
    return _filled(ctx, 0)


@converter("aten.arange.default", "aten.arange.start", "aten.arange.start_step")
def arange(ctx: Context, *bounds: float, **_: Any) -> Any:
    """``start + i * step``, in int64 for integers and in float64 for floats, as PyTorch's CPU kernel accumulates."""
    start = 0 if len(bounds) == 1 else bounds[0]
    step = bounds[2] if len(bounds) > 2 else 1
    shape, dtype = ctx.results[0] or ((), "int64")
    compute = "int64" if dtype.startswith(("int", "uint")) else "float64"
    begin, stride = constant(start, compute), constant(step, compute)
    return ctx.te(
        lambda: te.compute(shape, lambda i: cast(begin + i.astype(compute) * stride, dtype), name="arange"),
        name="arange",
    )


@converter("aten.linspace.default")
def linspace(ctx: Context, start: float, end: float, steps: int, **_: Any) -> Any:
    """From ``start`` upward in the first half and from ``end`` downward in the second, as PyTorch does."""
    shape, dtype = ctx.results[0] or ((), "float32")
    stride = (end - start) / (steps - 1) if steps > 1 else 0.0

    def element(i: Any) -> Any:
        position = i.astype("float64")
        up = tirx.const(float(start), "float64") + position * tirx.const(stride, "float64")
        down = tirx.const(float(end), "float64") - (tirx.const(float(steps - 1), "float64") - position) * tirx.const(
            stride, "float64"
        )
        return cast(tirx.Select(i < steps // 2, up, down) if steps > 1 else up, dtype)

    return ctx.te(lambda: te.compute(shape, element, name="linspace"), name="linspace")


@converter("aten.eye.default", "aten.eye.m")
def eye(ctx: Context, *args: Any, **_: Any) -> Any:
    shape, dtype = ctx.results[0] or ((), "float32")
    return ctx.te(
        lambda: te.compute(
            shape, lambda i, j: tirx.Select(tirx.EQ(i, j), constant(1, dtype), constant(0, dtype)), name="eye"
        ),
        name="eye",
    )
