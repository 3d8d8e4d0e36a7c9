"""A whole program by way of a server that is killed twice: as on this machine."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tapml.migration.job import judge_signature
from tapml.migration.ladder import MigrationResult, migrate
from tapml.migration.settings import Settings
from tapml.platforms.rpc.executing import LOST, _Loaded
from tapml.suite.reader import Suite
from tests.platforms.rpc.servers import Process


def verdicts(result: MigrationResult) -> list[tuple[str, str, list[Any]]]:
    return [(o.signature, o.status, [case.verdict for case in o.cases]) for o in result.outcomes.values()]


def test_a_migration_whose_server_is_killed_twice(plain: Process, copied: Callable[..., Path]) -> None:
    url = f"rpc://127.0.0.1:{plain.port}/board"
    local = migrate(copied("mlp", name="here"), Settings("llvm"), resume=None, listen=lambda kind, value: None)
    killed: list[str] = []

    def listen(kind: str, value: Any) -> None:
        if kind not in killed and kind in ("judged", "gate"):
            killed.append(kind)
            plain.restart()

    remote = migrate(copied("mlp", name="there"), Settings("llvm", url, jobs=1), resume=None, listen=listen)
    assert len(killed) == 2
    assert remote.accepted and local.accepted
    assert verdicts(remote) == verdicts(local)
    assert remote.final is not None and local.final is not None
    assert remote.final.comparison == local.final.comparison
    assert remote.final.launches == local.final.launches > 0


def test_the_verdict_says_that_the_connection_was_lost(
    plain: Process, carved: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    original, killed = _Loaded._fetch, []

    def fetch(self: _Loaded, index: int) -> Any:
        if not killed:
            killed.append(index)
            plain.restart()
        return original(self, index)

    suite = carved("mlp")
    record = next(r for r in Suite.open(suite).signatures if r.signature.operator == "aten.addmm.default")
    settings, _ = Settings("llvm", f"rpc://127.0.0.1:{plain.port}/board").resolved()
    monkeypatch.setattr(_Loaded, "_fetch", fetch)
    outcome = judge_signature(settings.job(suite, record))
    assert outcome.passed and outcome.launches > 0 and LOST in outcome.warnings and len(killed) == 1
