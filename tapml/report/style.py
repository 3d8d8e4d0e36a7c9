"""How figures and statuses are written, everywhere the same."""

from __future__ import annotations

from collections.abc import Iterable

COLOURS = {
    "migrated": "green",
    "passed": "green",
    "failed": "red",
    "rolled back": "red",
    "crashed": "magenta",
    "timed out": "magenta",
    "unsupported": "yellow",
    "skipped": "yellow",
}
"""Colour of each status; every status is also written out."""

STATUS_ORDER = ("migrated", "passed", "rolled back", "failed", "unsupported", "crashed", "timed out", "skipped")


def human_bytes(count: float) -> str:
    """``1536`` -> ``1.5 kB`` (powers of 1000, three digits)."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" or count >= 100 else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


def human_seconds(seconds: float) -> str:
    """``0.0000032`` -> ``3.2 us``, ``0.0032`` -> ``3.2 ms``, ``75`` -> ``1 min 15 s``."""
    if seconds < 1e-3:
        return f"{seconds * 1e6:.0f} us"
    if seconds < 1:
        return f"{seconds * 1000:.1f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    return f"{int(seconds // 60)} min {int(seconds % 60)} s"


def coloured(status: str) -> str:
    """A status with its colour, as rich markup."""
    return f"[{COLOURS.get(status, 'white')}]{status}[/]"


def in_order(statuses: Iterable[str]) -> list[str]:
    """Distinct statuses in the order in which they are shown, unknown ones last."""
    found = list(dict.fromkeys(statuses))
    return [s for s in STATUS_ORDER if s in found] + [s for s in found if s not in STATUS_ORDER]


def counted(counts: dict[str, int]) -> str:
    """``{"migrated": 174, "failed": 2}`` -> ``174 migrated, 2 failed`` with colours."""
    return ", ".join(f"{counts[s]} {coloured(s)}" for s in in_order(counts)) or "none"
