"""Another index is right only when it points at an equal value."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tapml.numerics.example import example
from tapml.numerics.judge import judge

NAN = float("nan")


def code(made, **replaced):
    candidate = [(name, replaced.get(name, tensor)) for name, tensor in made.results]
    verdict = judge(made.signature, made.tensors, made.results, candidate)
    return next((r.code for r in verdict.results if r.code != "exact"), "exact")


def test_max_along_a_dimension():
    made = example("aten.max.dim", torch.tensor([[1.0, 3, 3, 2], [4, 4, 4, 4]]), 1)
    assert code(made, out1=torch.tensor([2, 3])) == "index-tie"
    assert code(made, out1=torch.tensor([3, 3])) == "integer-mismatch"
    assert code(made, out1=torch.tensor([4, 3])) == "integer-mismatch"
    assert code(made, out1=torch.tensor([-2, 3])) == "integer-mismatch"


def test_argmax_flattened_and_along_a_dimension():
    x = torch.tensor([[1.0, 3, 3, 2], [4, 4, 4, 4]])
    assert code(example("aten.argmax.default", x), out0=torch.tensor(7)) == "index-tie"
    assert code(example("aten.argmax.default", x), out0=torch.tensor(2)) == "integer-mismatch"
    made = example("aten.argmax.default", x, 0, True)
    assert code(made, out0=torch.zeros(1, 4, dtype=torch.int64)) == "integer-mismatch"
    made = example("aten.argmin.default", x, -1)
    assert code(made, out0=torch.tensor([0, 2])) == "index-tie"
    assert code(example("aten.argmax.default", torch.tensor([3, 3])), out0=torch.tensor(1)) == "index-tie"


def test_nan_equals_nan():
    made = example("aten.argmax.default", torch.tensor([NAN, 1.0, NAN]))
    assert code(made, out0=torch.tensor(2)) == "index-tie"
    assert code(made, out0=torch.tensor(1)) == "integer-mismatch"


def test_sorting_may_not_repeat_an_index():
    made = example("aten.sort.default", torch.tensor([[2.0, 1, 2, 2]]))
    assert code(made, out1=torch.tensor([[1, 3, 2, 0]])) == "index-tie"
    assert code(made, out1=torch.tensor([[1, 3, 3, 0]])) == "integer-mismatch"


def test_stable_sorting_has_one_answer():
    made = example("aten.sort.stable", torch.tensor([[2.0, 1, 2, 2]]), stable=True)
    assert code(made, out1=torch.tensor([[1, 3, 2, 0]])) == "integer-mismatch"


def test_topk_and_argsort():
    made = example("aten.topk.default", torch.tensor([[5.0, 5, 5, 1], [1, 2, 3, 3]]), 2)
    assert code(made, out1=torch.tensor([[1, 2], [3, 2]])) in ("index-tie", "exact")
    assert code(made, out1=torch.tensor([[1, 1], [3, 2]])) == "integer-mismatch"
    made = example("aten.argsort.default", torch.tensor([1.0, 0.0, 1.0]))
    first = made.results[0][1].tolist()
    assert code(made, out0=torch.tensor([first[0], first[2], first[1]])) == "index-tie"


def test_pooling_indices_address_the_plane():
    x = torch.tensor([[[[1.0, 1], [0, 1]]]])
    made = example("aten.max_pool2d_with_indices.default", x, [2, 2])
    assert code(made, out1=torch.tensor([[[[3]]]])) == "index-tie"
    assert code(made, out1=torch.tensor([[[[2]]]])) == "integer-mismatch"


def test_integers_that_are_no_indices_are_exact():
    cast = example("aten._to_copy.default", torch.tensor([0.0, 1.0, 1.0]), dtype=torch.int64)
    assert code(cast, out0=torch.tensor([0, 2, 1])) == "integer-mismatch"
    count = example("aten.count_nonzero.dim_IntList", torch.tensor([[0.0, 1, 1, 1]]), [1])
    assert code(count, out0=torch.tensor([2])) == "integer-mismatch"
    count = example("aten.count_nonzero.default", torch.tensor([[0.0, 1, 1, 1]]))
    assert code(count, out0=torch.tensor(2)) == "integer-mismatch"
    total = example("aten.sum.dim_IntList", torch.tensor([[1, 1, 1]]), [1])
    assert code(total, out0=torch.tensor([2])) == "integer-mismatch"
    looked_up = example("aten.bucketize.Tensor", torch.tensor([0.5, 0.5]), torch.tensor([0.0, 1.0]))
    assert code(looked_up, out0=torch.tensor([1, 0])) == "integer-mismatch"


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 3), min_size=1, max_size=8), st.data())
def test_accepted_exactly_when_the_values_are_equal(values, data):
    x = torch.tensor(values, dtype=torch.float32)
    guess = data.draw(st.integers(-1, len(values)))
    right = 0 <= guess < len(values) and values[guess] == max(values)
    verdict = code(example("aten.argmax.default", x, 0), out0=torch.tensor(guess))
    assert (verdict in ("exact", "index-tie")) == right


@pytest.mark.parametrize("dtype", [torch.float16, torch.int32])
def test_other_dtypes(dtype):
    made = example("aten.max.dim", torch.tensor([[3, 3, 1]], dtype=dtype), 1)
    assert code(made, out1=torch.tensor([1])) in ("index-tie", "exact")
    assert code(made, out1=torch.tensor([2])) == "integer-mismatch"
