"""What an executor may do to the arguments it is given."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

from tapml.migration.job import Clock, run_case
from tapml.numerics.oracle import float64_results
from tapml.platform import Execution
from tapml.suite.call import execute
from tapml.suite.reader import Suite


class Careless:
    """Gives the right results, and does something else besides."""

    def __init__(self, case: object, *, writes: bool = False, raises: bool = False, launches: int = 1) -> None:
        self.case, self.writes, self.raises, self.launches = case, writes, raises, launches

    def run(self, tensors: Sequence[torch.Tensor]) -> Execution:
        if self.raises:
            raise ValueError("expected 3 arguments [/]")
        results = tuple(t for _, t in execute(self.case.signature, list(tensors)))  # type: ignore[attr-defined]
        if self.writes:
            tensors[0].zero_()
        return Execution(results, self.launches, 0.0)


@pytest.mark.parametrize(
    ("how", "code", "said"),
    [
        ({}, "ok", ""),
        ({"writes": True}, "wrote-input", "wrote to its input"),
        ({"raises": True}, "device", "the kernel raised ValueError: expected 3 arguments"),
        ({"launches": 0}, "not-executed", "no kernel was launched"),
    ],
)
def test_it(suite: Path, how: dict[str, bool], code: str, said: str) -> None:
    case = next(c for c in Suite.open(suite).cases() if "addmm" in c.signature.operator)
    before = [t.clone() for t in case.tensors]
    truth = float64_results(case.signature, case.tensors)
    result = run_case(case, Careless(case, **how), Clock(), truth)
    assert result.passed is (code == "ok")
    assert code == "ok" or result.code == code
    assert said in result.explanation
    assert all(torch.equal(a, b) for a, b in zip(before, case.tensors, strict=True))  # the case is as it was
