"""Scaled dot-product attention."""

from __future__ import annotations

import math
from typing import Any

from tvm import te, tirx

from tapml.lowering.context import Context
from tapml.lowering.converters.linear import product
from tapml.lowering.converters.normalization import safe_softmax
from tapml.lowering.converters.scalar import like, select
from tapml.lowering.converters.shape import permute, repeat_interleave
from tapml.lowering.registry import converter


@converter("aten.scaled_dot_product_attention.default")
def attention(
    ctx: Context,
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    """``query`` [..., L, E], ``key`` [..., S, E], ``value`` [..., S, V]; a fully masked row gives zeros, as PyTorch's does."""
    if dropout_p:
        raise ctx.unsupported("dropout in attention")
    keys, values = ctx.shape(key)[-2], ctx.shape(value)[-2]
    if keys != values:
        raise ctx.unsupported(f"expected as many keys as values, found {keys} keys and {values} values")
    rank = len(ctx.shape(query))
    if enable_gqa:
        share = ctx.shape(query)[-3] // ctx.shape(key)[-3]
        key, value = (repeat_interleave(ctx, t, share, rank - 3) for t in (key, value))
    factor = 1.0 / math.sqrt(ctx.shape(query)[-1]) if scale is None else scale
    order = [*range(rank - 2), rank - 1, rank - 2]
    scores = ctx.pointwise(lambda s: s * like(s, factor), product(ctx, query, permute(ctx, key, order)))
    dtype = ctx.dtype(scores)
    if is_causal:
        scores = ctx.te(
            lambda t: te.compute(
                t.shape, lambda *i: select(i[-1] <= i[-2], t[i], -tirx.infinity(dtype)), name="causal"
            ),
            scores,
        )
    if attn_mask is not None and ctx.dtype(attn_mask) == "bool":
        scores = ctx.select_te(lambda m, s: select(m, s, -tirx.infinity(dtype)), attn_mask, [scores], dtype)
    elif attn_mask is not None:
        scores = ctx.pointwise(lambda s, m: s + m, scores, attn_mask)
    return product(ctx, safe_softmax(ctx, scores, -1), value)
