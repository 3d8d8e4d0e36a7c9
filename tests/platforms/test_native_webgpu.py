"""The runner of wgpu, on plans by hand."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy
import pytest

from tapml.errors import DeviceError, UnsupportedError
from tapml.kernels.runner import Input
from tapml.platforms.webgpu import native
from tests.platforms.webgpu_browser.kernels import DOUBLE, elementwise, floats, kernel, ones, run, wgsl


@pytest.fixture(scope="module")
def runner() -> Iterator[native.WgpuRunner]:
    here = native.adapters()
    if not here:
        pytest.skip("wgpu finds no adapter")
    yield native.WgpuRunner(here[0])


def test_a_parameter_that_a_kernel_writes_is_what_it_was(runner: native.WgpuRunner) -> None:
    """Such a parameter is not kept by its key: the second run would begin with what the first one left."""
    plan, _ = elementwise(DOUBLE, 64)
    plan = replace(plan, kernels={"main_kernel": kernel("main_kernel", (True, True))})
    files = {"main_kernel": wgsl("main_kernel", (True, True), "b1[i] = b0[i] + 1.0; b0[i] = 9.0;")}
    loaded = runner.load(plan, files)
    for _ in range(2):
        out, _ = run(loaded, ones(64), key="overwritten")
        assert (out == 2).all()


def test_a_parameter_of_another_size_is_refused(runner: native.WgpuRunner) -> None:
    loaded = runner.load(*elementwise(DOUBLE, 8))
    with pytest.raises(DeviceError, match="parameter 0: expected 32 bytes, found 36"):
        loaded.run({0: Input(numpy.zeros(36, numpy.uint8))})
    out, _ = run(runner.load(*elementwise(DOUBLE, 8)), ones(8))
    assert (out == 3).all()


def test_limits_are_called_what_webgpu_calls_them(runner: native.WgpuRunner) -> None:
    plan, files = elementwise(DOUBLE, 8)
    with pytest.raises(
        UnsupportedError, match=r"needs maxStorageBufferBindingSize of 4,398,046,511,104, webgpu:native has"
    ):
        runner.load(replace(plan, buffers=(floats(1 << 40), floats(8))), files)
    large = {"main_kernel": replace(plan.kernels["main_kernel"], block=(1, 1, 1 << 20))}
    with pytest.raises(
        UnsupportedError, match=r"needs maxCompute(InvocationsPerWorkgroup|WorkgroupSizeZ) of 1,048,576"
    ):
        runner.load(replace(plan, kernels=large), files)
