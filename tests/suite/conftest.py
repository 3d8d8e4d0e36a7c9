"""Fixtures of the tests of the suite."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="module", autouse=True)
def unflushed() -> Iterator[None]:
    """No waiting for the disk: the tests kill processes, not machines.  One test looks at the calls."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        yield
