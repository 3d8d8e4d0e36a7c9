"""Tensor expressions, TVMScript and schedules of the user's, on every kind of target; the verdict says whose they are."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tapml.errors import TapmlError
from tapml.platform import find_device, find_platform

FORMS = Path(__file__).resolve().parent.parent / "converters" / "forms.py"
ON_GPUS = {
    "aten.sin.default": ("converter", "tensor_expression"),
    "aten.sum.dim_IntList": ("converter", "loops_for_any_shape"),
    "aten.mm.default": ("kernel", "tiles_in_shared_memory"),
    "aten.exp.default": ("kernel", "threads_without_blocks"),
    "aten.addmm.default": ("schedule", "Matmul"),
    "aten._softmax.default": ("schedule", "GeneralReduction"),
}
ON_LLVM = {
    "aten.sin.default": ("converter", "tensor_expression"),
    "aten.sum.dim_IntList": ("converter", "loops_for_any_shape"),
    "aten.mm.default": None,
    "aten.exp.default": None,
    "aten.addmm.default": ("schedule", "in_parallel"),
    "aten._softmax.default": None,
}


@pytest.mark.parametrize(
    ("target", "device"),
    [
        ("llvm", "llvm:cpu"),
        ("webgpu", "webgpu:native"),
        pytest.param("vulkan", "vulkan:lavapipe", marks=pytest.mark.slow),
        pytest.param("opencl", "opencl:pocl", marks=pytest.mark.slow),
        pytest.param("metal", "metal:emulated", marks=pytest.mark.slow),
    ],
)
def test_every_form_runs(tapml: Callable[..., Any], carved: Callable[..., Path], target: str, device: str) -> None:
    try:
        find_device(find_platform(target), device)
    except TapmlError as error:
        pytest.skip(error.message)
    ran = tapml(
        "test", carved("forms"), "--target", target, "--device", device, "--jobs", 1, "--with", FORMS, "--json", "-"
    )
    assert ran.code == 0, ran.err + ran.out
    signatures = {s["operator"]: s for s in json.loads(ran.out)["signatures"]}
    expected = ON_LLVM if target == "llvm" else ON_GPUS
    assert signatures.keys() == expected.keys()
    digest = hashlib.sha256(FORMS.read_bytes()).hexdigest()
    for operator, code in expected.items():
        signature = signatures[operator]
        assert signature["status"] == "passed" and signature["launches"] > 0
        found = [(o["kind"], o["name"], o["file"], o["digest"]) for o in signature["own"]]
        assert found == ([(*code, str(FORMS), digest)] if code else []), operator
        said = [n for n in signature["notes"] if n.startswith("by the user's")]
        assert bool(said) == bool(code) and all(digest[:12] in n and "forms.py" in n for n in said)
    if target == "llvm":
        notes = signatures["aten._softmax.default"]["notes"]
        assert any("does_not_apply" in n and "tapml's own was used" in n for n in notes)


BAD_RULE = """
import tapml
from tvm.s_tir import Schedule

@tapml.schedule("aten.sin.default", target="llvm")
def rule(function, target):
    sch = Schedule(function)
    {what}
"""


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("sch.get_sblock('nothing')", "my_rule.py:8"),
        ("return function", "gives a PrimFunc, expected a tvm.s_tir.Schedule or None"),
    ],
)
def test_a_schedule_that_fails_is_not_passed_over(
    tapml: Callable[..., Any], carved: Callable[..., Path], tmp_path: Path, what: str, said: str
) -> None:
    """By another route, or without it, the operator would pass, and nobody would know that the schedule does not work."""
    file = tmp_path / "my_rule.py"
    file.write_text(BAD_RULE.format(what=what))
    command = (
        "test",
        carved("forms"),
        "--target",
        "llvm",
        "--jobs",
        1,
        "--select",
        "sin",
        "--with",
        file,
        "--json",
        "-",
    )
    ran = tapml(*command)
    (signature,) = json.loads(ran.out)["signatures"]
    assert ran.code == 1 and signature["status"] == "failed"
    assert said in signature["message"] and "rule (my_rule.py:" in signature["message"]
    assert [a["status"] for a in signature["attempts"]] == ["failed"]
