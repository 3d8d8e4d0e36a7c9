"""``tapml devices --listen``: what it prints, who finds it, how it ends."""

from __future__ import annotations

import json
import os
import re
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.platforms.webgpu_browser.conftest import OpenBrowser, eventually
from tests.platforms.webgpu_browser.kernels import DOUBLE, elementwise, ones, run

pytest.importorskip("segno")


class Listener:
    """``tapml devices --listen`` in a process, with a runtime directory of its own."""

    def __init__(self, runtime: Path, *options: str) -> None:
        runtime.mkdir(mode=0o700, exist_ok=True)
        self.out, self.file = runtime.parent / "out", runtime / "tapml" / "listen.json"
        with self.out.open("wb") as out:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tapml.cli.main", "devices", "--listen", *options],
                stdout=out,
                stderr=subprocess.STDOUT,
                env={
                    **os.environ,
                    "XDG_RUNTIME_DIR": str(runtime),
                    "PYTHONUNBUFFERED": "1",
                    "PYTHONIOENCODING": "utf-8",
                },
            )
        last = re.compile("open the same address|leave out --host")
        eventually(lambda: last.search(self.text()) is not None or self.process.poll() is not None)

    def text(self) -> str:
        return self.out.read_text("utf-8")

    def end(self, number: signal.Signals = signal.SIGINT) -> int:
        self.process.send_signal(number)
        return self.process.wait(15)


@pytest.fixture
def listener(tmp_path: Path) -> Iterator[Listener]:
    listener = Listener(tmp_path / "runtime")
    yield listener
    if listener.process.poll() is None:
        listener.process.kill()
        listener.process.wait()


def test_a_page_comes_runs_and_goes(
    listener: Listener, open_browser: OpenBrowser, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tapml.platforms.webgpu.browser.client import open_remote, remote_devices

    monkeypatch.setenv("XDG_RUNTIME_DIR", str(listener.file.parent.parent))
    monkeypatch.delenv("TAPML_LISTEN", raising=False)
    assert stat.S_IMODE(listener.file.stat().st_mode) == 0o600
    about = json.loads(listener.file.read_text())
    assert about["pid"] == listener.process.pid
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/\?token=[\w-]{32}", about["url"])
    assert f"listening on {about['url']}\n" in listener.text() and "█" in listener.text()
    browser = open_browser(about["url"])
    assert eventually(lambda: len(remote_devices()) == 1, 20)
    (info,) = remote_devices()
    assert re.fullmatch(r"webgpu:remote/[a-z]+-\d+-[a-z0-9-]+", info.name)
    runner = open_remote(info.name, timeout=20)
    assert (run(runner.load(*elementwise(DOUBLE, 10)), ones(10))[0] == 3).all()
    runner.close()
    browser.close()
    name = info.name.removeprefix("webgpu:remote/")
    assert eventually(lambda: f"{name} has gone" in listener.text())
    assert f"{name} is here: " in listener.text()
    assert listener.end() == 130
    assert "interrupted" in listener.text() and "Traceback" not in listener.text()
    assert not listener.file.exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_other_signals_end_it_as_well(listener: Listener, number: signal.Signals) -> None:
    assert listener.end(number) == 128 + number
    assert not listener.file.exists()


def test_two_cannot_listen_but_one_after_a_killed_one_can(listener: Listener, tmp_path: Path) -> None:
    second = Listener(tmp_path / "runtime")
    assert second.process.wait(15) == 2
    assert f"process {listener.process.pid} listens already" in second.text()
    listener.process.kill()
    listener.process.wait()
    assert listener.file.exists()
    third = Listener(tmp_path / "runtime")
    assert "listening on" in third.text()
    assert third.end() == 130


def test_other_machines_are_warned_about(tmp_path: Path) -> None:
    listener = Listener(tmp_path / "runtime", "--host", "0.0.0.0")
    assert listener.end() == 130
    assert "warning: whoever has this address can use the devices" in listener.text()
    assert "WebGPU only over https or on localhost" in listener.text()


def test_an_address_that_is_taken(listener: Listener, tmp_path: Path) -> None:
    port = re.search(r":(\d+)/", listener.text())
    assert port is not None
    second = Listener(tmp_path / "runtime2", "--port", port[1])
    assert second.process.wait(15) == 2
    assert f"error: cannot listen on 127.0.0.1:{port[1]}" in second.text()
