"""Calls that depend on the machine are named as the portable call they stand for."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tapml.carving.interception import CallMode, Entry, Operator
from tapml.carving.portable import is_composite, portable

aten = torch.ops.aten


def qkv(heads: int = 4, key_heads: int = 4) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return torch.randn(1, heads, 5, 8), torch.randn(1, key_heads, 5, 8), torch.randn(1, key_heads, 5, 8)


ATTENTION = [
    (aten._scaled_dot_product_flash_attention_for_cpu.default, (0.0, True), {}),
    (aten._scaled_dot_product_flash_attention.default, (0.0, True, False), {}),
    (aten._scaled_dot_product_efficient_attention.default, (None, False, 0.0, True), {}),
    (aten._scaled_dot_product_cudnn_attention.default, (None, True, 0.0, True), {}),
    (aten._scaled_dot_product_fused_attention_overrideable.default, (None, 0.0, True), {}),
    (aten._scaled_dot_product_attention_math_for_mps.default, (None, 0.0, True), {}),
]


@pytest.mark.parametrize(("func", "rest", "kwargs"), ATTENTION, ids=lambda v: str(v) if isinstance(v, Operator) else "")
def test_every_backends_attention_is_one(func: Operator, rest: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    call = portable(func, (*qkv(), *rest), kwargs)
    assert call.operator is aten.scaled_dot_product_attention.default
    assert call.kwargs == {"is_causal": True}
    assert call.select(("out", "lse")) == "out"


def test_attention_keeps_bias_scale_and_grouped_heads() -> None:
    bias = torch.zeros(5, 5)
    call = portable(aten._scaled_dot_product_efficient_attention.default, (*qkv(4, 2), bias, False), {"scale": 0.5})
    assert call.kwargs["attn_mask"] is bias
    assert call.kwargs["scale"] == 0.5
    assert call.kwargs["enable_gqa"] is True


def test_attention_with_a_dropout_mask_stays() -> None:
    func = aten._scaled_dot_product_attention_math_for_mps.default
    call = portable(func, (*qkv(), None, 0.5, False, torch.ones(1)), {})
    assert call.operator is func


def test_unsafe_operators_lose_their_prefix_where_the_safe_one_takes_the_same() -> None:
    x = torch.randn(2, 6)
    assert portable(aten._unsafe_view.default, (x, [3, 4])).operator is aten.view.default
    assert portable(aten._unsafe_index.Tensor, (x, [torch.tensor([0])])).operator is aten.index.Tensor
    masked = (x, x > 0, [torch.tensor([0])], 0.0)
    assert portable(aten._unsafe_masked_index.default, masked).operator is aten._unsafe_masked_index.default


def test_casts() -> None:
    x = torch.randn(2, 3)
    call = portable(aten._to_copy.default, (x,), {"dtype": torch.float16, "device": torch.device("cpu")})
    assert (call.operator, call.args[1], call.kwargs) == (aten.to.dtype, torch.float16, {})
    call = portable(aten._to_copy.default, (x,), {"device": torch.device("cuda", 0)})
    assert (call.operator, call.kwargs) == (aten.clone.default, {})
    sparse = portable(aten._to_copy.default, (x,), {"layout": torch.sparse_coo})
    assert sparse.operator is aten._to_copy.default


def test_devices_do_not_tell_calls_apart() -> None:
    call = portable(aten.arange.default, (3,), {"device": torch.device("cuda", 1)})
    assert call.kwargs == {"device": torch.device("cpu")}


def test_attention_is_not_taken_apart() -> None:
    assert not is_composite(aten.scaled_dot_product_attention.default)
    assert is_composite(aten.linear.default)
    assert not is_composite(aten.mm.default)


class ThroughPortable(CallMode):
    """Executes the portable operator instead of what was called, as an executor on another device would."""

    def on_call(self, entry: Entry, func: Operator, args: Any, kwargs: Any, tensors: list[torch.Tensor]) -> Any:
        from tapml.suite.call import decode_arguments

        args, kwargs = decode_arguments(entry.signature.template, entry.arguments(tensors))
        return entry.restore(entry.operator(*args, **kwargs))


def test_an_executor_of_the_portable_operator_can_answer_the_caller() -> None:
    torch.manual_seed(0)
    query, key, value = qkv(4, 2)
    attention = torch.nn.functional.scaled_dot_product_attention
    with torch.no_grad():
        expected = attention(query, key, value, enable_gqa=True, is_causal=True).to(torch.float16)
        with ThroughPortable(observe=False):
            found = attention(query, key, value, enable_gqa=True, is_causal=True).to(torch.float16)
    assert torch.equal(found, expected)


def test_tensors_are_told_apart_when_the_first_call_had_one_twice() -> None:
    x, y = torch.randn(3), torch.randn(3)
    with torch.no_grad(), ThroughPortable(observe=False):
        square, product = x * x, x * y
    assert torch.equal(square, x * x)
    assert torch.equal(product, x * y)
