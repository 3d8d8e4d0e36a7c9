"""Kernels that a model needed and that once could not be written, or ended their compiler."""

from __future__ import annotations

import re

import numpy
import pytest
from tvm import te, tirx

from tests.kernels.making import execute, text, written


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


def test_sums_begin_before_their_loops() -> None:
    """SwiftShader's compiler does not end over a condition for each of 16 sums, within three loops (a convolution)."""
    x, w = te.placeholder((3, 64, 64), "float32", name="x"), te.placeholder((64, 3, 16, 16), "float32", name="w")
    c, dy, dx = (te.reduce_axis((0, n), name) for n, name in ((3, "c"), (16, "dy"), (16, "dx")))
    patches = te.compute(
        (64, 4, 4),
        lambda o, i, j: te.sum(x[c, i * 16 + dy, j * 16 + dx] * w[o, c, dy, dx], (c, dy, dx)),
        name="patches",
    )
    source = text(written("webgpu", [x, w], [patches]))
    assert source.count("for (") >= 3 and "== 0i" not in source


def test_sums_of_conditional_loads_are_not_tiled() -> None:
    """SwiftShader's compiler does not end over sixteen conditions in a loop either (a depth-wise convolution, padded)."""
    x, w = te.placeholder((8, 16, 16), "float32", name="x"), te.placeholder((8, 7, 7), "float32", name="w")
    dy, dx = te.reduce_axis((0, 7), "dy"), te.reduce_axis((0, 7), "dx")

    def padded(c: object, i: object, j: object) -> object:
        inside = tirx.all(i >= 3, i < 19, j >= 3, j < 19)
        return tirx.if_then_else(inside, x[c, i - 3, j - 3], tirx.const(0, "float32"))

    convolved = te.compute(
        (8, 16, 16), lambda c, i, j: te.sum(padded(c, i + dy, j + dx) * w[c, dy, dx], (dy, dx)), name="convolved"
    )
    assert text(written("webgpu", [x, w], [convolved])).count("if (") <= 2


def test_largest_number_is_a_literal() -> None:
    """Tint takes 3.4028235e+38, the shortest text of the largest float32, for a number beyond it."""
    largest = float(numpy.finfo(numpy.float32).max)
    x = te.placeholder((4,), "float32", name="x")
    filled = te.compute((4,), lambda i: x[i] * 0 - tirx.const(largest, "float32"), name="filled")
    numbers = [float(n) for n in re.findall(r"\d\.\d+e\+38", text(written("webgpu", [x], [filled])))]
    assert numbers == [largest]
