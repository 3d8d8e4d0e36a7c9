"""How other processes find the hub of ``tapml devices --listen``: a file in the user's runtime directory."""

from __future__ import annotations

import json
import os
import ssl
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.parse import urlsplit
from urllib.request import HTTPSHandler, ProxyHandler, build_opener

import platformdirs

from tapml.errors import DeviceError, UsageError
from tapml.lock import is_alive

VARIABLE = "TAPML_LISTEN"
"""Environment variable: the URL of a hub, with its token, in place of the file."""
_SECONDS = 3.0


@dataclass(frozen=True)
class Listening:
    """A hub.  ``url``: of its page, with the token; ``cert``: the file of its TLS certificate, if it has one."""

    url: str
    pid: int = 0
    cert: str = ""


def listen_file() -> Path:
    """Where the hub of this user is announced; in the cache directory where the system has none for running programs."""
    has_own = "XDG_RUNTIME_DIR" in os.environ or not sys.platform.startswith("linux")
    return Path((platformdirs.user_runtime_path if has_own else platformdirs.user_cache_path)("tapml"), "listen.json")


@contextmanager
def announced(listening: Listening) -> Iterator[None]:
    """Announce a hub for the time of the block, in a file that this user alone can read.

    Raises :class:`UsageError` when another hub is announced already.
    """
    other = _announced()
    if other is not None:
        raise UsageError(
            f"process {other.pid} listens already: {other.url}", hint="open that in a browser, or end it first"
        )
    path = listen_file()
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    new = path.with_suffix(f".{os.getpid()}")
    with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        json.dump(asdict(listening), file)
    os.replace(new, path)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)


def find_listening() -> Listening | None:
    """The hub of ``$TAPML_LISTEN``, else the announced one."""
    url = os.environ.get(VARIABLE)
    return Listening(url) if url else _announced()


def _announced() -> Listening | None:
    path = listen_file()
    try:
        if path.stat().st_uid != os.geteuid():  # another's, in a directory that all can write to
            return None
        found = Listening(**json.loads(path.read_text()))
    except FileNotFoundError:
        return None
    except (ValueError, TypeError):
        path.unlink(missing_ok=True)  # not written by us
        return None
    if not is_alive(found.pid):
        path.unlink(missing_ok=True)  # its process was killed
        return None
    return found


def ask_devices(listening: Listening) -> list[dict[str, Any]]:
    """What the hub's pages say of themselves.

    A hub that does not answer has none, unless it was named by the user: then :class:`DeviceError`.
    """
    parts = urlsplit(listening.url)
    address = f"{parts.scheme}://{parts.netloc}/devices?{parts.query}"
    handlers: list[Any] = [ProxyHandler({})]
    if parts.scheme == "https":
        handlers.append(HTTPSHandler(context=trust(listening.cert)))
    try:
        with build_opener(*handlers).open(address, timeout=_SECONDS) as answer:
            devices: list[dict[str, Any]] = json.load(answer)
            return devices
    except (URLError, OSError, ValueError) as error:
        if listening.pid and isinstance(getattr(error, "reason", error), ConnectionRefusedError):
            listen_file().unlink(missing_ok=True)  # its process number is another's now
            return []
        where = f"${VARIABLE}" if not listening.pid else str(listen_file())
        raise DeviceError(
            f"expected a hub at {parts.scheme}://{parts.netloc} ({where}), found {error}",
            hint=f"start it with `tapml devices --listen`, or unset {VARIABLE}",
        ) from error


def trust(cert: str) -> ssl.SSLContext:
    """TLS that trusts the hub's own certificate, whatever name it is for: the hub is asked by its address."""
    context = ssl.create_default_context(cafile=cert or None)
    context.check_hostname = not cert
    return context
