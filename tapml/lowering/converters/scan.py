"""Scans and sorting.

TVM's own GPU scan is racy and its CPU scan accumulates in the input's dtype; a scan here is a serial loop along its axis,
one thread for each line, in the accumulation dtype.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import te, tirx

from tapml.lowering.context import Context, cast
from tapml.lowering.registry import converter
from tapml.suite.call import dtype_name


def _scan(ctx: Context, x: Any, dim: int, dtype: str, combine: Callable[[Any, Any], Any]) -> Any:
    """Inclusive scan of ``x`` (as ``dtype``) along ``dim``."""
    shape = ctx.shape(x)
    if not shape:
        return ctx.cast(x, dtype)
    axis = dim % len(shape)
    lines = 1
    for extent in (*shape[:axis], *shape[axis + 1 :]):
        lines *= extent
    inner = 1
    for extent in shape[axis + 1 :]:
        inner *= extent

    def build(tensor: Any) -> Any:
        from tvm.script.ir_builder import IRBuilder
        from tvm.script.ir_builder import tirx as T

        def body(ins: Any, outs: Any) -> Any:
            with IRBuilder() as builder:
                source, target = ins[0], outs[0]

                def at(line: Any, k: Any) -> tuple[Any, ...]:
                    rest, index = line, []
                    for a in reversed(range(len(shape))):
                        if a == axis:
                            index.append(k)
                        else:
                            index.append(tirx.floormod(rest, shape[a]))
                            rest = tirx.floordiv(rest, shape[a])
                    return tuple(reversed(index))

                with T.parallel(0, tirx.const(lines, "int64")) as line:
                    T.buffer_store(target, cast(source[at(line, 0)], dtype), at(line, 0))
                    with T.serial(1, tirx.const(shape[axis], "int64")) as k:
                        value = combine(target[at(line, k - 1)], cast(source[at(line, k)], dtype))
                        T.buffer_store(target, value, at(line, k))
            return builder.get()

        return te.extern([shape], [tensor], body, dtype=[dtype], name="scan")

    return ctx.te(build, x, name="scan")


def _accumulate_dtype(ctx: Context, x: Any, dtype: Any) -> str:
    if dtype is not None:
        return dtype_name(dtype)
    return ctx.dtype(x) if ctx.dtype(x).startswith("float") else "int64"


@converter("aten.cumsum.default")
def cumsum(ctx: Context, x: Any, dim: int, *, dtype: Any = None) -> Any:
    return _scan(ctx, x, dim, _accumulate_dtype(ctx, x, dtype), lambda a, b: a + b)


@converter("aten.cumprod.default")
def cumprod(ctx: Context, x: Any, dim: int, *, dtype: Any = None) -> Any:
    return _scan(ctx, x, dim, _accumulate_dtype(ctx, x, dtype), lambda a, b: a * b)
