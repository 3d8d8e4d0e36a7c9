"""What identifies an operator call: the operator, its argument structure, and the tensors it reads.

Three notions live here, used by every other part of tapml:

* the *argument template*: the arguments of a call as JSON, tensors replaced by ``{"tensor": index}``;
* :class:`TensorSpec` and :class:`Signature`: what calls must share to share a kernel;
* *results*: everything a call computed, as one flat list: its tensor outputs (those that are not an argument mutated in
  place) as ``out0``, ``out1``, ..., then the state after the call of every mutated tensor argument as ``arg<index>``.
  In this view each operator is a function, in-place operators and ``out=`` variants included.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch

from tapml.errors import SuiteError, UnsupportedError

Json = Any
"""A value that ``json`` can write: the template of one argument, or of all."""


@dataclass(frozen=True)
class TensorSpec:
    """Shape (elements), dtype (``float32``, ...) and strides (elements) of one strided tensor."""

    shape: tuple[int, ...]
    dtype: str
    strides: tuple[int, ...]

    @classmethod
    def of(cls, tensor: torch.Tensor) -> TensorSpec:
        return cls(tuple(tensor.shape), dtype_name(tensor.dtype), tuple(tensor.stride()))

    @property
    def numel(self) -> int:
        return math.prod(self.shape)

    def to_json(self) -> Json:
        return {"shape": list(self.shape), "dtype": self.dtype, "strides": list(self.strides)}

    @classmethod
    def from_json(cls, data: Json) -> TensorSpec:
        return cls(tuple(data["shape"]), data["dtype"], tuple(data["strides"]))

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]"


@dataclass(frozen=True)
class Signature:
    """Operator, argument template, and the spec of each tensor argument (by tensor index).

    ``arguments`` is the canonical JSON text of ``[args, kwargs]``.  ``results`` (name and spec of each result) follows
    from the rest and so is no part of the identity.
    """

    operator: str
    arguments: str
    tensors: tuple[TensorSpec, ...]
    results: tuple[tuple[str, TensorSpec], ...] = ()

    @property
    def id(self) -> str:
        """Twelve hex digits that depend on the operator, the arguments and the tensor specs alone."""
        identity = json.dumps([self.operator, self.arguments, [t.to_json() for t in self.tensors]])
        return hashlib.sha256(identity.encode()).hexdigest()[:12]

    @property
    def template(self) -> Json:
        return json.loads(self.arguments)

    @property
    def mutated(self) -> tuple[int, ...]:
        """Indices of the tensor arguments which the call changes."""
        return tuple(int(name[3:]) for name, _ in self.results if name.startswith("arg"))

    def to_json(self) -> Json:
        return {
            "operator": self.operator,
            "arguments": self.template,
            "tensors": [t.to_json() for t in self.tensors],
            "results": {name: spec.to_json() for name, spec in self.results},
        }

    @classmethod
    def from_json(cls, data: Json) -> Signature:
        return cls(
            data["operator"],
            canonical_json(data["arguments"]),
            tuple(TensorSpec.from_json(t) for t in data["tensors"]),
            tuple((name, TensorSpec.from_json(spec)) for name, spec in data["results"].items()),
        )

    def __str__(self) -> str:
        return f"{self.operator}({', '.join(map(str, self.tensors))})"


def canonical_json(value: Json) -> str:
    """The text of ``value`` that is equal whenever the values are."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def dtype_name(dtype: torch.dtype) -> str:
    """``torch.float32`` -> ``float32``."""
    return str(dtype).removeprefix("torch.")


def torch_dtype(name: str) -> torch.dtype:
    """``float32`` -> ``torch.float32``; raises :class:`SuiteError` for anything that is no dtype."""
    dtype = getattr(torch, name, None)
    if not isinstance(dtype, torch.dtype):
        raise SuiteError(f"expected the name of a PyTorch dtype, found {name!r}")
    return dtype


@lru_cache(maxsize=None)
def resolve_operator(name: str) -> torch._ops.OpOverload:
    """``aten.mm.default`` -> the overload.  Raises :class:`UnsupportedError` when PyTorch has none of that name."""
    namespace, _, rest = name.partition(".")
    packet, _, overload = rest.partition(".")
    try:
        found = getattr(getattr(getattr(torch.ops, namespace), packet), overload)
    except (AttributeError, RuntimeError) as error:
        raise UnsupportedError(
            f"operator {name} is unknown to PyTorch {torch.__version__}",
            hint="use the PyTorch version that the suite was carved with, or import the package that registers it",
        ) from error
    if not isinstance(found, torch._ops.OpOverload):
        raise UnsupportedError(f"{name} is not an operator overload")
    return found


# -- the argument template --------------------------------------------------------------------------------------------

_PLAIN = (bool, int, str, type(None))


def encode_arguments(args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[Json, list[torch.Tensor]]:
    """Arguments of a call -> (template ``[args, kwargs]``, tensors in order of appearance).

    Raises :class:`UnsupportedError` for an argument of a kind that has no representation (a Python object).
    """
    tensors: list[torch.Tensor] = []

    def encode(value: Any) -> Json:
        if isinstance(value, torch.Tensor):
            tensors.append(value)
            return {"tensor": len(tensors) - 1}
        if isinstance(value, _PLAIN):
            return value
        if isinstance(value, float):
            return value if math.isfinite(value) else {"float": repr(value)}
        if isinstance(value, complex):
            return {"complex": [repr(value.real), repr(value.imag)]}
        if isinstance(value, list | tuple):
            return [encode(v) for v in value]
        for kind, name in _ATTRIBUTES:
            if isinstance(value, kind):
                return {name: str(value).removeprefix("torch.")}
        if isinstance(value, torch.Generator):
            return {"generator": str(value.device)}
        raise UnsupportedError(
            f"expected a tensor, scalar, list, dtype or device as argument, found {type(value).__name__}"
        )

    template = [[encode(a) for a in args], {k: encode(v) for k, v in kwargs.items()}]
    return template, tensors


_ATTRIBUTES: tuple[tuple[Any, str], ...] = (
    (torch.dtype, "dtype"),
    (torch.device, "device"),
    (torch.layout, "layout"),
    (torch.memory_format, "memory_format"),
)


def decode_arguments(template: Json, tensors: Sequence[Any]) -> tuple[list[Any], dict[str, Any]]:
    """The inverse of :func:`encode_arguments`; ``tensors`` may hold anything that stands for a tensor (an IR value).

    Raises :class:`SuiteError` for a template that :func:`encode_arguments` cannot have written.
    """

    def decode(value: Json) -> Any:
        if isinstance(value, (*_PLAIN, float)):
            return value
        if isinstance(value, list):
            return [decode(v) for v in value]
        if isinstance(value, dict) and len(value) == 1:
            ((kind, data),) = value.items()
            decoder = _DECODERS.get(kind)
            if kind == "tensor" and isinstance(data, int) and 0 <= data < len(tensors):
                return tensors[data]
            if decoder is not None:
                try:
                    return decoder(data)
                except (AttributeError, TypeError, ValueError, RuntimeError):
                    pass
        raise SuiteError(f"expected an argument template, found {str(value)[:80]!r}")

    args, kwargs = template
    return [decode(a) for a in args], {k: decode(v) for k, v in kwargs.items()}


def _torch_attribute(kind: type) -> Callable[[str], Any]:
    def decode(name: str) -> Any:
        value = getattr(torch, name)
        if not isinstance(value, kind):
            raise TypeError(name)
        return value

    return decode


_DECODERS: dict[str, Callable[[Any], Any]] = {
    "float": float,
    "complex": lambda data: complex(float(data[0]), float(data[1])),
    "dtype": _torch_attribute(torch.dtype),
    "device": torch.device,
    "layout": _torch_attribute(torch.layout),
    "memory_format": _torch_attribute(torch.memory_format),
    "generator": lambda device: None,
}


# -- results ----------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=None)
def written_arguments(operator: torch._ops.OpOverload) -> tuple[str, ...]:
    """Names of the arguments that the operator's schema marks as written to."""
    return tuple(a.name for a in operator._schema.arguments if a.alias_info is not None and a.alias_info.is_write)


def mutated_tensors(operator: torch._ops.OpOverload, template: Json) -> tuple[int, ...]:
    """Indices (into the tensors of ``template``) of the tensor arguments that the operator writes to."""
    written = written_arguments(operator)
    if not written:
        return ()
    args, kwargs = template
    names = [a.name for a in operator._schema.arguments]
    found: list[int] = []

    def collect(value: Json) -> None:
        if isinstance(value, list):
            for item in value:
                collect(item)
        elif isinstance(value, dict) and "tensor" in value and value["tensor"] not in found:
            found.append(value["tensor"])

    for name, value in [*zip(names, args, strict=False), *kwargs.items()]:
        if name in written:
            collect(value)
    return tuple(found)


def collect_results(
    operator: torch._ops.OpOverload, mutated: Sequence[int], tensors: Sequence[torch.Tensor], output: Any
) -> list[tuple[str, torch.Tensor]]:
    """Name and tensor of each result (see the module's docstring), uncopied.

    ``tensors`` are the call's tensor arguments, ``output`` is what the operator returned.
    """
    flat: list[torch.Tensor] = []
    returns = operator._schema.returns
    values = output if len(returns) != 1 and isinstance(output, tuple | list) else [output]
    for declared, value in zip(returns, values, strict=False):
        if declared.alias_info is not None and declared.alias_info.is_write:
            continue
        members = value if isinstance(value, tuple | list) else [value]
        flat.extend(v for v in members if isinstance(v, torch.Tensor))
    named = [(f"out{i}", tensor) for i, tensor in enumerate(flat)]
    return named + [(f"arg{i}", tensors[i]) for i in mutated]


def execute(signature: Signature, tensors: Sequence[torch.Tensor]) -> list[tuple[str, torch.Tensor]]:
    """Run the operator in PyTorch on copies of whatever it mutates, and return its results by name.

    ``tensors`` may be of other dtypes than the signature says (the float64 oracle does that).
    """
    operator = resolve_operator(signature.operator)
    template = signature.template
    mutated = mutated_tensors(operator, template)
    owned = [clone_strided(t) if i in mutated else t for i, t in enumerate(tensors)]
    args, kwargs = decode_arguments(template, owned)
    return collect_results(operator, mutated, owned, operator(*args, **kwargs))


def clone_strided(tensor: torch.Tensor) -> torch.Tensor:
    """A copy with storage of its own and, where strides do not overlap, the same strides."""
    if has_overlap(tensor.shape, tensor.stride()):
        return tensor.clone()
    return laid_out(tensor, tensor.stride())


def laid_out(values: torch.Tensor, strides: Sequence[int]) -> torch.Tensor:
    """A copy in memory of its own with these strides, which do not overlap; between its elements are zeros."""
    count = span(values.shape, strides)
    make = torch.empty if count == values.numel() else torch.zeros
    return make(count, dtype=values.dtype).as_strided(values.shape, strides).copy_(values)


def span(shape: Sequence[int], strides: Sequence[int]) -> int:
    """Number of elements from the first to the last that a view touches."""
    if math.prod(shape) == 0:
        return 0
    return 1 + sum((extent - 1) * stride for extent, stride in zip(shape, strides, strict=True))


def has_overlap(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether two indices may address one element (a broadcast dimension, say)."""
    if math.prod(shape) == 0:
        return False
    reach = 0
    for extent, stride in sorted(zip(shape, strides, strict=True), key=lambda pair: pair[1]):
        if extent == 1:
            continue
        if stride <= reach:
            return True
        reach += (extent - 1) * stride
    return False
