"""Bundles of calls that are in no suite."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tapml.migration.settings import Settings
from tapml.repro.make import Made, Options, reproduce_call
from tapml.suite.case import Case, Origin
from tests.lowering.running import record


def recorded(operator: str, *args: Any, **kwargs: Any) -> Case:
    """The case of a call, as a carve would have it."""
    call = record(operator, args, kwargs)
    origin = Origin(0, "model.layers.3", "model.py:12")
    return Case(f"{call.signature.id}/0", call.signature, origin, tuple(call.tensors), tuple(call.results))


def made(
    case: Case, out: Path, *, target: str = "llvm", device: str = "", route: str = "", budget: float = 0.0,
    extensions: Sequence[Path] = (), seed: int = 0, force: bool = False,
) -> Made:  # fmt: skip
    settings = Settings(target, device, extensions=tuple(map(str, extensions)))
    return reproduce_call([case], out, Options(settings, route, budget, seed, force, "tapml repro ..."))
