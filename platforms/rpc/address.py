"""URLs of devices: ``rpc://host:port/key?triple=aarch64-linux-gnu&mcpu=cortex-a76``."""

from __future__ import annotations

from dataclasses import dataclass, field
from urllib.parse import parse_qsl, unquote, urlsplit

from tapml.errors import UsageError

SCHEME = "rpc"
_PROCESSOR = {"triple": "mtriple", "mcpu": "mcpu", "mattr": "mattr"}
"""What a URL may say of the processor, and what TVM calls it."""
_FORM = "rpc://HOST:PORT/KEY, with ?triple=...&mcpu=...&mattr=... where the server cannot say what processor it has"


@dataclass(frozen=True)
class Address:
    """A server, or a tracker that knows servers by ``key``.  ``processor``: what the URL says of it, in TVM's words."""

    host: str
    port: int
    key: str
    processor: dict[str, str] = field(default_factory=dict, compare=False)

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{SCHEME}://{host}:{self.port}/{self.key}"


def parse(url: str) -> Address:
    """The address that a URL gives.  Raises :class:`UsageError` that shows how one is written."""

    def wrong(what: str) -> UsageError:
        return UsageError(f"expected {what} in the URL of a device, found {url!r}", hint=f"--device {_FORM}")

    parts = urlsplit(url)
    try:
        host, port = parts.hostname, parts.port
    except ValueError:
        raise wrong("a port between 0 and 65535") from None
    if not host or not port or parts.username is not None:
        raise wrong("a host and a port")
    if parts.fragment or "/" in parts.path[1:]:
        raise wrong("one key, and nothing after it")
    said = parse_qsl(parts.query, keep_blank_values=True)
    for name, value in said:
        if name not in _PROCESSOR or not value:
            raise wrong(f"values for {', '.join(_PROCESSOR)} only (not for {name!r})")
    given = {_PROCESSOR[name]: value for name, value in said}
    if given and "mtriple" not in given:
        raise wrong("a triple, as there is more about the processor")
    return Address(host, port, unquote(parts.path[1:]), given)
