"""Inputs on which compilers have gone wrong, with the right values; a fault stands for its whole kind."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

from tapml.errors import UnsupportedError
from tests.lowering.running import run

nan, inf = math.nan, math.inf
f16 = torch.float16


def t(values: Any, dtype: torch.dtype | None = torch.float32) -> torch.Tensor:
    return torch.tensor(values, dtype=dtype)


def same(found: torch.Tensor, expected: torch.Tensor, rtol: float = 0.0) -> bool:
    return found.dtype == expected.dtype and torch.allclose(
        found.double(), expected.double(), rtol=rtol, atol=0.0, equal_nan=True
    )


EXACT: dict[str, tuple[str, Callable[[], tuple[Any, ...]], dict[str, Any], Callable[[], torch.Tensor]]] = {
    "maximum keeps NaN": ("aten.maximum.default", lambda: (t([1, nan]), t([nan, 1])), {}, lambda: t([nan, nan])),
    "minimum keeps NaN": ("aten.minimum.default", lambda: (t([1, nan]), t([nan, 1])), {}, lambda: t([nan, nan])),
    "relu keeps NaN": ("aten.relu.default", lambda: (t([nan, -1]),), {}, lambda: t([nan, 0])),
    "clamp keeps NaN": ("aten.clamp.default", lambda: (t([nan, -9, 9]), -1, inf), {}, lambda: t([nan, -1, 9])),
    "max keeps NaN": ("aten.max.default", lambda: (t([2, nan, 7, 4, 1]),), {}, lambda: t(nan)),
    "amax keeps NaN": ("aten.amax.default", lambda: (t([[2, nan], [7, 4]]), [1]), {}, lambda: t([nan, 7])),
    "mean accumulates in float32": ("aten.mean.default", lambda: (torch.full((4096,), 60.0, dtype=f16),), {},
                                    lambda: t(60, f16)),
    "sum of ones passes 2048": ("aten.sum.default", lambda: (torch.ones(4096, dtype=f16),), {}, lambda: t(4096, f16)),
    "where": ("aten.where.self", lambda: (t([True, False], torch.bool), t([1, 2]), t([3, 4])), {}, lambda: t([1, 4])),
    "isnan": ("aten.isnan.default", lambda: (t([nan, inf, 0]),), {}, lambda: t([True, False, False], torch.bool)),
    "gt": ("aten.gt.Tensor", lambda: (t([1, nan]), t([0, 0])), {}, lambda: t([True, False], torch.bool)),
    "int8 wraps": ("aten.add.Tensor", lambda: (t([127], torch.int8), t([1], torch.int8)), {},
                   lambda: t([-128], torch.int8)),
    "uint8 wraps": ("aten.add.Tensor", lambda: (t([255], torch.uint8), t([1], torch.uint8)), {},
                    lambda: t([0], torch.uint8)),
    "int16": ("aten.add.Tensor", lambda: (t([300], torch.int16), t([5], torch.int16)), {},
              lambda: t([305], torch.int16)),
    "bfloat16": ("aten.add.Tensor", lambda: (t([1.5], torch.bfloat16), t([2], torch.bfloat16)), {},
                 lambda: t([3.5], torch.bfloat16)),
    "embedding": ("aten.embedding.default", lambda: (t([[1, 2], [3, 4]]), t([1, 0, 1], None)), {},
                  lambda: t([[3, 4], [1, 2], [3, 4]])),
    "take": ("aten.take.default", lambda: (t([[1, 2], [3, 4]]), t([3, -4], None)), {}, lambda: t([4, 1])),
    "gather": ("aten.gather.default", lambda: (t([[1, 2], [3, 4]]), 1, t([[1], [0]], None)), {}, lambda: t([[2], [3]])),
    "argmax of NaN": ("aten.argmax.default", lambda: (t([1, nan, 3, nan]),), {}, lambda: t(1, None)),
    "argmax takes the first": ("aten.argmax.default", lambda: (t([3, 5, 5]),), {}, lambda: t(1, None)),
    "cast to int64": ("aten.to.dtype", lambda: (t([-1.9, 2.9]), torch.int64), {}, lambda: t([-1, 2], None)),
    "flip of both axes": ("aten.flip.default", lambda: (torch.arange(12).reshape(3, 4), [-1, -2]), {},
                          lambda: torch.arange(11, -1, -1).reshape(3, 4)),
    "sum without dimensions": ("aten.sum.default", lambda: (torch.ones(2, 3),), {}, lambda: t(6)),
    "sum over no dimensions": ("aten.sum.dim_IntList", lambda: (torch.ones(2, 3), []), {}, lambda: t(6)),
    "remainder": ("aten.remainder.Scalar", lambda: (t([-7], None), 3), {}, lambda: t([2], None)),
    "fmod": ("aten.fmod.Scalar", lambda: (t([-7], None), 3), {}, lambda: t([-1], None)),
    "fmod of floats": ("aten.fmod.Tensor", lambda: (t([-7.5, 7.5]), t([2, -2])), {}, lambda: t([-1.5, 1.5])),
    "power of negatives": ("aten.pow.Tensor_Scalar", lambda: (t([-2, -3]), 3), {}, lambda: t([-8, -27])),
    "power of negatives by a float": ("aten.pow.Tensor_Scalar", lambda: (t([-2, -3]), 3.0), {}, lambda: t([-8, -27])),
    "sum that overflows": ("aten.add.Tensor", lambda: (t([58820], f16), t([33760], f16)), {}, lambda: t([inf], f16)),
    "softmax of minus infinities": ("aten._softmax.default", lambda: (t([-inf] * 4), 0, False), {},
                                    lambda: t([nan] * 4)),
    "safe softmax of them": ("aten._safe_softmax.default", lambda: (t([-inf] * 4), 0), {}, lambda: t([0] * 4)),
    "select from the end": ("aten.select.int", lambda: (torch.arange(6).reshape(2, 3), 1, -1), {},
                            lambda: t([2, 5], None)),
    "cat with a legacy empty": ("aten.cat.default", lambda: ([torch.empty(0), torch.ones(1, 2)], 0), {},
                                lambda: torch.ones(1, 2)),
    "product of transposed": ("aten.mm.default", lambda: (t([[1, 2], [3, 4]]).t(), t([[1, 0], [0, 2]]).t()), {},
                              lambda: t([[1, 6], [2, 8]])),
    "broadcast without memory": ("aten.add.Tensor", lambda: (t([1, 2]).unsqueeze(1).expand(2, 3), t([[10.0, 20, 30]])),
                                 {}, lambda: t([[11, 21, 31], [12, 22, 32]])),
    "slice of a slice": ("aten.neg.default", lambda: (torch.arange(24.0).reshape(2, 3, 4)[:, :, 1],), {},
                         lambda: -torch.arange(24.0).reshape(2, 3, 4)[:, :, 1]),
    "index_copy": ("aten.index_copy.default", lambda: (torch.zeros(3, 2), 0, t([2], None), torch.ones(1, 2)), {},
                   lambda: t([[0, 0], [0, 0], [1, 1]])),
    "product of nothing": ("aten.mm.default", lambda: (torch.ones(2, 0), torch.ones(0, 3)), {},
                           lambda: torch.zeros(2, 3)),
    "maximum of bool and bool": ("aten.ne.Tensor", lambda: (t([True, False], torch.bool), t([True, True], torch.bool)),
                                 {}, lambda: t([False, True], torch.bool)),
}  # fmt: skip


@pytest.mark.parametrize("what", EXACT)
def test_exactly_right(what: str) -> None:
    operator, args, kwargs, expected = EXACT[what]
    ran = run(operator, *args(), **kwargs)
    assert same(ran.out, expected()), f"expected {expected()}, found {ran.out}"
    assert ran.verdict.passed, ran.verdict.explanation
    assert ran.launches > 0


def test_standard_deviation_knows_its_correction() -> None:
    for correction, expected in ((1, 1.5811388), (0, 1.4142135)):
        ran = run("aten.std.correction", t([1, 2, 3, 4, 5]), correction=correction)
        assert same(ran.out, t(expected), 1e-6) and ran.verdict.passed


def test_cumulative_sum_passes_2048_in_float16() -> None:
    ran = run("aten.cumsum.default", torch.ones(4096, dtype=f16), 0)
    assert ran.out[-1] == 4096 and ran.verdict.passed


def test_cumulative_sum_of_4096_is_exact() -> None:
    ran = run("aten.cumsum.default", torch.ones(4096), 0)
    assert torch.equal(ran.out, torch.arange(1.0, 4097.0)) and ran.verdict.passed


def test_gelu_far_from_zero() -> None:
    ran = run("aten.gelu.default", t([50, 100, -100]), approximate="tanh")
    assert same(ran.out, t([50, 100, -0.0])) and ran.verdict.passed


def test_layer_norm_whose_variance_overflows_float16() -> None:
    x = torch.full((1, 64), 0.1, dtype=f16)
    x[0, 0] = 795
    ran = run("aten.native_layer_norm.default", x, [64], None, None, 1e-5)
    assert ran.verdict.passed, ran.verdict.explanation
    assert same(ran.out[0, :2], t([7.937, -0.126], f16), 2e-3)


def test_layer_norm_returns_the_mean_as_exactly_as_pytorch() -> None:
    """Numbers of one binade less one mean are rounded alike: no mean of what is left may be added for that."""
    x = torch.randn(1024, 384, generator=torch.Generator().manual_seed(0))
    ran = run("aten.native_layer_norm.default", x, [384], None, None, 1e-5)
    exact = x.double().mean(1)
    found, reference = ((m.double() - exact).square().mean().sqrt() for m in (ran.results["out1"][:, 0], x.mean(1)))
    assert ran.verdict.passed, ran.verdict.explanation
    assert found < 1.4 * reference


def test_headroom_is_a_warning_before_anything_overflows() -> None:
    ran = run("aten.add.Tensor", t([40000], f16), t([300], f16))
    assert ran.verdict.passed and any("headroom" in w or "32,752" in w for w in ran.verdict.warnings)


@pytest.mark.parametrize(
    ("operator", "arguments"),
    [
        ("aten.histc.default", (torch.empty(0), 8, 0, 7)),
        ("aten.searchsorted.Tensor", (torch.empty(0), torch.ones(3))),
    ],
)
def test_counts_of_nothing_are_zero(operator: str, arguments: tuple[Any, ...]) -> None:
    """TVM 0.27 leaves the result of a reduction over no elements uninitialised."""
    assert run(operator, *arguments).right


def test_attention_with_more_values_than_keys_is_refused_in_its_own_words() -> None:
    """PyTorch's fused kernel executes it, though there is no such product."""
    query, value = torch.ones(1, 1, 2, 4), torch.ones(1, 1, 5, 4)
    with pytest.raises(UnsupportedError, match="found 2 keys and 5 values"):
        run("aten.scaled_dot_product_attention.default", query, query, value)


def test_attention_defines_a_fully_masked_row() -> None:
    query = torch.randn(1, 1, 2, 4)
    mask = t([[True, False], [False, False]], torch.bool)
    ran = run("aten.scaled_dot_product_attention.default", query, query, query, mask)
    assert ran.verdict.passed and torch.equal(ran.out[0, 0, 1], torch.zeros(4))


def test_in_place_operators_change_their_argument() -> None:
    x = torch.ones(3)
    ran = run("aten.add_.Tensor", x, t([1, 2, 3]))
    assert list(ran.results) == ["arg0"] and same(ran.out, t([2, 3, 4])) and ran.verdict.passed


def test_out_arguments_may_be_views() -> None:
    target = torch.zeros(3, 4)[:, ::2]
    ran = run("aten.add.out", torch.ones(3, 2), torch.ones(3, 2), out=target)
    assert torch.equal(ran.out, torch.full((3, 2), 2.0)) and ran.verdict.passed


def test_nothing_is_read_at_the_wrong_alignment() -> None:
    memory = torch.arange(65.0)
    for offset in range(1, 5):
        ran = run("aten.mul.Tensor", memory[offset : offset + 48], memory[offset : offset + 48])
        assert torch.equal(ran.out, memory[offset : offset + 48] ** 2)
