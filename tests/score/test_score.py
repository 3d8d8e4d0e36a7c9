"""The score: what is caught, what is missed and why, what is no defect; suites written anew from it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import pytest

from tapml.kernels.executable import unwritten
from tapml.migration.outcome import Outcome
from tapml.migration.process import Gone
from tapml.migration.settings import Settings
from tapml.score.defect import Defect
from tapml.score.result import CAUGHT, EXCLUDED, MISSED, Fate
from tapml.score.run import Options, _script, score
from tapml.score.trial import IDENTICAL, JUDGED, Opened, Tried
from tapml.suite.reader import Suite

LLVM = Settings("llvm", jobs=2)


@pytest.mark.slow
def test_the_score_of_a_program(copied: Callable[..., Path]) -> None:
    suite = copied("mlp")
    told: list[tuple[str, Any]] = []
    found = score(suite, Options(LLVM, limit=3, program=1), lambda kind, value: told.append((kind, value)))
    assert {s.status for s in found.signatures} == {"passed"}
    assert found.alarms == [] and found.judged >= 2 * len(found.signatures)
    every = found.rows[-1]
    assert every.kind == "all" and every.planted >= 9
    assert every.caught >= 0.8 * every.planted
    assert every.placed == every.caught
    assert all(f.defect.line for f in found.fates)
    assert len(found.program) == 1 and all(p.right for p in found.program if p.noticed)
    assert sum(kind == "scored" for kind, _ in told) == len(found.signatures)

    told.clear()
    again = score(suite, Options(LLVM, limit=3, program=1), lambda kind, value: told.append((kind, value)))
    assert told == [("recalled", len(found.signatures))]
    assert again.signatures == found.signatures and again.program == found.program


def test_what_carved_values_cannot_show_is_missed_and_added(copied: Callable[..., Path], tmp_path: Path) -> None:
    from tapml.score.rewrite import write_rewritten

    suite = copied("masked")
    options = Options(LLVM, limit=12, program=0, select=lambda r: "logical_and" in r.signature.operator)
    found = score(suite, options)
    missed = {f.defect.what: f for f in found.missed}
    assert "and -> or" in missed and missed["and -> or"].wrong  # both masks are all true in the carved run
    new = write_rewritten(found, suite, tmp_path / "strong", minimise=False, strengthen=True)
    assert new.added >= 1 and new.caught == found.rows[-1].planted
    again = score(Path(new.path), options)
    assert again.missed == [] and again.alarms == []
    added = [c for c in Suite.open(new.path).cases() if c.stress.get("kept") == "drawn"]
    assert len(added) == new.added


def test_a_minimised_suite_catches_as_much_with_fewer_bytes(
    copied: Callable[..., Path], tapml: Callable[..., Any], tmp_path: Path
) -> None:
    suite, small, figures = copied("waves"), tmp_path / "small", tmp_path / "figures.json"
    line = ("score", suite, "--target", "llvm", "--limit", 3, "--program", 0, "--json", figures)
    ran = tapml(*line, "--minimise", "-o", small)
    assert ran.code == 0, ran.err
    new = json.loads(figures.read_text())["rewritten"]
    assert new["caught"] == new["caught_before"] > 0
    assert new["nbytes"] < 0.7 * new["nbytes_before"]  # of three calls of the sine one is left; most others have one
    before, after = Suite.open(suite), Suite.open(small)
    assert [r.signature for r in after.signatures] == [r.signature for r in before.signatures]
    assert all(r.cases for r in after.signatures if r.kind == "compute")
    assert str(small) in ran.out and "planted" in ran.out


def test_minimise_and_o_belong_together(copied: Callable[..., Path], tapml: Callable[..., Any]) -> None:
    suite = copied("mlp")
    ran = tapml("score", suite, "--target", "llvm", "--minimise")
    assert ran.code == 2 and "expected -o with --minimise" in ran.err
    ran = tapml("score", suite, "--target", "llvm", "--minimise", "-o", suite)
    assert ran.code == 2 and "another directory than the suite itself" in ran.err


def test_a_journal_of_another_seed_is_begun_anew(copied: Callable[..., Path]) -> None:
    suite = copied("silu")
    one = score(suite, Options(LLVM, limit=3, program=0))
    told: list[str] = []
    other = score(suite, Options(LLVM, limit=3, seed=1, program=0), lambda kind, value: told.append(kind))
    assert "scored" in told
    assert [f.defect.id for f in one.fates] != [f.defect.id for f in other.fates]


# -- what becomes of one defect ------------------------------------------------------------------------------------------

DEFECT = Defect("module", "index", "f", 0, "reads elsewhere")


def fate_of(suite: Path, *answers: Any) -> tuple[Fate, list[Any]]:
    """The fate of one defect, when a worker answers this about it; and what it was asked."""
    record = next(r for r in Suite.open(suite).signatures if r.kind == "compute")
    script = _script(suite, LLVM, Options(LLVM), record)
    asked = [next(script)]
    healthy = Outcome(record.signature.id, record.signature.operator, "passed", "right")
    asked.append(script.send(Opened(healthy, defects=(DEFECT,))))
    for answer in answers[:-1]:
        asked.append(script.send(answer))
    with pytest.raises(StopIteration) as end:
        script.send(answers[-1])
    (fate,) = end.value.value.fates
    return fate, [message for message, _ in asked[1:]]


def crash(where: str) -> Gone:
    return Gone("crashed", f"killed by SIGSEGV while {where}", (), died=True)


def test_fates(carved: Callable[..., Path]) -> None:
    suite = carved("silu")
    name = "carved abc/0"
    right = Tried(JUDGED, DEFECT, tried=4)
    assert fate_of(suite, Tried(IDENTICAL, DEFECT))[0].reason == "identical"
    caught = fate_of(suite, Tried(JUDGED, DEFECT, wrong={name: "error-too-large"}, groups={name: "carved"}))[0]
    assert (caught.fate, caught.cases, caught.placed) == (CAUGHT, ["abc/0"], True)
    escaped = fate_of(suite, Tried(JUDGED, DEFECT, wrong={"random 0": "x"}, groups={"random 0": "random"}))[0]
    assert escaped.fate == MISSED and not escaped.placed
    for field, reason in (("same", "same"), ("noise", "noise")):
        equivalent = fate_of(suite, Tried(JUDGED, DEFECT, **{field: True}))[0]
        assert (equivalent.fate, equivalent.reason) == (EXCLUDED, reason)
    assert (
        fate_of(suite, right)[0].fate == MISSED
    )  # its bits differ, and its errors are not those of healthy arithmetic


def test_a_crash_counts_when_it_happens_twice(carved: Callable[..., Path]) -> None:
    suite = carved("silu")
    once, asked = fate_of(suite, crash("running it on carved abc/0"), Tried(JUDGED, DEFECT, same=True))
    assert once.fate == EXCLUDED and [a.died for a in asked] == [(), ()]
    dead = crash("running it on carved abc/0")
    twice, asked = fate_of(suite, dead, dead, Tried(JUDGED, DEFECT))
    assert twice.fate == CAUGHT and twice.placed and "SIGSEGV" in twice.wrong["carved abc/0"]
    assert [a.died for a in asked] == [(), (), ("carved abc/0",)]


def test_a_crash_in_what_runs_after_it_is_misplaced(carved: Callable[..., Path]) -> None:
    later = crash("running healthy operators after it")
    name = "carved abc/0"
    wrong = Tried(JUDGED, DEFECT, wrong={name: "error-too-large"}, groups={name: "carved"})
    fate, asked = fate_of(carved("silu"), later, later, wrong)
    assert fate.fate == CAUGHT and not fate.placed and "SIGSEGV" in fate.spoilt[0]
    assert [a.alone for a in asked] == [False, False, True]


def test_a_compiler_that_dies_of_it_executes_nothing(carved: Callable[..., Path]) -> None:
    fate, _ = fate_of(carved("silu"), crash("planting it"), crash("planting it"))
    assert (fate.fate, fate.reason) == (EXCLUDED, "refused")


# -- memory that no kernel wrote -----------------------------------------------------------------------------------------


def test_a_bool_that_is_neither_is_a_fault() -> None:
    assert unwritten(numpy.array([0, 1, 1], numpy.uint8), 0) == ()
    (fault,) = unwritten(numpy.array([1, 0xFF, 0xFF], numpy.uint8), 2)
    assert fault.code == "unwritten" and fault.explanation.startswith("2 of 3 elements of result 2 ")
    (fault,) = unwritten(numpy.array([1, -1], numpy.int32), 0)
    assert "1 of 2" in fault.explanation


def test_a_short_loop_is_caught_whatever_was_in_memory_before(copied: Callable[..., Path]) -> None:
    found = score(copied("silu"), Options(LLVM, limit=40, program=0))
    short = [f for f in found.fates if f.defect.kind == "extent"]
    assert short and all(f.fate == CAUGHT or f.reason == "identical" for f in short)
