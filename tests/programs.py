"""Small reference programs, and converters for them in ``tests/converters``."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn


class Mlp(nn.Module):
    """float32[3, 8] -> probabilities float32[3, 4]."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(8, 16)
        self.norm = nn.LayerNorm(16)
        self.down = nn.Linear(16, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(self.down(torch.nn.functional.gelu(self.norm(self.up(x)))), -1)


class Wave(nn.Module):
    """One step: the sine of what comes in, which each step scales by more."""

    def __init__(self, scale: float) -> None:
        super().__init__()
        self.scale = scale

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.sin(x * self.scale)


class Waves(nn.Module):
    """float32[2, 8] -> float32[2, 8]: six calls of ``aten.sin`` with one signature, the first with small arguments."""

    def __init__(self, limit: float | None = None) -> None:
        super().__init__()
        self.steps = nn.ModuleList(Wave(0.5 * 2**i) for i in range(6))
        self.limit = limit

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        total = x
        for step in self.steps:
            total = total + step(x)
            if self.limit is not None and float(total.abs().max()) > self.limit:
                raise ValueError("the wave diverged")
        return total.tanh()


def mlp() -> tuple[nn.Module, tuple[Any, ...]]:
    torch.manual_seed(0)
    return Mlp().eval(), (torch.randn(3, 8),)


def waves() -> tuple[nn.Module, tuple[Any, ...]]:
    return Waves().eval(), (torch.linspace(0.1, 0.9, 16).reshape(2, 8),)


def waves_with_limit() -> tuple[nn.Module, tuple[Any, ...]]:
    return Waves(limit=50.0).eval(), (torch.linspace(0.1, 0.9, 16).reshape(2, 8),)


class Triangle(nn.Module):
    """[4, 6] -> [4, 4]: the operators that ``examples/templates/converters.py`` has."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tril(torch.nn.functional.softplus(x) @ x.T, 1)


def triangle() -> tuple[nn.Module, tuple[Any, ...]]:
    return Triangle().eval(), (torch.linspace(-30, 30, 24).reshape(4, 6),)


def triangle_float64() -> tuple[nn.Module, tuple[Any, ...]]:
    return Triangle().eval(), (torch.linspace(-30, 30, 24, dtype=torch.float64).reshape(4, 6),)


def silu() -> tuple[nn.Module, tuple[Any, ...]]:
    return nn.SiLU().eval(), (torch.linspace(-3, 3, 10),)


class Places(nn.Module):
    """int64[5] a permutation -> int64[5] its inverse, written into memory that was never given values."""

    def forward(self, order: torch.Tensor) -> torch.Tensor:
        places = torch.empty_like(order)
        places.index_put_((order,), torch.arange(5))
        return places + 1


def places() -> tuple[nn.Module, tuple[Any, ...]]:
    return Places().eval(), (torch.tensor([3, 0, 4, 1, 2]),)


class Lengths(nn.Module):
    """int64[3] lengths, complex64[2] phases -> lengths with a mark of 64 bits, phases added to themselves."""

    def forward(self, lengths: torch.Tensor, phases: torch.Tensor) -> tuple[torch.Tensor, ...]:
        marks = (lengths.float() * 1e12).long()
        return marks, torch.where(lengths > 1, 2**40, lengths), phases + phases


def lengths() -> tuple[nn.Module, tuple[Any, ...]]:
    return Lengths().eval(), (torch.tensor([1, 2, 3]), torch.tensor([1 + 2j, 3j]))


class LongRows(nn.Module):
    """float32[4, 3000] -> float32[4, 4]: reductions and a product that threads share."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x, -1) @ x.T + x.sum()


def long_rows() -> tuple[nn.Module, tuple[Any, ...]]:
    torch.manual_seed(0)
    return LongRows().eval(), (torch.randn(4, 3000),)


class Forms(nn.Module):
    """float32[32, 48] -> six results, for ``tests/converters/forms.py``."""

    def __init__(self) -> None:
        super().__init__()
        self.right = nn.Parameter(torch.randn(48, 64))
        self.linear = nn.Linear(48, 40)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return torch.sin(x), x.sum(-1), x @ self.right, torch.exp(x), self.linear(x), torch.softmax(x, -1)


def forms() -> tuple[nn.Module, tuple[Any, ...]]:
    torch.manual_seed(0)
    return Forms().eval(), (torch.randn(32, 48),)


class Masked(nn.Module):
    """float32[4] -> float32[4]: where two masks hold, which both do everywhere."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.where(torch.logical_and(x > -1, x < 2), x, torch.zeros(()))


def masked() -> tuple[nn.Module, tuple[Any, ...]]:
    return Masked().eval(), (torch.linspace(0.1, 0.9, 4),)
