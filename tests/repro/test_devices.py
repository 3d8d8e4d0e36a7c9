"""Bundles of targets whose kernels are sources: launched without tapml, in a browser, or in the emulator."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

import pytest
import torch

from tapml.errors import DeviceError
from tapml.platform import find_device, find_platform
from tests.repro.making import made, recorded
from tests.repro.test_bundles import CONVERTERS, run

pytestmark = pytest.mark.slow
WRONG = [CONVERTERS / "wrong_gelu.py"]
CHROMIUM = shutil.which("chromium")


def strided() -> torch.Tensor:
    return torch.linspace(-3, 3, 35).reshape(5, 7).t()


def require(device: str) -> None:
    try:
        find_device(find_platform(device.split(":")[0]), device)
    except DeviceError as error:
        pytest.skip(error.message)


@pytest.mark.parametrize("device", ["webgpu:native", "opencl:pocl"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_kernels_are_launched_without_tapml(tmp_path: Path, device: str, dtype: torch.dtype) -> None:
    require(device)
    case = recorded("aten.gelu.default", strided().to(dtype))
    found = made(case, tmp_path / "bug", target=device.split(":")[0], device=device, extensions=WRONG)
    assert found.bundle.confirmation.how == "replay", found.bundle.confirmation
    assert found.bundle.confirmation.device
    code, said = run(found.bundle.path)
    assert code == 1 and "REPRODUCED" in said, said
    assert [p for p in (found.bundle.path / "kernels").iterdir() if p.read_text()]


@pytest.mark.parametrize("device", ["metal:emulated", "vulkan:lavapipe"])
def test_others_say_that_they_need_tapml(tmp_path: Path, device: str) -> None:
    require(device)
    case = recorded("aten.gelu.default", strided())
    found = made(case, tmp_path / "bug", target=device.split(":")[0], device=device, extensions=WRONG, budget=30)
    assert found.bundle.confirmation.how == "tapml" and found.failure.subject.elements == 1
    readme = (found.bundle.path / "README.md").read_text()
    assert "It needs tapml" in readme and ("emulated" in readme) == (device == "metal:emulated")
    code, said = run(found.bundle.path)
    assert code == 2 and "CANNOT RUN HERE" in said, said


def verdict_in_browser(page: Path) -> str:
    """What the page says at last, on the console of a headless Chromium that opens it from the disk."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile, open(f"{profile}/log", "w+b") as log:
        command = [str(CHROMIUM), "--headless", "--no-sandbox", "--enable-unsafe-webgpu", "--no-first-run",
                   f"--user-data-dir={profile}/profile", "--enable-logging=stderr", f"file://{page}"]  # fmt: skip
        browser = subprocess.Popen(command, cwd=profile, stdout=subprocess.DEVNULL, stderr=log, start_new_session=True)
        try:
            for _ in range(600):
                time.sleep(0.1)
                text = Path(log.name).read_text(errors="replace")
                said = re.findall(r'CONSOLE.*?"((?:REPRODUCED|RIGHT|FAILS|CANNOT).*)", source', text)
                if said:
                    return str(said[-1])
        finally:
            os.killpg(browser.pid, signal.SIGKILL)
            browser.wait()
    raise AssertionError(f"the page said nothing: {text[-2000:]}")


@pytest.mark.skipif(CHROMIUM is None, reason="needs chromium")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_a_page_that_reproduces_it_when_it_is_opened(tmp_path: Path, dtype: torch.dtype) -> None:
    require("webgpu:native")
    case = recorded("aten.gelu.default", strided().to(dtype))
    found = made(case, tmp_path / "bug", target="webgpu", device="webgpu:native", extensions=WRONG)
    page = found.bundle.path / "reproduce.html"
    assert verdict_in_browser(page).startswith("REPRODUCED: ")
    if dtype != torch.float32:
        return
    # what is right, and what is wrong in another way, is told from it
    text = page.read_text()
    found_data = re.search(r'id="bundle">(.*?)</script>', text, re.DOTALL)
    assert found_data is not None
    sources = json.loads(found_data[1])["sources"]
    name, source = next((name, text) for name, text in sources.items() if "+ 1.000000e+00f)" in text)
    mended = source.replace("+ 1.000000e+00f)", "+ 1.000000e+00f) * 0.5f")
    for changed, expected in ((mended, "RIGHT: "), (source[:-20], "FAILS IN ANOTHER WAY: ")):
        assert changed != source
        again = page.with_name("changed.html")
        again.write_text(text.replace(json.dumps(sources), json.dumps({**sources, name: changed})))
        assert verdict_in_browser(again).startswith(expected)
