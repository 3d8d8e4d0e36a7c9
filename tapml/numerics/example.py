"""A call made up on the spot, in the form of a recorded one: for tests, calibration and trying a tolerance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from tapml.suite.call import (
    Signature,
    TensorSpec,
    canonical_json,
    collect_results,
    encode_arguments,
    execute,
    mutated_tensors,
    resolve_operator,
)

Named = list[tuple[str, torch.Tensor]]


@dataclass(frozen=True)
class Example:
    """A signature, the tensors of the call and PyTorch's results, as :func:`tapml.numerics.judge.judge` takes them."""

    signature: Signature
    tensors: tuple[torch.Tensor, ...]
    results: Named


def example(operator: str, *args: Any, **kwargs: Any) -> Example:
    """Call an operator (``aten.mm.default``) in PyTorch.  The arguments are not mutated.

    Raises :class:`tapml.errors.UnsupportedError` for an unknown operator or an argument that no suite can hold.
    """
    template, tensors = encode_arguments(args, kwargs)
    specs = tuple(TensorSpec.of(t) for t in tensors)
    overload = resolve_operator(operator)
    mutated = mutated_tensors(overload, template)
    names = collect_results(overload, mutated, tensors, None)
    bare = Signature(operator, canonical_json(template), specs, tuple((n, TensorSpec.of(t)) for n, t in names))
    results = [(name, tensor.detach().clone()) for name, tensor in execute(bare, tensors)]
    signature = Signature(operator, bare.arguments, specs, tuple((n, TensorSpec.of(t)) for n, t in results))
    return Example(signature, tuple(tensors), results)
