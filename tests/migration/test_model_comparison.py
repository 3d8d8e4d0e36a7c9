"""Whether a program's outputs are the reference's: exactly, within bounds, or another text after a near tie."""

from __future__ import annotations

import json

import pytest
import torch

from tapml.numerics.model import MODEL_RTOL, ModelComparison, compare_outputs

VOCABULARY = 50


def logits(steps: int = 4, batch: int = 1) -> torch.Tensor:
    torch.manual_seed(1)
    return torch.randn(steps, batch, VOCABULARY) * 3


def greedy(scores: torch.Tensor) -> torch.Tensor:
    """[steps, batch, vocabulary] -> [batch, steps]."""
    return scores.argmax(-1).T.contiguous()


def text(scores: torch.Tensor) -> dict[str, torch.Tensor]:
    return {"tokens": greedy(scores), "logits": scores}


def test_the_same_is_accepted() -> None:
    outputs = {"x": torch.randn(3, 4), "n": torch.arange(5), "b": torch.tensor([True, False])}
    found = compare_outputs(outputs, {k: v.clone() for k, v in outputs.items()})
    assert found.accepted and [o.name for o in found.outputs] == ["x", "n", "b"]
    json.dumps(found.to_json())


@pytest.mark.parametrize("other", [{}, {"y": torch.zeros(2)}, {"x": torch.zeros(2), "y": torch.zeros(2)}])
def test_other_names_are_refused_and_named(other: dict[str, torch.Tensor]) -> None:
    found = compare_outputs({"x": torch.zeros(2)}, other)
    assert not found.accepted and "expected the outputs x" in found.explanation


@pytest.mark.parametrize("other", [torch.zeros(3), torch.zeros(2, 1), torch.zeros(2, dtype=torch.float64)])
def test_other_shapes_and_dtypes_are_refused_and_told(other: torch.Tensor) -> None:
    found = compare_outputs({"x": torch.zeros(2)}, {"x": other})
    assert not found.accepted and "expected float32[2]" in found.explanation


def test_integers_are_equal_or_wrong() -> None:
    found = compare_outputs({"n": torch.arange(10)}, {"n": torch.arange(10).index_fill(0, torch.tensor([3]), 9)})
    assert not found.accepted and "1 of 10 values differ" in found.explanation


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_floats_keep_within_the_bound_of_their_dtype(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    limit = MODEL_RTOL[str(dtype).removeprefix("torch.")]
    expected = torch.randn(1000, dtype=torch.float64).to(dtype)
    near = (expected.double() * (1 + limit / 4)).to(dtype)
    far = (expected.double() * (1 + limit * 4)).to(dtype)
    assert compare_outputs({"x": expected}, {"x": near}).accepted
    assert not compare_outputs({"x": expected}, {"x": far}).accepted


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_nonfinite_values_stand_where_the_reference_has_them(bad: float) -> None:
    clean, dirty = torch.ones(4), torch.tensor([1.0, bad, 1.0, 1.0])
    assert compare_outputs({"x": dirty}, {"x": dirty.clone()}).accepted
    for a, b in ((clean, dirty), (dirty, clean), (dirty, dirty.flip(0))):
        found = compare_outputs({"x": a}, {"x": b})
        assert not found.accepted and "NaN or infinities" in found.explanation
    assert not compare_outputs({"x": torch.tensor([float("inf")])}, {"x": torch.tensor([float("-inf")])}).accepted


def test_tokens_that_differ_beyond_the_error_are_refused() -> None:
    scores = logits()
    moved = text(scores.clone())
    moved["tokens"][0, 2] = (moved["tokens"][0, 2] + 1) % VOCABULARY
    found = compare_outputs(text(scores), moved)
    assert not found.accepted and "token 2 differs" in found.explanation


def test_a_near_tie_excuses_what_follows_and_says_so() -> None:
    scores = logits(steps=5)
    best, second = scores[2, 0].topk(2).indices
    scores[2, 0, best] = scores[2, 0, second] + 1e-6
    moved = scores.clone()
    moved[2, 0, second] += 4e-6
    moved[3:] = torch.randn(2, 1, VOCABULARY) * 3  # another text from there on
    found = compare_outputs(text(scores), text(moved))
    assert found.accepted, found.explanation
    assert "token 2 differs" in found.explanation and "within twice the error" in found.explanation


def test_before_the_near_tie_logits_are_compared_all_the_same() -> None:
    scores = logits(steps=5)
    best, second = scores[2, 0].topk(2).indices
    scores[2, 0, best] = scores[2, 0, second] + 1e-6
    moved = scores.clone()
    moved[2, 0, second] += 4e-6
    moved[0] += torch.randn(1, VOCABULARY)
    found = compare_outputs(text(scores), text(moved))
    assert not found.accepted


def test_the_explanation_is_of_what_was_refused() -> None:
    reference = {"good": torch.ones(4), "bad": torch.ones(4)}
    found: ModelComparison = compare_outputs(reference, {"good": torch.ones(4), "bad": torch.zeros(4)})
    assert not found.accepted
    assert found.explanation.startswith("bad: ") and "good" not in found.explanation
