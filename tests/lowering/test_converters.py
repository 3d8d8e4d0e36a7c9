"""Every converter against PyTorch, on arguments made from its operator's schema or listed here."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import pytest

from tapml.errors import TapmlError
from tapml.lowering.registry import Entry, registered
from tests.lowering import explicit, samples
from tests.lowering.running import Call, record, run_call

BUILTIN = [e for e in registered() if e.builtin and e.target in (None, "llvm")]


def calls(entry: Entry) -> Iterator[Call]:
    """Calls of the operator that PyTorch executes, and that have results to compare; each signature once."""
    given = explicit.CASES.get(entry.operator)
    chosen = given() if given is not None else samples.by_schema(entry.operator)
    seen = set()
    for call in samples.accepted(iter(chosen), lambda sample: record(entry.operator, *sample)):
        if call.signature.id in seen or not any(t.numel() for _, t in call.results):
            continue
        seen.add(call.signature.id)
        yield call


def problem(call: Call) -> str:
    """What is wrong with the converter on one call; empty if nothing."""
    text = f"{call.signature} {call.signature.arguments}"
    try:
        ran = run_call(call, "converter")
    except TapmlError as error:
        return f"{text}: {error.message}"
    if not ran.verdict.passed:
        return f"{text}: {ran.verdict.explanation}"
    return "" if ran.launches else f"{text}: no kernel was launched"


@pytest.mark.parametrize("entry", BUILTIN, ids=lambda e: f"{e.operator}-{e.target}" if e.target else e.operator)
def test_some_calls(entry: Entry, pytestconfig: pytest.Config) -> None:
    """Three calls an operator, spread over what there is: all of them take minutes."""
    every = list(itertools.islice(calls(entry), 60))
    assert every, f"no sample for {entry.operator}: add one to {explicit.__name__}"
    step = math.ceil(len(every) / 3)
    problems = [p for call in every[::step] if (p := problem(call))]
    assert not problems, "\n".join(problems)


@pytest.mark.slow
@pytest.mark.parametrize("entry", BUILTIN, ids=lambda e: f"{e.operator}-{e.target}" if e.target else e.operator)
def test_all_calls(entry: Entry) -> None:
    problems = [p for call in itertools.islice(calls(entry), 60) if (p := problem(call))]
    assert not problems, "\n".join(problems)
