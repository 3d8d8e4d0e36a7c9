"""Whether a compiler of the target's language takes a source, on a machine that cannot execute it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Compiles:
    """``by``: the compiler and its version.  ``message``: its words when it refused, or why nothing was checked."""

    status: Literal["compiles", "refused", "not checked"]
    by: str = ""
    message: str = ""
