"""Delta debugging itself."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tapml.repro.ddmin import ddmin


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 40), st.sets(st.integers(0, 39), max_size=4), st.integers(0, 5))
def test_what_is_needed_is_left_and_nothing_else(count: int, needed: set[int], seed: int) -> None:
    wanted = {n for n in needed if n < count} or {0}
    found = ddmin(list(range(count)), lambda part: wanted <= set(part), random.Random(seed))
    assert found == sorted(wanted)


def test_items_that_count_only_together() -> None:
    asked: list[int] = []

    def fails(part: Sequence[int]) -> bool:
        asked.append(len(part))
        return len(part) >= 5

    assert len(ddmin(list(range(64)), fails, random.Random(0))) == 5
    assert len(asked) < 200


@pytest.mark.parametrize("seed", range(3))
def test_one_seed_one_way(seed: int) -> None:
    def asked(seed: int) -> list[list[int]]:
        seen: list[list[int]] = []

        def fails(part: Sequence[int]) -> bool:
            seen.append(list(part))
            return {2, 11} <= set(part)

        ddmin(list(range(16)), fails, random.Random(seed))
        return seen

    assert asked(seed) == asked(seed)
