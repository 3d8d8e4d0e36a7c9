"""Execute plans in a browser page, through the hub that it is connected to."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

import numpy
from numpy.typing import NDArray

from tapml.errors import CompileError, DeviceError, UnsupportedError
from tapml.kernels.limits import check, loop_iterations
from tapml.platform import DeviceInfo
from tapml.platforms.webgpu.browser.discovery import Listening, ask_devices, find_listening, trust
from tapml.platforms.webgpu.browser.frames import Header, header_of, pack, parts_of
from tapml.platforms.webgpu.browser.pages import describe_adapter
from tapml.platforms.webgpu.limits import limits_of

if TYPE_CHECKING:  # they import TVM, which takes seconds, and listing devices does not need it
    from tapml.kernels.plan import Plan, Step
    from tapml.kernels.runner import Input, Ran

REMOTE = "webgpu:remote/"
_SCALARS = {"int32", "uint32", "float32", "bool"}
_OPEN_SECONDS = 15.0
_MOST_BLOCKS = 65_535
"""Blocks along x from which on the page folds a grid: ``MAX_BLOCKS`` in page/gpu.js."""


class BrowserRunner:
    """A page, by the name that the hub at ``url`` knows it by; a :class:`tapml.kernels.runner.Runner`.

    ``timeout``: seconds for each request, from when the page gets it.  ``adapter``, ``features``, ``limits``: of the page's
    WebGPU device; ``agent``: its browser.  ``uploaded``: bytes of inputs that were sent so far.  Threads may share it.
    Raises :class:`DeviceError` when there is no hub or no such page.
    """

    def __init__(self, url: str, name: str, *, timeout: float = 60.0, cert: str = "") -> None:
        from websockets.exceptions import InvalidHandshake
        from websockets.sync.client import connect

        self.timeout = timeout
        self.uploaded = 0
        self._turn = threading.Lock()
        self._numbers = itertools.count(1)
        self._sent: set[str] = set()
        self._open = ExitStack()
        parts = urlsplit(url)
        scheme = "wss" if parts.scheme == "https" else "ws"
        address = f"{scheme}://{parts.netloc}/client?{parts.query}&device={quote(name)}"
        context = trust(cert) if scheme == "wss" else None
        self._where = f"{parts.scheme}://{parts.netloc}"
        try:
            self._socket = self._open.enter_context(
                connect(address, ssl=context, max_size=None, compression=None, open_timeout=_OPEN_SECONDS, proxy=None)
            )
        except (OSError, InvalidHandshake) as error:
            words = f"expected a hub at {self._where}, found none: {error}"
            raise DeviceError(words, hint="start it with `tapml devices --listen`") from error
        welcome, _ = self._receive()
        if not welcome["ok"]:
            self.close()
            raise DeviceError(welcome["message"], hint=welcome["hint"])
        self._client: str = welcome["client"]
        self.name: str = welcome["name"]
        self.agent: str = welcome["agent"]
        self.adapter: dict[str, Any] = welcome["adapter"]
        self.features: tuple[str, ...] = tuple(welcome["features"])
        self.limits: dict[str, int] = welcome["limits"]

    def load(self, plan: Plan, files: Mapping[str, bytes]) -> BrowserPlan:
        """Compile a plan's WGSL in the page.

        Raises :class:`CompileError` with the browser's words and the line, :class:`UnsupportedError` when the plan is beyond
        the device's limits, :class:`DeviceError` when the page fails, goes, or takes longer than the time-out.
        """
        self._check(plan)
        loaded = BrowserPlan(self, plan, files, f"{self._client}{next(self._numbers)}")
        loaded.send()
        return loaded

    def close(self) -> None:
        """Close the connection; the page frees what it has of this client."""
        self._open.close()

    def ask(self, header: Header, parts: list[NDArray[numpy.uint8]]) -> tuple[Header, list[NDArray[numpy.uint8]]]:
        """Send a request and wait for the reply; its header has ``ok``, or else ``kind`` and ``message``."""
        from websockets.exceptions import ConnectionClosed

        with self._turn:
            header = {**header, "request": f"{self._client}{next(self._numbers)}", "timeout": self.timeout}
            try:
                self._socket.send(pack(header, parts))
            except ConnectionClosed as error:
                raise self._lost() from error
            self.uploaded += sum(p.nbytes for p in parts)
            return self._receive()

    def _receive(self) -> tuple[Header, list[NDArray[numpy.uint8]]]:
        from websockets.exceptions import ConnectionClosed

        try:  # the hub keeps the time, since requests of others may come first; that it lives, pings say
            frame = self._socket.recv()
        except ConnectionClosed as error:
            raise self._lost() from error
        assert isinstance(frame, bytes)
        header = header_of(frame)
        return header, parts_of(frame, header)

    def _lost(self) -> DeviceError:
        return DeviceError(
            f"the hub at {self._where} has gone",
            hint="start it again with `tapml devices --listen`, then run this again",
        )

    def _check(self, plan: Plan) -> None:
        limits = limits_of(self.limits, iterations=loop_iterations(" ".join(map(str, self.adapter.values()))))
        _, y, z = limits.blocks
        as_launched = replace(plan, steps=tuple(_folded(step) for step in plan.steps))
        check(as_launched, replace(limits, blocks=(_MOST_BLOCKS, y, z)), self.name)
        for kernel in plan.kernels.values():
            if not set(kernel.scalars) <= _SCALARS:
                raise UnsupportedError(f"expected scalars of 32 bits, found {kernel.scalars} in {kernel.name}")

    def keeps(self, key: str) -> bool:
        """Whether the bytes of this name were sent, so that the page may have them."""
        return key in self._sent

    def sent(self, key: str) -> None:
        """Note that the bytes of this name were sent."""
        self._sent.add(key)

    def prefixed(self, key: str) -> str:
        """The name by which the page keeps an input: names of other clients are other names."""
        return f"{self._client}{key}" if key else ""


def _folded(step: Step) -> Step:
    """The step with the grid that the page launches: blocks along x beyond the limit go to z, where there are none."""
    x, y, z = step.grid
    while x > _MOST_BLOCKS and step.grid[2] == 1:
        x, z = -(-x // 2), z * 2
    return replace(step, grid=(x, y, z))


class BrowserPlan:
    """A plan in a page; a :class:`tapml.kernels.runner.LoadedPlan`.

    A page that was reloaded or lost its device has lost all plans and inputs: they are sent again.
    """

    def __init__(self, runner: BrowserRunner, plan: Plan, files: Mapping[str, bytes], name: str) -> None:
        self._runner, self._plan, self._name = runner, plan, name
        self._files = {k.file: files[k.file].decode() for k in plan.kernels.values()}

    def send(self) -> None:
        """Compile the kernels in the page.  Raises what :meth:`BrowserRunner.load` raises."""
        data = {**self._plan.to_json(), "sizes": [b.nbytes for b in self._plan.buffers]}
        doing = f"compiling {', '.join(self._plan.kernels)}"
        header, _ = self._runner.ask(
            {"type": "load", "id": self._name, "plan": data, "files": self._files, "doing": doing}, []
        )
        if not header["ok"]:
            raise _error(header)

    def run(self, inputs: Mapping[int, Input]) -> Ran:
        """See :meth:`tapml.kernels.runner.LoadedPlan.run`."""
        from tapml.kernels.runner import Ran

        for index in self._plan.parameters:
            expected, found = self._plan.buffers[index].nbytes, inputs[index].data.nbytes
            if found != expected:
                raise DeviceError(f"expected {expected} bytes for buffer {index}, found {found}")
        always: set[int] = set()
        loads = 0
        while True:
            header, parts = self._ask(inputs, always)
            if header["ok"]:
                outputs = dict(zip(header["outputs"], parts, strict=True))
                return Ran(outputs, header["launches"], header["seconds"])
            if header["kind"] != "missing" or loads > 1:
                raise _error(header)
            if header["more"].get("plan"):
                loads += 1
                self.send()
            else:
                lacking = set(header["more"]["inputs"])
                if lacking <= always:
                    raise _error(header)
                always |= lacking

    def _ask(self, inputs: Mapping[int, Input], always: set[int]) -> tuple[Header, list[NDArray[numpy.uint8]]]:
        """Run, sending those inputs that the page cannot have, and ``always``."""
        named: list[list[int | str | None]] = []
        parts: list[NDArray[numpy.uint8]] = []
        for index in self._plan.parameters:
            key = inputs[index].key
            if key and index not in always and self._runner.keeps(key):
                named.append([index, self._runner.prefixed(key), None])
            else:
                named.append([index, self._runner.prefixed(key), len(parts)])
                parts.append(inputs[index].data)
        doing = ", ".join(dict.fromkeys(s.kernel for s in self._plan.steps))
        header, outputs = self._runner.ask({"type": "run", "id": self._name, "inputs": named, "doing": doing}, parts)
        if header["ok"]:
            for index in self._plan.parameters:
                self._runner.sent(inputs[index].key)
        return header, outputs


def remote_devices() -> tuple[DeviceInfo, ...]:
    """The pages that are open at the hub of ``tapml devices --listen``, or at ``$TAPML_LISTEN``.

    Empty when nothing listens.  Raises :class:`DeviceError` when nothing answers at ``$TAPML_LISTEN``.
    """
    listening = find_listening()
    return () if listening is None else tuple(_info(about) for about in ask_devices(listening))


def open_remote(name: str, *, timeout: float = 60.0) -> BrowserRunner:
    """Open a page by its name (``phone``), or its device's (``webgpu:remote/phone``).

    Raises :class:`DeviceError` when nothing listens, or no such page is open.
    """
    listening: Listening | None = find_listening()
    if listening is None:
        raise DeviceError(
            f"expected a hub with the page {name}, found none", hint="start it with `tapml devices --listen`"
        )
    return BrowserRunner(listening.url, name.removeprefix(REMOTE), timeout=timeout, cert=listening.cert)


def _info(about: Header) -> DeviceInfo:
    details = {
        "features": ", ".join(about["features"]) or "none",
        "storage buffers": str(about["limits"].get("maxStorageBuffersPerShaderStage", "")),
        "largest buffer": f"{about['limits'].get('maxStorageBufferBindingSize', 0) >> 20} MiB",
    }
    return DeviceInfo(f"{REMOTE}{about['name']}", describe_adapter(about), aside=True, details=details)


def _error(header: Header) -> CompileError | DeviceError:
    if header["kind"] == "compile":
        return CompileError(header["message"])
    return DeviceError(header["message"], hint=header.get("hint", ""))
