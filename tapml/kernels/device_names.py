"""Names of devices: short ones from a driver's, and numbers for those that are called the same."""

from __future__ import annotations

import re
from collections.abc import Iterable


def slug(name: str) -> str:
    """``NVIDIA GeForce RTX 4090`` -> ``nvidia-geforce-rtx-4090``; what follows a bracket is left out."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower().split("(")[0]).strip("-") or "device"


def numbered(name: str, taken: Iterable[str]) -> str:
    """The name, or ``name#2`` and so on for a device that comes after others of that name."""
    same = sum(other.split("#")[0] == name for other in taken)
    return f"{name}#{same + 1}" if same else name
