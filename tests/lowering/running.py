"""One operator call through lowering, the llvm platform and the judge."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch

from tapml.lowering.lower import lower, routes
from tapml.numerics.judge import judge
from tapml.numerics.verdict import Verdict
from tapml.platform import Device, Platform, find_platform
from tapml.suite.call import (
    Signature,
    TensorSpec,
    canonical_json,
    collect_results,
    decode_arguments,
    encode_arguments,
    mutated_tensors,
    resolve_operator,
)


@dataclass(frozen=True)
class Ran:
    """What came back: by result name, with the verdict and the number of kernels launched."""

    results: dict[str, torch.Tensor]
    verdict: Verdict
    launches: int
    signature: Signature

    @property
    def out(self) -> torch.Tensor:
        return next(iter(self.results.values()))


@lru_cache(maxsize=None)
def llvm() -> tuple[Platform, Device]:
    platform = find_platform("llvm")
    return platform, platform.open("llvm:cpu")


@dataclass(frozen=True)
class Call:
    """A call that PyTorch has executed: its signature, arguments as they were, and results."""

    signature: Signature
    tensors: list[torch.Tensor]
    results: list[tuple[str, torch.Tensor]]


def record(name: str, args: Sequence[Any], kwargs: Mapping[str, Any] | None = None) -> Call:
    """Execute in PyTorch.  Raises whatever PyTorch raises."""
    operator = resolve_operator(name)
    template, tensors = encode_arguments(list(args), dict(kwargs or {}))
    mutated = mutated_tensors(operator, template)
    before = [_same_memory(t) for t in tensors]
    after = [_same_memory(t) for t in tensors]
    given, named = decode_arguments(template, after)
    output = operator(*given, **named)
    results = [(n, t.detach().clone() if n.startswith("arg") else t) for n, t in
               collect_results(operator, mutated, after, output)]  # fmt: skip
    signature = Signature(
        name,
        canonical_json(template),
        tuple(TensorSpec.of(t) for t in before),
        tuple((n, TensorSpec.of(t)) for n, t in results),
    )
    return Call(signature, before, results)


def _same_memory(tensor: torch.Tensor) -> torch.Tensor:
    """A copy of the tensor's storage, seen in the same way (offset and strides included)."""
    storage = torch.empty(0, dtype=tensor.dtype).set_(tensor.untyped_storage().clone())
    return storage.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())


def run_call(call: Call, route: str | None = None) -> Ran:
    """Lower, build, execute and judge by ``route``, by default the first there is."""
    platform, device = llvm()
    signature = call.signature
    lowered = lower(signature, "llvm", route or routes(signature, "llvm")[0])
    execution = device.load(platform.build(lowered, "llvm:cpu"), signature).run(call.tensors)
    found = [(n, t) for (n, _), t in zip(signature.results, execution.results, strict=True)]
    return Ran(dict(found), judge(signature, call.tensors, call.results, found), execution.launches, signature)


def run(name: str, *args: Any, **kwargs: Any) -> Ran:
    """Execute in PyTorch and on llvm."""
    return run_call(record(name, args, kwargs))
