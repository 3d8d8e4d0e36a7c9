"""Expressions that print themselves in a shading language, so that a function is written once for all of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TypeVar

import numpy

Result = TypeVar("Result")


@dataclass(frozen=True)
class Syntax:
    """How a language spells what differs.  ``types``: names of float32, int32, uint32 and bool.

    ``bits``: a format for reinterpreting ``{value}`` as ``{type}``; ``function``: its head, with ``{parameters}``.
    """

    types: dict[str, str]
    bits: str
    function: str
    wgsl: bool = False


_C_TYPES = {"float32": "float", "int32": "int", "uint32": "unsigned int", "bool": "bool"}
_AS = {"float32": "float", "int32": "int", "uint32": "uint"}
WGSL = Syntax(
    {"float32": "f32", "int32": "i32", "uint32": "u32", "bool": "bool"},
    "bitcast<{type}>({value})",
    "fn {name}({parameters}) -> f32 {{",
    wgsl=True,
)
METAL = Syntax({**_C_TYPES, "uint32": "uint"}, "as_type<{type}>({value})", "inline float {name}({parameters}) {{")
OPENCL = Syntax({**_C_TYPES, "uint32": "uint", "bool": "int"}, "as_{type}({value})", "float {name}({parameters}) {{")
CUDA = Syntax(_C_TYPES, "__{source}_as_{type}({value})", "static __device__ inline float {name}({parameters}) {{")


@dataclass
class Writer:
    """A function body in the making, and the library that it belongs to."""

    library: Library
    lines: list[str] = field(default_factory=list)
    names: int = 0


@dataclass
class Library:
    """Functions in a language, each with what it calls before it."""

    syntax: Syntax
    texts: dict[str, str] = field(default_factory=dict)

    def require(self, name: str, definition: Callable[..., Value], arity: int) -> None:
        """Write the function ``name``, unless it was."""
        if name in self.texts:
            return
        writer = Writer(self)
        token = _writer.set(writer)
        try:
            parameters = [f"x{i}" for i in range(arity)]
            result = definition(*[Value(p, "float32") for p in parameters])
        finally:
            _writer.reset(token)
        float_type = self.syntax.types["float32"]
        declared = ", ".join(f"{p}: {float_type}" if self.syntax.wgsl else f"{float_type} {p}" for p in parameters)
        head = self.syntax.function.format(name=name, parameters=declared)
        body = "".join(f"  {line}\n" for line in [*writer.lines, f"return {result.text};"])
        self.texts[name] = f"{head}\n{body}}}\n"

    def source(self) -> str:
        """All functions, in an order in which each is known where it is called."""
        return "\n".join(self.texts.values())


_writer: ContextVar[Writer] = ContextVar("writer")


def _spelled() -> Syntax:
    return _writer.get().library.syntax


@dataclass(frozen=True, eq=False)
class Value:
    """An expression of a dtype, in brackets where it needs them."""

    text: str
    dtype: str

    def _binary(self, sign: str, other: Value, dtype: str = "") -> Value:
        return Value(f"({self.text} {sign} {other.text})", dtype or self.dtype)

    def __add__(self, other: Value) -> Value:
        return self._binary("+", other)

    def __sub__(self, other: Value) -> Value:
        return self._binary("-", other)

    def __mul__(self, other: Value) -> Value:
        return self._binary("*", other)

    def __truediv__(self, other: Value) -> Value:
        return self._binary("/", other)

    def __neg__(self) -> Value:
        return Value(f"(-{self.text})", self.dtype)

    def __lt__(self, other: Value) -> Value:
        return self._binary("<", other, "bool")

    def __le__(self, other: Value) -> Value:
        return self._binary("<=", other, "bool")

    def __gt__(self, other: Value) -> Value:
        return self._binary(">", other, "bool")

    def __ge__(self, other: Value) -> Value:
        return self._binary(">=", other, "bool")

    def __and__(self, other: Value) -> Value:
        return self._binary("&", other)

    def equals(self, other: Value) -> Value:
        return self._binary("==", other, "bool")

    def shifted_left(self, places: int) -> Value:
        return self._binary("<<", Value(f"{places}u", "uint32"))

    def shifted_right(self, places: int) -> Value:
        return self._binary(">>", Value(f"{places}u", "uint32"))


def both(a: Value, b: Value) -> Value:
    return a._binary("&&", b)


def either(a: Value, b: Value) -> Value:
    return a._binary("||", b)


def negated(a: Value) -> Value:
    return Value(f"(!{a.text})", "bool")


def constant(value: float) -> Value:
    """A float32.  Infinity and NaN come out of bits in a variable: as constants they are errors in WGSL."""
    number = numpy.float32(value)
    if not math.isfinite(number):
        bits = int(number.view(numpy.uint32))
        return reinterpret("float32", _named(Value(f"0x{bits:08x}u", "uint32"), mutable=True))
    text = repr(float(number))
    return Value(f"{text}f" if value >= 0 else f"({text}f)", "float32")


def integer(value: int) -> Value:
    return Value(str(value) if value >= 0 else f"({value})", "int32")


def unsigned(value: int) -> Value:
    return Value(f"{value}u", "uint32")


def select(condition: Value, yes: Value, no: Value) -> Value:
    if _spelled().wgsl:
        return Value(f"select({no.text}, {yes.text}, {condition.text})", yes.dtype)
    return Value(f"({condition.text} ? {yes.text} : {no.text})", yes.dtype)


def reinterpret(dtype: str, value: Value) -> Value:
    """The bits of ``value`` as another dtype."""
    syntax = _spelled()
    name = syntax.types[dtype] if syntax.wgsl else _AS[dtype]
    return Value(syntax.bits.format(type=name, value=value.text, source=_AS[value.dtype]), dtype)


def cast(dtype: str, value: Value) -> Value:
    name = _spelled().types[dtype]
    return Value(f"{name}({value.text})" if _spelled().wgsl else f"(({name}){value.text})", dtype)


def absolute(x: Value) -> Value:
    return Value(f"{'abs' if _spelled().wgsl else 'fabs'}({x.text})", "float32")


def floor(x: Value) -> Value:
    return Value(f"floor({x.text})", "float32")


def sqrt(x: Value) -> Value:
    return Value(f"sqrt({x.text})", "float32")


def builtin(name: str, *arguments: Value) -> Value:
    """A function of the language itself."""
    return Value(f"{name}({', '.join(a.text for a in arguments)})", "float32")


def call(name: str, definition: Callable[..., Value], *arguments: Value) -> Value:
    """Another function of the library, which is written first."""
    _writer.get().library.require(name, definition, len(arguments))
    return builtin(name, *arguments)


def let(value: Value, use: Callable[[Value], Result]) -> Result:
    """``use`` of a name for ``value``, which is then computed once."""
    return use(_named(value))


def _named(value: Value, *, mutable: bool = False) -> Value:
    writer = _writer.get()
    name = f"t{writer.names}"
    writer.names += 1
    syntax = writer.library.syntax
    kind = syntax.types[value.dtype]
    if syntax.wgsl:
        writer.lines.append(f"{'var' if mutable else 'let'} {name}: {kind} = {value.text};")
    else:
        writer.lines.append(f"{kind} {name} = {value.text};")
    return Value(name, value.dtype)


_RARE = 0x00345678
"""Bits of a subnormal number, which no computation here aims at."""


def settled(value: Value) -> Value:
    """A name for a float32 that is rounded here and nowhere else.

    Compilers may reassociate: WGSL's and Metal's do, and so does Mesa with what comes without NoContraction.  Where
    rounding errors are computed, (a + b) - a must not become b.  So the value goes through an operation on its bits
    that could change it, for all that a compiler knows; it adds 2**-149 to one subnormal number.
    """
    bits = _named(reinterpret("uint32", value))
    rare = select(bits.equals(unsigned(_RARE)), unsigned(1), unsigned(0))
    return _named(reinterpret("float32", Value(f"({bits.text} | {rare.text})", "uint32")))


def is_nan(x: Value) -> Value:
    """On bits, whatever the compiler assumes of floats."""
    magnitude = reinterpret("uint32", x) & unsigned(0x7FFFFFFF)
    return magnitude > unsigned(0x7F800000)


def polynomial(x: Value, coefficients: Sequence[float]) -> Value:
    """By Horner's rule, the lowest power first."""
    *rest, highest = coefficients
    result = constant(highest)
    for coefficient in reversed(rest):
        result = result * x + constant(coefficient)
    return result
