"""A plan: the kernels of an operator, their arguments and their order; and the artifact that holds it compiled."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import tvm
from tvm import relax

from tapml.errors import UnsupportedError
from tapml.suite.call import Json


@dataclass(frozen=True)
class Buffer:
    """A contiguous array that a plan reads or writes: shape (elements) and TVM dtype."""

    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True)
class Step:
    """One launch: the kernel's name, the buffers it reads and those it writes, by index."""

    kernel: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


@dataclass(frozen=True)
class Plan:
    """Kernels of an operator with their launches.

    ``parameters``: the buffer of each tensor argument (its span of memory, one-dimensional).  ``results``: the buffer of
    each result, ``None`` where a result has no elements; ``orders``: the axis order in which it is written.
    """

    buffers: tuple[Buffer, ...]
    parameters: tuple[int, ...]
    steps: tuple[Step, ...]
    results: tuple[int | None, ...]
    orders: tuple[tuple[int, ...] | None, ...]

    def to_json(self) -> Json:
        return {
            "buffers": [[list(b.shape), b.dtype] for b in self.buffers],
            "parameters": list(self.parameters),
            "steps": [[s.kernel, list(s.inputs), list(s.outputs)] for s in self.steps],
            "results": list(self.results),
            "orders": [None if o is None else list(o) for o in self.orders],
        }

    @classmethod
    def from_json(cls, data: Json) -> Plan:
        return cls(
            tuple(Buffer(tuple(shape), dtype) for shape, dtype in data["buffers"]),
            tuple(data["parameters"]),
            tuple(Step(kernel, tuple(inputs), tuple(outputs)) for kernel, inputs, outputs in data["steps"]),
            tuple(data["results"]),
            tuple(None if o is None else tuple(o) for o in data["orders"]),
        )


@dataclass(frozen=True)
class Artifact:
    """A compiled operator: its plan, files by name (a shared library, shader sources), route and notes for the verdict."""

    plan: Plan
    files: dict[str, bytes]
    route: str
    converters: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    facts: dict[str, Json] = field(default_factory=dict)


def extract_plan(module: tvm.IRModule, orders: tuple[tuple[int, ...] | None, ...]) -> Plan:
    """The plan of a module whose function ``main`` is a straight line of ``call_tir``.

    Raises :class:`UnsupportedError` for anything else: control flow, host calls, shapes that depend on data.
    """
    main = module["main"]
    buffers: list[Buffer] = []
    where: dict[Any, tuple[int, ...]] = {}

    def new_buffer(type_: Any) -> int:
        try:
            shape = tuple(int(d) for d in type_.shape)
        except (TypeError, AttributeError) as error:
            raise UnsupportedError(f"a value of type {type_} has no static shape") from error
        buffers.append(Buffer(shape, str(type_.dtype)))
        return len(buffers) - 1

    for parameter in main.params:
        where[parameter] = (new_buffer(parameter.ty),)
    steps: list[Step] = []

    def operand(expression: Any) -> int:
        if expression in where and len(where[expression]) == 1:
            return where[expression][0]
        raise UnsupportedError(f"a kernel argument that is no tensor: {type(expression).__name__}")

    for block in main.body.blocks:
        for binding in block.bindings:
            value = binding.value
            if isinstance(value, relax.Call) and value.op == tvm.ir.Op.get("relax.call_tir"):
                out_types = value.ty_args[0]
                types = list(out_types.fields) if isinstance(out_types, relax.TupleType) else [out_types]
                outputs = tuple(new_buffer(t) for t in types)
                inputs = tuple(operand(a) for a in value.args[1])
                steps.append(Step(value.args[0].name_hint, inputs, outputs))
                where[binding.var] = outputs
            elif isinstance(value, relax.TupleGetItem):
                where[binding.var] = (where[value.tuple_value][value.index],)
            elif isinstance(value, relax.Tuple):
                where[binding.var] = tuple(operand(f) for f in value.fields)
            elif value in where:
                where[binding.var] = where[value]
            else:
                raise UnsupportedError(f"what is left on the host is no kernel: {str(value)[:120]}")
    returned = main.body.body
    outputs = where[returned] if returned in where else tuple(operand(f) for f in returned.fields)
    feed = iter(outputs)
    results = tuple(None if order is None else next(feed) for order in orders)
    return Plan(tuple(buffers), tuple(where[p][0] for p in main.params), tuple(steps), results, orders)
