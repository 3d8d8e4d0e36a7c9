"""Dtypes that a shading language lacks, put into those that it has.

* A bool in memory becomes an integer, 0 or 1.
* Integers of 8 and 16 bits become 32 bits wide; after each operation that can leave their range they are wrapped to it.
* Integers of 64 bits become 32 bits wide.  That is right as long as the values fit: whoever sends values to the device
  checks them, and says in the verdict that it was so; results are compared exactly in any case.  A reduction that begins
  at the least or the largest of 64 bits begins at that of 32.

WGSL is the language that needs all of this (https://www.w3.org/TR/WGSL/#types); Metal lacks only float64.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx
from tvm.ir import PointerType, PrimType
from tvm.s_tir import SBlock

from tapml.errors import UnsupportedError
from tapml.kernels.blocks import with_init
from tapml.kernels.dialect import Dialect

_NARROW = {"int8": 8, "int16": 16, "uint8": 8, "uint16": 16}
_VALUE_OF = {
    "int8": "int32",
    "int16": "int32",
    "int64": "int32",
    "uint8": "uint32",
    "uint16": "uint32",
    "uint64": "uint32",
}
_RANGE = {"int32": (-(1 << 31), (1 << 31) - 1), "uint32": (0, (1 << 32) - 1)}
_WIDE_RANGE = {"int64": (-(1 << 63), (1 << 63) - 1), "uint64": (0, (1 << 64) - 1)}
_ARITHMETIC = (tirx.Add, tirx.Sub, tirx.Mul)
_LEAVING = (*_ARITHMETIC, tirx.Div, tirx.FloorDiv, tirx.LShift)
"""Operations whose result can be outside the range of their operands' dtype: -128 / -1 is."""
_BINARY = (
    *_ARITHMETIC,
    tirx.Div,
    tirx.Mod,
    tirx.FloorDiv,
    tirx.FloorMod,
    tirx.Min,
    tirx.Max,
    tirx.BitwiseAnd,
    tirx.BitwiseOr,
    tirx.BitwiseXor,
    tirx.LShift,
    tirx.RShift,
    tirx.EQ,
    tirx.NE,
    tirx.LT,
    tirx.LE,
    tirx.GT,
    tirx.GE,
)


def value_dtype(dtype: str, dialect: Dialect) -> str:
    """The dtype in which values of ``dtype`` are computed.  Raises :class:`UnsupportedError` when there is none."""
    if dtype in dialect.values or dtype in ("handle", "void", ""):
        return dtype
    found = _VALUE_OF.get(dtype)
    if found is None or found not in dialect.values:
        raise UnsupportedError(f"{dialect.kind} has no {dtype}")
    return found


def memory_dtype(dtype: str, dialect: Dialect) -> str:
    """The dtype in which an array of ``dtype`` lies in device memory."""
    if dtype in dialect.memory:
        return dtype
    if dtype == "bool":
        return "int8" if "int8" in dialect.memory else "int32"
    return value_dtype(dtype, dialect)


def require_narrow_constants(function: tirx.PrimFunc, dialect: Dialect) -> None:
    """Raises :class:`UnsupportedError` for a limit of 64-bit integers that does not only begin a reduction.

    To be asked before blocks are lowered: later it cannot be told from a reduction's beginning, which :func:`retype` takes it
    for.
    """
    if dialect.values >= _WIDE_RANGE.keys():
        return
    found: list[Any] = []

    def visit(node: Any) -> None:
        limits = _WIDE_RANGE.get(str(node.ty.dtype), ())
        if int(node.value) in limits and int(node.value) != 0 and str(node.ty.dtype) not in dialect.values:
            found.append(node)

    without_init = tvm_ffi.structural_map(function, (SBlock, lambda block: with_init(block, None)))
    tvm_ffi.structural_walk(without_init, (tirx.IntImm, visit))
    if found:
        raise _refusal(int(found[0].value), str(found[0].ty.dtype), dialect)


def _refusal(value: int, dtype: str, dialect: Dialect) -> UnsupportedError:
    return UnsupportedError(f"the constant {value} does not fit into 32 bits, and {dialect.kind} has no {dtype}")


def retype(function: tirx.PrimFunc, dialect: Dialect) -> tirx.PrimFunc:
    """The function with every value and array of a dtype that the dialect has.

    Raises :class:`UnsupportedError` for a dtype without substitute (float64) and a constant that does not fit.
    """
    retyper = _Retyper(dialect)
    try:
        return tvm_ffi.structural_mutate(function, retyper.callbacks())
    except Exception as error:  # TVM 0.27 makes a RuntimeError of what a callback raises
        raise retyper.refusal or error from None


class _Retyper:
    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self._variables: list[tuple[Any, Any]] = []
        self.refusal: UnsupportedError | None = None

    def callbacks(self) -> tuple[tuple[Any, Callable[[Any, Any], Any]], ...]:
        return tuple((kind, self._remembering(callback)) for kind, callback in self._callbacks())

    def _remembering(self, callback: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
        def call(node: Any, mutator: Any) -> Any:
            try:
                return callback(node, mutator)
            except UnsupportedError as error:
                self.refusal = error
                raise

        return call

    def _callbacks(self) -> tuple[tuple[Any, Callable[[Any, Any], Any]], ...]:
        return (
            (tvm.ir.Var, self._variable),
            (tirx.BufferType, self._buffer_type),
            (tvm.ir.TensorLoad, self._load),
            (tirx.BufferStore, self._store),
            (tirx.IntImm, self._integer),
            (tirx.FloatImm, self._float),
            (tirx.Cast, self._cast),
            (tirx.Select, self._select),
            (tirx.BitwiseNot, self._bitwise_not),
            (tvm.ir.Call, self._call),
            *((kind, self._binary) for kind in _BINARY),
        )

    def _value(self, dtype: str) -> str:
        return value_dtype(dtype, self._dialect)

    def _memory(self, dtype: str) -> str:
        return memory_dtype(dtype, self._dialect)

    def _variable(self, var: Any, mutator: Any) -> Any:
        type_ = var.ty
        if isinstance(type_, tirx.BufferType):
            return mutator.default_mutate(var)
        for before, after in self._variables:
            if before.same_as(var):
                return after
        if isinstance(type_, PointerType):
            if not isinstance(type_.element_type, PrimType):
                return var
            wanted: Any = PointerType(PrimType(self._memory(str(type_.element_type.dtype))), type_.storage_scope)
        else:
            wanted = PrimType(self._value(str(type_.dtype)))
        after = var if wanted == type_ else tirx.Var(var.name, wanted)
        self._variables.append((var, after))
        return after

    def _buffer_type(self, node: Any, mutator: Any) -> Any:
        element = tvm.DataType(str(node.dtype))
        memory = self._memory(_scalar(element)) + (f"x{element.lanes}" if element.lanes > 1 else "")
        node = mutator.default_mutate(node)
        if memory == str(node.dtype):
            return node
        return tirx.BufferType(
            memory,
            node.storage_scope,
            node.shape,
            node.strides,
            node.elem_offset,
            0,
            node.offset_factor,
            node.layout,
            node.allocated_addr,
        )

    def _load(self, node: Any, mutator: Any) -> Any:
        loaded = tirx.BufferLoad(mutator.mutate(node.source), [mutator.mutate(i) for i in node.indices])
        if str(node.ty.dtype) == "bool" and str(loaded.ty.dtype) != "bool":
            return tirx.NE(loaded, tirx.const(0, str(loaded.ty.dtype)))
        return loaded

    def _store(self, node: Any, mutator: Any) -> Any:
        buffer = mutator.mutate(node.buffer)
        value = mutator.mutate(node.value)
        memory = str(buffer.ty.dtype)
        if str(value.ty.dtype) == "bool" and memory != "bool":
            value = tirx.Select(value, tirx.const(1, memory), tirx.const(0, memory))
        return tirx.BufferStore(buffer, value, [mutator.mutate(i) for i in node.indices])

    def _integer(self, node: Any, mutator: Any) -> Any:
        dtype = str(node.ty.dtype)
        wanted = self._value(dtype)
        if wanted == dtype:
            return node
        value = int(node.value)
        if dtype in _WIDE_RANGE:
            low, high = _RANGE[wanted]
            if value in _WIDE_RANGE[dtype]:  # where a maximum or minimum of anything begins
                value = low if value < 0 or value == 0 else high
            if not low <= value <= high:
                raise _refusal(value, dtype, self._dialect)
        return tirx.IntImm(wanted, value)

    def _float(self, node: Any, mutator: Any) -> Any:
        self._value(_scalar(tvm.DataType(str(node.ty.dtype))))
        return node

    def _cast(self, node: Any, mutator: Any) -> Any:
        value = mutator.mutate(node.value)
        element = tvm.DataType(str(node.ty.dtype))
        dtype = _scalar(element)
        wanted = self._value(dtype)
        if dtype == "bool":
            return value if str(value.ty.dtype) == "bool" else tirx.NE(value, tirx.const(0, str(value.ty.dtype)))
        lanes = f"x{element.lanes}" if element.lanes > 1 else ""
        source = str(value.ty.dtype)
        value = value if source == wanted + lanes else tirx.Cast(wanted + lanes, value)
        return self._wrapped(value, dtype)

    def _select(self, node: Any, mutator: Any) -> Any:
        parts = [mutator.mutate(p) for p in (node.condition, node.true_value, node.false_value)]
        return tirx.Select(*parts)

    def _bitwise_not(self, node: Any, mutator: Any) -> Any:
        return self._wrapped(tirx.BitwiseNot(mutator.mutate(node.a)), str(node.ty.dtype))

    def _binary(self, node: Any, mutator: Any) -> Any:
        if isinstance(node, tirx.Sub) and isinstance(node.b, tirx.IntImm) and int(node.b.value) == 1 << 31:
            node = tirx.Add(node.a, tirx.IntImm(str(node.ty.dtype), -(1 << 31)))  # how TVM writes x + (-2**31)
        made = type(node)(mutator.mutate(node.a), mutator.mutate(node.b))
        return self._wrapped(made, str(node.ty.dtype)) if isinstance(node, _LEAVING) else made

    def _call(self, node: Any, mutator: Any) -> Any:
        if not isinstance(node.ty, PrimType):
            return mutator.default_mutate(node)
        dtype = str(node.ty.dtype)
        wanted = self._value(dtype)
        arguments = [mutator.mutate(a) for a in node.args]
        if getattr(node.op, "name", "") == "tirx.reinterpret":
            bits = tvm.DataType(str(arguments[0].ty.dtype)).bits
            if wanted != dtype or str(node.args[0].ty.dtype) != str(arguments[0].ty.dtype):
                raise UnsupportedError(f"{self._dialect.kind} cannot see the bits of a {bits}-bit value as {dtype}")
        return tvm.ir.Call(node.op, arguments, node.attrs, node.ty_args, node.span, PrimType(wanted))

    def _wrapped(self, value: Any, dtype: str) -> Any:
        """``value``, computed in 32 bits, in the range of ``dtype``."""
        bits = _NARROW.get(dtype)
        if bits is None or str(value.ty.dtype) == dtype:
            return value
        if dtype.startswith("uint"):
            return tirx.BitwiseAnd(value, tirx.const((1 << bits) - 1, "uint32"))
        rest = tirx.const(32 - bits, "int32")
        return tirx.RShift(tirx.LShift(value, rest), rest)


def _scalar(dtype: tvm.DataType) -> str:
    return str(dtype).split("x")[0]
