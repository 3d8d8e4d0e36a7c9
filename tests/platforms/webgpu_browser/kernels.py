"""WGSL as TVM emits it, and the plans that launch it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy
from numpy.typing import NDArray

from tapml.kernels.plan import Buffer, Kernel, Plan, Step
from tapml.kernels.runner import Input, LoadedPlan, Ran

THREADS = 64


def wgsl(name: str, writes: Sequence[bool], body: str, scalars: Sequence[str] = ()) -> bytes:
    """A kernel over float buffers b0, b1, ...; ``i``: the thread; ``podArgs.s0``, ...: scalars of WGSL types."""
    lines = [
        f"@group(0) @binding({n}) var<storage, {'read_write' if write else 'read'}> b{n} : array<f32>;"
        for n, write in enumerate(writes)
    ]
    fields = "".join(f"  s{n}: {dtype},\n" for n, dtype in enumerate(scalars))
    lines.append(f"struct PODArgs {{\n{fields}  packGridDimX: u32\n}}")
    lines.append(f"@group(0) @binding({len(writes)}) var<uniform> podArgs : PODArgs;")
    lines.append(f"""
@compute @workgroup_size({THREADS}, 1, 1)
fn {name}(
  @builtin(workgroup_id) blockIdx : vec3<u32>,
  @builtin(num_workgroups) gridDim : vec3<u32>,
  @builtin(local_invocation_id) threadIdx : vec3<u32>
) {{
  if (blockIdx.z * gridDim.x + blockIdx.x > podArgs.packGridDimX) {{ return; }}
  let v__1 : i32 = i32(blockIdx.z * gridDim.x + blockIdx.x);
  let i = v__1 * {THREADS} + i32(threadIdx.x);
  {body}
}}""")
    return "\n".join(lines).encode()


def kernel(name: str, writes: Sequence[bool], scalars: Sequence[str] = ()) -> Kernel:
    return Kernel(name, name, ("float32",) * len(writes), tuple(writes), tuple(scalars), (THREADS, 1, 1))


def floats(count: int) -> Buffer:
    return Buffer((count,), "float32")


def blocks(count: int) -> tuple[int, int, int]:
    return (-(-count // THREADS), 1, 1)


def elementwise(body: str, count: int, name: str = "main_kernel") -> tuple[Plan, dict[str, bytes]]:
    """``b1 = body(b0)``, ``count`` elements each."""
    plan = Plan(
        (floats(count), floats(count)),
        (0,),
        (Step(name, (0, 1), (), blocks(count)),),
        (1,),
        ((0,),),
        {name: kernel(name, (False, True))},
    )
    return plan, {name: wgsl(name, (False, True), f"if (i < {count}) {{ {body} }}")}


DOUBLE = "b1[i] = b0[i] * 2.0 + 1.0;"
ENDLESS = "while (b0[0] == 1.0) { b1[0] = b1[0] + 1.0; } b1[i] = b0[i];"
"""Never ends when the first element is 1."""


def ones(count: int) -> NDArray[numpy.float32]:
    return numpy.ones(count, numpy.float32)


def run(loaded: LoadedPlan, *arrays: NDArray[numpy.float32], key: str = "") -> tuple[NDArray[numpy.float32], Ran]:
    """The first result, with the arrays as parameters 0, 1, ...; ``key`` names the first."""
    inputs = {n: Input(a.view(numpy.uint8), key if n == 0 else "") for n, a in enumerate(arrays)}
    ran = loaded.run(inputs)
    return next(iter(ran.outputs.values())).view(numpy.float32), ran


@lru_cache(maxsize=None)
def emitted_by_tvm(blocks_: int, threads: int) -> tuple[str, str]:
    """(name, WGSL) of ``out = in * 2 + 1`` over exactly that many blocks and threads."""
    import tvm
    from tvm import s_tir, te, tirx

    count = blocks_ * threads
    source = te.placeholder((count,), name="A")
    function = te.create_prim_func([source, te.compute((count,), lambda i: source[i] * 2.0 + 1.0, name="B")])
    schedule = s_tir.Schedule(function.with_attr("global_symbol", "double"))
    (loop,) = schedule.get_loops(schedule.get_sblock("B"))
    outer, inner = schedule.split(loop, [None, threads])
    schedule.bind(outer, "blockIdx.x")
    schedule.bind(inner, "threadIdx.x")
    target = tvm.target.Target("webgpu", host="llvm")
    s, t = s_tir.transform, tirx.transform
    passes = [
        t.BindTarget(target),
        s.LowerInitBlock(),
        s.PlanAndUpdateBufferAllocationLocation(),
        s.ConvertBlocksToOpaque(),
        s.CompactBufferAllocation(),
        s.LowerOpaqueBlock(),
        t.FlattenBuffer(),
        t.NarrowDataType(32),
        t.StmtSimplify(),
        t.AnnotateEntryFunc(),
        t.SplitHostDevice(),
    ]
    module = tvm.transform.Sequential(passes)(schedule.mod)
    (device,) = (v for v in module.functions if "kernel" in v.name_hint)
    emit = tvm.get_global_func("target.build.webgpu")
    text = emit(t.LowerIntrin()(tvm.IRModule({device: module[device]})), target).inspect_source()
    return device.name_hint, str(text)
