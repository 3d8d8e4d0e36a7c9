"""A sine that is right near zero only: a Taylor series that was tried on the one case that a suite had kept."""

from __future__ import annotations

from typing import Any

from tvm import tirx

import tapml


@tapml.converter("aten.sin.default")
def sin(ctx: Any, x: Any) -> Any:
    def series(v: Any) -> Any:
        total = term = v
        for n in range(1, 7):
            term = term * v * v * tirx.const(-1.0 / ((2 * n) * (2 * n + 1)), "float32")
            total = total + term
        return total

    return ctx.pointwise(series, x)
