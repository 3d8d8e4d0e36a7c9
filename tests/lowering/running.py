"""One operator call through lowering, a platform and the judge."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import pytest
import torch

from tapml.errors import DeviceError, MissingFeatureError, TapmlError
from tapml.kernels.plan import Artifact
from tapml.kernels.runner import Fault
from tapml.lowering.lower import lower, routes
from tapml.numerics.judge import judge
from tapml.numerics.verdict import Verdict
from tapml.platform import Device, Platform, find_device, find_platform
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

LLVM = "llvm:cpu"


@dataclass(frozen=True)
class Ran:
    """What came back: by result name, with the verdict, the number of kernels launched and the device's faults."""

    results: dict[str, torch.Tensor]
    verdict: Verdict
    launches: int
    signature: Signature
    artifact: Artifact
    faults: tuple[Fault, ...] = ()

    @property
    def out(self) -> torch.Tensor:
        return next(iter(self.results.values()))

    @property
    def right(self) -> bool:
        """Executed on the device, without a fault, and judged to be right."""
        return self.verdict.passed and self.launches > 0 and not self.faults


@lru_cache(maxsize=None)
def opened(device: str) -> tuple[Platform, Device]:
    """An opened device and its platform.  Skips the test, in the platform's own words, where it is not here."""
    platform = find_platform(device.split(":")[0])
    try:
        return platform, platform.open(find_device(platform, device).name)
    except DeviceError as error:
        pytest.skip(error.message)


def llvm() -> tuple[Platform, Device]:
    return opened(LLVM)


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


def build(call: Call, device: str, route: str | None = None) -> Artifact:
    """Lower and compile by ``route``, by default the first there is."""
    platform, _ = opened(device)
    return platform.build(
        lower(call.signature, platform.name, route or routes(call.signature, platform.name)[0]), device
    )


def run_call(call: Call, route: str | None = None, device: str = LLVM) -> Ran:
    """Lower, build, execute and judge.  Skips the test where the device lacks a feature (half precision, say)."""
    signature = call.signature
    _, opened_device = opened(device)
    artifact = build(call, device, route)
    try:
        execution = opened_device.load(artifact, signature).run(call.tensors)
    except MissingFeatureError as error:
        pytest.skip(error.message)
    found = [(n, t) for (n, _), t in zip(signature.results, execution.results, strict=True)]
    verdict = judge(signature, call.tensors, call.results, found)
    return Ran(dict(found), verdict, execution.launches, signature, artifact, execution.faults)


def run(name: str, *args: Any, **kwargs: Any) -> Ran:
    """Execute in PyTorch and on llvm."""
    return run_call(record(name, args, kwargs))


def run_any(call: Call, device: str) -> Ran:
    """Execute by one route after the other until one is right, as a migration does; otherwise what the first gave.

    Raises what the first route raised where none gives a result.
    """
    first: Ran | None = None
    refused: TapmlError | None = None
    for route in routes(call.signature, device.split(":")[0]):
        try:
            ran = run_call(call, route, device)
        except TapmlError as error:
            refused = refused or error
            continue
        if ran.right:
            return ran
        first = first or ran
    if first is None:
        assert refused is not None
        raise refused
    return first
