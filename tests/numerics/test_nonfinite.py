"""NaN, infinities, overflow and headroom."""

import pytest
import torch

from tapml.numerics.example import example
from tapml.numerics.judge import judge

NAN, INF = float("nan"), float("inf")


def verdict(made, candidate):
    return judge(made.signature, made.tensors, made.results, [(made.results[0][0], candidate), *made.results[1:]])


@pytest.mark.parametrize(
    "operator, inputs, wrong",
    [
        ("aten.maximum.default", ([1.0, NAN], [NAN, 1.0]), [1.0, 1.0]),
        ("aten.relu.default", ([NAN, -1.0],), [0.0, 0.0]),
        ("aten.exp.default", ([1000.0],), [3.4e38]),
        ("aten.reciprocal.default", ([0.0],), [-INF]),
        ("aten.add.Tensor", ([1.0, 2.0], [1.0, 1.0]), [2.0, NAN]),
        ("aten.add.Tensor", ([1.0, 2.0], [1.0, 1.0]), [2.0, INF]),
    ],
)
def test_another_pattern_fails(operator, inputs, wrong):
    made = example(operator, *(torch.tensor(i) for i in inputs))
    assert verdict(made, made.results[0][1]).passed
    found = verdict(made, torch.tensor(wrong))
    assert not found.passed and found.code == "nonfinite-pattern" and "at [" in found.explanation


def test_a_pattern_of_nan_only():
    made = example("aten._softmax.default", torch.full((2, 4), -INF), -1, False)
    assert verdict(made, made.results[0][1]).code == "exact"
    assert verdict(made, torch.zeros(2, 4)).code == "nonfinite-pattern"


def test_finite_elements_beside_infinite_ones_are_still_judged():
    made = example("aten.mul.Tensor", torch.tensor([INF, 1.5, NAN, 2.0]), torch.tensor([1.0, 3.0, 1.0, 2.0]))
    assert verdict(made, torch.tensor([INF, 4.5, NAN, 4.0])).passed
    assert verdict(made, torch.tensor([INF, 4.6, NAN, 4.0])).code == "error-too-large"


def test_better_than_the_reference_is_said_aloud():
    made = example("aten.mean.default", torch.full((8,), 60.0).half())
    reference = [("out0", torch.tensor(INF).half())]
    found = judge(made.signature, made.tensors, reference, made.results)
    assert found.passed and found.code == "better-than-reference" and found.warnings
    same = judge(made.signature, made.tensors, reference, reference)
    assert same.passed and same.code == "exact" and "reference-nonfinite" in same.warnings[0]
    wrong = judge(made.signature, made.tensors, reference, [("out0", torch.tensor(61.0).half())])
    assert not wrong.passed


def test_results_that_depend_on_the_dtypes_limits_follow_the_reference():
    made = example("aten.nan_to_num.default", torch.tensor([INF, 1.0]))
    assert verdict(made, made.results[0][1]).passed
    assert not verdict(made, torch.tensor([1.0, 1.0])).passed


def test_rounding_across_the_edge_of_the_dtype_is_no_mismatch():
    x = torch.tensor([[255.0, 1.0]] * 2).half()
    made = example("aten.mm.default", x, torch.tensor([[257.0, 0.0], [-16.0, 1.0]]).half())
    assert made.results[0][1][0, 0] == 65504 and made.tensors[0].dtype == torch.float16
    assert verdict(made, torch.tensor([[INF, 1.0]] * 2).half()).passed
    assert not verdict(made, torch.tensor([[-INF, 1.0]] * 2).half()).passed


def test_headroom_of_float16():
    half = example("aten.add.Tensor", torch.tensor([30000.0]).half(), torch.tensor([1000.0]).half())
    assert not verdict(half, half.results[0][1]).warnings
    close = example("aten.add.Tensor", torch.tensor([30000.0]).half(), torch.tensor([5000.0]).half())
    (warning,) = verdict(close, close.results[0][1]).warnings
    assert warning == "headroom: 3.5e+04 is 53% of the largest float16 (6.55e+04)"
    beyond = example("aten.add.Tensor", torch.tensor([58820.0]).half(), torch.tensor([33760.0]).half())
    found = verdict(beyond, beyond.results[0][1])
    assert found.passed and found.warnings[0].startswith("overflow: 1 exact values up to 9.258e+04")


def test_the_fill_of_an_attention_mask_is_no_headroom_warning():
    made = example("aten.neg.default", torch.full((3,), torch.finfo(torch.float32).max))
    assert not verdict(made, made.results[0][1]).warnings


@pytest.mark.parametrize("bias", [None, 0.25])
def test_an_absorbed_overflow_is_a_failure(bias):
    row = torch.full((2, 64), 0.1)
    row[0, 0] = 795
    weight = None if bias is None else torch.ones(64).half()
    addend = None if bias is None else torch.full((64,), bias).half()
    made = example("aten.native_layer_norm.default", row.half(), [64], weight, addend, 1e-5)
    wrong = made.results[0][1].clone()
    wrong[0] = bias or 0
    found = verdict(made, wrong)
    assert not found.passed and found.code == "absorbed-overflow" and "795" in found.explanation


def test_an_overflow_that_pytorch_absorbs_as_well_is_told_and_judged_against_pytorch():
    """The squares of 7e19 overflow float32: PyTorch's variance is infinite, and its result the bias."""
    rows = torch.randn(2, 64, generator=torch.Generator().manual_seed(0)) * 3e19
    weight, bias = torch.ones(64), torch.full((64,), 0.25)
    made = example("aten.native_layer_norm.default", rows, [64], weight, bias, 1e-5)
    reference = made.results[0][1]
    assert bool((reference == 0.25).all()), "this is about what PyTorch 2.13 does"
    found = verdict(made, reference.clone())
    assert found.passed and {w.split(":")[0] for w in found.warnings} == {"reference-overflow", "reference-off"}
    wrong = reference.clone()
    wrong[1, 3] = 0.5
    assert not verdict(made, wrong).passed
    right = torch.nn.functional.layer_norm(rows.double(), [64], weight.double(), bias.double(), 1e-5).float()
    assert verdict(made, right).passed
