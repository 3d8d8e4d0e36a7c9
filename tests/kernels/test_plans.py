"""From functions to launches: plans as data, shared parameters, limits, host work, loops, iterations."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import numpy
import pytest
import torch
from tvm import te, tirx
from tvm.script import tirx as T

from tapml.errors import UnsupportedError
from tapml.kernels.device_code import iterations
from tapml.kernels.launches import expand
from tapml.kernels.limits import Limits, check
from tapml.kernels.packing import pack_parameters
from tapml.kernels.plan import Buffer, Kernel, Plan, Step
from tests.kernels.making import execute, generated, text, written
from tests.lowering.running import build, opened, record, run_any

DTYPES = (torch.float32, torch.float16, torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool,
          torch.bfloat16)  # fmt: skip

# -- plans as data ----------------------------------------------------------------------------------------------------


def test_a_plan_survives_json() -> None:
    plans = [
        build(record("aten.cat.default", ([torch.ones(n + 1, 2) for n in range(12)],)), "webgpu:native").plan,
        build(record("aten.native_layer_norm.default", (torch.ones(3, 8), [8], None, None, 1e-5)), "opencl:pocl").plan,
        Plan(
            (Buffer((), "float32"), Buffer((2, 3), "bool", "int32")),
            (0,),
            (Step("k", (0, 1), (3, 0.5), (1, 2, 3)),),
            (None, 1),
            (None, (1, 0)),
            {
                "k": Kernel(
                    "k", "k.cl", ("float32", "int32"), (False, True), ("int32", "float32"), (8, 4, 2), 16, 32, 100
                )
            },
            (0,),
        ),
    ]
    for plan in plans:
        assert Plan.from_json(json.loads(json.dumps(plan.to_json()))) == plan


def test_bytes_of_a_buffer_are_those_in_memory() -> None:
    assert Buffer((3, 5), "int64", "int32").nbytes == 60 and Buffer((3,), "bool").nbytes == 3
    assert Buffer((), "float16").nbytes == 2 and Buffer((0, 7), "float32").nbytes == 0
    assert Buffer((7,), "bfloat16", "uint32").itemsize == 4


# -- parameters that share a buffer -----------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_twenty_tensors_in_eight_buffers(dtype: torch.dtype) -> None:
    parts = [(torch.arange(n * 3).reshape(n, 3) - 7 * n).to(dtype) for n in range(1, 21)]
    ran = run_any(record("aten.cat.default", (parts,)), "webgpu:native")
    assert ran.right and torch.equal(ran.out, torch.cat(parts)), ran.verdict.explanation
    plan = ran.artifact.plan
    assert len(set(plan.parameters)) == 1 and len(set(plan.offsets)) == 20
    assert all(len(kernel.pointers) <= 8 for kernel in plan.kernels.values())
    size = plan.buffers[plan.parameters[0]].itemsize
    assert plan.parameter_offsets == tuple(size * n for n in plan.offsets)


def test_twenty_tensors_of_six_dtypes() -> None:
    dtypes = (torch.float32, torch.int32, torch.int8, torch.bool, torch.float16, torch.int64)
    parts = [(torch.arange(6).reshape(2, 3) % 2 + n).to(dtypes[n % 6]) for n in range(20)]
    ran = run_any(record("aten.cat.default", (parts, 1)), "webgpu:native")
    assert ran.right and torch.equal(ran.out, torch.cat(parts, 1)), ran.verdict.explanation
    assert len(set(ran.artifact.plan.parameters)) == 6


def test_shared_parameters_may_be_strided() -> None:
    parts = [torch.arange(24.0).reshape(4, 6)[:, n % 3 :: 2].t()[: n % 2 + 1] for n in range(12)]
    ran = run_any(record("aten.cat.default", (parts, 0)), "webgpu:native")
    assert ran.right and ran.artifact.plan.offsets, ran.verdict.explanation


def test_nothing_is_shared_where_there_is_room() -> None:
    plan = build(record("aten.cat.default", ([torch.ones(2)] * 6,)), "webgpu:native").plan
    assert plan.offsets == () and len(set(plan.parameters)) == 6
    inputs = [te.placeholder((4,), "float32", name=f"x{i}") for i in range(3)]
    out = te.compute((4,), lambda i: inputs[0][i] + inputs[1][i] + inputs[2][i], name="out")
    function = te.create_prim_func([*inputs, out])
    plan = Plan((Buffer((4,), "float32"),) * 4, (0, 1, 2), (Step("f", (0, 1, 2, 3)),), (3,), ((0,),))
    functions = {"f": function}
    assert pack_parameters(functions, plan, 4) == (functions, plan)
    packed, smaller = pack_parameters(functions, plan, 3)
    assert len(packed["f"].params) == 2 and smaller.offsets == (0, 4, 8)


# -- limits -----------------------------------------------------------------------------------------------------------


def plan_with(step: Step | None = None, buffer: Buffer | None = None, **of_kernel: Any) -> Plan:
    kernel = replace(Kernel("k", "k.x", ("float32",), (True,)), **of_kernel)
    return Plan(
        (buffer or Buffer((4,), "float32"),),
        (),
        (step or Step("k", (0,)),),
        (0,),
        ((0,),),
        {"k": kernel},
    )


LIMITS = Limits(
    threads=256,
    block=(256, 256, 64),
    blocks=(65535, 65535, 65535),
    shared_bytes=16384,
    buffers=8,
    binding_bytes=1 << 20,
    buffer_bytes=1 << 22,
    argument_bytes=96,
    iterations=65535,
    names={"threads": "maxThreads", "blocks": ("max.x", "max.y", "max.z"), "buffer_bytes": "max_alloc"},
)
EXCEEDED: dict[str, tuple[Plan, str]] = {
    "threads": (plan_with(block=(32, 16, 1)), "kernel k needs maxThreads of 512, some:device has 256"),
    "depth": (plan_with(block=(1, 1, 65)), "kernel k needs thread count along z of 65, some:device has 64"),
    "blocks": (plan_with(Step("k", (0,), (), (1, 65536, 1))), "kernel k needs max.y of 65,536, some:device has 65,535"),
    "declared": (
        plan_with(declared=16385),
        "kernel k needs shared memory size (bytes) of 16,385, some:device has 16,384",
    ),
    "shared": (
        plan_with(declared=16000, shared=400),
        "kernel k needs shared memory size (bytes) of 16,400, some:device has 16,384",
    ),
    "buffers": (plan_with(pointers=("float32",) * 9), "kernel k needs storage buffer count of 9, some:device has 8"),
    "bytes": (
        plan_with(buffer=Buffer((1 << 18, 2), "float32")),
        "a buffer of float32 [262144, 2] needs storage buffer size (bytes) of 2,097,152, some:device has 1,048,576",
    ),
    "bytes of what is not bound": (
        replace(plan_with(buffer=Buffer((1 << 20, 2), "float32")), steps=()),
        "a buffer of float32 [1048576, 2] needs max_alloc of 8,388,608, some:device has 4,194,304",
    ),
    "arguments": (
        plan_with(pointers=("float32",) * 8, scalars=("int32",) * 5),
        "kernel k needs argument size (bytes) of 104, some:device has 96",
    ),
    "iterations": (
        plan_with(iterations=65536),
        "kernel k needs loop iteration count of 65,536, some:device has 65,535",
    ),
}


@pytest.mark.parametrize("what", EXCEEDED)
def test_a_limit_is_refused_by_name(what: str) -> None:
    plan, message = EXCEEDED[what]
    with pytest.raises(UnsupportedError, match=f"^{re.escape(message)}$"):
        check(plan, LIMITS, "some:device")


def test_what_is_just_within_the_limits_is_taken() -> None:
    step = Step("k", (0,), (), (65535, 65535, 65535))
    at_most = plan_with(step, Buffer((1 << 18,), "float32"), block=(4, 1, 64), declared=16384, pointers=("float32",) * 8,
                        iterations=65535)  # fmt: skip
    check(at_most, LIMITS, "some:device")


# -- launches ---------------------------------------------------------------------------------------------------------


@T.prim_func(private=True, s_tir=True)
def computes_on_the_host(x: T.Buffer((4,), "float32"), y: T.Buffer((4,), "float32")) -> None:  # type: ignore[valid-type]
    for i in range(4):
        y[i] = x[i] + T.float32(1)


def test_work_on_the_host_is_refused() -> None:
    plan = Plan((Buffer((4,), "float32"),) * 2, (0,), (Step("f", (0, 1)),), (1,), ((0,),))
    with pytest.raises(UnsupportedError, match="a part of this operator would run on the host"):
        expand(plan, {"f": computes_on_the_host}, {})


def test_an_operator_of_several_kernels_has_workspace_between_them() -> None:
    x = te.placeholder((3, 1000), "float32", name="x")
    along = te.reduce_axis((0, 1000), name="k")
    total = te.compute((3,), lambda i: te.sum(x[i, along], axis=along), name="total")
    out = te.compute((3, 1000), lambda i, j: x[i, j] / tirx.sqrt(total[i]), name="out")
    plan, files = written("opencl", [x], [out])
    assert len(plan.steps) == 2 == len(files) and len(plan.buffers) == 3
    assert plan.steps[0].buffers[0] in plan.steps[1].buffers
    rows = numpy.arange(1, 3001, dtype=numpy.float32).reshape(3, 1000)
    (found,) = execute("opencl:pocl", (plan, files), rows)
    assert numpy.allclose(found, rows / numpy.sqrt(rows.sum(1, keepdims=True)), rtol=1e-5)


# -- loops written by hand --------------------------------------------------------------------------------------------


@T.prim_func(private=True, s_tir=True)
def by_hand(x: T.Buffer((300,), "float32"), y: T.Buffer((300,), "float32")) -> None:  # type: ignore[valid-type]
    """Something beside, a parallel loop that does not begin at 0, and then a loop of one thread."""
    with T.sblock("scan"):
        T.reads(x[0:300])
        T.writes(y[0:300])
        y[0] = x[0]
        for i in T.parallel(1, 300):
            y[i] = x[i] * T.float32(2)
        for j in range(299):
            y[j + 1] = y[j + 1] + y[j]


@pytest.mark.parametrize("device", ["webgpu:native", "opencl:pocl", "metal:emulated"])
def test_loops_written_by_hand(device: str) -> None:
    made = generated(device.split(":")[0], by_hand, 1)
    assert (
        len(made[0].steps) == 3 and made[0].steps[1].grid[0] * made[0].kernels[made[0].steps[1].kernel].block[0] >= 299
    )
    values = numpy.arange(300, dtype=numpy.float32) % 7
    (found,) = execute(device, made, values)
    doubled = values * 2
    doubled[0] = values[0]
    assert numpy.array_equal(found, numpy.cumsum(doubled))


# -- iterations -------------------------------------------------------------------------------------------------------


@T.prim_func(private=True, s_tir=True)
def loops(x: T.Buffer((64,), "float32")) -> None:  # type: ignore[valid-type]
    for b in T.thread_binding(4, "blockIdx.x"):
        for t in T.thread_binding(16, "threadIdx.x"):
            for i in range(10):
                for j in range(7):
                    x[b] = x[t] + T.Cast("float32", i * j)
            if t < 3:
                for i in range(100):
                    x[b] = x[i]
            else:
                for i in range(20):
                    x[b] = x[i]


def test_iterations_of_a_thread() -> None:
    assert iterations(loops.body) == 10 + 10 * 7 + 100


@pytest.mark.parametrize("device", ["webgpu:native", "vulkan:lavapipe"])
def test_a_thread_that_loops_too_long_is_refused_on_llvmpipe(device: str) -> None:
    _, opened_device = opened(device)
    call = record("aten.cumsum.default", (torch.ones(70_001), 0))
    artifact = build(call, device)
    longest = max(kernel.iterations for kernel in artifact.plan.kernels.values())
    assert longest >= 70_000
    if "llvmpipe" in str(opened_device.info.to_json()):
        with pytest.raises(UnsupportedError, match=rf"needs loop iteration count of [\d,]+, {device} has 65,535$"):
            opened_device.load(artifact, call.signature)


def test_source_begins_with_its_directives() -> None:
    x = te.placeholder((4,), "float16", name="x")
    out = te.compute((4,), lambda i: tirx.Cast("float16", tirx.tanh(tirx.Cast("float32", x[i]))), name="out")
    source = text(written("webgpu", [x], [out]))
    assert source.index("enable f16") < source.index("fn tapml_tanh") < source.index("@compute")
