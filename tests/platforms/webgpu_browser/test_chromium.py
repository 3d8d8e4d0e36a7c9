"""The headless browser that tapml starts itself: found, stuck, killed, and gone with its process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tapml.errors import DeviceError
from tapml.platforms.webgpu.browser.chromium import describe_chromium, find_chromium, open_chromium
from tests.platforms.webgpu_browser.conftest import eventually
from tests.platforms.webgpu_browser.kernels import DOUBLE, ENDLESS, elementwise, ones, run


def processes(folder: Path) -> list[int]:
    """Processes that have a directory in ``folder`` among their arguments."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if str(folder).encode() in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
        except OSError:
            continue  # ended meanwhile
    return found


def test_it_is_described_without_a_launch() -> None:
    info = describe_chromium()
    assert info is not None and info.name == "webgpu:chromium" and info.details["executable"] == find_chromium()


def test_none_is_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("TAPML_CHROMIUM", raising=False)
    assert describe_chromium() is None
    with pytest.raises(DeviceError, match="expected a Chromium on the PATH"):
        open_chromium()
    monkeypatch.setenv("TAPML_CHROMIUM", "/nowhere/chromium")
    with pytest.raises(DeviceError, match=r"expected an executable as \$TAPML_CHROMIUM, found /nowhere/chromium"):
        find_chromium()


def test_one_that_does_not_start_says_why(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    broken.write_text("#!/bin/sh\necho a library is missing >&2\nexit 127\n")
    broken.chmod(0o755)
    monkeypatch.setenv("TAPML_CHROMIUM", str(broken))
    with pytest.raises(DeviceError, match=r"broken as a WebGPU device: it ended .*a library is missing"):
        open_chromium()


def test_one_without_an_adapter_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    without = tmp_path / "without"
    without.write_text(f'#!/bin/sh\nexec {find_chromium()} --disable-gpu --disable-software-rasterizer "$@"\n')
    without.chmod(0o755)
    monkeypatch.setenv("TAPML_CHROMIUM", str(without))
    with pytest.raises(DeviceError, match=r"the browser page chromium has no WebGPU device: .*no adapter"):
        open_chromium()


def test_an_endless_kernel_and_a_crash(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Both fail their own request; the next one finds a browser that works. In the end nothing is left."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    runner = open_chromium(timeout=2)
    good = runner.load(*elementwise(DOUBLE, 10))
    endless = runner.load(*elementwise(ENDLESS, 10))
    with pytest.raises(DeviceError, match="did not answer in 2 s"):
        run(endless, ones(10))
    assert (run(good, ones(10))[0] == 3).all()
    for pid in processes(tmp_path):
        if b"keeper.py" not in Path(f"/proc/{pid}/cmdline").read_bytes():
            os.kill(pid, signal.SIGKILL)
    assert eventually(lambda: runner.ended())
    assert (run(good, ones(10))[0] == 3).all()
    runner.close()
    assert eventually(lambda: not processes(tmp_path) and not list(tmp_path.iterdir()))


OWNER = """
import sys, time
from tapml.platforms.webgpu.browser.chromium import open_chromium
runner = open_chromium()
print("open", flush=True)
time.sleep(60)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_it_dies_with_its_process(tmp_path: Path) -> None:
    """Killed with its whole group, as workers are."""
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER],
        stdout=subprocess.PIPE,
        start_new_session=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    assert owner.stdout is not None
    with owner.stdout:
        assert owner.stdout.readline() == b"open\n"
    assert len(processes(tmp_path)) > 3
    os.killpg(owner.pid, signal.SIGKILL)
    owner.wait()
    assert eventually(lambda: not processes(tmp_path))
    assert eventually(lambda: not list(tmp_path.iterdir()))
