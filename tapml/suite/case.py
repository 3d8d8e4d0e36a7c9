"""One recorded call, in memory."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch

from tapml.suite.call import Json, Signature

CLASSES = ("compute", "view", "host", "random", "undefined")
"""What a signature is: has to migrate; metadata only; data-dependent; random; values nobody may compare."""


@dataclass(frozen=True)
class Origin:
    """Where a call came from: position in the run, module path (``model.layers.3.mlp``), the user's source line."""

    call_index: int
    module: str
    source: str


@dataclass(frozen=True)
class Case:
    """Inputs and results of one call.

    ``tensors``: the tensor arguments before the call (shape, dtype and strides as recorded; arguments that shared
    storage with a mutated one still do).  ``results``: see :mod:`tapml.suite.call`.  ``stress``: why it was kept, with
    figures (``kept`` one of ``first``, ``magnitude``, ``range``; ``max_abs``; ``nonfinite``; ``dynamic_range``).
    """

    id: str
    signature: Signature
    origin: Origin
    tensors: tuple[torch.Tensor, ...]
    results: tuple[tuple[str, torch.Tensor], ...]
    stress: dict[str, Json] = field(default_factory=dict)

    @property
    def arguments(self) -> tuple[list[Any], dict[str, Any]]:
        from tapml.suite.call import decode_arguments

        return decode_arguments(self.signature.template, self.tensors)


@dataclass(frozen=True)
class SignatureRecord:
    """A signature with what the run said of it: class, number of calls, calls by module path, ids of kept cases."""

    signature: Signature
    kind: str
    calls: int
    modules: dict[str, int]
    cases: tuple[str, ...]
    carved_from: dict[str, int] = field(default_factory=dict)
    """Overloads that were seen by PyTorch's dispatcher and recorded as this (portable) operator, with counts."""
