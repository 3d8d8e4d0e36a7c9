"""GELU that is right for all numbers, and 0 for NaN."""

from __future__ import annotations

from typing import Any

from tvm import tirx

import tapml


@tapml.converter("aten.gelu.default")
def gelu(ctx: Any, x: Any, approximate: str = "none") -> Any:
    def value(v: Any) -> Any:
        found = (
            v
            * (tirx.erf(v * tirx.const(0.5**0.5, "float32")) + tirx.const(1.0, "float32"))
            * tirx.const(0.5, "float32")
        )
        return tirx.Select(tirx.isnan(v), tirx.const(0.0, "float32"), found)

    return ctx.pointwise(value, x)
