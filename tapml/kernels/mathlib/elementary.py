"""Elementary functions in float32 arithmetic alone, as accurate as a C library's to a few units in the last place.

WGSL and SPIR-V promise little of theirs (``exp`` within 3 + 2|x| ulp, ``atan`` within 4096 ulp, no ``erf`` at all;
https://www.w3.org/TR/WGSL/#floating-point-accuracy), and a driver may do just that.  Here the argument is reduced in the
way of W. J. Cody and W. Waite, *Software Manual for the Elementary Functions* (1980), and a polynomial does the rest:
the interpolant at Chebyshev points of the exact function, computed in float64 when it is first asked for.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

import numpy

from tapml.kernels.mathlib import text
from tapml.kernels.mathlib.text import (
    Value,
    absolute,
    both,
    builtin,
    call,
    cast,
    constant,
    either,
    floor,
    integer,
    is_nan,
    let,
    reinterpret,
    select,
    settled,
    sqrt,
)

Function = Callable[..., Value]
_LN2_HIGH, _LN2_LOW = 0.693359375, -2.12194440e-4
"""log(2) in two parts, the first of so few bits that its product with an exponent is exact (Cody and Waite)."""
LARGEST = 3.4028234663852886e38


def _half_pi() -> tuple[float, ...]:
    """pi/2 in four parts of 7 bits, whose products with a number of 17 bits are exact, and the rest."""
    parts, rest = [], math.pi / 2
    for place in (6, 13, 20, 27):
        parts.append(math.floor(rest * 2**place) / 2**place)
        rest -= parts[-1]
    return (*parts, rest + 6.123233995736766e-17)  # what float64 lacks of pi/2


_HALF_PI = _half_pi()


@lru_cache(maxsize=None)
def _coefficients(function: Callable[[float], float], low: float, high: float, degree: int) -> tuple[float, ...]:
    """Of the interpolant of ``function`` on [low, high], lowest power first."""
    fit = numpy.polynomial.Chebyshev.interpolate(numpy.vectorize(function), degree, domain=[low, high])
    return tuple(float(c) for c in fit.convert(kind=numpy.polynomial.Polynomial, domain=[-1, 1], window=[-1, 1]).coef)


def polynomial(x: Value, function: Callable[[float], float], low: float, high: float, degree: int) -> Value:
    """The interpolant of ``function`` on [low, high]."""
    result: Value = let(x, lambda x: text.polynomial(x, _coefficients(function, low, high, degree)))
    return result


def power_of_two(n: Value) -> Value:
    """2**n for an int32 ``n`` from -126 to 127."""
    return reinterpret("float32", (n + integer(127)).shifted_left(23))


def _scaled(x: Value, n: Value) -> Value:
    """x * 2**n for n from -252 to 254, in two steps, so that neither factor overflows."""
    half = n.shifted_right(1)
    return x * power_of_two(half) * power_of_two(n - half)


def _keep_nan(x: Value, value: Value) -> Value:
    return select(is_nan(x), x, value)


def _clamp(x: Value, low: float, high: float) -> Value:
    return select(x < constant(low), constant(low), select(x > constant(high), constant(high), x))


def _expm1_over_r(r: float) -> float:
    return math.expm1(r) / r if r else 1.0


def exp(x: Value) -> Value:
    return _exp(x, 0)


def _exp(x: Value, exponent: int) -> Value:
    """e**x * 2**exponent."""

    def body(c: Value, n: Value) -> Value:
        def series(r: Value) -> Value:
            return constant(1) + r * polynomial(r, _expm1_over_r, -0.35, 0.35, 6)

        rest = settled(c - n * constant(_LN2_HIGH)) - n * constant(_LN2_LOW)
        return let(rest, lambda r: _scaled(series(r), cast("int32", n) + integer(exponent)))

    def of(x: Value) -> Value:
        def with_clamped(c: Value) -> Value:
            return let(floor(c * constant(1 / math.log(2)) + constant(0.5)), lambda n: body(c, n))

        return let(_clamp(x, -105.0, 90.0), with_clamped)

    return let(x, lambda x: _keep_nan(x, of(x)))


def exp2(x: Value) -> Value:
    return let(x, lambda x: _keep_nan(x, let(_clamp(x, -151.0, 129.0), lambda c: exp2_of_sum(c, constant(0)))))


def exp2_of_sum(high: Value, low: Value) -> Value:
    """2 ** (high + low) for a small ``low``."""

    def body(c: Value, n: Value) -> Value:
        def series(r: Value) -> Value:
            return constant(1) + r * polynomial(r, _expm1_over_r2, -0.5, 0.5, 7)

        return let(settled(c - n) + low, lambda r: _scaled(series(r), cast("int32", n)))

    clamped = _clamp(high, -151.0, 129.0)
    return let(clamped, lambda c: let(floor(c + constant(0.5)), lambda n: body(c, n)))


def _expm1_over_r2(r: float) -> float:
    return math.expm1(r * math.log(2)) / r if r else math.log(2)


def _log_tail(f: float) -> float:
    """(log(1 + f) - f + f**2 / 2) / f**3."""
    if abs(f) < 1e-3:
        return 1 / 3 - f / 4 + f * f / 5 - f**3 / 6
    return (math.log1p(f) - f + f * f / 2) / f**3


def _log_rest(f: Value) -> Value:
    """log(1 + f) - f for f from sqrt(1/2) - 1 to sqrt(2) - 1."""
    return f * f * (f * polynomial(f, _log_tail, -0.2929, 0.4143, 9) - constant(0.5))


def _logarithm(x: Value, finish: Callable[[Value, Value, Value], Value]) -> Value:
    """``finish(e, f, tail)`` where x = 2**e * (1 + f), f around 0 and log(1 + f) = f + tail; and the special cases."""
    tiny = x < constant(2.0**-126)
    normal = select(tiny, x * constant(2.0**23), x)

    def split(y: Value) -> Value:
        bits = reinterpret("int32", y)
        # the mantissa of sqrt(1/2): adding the difference to 1 moves those above it into the next binade
        moved = bits + integer(0x3F800000 - 0x3F3504F3)

        def parts(moved: Value) -> Value:
            exponent = moved.shifted_right(23) - integer(127)
            mantissa = (moved & integer(0x007FFFFF)) + integer(0x3F3504F3)
            shift = select(tiny, constant(23), constant(0))
            return let(
                reinterpret("float32", mantissa) - constant(1),
                lambda f: let(
                    cast("float32", exponent) - shift,
                    lambda e: finish(e, f, _log_rest(f)),
                ),
            )

        return let(moved, parts)

    regular = let(normal, split)
    below = select(x.equals(constant(0)), constant(-math.inf), constant(math.nan))
    return select(x > constant(0), select(x > constant(LARGEST), x, regular), _keep_nan(x, below))


def log(x: Value) -> Value:
    return let(
        x, lambda x: _logarithm(x, lambda e, f, tail: e * constant(_LN2_HIGH) + (f + (tail + e * constant(_LN2_LOW))))
    )


def _log_in_base(x: Value, base: float) -> Value:
    inverse = 1 / math.log(base)
    high = float(numpy.float32(math.floor(inverse * 2048) / 2048))
    low, per_two = inverse - high, math.log(2) * inverse
    two_high = float(numpy.float32(math.floor(per_two * 4096) / 4096))

    def finish(e: Value, f: Value, tail: Value) -> Value:
        small = f * constant(low) + tail * constant(inverse) + e * constant(per_two - two_high)
        return e * constant(two_high) + (f * constant(high) + small)

    return let(x, lambda x: _logarithm(x, finish))


def log2(x: Value) -> Value:
    return _log_in_base(x, 2.0)


def log10(x: Value) -> Value:
    return _log_in_base(x, 10.0)


def log1p(x: Value) -> Value:
    """Around 0 the polynomial of :func:`log`, of x itself: what 1 + x rounds away is not needed then.

    Elsewhere log(1 + x), corrected (D. Goldberg, ACM Computing Surveys 23, 1991, theorem 4).  The correction alone would
    not do: a compiler may take (1 + x) - 1 for x, as Mesa does with what comes from WGSL, and 1 + x is then off by more
    than a small x has places.
    """

    def of(x: Value) -> Value:
        near = x + _log_rest(x)

        def body(u: Value) -> Value:
            corrected = call_log(u) * (x / (u - constant(1)))
            far = select(u > constant(LARGEST), u, select(u <= constant(0), call_log(u), corrected))
            return select(both(x > constant(-0.2929), x < constant(0.4142)), near, far)

        return let(constant(1) + x, body)

    return let(x, lambda x: _keep_nan(x, of(x)))


def _odd(function: Callable[[float], float], at_zero: float) -> Callable[[float], float]:
    """t -> function(sqrt(t)) / sqrt(t)."""

    def quotient(t: float) -> float:
        return function(math.sqrt(t)) / math.sqrt(t) if t > 1e-12 else at_zero

    return quotient


_TANH, _ERF, _SINH = _odd(math.tanh, 1.0), _odd(math.erf, 2 / math.sqrt(math.pi)), _odd(math.sinh, 1.0)
_SIN, _ATAN, _ASIN = _odd(math.sin, 1.0), _odd(math.atan, 1.0), _odd(math.asin, 1.0)


def _signed(x: Value, magnitude: Value) -> Value:
    return select(negative(x), -magnitude, magnitude)


def tanh(x: Value) -> Value:
    def of(x: Value) -> Value:
        near = x * polynomial(x * x, _TANH, 0.0, 0.4, 7)
        far = let(
            absolute(x),
            lambda a: constant(1) - constant(2) / (call_exp(constant(2) * _clamp(a, 0.0, 20.0)) + constant(1)),
        )
        return select(absolute(x) < constant(0.6), near, _signed(x, far))

    return let(x, lambda x: _keep_nan(x, of(x)))


def _erfcx(x: float) -> float:
    return math.exp(x * x) * math.erfc(x)


def erf(x: Value) -> Value:
    def of(x: Value) -> Value:
        near = x * polynomial(x * x, _ERF, 0.0, 1.0, 8)

        def far(a: Value) -> Value:
            return constant(1) - call_exp(-(a * a)) * polynomial(a - constant(2.5), _shifted_erfcx, -1.5, 1.5, 10)

        return select(absolute(x) < constant(1), near, _signed(x, let(_clamp(absolute(x), 0.0, 4.0), far)))

    return let(x, lambda x: _keep_nan(x, of(x)))


def _shifted_erfcx(t: float) -> float:
    return _erfcx(t + 2.5)


def sinh(x: Value) -> Value:
    def of(x: Value) -> Value:
        near = x * polynomial(x * x, _SINH, 0.0, 1.0, 5)

        def far(a: Value) -> Value:
            return let(_exp(a, -1), lambda h: h - constant(0.25) / h)

        return select(absolute(x) < constant(1), near, _signed(x, let(absolute(x), far)))

    return let(x, lambda x: _keep_nan(x, of(x)))


def cosh(x: Value) -> Value:
    return let(x, lambda x: let(_exp(absolute(x), -1), lambda h: h + constant(0.25) / h))


def _cos_even(t: float) -> float:
    return math.cos(math.sqrt(t))


_FAR = 2e5
"""Up to here |x| * 2 / pi has 17 bits."""


def _trigonometric(x: Value, quarter: int) -> Value:
    """sin(x + quarter * pi / 2),  by the device's own function where |x| is larger than ``_FAR``."""

    def of(x: Value) -> Value:
        return let(floor(x * constant(2 / math.pi) + constant(0.5)), lambda n: body(x, n))

    def body(x: Value, n: Value) -> Value:
        rest = x
        for part in _HALF_PI:
            rest = settled(rest - n * constant(part))

        def series(r: Value) -> Value:
            sine = r * polynomial(r * r, _SIN, 0.0, 0.62, 5)
            cosine = polynomial(r * r, _cos_even, 0.0, 0.62, 5)

            def pick(q: Value) -> Value:
                odd = (q & integer(1)) > integer(0)
                value = select(odd, cosine, sine)
                negative = (q & integer(2)) > integer(0)
                return let(value, lambda v: select(negative, -v, v))

            return let(cast("int32", n) + integer(quarter), pick)

        return let(rest, series)

    def guarded(x: Value) -> Value:
        inside = absolute(x) < constant(_FAR)
        own = builtin("sin" if quarter == 0 else "cos", x)
        far = select(absolute(x) <= constant(LARGEST), own, constant(math.nan))
        return select(inside, of(let(x, lambda y: select(inside, y, constant(0)))), far)

    return let(x, guarded)


def sin(x: Value) -> Value:
    return _trigonometric(x, 0)


def cos(x: Value) -> Value:
    return _trigonometric(x, 1)


def tan(x: Value) -> Value:
    return let(x, lambda x: call("tapml_sin", sin, x) / call("tapml_cos", cos, x))


def atan(x: Value) -> Value:
    def of(x: Value) -> Value:
        def body(a: Value) -> Value:
            # atan(a) = pi/4 + atan((a - 1) / (a + 1)) brings everything to |t| <= tan(pi/8)
            middle = both(a > constant(0.4142135), a < constant(2.4142135))
            t = select(
                middle,
                (a - constant(1)) / (a + constant(1)),
                select(a >= constant(2.4142135), constant(-1) / a, a),
            )
            base = select(
                middle, constant(math.pi / 4), select(a >= constant(2.4142135), constant(math.pi / 2), constant(0))
            )
            return let(t, lambda t: _signed(x, base + t * polynomial(t * t, _ATAN, 0.0, 0.1716, 5)))

        return let(absolute(x), body)

    return let(x, lambda x: _keep_nan(x, of(x)))


def asin(x: Value) -> Value:
    def of(x: Value) -> Value:
        near = x * polynomial(x * x, _ASIN, 0.0, 0.25, 8)

        def far(t: Value) -> Value:  # t = (1 - |x|) / 2
            root = sqrt(t)
            return constant(math.pi / 2) - constant(2) * root * polynomial(t, _ASIN, 0.0, 0.25, 8)

        return select(
            absolute(x) <= constant(0.5), near, _signed(x, let((constant(1) - absolute(x)) * constant(0.5), far))
        )

    return let(x, lambda x: _keep_nan(x, of(x)))


def acos(x: Value) -> Value:
    def of(x: Value) -> Value:
        near = constant(math.pi / 2) - x * polynomial(x * x, _ASIN, 0.0, 0.25, 8)

        def far(t: Value) -> Value:
            return let(
                constant(2) * sqrt(t) * polynomial(t, _ASIN, 0.0, 0.25, 8),
                lambda v: select(x < constant(0), constant(math.pi) - v, v),
            )

        return select(absolute(x) <= constant(0.5), near, let((constant(1) - absolute(x)) * constant(0.5), far))

    return let(x, lambda x: _keep_nan(x, of(x)))


def asinh(x: Value) -> Value:
    def of(x: Value) -> Value:
        def body(a: Value) -> Value:
            square = a * a
            moderate = call_log1p(a + square / (constant(1) + sqrt(square + constant(1))))
            return _signed(x, select(a > constant(1e9), call_log(a) + constant(math.log(2)), moderate))

        return let(absolute(x), body)

    return let(x, lambda x: _keep_nan(x, of(x)))


def acosh(x: Value) -> Value:
    def of(x: Value) -> Value:
        t = x - constant(1)
        moderate = let(t, lambda t: call_log1p(t + sqrt(constant(2) * t + t * t)))
        return select(
            x < constant(1),
            constant(math.nan),
            select(x > constant(1e9), call_log(x) + constant(math.log(2)), moderate),
        )

    return let(x, lambda x: _keep_nan(x, of(x)))


def rsqrt(x: Value) -> Value:
    return constant(1) / sqrt(x)


def atan2(y: Value, x: Value) -> Value:
    def of(y: Value, x: Value) -> Value:
        def body(a: Value, b: Value) -> Value:
            low, high = select(a < b, a, b), select(a < b, b, a)
            both_infinite = both(a > constant(LARGEST), b > constant(LARGEST))
            ratio = select(high.equals(constant(0)), constant(0), select(both_infinite, constant(1), low / high))

            def angle(t: Value) -> Value:
                t = select(a > b, constant(math.pi / 2) - t, t)
                return let(t, lambda t: select(negative(x), constant(math.pi) - t, t))

            return let(let(ratio, lambda r: call("tapml_atan", atan, r)), angle)

        size: Value = let(let(absolute(y), lambda a: let(absolute(x), lambda b: body(a, b))), lambda v: v)
        signed = select(negative(y), -size, size)
        return select(either(is_nan(x), is_nan(y)), x + y, signed)

    return let(y, lambda y: let(x, lambda x: of(y, x)))


def negative(x: Value) -> Value:
    """By the sign bit: true for -0."""
    return reinterpret("int32", x) < integer(0)


def exp10(x: Value) -> Value:
    def body(c: Value, n: Value) -> Value:
        def series(r: Value) -> Value:
            return constant(1) + r * polynomial(r, _expm1_over_r10, -0.152, 0.152, 7)

        # log10(2) in two parts, the first of 10 bits
        rest = settled(c - n * constant(0.30078125)) - n * constant(math.log10(2) - 0.30078125)
        return let(rest, lambda r: _scaled(series(r), cast("int32", n)))

    def with_clamped(c: Value) -> Value:
        return let(floor(c * constant(math.log2(10)) + constant(0.5)), lambda n: body(c, n))

    return let(x, lambda x: _keep_nan(x, let(_clamp(x, -46.0, 39.0), with_clamped)))


def _expm1_over_r10(r: float) -> float:
    return math.expm1(r * math.log(10)) / r if r else math.log(10)


def call_exp(x: Value) -> Value:
    return call("tapml_exp", exp, x)


def call_log(x: Value) -> Value:
    return call("tapml_log", log, x)


def call_log1p(x: Value) -> Value:
    return call("tapml_log1p", log1p, x)
