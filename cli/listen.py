"""``tapml devices --listen``: the hub in the foreground, and what its pages do."""

from __future__ import annotations

import importlib
import io
import ipaddress
import os
import queue
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import click

from tapml.errors import TapmlError, UsageError

_REFRESH_SECONDS = 0.25
_BROWSER = "tapml.platforms.webgpu.browser"
_LOOPBACK = "127.0.0.1"


def listen(host: str, port: int, cert: str | None, key: str | None) -> None:
    """Serve until interrupted.  Raises :class:`TapmlError` when a package is missing, or the address is taken."""
    if key is not None and cert is None:
        raise UsageError("--key needs --cert", hint="give both, or neither")
    hub_module, discovery, segno = (_load(name) for name in (f"{_BROWSER}.hub", f"{_BROWSER}.discovery", "segno"))
    events: queue.SimpleQueue[str] = queue.SimpleQueue()
    hub = hub_module.Hub(host=host, port=port, cert=cert, key=key, on_event=events.put)
    hub.start()
    try:
        reach = _reachable(host)
        own = _LOOPBACK if host in ("0.0.0.0", "::") else host
        certificate = str(Path(cert).resolve()) if cert else ""
        with discovery.announced(discovery.Listening(hub.url(own), os.getpid(), certificate)):
            _introduce(hub.url(reach), reach, hub.port, segno, secure=cert is not None)
            try:
                _watch(hub, events)
            except KeyboardInterrupt as stop:
                stop.hint = "listening again gives a new address: pages have to be opened anew"  # type: ignore[attr-defined]
                raise
    finally:
        hub.stop()


def _load(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise TapmlError(
            f"`tapml devices --listen` needs a package that is not installed: {error}",
            hint="pip install 'tapml[webgpu-browser]'",
        ) from error


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _reachable(host: str) -> str:
    """The address by which others reach this machine, when it listens on all of them."""
    if host not in ("0.0.0.0", "::"):
        return host
    import socket

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing: it asks for the route
            return str(probe.getsockname()[0])
        except OSError:
            return socket.gethostname()


def _introduce(url: str, host: str, port: int, segno: Any, *, secure: bool) -> None:
    click.echo(f"listening on {url}")
    click.echo("Open it in a browser with WebGPU; the page shows the device's name. Ctrl-C ends it.\n")
    _draw(segno.make(url, error="l"))
    if _is_loopback(host):
        click.echo("From another machine or a phone, WebGPU wants https or localhost. Bring the port there:")
        click.echo(f"  ssh -L {port}:127.0.0.1:{port} THIS_MACHINE    on the machine with the browser")
        click.echo(f"  adb reverse tcp:{port} tcp:{port}    here, with an Android phone on USB")
        click.echo("then open the same address.\n")
        return
    click.echo(
        "warning: whoever has this address can use the devices of all who open it; share it with care.", err=True
    )
    if not secure:
        click.echo(
            "warning: browsers offer WebGPU only over https or on localhost, so other machines cannot use this address as "
            "it is: give --cert and --key, or leave out --host and use ssh -L or adb reverse.",
            err=True,
        )


def _draw(code: Any) -> None:
    drawing = io.StringIO()
    code.terminal(out=drawing, compact=True, border=2)
    try:
        click.echo(drawing.getvalue())
    except UnicodeEncodeError:
        click.echo("(the QR code of this address needs a terminal with UTF-8)\n")


def _watch(hub: Any, events: queue.SimpleQueue[str]) -> None:
    """Print what comes and goes, until interrupted; on a terminal, a table of what is here below it."""
    from rich.console import Console
    from rich.live import Live
    from rich.markup import escape

    console = Console(highlight=False)
    live = Live(console=console, refresh_per_second=1 / _REFRESH_SECONDS, get_renderable=lambda: _table(hub))
    with live if console.is_terminal else nullcontext():
        while True:
            try:
                line = events.get(timeout=_REFRESH_SECONDS)
            except queue.Empty:
                continue
            console.print(f"{time.strftime('%H:%M:%S')}  {escape(line)}", soft_wrap=True)


def _table(hub: Any) -> Any:
    from rich.markup import escape
    from rich.table import Table

    pages = hub.pages()
    if not pages:
        return "no page is open"
    table = Table()
    table.add_column("device")
    for name in ("clients", "runs", "launches"):
        table.add_column(name, justify="right")
    table.add_column("now", no_wrap=True, overflow="ellipsis")
    for page in pages:
        figures = (f"{n:,}" for n in (page.clients, page.runs, page.launches))
        table.add_row(f"webgpu:remote/{page.name}", *figures, escape(page.doing) or "idle")
    return table
