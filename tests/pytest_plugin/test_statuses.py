"""What becomes of a case is what pytest says of it: right, wrong, crashed, hung, unsupported, skipped, not executed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tapml.migration.outcome import CaseResult, Outcome
from tapml.pytest_plugin.explain import case_outcome
from tapml.pytest_plugin.judging import Judging
from tests.pytest_plugin.conftest import CONVERTERS, Run, properties

pytest_plugins = ("pytester",)

DEADLY = """
import ctypes, time
import tapml

@tapml.converter("aten.sin.default")
def dies(ctx, x):
    print("\\x1b[31mred\\x1b[0m and \\x00 and \\x08", flush=True)
    ctypes.string_at(0)

@tapml.converter("aten.tanh.default")
def hangs(ctx, x):
    time.sleep(1000)
"""


def test_all_right(run: Run) -> None:
    run.suite("mlp")
    ran = run("suite", "--tapml-target", "llvm")
    assert ran.ret == 0
    ran.stdout.fnmatch_lines(
        [
            "tapml: target llvm, device llvm:cpu (native): *",
            "tapml: *suite: 5 cases of 5 of 5 compute signatures; kept in PyTorch and not tested: 2 view",
            "suite/manifest.json .....*",
            "=* tapml: llvm on llvm:cpu (native) =*",
            "5 cases of 5 signatures: 5 passed",
            "=* 5 passed in *",
        ]
    )
    assert [run.junit.get(k) for k in ("tests", "failures", "errors", "skipped")] == ["5", "0", "0", "0"]
    for name, case in run.cases.items():
        found = properties(case)
        assert (found["target"], found["device"], found["mode"]) == ("llvm", "llvm:cpu", "native")
        assert found["status"] == "passed" and int(found["launches"]) > 0 and found["error"]
        assert name.startswith(f"{found['operator']}.{found['signature']}.")


def test_a_planted_failure_is_explained(run: Run) -> None:
    """The sine that is right for small arguments: the first case passes, the others are judged all the same."""
    run.suite("waves")
    ran = run("suite", "--tapml-target", "llvm", f"--tapml-with={CONVERTERS}/taylor_sin.py", "-k", "sin or tanh")
    assert ran.ret == 1
    sin = {n: s for n, s in run.statuses.items() if n.startswith("aten.sin")}
    assert sin["aten.sin.default/0"] == "passed" and set(sin.values()) == {"passed", "failure"} and len(sin) == 3
    assert run.statuses["aten.tanh.default/0"] == "passed"
    text = ran.stdout.str()
    assert "Traceback" not in text and "tensor(" not in text and "judging.py" not in text
    ran.stdout.fnmatch_lines(
        [
            "_* aten.sin.default ????????????/? _*",
            "failed on llvm:cpu (native), target llvm: *max error * at [[]*candidate *, float64 *",
            "call        aten.sin.default(float32[[]2, 8])",
            "results     out0 float32[[]2, 8]",
            "signature   ????????????, case ? of 3 (numbered from 0), kept for: *",
            "this case   call * in steps.*, at *programs.py:* in forward",
            "called by   steps.0 (1), steps.1 (1), steps.2 (1) and 3 more modules",
            "route       converter: *taylor_sin*",
            "attempt     converter: failed: sin (taylor_sin.py:*",
            "launches    1",
            "other cases *",
            "look at it  tapml show *suite ????????????/?",
            "FAILED suite/manifest.json::aten.sin.default::????????????::? - failed: *",
        ]
    )
    (failure, *_) = [c.find("failure") for c in run.cases.values() if c.find("failure") is not None]
    assert failure is not None and str(failure.get("message")).startswith("failed: max error ")
    assert str(failure.text).startswith("failed on llvm:cpu (native), target llvm: ")


def test_a_crash_and_a_hang_cost_their_own_signatures(run: Run) -> None:
    run.suite("waves")
    (run.path / "deadly.py").write_text(DEADLY)
    ran = run("suite", "--tapml-target", "llvm", "--tapml-with", "deadly.py", "--tapml-timeout", 2, "-v")
    assert ran.ret == 1
    ran.stdout.fnmatch_lines(["*::aten.sin.default::*::0 CRASHED *", "*::aten.tanh.default::*::0 TIMED OUT *"])
    ran.stdout.re_match_lines([r"\d+ cases of \d+ signatures: \d+ passed, 3 crashed, 1 timed out"])
    ran.stdout.fnmatch_lines(["crashed on llvm:cpu *: killed by SIGSEGV while lowering by dies (deadly.py:*"])
    others = {s for n, s in run.statuses.items() if "sin" not in n and "tanh" not in n}
    assert others == {"passed"}
    assert {s for n, s in run.statuses.items() if "sin" in n} == {"failure"}
    found = {properties(c)["status"]: properties(c)["launches"] for c in run.cases.values()}
    assert found["crashed"] == found["timed out"] == "0"


def test_unsupported_is_xfailed_or_failed_as_one_wishes(run: Run) -> None:
    run.suite("lengths")
    chosen = ("suite", "--tapml-target", "llvm", "-k", "add or where", "-rx", "-v")
    ran = run(*chosen)
    assert ran.ret == 0
    ran.assert_outcomes(passed=1, xfailed=1)
    ran.stdout.fnmatch_lines(
        [
            "*::aten.add.Tensor::*::0 UNSUPPORTED *",
            "2 cases of 2 signatures: 1 passed, 1 unsupported",
            "UNSUPPORTED suite/manifest.json::aten.add.Tensor::* - unsupported: TVM has no complex64",
        ]
    )
    (skipped,) = run.junit.iter("skipped")
    assert skipped.get("type") == "pytest.xfail" and "complex64" in str(skipped.get("message"))
    ran = run(*chosen, "--runxfail")
    assert ran.ret == 1
    ran.assert_outcomes(passed=1, failed=1)
    ran.stdout.fnmatch_lines(["unsupported on llvm:cpu (native), target llvm: TVM has no complex64"])


def test_skipped_says_why(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    run.suite("silu")
    outcome = Outcome("", "aten.silu.default", "skipped", "the device has no half precision")
    monkeypatch.setattr(Judging, "outcome", lambda self, suite, record: outcome)
    ran = run("suite", "--tapml-target", "llvm", "-rs")
    ran.assert_outcomes(skipped=1)
    ran.stdout.fnmatch_lines(
        ["1 case of 1 signature: 1 skipped", "SKIPPED *suite/manifest.json:1: the device has no half precision"]
    )


RIGHT = CaseResult("a/0", True, "exact", "exact", (), 1, 0.1, {})
WRONG = replace(RIGHT, passed=False, code="error-too-large", explanation="off by one")
PASSED = Outcome("a", "aten.exp.default", "passed", "exact", route="converter", launches=1, cases=(RIGHT,))


@pytest.mark.parametrize(
    ("outcome", "case", "status", "words"),
    [
        (PASSED, "a/0", "passed", "exact"),
        (PASSED, "a/1", "failed", "not executed"),
        (replace(PASSED, cases=()), "a/0", "failed", "exact"),
        (replace(PASSED, cases=(replace(RIGHT, launches=0),)), "a/0", "failed", "no kernel was launched"),
        (replace(PASSED, status="failed", cases=(RIGHT, replace(WRONG, case="a/1"))), "a/0", "passed", "exact"),
        (replace(PASSED, status="failed", cases=(RIGHT, replace(WRONG, case="a/1"))), "a/1", "failed", "off by one"),
        (replace(PASSED, status="failed", message="refused", cases=(WRONG,)), "a/1", "failed", "not executed: refused"),
        (replace(PASSED, status="failed", message="refused", cases=()), "a/0", "failed", "refused"),
        (replace(PASSED, status="crashed", message="by SIGSEGV"), "a/0", "crashed", "by SIGSEGV"),
        (replace(PASSED, status="timed out", message="after 1 s"), "a/0", "timed out", "after 1 s"),
        (replace(PASSED, status="unsupported", message="no way"), "a/0", "unsupported", "no way"),
    ],
)
def test_what_was_not_executed_is_not_passed(outcome: Outcome, case: str, status: str, words: str) -> None:
    found = case_outcome(outcome, case)
    assert found.status == status and words in found.explanation


def test_an_emulated_device_is_called_that(run: Run) -> None:
    from tapml.platform import find_platform

    if not any(d.name == "metal:emulated" for d in find_platform("metal").devices()):
        pytest.skip("needs g++, which metal:emulated compiles with")
    run.suite("silu")
    ran = run("suite", "--tapml-target", "metal", "--tapml-device", "metal:emulated")
    ran.assert_outcomes(passed=1)
    ran.stdout.fnmatch_lines(
        ["tapml: target metal, device metal:emulated (emulated): *", "=* tapml: metal on metal:emulated (emulated) =*"]
    )
    (case,) = run.cases.values()
    assert properties(case)["mode"] == "emulated"
