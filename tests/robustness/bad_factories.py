"""Sources that do not work, one after another."""

from __future__ import annotations

import os
import sys
from typing import Any

import torch

model = torch.nn.Linear(3, 2).eval()
x = torch.ones(1, 3)
not_callable = 3


def raises() -> Any:
    raise RuntimeError("no\nmodel [/here]")


def exits() -> Any:
    sys.exit(0)


def returns_none() -> Any:
    return None


def returns_text() -> Any:
    return "model"


def returns_four() -> Any:
    return model, (), {}, 3


def returns_model_alone() -> Any:
    return model


def args_are_a_tensor() -> Any:
    return model, x


def needs_arguments(size: int) -> Any:
    return model, (x,)


def wrong_shape() -> Any:
    return model, (torch.ones(1, 4),)


def no_tensor() -> Any:
    return lambda: 3


def training() -> Any:
    return torch.nn.Linear(3, 2), (x,)


def unsteady() -> Any:
    state = [0.0]

    def run() -> torch.Tensor:
        state[0] += 1
        return x * state[0]

    return run


def exits_while_it_runs() -> Any:
    return lambda: sys.exit("enough")


def works() -> Any:
    return model, (x,)


def depends_on_a_file() -> Any:
    """Another program when ``OTHER`` is set, and none when ``BROKEN`` is."""
    torch.manual_seed(0)
    layer = torch.nn.Linear(3, 2).eval()
    if os.environ.get("BROKEN"):
        raise FileNotFoundError("the weights have gone")
    if os.environ.get("OTHER"):
        layer.weight.data += 1
    return layer, (x,)
