"""A program for docs/own-kernels.md: how likely counts are under a model of them.

What is trained on counts (molecules in cells, visits, sold items) often ends in the negative binomial distribution, and that
in log-gamma functions.  This is such a decoder, as small as can be, with its log-likelihood.

    tapml carve examples/counts.py:counts -o suite
"""

from __future__ import annotations

import torch
from torch import nn


class Counts(nn.Module):
    """float32[cells, 8] and counts float32[cells, genes] -> log-likelihood float32[cells]."""

    def __init__(self, genes: int) -> None:
        super().__init__()
        self.decode = nn.Linear(8, genes)
        self.log_dispersion = nn.Parameter(torch.linspace(-2.0, 3.0, genes))

    def forward(self, state: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
        mean = torch.softmax(self.decode(state), -1) * counts.sum(-1, keepdim=True)
        theta = torch.exp(self.log_dispersion)
        both = torch.log(theta + mean)
        likelihood = torch.lgamma(counts + theta) - torch.lgamma(theta) - torch.lgamma(counts + 1)
        likelihood = likelihood + theta * (self.log_dispersion - both) + counts * (torch.log(mean) - both)
        return likelihood.sum(-1)


def counts() -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """32 cells, 96 genes."""
    torch.manual_seed(0)
    seen = torch.poisson(torch.rand(32, 96) * 20)
    return Counts(96).eval(), (torch.randn(32, 8), seen)
