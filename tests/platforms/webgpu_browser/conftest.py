"""A hub, and real browsers to open its page."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from tapml.platforms.webgpu.browser import chromium, keeper
from tapml.platforms.webgpu.browser.client import BrowserRunner

EXECUTABLE = chromium.find_chromium()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    missing = "chromium" if EXECUTABLE is None else "the package websockets" if not find_spec("websockets") else ""
    for item in items:
        if missing and Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.skip(reason=f"needs {missing}"))


class Browser:
    """A browser of its own profile that opens an address."""

    def __init__(self, url: str, profile: Path) -> None:
        command = [str(EXECUTABLE), *chromium._FLAGS, f"--user-data-dir={profile / 'profile'}", url]
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", str(keeper.__file__), str(profile), *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(20)


OpenBrowser = Callable[[str], Browser]


@pytest.fixture
def open_browser(tmp_path: Path) -> Iterator[OpenBrowser]:
    opened: list[Browser] = []

    def open_(url: str) -> Browser:
        profile = tmp_path / f"browser{len(opened)}"
        profile.mkdir()
        opened.append(Browser(url, profile))
        return opened[-1]

    yield open_
    for browser in opened:
        browser.close()


@pytest.fixture
def hub() -> Iterator[object]:
    from tapml.platforms.webgpu.browser.hub import Hub

    hub = Hub()
    hub.start()
    yield hub
    hub.stop()


@pytest.fixture(scope="package")
def runner() -> Iterator[BrowserRunner]:
    runner = chromium.open_chromium(timeout=30)
    yield runner
    runner.close()


def eventually(condition: Callable[[], bool], seconds: float = 15.0) -> bool:
    """Whether it comes true within so many seconds."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True
