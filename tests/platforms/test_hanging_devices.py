"""A device that hangs costs the operator that it hangs on: it is named, and the rest goes on on a fresh device."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tapml.errors import TapmlError
from tapml.platform import find_platform

HERE = Path(__file__).parent


def _here(target: str, device: str) -> bool:
    try:
        return any(info.name == device for info in find_platform(target).devices())
    except (TapmlError, ImportError):
        return False


@pytest.mark.parametrize(
    ("target", "device"),
    [
        ("webgpu", "webgpu:native"),
        pytest.param("vulkan", "vulkan:lavapipe", marks=pytest.mark.slow),
        pytest.param("webgpu", "webgpu:chromium", marks=pytest.mark.slow),
        pytest.param("opencl", "opencl:pocl", marks=pytest.mark.slow),
        pytest.param("metal", "metal:emulated", marks=pytest.mark.slow),
    ],
)
def test_a_shader_that_takes_minutes(target: str, device: str, tmp_path: Path, tapml: Callable[..., object]) -> None:
    if not _here(target, device):
        pytest.skip(f"needs {device}")
    suite = tmp_path / "suite"
    assert tapml("carve", f"{HERE / 'few_operators.py'}:make", "-o", suite).code == 0  # type: ignore[attr-defined]
    command = ["test", suite, "--target", target, "--device", device, "--with", HERE / "slow_shaders.py"]
    ran = tapml(*command, "--timeout", 12, "--jobs", 1, "--json", tmp_path / "out.json")
    assert ran.code == 1, ran  # type: ignore[attr-defined]
    found = json.loads((tmp_path / "out.json").read_text())
    status = {o["operator"]: o["status"] for o in found["signatures"]}
    assert status.pop("aten.sin.default") == "timed out", found
    assert set(status.values()) == {"passed"} and len(status) == 3
