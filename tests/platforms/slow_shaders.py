"""Converters whose kernels a GPU works on for minutes, or for ever."""

from __future__ import annotations

from typing import Any

from tvm import te, tirx

import tapml


@tapml.converter("aten.sin.default")
def for_minutes(ctx: Any, x: Any) -> Any:
    """Right, in the end: many threads with long loops, since a software driver ends an endless one by itself."""
    many, terms = 1 << 22, 1 << 14

    def build(tensor: Any) -> Any:
        k = te.reduce_axis((0, terms), "k")
        heavy = te.compute(
            (many,), lambda i: te.sum(tensor[(i + k) % 8] * te.const(1e-9, "float32"), axis=k), name="heavy"
        )
        return te.compute((8,), lambda i: tirx.sin(tensor[i]) + heavy[i * 5] * te.const(1e-20, "float32"), name="slow")

    return ctx.te(build, x, name="slow")
