"""Plans on PoCL: OpenCL on this machine's CPU."""

from __future__ import annotations

import os
from collections.abc import Iterator

import numpy
import pytest
from tvm import te

from tapml.errors import DeviceError, UnsupportedError
from tests.platforms.opencl.kernels import elementwise, given, written
from tests.platforms.opencl.scenarios import Scenarios, endless

pytest.importorskip("pyopencl", reason="pyopencl is not installed")
from tapml.platforms.opencl.devices import list_devices
from tapml.platforms.opencl.driver import OpenclRunner

POCL = next((d for d in list_devices() if d.name == "opencl:pocl"), None)
needs_pocl = pytest.mark.skipif(POCL is None, reason="no PoCL (Debian's pocl-opencl-icd)")


@pytest.fixture(scope="module")
def runner() -> Iterator[OpenclRunner]:
    opened = OpenclRunner("opencl:pocl")
    yield opened
    opened.close()


@pytest.fixture
def another() -> OpenclRunner:
    return OpenclRunner("opencl:pocl")


@needs_pocl
class TestPocl(Scenarios):
    threads = "max_work_group_size"
    buffer_limit = "max_mem_alloc_size"

    def test_fp16_is_refused_by_name(self, runner: OpenclRunner) -> None:
        if runner.info.details["fp16"] == "true":
            pytest.skip("this PoCL has fp16")
        with pytest.raises(UnsupportedError, match=r"^adapter lacks cl_khr_fp16$"):
            runner.load(*elementwise("half", 64, "float16", te.abs).plan())

    def test_too_much_shared_memory_is_refused(self, runner: OpenclRunner) -> None:
        body = "__local float s[1 << 22]; s[i] = A[i]; barrier(CLK_LOCAL_MEM_FENCE); B[i] = s[63 - i];"
        with pytest.raises(UnsupportedError, match=r"needs local_mem_size of 16,777,216, opencl:pocl has [\d,]+$"):
            runner.load(*written(body).plan())

    def test_kernels_are_cached_where_tapml_keeps_things(self, runner: OpenclRunner) -> None:
        assert os.environ["POCL_CACHE_DIR"]
        elementwise("cached", 64, "float32", te.abs).on(runner, numpy.ones(64, "float32"))
        assert os.listdir(os.environ["POCL_CACHE_DIR"])


@needs_pocl
def test_the_device_says_what_it_is() -> None:
    assert POCL is not None and POCL.mode == "native" and "software driver on the CPU" in POCL.description
    assert POCL.details["driver"].startswith("Portable Computing Language") and POCL.details["int64"] == "true"


def test_a_device_that_is_not_here_is_an_error() -> None:
    with pytest.raises(DeviceError, match="expected OpenCL device 'opencl:nowhere', found "):
        OpenclRunner("opencl:nowhere")


@needs_pocl
def test_a_kernel_that_never_ends_times_out() -> None:
    first, second, third = endless("opencl", "OpenclRunner", "opencl:pocl")
    assert first == "opencl:pocl: kernels did not finish within 1 s True"
    assert second == "opencl:pocl: kernels did not finish within 1 s" and third == "closed"


@needs_pocl
def test_inputs_beyond_the_budget_go(another: OpenclRunner) -> None:
    small = OpenclRunner("opencl:pocl", budget=300)
    loaded = small.load(*elementwise("abs", 64, "float32", te.abs).plan())
    data = given(numpy.ones(64, "float32"))[0]
    for key in ("a", "b", "a", "a"):
        loaded.run({0: type(data)(data.data, key)})
    assert small.uploads == 3
    small.close()
