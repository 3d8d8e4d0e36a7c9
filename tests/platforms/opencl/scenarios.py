"""What every runner of OpenCL C has to do: tests of opencl and of vulkan, with a fixture ``runner`` of their own."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from typing import Any

import numpy
import pytest
from tvm import te, tirx

from tapml.errors import CompileError, DeviceError, UnsupportedError
from tapml.kernels.runner import Input
from tests.platforms.opencl.kernels import centred, elementwise, given, make, matmul, row_sums, with_block, written

rng = numpy.random.default_rng(0)


class Scenarios:
    """``runner`` is an open device, shared by all; ``threads`` the name of its limit of threads in a block."""

    threads = ""
    buffer_limit = ""

    def test_elementwise(self, runner: Any) -> None:
        a = rng.standard_normal(1000, numpy.float32)
        out = elementwise("exp", 1000, "float32", te.exp).on(runner, a)
        numpy.testing.assert_allclose(out, numpy.exp(a.astype("float64")), rtol=2e-7)

    def test_products_and_sums_are_rounded_one_by_one(self, runner: Any) -> None:
        a, b, c = (rng.standard_normal(4096, numpy.float32) for _ in range(3))
        pa, pb, pc = (te.placeholder((4096,), "float32", name=n) for n in "ABC")
        made = make("muladd", pa, pb, pc, te.compute((4096,), lambda i: pa[i] * pb[i] + pc[i], name="D"))
        assert numpy.array_equal(made.on(runner, a, b, c), a * b + c)

    def test_reduction_with_barriers(self, runner: Any) -> None:
        a = rng.standard_normal((37, 1000), numpy.float32)
        made = row_sums(37, 1000)
        assert b"barrier" in made.source and b"__local" in made.source
        numpy.testing.assert_allclose(made.on(runner, a), a.astype("float64").sum(1), atol=2e-5)

    def test_tiled_product(self, runner: Any) -> None:
        a, b = rng.standard_normal((128, 96), numpy.float32), rng.standard_normal((96, 160), numpy.float32)
        made = matmul(128, 160, 96)
        assert b"__local" in made.source
        numpy.testing.assert_allclose(made.on(runner, a, b), a.astype("float64") @ b, atol=2e-5)

    @pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "int32", "int64"])
    def test_integers(self, runner: Any, dtype: str) -> None:
        a = rng.integers(-100, 100, 301).astype(dtype)
        made = elementwise("integers", 301, dtype, lambda v: v * tirx.const(3, dtype) + tirx.const(7, dtype))
        assert numpy.array_equal(made.on(runner, a), a * numpy.dtype(dtype).type(3) + numpy.dtype(dtype).type(7))

    def test_int64_beyond_32_bits(self, runner: Any) -> None:
        a = rng.integers(-(1 << 60), 1 << 60, 100)
        out = elementwise("wide", 100, "int64", lambda v: v + tirx.const(1 << 40, "int64")).on(runner, a)
        assert numpy.array_equal(out, a + (1 << 40))

    def test_two_kernels_with_a_workspace(self, runner: Any) -> None:
        a = rng.standard_normal((30, 200), numpy.float32)
        loaded = runner.load(*centred(30, 200))
        for factor in (1, 2, 3):  # the second run uses the buffers of the first
            ran = loaded.run(given(a * factor))
            want = factor * (a - a.astype("float64").mean(1, keepdims=True))
            numpy.testing.assert_allclose(ran.outputs[2].view("float32").reshape(30, 200), want, atol=2e-6)
            assert ran.launches == 2 and 0 < ran.seconds < 60 and set(ran.outputs) == {2}

    def test_several_plans_side_by_side(self, runner: Any) -> None:
        a = rng.standard_normal(256, numpy.float32)
        loaded = [
            runner.load(*elementwise(f"plus{c}", 256, "float32", lambda v, c=c: v + tirx.const(c, "float32")).plan())
            for c in (1, 2, 3)
        ]
        for _ in range(2):
            for c, plan in enumerate(loaded, 1):
                out = plan.run(given(a)).outputs[1].view("float32")
                assert numpy.array_equal(out, a + numpy.float32(c))

    def test_what_no_kernel_writes_is_poison(self, runner: Any) -> None:
        made = written("if (i % 2 == 0) B[i] = A[i];")
        plan, files = made.plan()
        loaded = runner.load(plan, files)
        full = runner.load(*written("B[i] = A[i];").plan())
        for _ in range(2):
            full.run(given(numpy.ones(64, "float32")))  # leaves its result in a buffer that is used again
            out = loaded.run(given(numpy.arange(64, dtype="float32"))).outputs[1]
            assert numpy.array_equal(out.view("float32")[::2], numpy.arange(0, 64, 2))
            assert (out.view("uint32")[1::2] == 0xFFFFFFFF).all()

    def test_poison_covers_sizes_that_are_no_multiple_of_four(self, runner: Any) -> None:
        made = elementwise("bytes", 7, "int8", lambda v: v)
        plan, files = made.plan()
        untouched = replace(plan, results=(2,), buffers=(*plan.buffers, replace(plan.buffers[1], shape=(5,))))
        out = runner.load(untouched, files).run(given(numpy.arange(7, dtype="int8"))).outputs[2]
        assert out.tobytes() == b"\xff" * 5

    def test_parameters_that_a_kernel_writes_are_what_they_were(self, runner: Any) -> None:
        made = written("B[i] = A[i]; A[i] = 9;")
        plan, files = replace(made, kernel=replace(made.kernel, writes=(True, True))).plan()
        loaded, a = runner.load(plan, files), numpy.arange(64, dtype="float32")
        for _ in range(2):
            out = loaded.run({0: Input(a.view("uint8"), "a parameter that is overwritten")}).outputs[1]
            assert numpy.array_equal(out.view("float32"), numpy.arange(64)) and a[3] == 3

    def test_keyed_inputs_are_uploaded_once(self, runner: Any) -> None:
        loaded = runner.load(*matmul(64, 64, 64).plan())
        weight, before = rng.standard_normal((64, 64), numpy.float32), runner.uploads
        for _ in range(3):
            a = rng.standard_normal((64, 64), numpy.float32)
            inputs = given(a, weight)
            ran = loaded.run({0: inputs[0], 1: replace(inputs[1], key=f"weight of {type(self).__name__}")})
            out = ran.outputs[2].view("float32").reshape(64, 64)
            numpy.testing.assert_allclose(out, a.astype("float64") @ weight, atol=2e-5)
        assert runner.uploads - before == 4

    def test_a_parameter_of_another_size_is_refused(self, runner: Any) -> None:
        loaded = runner.load(*elementwise("abs", 64, "float32", te.abs).plan())
        with pytest.raises(DeviceError, match="parameter 0: expected 256 bytes, found 128"):
            loaded.run(given(numpy.ones(32, "float32")))

    def test_too_many_threads_are_refused(self, runner: Any) -> None:
        made = with_block(written("B[i] = A[i];"), (1 << 12, 16, 1))
        with pytest.raises(UnsupportedError, match=rf"by_hand needs {self.threads} of 65,536, .* has \d"):
            runner.load(*made.plan())

    def test_too_large_a_buffer_is_refused(self, runner: Any) -> None:
        with pytest.raises(UnsupportedError, match=f"needs {self.buffer_limit} of 4,398,046,511,104"):
            runner.load(*written("B[i] = A[i];", 1 << 40).plan())

    def test_the_compilers_words_are_in_the_error(self, runner: Any, capfd: pytest.CaptureFixture[str]) -> None:
        with pytest.raises(CompileError, match=r"source:1:\d+: .*undeclared identifier 'nonsense'"):
            runner.load(*written("B[i] = nonsense;").plan())
        assert "error" not in capfd.readouterr().err

    def test_another_entry_point_is_an_error(self, runner: Any) -> None:
        made = written("B[i] = A[i];")
        other = replace(made, kernel=replace(made.kernel, name="other"))
        with pytest.raises(CompileError, match=r"expected an entry point other in by_hand\.cl, found by_hand"):
            runner.load(*other.plan())

    def test_an_unused_argument(self, runner: Any) -> None:
        made = written("C[i] = B[i];", dtypes=("float32", "float32", "float32"))
        a = numpy.arange(64, dtype="float32")
        assert numpy.array_equal(made.on(runner, -a, a), a)

    def test_scalar_arguments(self, runner: Any) -> None:
        made = written("B[i] = A[i] * x + n;")
        source = made.source.replace(b"B)", b"B, float x, int n)")
        plan, _ = made.plan()
        kernel = replace(made.kernel, scalars=("float32", "int32"))
        step = replace(plan.steps[0], scalars=(0.5, 7))
        plan = replace(plan, kernels={"by_hand": kernel}, steps=(step,))
        a = numpy.arange(64, dtype="float32")
        out = runner.load(plan, {"by_hand.cl": source}).run(given(a)).outputs[1].view("float32")
        assert numpy.array_equal(out, a / 2 + 7)

    def test_a_closed_device_says_so(self, another: Any) -> None:
        loaded = another.load(*elementwise("neg", 64, "float32", lambda v: -v).plan())
        loaded.run(given(numpy.ones(64, "float32")))
        another.close()
        with pytest.raises(DeviceError, match="expected an open device, found one that was closed"):
            loaded.run(given(numpy.ones(64, "float32")))
        another.close()


ENDLESS = """
import numpy, time
from tapml.errors import DeviceError
from tapml.platforms.{platform}.driver import {runner}
from dataclasses import replace
from tests.platforms.opencl.kernels import given, written
runner = {runner}("{device}", timeout=1.0)
body = "for (;;) {{ ((volatile __global float*)B)[i & 63] += ((volatile __global float*)A)[i & 63]; "
body += "if (((volatile __global float*)A)[i & 63] < 0) break; }}"
plan = runner.load(*replace(written(body), grid=(65535, 1, 1)).plan())  # lavapipe leaves each loop, but not soon
start = time.monotonic()
try:
    plan.run(given(numpy.ones(64, "float32")))
except DeviceError as error:
    print(error, 0.9 < time.monotonic() - start < 10, flush=True)
try:
    plan.run(given(numpy.ones(64, "float32")))
except DeviceError as error:
    print(error, flush=True)
runner.close()
print("closed", flush=True)
"""


def endless(platform: str, runner: str, device: str) -> list[str]:
    """What a process says that launches a kernel which never ends; it is killed then, for drivers wait at exit."""
    code = ENDLESS.format(platform=platform, runner=runner, device=device)
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        with process.stdout:
            return [process.stdout.readline().strip() for _ in range(3)]
    finally:
        process.kill()
        process.wait()
