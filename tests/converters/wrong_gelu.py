"""GELU without its second factor of one half: wrong on every case."""

from __future__ import annotations

from typing import Any

from tvm import tirx

import tapml


@tapml.converter("aten.gelu.default")
def gelu(ctx: Any, x: Any, *, approximate: str = "none") -> Any:
    return ctx.pointwise(lambda v: v * (tirx.erf(v * tirx.const(0.7071067811865476, "float32")) + 1.0), x)
