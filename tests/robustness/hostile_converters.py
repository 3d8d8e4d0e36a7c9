"""Converters as bad as any that a user may hand over; each is registered for one operator of ``hostile_program.py``."""

from __future__ import annotations

import ctypes
import os
import re
import signal
import subprocess
import sys
import threading
import time
from typing import Any

import numpy
from tvm import relax, te, tirx
from tvm.script import tirx as T

import tapml
from tapml.errors import UnsupportedError

N = 8


def good(name: str) -> Any:
    """The right answer by way of a TIR intrinsic."""
    return lambda ctx, x: ctx.pointwise(getattr(tirx, name), x)


# -- while it is lowered -----------------------------------------------------------------------------------------------


@tapml.converter("aten.exp.default")
def segfaults(ctx: Any, x: Any) -> Any:
    print("about to read address 0", flush=True)
    ctypes.string_at(0)


@tapml.converter("aten.sin.default")
def loops_in_python(ctx: Any, x: Any) -> Any:
    print("looping", flush=True)
    while True:
        pass


@tapml.converter("aten.cos.default")
def loops_in_c(ctx: Any, x: Any) -> Any:
    """A regular expression that backtracks for years, without letting go of the interpreter's lock."""
    return re.match(r"(a+)+$", "a" * 60 + "b")


@tapml.converter("aten.reciprocal.default")
def waits_for_itself(ctx: Any, x: Any) -> Any:
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()


@tapml.converter("aten.log.default")
def grows_in_python(ctx: Any, x: Any) -> Any:
    grown = bytearray()
    while True:
        grown += b"x" * (1 << 20)


@tapml.converter("aten.sqrt.default")
def touches_pages(ctx: Any, x: Any) -> Any:
    held = []
    while True:
        held.append(numpy.ones(1 << 20))


@tapml.converter("aten.rsqrt.default")
def allocates_at_once(ctx: Any, x: Any) -> Any:
    return numpy.empty(1 << 50, dtype=numpy.uint8)


@tapml.converter("aten.floor.default")
def raises(ctx: Any, x: Any) -> Any:
    raise ValueError("no [/idea]\nhow to do this")


@tapml.converter("aten.frac.default")
def raises_what_cannot_be_shown(ctx: Any, x: Any) -> Any:
    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no words")

    raise Mute


@tapml.converter("aten.ceil.default")
def exits_at_once(ctx: Any, x: Any) -> Any:
    os._exit(0)


@tapml.converter("aten.round.default")
def exits(ctx: Any, x: Any) -> Any:
    sys.exit(0)


@tapml.converter("aten.erf.default")
def interrupts(ctx: Any, x: Any) -> Any:
    raise KeyboardInterrupt


@tapml.converter("aten.asinh.default")
def aborts(ctx: Any, x: Any) -> Any:
    os.abort()


@tapml.converter("aten.sinh.default")
def kills_itself(ctx: Any, x: Any) -> Any:
    os.kill(os.getpid(), signal.SIGKILL)


@tapml.converter("aten.cosh.default")
def recurses(ctx: Any, x: Any) -> Any:
    return recurses(ctx, x)


@tapml.converter("aten.asin.default")
def leaves_a_child(ctx: Any, x: Any) -> Any:
    subprocess.Popen(["sleep", "987654"])
    raise ValueError("a child was left")


@tapml.converter("aten.acos.default")
def closes_everything(ctx: Any, x: Any) -> Any:
    os.closerange(0, 1000)


# -- what it says ------------------------------------------------------------------------------------------------------


@tapml.converter("aten.sign.default")
def prints_megabytes(ctx: Any, x: Any) -> Any:
    for _ in range(20_000):
        print("x" * 1000)
    raise ValueError("that is all")


@tapml.converter("aten.trunc.default")
def prints_without_end(ctx: Any, x: Any) -> Any:
    while True:
        print("x" * 100_000)


@tapml.converter("aten.expm1.default")
def closes_output(ctx: Any, x: Any) -> Any:
    os.close(1)
    os.close(2)
    return ctx.pointwise(lambda v: tirx.exp(v) - 1.0, x)


@tapml.converter("aten.exp2.default")
def closes_streams(ctx: Any, x: Any) -> Any:
    sys.stdout.close()
    sys.stderr.close()
    return ctx.pointwise(tirx.exp2, x)


# -- what it returns ---------------------------------------------------------------------------------------------------


@tapml.converter("aten.abs.default")
def returns_nothing(ctx: Any, x: Any) -> Any:
    return None


@tapml.converter("aten.neg.default")
def returns_text(ctx: Any, x: Any) -> Any:
    return "a tensor"


@tapml.converter("aten.log2.default")
def returns_another_shape(ctx: Any, x: Any) -> Any:
    return ctx.full((N + 1,), 0.0, "float32")


@tapml.converter("aten.log10.default")
def returns_another_dtype(ctx: Any, x: Any) -> Any:
    return ctx.cast(x, "float64")


@tapml.converter("aten.log1p.default")
def returns_two(ctx: Any, x: Any) -> Any:
    return [x, x]


@tapml.converter("aten.lgamma.default")
def returns_a_foreign_expression(ctx: Any, x: Any) -> Any:
    return relax.Var("unbound", relax.TensorType([N], "float32"))


@tapml.converter("aten.relu.default")
def is_wrong(ctx: Any, x: Any) -> Any:
    return ctx.pointwise(lambda v: v * 0.5, x)


@tapml.converter("aten.sigmoid.default")
def declines(ctx: Any, x: Any) -> Any:
    raise UnsupportedError("not for these shapes")


# -- while its kernel runs ---------------------------------------------------------------------------------------------


@tapml.converter("aten.tan.default")
def kernel_loops(ctx: Any, x: Any) -> Any:
    def build(tensor: Any) -> Any:
        k = te.reduce_axis((0, 1 << 42), name="k")
        return te.compute((N,), lambda i: te.sum(tirx.sin(tensor[i] + k.var.astype("float32")), axis=k))

    return ctx.te(build, x)


@tapml.converter("aten.atan.default")
def kernel_writes_its_input(ctx: Any, x: Any) -> Any:
    @T.prim_func(private=True)
    def write(a: T.Buffer((8,), "float32"), out: T.Buffer((8,), "float32")):  # type: ignore[no-untyped-def]
        for i in range(8):
            out[i] = T.atan(a[i])
            a[i] = T.float32(0)

    return ctx.call_tir(write.with_attr("global_symbol", "write"), [x], [((N,), "float32")])


@tapml.converter("aten.tanh.default")
def kernel_aborts(ctx: Any, x: Any) -> Any:
    return ctx.pointwise(lambda v: tirx.call_extern("float32", "abort", v), x)


@tapml.converter("aten.erfc.default")
def sleeps_in_a_thread(ctx: Any, x: Any) -> Any:
    """Leaves a thread that computes for ever behind; the operators after it must not suffer."""

    def spin() -> None:
        while True:
            time.time()

    threading.Thread(target=spin, daemon=True).start()
    raise ValueError("a thread was left")


@tapml.converter("aten.digamma.default")
def goes_elsewhere(ctx: Any, x: Any) -> Any:
    os.chdir("/")
    os.environ.clear()
    raise ValueError("I moved")
