"""Converters that misbehave in every way cost their own operator, and the run says what happened to whom."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest

from .running import HERE, Place

TWICE = ", in each of two processes"

EXPECTED = {
    # operator: (status, converter, in its message)
    "exp": ("crashed", "segfaults", f"killed by SIGSEGV while lowering by segfaults (hostile_converters.py:.*){TWICE}"),
    "sin": ("timed out", "loops_in_python", "no answer within 9 s while lowering"),
    "cos": ("timed out", "loops_in_c", "no answer within 9 s while lowering"),
    "reciprocal": ("timed out", "waits_for_itself", "no answer within 9 s while lowering"),
    "log": ("crashed", "grows_in_python", "MB of memory, the limit is 1024 MB"),
    "sqrt": ("crashed", "touches_pages", "MB of memory, the limit is 1024 MB"),
    "rsqrt": ("crashed", "allocates_at_once", "memory limit: Unable to allocate"),
    "floor": ("failed", "raises", "raised ValueError: no [/idea] how to do this"),
    "frac": ("failed", "raises_what_cannot_be_shown", "raised Mute"),
    "ceil": ("crashed", "exits_at_once", f"ended with exit code 0 .*{TWICE}"),
    "round": ("failed", "exits", "raised SystemExit: 0"),
    "erf": ("failed", "interrupts", "raised KeyboardInterrupt"),
    "asinh": ("crashed", "aborts", "killed by SIGABRT"),
    "sinh": ("crashed", "kills_itself", f"killed by SIGKILL .*{TWICE}"),
    "cosh": ("failed", "recurses", "raised RecursionError"),
    "asin": ("failed", "leaves_a_child", "raised ValueError: a child was left"),
    "acos": ("crashed", "closes_everything", "ended with exit code 1"),
    "sign": ("failed", "prints_megabytes", "raised ValueError: that is all"),
    "trunc": ("crashed", "prints_without_end", "printed more than 256 MB"),
    "expm1": ("migrated", "closes_output", ""),
    "exp2": ("migrated", "closes_streams", ""),
    "abs": ("failed", "returns_nothing", "gives 0 results where the reference has 1"),
    "neg": ("failed", "returns_text", "gives a str for out0, not a tensor"),
    "log2": ("failed", "returns_another_shape", "as float32[9] where the reference has float32[8]"),
    "log10": ("failed", "returns_another_dtype", "as float64[8] where the reference has float32[8]"),
    "log1p": ("failed", "returns_two", "gives 2 results where the reference has 1"),
    "lgamma": ("failed", "returns_a_foreign_expression", "unbound"),
    "relu": ("failed", "is_wrong", "a defect, not rounding"),
    "sigmoid": ("migrated", "", ""),
    "tan": ("timed out", "kernel_loops", "no answer within 9 s while running case"),
    "atan": ("migrated", "kernel_writes_its_input", ""),
    "tanh": ("crashed", "kernel_aborts", "killed by SIGABRT while running case"),
    "erfc": ("failed", "sleeps_in_a_thread", "raised ValueError: a thread was left"),
    "digamma": ("failed", "goes_elsewhere", "raised ValueError: I moved"),
    "add": ("migrated", "", ""),
    "mul": ("migrated", "", ""),
}


@pytest.fixture(scope="module")
def migrated(shared_place: Place) -> tuple[subprocess.CompletedProcess[str], dict[str, Any]]:
    """One migration with all of them: what was printed, and the outcome by operator."""
    carved = shared_place.run("carve", f"{HERE / 'hostile_program.py'}:make", "-o", "suite")
    assert carved.returncode == 0, carved.stderr
    done = shared_place.run(
        "migrate", "suite", "--target", "llvm", "--timeout", 9, "--memory-limit", 1024,
        "--with", HERE / "hostile_converters.py", "--json", "out.json", timeout=200,
    )  # fmt: skip
    data = json.loads((shared_place.work / "out.json").read_text())
    return done, {s["operator"].split(".")[1]: s for s in data["signatures"]}


def test_the_run_ends_and_says_that_not_all_migrated(migrated: Any) -> None:
    done, outcomes = migrated
    assert done.returncode == 1, done.stderr
    assert "Traceback" not in done.stderr
    assert outcomes.keys() == EXPECTED.keys()
    assert "6 migrated, 16 failed, 10 crashed, 4 timed out" in done.stdout
    assert ": accepted; 6 calls" in done.stdout


@pytest.mark.parametrize("name", EXPECTED)
def test_it_costs_its_operator_and_is_named(migrated: Any, name: str) -> None:
    import re

    outcome = migrated[1][name]
    status, converter, message = EXPECTED[name]
    assert outcome["status"] == status, outcome["message"]
    pattern = re.escape(message).replace(r"\.\*", ".*")
    assert re.search(pattern, outcome["message"]), outcome["message"]
    if converter and status not in ("migrated",) and "memory limit" not in message:
        assert converter in outcome["message"]
    assert "\n" not in outcome["message"]


def test_what_it_printed_is_shown(migrated: Any) -> None:
    done, outcomes = migrated
    assert "about to read address 0" in outcomes["exp"]["output"]
    assert any("hostile_converters.py" in line for line in outcomes["exp"]["output"])  # where it crashed
    assert outcomes["sin"]["output"] == ["looping"]
    assert "| looping" in done.stdout
    assert all(len(line) < 300 for line in outcomes["trunc"]["output"])


def test_a_converter_that_fails_is_not_covered_up_by_another_route(migrated: Any) -> None:
    attempts = migrated[1]["floor"]["attempts"]
    assert [a["route"] for a in attempts] == ["converter"]


def test_a_converter_that_declines_leaves_the_operator_to_other_routes_and_this_is_said(migrated: Any) -> None:
    done, outcomes = migrated
    assert outcomes["sigmoid"]["route"] == "frontend"
    assert outcomes["sigmoid"]["attempts"][0]["message"] == "not for these shapes"
    printed = " ".join(done.stdout.split())
    assert "note: declines (hostile_converters.py:" in printed
    assert "was not used (not for these shapes): route frontend was" in printed


def test_nothing_is_left(migrated: Any, shared_place: Place) -> None:
    assert shared_place.wait_until_alone(5) == []
    assert shared_place.temporaries() == []
    assert not list(shared_place.work.glob("suite/migrations/*/lock"))
