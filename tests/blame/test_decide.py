"""The rules by which a part is blamed, on outcomes made by hand; and the command."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tapml.blame.decide import PARTS, decide
from tapml.blame.evidence import Cell, Evidence, places
from tapml.migration.outcome import Attempt, CaseResult, Outcome
from tapml.platform import DeviceInfo, find_platform
from tapml.suite.call import Signature, TensorSpec
from tapml.suite.case import SignatureRecord

RECORD = SignatureRecord(
    Signature("aten.neg.default", '[[{"tensor":0}],{}]', (TensorSpec((2,), "float32", (1,)),)),
    "compute",
    1,
    {},
    ("a/0",),
)


def cell(device: str, status: str = "passed", code: str = "exact", launches: int = 1, **more: Any) -> Cell:
    passed = status == "passed"
    cases = (CaseResult("a/0", passed, code, f"says {code}", (), launches, 0.0, {}),)
    outcome = Outcome("a", "aten.neg.default", status, "message", "converter", launches=launches, cases=cases, **more)
    return Cell(device.split(":")[0], DeviceInfo(device, device, "emulated" in device), outcome)


def part(*cells: Cell, recorded: str = "", off: str = "", route: str = "converter", plain: Cell | None = None) -> str:
    found = decide(Evidence(RECORD, cells, route, recorded, off, plain))
    assert found.part in PARTS and found.sentence
    return found.part


def wrong(device: str, code: str = "rms") -> Cell:
    return cell(device, "failed", code)


SITUATIONS: dict[str, tuple[str, tuple[Cell, ...], dict[str, Any]]] = {
    "nothing": ("nothing", (cell("llvm:cpu"), cell("metal:emulated")), {}),
    "everywhere": ("lowering", (wrong("webgpu:native"), wrong("llvm:cpu"), wrong("vulkan:x")), {}),
    "everywhere it runs": ("lowering", (wrong("webgpu:native"), wrong("llvm:cpu"), cell("vulkan:x", "unsupported")), {}),
    "one browser": ("device", (wrong("webgpu:chromium"), cell("webgpu:native"), cell("llvm:cpu")), {}),
    "one adapter": ("device", (wrong("webgpu:native"), cell("webgpu:native/2"), cell("llvm:cpu")), {}),
    "one language": (
        "language", (wrong("webgpu:native"), wrong("webgpu:chromium"), cell("llvm:cpu"), cell("vulkan:x")), {}
    ),
    "one language with one device": ("language", (wrong("vulkan:x"), cell("llvm:cpu"), cell("opencl:y")), {}),
    "all GPUs": ("gpu code", (wrong("vulkan:x"), wrong("webgpu:native"), cell("llvm:cpu")), {}),
    "order of threads": (
        "synchronisation", (wrong("webgpu:native"), wrong("cuda:emulated", "order-dependent"), cell("llvm:cpu")), {}
    ),
    "order of threads elsewhere": ("lowering", (wrong("llvm:cpu"), wrong("cuda:emulated", "order-dependent")), {}),
    "bounds": ("memory", (wrong("metal:emulated", "out-of-bounds"), cell("llvm:cpu")), {}),
    "schedule": ("schedule", (wrong("vulkan:x"), wrong("opencl:y"), cell("llvm:cpu")), {"plain": cell("vulkan:x")}),
    "plain is wrong too": ("lowering", (wrong("vulkan:x"), wrong("llvm:cpu")), {"plain": wrong("vulkan:x")}),
    "one browser, whatever the schedule": (
        "device", (wrong("webgpu:chromium"), cell("webgpu:native")), {"plain": cell("webgpu:chromium")}
    ),
    "alone": ("unknown", (wrong("vulkan:x"), cell("llvm:cpu", "unsupported")), {}),
    "no rule": ("unknown", (wrong("vulkan:x"), wrong("opencl:y"), cell("llvm:cpu"), cell("webgpu:native")), {}),
    "recorded elsewhere": ("reference", (wrong("vulkan:x"), wrong("llvm:cpu")), {"recorded": "case a/0: differs"}),
    "PyTorch is off": ("reference", (cell("vulkan:x"), cell("llvm:cpu")), {"off": "reference-off: 100%"}),
    "off and still wrong": ("lowering", (wrong("vulkan:x"), wrong("llvm:cpu")), {"off": "reference-off: 100%"}),
}  # fmt: skip


@pytest.mark.parametrize("situation", SITUATIONS)
def test_a_situation(situation: str) -> None:
    expected, cells, more = SITUATIONS[situation]
    assert part(*cells, **more) == expected


def test_what_was_not_executed_is_nobodys_alibi() -> None:
    """A device that passes without a launch would turn "everywhere" into "one device only"."""
    assert part(wrong("webgpu:native"), wrong("llvm:cpu"), cell("webgpu:chromium", launches=0)) == "lowering"


def test_a_route_that_failed_counts_though_another_one_passed() -> None:
    attempt = Attempt("converter", "failed", "wrong")
    mended = [
        Cell(c.target, c.device, replace(c.outcome, route="decomposition", attempts=(attempt,)))
        for c in (cell("webgpu:native"), cell("llvm:cpu"))
    ]  # fmt: skip
    assert part(*mended) == "lowering"
    assert part(*mended, route="decomposition") == "nothing"


def test_the_command_names_what_it_wants(tapml: Callable[..., Any], carved: Callable[..., Path]) -> None:
    ran = tapml("blame", carved("mlp"), "nothing", "--target", "llvm")
    assert ran.code == 2
    assert "expected one compute signature" in ran.err and "tapml show" in ran.err
    ran = tapml("blame", carved("mlp"), "gelu", "--target", "llvm", "--boundary", "arg7 ties")
    assert ran.code == 2 and "'arg0 ties'" in ran.err


def test_devices_that_stand_aside_are_asked_only_by_name() -> None:
    """Fast-math emulation compiles the same kernels otherwise; what it gives says nothing of other devices."""
    emulated, fast = find_platform("metal").devices()
    assert not emulated.aside and fast.aside
    asked = places("metal", emulated)
    assert asked[0] == ("metal", emulated) and ("metal", fast) not in asked
    assert ("llvm", find_platform("llvm").devices()[0]) in asked
    assert places("metal", fast)[0] == ("metal", fast)
