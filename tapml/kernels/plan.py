"""A plan: the kernels of an operator, their arguments and their order; and the artifact that holds it compiled."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import tvm
from tvm import relax

from tapml.errors import UnsupportedError
from tapml.suite.call import Json


@dataclass(frozen=True)
class Buffer:
    """A contiguous array that a plan reads or writes: shape (elements) and TVM dtype.

    ``stored``: the dtype that its elements have in the device's memory, where that is another one (a bool in 32 bits).
    """

    shape: tuple[int, ...]
    dtype: str
    stored: str = ""

    @property
    def memory(self) -> str:
        """The dtype in the device's memory."""
        return self.stored or self.dtype

    @property
    def itemsize(self) -> int:
        """Bytes of an element in the device's memory."""
        return int(max(tvm.DataType(self.memory).bits, 8) // 8)

    @property
    def nbytes(self) -> int:
        """Bytes in the device's memory."""
        return math.prod(self.shape) * self.itemsize

    @property
    def bound_bytes(self) -> int:
        """Bytes of the device's buffer that holds it: whole words of 32 bits, one at least."""
        return max(-(-self.nbytes // 4) * 4, 4)


@dataclass(frozen=True)
class Kernel:
    """One device function.  ``file``: the name of its code among the artifact's files; its entry point is ``name``.

    ``pointers``: for each buffer argument, in order, the dtype of its elements in memory; ``writes``: whether the
    kernel writes to it.  ``scalars``: the dtypes of the scalar arguments, which follow the buffers.  ``block``: threads
    in a block (workgroup, threadgroup) along x, y, z.  ``shared``: bytes of shared memory that are asked for at launch;
    what the code declares itself is in ``declared``.  ``iterations``: of all loops, that one thread goes through at most.
    """

    name: str
    file: str
    pointers: tuple[str, ...]
    writes: tuple[bool, ...]
    scalars: tuple[str, ...] = ()
    block: tuple[int, int, int] = (1, 1, 1)
    shared: int = 0
    declared: int = 0
    iterations: int = 0


@dataclass(frozen=True)
class Step:
    """One launch: the kernel's name, its buffer arguments by index and in its own order, its scalar arguments, and the
    number of blocks along x, y, z."""

    kernel: str
    buffers: tuple[int, ...]
    scalars: tuple[int | float, ...] = ()
    grid: tuple[int, int, int] = (1, 1, 1)


@dataclass(frozen=True)
class Plan:
    """Kernels of an operator with their launches, as data: another process, or a browser page, can replay it.

    ``parameters``: the buffer of each tensor argument (its span of memory, one-dimensional).  ``results``: the buffer of
    each result, ``None`` where a result has no elements; ``orders``: the axis order in which it is written.  All other
    buffers are workspace.  ``kernels``: by name; empty on a target whose kernels need no description (llvm).
    ``offsets``: where in their buffers parameters begin that share one, in elements; empty when none do.
    """

    buffers: tuple[Buffer, ...]
    parameters: tuple[int, ...]
    steps: tuple[Step, ...]
    results: tuple[int | None, ...]
    orders: tuple[tuple[int, ...] | None, ...]
    kernels: dict[str, Kernel] = field(default_factory=dict)
    offsets: tuple[int, ...] = ()

    @property
    def parameter_offsets(self) -> tuple[int, ...]:
        """For each parameter, where in its buffer it begins, in bytes."""
        if not self.offsets:
            return (0,) * len(self.parameters)
        places = zip(self.offsets, self.parameters, strict=True)
        return tuple(offset * self.buffers[index].itemsize for offset, index in places)

    def to_json(self) -> Json:
        """Lists, numbers and strings only."""
        return {
            "buffers": [[list(b.shape), b.dtype, b.stored] for b in self.buffers],
            "parameters": list(self.parameters),
            "steps": [[s.kernel, list(s.buffers), list(s.scalars), list(s.grid)] for s in self.steps],
            "results": list(self.results),
            "orders": [None if o is None else list(o) for o in self.orders],
            "kernels": {
                name: [
                    k.file,
                    list(k.pointers),
                    list(k.writes),
                    list(k.scalars),
                    list(k.block),
                    k.shared,
                    k.declared,
                    k.iterations,
                ]
                for name, k in self.kernels.items()
            },
            "offsets": list(self.offsets),
        }

    @classmethod
    def from_json(cls, data: Json) -> Plan:
        """The inverse of :meth:`to_json`."""
        return cls(
            tuple(Buffer(tuple(shape), dtype, stored) for shape, dtype, stored in data["buffers"]),
            tuple(data["parameters"]),
            tuple(Step(k, tuple(buffers), tuple(scalars), tuple(grid)) for k, buffers, scalars, grid in data["steps"]),
            tuple(data["results"]),
            tuple(None if o is None else tuple(o) for o in data["orders"]),
            {
                name: Kernel(name, file, tuple(pointers), tuple(writes), tuple(scalars), tuple(block), *rest)
                for name, (file, pointers, writes, scalars, block, *rest) in data["kernels"].items()
            },
            tuple(data["offsets"]),
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
                steps.append(Step(value.args[0].name_hint, inputs + outputs))
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
