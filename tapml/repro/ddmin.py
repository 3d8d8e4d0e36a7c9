"""Delta debugging: Zeller and Hildebrandt, "Simplifying and Isolating Failure-Inducing Input" (2002), algorithm ddmin."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")


def ddmin(items: Sequence[T], fails: Callable[[Sequence[T]], bool], rng: random.Random, *, least: int = 1) -> list[T]:
    """A part of ``items``, in their order, of at least ``least``, with which it still fails: 1-minimal in chunks.

    ``items`` themselves fail, and ``fails`` is not asked about them.  ``rng`` decides in which order the chunks of one
    size are tried.
    """
    kept, chunks = list(items), 2
    while len(kept) > max(least, 1):
        chunks = min(chunks, len(kept))
        bounds = [len(kept) * i // chunks for i in range(chunks + 1)]
        parts = [kept[a:b] for a, b in itertools.pairwise(bounds)]
        order = list(range(chunks))
        rng.shuffle(order)
        found = next((parts[i] for i in order if len(parts[i]) >= least and fails(parts[i])), None)
        if found is not None:
            kept, chunks = found, 2
            continue
        rest: list[T] | None = None
        if chunks > 2:
            for i in order:
                without = [item for j, part in enumerate(parts) if j != i for item in part]
                if len(without) >= least and fails(without):
                    rest = without
                    break
        if rest is not None:
            kept, chunks = rest, max(chunks - 1, 2)
        elif chunks >= len(kept):
            break
        else:
            chunks *= 2
    if least == 0 and kept and len(kept) == 1 and fails([]):
        return []
    return kept
