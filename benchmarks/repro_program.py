"""A program that meets defects of TVM's PyTorch front end and code generators, on inputs as models have them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional

WHAT = {
    "aten.std.correction": "the correction is ignored",
    "aten.max.dim": "a NaN is dropped",
    "aten.argmax.default": "-1 for a row of minus infinities",
    "aten.topk.default": "a NaN is not the largest",
    "aten.index.Tensor": "an index from the end reads out of bounds",
    "aten.logaddexp.default": "overflows from 89 on",
    "aten.remainder.Tensor": "NaN for an infinite divisor",
    "aten.avg_pool2d.default": "the divisor is ignored",
    "aten._upsample_bilinear2d_aa.default": "resampled without the antialiasing filter",
    "aten.elu.default": "the scale is ignored (SELU)",
    "aten.masked_fill.Scalar": "minus infinity has no TIR",
    "aten.mul.Tensor": "bool times bool reaches LLVM as a product of floats",
    "aten.scaled_dot_product_attention.default": "a mask of bools is refused",
    "aten.cat.default": "a legacy empty tensor is refused",
}
"""Operator -> what is wrong, in TVM 0.27; the program calls each of them once."""


def calls() -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """A factory for ``tapml carve``."""
    torch.manual_seed(0)
    x = torch.randn(12, 40)
    gaps = x.clone()
    gaps[3, 7] = gaps[8, 0] = float("nan")
    picture = torch.randn(1, 3, 16, 20)
    queries = torch.randn(1, 2, 6, 8)
    causal = torch.ones(6, 6, dtype=torch.bool).tril()

    def run(x: torch.Tensor, gaps: torch.Tensor, picture: torch.Tensor, queries: torch.Tensor) -> list[Any]:
        divisors = torch.tensor([3.0, float("inf"), 2.0, -float("inf"), 1.0]).repeat(8)
        masked = x.masked_fill(x < 0, -float("inf"))
        return [
            torch.std(x, 1),
            torch.max(gaps, 1),
            torch.argmax(torch.full_like(x, -float("inf")), 1),
            torch.topk(gaps, 3, 1),
            x[torch.tensor([0, 3, -1]), torch.tensor([1, -2, 4])],
            torch.logaddexp(x * 50, x * 50),
            torch.remainder(x * 9, divisors),
            functional.avg_pool2d(picture, 3, divisor_override=2),
            functional.interpolate(picture, (5, 7), mode="bilinear", antialias=True),
            functional.selu(x),
            masked,
            causal * causal.flip(0),
            functional.scaled_dot_product_attention(queries, queries, queries, causal),
            torch.cat([torch.empty(0), x]),
        ]

    return run, (x, gaps, picture, queries)
