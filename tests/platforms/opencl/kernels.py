"""Kernels that TVM schedules and writes in OpenCL C, and plans of them; for the tests of opencl and vulkan."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy
import tvm
from numpy.typing import NDArray
from tvm import s_tir, te, tirx
from tvm.s_tir import dlight

from tapml.kernels.plan import Buffer, Kernel, Plan, Step
from tapml.kernels.runner import Input, Runner

Array = NDArray[Any]


@dataclass(frozen=True)
class Made:
    """A kernel, its source and its launch."""

    kernel: Kernel
    source: bytes
    grid: tuple[int, int, int]
    shapes: tuple[tuple[int, ...], ...]

    def plan(self) -> tuple[Plan, dict[str, bytes]]:
        """A plan of this kernel alone: its last buffer is the result."""
        buffers = tuple(Buffer(s, d) for s, d in zip(self.shapes, self.kernel.pointers, strict=True))
        last = len(buffers) - 1
        step = Step(self.kernel.name, tuple(range(len(buffers))), (), self.grid)
        plan = Plan(buffers, tuple(range(last)), (step,), (last,), (None,), {self.kernel.name: self.kernel})
        return plan, {self.kernel.file: self.source}

    def on(self, runner: Runner, *arrays: Array) -> Array:
        """Load and run on arrays; the result's elements."""
        plan, files = self.plan()
        ran = runner.load(plan, files).run(given(*arrays))
        last = len(plan.buffers) - 1
        return ran.outputs[last].view(plan.buffers[last].dtype).reshape(self.shapes[last])


def given(*arrays: Array) -> dict[int, Input]:
    """Parameters 0, 1, ... with the bytes of arrays."""
    return {i: Input(numpy.ascontiguousarray(a).reshape(-1).view(numpy.uint8)) for i, a in enumerate(arrays)}


def make(name: str, *tensors: te.Tensor) -> Made:
    """Schedule and compile the computation of the last tensor from the others; their names are in sorted order."""
    target = tvm.target.Target("opencl")
    module = tvm.IRModule({name: te.create_prim_func(list(tensors)).with_attr("global_symbol", name)})
    with target:
        rules = (dlight.gpu.Matmul(), dlight.gpu.Reduction(), dlight.gpu.GeneralReduction(), dlight.gpu.Fallback())
        module = _until_split(target)(dlight.ApplyDefaultSchedule(*rules)(module))
    [(symbol, function)] = [(g, f) for g, f in module.functions.items() if int(f.attrs.get("calling_conv", 0)) == 2]
    module = s_tir.pipeline.finalize_device_passes()(tvm.IRModule({symbol: function}))
    source = tvm.get_global_func("target.build.opencl")(module, target).inspect_source()
    extents = dict(re.findall(r'launch_thread\("(\w+\.\w)", (\d+)\)', function.script()))
    block, grid = ([int(extents.get(f"{which}.{axis}", 1)) for axis in "xyz"] for which in ("threadIdx", "blockIdx"))
    kernel = Kernel(
        symbol.name_hint,
        f"{name}.cl",
        tuple(str(t.dtype) for t in tensors),
        (False,) * (len(tensors) - 1) + (True,),
        block=(block[0], block[1], block[2]),
    )
    shapes = tuple(tuple(int(d) for d in t.shape) for t in tensors)
    return Made(kernel, source.encode(), (grid[0], grid[1], grid[2]), shapes)


def elementwise(name: str, n: int, dtype: str, compute: Callable[[Any], Any]) -> Made:
    """``compute`` of each of ``n`` elements."""
    a = te.placeholder((n,), dtype, name="A")
    return make(name, a, te.compute((n,), lambda i: compute(a[i]), name="B"))


def row_sums(rows: int, columns: int) -> Made:
    """Sums of rows: a tree in shared memory, with barriers."""
    a, k = te.placeholder((rows, columns), "float32", name="A"), te.reduce_axis((0, columns), "k")
    return make("row_sums", a, te.compute((rows,), lambda i: te.sum(a[i, k], axis=k), name="B"))


def matmul(m: int, n: int, k: int) -> Made:
    """A tiled product, through shared memory."""
    a, b = te.placeholder((m, k), "float32", name="A"), te.placeholder((k, n), "float32", name="B")
    r = te.reduce_axis((0, k), "r")
    return make("matmul", a, b, te.compute((m, n), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="C"))


def centred(rows: int, columns: int) -> tuple[Plan, dict[str, bytes]]:
    """Two kernels with a workspace between: row sums, then each element less its row's mean."""
    a, s = te.placeholder((rows, columns), "float32", name="A"), te.placeholder((rows,), "float32", name="B")
    last = te.compute((rows, columns), lambda i, j: a[i, j] - s[i] / tirx.const(columns, "float32"), name="C")
    sums, less = row_sums(rows, columns), make("less", a, s, last)
    table, row = Buffer((rows, columns), "float32"), Buffer((rows,), "float32")
    steps = (Step(sums.kernel.name, (0, 1), (), sums.grid), Step(less.kernel.name, (0, 1, 2), (), less.grid))
    plan = Plan((table, row, table), (0,), steps, (2,), (None,), {m.kernel.name: m.kernel for m in (sums, less)})
    return plan, {m.kernel.file: m.source for m in (sums, less)}


def written(body: str, n: int = 64, *, dtypes: tuple[str, ...] = ("float32", "float32"), head: str = "") -> Made:
    """A kernel by hand: ``body`` sees pointers ``A``, ``B``, ... and the thread's number ``i``; the last is written."""
    c = {"float32": "float", "float16": "half", "int32": "int"}
    arguments = ", ".join(f"__global {c[d]}* restrict {chr(65 + i)}" for i, d in enumerate(dtypes))
    source = f"{head}__kernel void by_hand({arguments}) {{ int i = get_global_id(0); {body} }}\n"
    writes = (False,) * (len(dtypes) - 1) + (True,)
    return Made(
        Kernel("by_hand", "by_hand.cl", dtypes, writes, block=(64, 1, 1)),
        source.encode(),
        (1, 1, 1),
        ((n,),) * len(dtypes),
    )


def with_block(made: Made, block: tuple[int, int, int]) -> Made:
    """The kernel with other threads in a block."""
    return replace(made, kernel=replace(made.kernel, block=block))


def _until_split(target: tvm.target.Target) -> tvm.transform.Pass:
    """Scheduled functions -> host and device functions: what TVM's own pipeline does for a GPU, up to there."""
    s, t = s_tir.transform, tirx.transform
    return tvm.transform.Sequential(
        [
            t.BindTarget(target.with_host(tvm.target.Target("c"))),
            s.CanonicalizeLoop(),
            s.LowerCrossThreadReduction(),
            s.LowerInitBlock(),
            s.PlanAndUpdateBufferAllocationLocation(),
            s.ConvertBlocksToOpaque(),
            s.LiftThreadBinding(),
            s.ManifestSharedMemoryLocalStage(),
            s.CompactBufferAllocation(),
            s.LowerAutoCopy(),
            s.UnifyThreadBinding(),
            s.LowerMatchBuffer(),
            s.StmtSimplify(),
            s.LowerOpaqueBlock(),
            t.FlattenBuffer(),
            t.NarrowDataType(32),
            s.LoopPartition(),
            t.VectorizeLoop(True),
            s.InjectVirtualThread(),
            t.StorageRewrite(),
            t.UnrollLoop(),
            s.RenormalizeSplitPattern(),
            t.StmtSimplify(),
            t.RemoveNoOp(),
            s.RewriteUnsafeSelect(),
            t.AnnotateEntryFunc(),
            s.ThreadSync("shared"),
            s.InferFragment(),
            s.LowerThreadAllreduce(),
            s.MergeSharedMemoryAllocations(),
            t.SplitHostDevice(),
        ]
    )
