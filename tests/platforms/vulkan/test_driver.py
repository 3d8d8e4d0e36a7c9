"""Plans on lavapipe: Vulkan on this machine's CPU."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy
import pytest
from tvm import te

from tapml.errors import CompileError, DeviceError, UnsupportedError
from tests.platforms.opencl.kernels import Made, elementwise, given, written
from tests.platforms.opencl.scenarios import Scenarios, endless

pytest.importorskip(
    "vulkan", reason="the Python package vulkan, or libvulkan.so.1, is not installed", exc_type=Exception
)
from tapml.platforms.vulkan.clspv import compile_spirv, find_clspv
from tapml.platforms.vulkan.devices import VALIDATION, list_devices
from tapml.platforms.vulkan.driver import VulkanRunner

LAVAPIPE = next((d for d in list_devices() if d.name == "vulkan:lavapipe"), None)
needs_lavapipe = pytest.mark.skipif(LAVAPIPE is None, reason="no lavapipe (Debian's mesa-vulkan-drivers)")
needs_clspv = pytest.mark.skipif(find_clspv() is None, reason="no clspv (pyclspv, or a program on the PATH)")
LAYER = Path("/usr/share/vulkan/explicit_layer.d/VkLayer_khronos_validation.json")


@pytest.fixture(scope="module")
def runner() -> Iterator[VulkanRunner]:
    opened = VulkanRunner("vulkan:lavapipe")
    yield opened
    opened.close()


@pytest.fixture
def another() -> VulkanRunner:
    return VulkanRunner("vulkan:lavapipe")


@needs_lavapipe
@needs_clspv
class TestLavapipe(Scenarios):
    threads = "maxComputeWorkGroupInvocations"
    buffer_limit = "maxStorageBufferRange"

    def test_fp16(self, runner: VulkanRunner) -> None:
        a = numpy.random.default_rng(0).standard_normal(777).astype("float16")
        out = elementwise("half", 777, "float16", lambda v: te.tanh(v) * v).on(runner, a)
        numpy.testing.assert_allclose(out, numpy.tanh(a.astype("float64")) * a, rtol=2e-3, atol=1e-6)

    def test_a_feature_that_is_not_there_is_named(self, runner: VulkanRunner, monkeypatch: pytest.MonkeyPatch) -> None:
        session = runner._session
        less = replace(session.adapter, features=session.adapter.features - {"shaderFloat16"})
        monkeypatch.setattr(session, "adapter", less)
        with pytest.raises(UnsupportedError, match=r"^adapter lacks shaderFloat16$"):
            runner.load(*elementwise("half", 64, "float16", te.abs).plan())

    def test_spirv_is_taken_as_it_is(self, runner: VulkanRunner) -> None:
        made = elementwise("neg", 64, "float32", lambda v: -v)
        compiled = replace(made, source=compile_spirv(made.source.decode()))
        assert (compiled.on(runner, numpy.ones(64, "float32")) == -1).all()

    def test_too_much_shared_memory_is_refused(self, runner: VulkanRunner) -> None:
        body = "__local float s[1 << 14]; s[i] = A[i]; barrier(CLK_LOCAL_MEM_FENCE); B[i] = s[63 - i];"
        with pytest.raises(UnsupportedError, match=r"needs maxComputeSharedMemorySize of 65,536, .* has 32,768"):
            runner.load(*written(body).plan())

    def test_too_many_buffers_are_refused(self, runner: VulkanRunner) -> None:
        dtypes = ("float32",) * 33
        names = [f"P{i}" for i in range(33)]
        made = written("", dtypes=dtypes)
        arguments = ", ".join(f"__global float* restrict {n}" for n in names)
        body = f"int i = get_global_id(0); P32[i] = {' + '.join(f'{n}[i]' for n in names[:32])};"
        made = replace(made, source=f"__kernel void by_hand({arguments}) {{ {body} }}\n".encode())
        with pytest.raises(UnsupportedError, match=r"maxPerStageDescriptorStorageBuffers of 33, .* has 32"):
            runner.load(*made.plan())

    def test_too_many_blocks_are_refused(self, runner: VulkanRunner) -> None:
        made = replace(written("B[0] = A[0];"), grid=(65_536, 1, 1))
        with pytest.raises(UnsupportedError, match=r"maxComputeWorkGroupCount\.x of 65,536, .* has 65,535"):
            runner.load(*made.plan())

    def test_too_long_a_side_of_a_block_is_refused(self, runner: VulkanRunner) -> None:
        session = runner._session
        limit = session.adapter.limits.block[2]
        assert limit is not None
        made = written("B[i] = A[i];")
        made = replace(made, kernel=replace(made.kernel, block=(1, 1, limit + 1)))
        with pytest.raises(UnsupportedError, match=r"maxComputeWorkGroup(Size\.z|Invocations)"):
            runner.load(*made.plan())

    def test_loops_that_lavapipe_would_leave_are_refused(self, runner: VulkanRunner) -> None:
        def rounds(n: int) -> Made:
            body = f"int s = 0; for (int k = 0; k < {n}; ++k) {{ s += A[(k * 7 + i) & 63]; }} B[i] = s;"
            made = written(body, dtypes=("int32", "int32"))
            return replace(made, kernel=replace(made.kernel, iterations=n))

        assert (rounds(65_535).on(runner, numpy.ones(64, "int32")) == 65_535).all()
        with pytest.raises(UnsupportedError, match=r"by_hand needs loop iteration count of 65,536, .* has 65,535"):
            runner.load(*rounds(65_536).plan())

    def test_a_file_that_is_no_module(self, runner: VulkanRunner) -> None:
        made = replace(written("B[i] = A[i];"), source=b"\x03\x02\x23\x07" + bytes(30))
        with pytest.raises(CompileError, match="SPIR-V"):
            runner.load(*made.plan())

    def test_warm_runs_are_quick(self, runner: VulkanRunner) -> None:
        loaded = runner.load(*elementwise("quick", 100, "float32", lambda v: v + 1).plan())
        inputs, took = given(numpy.ones(100, "float32")), []
        for _ in range(200):
            start = time.perf_counter()
            ran = loaded.run(inputs)
            took.append(time.perf_counter() - start - ran.seconds)
        assert sorted(took)[20] < 1e-3  # the fastest tenth: 0.06 ms on an idle machine

    def test_plans_that_are_collected_leave_nothing(self, runner: VulkanRunner) -> None:
        owners = len(runner._session.owners)
        loaded = runner.load(*elementwise("gone", 64, "float32", te.abs).plan())
        loaded.run(given(numpy.ones(64, "float32")))
        assert len(runner._session.owners) == owners + 1
        del loaded
        assert len(runner._session.owners) == owners

    def test_many_sets_of_buffers(self, runner: VulkanRunner) -> None:
        """Each key is another buffer, so another recording, of which a plan keeps 64."""
        loaded = runner.load(*elementwise("many", 64, "float32", lambda v: v + 1).plan())
        for turn in range(2):
            for i in range(70):
                inputs = given(numpy.full(64, i, "float32"))
                ran = loaded.run({0: replace(inputs[0], key=f"many {i}")})
                assert (ran.outputs[1].view("float32") == i + 1).all(), (turn, i)

    def test_a_plan_outlives_the_name_of_its_runner(self) -> None:
        loaded = VulkanRunner("vulkan:lavapipe").load(*elementwise("alone", 64, "float32", te.abs).plan())
        assert (loaded.run(given(-numpy.ones(64, "float32"))).outputs[1].view("float32") == 1).all()


@needs_lavapipe
def test_the_device_says_what_it_is() -> None:
    assert LAVAPIPE is not None and LAVAPIPE.mode == "native" and "software driver on the CPU" in LAVAPIPE.description
    assert "Mesa" in LAVAPIPE.details["driver"] and "shaderInt64" in LAVAPIPE.details["features"]
    assert VulkanRunner(len(list_devices()) - 1).info == list_devices()[-1]


def test_software_comes_last() -> None:
    software = ["software" in d.description for d in list_devices()]
    assert software == sorted(software)


def test_a_device_that_is_not_here_is_an_error() -> None:
    with pytest.raises(DeviceError, match="expected Vulkan device 'vulkan:nowhere', found "):
        VulkanRunner("vulkan:nowhere")


@needs_lavapipe
@needs_clspv
def test_a_kernel_that_never_ends_times_out() -> None:
    first, second, third = endless("vulkan", "VulkanRunner", "vulkan:lavapipe")
    assert first == "vulkan:lavapipe: kernels did not finish within 1 s True"
    assert second == "vulkan:lavapipe: kernels did not finish within 1 s" and third == "closed"


@needs_lavapipe
@needs_clspv
@pytest.mark.skipif(not LAYER.exists(), reason="no validation layer (Debian's vulkan-validationlayers)")
def test_the_validation_layer_has_no_complaint() -> None:
    code = """
import numpy
from tapml.platforms.vulkan.driver import VulkanRunner
from tests.platforms.opencl.kernels import centred, elementwise, given
runner = VulkanRunner("vulkan:lavapipe")
for plan, files in (centred(10, 50), elementwise("bytes", 7, "int8", lambda v: v).plan()):
    loaded = runner.load(plan, files)
    for _ in range(2):
        loaded.run(given(numpy.zeros(plan.buffers[0].shape, plan.buffers[0].dtype)))
runner.close()
print("done")
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, VALIDATION: "1"}, check=True
    )
    assert done.stdout == "done\n" and "Validation" not in done.stderr
