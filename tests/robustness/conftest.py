"""A place for commands to run in."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from . import running


@pytest.fixture
def place() -> Iterator[running.Place]:
    yield from running.place("rob")


@pytest.fixture(scope="module")
def shared_place() -> Iterator[running.Place]:
    yield from running.place("robs")
