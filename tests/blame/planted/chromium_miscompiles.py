"""One device whose compiler takes a difference for a sum: the browser's.  For one process only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tapml.kernels.plan import Plan
from tapml.platforms.webgpu.browser.client import BrowserRunner

_load = BrowserRunner.load


def load(self: Any, plan: Plan, files: Mapping[str, bytes]) -> Any:
    return _load(self, plan, {name: text.replace(b" - ", b" + ") for name, text in files.items()})


BrowserRunner.load = load  # type: ignore[method-assign]
