"""The llvm platform: what its kernels are called with, and how they are compiled."""

from __future__ import annotations

import pytest
import torch

from tapml.errors import DeviceError
from tapml.lowering.lower import lower
from tapml.platforms.llvm.codegen import LIBRARY
from tests.lowering.running import llvm, record, run


def test_the_device_says_what_it_is() -> None:
    (info,) = llvm()[0].devices()
    assert info.name == "llvm:cpu" and info.mode == "native" and int(info.details["cores"]) >= 1


def test_another_device_is_an_error() -> None:
    with pytest.raises(DeviceError, match="expected device llvm:cpu"):
        llvm()[0].open("llvm:gpu")


def test_the_fingerprint_covers_the_processor() -> None:
    assert "mcpu" in llvm()[0].fingerprint("llvm:cpu")


def test_kernels_refuse_memory_that_the_signature_does_not_promise() -> None:
    call = record("aten.neg.default", (torch.ones(8),))
    platform, device = llvm()
    executable = device.load(platform.build(lower(call.signature, "llvm", "converter"), "llvm:cpu"), call.signature)
    with pytest.raises(DeviceError, match=r"expected a tensor of torch\.float32"):
        executable.run([torch.ones(8, dtype=torch.float64)])
    with pytest.raises(DeviceError, match="bytes of storage"):
        executable.run([torch.ones(4)])


def test_a_damaged_library_is_refused() -> None:
    call = record("aten.neg.default", (torch.ones(8),))
    platform, device = llvm()
    artifact = platform.build(lower(call.signature, "llvm", "converter"), "llvm:cpu")
    artifact.files[LIBRARY] = b"\x7fELF" + bytes(100)
    with pytest.raises(DeviceError, match="the loader refused"):
        device.load(artifact, call.signature)


@pytest.mark.parametrize("shape", [(8, 32, 16), (64, 300, 128)], ids=["level 0", "level 2"])
def test_large_and_small_products(shape: tuple[int, int, int]) -> None:
    rows, inner, columns = shape
    ran = run("aten.mm.default", torch.randn(rows, inner), torch.randn(inner, columns))
    assert ran.verdict.passed, ran.verdict.explanation


def test_values_shared_by_many_do_not_make_code_explode() -> None:
    """PyTorch's decomposition of this operator shares its weights: inlining all of them never ended."""
    image, grid = torch.randn(2, 3, 5, 20), torch.rand(2, 13, 10, 2) * 2 - 1
    call = record("aten.grid_sampler_2d.default", (image, grid, 0, 0, False))
    from tests.lowering.running import run_call

    assert run_call(call, "decomposition").verdict.passed


def test_large_temporaries() -> None:
    ran = run("aten._softmax.default", torch.randn(64, 5000), 1, False)
    assert ran.verdict.passed and ran.launches == 1


@pytest.mark.parametrize("terms", [37, 1025, 65537])
def test_sums_of_any_length_are_added_up_in_lanes(terms: int) -> None:
    """One after another, 65,537 terms lose thirty times as much as PyTorch does."""
    generator = torch.Generator().manual_seed(0)
    rows = torch.rand(7, terms, generator=generator) + 3
    ran = run("aten.sum.dim_IntList", rows, [-1])
    exact = rows.double().sum(-1)
    assert ran.right
    assert (ran.out - exact).abs().max() <= 8 * (rows.sum(-1) - exact).abs().max()


def few_values(*shape: int) -> torch.Tensor:
    """Of three distinct values, whose roundings repeat."""
    generator = torch.Generator().manual_seed(0)
    return torch.tensor([1.5028, 3.0344, -0.2])[torch.randint(3, shape, generator=generator)]


@pytest.mark.parametrize("keepdim", [True, False])
@pytest.mark.parametrize("memory", ["transposed", "every second"])
def test_sums_of_terms_that_lie_apart_have_partial_sums(memory: str, keepdim: bool) -> None:
    values = few_values(2, 1025, 32).transpose(1, 2)
    if memory == "every second":
        values = values.repeat_interleave(2, -1)[..., ::2]
        assert values.stride(-1) == 2
    exact = values.double().sum(-1, keepdim)
    ran = run("aten.sum.dim_IntList", values, [-1], keepdim)
    assert ran.right
    assert (ran.out - exact).abs().max() <= 8 * (values.contiguous().sum(-1, keepdim) - exact).abs().max()


def test_variances_of_rows_that_lie_apart_have_partial_sums() -> None:
    rows = few_values(2, 1025, 32).transpose(1, 2)
    ran = run("aten.native_layer_norm.default", rows, [1025], None, None, 1e-5)
    assert ran.right
    exact = torch.native_layer_norm(rows.double(), [1025], None, None, 1e-5)[2]
    assert ((ran.results["out2"] - exact).abs() / exact).max() < 4e-7


@pytest.mark.parametrize(("rows", "columns"), [(300, 16), (514, 128), (5000, 8)])
def test_sums_across_rows_have_partial_sums(rows: int, columns: int) -> None:
    """One after another, they lose twenty times as much as PyTorch does."""
    values = few_values(3, rows, columns)
    ran = run("aten.sum.dim_IntList", values, [1])
    exact = values.double().sum(1)
    assert ran.right
    assert (ran.out - exact).abs().max() <= 8 * (values.sum(1) - exact).abs().max()
