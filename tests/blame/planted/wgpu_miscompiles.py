"""One device whose compiler reads another number than is written: wgpu's first adapter.  For one process only."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from tapml.kernels.plan import Plan
from tapml.platforms.webgpu.native import WgpuRunner

_load = WgpuRunner.load


def load(self: Any, plan: Plan, files: Mapping[str, bytes]) -> Any:
    if self.info.name == "webgpu:native":
        files = {name: re.sub(rb"\) \* \(", rb") + (", text) for name, text in files.items()}
    return _load(self, plan, files)


WgpuRunner.load = load  # type: ignore[method-assign]
