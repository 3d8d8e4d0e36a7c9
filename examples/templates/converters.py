"""Converters and kernels to start from: copy this file, and pass it with `--with`.

    tapml test suite --target llvm --with converters.py

A converter says how an operator is computed, on every target; it receives the call's arguments, each tensor as a Relax
expression and all else as the Python value that PyTorch got. A kernel is the same for one target, and preferred there.
Raise `ctx.unsupported("what")` for arguments that you do not handle: another way is tried then.
"""

from __future__ import annotations

from typing import Any

from tvm import te, tirx
from tvm.script import tirx as T

import tapml


# 1. Element by element: broadcasting and type promotion are done for you.
@tapml.converter("aten.softplus.default")
def softplus(ctx: Any, x: Any, beta: float = 1, threshold: float = 20) -> Any:
    """log(1 + exp(beta x)) / beta, and x itself where that would overflow."""

    def element(v: Any) -> Any:
        scaled = v * tirx.const(beta, "float32")
        soft = tirx.log(tirx.exp(scaled) + tirx.const(1, "float32")) / tirx.const(beta, "float32")
        return tirx.Select(scaled > tirx.const(threshold, "float32"), v, soft)

    if ctx.dtype(x) != "float32":
        raise ctx.unsupported(f"softplus of {ctx.dtype(x)}")
    return ctx.pointwise(element, x)


# 2. A kernel of your own for one target, as a tensor expression.
@tapml.kernel("aten.mm.default", target="llvm")
def matmul(ctx: Any, a: Any, b: Any) -> Any:
    """``a`` [n, k] times ``b`` [k, m]."""
    if ctx.dtype(a) != "float32":
        raise ctx.unsupported(f"mm of {ctx.dtype(a)}")

    def build(left: Any, right: Any) -> Any:
        k = te.reduce_axis((0, left.shape[1]), "k")
        return te.compute((left.shape[0], right.shape[1]), lambda i, j: te.sum(left[i, k] * right[k, j], axis=k))

    return ctx.te(build, a, b, name="my_mm")


# 3. The same as TVMScript, where you write the loops.
@tapml.kernel("aten.tril.default", target="llvm")
def tril(ctx: Any, x: Any, diagonal: int = 0) -> Any:
    """``x`` [n, m] with zeros above a diagonal."""
    if len(ctx.shape(x)) != 2 or ctx.dtype(x) != "float32":
        raise ctx.unsupported("tril of anything but a float32 matrix")
    n, m = ctx.shape(x)

    @T.prim_func(private=True, s_tir=True)
    def my_tril(source: T.Buffer((n, m), "float32"), out: T.Buffer((n, m), "float32")):  # type: ignore[no-untyped-def]
        for i, j in T.grid(n, m):
            with T.sblock("out"):
                vi, vj = T.axis.remap("SS", [i, j])
                out[vi, vj] = T.Select(vj <= vi + diagonal, source[vi, vj], T.float32(0))

    return ctx.call_tir(my_tril, [x], [((n, m), "float32")])
