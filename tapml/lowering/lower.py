"""One signature -> one TVM module, by one of up to three routes.

The module's function takes, for each tensor argument, the one-dimensional *span* of memory that it covers, and begins by
reading logical elements out of it, so that transposed, broadcast and sliced arguments are read in place.  It computes
16-bit floats in float32, as PyTorch's own CPU kernels do, and rounds the results once.  Results come in the memory
order that the reference gave them.

Routes, tried in this order by the caller until one gives right numbers:

* ``converter``: a converter or kernel from :mod:`tapml.lowering.registry`;
* ``frontend``: TVM's PyTorch front end on the single operator;
* ``decomposition``: PyTorch's decomposition into core ATen operators, each by converter or front end.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import tvm
import tvm_ffi
from torch import fx
from tvm import relax, te

from tapml.errors import TapmlError, UnsupportedError
from tapml.lowering.context import Context
from tapml.lowering.frontend import GraphImporter
from tapml.lowering.functional import functional_arguments, functional_overload
from tapml.lowering.graph import decomposed, single_node
from tapml.lowering.registry import Entry, find, find_schedule
from tapml.suite.call import Signature, TensorSpec, resolve_operator

ROUTES = ("converter", "frontend", "decomposition")
_NARROW_FLOATS = ("float16", "bfloat16")


@dataclass(frozen=True)
class Lowered:
    """A lowered signature.

    ``module``: an IRModule of TIR functions and a Relax function ``main`` that calls them.  ``results``: for each
    result of the signature, the axis order in which the module writes it (``None``: nothing to compute, no elements).
    ``notes``: what the verdict must mention.  ``schedule``: the user's, for the function that the operator becomes.
    ``plain``: what is built of it is to be as simple as can be: functions are not merged, and keep the loops that TVM gave
    them (to tell whether a schedule is at fault).
    """

    module: tvm.IRModule
    results: tuple[tuple[int, ...] | None, ...]
    route: str
    converters: tuple[str, ...]
    notes: tuple[str, ...]
    schedule: Entry | None = None
    plain: bool = False


def routes(signature: Signature, target: str) -> tuple[str, ...]:
    """The routes worth trying for a signature."""
    operator = functional_overload(resolve_operator(signature.operator))
    return ROUTES if find(str(operator), target) else ROUTES[1:]


def lower(signature: Signature, target: str, route: str) -> Lowered:
    """Lower ``signature`` for a target kind (``llvm``, ...) by one route.

    Raises :class:`UnsupportedError` when the route does not reach, naming what is missing, including the case that the
    route gives other shapes or dtypes than the reference had.
    """
    operator = resolve_operator(signature.operator)
    functional = functional_overload(operator)
    template = functional_arguments(operator, signature.template)
    narrow = sorted({s.dtype for s in _all_specs(signature) if s.dtype in _NARROW_FLOATS})
    notes = []
    if narrow:
        template = _widen_template(template)
        notes.append(f"{' and '.join(narrow)} computed in float32, results rounded once")
    specs = [_widen(s) for s in signature.tensors]
    live = [(name, spec) for name, spec in signature.results if spec.numel]
    results = [_widen(spec) for _, spec in signature.results]

    _require_dtypes(signature)
    builder = relax.BlockBuilder()
    parameters = [relax.Var(f"x{i}", relax.TensorType([span(s)], s.dtype)) for i, s in enumerate(signature.tensors)]
    with builder.function("kernel", parameters):
        with builder.dataflow():
            context = Context(builder, signature.operator, [], target)
            inputs = [
                context.cast(_read(context, parameter, spec), wide.dtype)
                for parameter, spec, wide in zip(parameters, signature.tensors, specs, strict=True)
            ]
            importer = GraphImporter(
                builder,
                target,
                use_registry=route != "frontend",
                rounded_to=narrow[0] if len(narrow) == 1 else None,
            )
            if route == "decomposition":
                graph = decomposition(signature, target)
            else:
                graph = single_node(functional, template, specs, results)
            values = importer.translate(graph, inputs)
            outputs = []
            orders: list[tuple[int, ...] | None] = []
            if len(values) != len(results):
                raise UnsupportedError(
                    f"route {route} gives {len(values)} results where the reference has {len(results)}"
                )
            for value, wide, (name, spec) in zip(values, results, signature.results, strict=True):
                if not spec.numel:
                    orders.append(None)
                    continue
                _check(context, route, name, value, wide, cast_allowed=name.startswith("arg"))
                order = memory_order(spec) if name.startswith("out") else tuple(range(len(spec.shape)))
                outputs.append(_write(context, context.cast(value, spec.dtype), order))
                orders.append(order)
            final = builder.emit_output(outputs[0] if len(outputs) == 1 else relax.Tuple(outputs))
        builder.emit_func_output(final)
    if not live:
        raise UnsupportedError("no result has any elements")
    rule = find_schedule(str(functional), target)
    return Lowered(builder.get(), tuple(orders), route, tuple(importer.used), tuple(notes), rule)


def decomposition(signature: Signature, target: str) -> fx.Graph:
    """The graph of route ``decomposition``, of tensors whose 16-bit floats are float32.

    Raises :class:`UnsupportedError` where there is none.
    """
    operator = resolve_operator(signature.operator)
    template = functional_arguments(operator, signature.template)
    if any(s.dtype in _NARROW_FLOATS for s in _all_specs(signature)):
        template = _widen_template(template)
    specs = [_widen(s) for s in signature.tensors]
    functional = functional_overload(operator)
    return decomposed(functional, template, specs, lambda other: find(str(other), target) is not None)


# -- memory -----------------------------------------------------------------------------------------------------------


def span(spec: TensorSpec) -> int:
    """Number of elements between a tensor's first and last element in memory, inclusive."""
    if not spec.numel:
        return 0
    return 1 + sum((extent - 1) * stride for extent, stride in zip(spec.shape, spec.strides, strict=True))


def memory_order(spec: TensorSpec) -> tuple[int, ...]:
    """Axes from outermost to innermost when the tensor is a permutation of a contiguous one, else the plain order."""
    axes = sorted(range(len(spec.shape)), key=lambda a: (-spec.strides[a], a))
    expected = 1
    for axis in reversed(axes):
        if spec.shape[axis] != 1:
            if spec.strides[axis] != expected:
                return tuple(range(len(spec.shape)))
            expected *= spec.shape[axis]
    return tuple(axes)


def _read(context: Context, parameter: Any, spec: TensorSpec) -> Any:
    """The logical elements of a tensor out of its span of memory."""

    def build(flat: Any) -> Any:
        def element(*index: Any) -> Any:
            used = [i * s for i, s, extent in zip(index, spec.strides, spec.shape, strict=True) if extent != 1]
            return flat[sum(used) if used else 0]

        return te.compute(spec.shape, element, name="read")

    return context.te(build, parameter, name="read") if spec.numel else context.full(spec.shape, 0, spec.dtype)


def _write(context: Context, value: Any, order: tuple[int, ...]) -> Any:
    """The value with its axes in memory order; a copy of its own in any case."""
    if order == tuple(range(len(order))):
        return value

    def build(tensor: Any) -> Any:
        def element(*index: Any) -> Any:
            position = {axis: i for axis, i in zip(order, index, strict=True)}
            return tensor[tuple(position[a] for a in range(len(order)))]

        return te.compute(tuple(tensor.shape[a] for a in order), element, name="write")

    return context.te(build, value, name="write")


# -- dtypes -----------------------------------------------------------------------------------------------------------


def _all_specs(signature: Signature) -> list[TensorSpec]:
    return [*signature.tensors, *(spec for _, spec in signature.results)]


def _require_dtypes(signature: Signature) -> None:
    for dtype in sorted({s.dtype for s in _all_specs(signature)}):
        try:
            tvm_ffi.dtype(dtype)
        except ValueError:
            raise UnsupportedError(f"TVM has no {dtype}") from None


def _widen(spec: TensorSpec) -> TensorSpec:
    return TensorSpec(spec.shape, "float32", spec.strides) if spec.dtype in _NARROW_FLOATS else spec


def _widen_template(template: Any) -> Any:
    text = json.dumps(template)
    for dtype in _NARROW_FLOATS:
        text = text.replace(json.dumps({"dtype": dtype}), json.dumps({"dtype": "float32"}))
    return json.loads(text)


def _check(context: Context, route: str, name: str, value: Any, expected: TensorSpec, *, cast_allowed: bool) -> None:
    if not isinstance(value, relax.Expr):
        raise UnsupportedError(f"route {route} gives a {type(value).__name__} for {name}, not a tensor")
    try:
        shape, dtype = context.shape(value), context.dtype(value)
    except (TypeError, AttributeError, TapmlError) as error:
        raise UnsupportedError(f"route {route} gives {name} a shape that depends on data") from error
    if shape != expected.shape or (dtype != expected.dtype and not cast_allowed):
        found = f"{dtype}[{', '.join(map(str, shape))}]"
        raise UnsupportedError(f"route {route} gives {name} as {found} where the reference has {expected}")
