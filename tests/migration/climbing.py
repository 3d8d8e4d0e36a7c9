"""Climb in this process, and compare how climbs ended."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tapml.migration.ladder import MigrationResult, migrate
from tapml.migration.settings import Settings

CONVERTERS = Path(__file__).resolve().parent.parent / "converters"


class Listener:
    """Keeps what a migration told; ``stop_after`` gates or judgements it is interrupted, as by Ctrl-C."""

    def __init__(self, kind: str = "", stop_after: int = 0) -> None:
        self.told: list[tuple[str, Any]] = []
        self._kind, self._left = kind, stop_after

    def __call__(self, kind: str, value: Any) -> None:
        self.told.append((kind, value))
        if kind == self._kind:
            self._left -= 1
            if self._left == 0:
                raise KeyboardInterrupt

    def of(self, kind: str) -> list[Any]:
        return [value for k, value in self.told if k == kind]


def climb(
    suite: Path,
    *converters: str,
    gate: str = "operator",
    resume: bool | None = None,
    listen: Listener | None = None,
    cache: Path | None = None,
) -> MigrationResult:
    settings = Settings(
        "llvm",
        gate=gate,
        extensions=tuple(str(CONVERTERS / c) for c in converters),
        cache=str(cache) if cache else None,
    )
    return migrate(suite, settings, resume=resume, listen=listen or Listener())


def ending(result: MigrationResult) -> dict[str, Any]:
    """How a climb ended, without times, and whatever else may differ between two climbs of one suite."""
    data = json.loads(json.dumps(result.to_json()))
    for signature in data["signatures"]:
        for name in ("seconds", "cached", "output"):
            signature.pop(name, None)
        for case in signature["cases"]:
            case.pop("seconds")
    for gate in [*data["gates"], data["final"] or {}]:
        gate.pop("seconds", None)
    data.pop("suite")
    return dict(data)


def statuses(result: MigrationResult) -> dict[str, set[str]]:
    """The statuses of each operator's signatures."""
    found: dict[str, set[str]] = {}
    for signature, outcome in result.outcomes.items():
        found.setdefault(outcome.operator, set()).add(result.status(signature))
    return found
