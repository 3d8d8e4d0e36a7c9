"""wgpu on a Vulkan driver and Chromium's WebGPU give the same: two compilers of WGSL, two drivers, one source.

They differ in one thing, which WGSL leaves open (https://www.w3.org/TR/WGSL/#floating-point-evaluation): lavapipe keeps
subnormal numbers, and SwiftShader in Chromium makes some of them zero.
"""

from __future__ import annotations

import pytest
import torch

from tapml.errors import TapmlError
from tests.lowering.running import opened, record, run_any
from tests.platforms.defects import KINDS

DEVICES = ("webgpu:native", "webgpu:chromium")
ULPS = 16
"""Both round each operation as WGSL allows: divisions to 2.5 ulp, sums in any order, multiply-add fused or not."""


def _difference(one: torch.Tensor, other: torch.Tensor) -> str:
    """How two results differ beyond rounding; empty if not."""
    if not one.is_floating_point():
        return "" if torch.equal(one, other) else "values differ"
    if not torch.equal(one.isnan(), other.isnan()):
        return "NaN in other places"
    a, b = (_without_subnormals(t).double().nan_to_num(0.0, float("inf"), -float("inf")) for t in (one, other))
    if not torch.equal(a.isinf(), b.isinf()) or not torch.equal(a.sign(), b.sign()):
        return "signs or infinities differ"
    bound = ULPS * torch.finfo(one.dtype).eps * torch.maximum(a.abs(), b.abs())
    worst = (a - b).abs().nan_to_num(nan=0.0)
    return "" if bool((worst <= bound).logical_or(worst == 0).all()) else f"by up to {float(worst.max())}"


def _without_subnormals(values: torch.Tensor) -> torch.Tensor:
    return torch.where(values.abs() < torch.finfo(values.dtype).tiny, 0, values)


def test_what_counts_as_a_difference() -> None:
    one = torch.tensor([1.0, float("nan"), float("inf"), 0.0])
    assert _difference(one, one.clone()) == ""
    assert _difference(one, one * (1 + 2 * torch.finfo(torch.float32).eps)) == ""
    for other in ([1.001, float("nan"), float("inf"), 0.0], [1.0, 2.0, float("inf"), 0.0],
                  [1.0, float("nan"), -float("inf"), 0.0], [1.0, float("nan"), float("inf"), 1e-30]):  # fmt: skip
        assert _difference(one, torch.tensor(other)) != ""
    assert _difference(torch.tensor([1]), torch.tensor([2])) != ""


def test_they_differ_in_subnormal_numbers() -> None:
    """2**-70 squared is subnormal.  Either is right, and neither is called a disagreement."""
    call = record("aten.mul.Tensor", (torch.tensor([2.0**-70, 2.0**-60]), torch.tensor([2.0**-70, 2.0**-60])))
    native, browser = (run_any(call, device) for device in DEVICES)
    assert native.right and browser.right
    assert native.out.tolist() == [2.0**-140, 2.0**-120]
    assert browser.out.tolist() in ([0.0, 2.0**-120], [2.0**-140, 2.0**-120])
    assert _difference(native.out, browser.out) == ""


def _compare(kind: str, places: range) -> None:
    problems = []
    for device in DEVICES:
        opened(device)  # skips the test where it is not here
    for place in places:
        given = KINDS[kind][place]
        call = record(given.operator, given.args(), given.kwargs)
        found = []
        for device in DEVICES:
            try:
                ran = run_any(call, device)
                found.append(ran)
            except pytest.skip.Exception:
                break  # no half precision on one of them
            except TapmlError as error:
                problems.append(f"{given.operator} ({kind}, {place}) on {device}: {error.message}")
                break
        if len(found) < 2:
            continue
        if [r.verdict.passed for r in found] != [True, True]:
            problems.append(f"{given.operator} ({kind}, {place}): {[r.verdict.explanation for r in found]}")
        for name in found[0].results:
            difference = _difference(found[0].results[name], found[1].results[name])
            if difference:
                values = [r.results[name].flatten()[:8].tolist() for r in found]
                problems.append(f"{given.operator} ({kind}, {place}) {name}: {difference}: {values}")
    assert not problems, "\n".join(problems)


def test_a_few_inputs() -> None:
    for kind in list(KINDS)[::5]:
        _compare(kind, range(2))


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_every_input(kind: str) -> None:
    _compare(kind, range(len(KINDS[kind])))
