"""Scalar functions of TIR with PyTorch's meaning, NaN included."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tvm import tirx

from tapml.lowering.context import cast, constant, scalar_dtype


def is_float(value: Any) -> bool:
    return scalar_dtype(value).startswith(("float", "bfloat"))


def like(value: Any, number: float) -> Any:
    """``number`` as a constant of ``value``'s dtype."""
    return constant(number, scalar_dtype(value))


def select(condition: Any, yes: Any, no: Any) -> Any:
    return tirx.Select(condition, yes, no)


def ordered(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """``function``, with bools as 0 and 1: TVM 0.27 compares bools with a float instruction, which LLVM refuses."""

    def compare(a: Any, b: Any) -> Any:
        return function(cast(a, "uint8"), cast(b, "uint8")) if scalar_dtype(a) == "bool" else function(a, b)

    return compare


def maximum(a: Any, b: Any) -> Any:
    """The larger; NaN if either is."""
    if scalar_dtype(a) == "bool":
        return tirx.Or(a, b)
    return select(tirx.Or(a > b, tirx.isnan(a)), a, b) if is_float(a) else tirx.Max(a, b)


def minimum(a: Any, b: Any) -> Any:
    """The smaller; NaN if either is."""
    if scalar_dtype(a) == "bool":
        return tirx.And(a, b)
    return select(tirx.Or(a < b, tirx.isnan(a)), a, b) if is_float(a) else tirx.Min(a, b)


def differ(a: Any, b: Any) -> Any:
    """Exclusive or of two bools; TVM 0.27 compares bools with a float instruction, which LLVM refuses."""
    return tirx.Or(tirx.And(a, tirx.Not(b)), tirx.And(tirx.Not(a), b))


def remainder(a: Any, b: Any) -> Any:
    """Python's ``%``: the sign of the divisor."""
    if not is_float(a):
        return tirx.floormod(a, b)
    rest = tirx.fmod(a, b)
    zero = like(a, 0.0)
    return select(tirx.And(tirx.NE(rest, zero), differ(b < zero, rest < zero)), rest + b, rest)


def fmod(a: Any, b: Any) -> Any:
    """C's ``%``: the sign of the dividend."""
    return tirx.fmod(a, b) if is_float(a) else tirx.truncmod(a, b)


def floor_divide(a: Any, b: Any) -> Any:
    """Division rounded toward minus infinity, as ``c10::div_floor_floating`` computes it for floats."""
    if not is_float(a):
        return tirx.floordiv(a, b)
    zero, one, half = like(a, 0.0), like(a, 1.0), like(a, 0.5)
    rest = tirx.fmod(a, b)
    quotient = (a - rest) / b
    quotient = select(tirx.And(tirx.NE(rest, zero), differ(b < zero, rest < zero)), quotient - one, quotient)
    floored = tirx.floor(quotient)
    floored = select(quotient - floored > half, floored + one, floored)
    signed_zero = select((a / b) < zero, -zero, zero)
    return select(b == zero, a / b, select(quotient != zero, floored, signed_zero))


def truncate_divide(a: Any, b: Any) -> Any:
    """Division rounded toward zero."""
    return tirx.trunc(a / b) if is_float(a) else tirx.truncdiv(a, b)


def power(a: Any, b: Any) -> Any:
    """``a ** b`` for floats."""
    return tirx.power(a, b)


def power_constant(a: Any, exponent: float) -> Any:
    """``a ** exponent`` with PyTorch's short cuts for small exponents (``pow_tensor_scalar_optimized_kernel``)."""
    if exponent == 0:
        return like(a, 1)
    if float(exponent).is_integer() and (0 < exponent <= 3 or not is_float(a)):
        return _integer_power(a, int(exponent))
    if exponent == 0.5:
        return tirx.sqrt(a)
    if exponent == -0.5:
        return like(a, 1.0) / tirx.sqrt(a)
    if exponent == -1:
        return like(a, 1.0) / a
    if exponent == -2:
        return like(a, 1.0) / (a * a)
    return tirx.power(a, like(a, exponent))


def _integer_power(a: Any, exponent: int) -> Any:
    result = None
    while exponent:
        if exponent & 1:
            result = a if result is None else result * a
        a = a * a
        exponent >>= 1
    return result


def sign(a: Any) -> Any:
    """-1, 0 or 1; NaN gives 0 as in PyTorch."""
    if scalar_dtype(a) == "bool":
        return a
    zero, one = like(a, 0), like(a, 1)
    if scalar_dtype(a).startswith("uint"):
        return select(a > zero, one, zero)
    return select(a > zero, one, select(a < zero, -one, zero))


def sigmoid(a: Any) -> Any:
    return like(a, 1.0) / (like(a, 1.0) + tirx.exp(-a))


def gelu(a: Any) -> Any:
    return a * like(a, 0.5) * (like(a, 1.0) + tirx.erf(a * like(a, math.sqrt(0.5))))


def gelu_tanh(a: Any) -> Any:
    inner = like(a, math.sqrt(2.0 / math.pi)) * (a + like(a, 0.044715) * a * a * a)
    return like(a, 0.5) * a * (like(a, 1.0) + tirx.tanh(inner))


def expm1(a: Any) -> Any:
    """``exp(a) - 1`` without cancellation: ``2 exp(a/2) sinh(a/2)``, by Kahan's formula ``(u-1) a / log u``."""
    one = like(a, 1.0)
    u = tirx.exp(a)
    minus = u - one
    kahan = minus * (a / tirx.log(u))
    return select(u == one, a, select(minus == -one, minus, select(tirx.isinf(u), u, kahan)))


def softplus(a: Any, beta: float, threshold: float) -> Any:
    scaled = a * like(a, beta)
    return select(scaled > like(a, threshold), a, tirx.log1p(tirx.exp(scaled)) / like(a, beta))


def fmax(a: Any, b: Any) -> Any:
    """The larger; the other if one is NaN."""
    if not is_float(a):
        return maximum(a, b)
    return select(tirx.Or(a >= b, tirx.isnan(b)), a, b)


def fmin(a: Any, b: Any) -> Any:
    """The smaller; the other if one is NaN."""
    if not is_float(a):
        return minimum(a, b)
    return select(tirx.Or(a <= b, tirx.isnan(b)), a, b)


def negative(a: Any) -> Any:
    """The sign bit of a float: true for -0."""
    bits = "int64" if scalar_dtype(a) == "float64" else "int32"
    return tirx.reinterpret(bits, a) < tirx.const(0, bits)


def copysign(a: Any, b: Any) -> Any:
    """``|a|`` with the sign of ``b``, that of zero included."""
    return select(negative(b), -tirx.abs(a), tirx.abs(a))


def hypot(a: Any, b: Any) -> Any:
    """``sqrt(a*a + b*b)`` without overflow in between."""
    x, y = tirx.abs(a), tirx.abs(b)
    large, small = select(x > y, x, y), select(x > y, y, x)
    ratio = small / large
    finite = select(large > like(a, 0.0), large * tirx.sqrt(like(a, 1.0) + ratio * ratio), like(a, 0.0))
    infinite = tirx.Or(tirx.isinf(x), tirx.isinf(y))
    undefined = tirx.Or(tirx.isnan(x), tirx.isnan(y))
    return select(infinite, like(a, math.inf), select(undefined, a + b, finite))


_EXPONENT_BITS = 6
"""Bits of an exponent that count: a larger power of anything but 0, 1 and -1 has overflowed 64 bits."""


def integer_power(a: Any, b: Any) -> Any:
    """``a ** b`` for integers; a negative exponent gives the integer part of the fraction."""
    zero, one = like(a, 0), like(a, 1)
    result, square = one, a
    for bit in range(_EXPONENT_BITS):
        used = tirx.NE(tirx.bitwise_and(tirx.shift_right(b, like(b, bit)), one), zero)
        result = result * select(used, square, one)
        square = square * square
    odd = tirx.NE(tirx.bitwise_and(b, one), zero)
    unit = select(tirx.EQ(a, one), one, zero)
    if not scalar_dtype(a).startswith("uint"):
        unit = select(tirx.EQ(a, -one), select(odd, -one, one), unit)
    return select(b < zero, unit, result)


def _shift_is_wild(a: Any, b: Any) -> Any:
    bits = int("".join(c for c in scalar_dtype(a) if c.isdigit()))
    return tirx.Or(b < like(b, 0), b >= like(b, bits))


def shift_left(a: Any, b: Any) -> Any:
    """``a << b``; 0 for shifts that C leaves undefined, as in PyTorch."""
    return select(_shift_is_wild(a, b), like(a, 0), tirx.shift_left(a, b))


def shift_right(a: Any, b: Any) -> Any:
    """``a >> b``; all sign bits for shifts that C leaves undefined, as in PyTorch."""
    sign = select(a < like(a, 0), like(a, -1), like(a, 0)) if scalar_dtype(a).startswith("int") else like(a, 0)
    return select(_shift_is_wild(a, b), sign, tirx.shift_right(a, b))


def atanh(a: Any) -> Any:
    """``log((1 + a) / (1 - a)) / 2`` without cancellation near 0."""
    return like(a, 0.5) * tirx.log1p((a + a) / (like(a, 1.0) - a))
