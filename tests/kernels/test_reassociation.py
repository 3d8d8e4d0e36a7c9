"""Functions whose rounding errors are computed, on drivers that reassociate: Mesa takes (1 + x) - 1 for x."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy
import pytest
import torch
from numpy.typing import NDArray
from tvm import te, tirx

from tests.kernels.making import execute, written

POINTS = 4096
DEVICES = ("webgpu:native", "vulkan:lavapipe", "opencl:pocl", "metal:emulated")


def uniform(low: float, high: float) -> NDArray[numpy.float32]:
    return numpy.random.default_rng(0).uniform(low, high, POINTS).astype(numpy.float32)


def computed(device: str, function: Callable[..., Any], *arrays: NDArray[numpy.float32]) -> NDArray[numpy.float32]:
    inputs = [te.placeholder((POINTS,), "float32", name=f"x{i}") for i in range(len(arrays))]
    output = te.compute((POINTS,), lambda i: function(*(x[i] for x in inputs)), name="y")
    (found,) = execute(device, written(device.partition(":")[0], inputs, [output]), *arrays)
    return found


def ulp(found: NDArray[numpy.float32], exact: torch.Tensor) -> float:
    """The largest error in units of the last place of the exact results."""
    values = exact.numpy()
    return float(numpy.max(numpy.abs(found - values) / numpy.spacing(numpy.abs(values).astype(numpy.float32))))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    ("name", "low", "high"),
    [
        ("log1p", -1e-3, 1e-3),
        ("log1p", -0.9, 3.0),
        ("exp", -80.0, 80.0),
        ("sinh", -80.0, 80.0),
        ("sin", -1000.0, 1000.0),
    ],
)
def test_of_one_argument(device: str, name: str, low: float, high: float) -> None:
    x = uniform(low, high)
    exact = getattr(torch, name)(torch.from_numpy(x).double())
    assert ulp(computed(device, getattr(tirx, name), x), exact) < 8


@pytest.mark.parametrize("device", DEVICES)
def test_power(device: str) -> None:
    x, y = uniform(0.1, 20.0), uniform(-25.0, 25.0)[::-1].copy()
    exact = torch.pow(torch.from_numpy(x).double(), torch.from_numpy(y).double())
    assert ulp(computed(device, tirx.pow, x, y), exact) < 4


@pytest.mark.parametrize("device", DEVICES)
def test_remainder(device: str) -> None:
    x, y = uniform(-1e7, 1e7), uniform(0.3, 3.0)[::-1].copy()
    exact = torch.fmod(torch.from_numpy(x).double(), torch.from_numpy(y).double())
    assert numpy.array_equal(computed(device, tirx.fmod, x, y), exact.numpy().astype(numpy.float32))
