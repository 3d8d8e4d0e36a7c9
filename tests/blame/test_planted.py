"""Planted defects, each blamed on the part where it was planted; on all devices that are here."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from tapml.blame.decide import Blame, decide
from tapml.blame.evidence import Evidence, gather, places
from tapml.carving.carve import carve
from tapml.carving.sources import find_source
from tapml.migration.settings import Settings
from tapml.suite.reader import Suite
from tests.lowering.running import opened

pytestmark = pytest.mark.slow
PLANTED = Path(__file__).parent / "planted"
CONVERTERS = Path(__file__).parent.parent / "converters"
PROGRAMS = Path(__file__).parent.parent / "programs.py"


def blamed(
    suite: Path, operator: str, device: str, cache: Path, extension: Path | None = None, boundary: str = ""
) -> tuple[Evidence, Blame]:
    opened(device)  # skips the test where it is not here
    record = next(r for r in Suite.open(suite).signatures if r.signature.operator == f"aten.{operator}.default")
    settings, info = Settings(
        device.split(":")[0],
        device,
        jobs=1,
        extensions=(str(extension),) if extension else (),
        cache=str(cache),  # what a planted defect compiles is for this test alone
    ).resolved()
    evidence = gather(suite, settings, places(settings.target, info), record, boundary, lambda kind, value: None)
    return evidence, decide(evidence)


def report(evidence: Evidence, blame: Blame) -> str:
    cells = [f"{c.device.name}: {c.status(evidence.route)} {c.outcome.message}" for c in evidence.cells]
    return "\n".join([f"{blame.part}: {blame.sentence}", *cells])


@pytest.mark.parametrize(
    ("program", "operator", "device", "file"),
    [
        ("mlp", "gelu", "webgpu:native", "wrong_gelu.py"),
        ("mlp", "_softmax", "llvm:cpu", "wrong_softmax.py"),
        ("waves", "tanh", "metal:emulated", "wrong_tanh.py"),
    ],
)
def test_lowering(
    carved: Callable[..., Path], tmp_path: Path, program: str, operator: str, device: str, file: str
) -> None:
    evidence, blame = blamed(carved(program), operator, device, tmp_path, CONVERTERS / file)
    assert blame.part == "lowering", report(evidence, blame)
    assert len([c for c in evidence.cells if c.wrong(evidence.route)]) >= 3
    assert file.removesuffix(".py") in blame.sentence


@pytest.mark.parametrize(
    ("operator", "device", "file"),
    [
        ("gelu", "webgpu:native", "wgpu_miscompiles.py"),
        ("native_layer_norm", "webgpu:chromium", "chromium_miscompiles.py"),
        ("_softmax", "webgpu:chromium", "chromium_miscompiles.py"),
    ],
)
def test_one_shader_compiler(
    carved: Callable[..., Path], tmp_path: Path, operator: str, device: str, file: str
) -> None:
    evidence, blame = blamed(carved("mlp"), operator, device, tmp_path, PLANTED / file)
    assert blame.part == "device", report(evidence, blame)
    assert blame.sentence.startswith(f"wrong on {device} only")


@pytest.mark.parametrize(
    ("program", "operator", "device"), [("long_rows", "sum", "llvm:cpu"), ("long_rows", "mm", "vulkan:lavapipe")]
)
def test_a_schedule(carved: Callable[..., Path], tmp_path: Path, program: str, operator: str, device: str) -> None:
    evidence, blame = blamed(carved(program), operator, device, tmp_path, PLANTED / "wrong_schedule.py")
    assert blame.part == "schedule", report(evidence, blame)
    assert evidence.plain is not None and evidence.plain.outcome.launches > 0


@pytest.mark.parametrize(
    ("program", "operator", "device"),
    [
        ("long_rows", "_softmax", "metal:emulated"),
        ("long_rows", "sum", "cuda:emulated"),
        ("long_rows", "mm", "metal:emulated"),
    ],
)
def test_a_missing_barrier(
    carved: Callable[..., Path], tmp_path: Path, program: str, operator: str, device: str
) -> None:
    evidence, blame = blamed(carved(program), operator, device, tmp_path, PLANTED / "no_barriers.py")
    assert blame.part == "synchronisation", report(evidence, blame)


@contextmanager
def another_kernel_of_pytorch(name: str, kernel: Callable[..., torch.Tensor]) -> Iterator[None]:
    """PyTorch with a wrong kernel, as another version or build of it may have."""
    library = torch.library.Library("aten", "IMPL")
    try:
        library.impl(name, kernel, "CPU")
        yield
    finally:
        library._destroy()


@pytest.mark.filterwarnings("ignore:Warning only once for all operators")
@pytest.mark.parametrize(
    ("program", "operator", "kernel"),
    [
        ("mlp", "gelu", lambda x, *, approximate="none": x * torch.sigmoid(1.9 * x)),
        ("mlp", "_softmax", lambda x, dim, half_to_float: x.exp() / (x.exp().sum(dim, True) + 0.125)),
    ],
)
def test_a_reference_that_was_wrong_when_it_was_recorded(
    tmp_path: Path, program: str, operator: str, kernel: Callable[..., torch.Tensor]
) -> None:
    with another_kernel_of_pytorch(operator, kernel):
        suite = carve(find_source(f"{PROGRAMS}:{program}"), tmp_path / "suite").path
    evidence, blame = blamed(suite, operator, "llvm:cpu", tmp_path / "cache")
    assert blame.part == "reference", report(evidence, blame)
    assert "PyTorch on this machine does not give the recorded results" in blame.sentence


def test_a_reference_that_is_off(carved: Callable[..., Path], tmp_path: Path) -> None:
    """PyTorch's GELU of infinity is NaN, in float32 (seen in 2.13); the limit is infinity."""
    evidence, blame = blamed(carved("mlp"), "gelu", "webgpu:native", tmp_path, boundary="arg0 one Inf")
    assert blame.part == "reference", report(evidence, blame)
    assert "float64 sides with webgpu:native" in blame.sentence
