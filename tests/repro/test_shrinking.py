"""Calls made smaller; the candidate under test is a function, so that every attempt is seen."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

import pytest
import torch

from tapml.migration.blame import described
from tapml.repro.kind import Kind, essence, of_error, of_values
from tapml.repro.shrink import Shrinker
from tapml.repro.subject import Memory, Subject, executed
from tapml.repro.trial import Finding
from tapml.repro.workbench import OutOfTime
from tapml.suite.call import decode_arguments, encode_arguments

Candidate = Callable[..., torch.Tensor]


def subject(operator: str, *args: Any, **kwargs: Any) -> Subject:
    template, tensors = encode_arguments(list(args), kwargs)
    return Subject.made(operator, template, tensors)


def attempt(candidate: Candidate, subject: Subject) -> Finding:
    """As a worker does it, with a function in the place of kernels, exact equality in that of the judge."""
    import json

    tensors = [m.tensor() for m in subject.tensors]
    try:
        ((name, expected),) = executed(subject.operator, subject.arguments, tensors)
    except Exception as error:
        return Finding("rejected", None, described(error))
    args, kwargs = decode_arguments(json.loads(subject.arguments), tensors)
    try:
        found = candidate(*args, **kwargs)
    except RuntimeError as error:
        return Finding("failed", of_error("compile", str(error)), str(error))
    if torch.equal(torch.nan_to_num(expected), torch.nan_to_num(found)) and torch.equal(
        expected.isnan(), found.isnan()
    ):
        return Finding("passed", None, "")
    code = "error-too-large" if torch.equal(expected.isnan(), found.isnan()) else "nonfinite-pattern"
    return Finding("failed", of_values(code, name, expected, found), "wrong")


def shrink(candidate: Candidate, start: Subject, **options: Any) -> Any:
    kind = attempt(candidate, start).kind
    assert kind is not None, "the candidate is wrong to begin with"
    return Shrinker(lambda s: attempt(candidate, s), (kind,), **options).run(start)


def without_nan(x: torch.Tensor) -> torch.Tensor:
    return torch.relu(torch.nan_to_num(x, nan=0.0))


def test_one_lost_nan_is_one_element() -> None:
    x = torch.randn(6, 7, 5)
    x[3, 2, 1] = x[5, 6, 4] = math.nan
    found = shrink(without_nan, subject("aten.relu.default", x))
    (left,) = found.subject.tensors
    assert left.spec.numel == 1 and left.tensor().isnan().all()
    assert found.finished and found.tried < 60
    assert left.spec.shape == ()


def test_extents_that_belong_together_stay_together() -> None:
    def wrong(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return a @ b + (1 if a.shape[1] >= 3 else 0)

    found = shrink(wrong, subject("aten.mm.default", torch.randn(8, 8), torch.randn(8, 8)))
    assert [m.spec.shape for m in found.subject.tensors] == [(1, 3), (3, 1)]


def test_arguments_become_defaults() -> None:
    def wrong(x: torch.Tensor, y: torch.Tensor, *, alpha: float = 1) -> torch.Tensor:
        return x - y if alpha == 1 else x + y * alpha

    start = subject("aten.add.Tensor", torch.tensor([1.5, 2.0]), torch.tensor([0.25, 4.0]), alpha=1)
    found = shrink(wrong, start)
    assert found.subject.arguments == '[[{"tensor":0},{"tensor":1}],{}]'


def test_strides_go_unless_they_are_the_reason() -> None:
    x = torch.randn(4, 6).t()
    always = shrink(lambda x: -torch.relu(x), subject("aten.relu.default", x + 9))
    assert all(m.tensor().is_contiguous() for m in always.subject.tensors)

    def strided(x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x) if x.is_contiguous() else torch.relu(x) + 1

    found = shrink(strided, subject("aten.relu.default", x))
    assert not found.subject.tensors[0].tensor().is_contiguous()
    assert found.subject.elements == 4


def test_a_failure_does_not_become_another_one() -> None:
    """All zeros would be wrong too: NaN instead of 0. That is not the failure that is reduced."""

    def wrong(x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x) / x * x if bool((x == 0).any()) else torch.relu(x) * 1.5

    found = shrink(wrong, subject("aten.relu.default", torch.rand(20) + 0.5))
    (left,) = found.subject.tensors
    assert left.tensor().tolist() in (1.0, [1.0])


def test_a_refusal_keeps_its_words() -> None:
    def refuses(x: torch.Tensor) -> torch.Tensor:
        if x.dim() == 2:
            raise RuntimeError(f"expected at most 1 dimension, found {list(x.shape)}")
        if x.numel() > 1:
            raise RuntimeError("something else")
        return torch.relu(x)

    found = shrink(refuses, subject("aten.relu.default", torch.randn(5, 9)))
    assert found.subject.tensors[0].spec.shape == (1, 1)


def test_one_seed_one_result() -> None:
    x = torch.randn(9, 9, generator=torch.Generator().manual_seed(1))
    x[2, 3] = math.nan
    start = subject("aten.relu.default", x)
    one, two = (shrink(without_nan, start, seed=4) for _ in range(2))
    assert one.taken == two.taken and one.tried == two.tried and one.subject == two.subject


def test_the_smallest_so_far_when_the_time_is_up() -> None:
    x = torch.full((64,), math.nan)
    start = subject("aten.relu.default", x)
    kind = attempt(without_nan, start).kind
    assert kind is not None
    left = 3

    def limited(candidate: Subject) -> Finding:
        nonlocal left
        if left == 0:
            raise OutOfTime
        left -= 1
        return attempt(without_nan, candidate)

    begin = time.monotonic()
    found = Shrinker(limited, (kind,)).run(start)
    assert not found.finished and time.monotonic() - begin < 10
    assert attempt(without_nan, found.subject).kind is not None
    assert found.subject.elements < 64
    assert found.back_to(0).subject == start and not found.back_to(0).taken


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("LLVM: InternalError: Check failed: x3 has 12 bits", "TVM: TypeError: Check failed: x4 has 7 bits", True),
        ("expected shape [3, 4], found [4]", "expected shape [1], found [2, 2]", True),
        ("no such function", "no such operator", False),
    ],
)
def test_words_without_numbers(one: str, other: str, same: bool) -> None:
    assert (essence(one) == essence(other)) is same
    assert of_error("compile", one).admits(of_error("compile", other)) is same
    assert not of_error("compile", one).admits(of_error("load", one))


def test_fewer_patterns_are_the_same_failure_and_others_are_not() -> None:
    def kind(*patterns: str) -> Kind:
        return Kind("result", "nonfinite-pattern", "out0", patterns=frozenset(patterns))

    both = kind("nan -> finite", "inf -> nan")
    assert both.admits(kind("nan -> finite")) and not kind("nan -> finite").admits(both)
    assert not both.admits(kind()) and not both.admits(kind("finite -> inf"))


def test_memory_is_what_it_was() -> None:
    for tensor in (torch.randn(4, 6)[:, 1::2].t(), torch.tensor(True), torch.ones(2, 1, dtype=torch.bfloat16).expand(2, 3),
                   torch.empty(0, 3), torch.tensor([1 + 2j])):  # fmt: skip
        again = Memory.of(tensor).tensor()
        assert again.stride() == tensor.stride() and again.shape == tensor.shape and torch.equal(again, tensor)


def test_a_failure_that_is_another_at_first_is_shrunk_all_the_same() -> None:
    start = subject("aten.relu.default", torch.tensor([1.0, math.nan, -2.0]))
    kind = attempt(without_nan, start).kind
    assert kind is not None
    answers = iter([Finding("passed", None, ""), Finding("failed", of_error("run", "something else"), "")])
    shrinker = Shrinker(lambda s: next(answers, None) or attempt(without_nan, s), (kind,))
    assert shrinker.begins_with(start)
    assert shrinker.run(start).subject.elements == 1

    assert not Shrinker(lambda s: Finding("passed", None, ""), (kind,)).begins_with(start)
