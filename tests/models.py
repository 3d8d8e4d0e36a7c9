"""The real models that packages on this machine have."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest


def package_directory(name: str) -> Path:
    """Where a package of model files lies.  Skips the test where it is not installed."""
    spec = importlib.util.find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        pytest.skip(f"needs the package {name.replace('_', '-')}")
    return Path(next(iter(spec.submodule_search_locations)))
