"""Arguments to try an operator on, made from its schema; and by hand where the schema does not say enough."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any

import torch

from tapml.suite.call import resolve_operator

Sample = tuple[tuple[Any, ...], dict[str, Any]]
_SPECIAL = (math.nan, math.inf, -math.inf, -0.0, 0.0, 1.0, -1.0, 0.5, 2.5, -3.5, 88.0, 1e-8)


def tensor(shape: tuple[int, ...], dtype: torch.dtype, seed: int = 0) -> torch.Tensor:
    """Values of a realistic range; integers from -7 to 7 without 0."""
    generator = torch.Generator().manual_seed(seed)
    if dtype == torch.bool:
        return torch.randint(0, 2, shape, generator=generator) > 0
    if dtype.is_floating_point:
        return torch.randn(shape, generator=generator).mul(2).to(dtype)
    low = 1 if dtype == torch.uint8 else -7
    values = torch.randint(low, 8, shape, generator=generator)
    return values.masked_fill(values == 0, 3).to(dtype)


def pool(dtype: torch.dtype, seed: int = 0) -> list[torch.Tensor]:
    """Tensors of one dtype: special values, transposed, strided and misaligned, zero-dimensional, of extents 1, broadcast."""
    found = [
        tensor((4, 6), dtype, seed).t(),
        tensor((6, 9), dtype, seed + 1)[:, 1::2],
        tensor((), dtype, seed + 2),
        tensor((1, 3, 1), dtype, seed + 3),
        tensor((3, 1), dtype, seed + 4).expand(3, 5),
        tensor((2, 3, 17), dtype, seed + 5),
        tensor((64,), dtype, seed + 6)[3:36],
    ]
    if dtype.is_floating_point:
        special = torch.tensor(_SPECIAL, dtype=dtype)
        found.insert(0, special.roll(seed))
    return found


_DTYPES = (torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.uint8, torch.float64)


def by_schema(name: str) -> Iterator[Sample]:
    """Samples from the types of the required arguments; nothing for an operator that needs more than that says."""
    required = [a for a in resolve_operator(name)._schema.arguments if not a.has_default_value()]
    positional = [a for a in required if not a.kwarg_only]
    if len(positional) != len(required) or not positional:
        return
    kinds = [str(a.type) for a in positional]
    tensors = [i for i, kind in enumerate(kinds) if kind == "Tensor"]
    others: dict[str, list[Any]] = {
        "number": [2, 0.5, -1.5],
        "int": [-1, 0, 1],
        "float": [0.5],
        "bool": [False, True],
        "List[int]": [[-1], [0, -1]],
        "Optional[List[int]]": [[-1], None, [0, 1]],
        "Optional[int]": [-1, None],
        "List[Tensor]": [],
    }
    if not tensors or any(kind not in ("Tensor", *others) for kind in kinds):
        return
    choices = [others.get(kind, [None]) for kind in kinds]
    for dtype, plain in itertools.product(_DTYPES, itertools.zip_longest(*choices, fillvalue=...)):
        chosen = [c[0] if v is ... else v for c, v in zip(choices, plain, strict=True)]
        pools = [pool(dtype, seed) for seed in range(len(tensors))]
        for members in zip(*pools, strict=True):
            args = list(chosen)
            for place, member in zip(tensors, members, strict=True):
                args[place] = member
            yield tuple(args), {}
        if len(tensors) > 1:
            args = list(chosen)
            for place, shape in zip(tensors, ((4, 1, 3), (2, 1), (3,)), strict=False):
                args[place] = tensor(shape, dtype, place)
            yield tuple(args), {}


def accepted(samples: Iterator[Sample], execute: Callable[[Sample], Any]) -> Iterator[Any]:
    """What ``execute`` gives for the samples on which PyTorch does not raise."""
    for sample in samples:
        try:
            yield execute(sample)
        except (RuntimeError, TypeError, IndexError, ValueError, NotImplementedError, ZeroDivisionError):
            continue
