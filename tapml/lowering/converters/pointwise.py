"""Element-by-element operators.

TVM's front end converts most of them, but without PyTorch's type promotion (int + float scalar, bool * bool, integer
division), with dropped NaNs (``max``, ``relu``, ``clamp``) and without arguments that it does not know.  Here they are all
made by one mechanism, :meth:`Context.pointwise`, from a function of TIR scalars and a promotion kind.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tvm import relax, tirx

from tapml.lowering.context import Context, Promotion, constant, scalar_dtype
from tapml.lowering.converters import scalar
from tapml.lowering.converters.scalar import like, select
from tapml.lowering.registry import converter, kernel
from tapml.suite.call import dtype_name

Scalar = Any
_FLOAT = Promotion.INT_TO_FLOAT
_BOOL = Promotion.ALWAYS_BOOL


def _unary(name: str, function: Callable[[Scalar], Scalar], promotion: Promotion = Promotion.DEFAULT) -> None:
    @converter(f"aten.{name}.default")
    def convert(ctx: Context, x: Any) -> Any:
        return ctx.pointwise(function, x, promotion=promotion)


def _binary(packet: str, function: Callable[[Scalar, Scalar], Scalar], promotion: Promotion, *overloads: str) -> None:
    @converter(*[f"aten.{packet}.{overload}" for overload in overloads])
    def convert(ctx: Context, x: Any, y: Any) -> Any:
        return ctx.pointwise(function, x, y, promotion=promotion)


def _round(a: Scalar) -> Scalar:
    return tirx.nearbyint(a)  # half to even; tirx.round is half away from zero


for _name, _function in {
    "exp": tirx.exp,
    "exp2": tirx.exp2,
    "expm1": scalar.expm1,
    "log": tirx.log,
    "log2": tirx.log2,
    "log10": tirx.log10,
    "log1p": tirx.log1p,
    "sqrt": tirx.sqrt,
    "rsqrt": lambda a: like(a, 1.0) / tirx.sqrt(a),
    "reciprocal": lambda a: like(a, 1.0) / a,
    "sin": tirx.sin,
    "cos": tirx.cos,
    "tan": tirx.tan,
    "sinh": tirx.sinh,
    "cosh": tirx.cosh,
    "tanh": tirx.tanh,
    "asin": tirx.asin,
    "acos": tirx.acos,
    "atan": tirx.atan,
    "asinh": tirx.asinh,
    "acosh": tirx.acosh,
    "atanh": scalar.atanh,
    "erf": tirx.erf,
    "sigmoid": scalar.sigmoid,
}.items():
    _unary(_name, _function, _FLOAT)

for _name, _function in {
    "abs": lambda a: a if scalar_dtype(a) in ("bool", "uint8") else tirx.abs(a),
    "neg": lambda a: like(a, 0) - a if scalar_dtype(a).startswith("uint") else -a,
    "sign": scalar.sign,
    "floor": lambda a: tirx.floor(a) if scalar.is_float(a) else a,
    "ceil": lambda a: tirx.ceil(a) if scalar.is_float(a) else a,
    "trunc": lambda a: tirx.trunc(a) if scalar.is_float(a) else a,
    "round": lambda a: _round(a) if scalar.is_float(a) else a,
    "relu": lambda a: scalar.maximum(a, like(a, 0)),
    "relu6": lambda a: scalar.minimum(scalar.maximum(a, like(a, 0)), like(a, 6)),
    "silu": lambda a: a * scalar.sigmoid(a),
    "square": lambda a: a * a,
    "mish": lambda a: a * tirx.tanh(scalar.softplus(a, 1.0, 20.0)),
    "hardsigmoid": lambda a: scalar.minimum(scalar.maximum(a + like(a, 3), like(a, 0)), like(a, 6)) / like(a, 6),
    "hardswish": lambda a: a * scalar.minimum(scalar.maximum(a + like(a, 3), like(a, 0)), like(a, 6)) / like(a, 6),
    "log_sigmoid": lambda a: scalar.minimum(a, like(a, 0)) - tirx.log1p(tirx.exp(-tirx.abs(a))),
    "bitwise_not": lambda a: tirx.Not(a) if scalar_dtype(a) == "bool" else tirx.bitwise_not(a),
}.items():
    _unary(_name, _function)

for _name, _function in {
    "isnan": lambda a: tirx.isnan(a) if scalar.is_float(a) else constant(False, "bool"),
    "isinf": lambda a: tirx.isinf(a) if scalar.is_float(a) else constant(False, "bool"),
    "isfinite": lambda a: tirx.isfinite(a) if scalar.is_float(a) else constant(True, "bool"),
    "logical_not": lambda a: tirx.EQ(a, like(a, 0)) if scalar_dtype(a) != "bool" else tirx.Not(a),
    "signbit": lambda a: (
        scalar.negative(a) if scalar.is_float(a) else scalar.ordered(lambda b, c: b < c)(a, like(a, 0))
    ),
}.items():
    _unary(_name, _function, _BOOL)


@kernel("aten.erfc.default", target="llvm")
def erfc(ctx: Context, x: Any) -> Any:
    """By the C library: ``1 - erf(x)`` cancels, and TIR has nothing else."""
    names = {"float32": "erfcf", "float64": "erfc"}
    return ctx.pointwise(
        lambda a: tirx.call_pure_extern(scalar_dtype(a), names[scalar_dtype(a)], a), x, promotion=_FLOAT
    )


def _truth(a: Scalar) -> Scalar:
    return a if scalar_dtype(a) == "bool" else tirx.NE(a, like(a, 0))


def _xor(a: Scalar, b: Scalar) -> Scalar:
    return scalar.differ(a, b) if scalar_dtype(a) == "bool" else tirx.bitwise_xor(a, b)


def _not_equal(a: Scalar, b: Scalar) -> Scalar:
    return scalar.differ(a, b) if scalar_dtype(a) == "bool" else tirx.NE(a, b)


for _name, _binary_function in {
    "eq": lambda a, b: tirx.Not(scalar.differ(a, b)) if scalar_dtype(a) == "bool" else tirx.EQ(a, b),
    "ne": _not_equal,
    "lt": scalar.ordered(lambda a, b: a < b),
    "le": scalar.ordered(lambda a, b: a <= b),
    "gt": scalar.ordered(lambda a, b: a > b),
    "ge": scalar.ordered(lambda a, b: a >= b),
}.items():
    _binary(_name, _binary_function, _BOOL, "Tensor", "Scalar")

for _name, _binary_function in {
    "logical_and": lambda a, b: tirx.And(_truth(a), _truth(b)),
    "logical_or": lambda a, b: tirx.Or(_truth(a), _truth(b)),
    "logical_xor": lambda a, b: scalar.differ(_truth(a), _truth(b)),
}.items():
    _binary(_name, _binary_function, _BOOL, "default")

for _name, _binary_function in {
    "bitwise_and": lambda a, b: tirx.And(a, b) if scalar_dtype(a) == "bool" else tirx.bitwise_and(a, b),
    "bitwise_or": lambda a, b: tirx.Or(a, b) if scalar_dtype(a) == "bool" else tirx.bitwise_or(a, b),
    "bitwise_xor": _xor,
}.items():
    _binary(_name, _binary_function, Promotion.DEFAULT, "Tensor", "Scalar", "Scalar_Tensor")
    _binary(f"__{_name.removeprefix('bitwise_')}__", _binary_function, Promotion.DEFAULT, "Tensor", "Scalar")

_binary(
    "mul", lambda a, b: tirx.And(a, b) if scalar_dtype(a) == "bool" else a * b, Promotion.DEFAULT, "Tensor", "Scalar"
)
_binary("div", lambda a, b: a / b, _FLOAT, "Tensor", "Scalar")
_binary("true_divide", lambda a, b: a / b, _FLOAT, "Tensor", "Scalar")
_binary("remainder", scalar.remainder, Promotion.DEFAULT, "Tensor", "Scalar", "Scalar_Tensor")
_binary("fmod", scalar.fmod, Promotion.DEFAULT, "Tensor", "Scalar")
_binary("floor_divide", scalar.floor_divide, Promotion.DEFAULT, "default", "Scalar")
_binary("maximum", scalar.maximum, Promotion.DEFAULT, "default")
_binary("minimum", scalar.minimum, Promotion.DEFAULT, "default")
_binary("max", scalar.maximum, Promotion.DEFAULT, "other")
_binary("min", scalar.minimum, Promotion.DEFAULT, "other")
_binary("fmax", scalar.fmax, Promotion.DEFAULT, "default")
_binary("fmin", scalar.fmin, Promotion.DEFAULT, "default")
_binary("copysign", scalar.copysign, _FLOAT, "Tensor", "Scalar")
_binary("hypot", scalar.hypot, Promotion.DEFAULT, "default")
_binary("atan2", tirx.atan2, _FLOAT, "default")
_binary("bitwise_left_shift", scalar.shift_left, Promotion.DEFAULT, "Tensor", "Tensor_Scalar")
_binary("bitwise_right_shift", scalar.shift_right, Promotion.DEFAULT, "Tensor", "Tensor_Scalar")


def _plus(a: Scalar, b: Scalar, alpha: float) -> Scalar:
    if scalar_dtype(a) == "bool":
        return tirx.Or(a, b) if alpha else a
    return a + b if alpha == 1 else a + b * like(a, alpha)


@converter("aten.add.Tensor", "aten.add.Scalar")
def add(ctx: Context, x: Any, y: Any, alpha: float = 1) -> Any:
    return ctx.pointwise(lambda a, b: _plus(a, b, alpha), x, y)


@converter("aten.sub.Tensor", "aten.sub.Scalar")
def sub(ctx: Context, x: Any, y: Any, alpha: float = 1) -> Any:
    return ctx.pointwise(lambda a, b: a - b if alpha == 1 else a - b * like(a, alpha), x, y)


@converter("aten.rsub.Tensor", "aten.rsub.Scalar")
def rsub(ctx: Context, x: Any, y: Any, alpha: float = 1) -> Any:
    return ctx.pointwise(lambda a, b: b - a if alpha == 1 else b - a * like(a, alpha), x, y)


@converter("aten.div.Tensor_mode", "aten.div.Scalar_mode")
def div_mode(ctx: Context, x: Any, y: Any, *, rounding_mode: str | None) -> Any:
    if rounding_mode is None:
        return ctx.pointwise(lambda a, b: a / b, x, y, promotion=_FLOAT)
    return ctx.pointwise(scalar.floor_divide if rounding_mode == "floor" else scalar.truncate_divide, x, y)


@converter("aten.pow.Tensor_Scalar")
def pow_scalar(ctx: Context, x: Any, exponent: float) -> Any:
    compute, result = ctx.promote((x, exponent), Promotion.BOOL_TO_LONG)
    return ctx.cast(
        ctx.pointwise(lambda a: scalar.power_constant(a, exponent), ctx.cast(x, compute), dtype=compute), result
    )


@converter("aten.pow.Tensor_Tensor", "aten.pow.Scalar")
def pow_tensor(ctx: Context, x: Any, y: Any) -> Any:
    floating = ctx.promote((x, y), Promotion.BOOL_TO_LONG)[0].startswith("float")
    return ctx.pointwise(scalar.power if floating else scalar.integer_power, x, y, promotion=Promotion.BOOL_TO_LONG)


@converter("aten.where.self", "aten.where.ScalarOther", "aten.where.ScalarSelf", "aten.where.Scalar")
def where(ctx: Context, condition: Any, x: Any, y: Any) -> Any:
    compute, _ = ctx.promote((x, y), Promotion.NO_OPMATH)
    return _ternary(ctx, lambda c, a, b: select(c, a, b), condition, x, y, compute)


def _ternary(ctx: Context, function: Callable[..., Scalar], mask: Any, x: Any, y: Any, dtype: str) -> Any:
    """``function(mask, x, y)`` with the mask kept bool and the others of ``dtype``."""
    typed = [ctx.cast(v, dtype) if isinstance(v, relax.Expr) else v for v in (x, y)]
    return ctx.select_te(function, mask, typed, dtype)


@converter("aten.masked_fill.Scalar", "aten.masked_fill.Tensor")
def masked_fill(ctx: Context, x: Any, mask: Any, value: Any) -> Any:
    return _ternary(ctx, lambda m, a, v: select(m, v, a), mask, x, value, ctx.dtype(x))


def _clamp(ctx: Context, x: Any, low: Any, high: Any) -> Any:
    bounds = [b for b in (low, high) if b is not None]

    def clamp(a: Scalar, *limits: Scalar) -> Scalar:
        feed = iter(limits)
        a = a if low is None else scalar.maximum(a, next(feed))
        return a if high is None else scalar.minimum(a, next(feed))

    return ctx.pointwise(clamp, x, *bounds)


@converter("aten.clamp.default", "aten.clamp.Tensor")
def clamp(ctx: Context, x: Any, min: Any = None, max: Any = None) -> Any:
    return _clamp(ctx, x, min, max)


@converter("aten.clamp_min.default", "aten.clamp_min.Tensor")
def clamp_min(ctx: Context, x: Any, min: Any) -> Any:
    return _clamp(ctx, x, min, None)


@converter("aten.clamp_max.default", "aten.clamp_max.Tensor")
def clamp_max(ctx: Context, x: Any, max: Any) -> Any:
    return _clamp(ctx, x, None, max)


@converter("aten.hardtanh.default")
def hardtanh(ctx: Context, x: Any, min_val: float = -1.0, max_val: float = 1.0) -> Any:
    return _clamp(ctx, x, min_val, max_val)


@converter("aten.gelu.default")
def gelu(ctx: Context, x: Any, *, approximate: str = "none") -> Any:
    return ctx.pointwise(scalar.gelu if approximate == "none" else scalar.gelu_tanh, x)


@converter("aten.leaky_relu.default")
def leaky_relu(ctx: Context, x: Any, negative_slope: float = 0.01) -> Any:
    return ctx.pointwise(lambda a: select(a > like(a, 0), a, a * like(a, negative_slope)), x)


@converter("aten.elu.default")
def elu(ctx: Context, x: Any, alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0) -> Any:
    def function(a: Scalar) -> Scalar:
        negative = scalar.expm1(a * like(a, input_scale)) * like(a, alpha * scale)
        return select(a <= like(a, 0), negative, a * like(a, scale))

    return ctx.pointwise(function, x)


@converter("aten.softplus.default")
def softplus(ctx: Context, x: Any, beta: float = 1.0, threshold: float = 20.0) -> Any:
    return ctx.pointwise(lambda a: scalar.softplus(a, beta, threshold), x)


@converter("aten.addcmul.default")
def addcmul(ctx: Context, x: Any, a: Any, b: Any, *, value: float = 1) -> Any:
    return ctx.pointwise(lambda s, p, q: s + like(s, value) * p * q, x, a, b)


@converter("aten.addcdiv.default")
def addcdiv(ctx: Context, x: Any, a: Any, b: Any, *, value: float = 1) -> Any:
    return ctx.pointwise(lambda s, p, q: s + like(s, value) * p / q, x, a, b)


@converter("aten.lerp.Scalar", "aten.lerp.Tensor")
def lerp(ctx: Context, x: Any, end: Any, weight: Any) -> Any:
    def function(a: Scalar, b: Scalar, w: Scalar) -> Scalar:
        near = a + w * (b - a)
        far = b - (b - a) * (like(a, 1.0) - w)
        return select(tirx.abs(w) < like(a, 0.5), near, far)

    return ctx.pointwise(function, x, end, weight)


@converter("aten.glu.default")
def glu(ctx: Context, x: Any, dim: int = -1) -> Any:
    from tapml.lowering.converters.shape import slice_axis

    half = ctx.shape(x)[dim] // 2
    first, second = slice_axis(ctx, x, dim, 0, half), slice_axis(ctx, x, dim, half, half)
    return ctx.pointwise(lambda a, b: a * scalar.sigmoid(b), first, second)


@converter("aten.nan_to_num.default")
def nan_to_num(
    ctx: Context, x: Any, nan: float | None = None, posinf: float | None = None, neginf: float | None = None
) -> Any:
    import torch

    from tapml.suite.call import torch_dtype

    if not ctx.dtype(x).startswith("float"):
        return ctx.pointwise(lambda a: a, x)
    info = torch.finfo(torch_dtype(ctx.rounded_to or ctx.dtype(x)))
    high, low = info.max if posinf is None else posinf, info.min if neginf is None else neginf

    def function(a: Scalar) -> Scalar:
        infinite = select(a > like(a, 0), like(a, high), like(a, low))
        return select(tirx.isnan(a), like(a, nan or 0.0), select(tirx.isinf(a), infinite, a))

    return ctx.pointwise(function, x)


@converter("aten.to.dtype", "aten.to.dtype_layout", "aten._to_copy.default")
def to_dtype(ctx: Context, x: Any, dtype: Any = None, *_: Any, **rest: Any) -> Any:
    wanted = dtype_name(dtype) if dtype is not None else ctx.dtype(x)
    return ctx.pointwise(lambda a: a, ctx.cast(x, wanted), dtype=wanted)


@converter("aten.clone.default", "aten.alias.default", "aten.detach.default", "aten.lift_fresh_copy.default")
def clone(ctx: Context, x: Any, *, memory_format: Any = None) -> Any:
    return ctx.pointwise(lambda a: a, x, dtype=ctx.dtype(x))


@converter("aten.copy.default")
def copy(ctx: Context, x: Any, source: Any, non_blocking: bool = False) -> Any:
    return ctx.broadcast(ctx.cast(source, ctx.dtype(x)), ctx.shape(x))


@converter("aten.fill.Scalar", "aten.fill.Tensor")
def fill(ctx: Context, x: Any, value: Any) -> Any:
    if isinstance(value, relax.Expr):
        return ctx.broadcast(ctx.cast(value, ctx.dtype(x)), ctx.shape(x))
    return ctx.full(ctx.shape(x), value, ctx.dtype(x))


@converter("aten.zero.default")
def zero(ctx: Context, x: Any) -> Any:
    return ctx.full(ctx.shape(x), 0, ctx.dtype(x))


@converter("aten.round.decimals")
def round_decimals(ctx: Context, x: Any, *, decimals: int = 0) -> Any:
    scale = math.pow(10.0, abs(decimals))

    def function(a: Scalar) -> Scalar:
        factor = like(a, scale)
        return _round(a * factor) / factor if decimals >= 0 else _round(a / factor) * factor

    return ctx.pointwise(function, x)
