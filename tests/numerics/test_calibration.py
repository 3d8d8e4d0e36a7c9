"""Healthy kernels and planted defects, a small part of what ``benchmarks/calibrate.py`` runs."""

import pytest
import torch

from tapml.numerics.example import example
from tapml.numerics.healthy import HEALTHY, ROUNDED_INSIDE
from tapml.numerics.judge import judge
from tapml.numerics.oracle import float64_results
from tapml.numerics.planted import PLANTED
from tapml.suite.call import decode_arguments

DTYPES = [torch.float32, torch.float16, torch.bfloat16]


def activations(*shape, dtype):
    x = torch.randn(shape) * torch.exp(torch.randn(shape[-1]))
    x[..., shape[-1] // 3] *= 60
    return x.clamp(-2000, 2000).to(dtype)


def call(key, dtype):
    x = activations(24, 96, dtype=dtype)
    w, b = torch.randn(96).to(dtype), torch.randn(96).to(dtype)
    arguments = {
        "aten.mm.default": (x, (torch.randn(96, 40) / 10).to(dtype)),
        "aten.mean.dim": (x, [1]),
        "aten.cumsum.default": (x / 8, 1),
        "aten.native_layer_norm.default": (x, [96], w, b, 1e-5),
        "aten.rms_norm.default": (x, [96], w, 1e-5),
        "aten._softmax.default": (x / 4, -1, False),
        "aten.gelu.default": (x,),
        "aten.silu.default": (x,),
        "aten.rsqrt.default": (x.abs() + 1e-2,),
    }
    return example(key, *arguments[key])


KEYS = [
    "aten.mm.default",
    "aten.mean.dim",
    "aten.cumsum.default",
    "aten.native_layer_norm.default",
    "aten.rms_norm.default",
    "aten._softmax.default",
    "aten.gelu.default",
    "aten.silu.default",
    "aten.rsqrt.default",
]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("key", KEYS)
def test_no_false_alarm(key, dtype):
    torch.manual_seed(1)
    made = call(key, dtype)
    truth = float64_results(made.signature, made.tensors)
    kernels = [(k, [t.float() for t in made.tensors]) for k in HEALTHY[key].values()]
    if key in ROUNDED_INSIDE and dtype != torch.float32:
        kernels.append((ROUNDED_INSIDE[key], list(made.tensors)))
    for kernel, tensors in kernels:
        args, kwargs = decode_arguments(made.signature.template, tensors)
        value = kernel(*args, **kwargs).to(dtype)
        found = judge(made.signature, made.tensors, made.results, [("out0", value), *made.results[1:]], oracle=truth)
        assert found.passed, found.explanation


BELOW_ROUNDING = {"approximated", "epsilon times 10", "no epsilon", "last term", "truncated rounding", "one channel"}
"""May disappear in the rounding of the dtype; caught in float32, where they are applicable."""


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("key", KEYS)
def test_planted_defects_are_caught(key, dtype):
    torch.manual_seed(1)
    made = call(key, dtype)
    truth = float64_results(made.signature, made.tensors)
    planted = 0
    for defect in PLANTED:
        wrong = defect(made.signature, made.tensors, made.results)
        if wrong is None or (defect.name in BELOW_ROUNDING and (dtype != torch.float32 or "epsilon" in defect.name)):
            continue
        planted += 1
        found = judge(made.signature, made.tensors, made.results, wrong, oracle=truth)
        assert not found.passed, f"{defect.name}: {found.explanation}"
    assert planted >= 10


def test_defects_leave_what_they_are_given():
    made = call("aten.native_layer_norm.default", torch.float32)
    before = [t.clone() for t in made.tensors], [t.clone() for _, t in made.results]
    for defect in PLANTED:
        defect(made.signature, made.tensors, made.results)
    assert all(torch.equal(a, b) for a, b in zip(before[0], made.tensors, strict=True))
    assert all(torch.equal(a, b) for a, (_, b) in zip(before[1], made.results, strict=True))


def test_there_are_at_least_twenty_five_kinds_of_defect():
    assert len({defect.name for defect in PLANTED}) == len(PLANTED) >= 25


MORE = {
    "wrong correction": ("aten.var.correction", [[1]], {"correction": 1}),
    "wrong slope": ("aten.leaky_relu.default", [0.01], {}),
    "tanh for erf": ("aten.gelu.default", [], {}),
    "alpha ignored": ("aten.add.Tensor", [torch.ones(24, 96)], {"alpha": 2}),
    "another function": ("aten.remainder.Scalar", [3], {}),
    "no maximum": ("aten._softmax.default", [-1, False], {}),
    "strides ignored": ("aten.relu.default", [], {}),
    "wrong axis": ("aten.cumsum.default", [1], {}),
    "integer off by one": ("aten.argmax.default", [1], {}),
    "one bool": ("aten.gt.Scalar", [0.5], {}),
}


@pytest.mark.parametrize("name", MORE)
def test_defects_of_single_operators(name):
    torch.manual_seed(2)
    operator, rest, kwargs = MORE[name]
    x = activations(24, 96, dtype=torch.float32)
    if name == "strides ignored":
        x = activations(96, 24, dtype=torch.float32).t()
    if name == "no maximum":
        x = x * 10
    made = example(operator, x, *rest, **kwargs)
    (defect,) = [d for d in PLANTED if d.name == name]
    wrong = defect(made.signature, made.tensors, made.results)
    assert wrong is not None
    assert not judge(made.signature, made.tensors, made.results, wrong).passed


def test_truncated_rounding_of_a_product():
    made = example("aten.mul.Tensor", torch.randn(64, 64).half(), torch.randn(64, 64).half())
    (defect,) = [d for d in PLANTED if d.name == "truncated rounding"]
    wrong = defect(made.signature, made.tensors, made.results)
    assert wrong is not None
    assert judge(made.signature, made.tensors, made.results, wrong).code == "biased-rounding"
