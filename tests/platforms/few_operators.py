"""A program of four operators."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


def make() -> tuple[Callable[..., Any], tuple[torch.Tensor, ...]]:
    """``float32[8]`` -> ``float32[8]``."""

    def run(x: torch.Tensor) -> torch.Tensor:
        return torch.sin(x.exp() + 1.5) * x

    return run, (torch.linspace(0.1, 0.9, 8),)
