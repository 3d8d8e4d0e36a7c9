"""``--select``: words, and, or, not, brackets."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tapml.errors import UsageError
from tapml.migration.ladder import compute_signatures
from tapml.migration.select import selector
from tapml.suite.reader import Suite


@pytest.fixture(scope="module")
def records(carved: Callable[..., Path]) -> list:
    return compute_signatures(Suite.open(carved("mlp")))


@pytest.mark.parametrize(
    ("expression", "operators"),
    [
        ("", {"addmm", "native_layer_norm", "gelu", "softmax"}),
        ("softmax", {"softmax"}),
        ("softmax or gelu", {"softmax", "gelu"}),
        ("not softmax", {"addmm", "native_layer_norm", "gelu"}),
        ("addmm and up", {"addmm"}),
        ("not (softmax or gelu) and not addmm", {"native_layer_norm"}),
        ("aten.gelu.default", {"gelu"}),
        ("nothing_of_this_name", set()),
    ],
)
def test_expressions(records: list, expression: str, operators: set[str]) -> None:
    chosen = selector(expression)
    names = {r.signature.operator.split(".")[1].lstrip("_") for r in records if chosen(r)}
    assert {n.replace("layer_norm", "native_layer_norm") if n == "layer_norm" else n for n in names} == operators


def test_a_word_matches_module_paths_and_ids(records: list) -> None:
    by_module = [r for r in records if selector("down")(r)]
    assert by_module and all("down" in " ".join(r.modules) for r in by_module)
    (by_id,) = [r for r in records if selector(records[0].signature.id)(r)]
    assert by_id is records[0]


@pytest.mark.parametrize("expression", ["softmax or", "(gelu", "gelu gelu", "and", "a + b", "not", ")("])
def test_what_is_no_expression_is_an_error_with_an_example(records: list, expression: str) -> None:
    with pytest.raises(UsageError) as caught:
        selector(expression)(records[0])
    assert expression in caught.value.message


@pytest.mark.parametrize("expression", ["exit", "records", "__name__", "lambda", "gelu.__class__"])
def test_words_stand_for_themselves_not_for_names_of_python(records: list, expression: str) -> None:
    assert not any(selector(expression)(r) for r in records)
