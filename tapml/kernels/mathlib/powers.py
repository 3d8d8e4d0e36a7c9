"""Powers and remainders of floats, where arithmetic in float32 alone is not accurate enough: in pairs of floats.

See T. J. Dekker, "A floating-point technique for extending the available precision", Numerische Mathematik 18 (1971).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import numpy

from tapml.kernels.mathlib.elementary import LARGEST, exp2_of_sum, negative, polynomial, power_of_two
from tapml.kernels.mathlib.text import (
    Value,
    absolute,
    both,
    cast,
    constant,
    either,
    floor,
    integer,
    is_nan,
    let,
    negated,
    reinterpret,
    select,
    settled,
    unsigned,
)

_UPPER = 0xFFFFF000
"""Sign, exponent and the upper 12 of the 24 bits of a float32."""
_LOG2_E = 1 / math.log(2)
_LOG2_E_HIGH = float(numpy.float32(_LOG2_E))


def _halves(x: Value, use: Callable[[Value, Value], Value]) -> Value:
    """``use(high, low)`` with x = high + low, each of 12 bits."""
    upper = reinterpret("float32", reinterpret("uint32", x) & unsigned(_UPPER))
    return let(upper, lambda high: let(x - high, lambda low: use(high, low)))


def _product(a: Value, b: Value, use: Callable[[Value, Value], Value]) -> Value:
    """``use(product, error)``: a * b = product + error exactly."""

    def of(a: Value, b: Value) -> Value:
        def with_halves(p: Value, ah: Value, al: Value, bh: Value, bl: Value) -> Value:
            first = settled(settled(ah * bh) - p)
            return let(first + settled(ah * bl) + settled(al * bh) + al * bl, lambda error: use(p, error))

        p = settled(a * b)
        return _halves(a, lambda ah, al: _halves(b, lambda bh, bl: with_halves(p, ah, al, bh, bl)))

    return let(a, lambda a: let(b, lambda b: of(a, b)))


def _sum(a: Value, b: Value, use: Callable[[Value, Value], Value]) -> Value:
    """``use(sum, error)`` for |a| >= |b|."""

    def of(a: Value, b: Value) -> Value:
        s = settled(a + b)
        return let(b - settled(s - a), lambda error: use(s, error))

    return let(a, lambda a: let(b, lambda b: of(a, b)))


def _tail(square: float) -> float:
    """(log((1 + s) / (1 - s)) / s - 2) / s**2 for s**2 = ``square``."""
    s = math.sqrt(square)
    if s < 1e-2:
        return 2 / 3 + 2 * square / 5 + 2 * square**2 / 7
    return (math.log((1 + s) / (1 - s)) / s - 2) / square


def _log2_pair(x: Value, use: Callable[[Value, Value], Value]) -> Value:
    """``use(high, low)``: the logarithm of a positive finite float to base 2."""
    tiny = x < constant(2.0**-126)
    scaled = select(tiny, x * constant(2.0**23), x)

    def parts(moved: Value) -> Value:
        exponent = moved.shifted_right(23) - integer(127)
        mantissa = (moved & integer(0x007FFFFF)) + integer(0x3F3504F3)
        e = cast("float32", exponent) - select(tiny, constant(23), constant(0))
        return let(e, lambda e: let(reinterpret("float32", mantissa) - constant(1), lambda f: of_mantissa(e, f)))

    def of_mantissa(e: Value, f: Value) -> Value:
        d = settled(constant(2) + f)
        s = settled(f / d)

        def with_rest(p: Value, error: Value) -> Value:
            lost = f - settled(d - constant(2))
            return let(((settled(f - p) - error) - s * lost) / d, lambda rest: of_s(e, s, rest))

        return _product(s, d, with_rest)

    def of_s(e: Value, s: Value, rest: Value) -> Value:
        # log(1 + f) = 2 s + 2 rest + s**3 * tail
        small = let(s * s, lambda q: constant(2) * rest + s * q * polynomial(q, _tail, 0.0, 0.0296, 4))
        return _sum(constant(2) * s, small, lambda high, low: in_base_two(e, high, low))

    def in_base_two(e: Value, high: Value, low: Value) -> Value:
        def with_exponent(p: Value, error: Value) -> Value:
            rest = error + (high * constant(_LOG2_E - _LOG2_E_HIGH) + low * constant(_LOG2_E))
            # |e| is 0 or at least as large as p
            first = select(e.equals(constant(0)), p, e)
            second = select(e.equals(constant(0)), constant(0), p)
            return let(first, lambda a: let(second, lambda b: _sum(a, b, lambda s, lost: _sum(s, lost + rest, use))))

        return _product(high, constant(_LOG2_E_HIGH), with_exponent)

    moved = reinterpret("int32", scaled) + integer(0x3F800000 - 0x3F3504F3)
    return let(moved, parts)


def _differ(p: Value, q: Value) -> Value:
    return either(both(p, negated(q)), both(negated(p), q))


def power(a: Value, b: Value) -> Value:
    """``a ** b`` with C's special cases (C11, F.10.4.4)."""

    def magnitude(x: Value, b: Value) -> Value:
        def with_logarithm(high: Value, low: Value) -> Value:
            return _product(high, b, lambda p, error: exp2_of_sum(p, error + low * b))

        huge = absolute(b) > constant(1e10)  # anything but 1 overflows or vanishes; products of halves would overflow
        above = select(_differ(x > constant(1), b > constant(0)), constant(0), constant(math.inf))
        special = select(
            x.equals(constant(1)),
            constant(1),
            select(
                x.equals(constant(0)),
                select(b < constant(0), constant(math.inf), constant(0)),
                select(b > constant(0), select(huge, above, x), select(huge, above, constant(0))),
            ),
        )
        regular = both(both(x > constant(0), x <= constant(LARGEST)), negated(huge))
        safe = select(regular, x, constant(1))
        return select(
            both(regular, negated(x.equals(constant(1)))), let(safe, lambda x: _log2_pair(x, with_logarithm)), special
        )

    def signed(a: Value, b: Value) -> Value:
        whole = floor(b).equals(b)
        half = b * constant(0.5)
        odd = both(whole, negated(floor(half).equals(half)))
        negative = reinterpret("int32", a) < integer(0)
        size = let(absolute(a), lambda x: magnitude(x, b))

        def finish(m: Value) -> Value:
            value = select(both(negative, odd), -m, m)
            infinite = either(absolute(b) > constant(LARGEST), absolute(a) > constant(LARGEST))
            undefined = both(both(a < constant(0), negated(whole)), negated(infinite))
            return select(undefined, constant(math.nan), value)

        one = either(b.equals(constant(0)), a.equals(constant(1)))
        nan = select(is_nan(a), a, b)
        return select(one, constant(1), select(either(is_nan(a), is_nan(b)), nan, let(size, finish)))

    return let(a, lambda a: let(b, lambda b: signed(a, b)))


_ROUNDS = 4
"""Each takes 20 bits of the quotient: beyond 2**80 the remainder is wrong."""


def fmod(a: Value, b: Value) -> Value:
    """The remainder with the sign of ``a``: a long division, whose every remainder is exact."""

    def reduce(rest: Value, b: Value, rounds: int) -> Value:
        if rounds == 0:
            return rest

        def with_exponent(e: Value) -> Value:
            divisor = b * power_of_two(select(e < integer(0), integer(0), e))
            return let(divisor, lambda s: let(floor(rest / s), lambda q: _product(q, s, partial(take, s))))

        def take(s: Value, p: Value, error: Value) -> Value:
            def adjust(r: Value) -> Value:  # the quotient may have been rounded up to the next integer
                return let(select(r < constant(0), r + s, r), lambda r: reduce(r, b, rounds - 1))

            return let(settled(rest - p) - error, adjust)

        return let(reinterpret("int32", rest / b).shifted_right(23) - integer(127 + 20), with_exponent)

    def signed(a: Value, b: Value) -> Value:
        large = absolute(b) > constant(2.0**100)  # products of such numbers would overflow
        scale = select(large, constant(2.0**-30), constant(1))

        def of_sizes(x: Value, y: Value) -> Value:
            proper = both(both(x >= y, y > constant(0)), both(x <= constant(LARGEST), y <= constant(LARGEST)))
            numerator, denominator = select(proper, x * scale, constant(0)), select(proper, y * scale, constant(1))
            rest = let(numerator, lambda n: let(denominator, lambda d: reduce(n, d, _ROUNDS)))
            restored = rest * select(large, constant(2.0**30), constant(1))
            size = select(proper, restored, x)
            undefined = either(x > constant(LARGEST), y.equals(constant(0)))
            value = select(undefined, constant(math.nan), size)
            return select(either(is_nan(a), is_nan(b)), a + b, let(value, lambda v: select(negative(a), -v, v)))

        return let(absolute(a), lambda x: let(absolute(b), lambda y: of_sizes(x, y)))

    return let(a, lambda a: let(b, lambda b: signed(a, b)))
