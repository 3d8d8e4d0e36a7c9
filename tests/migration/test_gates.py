"""The climb with each gate; a kernel that is right alone and wrong in the program."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from climbing import Listener, climb, statuses

from tapml.migration.hybrid import HybridMode, HybridRequest
from tapml.migration.job import open_suite
from tapml.migration.settings import GATES


@pytest.mark.parametrize("program", ["mlp", "waves"])
def test_every_gate_ends_the_same(copied: Callable[..., Path], program: str) -> None:
    results = {gate: climb(copied(program, name=gate), gate=gate) for gate in GATES}
    for result in results.values():
        assert result.accepted, result.counts
        assert result.final is not None and result.final.complete == len(result.outcomes)
        assert result.final.launches > 0
    end = results["end"]
    for result in results.values():
        assert result.kernels == end.kernels
        assert result.final is not None and end.final is not None
        assert result.final.comparison == end.final.comparison
        assert result.final.on_target == end.final.on_target
    assert len(end.gates) == 1
    assert len(results["call"].gates) == len(end.outcomes)
    assert len(results["operator"].gates) == len({o.operator for o in end.outcomes.values()})


@pytest.mark.parametrize("gate", GATES)
def test_a_kernel_right_alone_and_wrong_in_the_program_is_rolled_back(copied: Callable[..., Path], gate: str) -> None:
    listener = Listener()
    result = climb(copied("waves", keep=1), "taylor_sin.py", gate=gate, listen=listener)
    found = statuses(result)
    assert found.pop("aten.sin.default") == {"rolled back"}
    assert set().union(*found.values()) == {"migrated"}
    assert not result.accepted
    assert result.final is not None and result.final.accepted, "the program without it is within its bounds"
    (rejected,) = [g for g in result.gates if g.rejected]
    assert rejected.operator == "aten.sin.default"
    assert set(rejected.rejected) == set(result.rolled_back)
    assert "relative rms error" in rejected.explanation
    # the series has 7 terms: fine for the arguments of the first calls, hopeless for those of the later ones
    assert rejected.where.startswith("call ")
    number = int(rejected.where.split()[1])
    assert 2 < number <= 6
    assert f"of aten.sin.default in steps.{number - 1}" in rejected.where
    assert "programs.py:" in rejected.where
    assert rejected in listener.of("gate")


def test_every_gate_blames_the_same_call(copied: Callable[..., Path]) -> None:
    where = set()
    for gate in GATES:
        result = climb(copied("waves", keep=1, name=gate), "taylor_sin.py", gate=gate)
        where |= {g.where for g in result.gates if g.rejected}
    assert len(where) == 1


def test_with_all_its_cases_kept_the_same_kernel_fails_alone(copied: Callable[..., Path]) -> None:
    """Keeping the instances under most stress is what finds it before the program runs."""
    result = climb(copied("waves", keep=3), "taylor_sin.py")
    found = statuses(result)
    assert found.pop("aten.sin.default") <= {"failed", "migrated"}
    sin = [o for o in result.outcomes.values() if o.operator == "aten.sin.default"]
    assert all(o.status == "failed" or o.route != "converter" for o in sin)
    assert any(a.route == "converter" and a.status == "failed" for o in sin for a in o.attempts)


@pytest.mark.parametrize("gate", ["operator", "end"])
def test_a_program_that_raises_with_a_kernel_in_place_costs_that_kernel(copied: Callable[..., Path], gate: str) -> None:
    result = climb(copied("waves_with_limit", keep=1), "taylor_sin.py", gate=gate)
    assert statuses(result)["aten.sin.default"] == {"rolled back"}
    (rejected,) = [g for g in result.gates if g.rejected]
    assert "raised ValueError: the wave diverged" in rejected.explanation
    assert result.final is not None and result.final.accepted


def test_what_fails_alone_stays_in_pytorch(copied: Callable[..., Path]) -> None:
    result = climb(copied("mlp"), "wrong_gelu.py")
    gelu = next(o for o in result.outcomes.values() if o.operator == "aten.gelu.default")
    assert gelu.attempts[0].route == "converter" and gelu.attempts[0].status == "failed"
    if gelu.passed:  # by another route
        assert gelu.route != "converter" and result.accepted
    else:
        assert result.final is not None and result.final.in_torch["aten.gelu.default"] == 1


def test_memory_without_values_is_zero_in_the_program_as_it_was_in_the_suite(carved: Callable[..., Path]) -> None:
    """Kernels may be given such memory, and must not be refused for the values that happen to lie there."""
    records = {r.signature.id: r for r in open_suite(str(carved("places"))).signatures}
    assert [r.signature.operator for r in records.values() if r.kind == "undefined"] == ["aten.empty_like.default"]
    mode = HybridMode(None, records, lambda _: pytest.fail("nothing runs on the target"), HybridRequest({}))
    order = torch.tensor([3, 0, 4, 1, 2])
    filling = torch._C._get_deterministic_fill_uninitialized_memory()
    torch._C._set_deterministic_algorithms(True, warn_only=True)
    torch._C._set_deterministic_fill_uninitialized_memory(True)
    try:
        assert torch.empty_like(order).tolist() == [torch.iinfo(torch.int64).max] * 5
        with mode:
            found = torch.empty_like(order)
    finally:
        torch._C._set_deterministic_algorithms(False, warn_only=False)
        torch._C._set_deterministic_fill_uninitialized_memory(filling)
    assert found.tolist() == [0] * 5
