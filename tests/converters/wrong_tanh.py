"""Tanh by two terms of its series."""

from __future__ import annotations

from typing import Any

from tvm import tirx

import tapml


@tapml.converter("aten.tanh.default")
def tanh(ctx: Any, x: Any) -> Any:
    return ctx.pointwise(lambda v: v - v * v * v / tirx.const(3.0, "float32"), x)
