"""Changes of one TIR expression: every way in which a defect of some kind can be planted in it.

TVM's nodes are never changed in place; a change gives a new expression that shares what stayed as it was.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import tvm
from tvm import tirx

Make = Callable[[], Any]

_PAIRS: dict[type, tuple[type, ...]] = {
    tirx.Add: (tirx.Sub,),
    tirx.Sub: (tirx.Add,),
    tirx.Mul: (tirx.Add,),
    tirx.Div: (tirx.Mul,),
    tirx.Min: (tirx.Max,),
    tirx.Max: (tirx.Min,),
    tirx.And: (tirx.Or,),
    tirx.Or: (tirx.And,),
    tirx.LT: (tirx.LE,),
    tirx.LE: (tirx.LT,),
    tirx.GT: (tirx.GE,),
    tirx.GE: (tirx.GT,),
    tirx.EQ: (tirx.NE,),
    tirx.NE: (tirx.EQ,),
    tirx.FloorDiv: (tirx.FloorMod,),
    tirx.FloorMod: (tirx.FloorDiv,),
    tirx.BitwiseAnd: (tirx.BitwiseOr,),
    tirx.BitwiseOr: (tirx.BitwiseAnd,),
    tirx.BitwiseXor: (tirx.BitwiseOr,),
}
"""What an operator is exchanged for.  A comparison only gains or loses equality: that is the mistake people make."""

_SYMBOLS = {
    "Add": "+", "Sub": "-", "Mul": "*", "Div": "/", "Min": "min", "Max": "max", "And": "and", "Or": "or", "LT": "<",
    "LE": "<=", "GT": ">", "GE": ">=", "EQ": "==", "NE": "!=", "FloorDiv": "//", "FloorMod": "%", "BitwiseAnd": "&",
    "BitwiseOr": "|", "BitwiseXor": "^",
}  # fmt: skip
_CONDITION = "prim.if_then_else"
_EXTREME = 3e38
"""Literals from here on stand for infinity: they are where a reduction by max or min begins, or a mask."""


@dataclass(frozen=True)
class Change:
    """One way to plant a defect: its kind, what it is in words, and a function that makes the changed expression."""

    kind: str
    what: str
    make: Make


def changes(expression: Any, context: str = "value") -> Iterator[Change]:
    """Every change of an expression and of its parts, in a fixed order.

    ``context``: ``value`` (computed), ``condition`` (decides), or ``index`` (an address: its arithmetic is left alone, the
    load that it belongs to is what reads elsewhere).
    """
    if context != "index":
        yield from _own(expression, context)
    parts = _parts(expression)
    for position, (part, role) in enumerate(parts):
        inner = context if role == "same" else role
        for change in changes(part, inner):
            yield Change(change.kind, change.what, _replacing(expression, position, change.make))


def _replacing(expression: Any, position: int, make: Make) -> Make:
    def made() -> Any:
        parts = [part for part, _ in _parts(expression)]
        parts[position] = make()
        return _rebuilt(expression, parts)

    return made


# -- the shape of expressions -------------------------------------------------------------------------------------------


def _parts(node: Any) -> list[tuple[Any, str]]:
    """Sub-expressions with their role: ``same`` as the whole, ``condition``, ``index`` or ``value``."""
    if isinstance(node, tvm.ir.expr.TensorLoad):
        return [(index, "index") for index in node.indices]
    if isinstance(node, tirx.Select):
        return [(node.condition, "condition"), (node.true_value, "same"), (node.false_value, "same")]
    if isinstance(node, tirx.Cast):
        return [(node.value, "same")]
    if isinstance(node, tvm.ir.Call):
        if _named(node) == _CONDITION:
            condition, *rest = node.args
            return [(condition, "condition"), *((a, "same") for a in rest)]
        return [(a, "same") for a in node.args] if all(isinstance(a, tvm.ir.Expr) for a in node.args) else []
    if isinstance(node, tirx.Not):
        return [(node.a, "same")]
    if type(node) in _PAIRS:
        return [(node.a, "same"), (node.b, "same")]
    return []


def _rebuilt(node: Any, parts: list[Any]) -> Any:
    if isinstance(node, tvm.ir.expr.TensorLoad):
        return tirx.BufferLoad(node.source, parts)
    if isinstance(node, tirx.Select):
        return tirx.Select(*parts)
    if isinstance(node, tirx.Cast):
        return tirx.Cast(str(node.ty.dtype), parts[0])
    if isinstance(node, tvm.ir.Call):
        return tvm.ir.Call(node.op, parts, node.attrs, node.ty_args, ret_ty=node.ty)
    return type(node)(*parts)


def _named(node: Any) -> str:
    return str(getattr(node.op, "name", ""))


def _dtype(node: Any) -> str:
    return str(node.ty.dtype)


def _is_float(node: Any) -> bool:
    return _dtype(node).startswith(("float", "bfloat"))


# -- changes of a node itself -------------------------------------------------------------------------------------------


def _own(node: Any, context: str) -> Iterator[Change]:
    if isinstance(node, tirx.FloatImm):
        yield from _of_float(node)
    elif isinstance(node, tirx.IntImm):
        yield from _of_integer(node, context)
    elif isinstance(node, tvm.ir.expr.TensorLoad):
        yield from _of_load(node)
    elif isinstance(node, tirx.Select) or (isinstance(node, tvm.ir.Call) and _named(node) == _CONDITION):
        _, yes, no = (part for part, _ in _parts(node))
        yield Change("guard", "always what the condition selects", lambda: yes)
        yield Change("guard", "never what the condition selects", lambda: no)
    elif isinstance(node, tvm.ir.Call):
        yield from _of_call(node)
    elif type(node) in _PAIRS:
        yield from _of_operator(node, context)


def _of_float(node: Any) -> Iterator[Change]:
    value, dtype = float(node.value), _dtype(node)

    def changed(other: float) -> Change:
        return Change("constant", f"{value:g} -> {other:g}", lambda: tirx.FloatImm(dtype, other))

    if not math.isfinite(value) or abs(value) > _EXTREME:
        if not math.isnan(value):
            yield changed(math.copysign(65504.0, value))
        return
    if value == 0:
        yield changed(1.0)
        return
    yield changed(2 * value)
    yield changed(-value)


def _of_integer(node: Any, context: str) -> Iterator[Change]:
    value, dtype = int(node.value), _dtype(node)
    kind = "guard" if context == "condition" else "constant"
    if dtype == "bool":
        yield Change(kind, f"{bool(value)} -> {not value}", lambda: tirx.const(not value, "bool"))
        return
    for other in (value + 1, value - 1):
        if other >= 0 or not dtype.startswith("uint"):
            yield Change(kind, f"{value} -> {other}", lambda other=other: tirx.IntImm(dtype, other))  # type: ignore[misc]


def _of_load(node: Any) -> Iterator[Change]:
    shape = [int(e) if isinstance(e, tirx.IntImm) else 0 for e in node.source.ty.shape]
    for axis, extent in enumerate(shape):
        if extent > 1:
            for step in (1, extent - 1):
                yield Change(
                    "index",
                    f"reads {node.source.name} {'one element on' if step == 1 else 'one element back'} in dimension {axis}",
                    lambda axis=axis, extent=extent, step=step: _shifted(node, axis, extent, step),  # type: ignore[misc]
                )
    for axis in range(len(shape) - 1):
        if shape[axis] == shape[axis + 1] > 1:
            yield Change(
                "index",
                f"reads {node.source.name} with dimensions {axis} and {axis + 1} exchanged",
                lambda axis=axis: _exchanged(node, axis),  # type: ignore[misc]
            )


def _shifted(node: Any, axis: int, extent: int, step: int) -> Any:
    """Round at the end: a read out of bounds is for the kernels' sources, where buffers have bounds to be watched."""
    indices = list(node.indices)
    index = indices[axis]
    dtype = _dtype(index)
    indices[axis] = tirx.FloorMod(tirx.Add(index, tirx.IntImm(dtype, step)), tirx.IntImm(dtype, extent))
    return tirx.BufferLoad(node.source, indices)


def _exchanged(node: Any, axis: int) -> Any:
    indices = list(node.indices)
    indices[axis], indices[axis + 1] = indices[axis + 1], indices[axis]
    return tirx.BufferLoad(node.source, indices)


def _of_call(node: Any) -> Iterator[Change]:
    """A function of one number, left out."""
    arguments = list(node.args)
    if len(arguments) == 1 and isinstance(arguments[0], tvm.ir.Expr) and _dtype(arguments[0]) == _dtype(node):
        yield Change("operator", f"{_named(node).rpartition('.')[2]} left out", lambda: arguments[0])


def _of_operator(node: Any, context: str) -> Iterator[Change]:
    name = type(node).__name__
    for other in _PAIRS[type(node)]:
        if _dtype(node.a) == "bool" and other in (tirx.LE, tirx.LT, tirx.GE, tirx.GT, tirx.Add, tirx.Sub, tirx.Mul):
            continue
        yield Change(
            "operator",
            f"{_SYMBOLS[name]} -> {_SYMBOLS[other.__name__]}",
            lambda other=other: other(node.a, node.b),  # type: ignore[misc]
        )
    if isinstance(node, tirx.And | tirx.Or):
        for which, kept in (("second", node.a), ("first", node.b)):
            yield Change("guard", f"{which} operand of {_SYMBOLS[name]} left out", lambda kept=kept: kept)  # type: ignore[misc]


# -- changes of what is stored ------------------------------------------------------------------------------------------


def narrowed(value: Any) -> Change | None:
    """The value in fewer bits: floats with the mantissa of float16, integers in 8 bits.  ``None``: nothing narrower."""
    dtype = _dtype(value)
    if dtype == "float32":
        mask = tirx.const(0xFFFFE000, "uint32")

        def cut() -> Any:
            bits = tirx.reinterpret("uint32", value)
            return tirx.reinterpret("float32", tirx.BitwiseAnd(bits, mask))

        return Change("dtype", "float32 with the mantissa of float16", cut)
    if dtype in ("int32", "int64"):
        half, whole = (tirx.const(n, dtype) for n in (128, 256))
        return Change("dtype", f"{dtype} in 8 bits", lambda: tirx.FloorMod(value + half, whole) - half)
    return None


def of_beginning(value: Any) -> Change | None:
    """Another number for a reduction to begin with."""
    dtype = _dtype(value)
    if isinstance(value, tirx.FloatImm):
        other = 1.0 if float(value.value) == 0 else 0.0
        return Change(
            "accumulator", f"begins at {other:g}, not {float(value.value):g}", lambda: tirx.const(other, dtype)
        )
    if isinstance(value, tirx.IntImm):
        wanted = (not value.value) if dtype == "bool" else (1 if int(value.value) == 0 else 0)
        return Change("accumulator", f"begins at {wanted}, not {int(value.value)}", lambda: tirx.const(wanted, dtype))
    return None


def forgetting(value: Any, buffer: Any, indices: Sequence[Any]) -> Iterator[Change]:
    """An accumulator that forgets what it held: ``c = x`` in place of ``c = c + x``."""
    if type(value) in _PAIRS:
        for mine, other in ((value.a, value.b), (value.b, value.a)):
            if isinstance(mine, tvm.ir.expr.TensorLoad) and mine.source.same_as(buffer):
                yield Change("accumulator", "forgets what it held", lambda other=other: other)  # type: ignore[misc]
                return
