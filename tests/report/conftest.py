"""A suite that was migrated on llvm, and to two devices more whose journals are made out of that one; a browser."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

CONVERTERS = Path(__file__).resolve().parent.parent / "converters"
HOSTILE = "</script><script>document.title = 'taken over'</script><img src=x onerror=alert(1)> & \u0007 ]]> 'quoted\""


@pytest.fixture(scope="session")
def migrated(carved: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``waves`` with a wrong sine.  llvm: the sine is rolled back.  ``metal:emulated``: one signature is unsupported,
    with a hostile message.  ``webgpu:native``: interrupted in the middle of a line.  Not to be changed."""
    from tapml.cli.main import run

    suite = tmp_path_factory.mktemp("report") / "waves"
    shutil.copytree(carved("waves", 1), suite, ignore=shutil.ignore_patterns("migrations"))
    code = run(["migrate", str(suite), "--target", "llvm", "--with", str(CONVERTERS / "taylor_sin.py"), "--jobs", "1"])
    assert code == 1, "the sine is rolled back"
    emulated = events_of(suite, "llvm-cpu")
    emulated[0].update(target="metal", device="metal:emulated")
    emulated[0]["environment"].update(device="metal:emulated", mode="emulated", description="on the CPU")
    first = next(e["outcome"] for e in emulated if e["event"] == "judged" and "add" in e["outcome"]["operator"])
    first.update(status="unsupported", message=HOSTILE, cases=[], artifact="", launches=0)
    write(suite, "metal-emulated", emulated)
    begun = events_of(suite, "llvm-cpu")[:3]
    begun[0].update(target="webgpu", device="webgpu:native")
    begun[0]["environment"].update(device="webgpu:native", description="an adapter")
    write(suite, "webgpu-native", begun, torn='{"event": "jud')
    return suite


def events_of(suite: Path, folder: str) -> list[dict[str, Any]]:
    """The events of a journal."""
    return [json.loads(line) for line in journal(suite, folder).read_text().splitlines()]


def journal(suite: Path, folder: str) -> Path:
    return suite / "migrations" / folder / "journal.jsonl"


def write(suite: Path, folder: str, events: list[dict[str, Any]], torn: str = "") -> None:
    """Write a journal."""
    journal(suite, folder).parent.mkdir(exist_ok=True)
    journal(suite, folder).write_text("".join(json.dumps(e) + "\n" for e in events) + torn)


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """A headless Chromium."""
    sync_api = pytest.importorskip("playwright.sync_api")
    executable = shutil.which("chromium")
    if executable is None:
        pytest.skip("needs chromium")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable, args=["--no-sandbox"])
        yield browser
        browser.close()
