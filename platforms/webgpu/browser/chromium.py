"""A headless Chromium of this machine as a WebGPU device, with a hub of its own."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import IO, TYPE_CHECKING

import numpy
from numpy.typing import NDArray

from tapml.errors import DeviceError
from tapml.platform import DeviceInfo
from tapml.platforms.webgpu.browser import keeper
from tapml.platforms.webgpu.browser.client import BrowserRunner
from tapml.platforms.webgpu.browser.frames import Header

if TYPE_CHECKING:
    from tapml.platforms.webgpu.browser.hub import Hub

NAME = "webgpu:chromium"
VARIABLE = "TAPML_CHROMIUM"
"""Environment variable: the browser's executable."""
_PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "microsoft-edge")
_FLAGS = (
    "--headless",
    "--no-sandbox",  # refused to root and in containers; the only page is ours
    "--enable-unsafe-webgpu",  # WebGPU on Linux, and on SwiftShader where there is no GPU; other combinations hang
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-extensions",
    "--disable-sync",
    "--disable-background-timer-throttling",
    "--disable-renderer-backgrounding",
    "--disable-breakpad",
    "--password-store=basic",
    "--use-mock-keychain",
)
_START_SECONDS = 40.0
"""0.5-1.5 s on an idle machine."""
_POLL_SECONDS = 0.25
_PAGE = "chromium"


def find_chromium() -> str | None:
    """The executable: ``$TAPML_CHROMIUM``, or the first on the PATH.  Raises :class:`DeviceError` when the former is none."""
    named = os.environ.get(VARIABLE)
    if named:
        found = shutil.which(named)
        if found is None:
            raise DeviceError(
                f"expected an executable as ${VARIABLE}, found {named}", hint=f"correct or unset {VARIABLE}"
            )
        return found
    return next((path for program in _PROGRAMS if (path := shutil.which(program))), None)


def describe_chromium() -> DeviceInfo | None:
    """The device, if a browser and what drives it are installed.  Nothing is launched: whether it has WebGPU shows later."""
    executable = find_chromium()
    if executable is None or importlib.util.find_spec("websockets") is None:
        return None
    return DeviceInfo(NAME, "headless Chromium, its GPU or SwiftShader", details={"executable": executable})


def open_chromium(*, timeout: float = 60.0) -> BrowserRunner:
    """Launch Chromium and open its WebGPU device.  ``timeout``: seconds for each request.

    :meth:`BrowserRunner.close` ends the browser; it also ends with this process, however that dies.  Raises
    :class:`DeviceError` when there is no Chromium, it does not start, or has no WebGPU.
    """
    from tapml.platforms.webgpu.browser.hub import Hub

    executable = find_chromium()
    if executable is None:
        raise DeviceError(
            f"expected a Chromium on the PATH ({', '.join(_PROGRAMS[:3])}) or in ${VARIABLE}, found none",
            hint="apt-get install chromium",
        )
    hub = Hub()
    hub.start()
    browser = Chromium(executable, hub)
    try:
        browser.start()
        return ChromiumRunner(hub, browser, timeout=timeout)
    except BaseException:
        browser.stop()
        hub.stop()
        raise


class Chromium:
    """A headless browser that shows the page of ``hub``."""

    def __init__(self, executable: str, hub: Hub) -> None:
        self._executable, self._hub = executable, hub
        self._process: subprocess.Popen[bytes] | None = None
        self._log: IO[bytes] | None = None

    def start(self) -> None:
        """Launch it, and wait until its page is connected.  Raises :class:`DeviceError`."""
        self._hub.expel(_PAGE, "its browser was launched again")
        folder = Path(tempfile.mkdtemp(prefix="tapml-chromium-"))
        url = f"{self._hub.url()}&name={_PAGE}"
        command = [self._executable, *_FLAGS, f"--user-data-dir={folder / 'profile'}", url]
        self._log = log = tempfile.TemporaryFile()  # noqa: SIM115  (has no name: nothing to remove)
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", str(keeper.__file__), str(folder), *command],
            stdin=subprocess.PIPE,  # ends with this process: then the keeper ends the browser
            stdout=subprocess.DEVNULL,
            stderr=log,
            start_new_session=True,  # survives the killing of our group, to clean up
        )
        try:
            self._wait()
        except DeviceError as error:
            said = self._said()
            self.stop()
            raise DeviceError(
                f"{self._executable} as a WebGPU device: {error.message}{said}", hint=error.hint
            ) from error

    def ended(self) -> bool:
        """Whether it has ended or crashed."""
        return self._process is None or self._process.poll() is not None

    def stop(self) -> None:
        """End it and remove its files."""
        if self._process is None:
            return
        assert self._process.stdin is not None and self._log is not None
        self._process.stdin.close()
        self._process.wait()
        self._process = None
        self._log.close()

    def restart(self) -> None:
        """End it, with whatever it is stuck in, and launch it anew.  Raises :class:`DeviceError`."""
        self.stop()
        self.start()

    def _wait(self) -> None:
        end = time.monotonic() + _START_SECONDS
        while not self._hub.wait_for_page(_PAGE, _POLL_SECONDS):
            if self.ended():
                raise DeviceError("it ended without opening the page")
            if time.monotonic() > end:
                raise DeviceError(f"its page did not connect within {_START_SECONDS:.0f} s")

    def _said(self) -> str:
        """The last lines that it wrote, in brackets; those about desktop services, which are no matter, left out."""
        assert self._log is not None
        self._log.seek(0)
        text = self._log.read().decode(errors="replace")
        lines = [line for line in text.splitlines() if line.strip() and "dbus" not in line]
        return f" ({' / '.join(lines[-3:])[-400:]})" if lines else ""


class ChromiumRunner(BrowserRunner):
    """The runner of a browser that it owns: one that crashed or is stuck is launched again for the next request."""

    def __init__(self, hub: Hub, browser: Chromium, *, timeout: float) -> None:
        self._hub, self._browser = hub, browser
        super().__init__(hub.url(), _PAGE, timeout=timeout)

    def ask(self, header: Header, parts: list[NDArray[numpy.uint8]]) -> tuple[Header, list[NDArray[numpy.uint8]]]:
        """See :meth:`BrowserRunner.ask`."""
        if self._browser.ended():
            self._browser.restart()
        answer = super().ask(header, parts)
        if answer[0].get("kind") == "timeout":
            self._browser.restart()
        return answer

    def ended(self) -> bool:
        """Whether the browser ended or crashed; the next request launches it again."""
        return self._browser.ended()

    def close(self) -> None:
        """End the browser and the hub."""
        super().close()
        self._browser.stop()
        self._hub.stop()
