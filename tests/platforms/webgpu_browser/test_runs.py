"""What a browser computes, and what it says when it cannot."""

from __future__ import annotations

from dataclasses import replace

import numpy
import pytest

from tapml.errors import CompileError, DeviceError, UnsupportedError
from tapml.kernels.plan import Buffer, Plan, Step
from tapml.kernels.runner import POISON, Input
from tapml.platforms.webgpu.browser.client import BrowserRunner
from tests.platforms.webgpu_browser.kernels import (
    DOUBLE,
    blocks,
    elementwise,
    emitted_by_tvm,
    floats,
    kernel,
    ones,
    run,
    wgsl,
)


def test_the_device_says_what_it_is(runner: BrowserRunner) -> None:
    assert runner.name == "chromium" and runner.adapter["vendor"]
    assert runner.limits["maxComputeInvocationsPerWorkgroup"] >= 256
    assert set(runner.features) <= {"shader-f16", "subgroups", "timestamp-query"}


@pytest.mark.parametrize("count", [1, 3, 300, 100_000])
def test_elementwise(runner: BrowserRunner, count: int) -> None:
    values = numpy.linspace(-3, 3, count, dtype=numpy.float32)
    out, ran = run(runner.load(*elementwise(DOUBLE, count)), values)
    numpy.testing.assert_allclose(out, values * 2 + 1, rtol=1e-6)
    assert ran.launches == 1 and 0 < ran.seconds < 5


def test_two_steps_by_way_of_a_workspace(runner: BrowserRunner) -> None:
    """Scalars are those of each launch, a parameter may be bound twice to read, and results come by buffer index."""
    first, second = (
        wgsl("first", (False, False, True), "if (i < 100) { b2[i] = b0[i] + b1[i]; }"),
        wgsl(
            "second",
            (False, True),
            "if (i < 100) { b1[i] = b0[i] * podArgs.s1 + f32(podArgs.s0); }",
            ("i32", "f32"),
        ),
    )
    plan = Plan(
        (floats(100), floats(100), floats(100), floats(100)),
        (2,),
        (
            Step("first", (2, 2, 0), (), blocks(100)),
            Step("second", (0, 3), (-7, 0.5), blocks(100)),
            Step("second", (3, 1), (1, 10.0), blocks(100)),
        ),
        (1, None, 3),
        ((0,), None, (0,)),
        {
            "first": kernel("first", (False, False, True)),
            "second": kernel("second", (False, True), ("int32", "float32")),
        },
    )
    loaded = runner.load(plan, {"first": first, "second": second})
    values = numpy.arange(100, dtype=numpy.float32)
    ran = loaded.run({2: Input(values.view(numpy.uint8))})
    assert ran.launches == 3 and set(ran.outputs) == {1, 3}
    numpy.testing.assert_array_equal(ran.outputs[3].view(numpy.float32), values - 7)
    numpy.testing.assert_array_equal(ran.outputs[1].view(numpy.float32), (values - 7) * 10 + 1)


def test_what_no_kernel_writes_is_poison(runner: BrowserRunner) -> None:
    """Also in memory that an earlier run has written to."""
    every, _ = run(runner.load(*elementwise(DOUBLE, 256)), ones(256))
    assert (every == 3).all()
    half = runner.load(*elementwise("if (i % 2 == 0) { b1[i] = b0[i]; }", 256))
    out, _ = run(half, ones(256))
    assert (out[::2] == 1).all()
    assert (out.view(numpy.uint8).reshape(-1, 4)[1::2] == POISON).all()


def test_a_workspace_is_poison_too(runner: BrowserRunner) -> None:
    plan = Plan(
        (floats(2_000_000), floats(2_000_000)),
        (),
        (Step("copy", (0, 1), (), blocks(2_000_000)),),
        (1,),
        ((0,),),
        {"copy": kernel("copy", (False, True))},
    )
    code = wgsl("copy", (False, True), "b1[i] = bitcast<f32>(bitcast<u32>(b0[i]) - 0x80000000u);")
    ran = runner.load(plan, {"copy": code}).run({})
    assert set(ran.outputs[1].view(numpy.uint32)) == {0x7FFFFFFF}


@pytest.mark.parametrize("count", [1, 70_000, 70_001, 65_536 * 2 + 1])
def test_more_blocks_than_an_axis_has(runner: BrowserRunner, count: int) -> None:
    """As TVM emits it, and with blocks left over by the folding that must not run: they would write out of bounds."""
    name, code = emitted_by_tvm(count, 4)
    values = numpy.arange(count * 4, dtype=numpy.float32)
    plan = Plan(
        (floats(count * 4), floats(count * 4)),
        (0,),
        (Step(name, (0, 1), (), (count, 1, 1)),),
        (1,),
        ((0,),),
        {name: kernel(name, (False, True))},
    )
    out, _ = run(runner.load(plan, {name: code.encode()}), values)
    numpy.testing.assert_array_equal(out, values * 2 + 1)


def test_the_last_block_that_runs_is_the_last_one_asked_for(runner: BrowserRunner) -> None:
    """TVM's check alone lets one block too many run: here it would write beside the others."""
    blocks_ = 65_537  # folds into 2 x 32,769: one left over
    plan = Plan(
        (floats(blocks_ + 1),),
        (),
        (Step("mark", (0,), (), (blocks_, 1, 1)),),
        (0,),
        ((0,),),
        {"mark": kernel("mark", (True,))},
    )
    ran = runner.load(plan, {"mark": wgsl("mark", (True,), "b0[v__1] = 1.0;")}).run({})
    out = ran.outputs[0].view(numpy.float32)
    assert (out[:-1] == 1).all() and numpy.isnan(out[-1])


def test_a_parameter_keeps_its_bytes(runner: BrowserRunner) -> None:
    plan = Plan(
        (floats(64),), (0,), (Step("add", (0,), (), (1, 1, 1)),), (0,), ((0,),), {"add": kernel("add", (True,))}
    )
    loaded = runner.load(plan, {"add": wgsl("add", (True,), "b0[i] = b0[i] + 1.0;")})
    for _ in range(3):
        out, _ = run(loaded, ones(64), key="weights")
        assert (out == 2).all()


def test_odd_bytes(runner: BrowserRunner) -> None:
    """Three elements of 16 bits: what is sent and bound is a multiple of four bytes, what comes back is not."""
    half = Buffer((3,), "float16")
    plan = Plan((half,), (0,), (), (0,), ((0,),))
    data = numpy.arange(6, dtype=numpy.uint8)
    ran = runner.load(plan, {}).run({0: Input(data)})
    numpy.testing.assert_array_equal(ran.outputs[0], data)
    assert ran.launches == 0


def test_a_compile_error_has_the_line(runner: BrowserRunner) -> None:
    plan, files = elementwise("b1[i] = no_such_function(b0[i]);", 8, "wrong")
    line = next(n for n, text in enumerate(files["wrong"].decode().splitlines(), 1) if "no_such_function" in text)
    with pytest.raises(CompileError, match=rf"kernel wrong, line {line}:\d+: .*no_such_function"):
        runner.load(plan, files)


def test_a_kernel_that_does_not_fit_its_description_is_a_compile_error(runner: BrowserRunner) -> None:
    plan, files = elementwise(DOUBLE, 8)
    with pytest.raises(CompileError, match="main_kernel"):
        runner.load(plan, {"main_kernel": files["main_kernel"].replace(b"main_kernel(", b"another_name(")})
    with pytest.raises(CompileError, match="binding"):
        runner.load(plan, {"main_kernel": files["main_kernel"].replace(b"storage, read>", b"storage, read_write>")})


def test_what_is_beyond_the_limits_is_unsupported(runner: BrowserRunner) -> None:
    plan, files = elementwise(DOUBLE, 8)
    huge = Plan((floats(1 << 31), floats(8)), plan.parameters, plan.steps, plan.results, plan.orders, plan.kernels)
    with pytest.raises(
        UnsupportedError, match=r"a buffer of float32 .* needs max\w+Size of 8,589,934,592, chromium has"
    ):
        runner.load(huge, files)
    (step,) = plan.steps
    for grid in ((1, 70_000, 1), (70_000, 1, 2), (1, 1, 70_000)):
        steps = (Step(step.kernel, step.buffers, (), grid),)
        with pytest.raises(
            UnsupportedError, match="needs maxComputeWorkgroupsPerDimension of 70,000, chromium has 65,535"
        ):
            runner.load(Plan(plan.buffers, plan.parameters, steps, plan.results, plan.orders, plan.kernels), files)


def test_loops_that_llvmpipe_would_leave_are_unsupported(
    runner: BrowserRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, files = elementwise(DOUBLE, 8, "long")
    for times, fits in ((65_535, True), (65_536, False)):
        kernels = {"long": replace(plan.kernels["long"], iterations=times)}
        runner.load(replace(plan, kernels=kernels), files)  # another driver has no such limit
        with monkeypatch.context() as patch:
            patch.setattr(runner, "adapter", {**runner.adapter, "description": "llvmpipe (LLVM 15.0.6, 256 bits)"})
            if fits:
                runner.load(replace(plan, kernels=kernels), files)
            else:
                with pytest.raises(UnsupportedError, match="needs loop iteration count of 65,536, chromium has 65,535"):
                    runner.load(replace(plan, kernels=kernels), files)


def test_an_input_of_the_wrong_size(runner: BrowserRunner) -> None:
    with pytest.raises(DeviceError, match="expected 32 bytes for buffer 0, found 36"):
        run(runner.load(*elementwise(DOUBLE, 8)), ones(9))


def test_named_inputs_are_sent_once(runner: BrowserRunner) -> None:
    loaded = runner.load(*elementwise(DOUBLE, 1000))
    before = runner.uploaded
    for _ in range(3):
        out, _ = run(loaded, ones(1000), key="the same")
        assert (out == 3).all()
    assert runner.uploaded - before == 4000
    run(runner.load(*elementwise(DOUBLE, 1000, "another")), ones(1000), key="the same")
    assert runner.uploaded - before == 4000
    for _ in range(2):
        run(loaded, ones(1000))
    assert runner.uploaded - before == 12000
