"""The float64 truth of a call."""

import warnings

import pytest
import torch

from tapml.numerics.example import example
from tapml.numerics.judge import judge
from tapml.numerics.oracle import float64_results, widen


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_results_are_float64_on_the_recorded_bits(dtype):
    x, w = torch.randn(3, 8).to(dtype), torch.randn(8, 5).to(dtype)
    made = example("aten.mm.default", x, w)
    truth = float64_results(made.signature, made.tensors)
    assert torch.equal(truth.results["out0"], x.double() @ w.double())


def test_a_cast_to_lower_precision_is_exact():
    made = example("aten._to_copy.default", torch.randn(9), dtype=torch.float16)
    assert torch.equal(float64_results(made.signature, made.tensors).results["out0"], made.tensors[0].double())


def test_integer_results_are_left_to_the_record():
    made = example("aten.gt.Scalar", torch.tensor([0.1]), 0.1)
    assert float64_results(made.signature, made.tensors).results == {}
    assert judge(made.signature, made.tensors, made.results, made.results).passed


def test_true_division_of_integers_is_computed_in_float64():
    made = example("aten.div.Tensor", torch.tensor([1, 2]), torch.tensor([3, 7]))
    before = torch.get_default_dtype()
    truth = float64_results(made.signature, made.tensors)
    assert truth.results["out0"].tolist() == [1 / 3, 2 / 7]
    assert torch.get_default_dtype() == before


def test_complex64_becomes_complex128():
    made = example("aten.mul.Tensor", torch.randn(4, dtype=torch.complex64), torch.randn(4, dtype=torch.complex64))
    assert float64_results(made.signature, made.tensors).results["out0"].dtype == torch.complex128
    assert judge(made.signature, made.tensors, made.results, made.results).code == "exact"


def test_in_place_calls_give_the_state_after_and_leave_the_inputs():
    x = torch.randn(4)
    made = example("aten.add_.Tensor", x, torch.ones(4))
    truth = float64_results(made.signature, made.tensors)
    assert torch.equal(truth.results["arg0"], x.double() + 1)
    assert judge(made.signature, made.tensors, made.results, made.results).passed


def test_another_meaning_in_float64_is_noticed():
    made = example("aten.view.dtype", torch.zeros(4, dtype=torch.int32), torch.float32)
    truth = float64_results(made.signature, made.tensors)
    assert "float64" in truth.reason
    verdict = judge(made.signature, made.tensors, made.results, made.results)
    assert verdict.passed and "no-oracle" in verdict.warnings[0]


def test_without_a_float64_kernel_the_record_decides():
    weight = torch.randint(-100, 100, (8, 32), dtype=torch.int8)
    made = example("aten._weight_int8pack_mm.default", torch.randn(4, 32).bfloat16(), weight, torch.rand(8).bfloat16())
    verdict = judge(made.signature, made.tensors, made.results, made.results)
    if verdict.warnings:
        assert verdict.warnings[0].startswith("no-oracle")
    wrong = [("out0", made.results[0][1] * 1.05)]
    assert verdict.passed and not judge(made.signature, made.tensors, made.results, wrong).passed


def test_warnings_of_the_operator_are_not_repeated():
    made = example("aten.mm.default", torch.randn(2, 2), torch.randn(2, 2))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        float64_results(made.signature, made.tensors)


def test_widening_touches_dtype_arguments_only():
    made = example("aten.sum.dim_IntList", torch.randn(2, 3), [1], False, dtype=torch.float32)
    wide, tensors = widen(made.signature, made.tensors)
    assert '"float64"' in wide.arguments and tensors[0].dtype == torch.float64
    assert wide.tensors == made.signature.tensors


GROUPED = [
    ((10, 32), (4, 32, 16), [2, 5, 5, 9]),
    ((3, 10, 32), (32, 16), [5, 8, 16]),
    ((10, 32), (32, 16), [8, 16, 16, 32]),
    ((4, 10, 32), (4, 32, 16), None),
]


@pytest.mark.parametrize("left, right, ends", GROUPED)
def test_grouped_matrix_products(left, right, ends):
    offsets = None if ends is None else torch.tensor(ends, dtype=torch.int32)
    made = example("aten._grouped_mm.default", torch.randn(left), torch.randn(right), offs=offsets)
    truth = float64_results(made.signature, made.tensors)
    assert truth.results["out0"].shape == made.results[0][1].shape
    assert judge(made.signature, made.tensors, made.results, made.results).passed
    wrong = made.results[0][1].clone()
    wrong.view(-1)[0] += 0.01
    assert not judge(made.signature, made.tensors, made.results, [("out0", wrong)]).passed


def test_rows_that_a_grouped_product_never_writes_are_not_compared():
    made = example(
        "aten._grouped_mm.default", torch.randn(10, 32), torch.randn(2, 32, 16), offs=torch.tensor([4, 9]).int()
    )
    other = made.results[0][1].clone()
    other[9] = float("nan")
    assert judge(made.signature, made.tensors, made.results, [("out0", other)]).passed
    other[8, 3] = float("nan")
    assert not judge(made.signature, made.tensors, made.results, [("out0", other)]).passed


def test_a_reference_far_from_float64_excuses_nothing():
    x = torch.arange(64.0)
    made = example("aten.as_strided.default", x[::2], [16], [1])
    same = judge(made.signature, made.tensors, made.results, made.results)
    assert same.passed and same.warnings[0].startswith("reference-off: ")
    wrong = [("out0", made.results[0][1] * 1.1)]
    assert not judge(made.signature, made.tensors, made.results, wrong).passed


def test_a_replacement_that_gives_another_shape_is_no_truth() -> None:
    """Offsets that decrease: PyTorch's kernel takes them as they are, and the products of the groups do not fit together."""
    ends = torch.tensor([5, 8, 8, 5], dtype=torch.int32)
    made = example("aten._grouped_mm.default", torch.randn(8, 16), torch.randn(4, 16, 4), ends)
    truth = float64_results(made.signature, made.tensors)
    assert not truth.results and "another meaning in float64" in truth.reason
    found = judge(made.signature, made.tensors, made.results, made.results)
    assert found.passed and found.warnings[0].startswith("no-oracle")
