"""What the hub answers by HTTP: the page, its scripts, the list of devices; and the token that all of it needs."""

from __future__ import annotations

import hmac
import json
import secrets
from collections.abc import Callable
from http import HTTPStatus
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

from websockets.asyncio.server import ServerConnection
from websockets.datastructures import Headers
from websockets.http11 import Request, Response

from tapml.platforms.webgpu.browser.frames import Header

_FOLDER = Path(__file__).parent / "page"
_FILES = {
    "/": ("index.html", "text/html"),
    "/device.js": ("device.js", "text/javascript"),
    "/gpu.js": ("gpu.js", "text/javascript"),
    "/view.js": ("view.js", "text/javascript"),
    "/style.css": ("style.css", "text/css"),
}
_SOCKETS = ("/page", "/client")
_POLICY = "default-src 'none'; script-src 'self'; style-src 'self'; img-src data:; connect-src 'self'; base-uri 'none'"


class Site:
    """Files of the page by path.  ``devices``: what ``/devices`` lists."""

    def __init__(self, devices: Callable[[], list[Header]]) -> None:
        self.token = secrets.token_urlsafe(24)
        self._devices = devices

    def parse(self, target: str) -> tuple[str, dict[str, str]]:
        """The path and the query of a request's target."""
        url = urlsplit(target)
        return url.path, dict(parse_qsl(url.query))

    def answer(self, connection: ServerConnection, request: Request) -> Response | None:
        """The answer to a request by HTTP; ``None`` for a web socket that may be opened."""
        path, query = self.parse(request.path)
        if not hmac.compare_digest(query.get("token", "").encode(), self.token.encode()):
            return _respond(HTTPStatus.FORBIDDEN, "This address needs its token: open it as tapml printed it.\n")
        if path in _SOCKETS:
            return None
        if path == "/devices":
            return _respond(HTTPStatus.OK, json.dumps(self._devices()), "application/json")
        if path not in _FILES:
            return _respond(HTTPStatus.NOT_FOUND, "There is nothing here.\n")
        name, kind = _FILES[path]
        text = (_FOLDER / name).read_text("utf-8").replace("$TOKEN", self.token)
        return _respond(HTTPStatus.OK, text, kind)


def _respond(status: HTTPStatus, text: str, kind: str = "text/plain") -> Response:
    body = text.encode()
    headers = Headers(
        {
            "Content-Type": f"{kind}; charset=utf-8",
            "Content-Length": str(len(body)),
            "Cache-Control": "no-store",
            "Connection": "close",
            "Content-Security-Policy": _POLICY,
            "Referrer-Policy": "no-referrer",
            "X-Content-Type-Options": "nosniff",
        }
    )
    return Response(status.value, status.phrase, headers, body)
