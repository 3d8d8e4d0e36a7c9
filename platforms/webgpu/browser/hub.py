"""The hub: serves the page, and hands requests of clients to the pages that are open.

It listens on the loopback interface unless told otherwise, and everything needs the token of its URL.  A page is one device
with a name.  A page executes one request at a time; clients queue.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import ssl
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.exceptions import ConnectionClosed

from tapml.errors import DeviceError
from tapml.platforms.webgpu.browser.frames import Header, header_of, pack
from tapml.platforms.webgpu.browser.pages import REASONS, REPLACED, STUCK, USELESS, Page, describe_adapter, plain
from tapml.platforms.webgpu.browser.site import Site

RETURN_SECONDS = 10.0
"""How long a request waits for a page that has gone to come back (a reload takes two)."""
_HELLO_SECONDS = 10.0
_NO_ANSWER = "its GPU does not answer, as when a kernel never ends"
_RESTART = "close the browser with all its windows, and start it again"


class Stuck(DeviceError):
    """A page did not answer in time."""


class Hub:
    """A server in a thread of its own, from :meth:`start` to :meth:`stop`.

    ``on_event`` hears, in the server's thread, what comes and goes, as a line of text.  ``cert`` and ``key``: files for TLS.
    """

    def __init__(
        self,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        cert: str | None = None,
        key: str | None = None,
        on_event: Callable[[str], None] = lambda line: None,
    ) -> None:
        self._address = (host, port)
        self._tls: ssl.SSLContext | None = None
        if cert is not None:
            self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self._tls.load_cert_chain(cert, key)
        self._on_event = on_event
        self._site = Site(lambda: [page.describe() for page in self.pages()])
        self._pages: dict[str, Page] = {}
        self._changed = asyncio.Condition()
        self._closing: set[asyncio.Future[None]] = set()
        self._opening: dict[ServerConnection, str] = {}
        self._problems: dict[str, str] = {}
        self._numbers = itertools.count(1)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="webgpu-hub", daemon=True)
        self._server: Server | None = None

    @property
    def token(self) -> str:
        return self._site.token

    @property
    def port(self) -> int:
        """The port it listens on."""
        assert self._server is not None
        return int(next(iter(self._server.sockets)).getsockname()[1])

    def url(self, host: str = "127.0.0.1") -> str:
        """The page's URL, for those who reach this machine as ``host``."""
        scheme = "https" if self._tls else "http"
        return f"{scheme}://{f'[{host}]' if ':' in host else host}:{self.port}/?token={self.token}"

    def start(self) -> None:
        """Listen.  Raises :class:`DeviceError` when the address is taken or not ours."""
        self._thread.start()
        try:
            self._call(self._listen()).result()
        except OSError as error:
            self.stop()
            host, port = self._address
            raise DeviceError(
                f"cannot listen on {host}:{port}: {error.strerror}", hint="choose another --port"
            ) from error

    def stop(self) -> None:
        """Close all connections and the thread."""
        if not self._thread.is_alive():
            return
        self._call(self._shut()).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def pages(self) -> tuple[Page, ...]:
        """The pages that are open now."""
        return tuple(self._pages.values())

    def wait_for_page(self, name: str, seconds: float) -> bool:
        """Whether a page of this name is here within so many seconds.

        Raises :class:`DeviceError`, in the page's words, when one came that has no WebGPU.
        """
        return self._call(self._wait(name, seconds)).result() is not None

    def expel(self, name: str, why: str) -> None:
        """Forget a page whose end is certain, though its connection may not be closed yet."""
        page = self._pages.get(name)
        if page is not None:
            self._loop.call_soon_threadsafe(self._leave, page, why)

    def _call(self, work: Any) -> Future[Any]:
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    async def _listen(self) -> None:
        host, port = self._address
        self._server = await serve(
            self._serve,
            host,
            port,
            process_request=self._site.answer,
            ssl=self._tls,
            max_size=None,  # tensors
            compression=None,
            ping_timeout=60,  # behind a large tensor, on a slow network
            close_timeout=2,
            logger=_logger(self._on_event),
        )

    async def _shut(self) -> None:
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()

    async def _serve(self, socket: ServerConnection) -> None:
        assert socket.request is not None
        path, query = self._site.parse(socket.request.path)
        try:
            if path == "/page":
                await self._serve_page(socket)
            else:
                await self._serve_client(socket, query.get("device", ""))
        except ConnectionClosed:
            return  # pages and clients may go at any time: what was asked of them has been answered

    async def _serve_page(self, socket: ServerConnection) -> None:
        opening = header_of(_binary(await asyncio.wait_for(socket.recv(), _HELLO_SECONDS)))
        self._opening[socket] = plain(opening["name"])
        try:
            hello = await self._hear_hello(socket, opening)
        finally:
            del self._opening[socket]
        if hello["problem"]:
            self._on_event(f"a page without a device ({hello['agent']}): {hello['problem']}")
            async with self._changed:
                self._problems[plain(hello["name"])] = hello["problem"]
                self._changed.notify_all()
            await socket.close(USELESS, "no WebGPU here")
            return
        page = await self._admit(socket, hello)
        try:
            await socket.send(pack({"type": "welcome", "name": page.name}))
            async for frame in socket:
                future = page.waiting.pop(str(header_of(_binary(frame)).get("request")), None)
                if future is not None and not future.done():
                    future.set_result(_binary(frame))
        finally:
            self._leave(page, REASONS.get(socket.close_code or 1006, f"code {socket.close_code}"))

    async def _hear_hello(self, socket: ServerConnection, opening: Header) -> Header:
        try:
            return header_of(_binary(await asyncio.wait_for(socket.recv(), _HELLO_SECONDS)))
        except asyncio.TimeoutError:
            self._on_event(f"{plain(opening['name'])} is here without a device: {_NO_ANSWER} ({_RESTART})")
            return header_of(_binary(await socket.recv()))

    async def _admit(self, socket: ServerConnection, hello: Header) -> Page:
        wanted = plain(hello["name"])
        for old in self.pages():
            if old.about["tab"] == hello["tab"]:  # a reload whose old connection is not closed yet
                wanted = old.name
                self._leave(old, REASONS[REPLACED])
                self._close(old.socket, REPLACED, "another tab took over: reload to take it back")
        name = next(n for i in itertools.count(1) if (n := wanted if i == 1 else f"{wanted}-{i}") not in self._pages)
        page = Page(name, hello, socket)
        async with self._changed:
            self._pages[name] = page
            self._changed.notify_all()
        self._on_event(f"{name} is here: {describe_adapter(hello)}")
        return page

    def _close(self, socket: ServerConnection, code: int, why: str) -> None:
        """Close a connection without waiting for the other side, which may not answer."""
        closing = asyncio.ensure_future(socket.close(code, why))
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)

    def _leave(self, page: Page, why: str) -> None:
        if page.gone:
            return
        page.gone = why
        if self._pages.get(page.name) is page:
            del self._pages[page.name]
        for future in page.waiting.values():
            if not future.done():
                future.set_exception(DeviceError(f"the browser page {page.name} has gone: {why}"))
        page.waiting.clear()
        self._on_event(f"{page.name} has gone: {why}")

    async def _wait(self, name: str, seconds: float) -> Page | None:
        async with self._changed:
            try:
                known = self._changed.wait_for(lambda: name in self._pages or name in self._problems)
                await asyncio.wait_for(known, seconds)
            except asyncio.TimeoutError:
                return None
            problem = self._problems.pop(name, "")
            if name not in self._pages:
                raise DeviceError(f"the browser page {name} has no WebGPU device: {problem}")
            return self._pages[name]

    async def _find(self, name: str) -> Page:
        """The page of this name, once it is here."""
        page = await self._wait(name, RETURN_SECONDS)
        if page is None and name in self._opening.values():
            raise DeviceError(f"the browser page {name} is open, but {_NO_ANSWER}", hint=_RESTART)
        if page is None:
            here = ", ".join(self._pages) or "none"
            raise DeviceError(
                f"the browser page {name} has gone, and was not back in {RETURN_SECONDS:.0f} s (open pages: {here})",
                hint="open it again; `tapml devices --listen` prints its address",
            )
        return page

    async def _serve_client(self, socket: ServerConnection, name: str) -> None:
        client = f"c{next(self._numbers)}/"
        try:
            page = await self._find(name)
        except DeviceError as error:
            await socket.send(pack(_failure(error)))
            return
        await socket.send(pack({"ok": True, "client": client, **page.describe()}))
        await self._count_clients(name, 1)
        try:
            async for frame in socket:
                try:
                    reply = await self._ask(name, _binary(frame))
                except DeviceError as error:
                    reply = pack(_failure(error))
                await socket.send(reply)
        finally:
            await self._count_clients(name, -1)
            if name in self._pages:
                await self._tell(self._pages[name], {"type": "forget", "prefix": client})

    async def _count_clients(self, name: str, change: int) -> None:
        page = self._pages.get(name)
        if page is not None:
            page.clients = max(0, page.clients + change)
            await self._tell(page, {"type": "clients", "count": page.clients})

    async def _tell(self, page: Page, header: Header) -> None:
        try:
            await page.socket.send(pack(header))
        except ConnectionClosed:
            self._leave(page, REASONS.get(page.socket.close_code or 1006, "the connection broke off"))

    async def _ask(self, name: str, frame: bytes) -> bytes:
        """Hand a request to the page of this name, in its turn; the page's reply."""
        header = header_of(frame)
        request, seconds = str(header["request"]), float(header["timeout"])
        while True:
            page = await self._find(name)
            async with page.turn:
                if page.gone:
                    continue  # while others had their turn
                return await self._ask_now(page, request, seconds, header, frame)

    async def _ask_now(self, page: Page, request: str, seconds: float, header: Header, frame: bytes) -> bytes:
        reply: asyncio.Future[bytes] = self._loop.create_future()
        page.waiting[request] = reply
        page.doing = str(header.get("doing", ""))
        try:
            await self._tell_frame(page, frame)
            answer = await asyncio.wait_for(reply, seconds)
        except asyncio.TimeoutError:
            self._leave(page, REASONS[STUCK])
            self._close(page.socket, STUCK, "a request took too long")
            words = f"{page.name} did not answer in {seconds:.0f} s; its device is opened anew"
            raise Stuck(words, hint="a kernel that never ends, or a device that is too slow") from None
        finally:
            page.doing = ""
        if header["type"] == "run" and header_of(answer).get("ok"):
            page.runs += 1
            page.launches += int(header_of(answer)["launches"])
        return answer

    async def _tell_frame(self, page: Page, frame: bytes) -> None:
        try:
            await page.socket.send(frame)
        except ConnectionClosed:
            self._leave(page, REASONS.get(page.socket.close_code or 1006, "the connection broke off"))


class _Lines(logging.Handler):
    """Passes what the library logs on, as lines."""

    def __init__(self, on_event: Callable[[str], None]) -> None:
        super().__init__(logging.WARNING)
        self._on_event = on_event

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        self._on_event(f"{record.getMessage()}{f': {error}' if error else ''}")


def _logger(on_event: Callable[[str], None]) -> logging.Logger:
    logger = logging.Logger("tapml.webgpu.hub")
    logger.addHandler(_Lines(on_event))
    return logger


def _binary(message: str | bytes) -> bytes:
    if isinstance(message, str):
        raise ValueError("expected a binary message, found text")
    return message


def _failure(error: DeviceError) -> Header:
    kind = "timeout" if isinstance(error, Stuck) else "device"
    return {"ok": False, "kind": kind, "message": error.message, "hint": error.hint}
