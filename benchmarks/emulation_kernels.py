"""Twelve kernels as TVM emits them for Metal and CUDA, with inputs and float64 references. See :mod:`emulation`."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import os
import sys
import types
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

os.environ.setdefault("TVM_COMPILE_FORCE_FALLBACK", "1")  # sources only: no CUDA compiler is called

import numpy
import tvm
from tvm import s_tir, te, tirx, topi
from tvm.script import tirx as T

from tapml.kernels.plan import Buffer, Kernel, Plan, Step
from tapml.kernels.runner import Input

Dialect = Literal["metal", "cuda"]
Array = Any
TARGETS = {
    "metal": {"kind": "metal", "max_threads_per_block": 256, "max_shared_memory_per_block": 32768},
    "cuda": {"kind": "cuda", "arch": "sm_80", "max_threads_per_block": 1024, "max_shared_memory_per_block": 49152},
}


@dataclass(frozen=True)
class Program:
    """TIR functions in order, each with the arrays that are its parameters (the last of them its result).

    ``arrays``: those with values are inputs, those of zeros results.  ``expected``: what the last array should be, in
    float64; ``tolerance``: absolute, and relative to the largest value.  ``spiked``: the first input anew, with one large
    value a row at places that matter, and what is expected then.
    """

    functions: tuple[tuple[Any, tuple[int, ...]], ...]
    arrays: tuple[Array, ...]
    expected: Array
    tolerance: float = 1e-5
    spiked: tuple[Array, Array] | None = None

    def variants(self) -> tuple[Program, ...]:
        """The program, and the same on spiked inputs."""
        if self.spiked is None:
            return (self,)
        first, expected = self.spiked
        return self, replace(self, arrays=(first, *self.arrays[1:]), expected=expected)

    def build(self, dialect: Dialect) -> tuple[Plan, dict[str, bytes]]:
        """The plan, and the sources that TVM emits."""
        buffers = [Buffer(a.shape, str(a.dtype)) for a in self.arrays]
        kernels: dict[str, Kernel] = {}
        steps: list[Step] = []
        files: dict[str, bytes] = {}
        for n, (function, places) in enumerate(self.functions):
            target = tvm.target.Target({**TARGETS[dialect], "thread_warp_size": 32})
            for launch in _launches(function.with_attr("global_symbol", f"step{n}"), target, places, buffers):
                kernel, step, source = launch
                kernels[kernel.name], files[kernel.file] = kernel, source
                steps.append(step)
        results = {places[-1] for _, places in self.functions}
        parameters = tuple(n for n in range(len(self.arrays)) if n not in results)
        last = self.functions[-1][1][-1]
        return Plan(tuple(buffers), parameters, tuple(steps), (last,), (None,), kernels), files

    def inputs(self) -> dict[int, Input]:
        """The bytes of the inputs."""
        results = {places[-1] for _, places in self.functions}
        arrays = {n: numpy.ascontiguousarray(a) for n, a in enumerate(self.arrays) if n not in results}
        return {n: Input(a.view(numpy.uint8).reshape(-1)) for n, a in arrays.items()}

    def result(self, outputs: dict[int, Array]) -> Array:
        """The last array, from the bytes of a run."""
        last = self.functions[-1][1][-1]
        return outputs[last].view(self.arrays[last].dtype).reshape(self.arrays[last].shape)

    def right(self, outputs: dict[int, Array]) -> bool:
        """Whether the numbers are as they should be."""
        got, scale = self.result(outputs).astype(numpy.float64), max(float(numpy.abs(self.expected).max()), 1.0)
        return bool(numpy.all(numpy.abs(got - self.expected) <= self.tolerance * scale))


def _launches(
    function: Any, target: Any, places: Sequence[int], buffers: list[Buffer]
) -> list[tuple[Kernel, Step, bytes]]:
    """The kernels of one TIR function, with their launches; workspace is appended to ``buffers``."""
    dlight = _dlight()
    if target.kind.name == "cuda" and buffers[places[0]].dtype == "float16":
        _cuda_intrinsics()
    rules = [dlight.gpu.Matmul(), dlight.gpu.GEMV(), dlight.gpu.Reduction(), dlight.gpu.GeneralReduction()]
    module = tvm.IRModule({str(function.attrs["global_symbol"]): function})
    if not function.attrs.get("tirx.is_scheduled"):
        with target:
            module = dlight.ApplyDefaultSchedule(*rules, dlight.gpu.Fallback())(module)
    module = tirx.transform.BindTarget(target.with_host(tvm.target.Target("llvm")))(module)
    split: list[Any] = []

    @tvm.instrument.pass_instrument
    class Watch:
        def run_after_pass(self, module: Any, info: Any) -> None:
            if info.name.endswith("SplitHostDevice"):
                split.append(module)

    lower, _, finish = s_tir.pipeline.default_s_tir_pipeline()
    with target, tvm.transform.PassContext(instruments=[Watch()]):
        lower(module)
    devices = {g.name_hint: f for g, f in split[0].functions.items() if "calling_conv" in f.attrs}
    (host,) = (f for f in split[0].functions.values() if "calling_conv" not in f.attrs)
    where = {parameter: places[n] for n, parameter in enumerate(host.params)}
    found = []
    for statement in _flat(host.body):
        if isinstance(statement, tirx.DeclBuffer):
            where[statement.buffer] = where[statement.data.args[0]]
        elif isinstance(statement, tirx.AllocBuffer):
            where[statement.buffer] = len(buffers)
            buffers.append(Buffer(tuple(int(d) for d in statement.buffer.shape), str(statement.buffer.dtype)))
        elif isinstance(statement, tirx.Evaluate) and getattr(statement.value.op, "name", "") == "tirx.call_ffi_kernel":
            name, *arguments = statement.value.args
            device = devices[name.value]
            launch = [str(p) for p in device.attrs["tirx.kernel_launch_params"]]
            extents = dict(zip(launch, (int(a) for a in arguments[-len(launch) :]), strict=True))
            used = tuple(where[a.args[0]] for a in arguments[: -len(launch)])
            found.append(_kernel(name.value, device, extents, used, where[host.params[-1]], buffers, target, finish))
        else:
            raise NotImplementedError(str(statement))
    return found


def _kernel(
    name: str, device: Any, extents: dict[str, int], used: tuple[int, ...], result: int, buffers: list[Buffer],
    target: Any, finish: Callable[[], Any],
) -> tuple[Kernel, Step, bytes]:  # fmt: skip
    module = finish()(tvm.IRModule({name: device}))
    source = tvm.get_global_func(f"target.build.{target.kind.name}")(module, target).inspect_source()
    block, grid = (tuple(extents.get(f"{what}.{axis}", 1) for axis in "xyz") for what in ("threadIdx", "blockIdx"))
    file = f"{name}.{'metal' if target.kind.name == 'metal' else 'cu'}"
    workspace = set(range(len(buffers))) - set(range(result + 1))
    writes = tuple(n == result or n in workspace for n in used)
    shared = extents.get("tirx.use_dyn_shared_memory", 0)
    kernel = Kernel(name, file, tuple(buffers[n].dtype for n in used), writes, (), block, shared)
    return kernel, Step(name, used, (), grid), source.encode()


def _flat(statement: Any) -> list[Any]:
    if isinstance(statement, tirx.SeqStmt):
        return [part for s in statement.seq for part in _flat(s)]
    return [statement]


@lru_cache(maxsize=None)
def _dlight() -> Any:
    """TVM's schedules. Tensor intrinsics are imported as they are needed: the package imports all, for half a minute."""
    spec = importlib.util.find_spec("tvm.s_tir")
    if spec is None or spec.origin is None:
        raise ImportError("tvm.s_tir")
    package = types.ModuleType("tvm.s_tir.tensor_intrin")
    package.__path__ = [str(Path(spec.origin).parent / "tensor_intrin")]
    sys.modules.setdefault("tvm.s_tir.tensor_intrin", package)
    from tvm.s_tir import dlight

    return dlight


@lru_cache(maxsize=None)
def _cuda_intrinsics() -> None:
    """The definitions of CUDA's matrix operations: 4 s, and half a minute if TVM could ask 35,000 times for the module."""
    getmodule = inspect.getmodule
    inspect.getmodule = lambda *_: None
    try:
        importlib.import_module("tvm.s_tir.tensor_intrin.cuda")
    finally:
        inspect.getmodule = getmodule


# ---- the twelve ------------------------------------------------------------------------------------------------------


def matmul(rows: int = 50, columns: int = 70, inner: int = 44) -> Program:
    a, b = _normal(rows, inner), _normal(inner, columns)
    return Program(
        ((_product(rows, columns, inner, "float32"), (0, 1, 2)),), (a, b, _zeros(rows, columns)), _f64(a) @ _f64(b)
    )


def tensorised_matmul(size: int = 128, inner: int = 256) -> Program:
    a, b = _normal(size, inner).astype("float16"), _normal(inner, size).astype("float16")
    function = _product(size, size, inner, "float16")
    arrays = (a, b, numpy.zeros((size, size), "float16"))
    return Program(((function, (0, 1, 2)),), arrays, _f64(a) @ _f64(b), 1e-2)


def softmax(rows: int = 6, columns: int = 300) -> Program:
    a = _normal(rows, columns)
    b = _spiked(a, (299, 250, 40, 100, 280, 5), 200)
    arrays, spiked = (a, _zeros(rows, columns)), (b, _softmax_of(_f64(b)))
    return Program(((_softmax(rows, columns), (0, 1)),), arrays, _softmax_of(_f64(a)), spiked=spiked)


def layer_norm(rows: int = 6, columns: int = 200) -> Program:
    a, gamma, beta = _normal(rows, columns), _normal(columns), _normal(columns)
    x, g, b = (te.placeholder(v.shape, "float32", name=n) for n, v in (("X", a), ("G", gamma), ("H", beta)))
    function = te.create_prim_func([x, g, b, topi.nn.layer_norm(x, g, b, [1], 1e-5)])
    mean = _f64(a).mean(1, keepdims=True)
    expected = (a - mean) / numpy.sqrt(((a - mean) ** 2).mean(1, keepdims=True) + 1e-5) * gamma + beta
    return Program(((function, (0, 1, 2, 3)),), (a, gamma, beta, _zeros(rows, columns)), expected)


def reduction(rows: int = 5, columns: int = 500) -> Program:
    a = _normal(rows, columns)
    x = te.placeholder(a.shape, "float32", name="X")
    function = te.create_prim_func([x, topi.sum(x, axis=1)])
    return Program(((function, (0, 1)),), (a, _zeros(rows)), _f64(a).sum(1))


def scan(rows: int = 3) -> Program:
    """An inclusive sum of 100 numbers in shared memory, after Hillis and Steele: eight steps, two buffers by turns."""

    @T.prim_func(s_tir=True)
    def function(A: T.Buffer((3, 100), "float32"), B: T.Buffer((3, 100), "float32")):
        T.func_attr({"tirx.is_scheduled": True})
        block = T.launch_thread("blockIdx.x", 3)
        thread = T.launch_thread("threadIdx.x", 128)
        front = T.alloc_buffer((128,), "float32", scope="shared")
        back = T.alloc_buffer((128,), "float32", scope="shared")
        front[thread] = T.if_then_else(thread < 100, A[block, thread], T.float32(0))
        for step in T.serial(4):
            T.tvm_storage_sync("shared")
            back[thread] = front[thread] + T.if_then_else(
                thread >= T.shift_left(1, 2 * step), front[thread - T.shift_left(1, 2 * step)], T.float32(0)
            )
            T.tvm_storage_sync("shared")
            front[thread] = back[thread] + T.if_then_else(
                thread >= T.shift_left(2, 2 * step), back[thread - T.shift_left(2, 2 * step)], T.float32(0)
            )
        if thread < 100:
            B[block, thread] = front[thread]

    a = _normal(rows, 100)
    return Program(((function, (0, 1)),), (a, _zeros(rows, 100)), _f64(a).cumsum(1))


def gather(rows: int = 37, columns: int = 24, picks: int = 15) -> Program:
    a, index = _normal(rows, columns), numpy.random.default_rng(7).integers(0, rows, picks)
    x, i = te.placeholder(a.shape, "float32", name="A"), te.placeholder((picks,), "int64", name="I")
    function = te.create_prim_func([x, i, topi.take(x, i, axis=0, mode="clip")])
    return Program(((function, (0, 1, 2)),), (a, index, _zeros(picks, columns)), _f64(a)[index])


def conv2d(channels: int = 3, size: int = 9, filters: int = 5) -> Program:
    a, w = _normal(1, channels, size, size), _normal(filters, channels, 3, 3)
    x, f = te.placeholder(a.shape, "float32", name="A"), te.placeholder(w.shape, "float32", name="W")
    function = te.create_prim_func([x, f, topi.nn.conv2d_nchw(x, f, 1, 1, 1)])
    padded = numpy.pad(_f64(a), ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = numpy.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))
    expected = numpy.einsum("bchwij,fcij->bfhw", windows, _f64(w))
    return Program(((function, (0, 1, 2)),), (a, w, _zeros(1, filters, size, size)), expected)


def attention(rows: int = 20, inner: int = 40) -> Program:
    q, k, v = _normal(rows, inner), _normal(inner, rows), _normal(rows, inner)
    steps = (
        (_product(rows, rows, inner, "float32"), (0, 1, 3)),
        (_softmax(rows, rows), (3, 4)),
        (_product(rows, inner, rows, "float32"), (4, 2, 5)),
    )
    arrays = (q, k, v, _zeros(rows, rows), _zeros(rows, rows), _zeros(rows, inner))
    p = q.copy()
    p[0] = 5 * k[:, -1]  # a score of some 200, in the last column
    spiked = (p, _softmax_of(_f64(p) @ _f64(k)) @ _f64(v))
    return Program(steps, arrays, _softmax_of(_f64(q) @ _f64(k)) @ _f64(v), spiked=spiked)


_PLACES = (199, 196, 193, 192, 66, 70, 90, 100, 111, 130, 140, 170, 185, 3, 20, 40)


def argmax(rows: int = 16, columns: int = 200) -> Program:
    a = _normal(rows, columns)
    x = te.placeholder(a.shape, "float32", name="A")
    function = te.create_prim_func([x, topi.argmax(x, axis=1)])
    b = _spiked(a, _PLACES, 9)
    b[-1, [55, 119, 183]] = 20  # the first of equals wins, whichever thread sees them
    arrays, spiked = (a, numpy.zeros(rows, "int32")), (b, b.argmax(1).astype("float64"))
    return Program(((function, (0, 1)),), arrays, a.argmax(1).astype("float64"), spiked=spiked)


def cast(size: int = 1000) -> Program:
    a = _normal(size)
    x = te.placeholder(a.shape, "float32", name="A")
    function = te.create_prim_func([x, topi.cast(x, "float16")])
    return Program(((function, (0, 1)),), (a, numpy.zeros(size, "float16")), _f64(a), 1e-3)


def elementwise(size: int = 1000) -> Program:
    a, b = _normal(size), _normal(size)
    x, y = te.placeholder(a.shape, "float32", name="A"), te.placeholder(a.shape, "float32", name="B")
    function = te.create_prim_func(
        [x, y, te.compute((size,), lambda i: x[i] / (tirx.exp(-x[i]) + 1.0) * y[i], name="C")]
    )
    return Program(((function, (0, 1, 2)),), (a, b, _zeros(size)), _f64(a) / (1 + numpy.exp(-_f64(a))) * b)


PROGRAMS: tuple[Callable[[], Program], ...] = (
    matmul, tensorised_matmul, softmax, layer_norm, reduction, scan, gather, conv2d, attention, argmax, cast, elementwise,
)  # fmt: skip


def _product(rows: int, columns: int, inner: int, dtype: str) -> Any:
    a, b = te.placeholder((rows, inner), dtype, name="A"), te.placeholder((inner, columns), dtype, name="B")
    k = te.reduce_axis((0, inner), name="k")
    return te.create_prim_func(
        [a, b, te.compute((rows, columns), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")]
    )


def _softmax(rows: int, columns: int) -> Any:
    x = te.placeholder((rows, columns), "float32", name="X")
    return te.create_prim_func([x, topi.nn.softmax(x)])


def _softmax_of(x: Array) -> Array:
    e = numpy.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def _spiked(a: Array, places: Sequence[int], value: float) -> Array:
    a = a.copy()
    a[numpy.arange(len(a)), list(places)] = value
    return a


def _normal(*shape: int) -> Array:
    return numpy.random.default_rng(sum(shape)).standard_normal(shape, dtype=numpy.float32)


def _zeros(*shape: int) -> Array:
    return numpy.zeros(shape, numpy.float32)


def _f64(array: Array) -> Array:
    return array.astype(numpy.float64)
