"""The schedule for GPUs never changes what is computed, whatever the shapes are."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import HealthCheck, given, settings

from tests.lowering.running import record, run_any

DEVICE = "webgpu:native"
EXTENTS = st.one_of(st.integers(1, 9), st.sampled_from([31, 32, 33, 63, 64, 65, 127, 255, 256, 257, 511, 513, 1000]))
SHAPES = st.lists(EXTENTS, min_size=1, max_size=4).filter(lambda shape: torch.Size(shape).numel() <= 60_000)
QUICK = settings(max_examples=12, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
LONG = settings(QUICK, max_examples=100)


def tensor(shape: Any, seed: int = 0) -> torch.Tensor:
    return torch.randn(tuple(shape), generator=torch.Generator().manual_seed(seed))


def check(name: str, *args: Any, **kwargs: Any) -> None:
    ran = run_any(record(name, args, kwargs), DEVICE)
    shapes = [tuple(a.shape) for a in args if isinstance(a, torch.Tensor)]
    assert ran.right, f"{name} of {shapes}: {ran.verdict.explanation}"


def reductions(shape: list[int], data: st.DataObject) -> None:
    operator = data.draw(st.sampled_from(["aten.sum.dim_IntList", "aten.amax.default", "aten.mean.dim"]))
    axes = data.draw(st.lists(st.integers(-len(shape), len(shape) - 1), max_size=len(shape),
                              unique_by=lambda a: a % len(shape)))  # fmt: skip
    x = tensor(shape).transpose(0, -1) if data.draw(st.booleans()) else tensor(shape)
    check(operator, x, axes, data.draw(st.booleans()))


def softmaxes(shape: list[int], data: st.DataObject) -> None:
    check("aten._softmax.default", tensor(shape), data.draw(st.integers(-len(shape), len(shape) - 1)), False)


def products(m: int, k: int, n: int) -> None:
    check("aten.mm.default", tensor((m, k)), tensor((k, n), 1))
    check("aten.mm.default", tensor((k, m)).t(), tensor((n, k), 1).t())


@QUICK
@given(SHAPES, st.data())
def test_reductions(shape: list[int], data: st.DataObject) -> None:
    reductions(shape, data)


@QUICK
@given(SHAPES, st.data())
def test_softmaxes(shape: list[int], data: st.DataObject) -> None:
    softmaxes(shape, data)


@QUICK
@given(EXTENTS, EXTENTS, EXTENTS)
def test_products(m: int, k: int, n: int) -> None:
    products(m, k, n)


@pytest.mark.parametrize("shape", [(2, 31, 257), (4, 40, 258), (7, 31, 9), (8, 31, 260), (37, 64, 36), (3, 16, 1000)])
@pytest.mark.parametrize("device", [DEVICE, "metal:emulated"])
def test_tiles_end_where_the_matrix_does(device: str, shape: tuple[int, int, int]) -> None:
    """Executed where writes beyond a buffer are seen, too."""
    m, k, n = shape
    ran = run_any(record("aten.mm.default", (tensor((m, k)), tensor((k, n), 1))), device)
    assert ran.right, f"{ran.verdict.explanation} {ran.faults}"


@pytest.mark.slow
@LONG
@given(SHAPES, st.data())
def test_many_reductions(shape: list[int], data: st.DataObject) -> None:
    reductions(shape, data)


@pytest.mark.slow
@LONG
@given(SHAPES, st.data())
def test_many_softmaxes(shape: list[int], data: st.DataObject) -> None:
    softmaxes(shape, data)


@pytest.mark.slow
@LONG
@given(EXTENTS, EXTENTS, EXTENTS)
def test_many_products(m: int, k: int, n: int) -> None:
    products(m, k, n)


@pytest.mark.parametrize("count", [65_535 * 64, 65_535 * 64 + 1, 32_768 * 64 + 63])
def test_more_elements_than_one_launch_has_threads(count: int) -> None:
    check("aten.neg.default", tensor((count,)))


@pytest.mark.parametrize("shape", [(100_003,), (1, 65_537), (65_537, 1), (3, 40_000), (40_000, 3), (2, 3, 20_011)])
def test_long_rows_and_many_rows(shape: tuple[int, ...]) -> None:
    check("aten.sum.dim_IntList", tensor(shape), [-1])
    check("aten.amax.default", tensor(shape), [0])


def test_more_rows_than_one_launch_has_blocks() -> None:
    check("aten.sum.dim_IntList", tensor((70_000 * 64, 2)), [1])
    check("aten.argmax.default", tensor((70_000, 65)), 1)


@pytest.mark.parametrize("name", ["aten.argmax.default", "aten.argmin.default"])
@pytest.mark.parametrize("shape", [(1, 1), (3, 1000), (600, 70), (7, 64), (5000, 3)])
def test_places_of_extremes(name: str, shape: tuple[int, int]) -> None:
    check(name, tensor(shape).round(), 1)
    check(name, tensor(shape), None)
