"""Every kind of input on which a compiler for GPUs has gone wrong, on every device that is here."""

from __future__ import annotations

import pytest
import torch

from tapml.errors import TapmlError
from tests.lowering.running import opened, record, run_any
from tests.platforms.defects import KINDS, Input

EVERYTHING = ("webgpu:native",)
"""Devices on which the quick tests try all inputs, since it takes a tenth of a second each."""
SOME = {"vulkan:lavapipe": 9, "opencl:pocl": 17, "metal:emulated": 11, "cuda:emulated": 17, "webgpu:chromium": 13}
"""Elsewhere they try every so many of them."""
FLAT = [(kind, place) for kind, inputs in KINDS.items() for place in range(len(inputs))]


def same(found: torch.Tensor, expected: torch.Tensor, rtol: float) -> bool:
    return found.dtype == expected.dtype and torch.allclose(
        found.double(), expected.double(), rtol=rtol, atol=0.0, equal_nan=True
    )


def problem(given: Input, device: str) -> str:
    """What is wrong with one input; empty if nothing.  What the device lacks (half precision) is nothing wrong."""
    opened(device)  # skips the test where it is not here
    call = record(given.operator, given.args(), given.kwargs)
    what = f"{given.operator} {[t.tolist() if t.numel() < 20 else tuple(t.shape) for t in call.tensors]}"
    try:
        ran = run_any(call, device)
    except pytest.skip.Exception:
        return ""
    except TapmlError as error:
        return f"{what}: {error.message}"
    if not ran.right:
        return f"{what}: {ran.launches} launches, {ran.verdict.explanation} {ran.faults}"
    if given.expected is not None and not same(ran.out, given.expected(), given.rtol):
        return f"{what}: expected {given.expected()}, found {ran.out}"
    return ""


def require(kind: str, places: list[int], device: str) -> None:
    problems = [p for place in places if (p := problem(KINDS[kind][place], device))]
    assert not problems, "\n".join(problems)


@pytest.mark.parametrize("kind", KINDS)
def test_the_expected_values_are_pytorchs(kind: str) -> None:
    for given in KINDS[kind]:
        if given.expected is not None:
            found = record(given.operator, given.args(), given.kwargs).results[0][1]
            assert same(found, given.expected(), given.rtol), f"{given.operator}: {found}"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("device", EVERYTHING)
def test_all_inputs(kind: str, device: str) -> None:
    require(kind, list(range(len(KINDS[kind]))), device)


@pytest.mark.parametrize("device", SOME)
def test_some_inputs(device: str) -> None:
    chosen = FLAT[:: SOME[device]]
    problems = [p for kind, place in chosen if (p := problem(KINDS[kind][place], device))]
    assert not problems, "\n".join(problems)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("device", SOME)
def test_all_inputs_everywhere(kind: str, device: str) -> None:
    require(kind, list(range(len(KINDS[kind]))), device)


@pytest.mark.parametrize("device", ["metal:emulated-fast"])
def test_functions_far_from_zero_with_fast_math(device: str) -> None:
    """GELU on Apple's GPUs: fast math's own tanh is NaN beyond 44.  A NaN that is given is nobody's business there."""
    kind = "6 functions far from zero"
    gelu = [n for n, given in enumerate(KINDS[kind]) if given.operator == "aten.gelu.default"]
    for place in gelu:
        call = record(KINDS[kind][place].operator, KINDS[kind][place].args(), KINDS[kind][place].kwargs)
        if all(t.isfinite().all() for t in call.tensors):
            require(kind, [place], device)
    for values in ([44.5, 88, 100, -100, 3000], [1e30, -1e30, 43.9, 0.0]):
        ran = run_any(record("aten.tanh.default", (torch.tensor(values),)), device)
        assert ran.right and ran.out.isfinite().all(), ran.verdict.explanation


@pytest.mark.parametrize("device", ["webgpu:native", "opencl:pocl", "metal:emulated"])
def test_a_use_after_a_change_in_place_sees_it(device: str) -> None:
    x = torch.ones(3)
    first = run_any(record("aten.add_.Tensor", (x, torch.tensor([1.0, 2, 3]))), device)
    assert list(first.results) == ["arg0"] and first.right
    second = run_any(record("aten.mul.Tensor", (first.out, first.out)), device)
    assert second.right and second.out.tolist() == [4, 9, 16]
