"""What a converter works with: the call, the Relax builder, and the few ways to make expressions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import tvm
import tvm_ffi
from torch._prims_common import ELEMENTWISE_TYPE_PROMOTION_KIND, elementwise_dtypes
from tvm import relax, te, tirx

from tapml.errors import UnsupportedError
from tapml.suite.call import dtype_name, torch_dtype

Promotion = ELEMENTWISE_TYPE_PROMOTION_KIND


class Context:
    """Given to a converter as its first argument.

    ``operator``: the overload's name.  ``results``: (shape, dtype) that PyTorch gives for each result, ``None`` where
    unknown.  ``target``: the target kind.  ``compute_dtypes``: the dtypes that 16-bit floats were replaced by, see
    :mod:`tapml.lowering.lower`.
    """

    def __init__(
        self,
        builder: relax.BlockBuilder,
        operator: str,
        results: Sequence[tuple[tuple[int, ...], str] | None],
        target: str,
        rounded_to: str | None = None,
    ) -> None:
        self.builder = builder
        self.operator = operator
        self.results = results
        self.target = target
        self.rounded_to = rounded_to
        """The 16-bit dtype that float32 stands for in this module, if any: comparisons round their scalars to it."""

    # -- shapes and dtypes --------------------------------------------------------------------------------------------

    def shape(self, x: Any) -> tuple[int, ...]:
        """Static shape of an expression, as Python integers."""
        return tuple(int(d) for d in x.ty.shape)

    def dtype(self, x: Any) -> str:
        return str(x.ty.dtype)

    def unsupported(self, why: str) -> UnsupportedError:
        return UnsupportedError(f"{self.operator}: {why}")

    # -- making expressions -------------------------------------------------------------------------------------------

    def emit(self, expression: Any) -> Any:
        return self.builder.emit(expression)

    def te(self, function: Callable[..., Any], *args: Any, name: str = "te") -> Any:
        """Emit the TE function applied to ``args`` (Relax tensors become TE tensors).

        A function that returns several tensors gives a list of expressions.
        """
        out = self.emit(self.builder.call_te(function, *args, primfunc_name_hint=name))
        fields = getattr(out.ty, "fields", None)
        return out if fields is None else [self.emit(relax.TupleGetItem(out, i)) for i in range(len(fields))]

    def call_tir(
        self, function: tirx.PrimFunc, args: Sequence[Any], results: Sequence[tuple[Sequence[int], str]]
    ) -> Any:
        """Emit a call of a TVMScript function whose parameters are ``args`` and then one buffer for each of ``results``.

        Extents that the function leaves open (``T.match_buffer`` with variables) are those of the call.  Loops that are
        bound to threads stay so; others get tapml's schedule.  Raises :class:`UnsupportedError` when shapes do not fit.
        """
        function = self._closed(function, [*map(self.shape, args), *(tuple(shape) for shape, _ in results)])
        attributes = dict(function.attrs.items()) if function.attrs else {}
        symbol = self.builder.add_func(function, str(attributes.get("global_symbol", "kernel")))
        types = [relax.TensorType(list(shape), dtype) for shape, dtype in results]
        out = self.emit(relax.call_tir(symbol, list(args), types if len(types) > 1 else types[0]))
        return out if len(types) == 1 else [self.emit(relax.TupleGetItem(out, i)) for i in range(len(types))]

    def _closed(self, function: tirx.PrimFunc, shapes: Sequence[tuple[int, ...]]) -> tirx.PrimFunc:
        """The function with numbers for the variables in its buffers' shapes."""
        if len(function.params) != len(shapes):
            raise self.unsupported(f"the TVMScript function takes {len(function.params)} buffers, given {len(shapes)}")
        values: list[tuple[Any, Any]] = []
        for parameter, shape in zip(function.params, shapes, strict=True):
            extents = list(parameter.ty.shape)
            fits = len(extents) == len(shape)
            for extent, value in zip(extents, shape, strict=False):
                if isinstance(extent, tvm.ir.Var):
                    known = [v for var, v in values if var.same_as(extent)]
                    values += [] if known else [(extent, value)]
                    fits = fits and (not known or known[0] == value)
                else:
                    fits = fits and int(extent) == value
            if not fits:
                found = ", ".join(map(str, extents))
                raise self.unsupported(
                    f"buffer {parameter.name}[{found}] of the TVMScript function is given {list(shape)}"
                )
        if not values:
            return function

        def number(var: Any) -> Any:
            return next((tirx.const(v, str(var.ty.dtype)) for other, v in values if other.same_as(var)), var)

        closed: tirx.PrimFunc = tvm_ffi.structural_map(function, (tvm.ir.Var, number))
        return closed

    def cast(self, x: Any, dtype: str) -> Any:
        """``x`` as ``dtype`` with PyTorch's meaning (a bool is ``x != 0``)."""
        if self.dtype(x) == dtype:
            return x
        return self.te(lambda t: te.compute(t.shape, lambda *i: cast(t[i], dtype), name="cast"), x, name="cast")

    def broadcast(self, x: Any, shape: Sequence[int]) -> Any:
        """``x`` broadcast to ``shape`` by PyTorch's rule."""
        if self.shape(x) == tuple(shape):
            return x
        return self.te(
            lambda t: te.compute(tuple(shape), lambda *i: t[broadcast_index(t.shape, i)], name="broadcast"), x
        )

    def full(self, shape: Sequence[int], value: Any, dtype: str) -> Any:
        """A tensor of one value, computed by a kernel (never folded into a constant)."""
        return self.te(lambda: te.compute(tuple(shape), lambda *i: constant(value, dtype), name="full"))

    def pointwise(
        self,
        function: Callable[..., Any],
        *operands: Any,
        promotion: Promotion = Promotion.DEFAULT,
        dtype: str | None = None,
    ) -> Any:
        """Apply ``function`` element by element, broadcasting and promoting operands as PyTorch does.

        ``operands`` are Relax tensors or Python scalars; ``function`` gets a TIR scalar for each, all of the computation
        dtype, and its result is cast to the result dtype.  ``dtype`` overrides both (for operators without promotion).
        """
        compute, result = (dtype, dtype) if dtype else self.promote(operands, promotion)
        if promotion is Promotion.ALWAYS_BOOL and self.rounded_to and compute == "float32":
            operands = tuple(round_scalar(v, self.rounded_to) for v in operands)
        tensors = [v for v in operands if isinstance(v, relax.Expr)]
        shape = torch.broadcast_shapes(*[self.shape(t) for t in tensors])  # type: ignore[no-untyped-call]

        def build(*inputs: Any) -> Any:
            def element(*index: Any) -> Any:
                feed = iter(inputs)
                values = []
                for operand in operands:
                    if isinstance(operand, relax.Expr):
                        source = next(feed)
                        values.append(cast(source[broadcast_index(source.shape, index)], compute))
                    else:
                        values.append(constant(operand, compute))
                return cast(function(*values), result)

            return te.compute(tuple(shape), element, name="pointwise")

        return self.te(build, *tensors, name=self.operator.split(".")[1])

    def select_te(self, function: Callable[..., Any], mask: Any, operands: Sequence[Any], dtype: str) -> Any:
        """``function(mask, *operands)`` by element: the mask as bool, the operands (tensors or scalars) of ``dtype``."""
        tensors = [v for v in (mask, *operands) if isinstance(v, relax.Expr)]
        shape = torch.broadcast_shapes(*[self.shape(t) for t in tensors])  # type: ignore[no-untyped-call]

        def build(first: Any, *inputs: Any) -> Any:
            def element(*index: Any) -> Any:
                feed = iter(inputs)

                def value(operand: Any) -> Any:
                    if not isinstance(operand, relax.Expr):
                        return constant(operand, dtype)
                    source = next(feed)
                    return source[broadcast_index(source.shape, index)]

                chosen = cast(first[broadcast_index(first.shape, index)], "bool")
                return function(chosen, *[value(o) for o in operands])

            return te.compute(tuple(shape), element, name="select")

        return self.te(build, *tensors, name="select")

    def promote(self, operands: Sequence[Any], promotion: Promotion) -> tuple[str, str]:
        """(computation dtype, result dtype) by PyTorch's type promotion."""
        stand_ins = [
            torch.empty(self.shape(v), dtype=torch_dtype(self.dtype(v)), device="meta")
            if isinstance(v, relax.Expr)
            else v
            for v in operands
        ]
        compute, result = elementwise_dtypes(*stand_ins, type_promotion_kind=promotion)
        return dtype_name(compute), dtype_name(result)


# -- TIR scalars ------------------------------------------------------------------------------------------------------


def scalar_dtype(value: Any) -> str:
    """The dtype of a TIR scalar expression, or of an element of a TE tensor."""
    return str(value.dtype if isinstance(value, te.TensorSlice) else value.ty.dtype)


def cast(value: Any, dtype: str) -> Any:
    """A TIR scalar as ``dtype`` with PyTorch's meaning: to bool is ``!= 0``, to integers truncates."""
    if isinstance(value, te.TensorSlice):
        value = value.asobject()
    found = scalar_dtype(value)
    if found == dtype:
        return value
    if dtype == "bool":
        return tirx.NE(value, tirx.const(0, found))
    if found == "bool" and dtype != "int32":
        return tirx.Select(value, tirx.const(1, dtype), tirx.const(0, dtype))
    return value.astype(dtype)


def constant(value: Any, dtype: str) -> Any:
    """A Python scalar as TIR constant; infinities included."""
    if dtype == "bool":
        return tirx.const(bool(value), "bool")
    if dtype.startswith(("int", "uint")):
        return tirx.const(int(value), dtype)
    value = float(value)
    if value in (float("inf"), float("-inf")):
        infinity = tirx.infinity(dtype)
        return infinity if value > 0 else -infinity
    return tirx.const(value, dtype)


def round_scalar(value: Any, dtype: str) -> Any:
    """A Python float rounded to ``dtype``, as PyTorch does before it compares."""
    return torch.tensor(value, dtype=torch_dtype(dtype)).item() if isinstance(value, float) else value


def broadcast_index(shape: Any, index: Sequence[Any]) -> tuple[Any, ...]:
    """Where an element of the broadcast result at ``index`` comes from in a tensor of ``shape``."""
    tail = index[len(index) - len(shape) :] if len(shape) else ()
    return tuple(0 if int(extent) == 1 else i for extent, i in zip(shape, tail, strict=True))
