"""Kernels that a model needed and that once could not be written, or ended their compiler."""

from __future__ import annotations

import numpy
import pytest
from tvm import te, tirx

from tests.kernels.making import execute, written


@pytest.mark.parametrize("device", ["webgpu:native", "vulkan:lavapipe", "opencl:pocl"])
def test_rows_of_as_many_tiles_as_a_block_has_threads(device: str) -> None:
    """TVM's FlattenBuffer divides by zero over indices that were not simplified."""
    rng = numpy.random.default_rng(0)
    a, b = rng.normal(size=(24, 64)).astype(numpy.float32), rng.normal(size=(256, 64)).astype(numpy.float32)
    x, y = te.placeholder((24, 64), "float32", name="x"), te.placeholder((256, 64), "float32", name="y")
    k = te.reduce_axis((0, 64), "k")
    product = te.compute((24, 256), lambda i, j: te.sum(x[i, k] * y[j, k], k), name="product")
    (found,) = execute(device, written(device.partition(":")[0], [x, y], [product]), a, b)
    assert numpy.allclose(found, a @ b.T, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("device", ["vulkan:lavapipe", "opencl:pocl", "cuda:emulated"])
@pytest.mark.parametrize("dtype", ["int64", "int32", "float32"])
def test_double_from_other_numbers(device: str, dtype: str) -> None:
    """pyclspv crashes over ``convert_double`` of an integer."""
    values = numpy.array([0, 1, -3, 2**24 - 1], dtype)
    x = te.placeholder((4,), dtype, name="x")
    wide = te.compute((4,), lambda i: tirx.Cast("float64", x[i]), name="wide")
    (found,) = execute(device, written(device.partition(":")[0], [x], [wide]), values)
    assert found.dtype == numpy.float64 and numpy.array_equal(found, values.astype(numpy.float64))
