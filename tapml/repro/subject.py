"""What is tried: one call of an operator, as values that can be changed and sent to a worker."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from tapml.lowering.lower import span
from tapml.suite.call import (
    Json,
    Signature,
    TensorSpec,
    canonical_json,
    collect_results,
    decode_arguments,
    mutated_tensors,
    resolve_operator,
    torch_dtype,
)
from tapml.suite.case import Case, Origin


@dataclass(frozen=True)
class Memory:
    """A tensor as its spec and the bytes of the memory that it spans, from its first element to its last."""

    spec: TensorSpec
    data: bytes

    @classmethod
    def of(cls, tensor: torch.Tensor) -> Memory:
        spec = TensorSpec.of(tensor)
        return cls(spec, flat(tensor).contiguous().view(torch.uint8).numpy().tobytes() if spec.numel else b"")

    def tensor(self) -> torch.Tensor:
        """With memory of its own."""
        dtype = torch_dtype(self.spec.dtype)
        if not self.data:
            return torch.empty_strided(self.spec.shape, self.spec.strides, dtype=dtype)
        return torch.frombuffer(bytearray(self.data), dtype=dtype).as_strided(self.spec.shape, self.spec.strides)


def flat(tensor: torch.Tensor) -> torch.Tensor:
    """The memory that a tensor spans, one-dimensional; a view."""
    return torch.as_strided(tensor.detach(), (span(TensorSpec.of(tensor)),), (1,), tensor.storage_offset())


@dataclass(frozen=True)
class Subject:
    """An operator with its argument template (see :mod:`tapml.suite.call`) and tensors.

    ``results``: what PyTorch gave when the call was carved; ``None``: PyTorch is asked.
    """

    operator: str
    arguments: str
    tensors: tuple[Memory, ...]
    results: tuple[tuple[str, Memory], ...] | None = None

    @classmethod
    def of_case(cls, case: Case) -> Subject:
        results = tuple((name, Memory.of(tensor)) for name, tensor in case.results)
        return cls(case.signature.operator, case.signature.arguments, tuple(map(Memory.of, case.tensors)), results)

    @classmethod
    def made(cls, operator: str, template: Json, tensors: Sequence[torch.Tensor]) -> Subject:
        """With the tensors that the template names, numbered anew in the order in which it does."""
        kept: list[int] = []

        def renumber(value: Json) -> Json:
            if isinstance(value, list):
                return [renumber(v) for v in value]
            if isinstance(value, dict):
                if set(value) == {"tensor"}:
                    if value["tensor"] not in kept:
                        kept.append(value["tensor"])
                    return {"tensor": kept.index(value["tensor"])}
                return {k: renumber(v) for k, v in value.items()}
            return value

        arguments = canonical_json([renumber(template[0]), {k: renumber(v) for k, v in template[1].items()}])
        return cls(operator, arguments, tuple(Memory.of(tensors[i]) for i in kept))

    @property
    def digest(self) -> str:
        """Equal for equal calls."""
        found = hashlib.sha256(f"{self.operator} {self.arguments}".encode())
        for memory in self.tensors:
            found.update(str(memory.spec.to_json()).encode() + memory.data)
        return found.hexdigest()

    @property
    def elements(self) -> int:
        """Elements of all tensor arguments together."""
        return sum(memory.spec.numel for memory in self.tensors)

    def case(self, name: str = "repro/0") -> Case:
        """Executed in PyTorch where there are no results yet.  Raises whatever PyTorch raises."""
        tensors = tuple(memory.tensor() for memory in self.tensors)
        if self.results is not None:
            results = [(result, memory.tensor()) for result, memory in self.results]
        else:
            results = executed(self.operator, self.arguments, tensors)
        specs = tuple((result, TensorSpec.of(tensor)) for result, tensor in results)
        signature = Signature(self.operator, self.arguments, tuple(memory.spec for memory in self.tensors), specs)
        return Case(name, signature, Origin(0, "", ""), tensors, tuple(results))


def executed(operator: str, arguments: str, tensors: Sequence[torch.Tensor]) -> list[tuple[str, torch.Tensor]]:
    """The results of a call in PyTorch; ``tensors`` stay as they are."""
    overload = resolve_operator(operator)
    template = Signature(operator, arguments, ()).template
    owned = [Memory.of(tensor).tensor() for tensor in tensors]
    args, kwargs = decode_arguments(template, owned)
    with torch.no_grad():
        found = collect_results(overload, mutated_tensors(overload, template), owned, overload(*args, **kwargs))
    return [(name, tensor.detach().clone() if name.startswith("arg") else tensor) for name, tensor in found]
