"""Healthy kernels pass, defects do not, and the sentences say why."""

import math
import re

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tapml.numerics.example import example
from tapml.numerics.judge import determinism, judge
from tapml.numerics.oracle import float64_results
from tapml.numerics.sensitivity import Sensitivity
from tapml.numerics.tolerance import limits_of


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


def verdict(made, *candidate):
    names = [name for name, _ in made.results]
    rest = [tensor for _, tensor in made.results][len(candidate) :]
    return judge(made.signature, made.tensors, made.results, list(zip(names, [*candidate, *rest], strict=True)))


def sequential(a, b):
    """A float32 matrix product, one term after the other."""
    total = torch.zeros(a.shape[0], b.shape[1])
    for k in range(a.shape[1]):
        total += a[:, k : k + 1].float() * b[k].float()
    return total.to(a.dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("same_sign", [False, True])
def test_a_sequential_dot_product_of_49152_terms_is_healthy(dtype, same_sign):
    a, b = torch.randn(1, 49152), torch.randn(49152, 2)
    a, b = (t.abs() if same_sign else t for t in (a.to(dtype), b.to(dtype)))
    made = example("aten.mm.default", a, b)
    products = (a[0].float().numpy()[:, None] * b.float().numpy()).astype(np.float32)
    total = torch.from_numpy(np.add.accumulate(products, axis=0, dtype=np.float32)[-1:].copy()).to(dtype)
    assert verdict(made, total).passed
    assert not verdict(made, (a[:, :-4096] @ b[:-4096])).passed


def test_an_exact_reference_does_not_make_rounding_a_defect():
    x = torch.tensor([1e8, 1.0, -1e8, 1.0] * 8)
    made = example("aten.sum.default", x)
    assert float(made.results[0][1]) != 16.0
    truth = float64_results(made.signature, made.tensors)
    exact = [("out0", torch.tensor(16.0))]
    found = judge(made.signature, made.tensors, exact, made.results, oracle=truth)
    assert found.passed and found.code == "within-floor"


def test_explanation_of_rounding_noise():
    a, b = torch.randn(16, 64), torch.randn(64, 16)
    found = verdict(example("aten.mm.default", a, b), sequential(a, b))
    assert found.code == "within-reference-error"
    assert re.fullmatch(
        r"error is [\d.]+x the reference's own against float64: rounding noise of float32", found.explanation
    )


def test_explanation_of_a_defect():
    a, b = torch.randn(16, 64), torch.randn(64, 32)
    made = example("aten.mm.default", a, b)
    wrong = made.results[0][1].clone()
    wrong[3, 17] += 0.37
    found = verdict(made, wrong)
    assert not found.passed and found.code == "error-too-large"
    assert found.explanation.startswith("max error 0.37 at [3, 17] (candidate ")
    assert found.explanation.endswith("times the reference's own: a defect, not rounding")
    assert found.results[0].figures["floor_max"] < 1e-4


def test_one_small_wrong_element_below_an_outlier_channel():
    x = torch.randn(32, 64)
    x[:, 5] *= 1000
    made = example("aten.mul.Tensor", x.half(), torch.tensor(1.7).half())
    wrong = made.results[0][1].clone()
    wrong[9, 40] = wrong[9, 40] * 1.05
    assert "[9, 40]" in verdict(made, wrong).explanation


def test_one_wrong_channel_below_an_outlier_channel():
    a, b = torch.randn(64, 256), torch.randn(256, 64)
    b[:, 5] *= 1000
    made = example("aten.mm.default", a.half(), b.half())
    wrong = made.results[0][1].clone()
    wrong[:, 40] = (wrong[:, 40].float() * 1.004).half()
    assert not verdict(made, wrong).passed


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_gelu_tanh_is_not_gelu(dtype):
    x = torch.randn(64, 64).to(dtype)
    made = example("aten.gelu.default", x)
    assert not verdict(made, torch.nn.functional.gelu(x, approximate="tanh")).passed
    wide = x.float()
    assert verdict(made, (wide * 0.5 * (1 + torch.erf(wide * math.sqrt(0.5)))).to(dtype)).passed


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_truncation_is_not_rounding(dtype):
    x, y = torch.randn(64, 64).to(dtype), torch.randn(64, 64).to(dtype)
    made = example("aten.mul.Tensor", x, y)
    exact, result = x.double() * y.double(), made.results[0][1].clone()
    over = result.double().abs() > exact.abs()
    result.view(torch.int16)[over] -= 1
    found = verdict(made, result)
    assert not found.passed and found.code == "biased-rounding" and "toward zero" in found.explanation


def test_layer_norm_with_a_large_offset():
    x = torch.randn(8, 256) + 1000
    made = example("aten.native_layer_norm.default", x, [256], None, None, 1e-5)
    mean = x.mean(-1, keepdim=True)
    two_pass = (x - mean) * torch.rsqrt(((x - mean) ** 2).mean(-1, keepdim=True) + 1e-5)
    assert verdict(made, two_pass).passed
    cancelling = (x - mean) * torch.rsqrt((x * x).mean(-1, keepdim=True) - mean * mean + 1e-5)
    assert not verdict(made, cancelling).passed


def test_the_variance_of_a_constant_is_zero_up_to_the_rounding_of_its_mean():
    x = torch.full((3, 1000), 0.1)
    made = example("aten.var.correction", x, [1], correction=1, keepdim=False)
    exact = [("out0", torch.zeros(3))]
    rounded = torch.full((3,), (0.1 * 2**-23) ** 2)
    assert judge(made.signature, made.tensors, exact, [("out0", rounded)]).passed
    assert not judge(made.signature, made.tensors, exact, [("out0", torch.full((3,), 1e-8))]).passed


def test_each_element_of_a_cumulative_sum_has_its_own_bound():
    made = example("aten.cumsum.default", torch.rand(2000), 0)
    truth = float64_results(made.signature, made.tensors).results["out0"]
    model = Sensitivity(made.signature, made.tensors, "out0", truth, limits_of(torch.float32))
    assert [model.noise(i).terms for i in (0, 9, 1999)] == [1, 10, 2000]
    assert model.noise(1999).bound > 100 * model.noise(9).bound


def test_exponentials_of_large_arguments_may_round_their_argument():
    x = torch.linspace(-80, 80, 401)
    made = example("aten.exp.default", x)
    assert verdict(made, torch.exp2(x * np.float32(1.4426950408889634))).passed
    assert not verdict(made, made.results[0][1] * (1 + 1e-4)).passed


@pytest.mark.parametrize("operator", ["floor", "round", "trunc", "sign", "ceil"])
def test_discontinuities_get_no_floor(operator):
    x = torch.tensor([1.0, 2.0, 2.9999998, -1.0, 3.5])
    made = example(f"aten.{operator}.default", x)
    wrong = made.results[0][1].clone()
    wrong[1] -= 1
    assert not verdict(made, wrong).passed


@pytest.mark.parametrize("operator", ["remainder", "fmod"])
def test_the_sign_of_a_remainder(operator):
    made = example(f"aten.{operator}.Scalar", torch.tensor([-7.0, 7.0, -7.5]), 3)
    other = torch.fmod if operator == "remainder" else torch.remainder
    assert not verdict(made, other(made.tensors[0], 3)).passed


def test_copies_are_exact():
    made = example("aten.flip.default", torch.arange(12.0).reshape(3, 4), [-1, -2])
    assert not verdict(made, made.tensors[0].flip(0)).passed
    assert not verdict(made, made.results[0][1] * (1 + 1e-5)).passed


def test_shape_dtype_and_names_are_failures_in_words():
    made = example("aten.sum.default", torch.ones(2, 3))
    assert verdict(made, torch.ones(2, 3)).explanation == "expected shape [], found [2, 3]"
    assert verdict(made, torch.tensor(6.0).half()).explanation == "expected dtype float32, found float16"
    missing = judge(made.signature, made.tensors, made.results, [])
    assert not missing.passed and missing.code == "results"


def test_empty_and_scalar_results():
    empty = example("aten.cat.default", [torch.empty(0), torch.empty(0)])
    assert verdict(empty, torch.empty(0)).passed
    scalar = example("aten.sum.default", torch.rand(100))
    assert verdict(scalar, scalar.tensors[0].flip(0).sum()).passed
    assert not verdict(scalar, scalar.results[0][1] + 1).passed


def test_complex_results():
    made = example("aten.mul.Tensor", torch.randn(50, dtype=torch.complex64), torch.randn(50, dtype=torch.complex64))
    a, b = made.tensors
    product = torch.complex(a.real * b.real - a.imag * b.imag, a.real * b.imag + a.imag * b.real)
    assert verdict(made, product).passed
    assert not verdict(made, product.conj().resolve_conj()).passed


def test_float64_is_judged_by_its_own_unit():
    a, b = torch.randn(8, 300).double(), torch.randn(300, 8).double()
    made = example("aten.mm.default", a, b)
    assert verdict(made, (a.flip(1) @ b.flip(0))).passed
    assert not verdict(made, (a.float() @ b.float()).double()).passed


def test_an_operator_with_several_results_fails_for_the_worst():
    made = example("aten.native_layer_norm.default", torch.randn(4, 32), [32], None, None, 1e-5)
    found = verdict(made, made.results[0][1], made.results[1][1] + 1)
    assert not found.passed and found.explanation.startswith("out1: ")


def test_determinism():
    first = [("out0", torch.tensor([1.0, float("nan"), 0.0]))]
    assert determinism(first, [("out0", torch.tensor([1.0, float("nan"), 0.0]))]) is None
    second = [("out0", torch.tensor([1.0, float("nan"), -0.0]))]
    assert determinism(first, second) == (
        "nondeterministic: out0 differs in 1 of 3 elements between two runs on one input"
    )
    assert determinism([("out0", torch.tensor([1]))], [("out0", torch.tensor([2]))])
    assert determinism(first, [("out0", torch.tensor([1.0]))])


@settings(max_examples=40, deadline=None)
@given(
    st.integers(1, 300),
    st.integers(0, 10**6),
    st.sampled_from([torch.float32, torch.float16, torch.bfloat16]),
    st.sampled_from([0.0, 1.0, 100.0]),
)
def test_any_order_of_summation_is_healthy(terms, seed, dtype, offset):
    generator = torch.Generator().manual_seed(seed)
    a = (torch.randn(3, terms, generator=generator) * 10 ** torch.randn(terms, generator=generator) + offset).to(dtype)
    b = torch.randn(terms, 4, generator=generator).to(dtype)
    made = example("aten.mm.default", a, b)
    order = torch.randperm(terms, generator=generator)
    found = verdict(made, sequential(a[:, order], b[order]))
    assert found.passed, found.explanation


def test_the_callers_autograd_mode_does_not_matter():
    with torch.inference_mode():
        a, b = torch.randn(16, 64), torch.randn(64, 16)
        made = example("aten.mm.default", a, b)
        wrong = made.results[0][1].clone()
        wrong[1, 2] += 0.1
        assert verdict(made, sequential(a, b)).passed and not verdict(made, wrong).passed
    assert not verdict(made, wrong).passed


def test_layout_of_the_candidate_does_not_matter():
    made = example("aten.relu.default", torch.randn(6, 7))
    assert verdict(made, made.results[0][1].t().contiguous().t()).code == "exact"
