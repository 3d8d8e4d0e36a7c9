"""A program of many small operators, one for each way in which ``hostile_converters.py`` misbehaves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

OPERATORS = tuple(
    name
    for line in (
        "exp sin cos tan log sqrt rsqrt floor ceil round erf sign trunc abs neg log2 log10 log1p expm1 atan asinh",
        "sinh cosh reciprocal sigmoid relu tanh exp2 erfc frac asin acos lgamma digamma",
    )
    for name in line.split()
)
"""Names in ``aten``, each called once on its own on the same eight numbers in (0, 1)."""


class Operators(torch.nn.Module):
    """All of :data:`OPERATORS`, and a sum and a product that nobody touches.  ``float32[8]`` -> tensors by name."""

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        found = {name: getattr(torch.ops.aten, name)(x) for name in OPERATORS}
        return {**found, "add": x + 1.5, "mul": x * x}


def make() -> tuple[Callable[..., Any], tuple[torch.Tensor, ...]]:
    return Operators().eval(), (torch.linspace(0.1, 0.9, 8),)
