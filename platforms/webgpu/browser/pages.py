"""A page as the hub sees it, and how it is called."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tapml.platforms.webgpu.browser.frames import Header

if TYPE_CHECKING:
    from websockets.asyncio.server import ServerConnection

REPLACED, USELESS, STUCK = 4001, 4002, 4003
"""Codes with which a page is told why its connection ends; device.js knows them."""
REASONS = {
    1000: "it was closed",
    1001: "its tab was closed or reloaded",
    1006: "the connection broke off",
    1011: "it did not answer any more",
    REPLACED: "it was opened again",
    STUCK: "a request took too long",
}


@dataclass(eq=False)
class Page:
    """A page that is open.  ``about``: what it said of its browser and adapter; ``doing``: what it executes at the moment."""

    name: str
    about: Header
    socket: ServerConnection
    doing: str = ""
    runs: int = 0
    launches: int = 0
    clients: int = 0
    gone: str = ""
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    waiting: dict[str, asyncio.Future[bytes]] = field(default_factory=dict)

    def describe(self) -> Header:
        """What others get to know of it."""
        keys = ("adapter", "features", "limits", "agent", "browser")
        return {"name": self.name, "doing": self.doing, **{k: self.about.get(k) for k in keys}}


def describe_adapter(about: Header) -> str:
    """``google swiftshader (software), Chromium-156 on Linux``."""
    adapter = about["adapter"]
    words = [str(adapter.get(k, "")) for k in ("vendor", "architecture", "device", "description")]
    chip = " ".join(dict.fromkeys(w for w in words if w)) or "an adapter that does not say its name"
    return f"{chip}{' (software)' if adapter.get('software') else ''}, {about['browser']}"


def plain(name: str) -> str:
    """A name for command lines: lower case letters, digits, hyphens."""
    words = "".join(c if c.isascii() and c.isalnum() else "-" for c in str(name).lower())
    return "-".join(part for part in words.split("-") if part)[:60] or "browser"
