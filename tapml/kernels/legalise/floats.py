"""NaN and infinity: kept where TVM drops them, written where a language has no word for them.

Tests for NaN are made on bits: ``x != x`` is false wherever a compiler may assume that there are no NaNs, as Metal's fast
math and WGSL do (https://www.w3.org/TR/WGSL/#floating-point-evaluation).
"""

from __future__ import annotations

import math
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx

from tapml.kernels.dialect import Dialect

_EXPONENT = 0x7F800000
_BITS = {"uint32": (0x7FFFFFFF, _EXPONENT), "uint64": (0x7FFFFFFFFFFFFFFF, 0x7FF0000000000000)}
"""All but the sign, and infinity."""
_BITS_OF = {float("inf"): _EXPONENT, float("-inf"): 0xFF800000}
_NAN = 0x7FC00000


def keep_special_values(function: tirx.PrimFunc, dialect: Dialect) -> tirx.PrimFunc:
    """Max and min that keep a NaN, ``!=`` that is true for one, tests on bits, constants that can be written."""
    literals = _Literals() if not dialect.non_finite_literals else None
    callbacks: list[tuple[Any, Any]] = [
        (tirx.Max, lambda n: _extreme(n, tirx.GT)),
        (tirx.Min, lambda n: _extreme(n, tirx.LT)),
        (tirx.NE, _not_equal),
        (tirx.EQ, _equal),
        (tvm.ir.Call, _is_nan),
    ]
    if literals is not None:
        callbacks.append((tirx.FloatImm, literals.replace))
    function = tvm_ffi.structural_map(function, tuple(callbacks))
    return literals.declare(function) if literals is not None else function


def is_nan(x: Any) -> Any:
    """Whether a value is a NaN, whatever a compiler assumes; TVM 0.27 itself makes ``x != x`` false."""
    if not _is_float(x):
        return tirx.const(False, "bool")
    if isinstance(x, tirx.FloatImm):  # C cannot look at the bits of a constant
        return tirx.const(math.isnan(x.value), "bool")
    if str(x.ty.dtype) == "float16":
        x = tirx.Cast("float32", x)
    magnitude, infinity = _magnitude(x)
    return magnitude > infinity


def _magnitude(x: Any) -> tuple[Any, Any]:
    """The bits of a float32 or float64 without its sign, and those of infinity."""
    dtype = "uint64" if str(x.ty.dtype) == "float64" else "uint32"
    magnitude, infinity = _BITS[dtype]
    return tirx.BitwiseAnd(tirx.reinterpret(dtype, x), tirx.const(magnitude, dtype)), tirx.const(infinity, dtype)


def _unsigned(value: int) -> Any:
    return tirx.const(value, "uint32")


def _is_float(value: Any) -> bool:
    return str(value.ty.dtype) in ("float16", "float32", "float64")


def _extreme(node: Any, wins: Any) -> Any:
    a, b = node.a, node.b
    return tirx.Select(tirx.Or(wins(a, b), is_nan(a)), a, b) if _is_float(a) else node


def _not_equal(node: Any) -> Any:
    a, b = node.a, node.b
    if str(a.ty.dtype) == "bool":
        return tirx.Or(tirx.And(a, tirx.Not(b)), tirx.And(tirx.Not(a), b))
    if not _is_float(a):
        return node
    if a.same_as(b):
        return is_nan(a)
    return tirx.Or(node, tirx.Or(is_nan(a), is_nan(b)))


def _equal(node: Any) -> Any:
    """``abs(x) == inf``, as TIR tests for infinity, on bits: a language may assume that there is no infinity either."""
    a, b = node.a, node.b
    if isinstance(b, tirx.FloatImm) and math.isinf(b.value) and b.value > 0 and str(a.ty.dtype) == "float32":
        if getattr(getattr(a, "op", None), "name", "") == "tirx.fabs":
            return tirx.EQ(*_magnitude(a.args[0]))
        return tirx.EQ(tirx.reinterpret("uint32", a), _unsigned(_EXPONENT))
    return node


def _is_nan(node: Any) -> Any:
    return is_nan(node.args[0]) if getattr(node.op, "name", "") == "tirx.isnan" else node


def keep_casts_of_bfloat16(function: tirx.PrimFunc) -> tirx.PrimFunc:
    """See :func:`cast_out_of_bfloat16`."""
    return tvm_ffi.structural_map(function, (tirx.Cast, cast_out_of_bfloat16))


def cast_out_of_bfloat16(node: Any) -> Any:
    """TVM 0.27 leaves a cast out of bfloat16 a cast of the *bits* where the value has a name."""
    if str(node.value.ty.dtype) != "bfloat16" or str(node.ty.dtype) == "bfloat16":
        return node
    bits = tirx.reinterpret("uint16", node.value).astype("uint32")
    wide = tirx.reinterpret("float32", tirx.shift_left(bits, tirx.const(16, "uint32")))
    return wide.astype(str(node.ty.dtype))


class _Literals:
    """Infinities and NaN by way of their bits, in a variable: as a constant expression they are an error in WGSL."""

    def __init__(self) -> None:
        self._used = False
        self._bits = tirx.decl_buffer((3,), "uint32", "special_bits", scope="local")

    def replace(self, node: Any) -> Any:
        value, dtype = float(node.value), str(node.ty.dtype)
        if math.isfinite(value):
            return node
        self._used = True
        place = 2 if math.isnan(value) else (0 if value > 0 else 1)
        wide = tirx.reinterpret("float32", tirx.BufferLoad(self._bits, [tirx.const(place, "int32")]))
        return wide if dtype == "float32" else tirx.Cast(dtype, wide)

    def declare(self, function: tirx.PrimFunc) -> tirx.PrimFunc:
        if not self._used:
            return function
        numbers = (_BITS_OF[math.inf], _BITS_OF[-math.inf], _NAN)
        stores = [
            tirx.BufferStore(self._bits, _unsigned(bits), [tirx.const(i, "int32")]) for i, bits in enumerate(numbers)
        ]
        body = tirx.SeqStmt([tirx.AllocBuffer(self._bits), *stores, function.body])
        return tirx.PrimFunc(function.params, body, function.ret_type, function.attrs)
