"""Legitimate ways to compute operators, none of them PyTorch's: no judge may call any of these a defect.

A kernel here gets the call's arguments with floating tensors widened to float32, which is what the arithmetic inside an
operator is, and its result is rounded once to the result's dtype.  Sums run sequentially, in blocks, pairwise,
reversed, or with fused multiply-add; formulas are those found in real kernels.  ``benchmarks/calibrate.py`` runs them
all.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

Kernel = Callable[..., torch.Tensor]
Sum = Callable[[torch.Tensor, int], torch.Tensor]


def sequential(terms: torch.Tensor, dim: int) -> torch.Tensor:
    """Float32 sum along ``dim``, one term after the other, in order."""
    sums = np.add.accumulate(terms.contiguous().numpy(), axis=dim, dtype=np.float32)
    return torch.from_numpy(np.take(sums, -1, axis=dim))


def backward(terms: torch.Tensor, dim: int) -> torch.Tensor:
    """As :func:`sequential`, last term first."""
    return sequential(terms.flip(dim), dim)


def blocked(terms: torch.Tensor, dim: int) -> torch.Tensor:
    """Float32 sum in blocks of 32, the block sums then one after the other (a subgroup reduction, then a loop)."""
    moved = terms.movedim(dim, 0)
    padding = -moved.shape[0] % 32
    padded = torch.cat([moved, moved.new_zeros(padding, *moved.shape[1:])])
    return sequential(pairwise(padded.reshape(-1, 32, *moved.shape[1:]), 1), 0)


def strided(terms: torch.Tensor, dim: int) -> torch.Tensor:
    """Float32 sum by 64 threads, each taking every 64th term, then a tree (a workgroup reduction)."""
    moved = terms.movedim(dim, 0)
    padding = -moved.shape[0] % 64
    padded = torch.cat([moved, moved.new_zeros(padding, *moved.shape[1:])])
    return pairwise(sequential(padded.reshape(-1, 64, *moved.shape[1:]), 0), 0)


def pairwise(terms: torch.Tensor, dim: int) -> torch.Tensor:
    """Float32 sum by halving."""
    values = terms.movedim(dim, 0)
    while values.shape[0] > 1:
        if values.shape[0] % 2:
            values = torch.cat([values, values.new_zeros(1, *values.shape[1:])])
        values = values[0::2] + values[1::2]
    return values[0]


SUMS: dict[str, Sum] = {
    "sequential": sequential,
    "backward": backward,
    "blocked": blocked,
    "strided": strided,
    "pairwise": pairwise,
}


def _products(total: Sum) -> Kernel:
    def mm(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        rows = [total(a[i].unsqueeze(1) * b, 0) for i in range(a.shape[0])]
        return torch.stack(rows)

    return mm


def _fused(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Fused multiply-add: the product is exact in float64, only the sum is rounded."""
    wide_a, wide_b = a.double().numpy(), b.double().numpy()
    total = np.zeros((a.shape[0], b.shape[1]), np.float32)
    for k in range(a.shape[1]):
        total = (total + wide_a[:, k : k + 1] * wide_b[k]).astype(np.float32)
    return torch.from_numpy(total)


def _threads(operator: Callable[..., torch.Tensor]) -> Kernel:
    """PyTorch's own kernel with another number of threads."""

    def run(*args: Any, **kwargs: Any) -> torch.Tensor:
        before = torch.get_num_threads()
        torch.set_num_threads(2 if before == 1 else 1)
        try:
            return operator(*args, **kwargs)
        finally:
            torch.set_num_threads(before)

    return run


def _split(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Split-K: 8 portions, added one after the other."""
    size = -(-a.shape[1] // 8)
    parts = [x @ y for x, y in zip(torch.split(a, size, 1), torch.split(b, size, 0), strict=True)]
    return sequential(torch.stack(parts), 0)


def _addmm_started(bias: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """The accumulator starts with the bias."""
    rows = [torch.cat([bias.expand(1, b.shape[1]), a[i].unsqueeze(1) * b]) for i in range(a.shape[0])]
    return torch.stack([sequential(r, 0) for r in rows])


def _sum(total: Sum) -> Kernel:
    return lambda x, dim, *rest, **kwargs: total(x, dim[0])


def _mean(total: Sum) -> Kernel:
    return lambda x, dim, *rest, **kwargs: total(x, dim[0]) / x.shape[dim[0]]


def _hillis_steele(x: torch.Tensor, dim: int) -> torch.Tensor:
    x, step = x.movedim(dim, 0).clone(), 1
    while step < x.shape[0]:
        x = torch.cat([x[:step], x[step:] + x[:-step]])
        step *= 2
    return x.movedim(0, dim)


def _running_sum(x: torch.Tensor, dim: int) -> torch.Tensor:
    return torch.from_numpy(np.add.accumulate(x.numpy(), axis=dim, dtype=np.float32))


def _two_pass(total: Sum) -> Kernel:
    def layer_norm(x: torch.Tensor, shape: list[int], w: torch.Tensor, b: torch.Tensor, eps: float) -> torch.Tensor:
        mean = (total(x, -1) / x.shape[-1]).unsqueeze(-1)
        variance = (total((x - mean) ** 2, -1) / x.shape[-1]).unsqueeze(-1)
        return (x - mean) / torch.sqrt(variance + eps) * w + b

    return layer_norm


def _welford_moments(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    mean, square = torch.zeros(x.shape[:-1]), torch.zeros(x.shape[:-1])
    for k in range(x.shape[-1]):
        delta = x[..., k] - mean
        mean = mean + delta / (k + 1)
        square = square + delta * (x[..., k] - mean)
    return mean, square


def _welford(x: torch.Tensor, shape: list[int], w: torch.Tensor, b: torch.Tensor, eps: float) -> torch.Tensor:
    mean, square = (t.unsqueeze(-1) for t in _welford_moments(x))
    scale = torch.rsqrt(square / x.shape[-1] + eps) * w
    return x * scale + (b - mean * scale) if float(mean.abs().max()) < 1 else (x - mean) * scale + b


def _rms_norm(total: Sum) -> Kernel:
    def rms_norm(x: torch.Tensor, shape: list[int], w: torch.Tensor, eps: float) -> torch.Tensor:
        return x * torch.rsqrt((total(x * x, -1) / x.shape[-1]).unsqueeze(-1) + eps) * w

    return rms_norm


def _variance(total: Sum) -> Kernel:
    def var(x: torch.Tensor, dim: list[int], *, correction: float) -> torch.Tensor:
        mean = (total(x, -1) / x.shape[-1]).unsqueeze(-1)
        return total((x - mean) ** 2, -1) / (x.shape[-1] - correction)

    return var


def _softmax(total: Sum) -> Kernel:
    def softmax(x: torch.Tensor, dim: int, half_to_float: bool) -> torch.Tensor:
        exponential = torch.exp(x - x.amax(-1, keepdim=True))
        return exponential / total(exponential, -1).unsqueeze(-1)

    return softmax


def _softmax_base_2(x: torch.Tensor, dim: int, half_to_float: bool) -> torch.Tensor:
    exponential = torch.exp2((x - x.amax(-1, keepdim=True)) * math.log2(math.e))
    return exponential * (1 / sequential(exponential, -1)).unsqueeze(-1)


def _online(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Running maximum and rescaled sum of exponentials (Milakov and Gimelshein, 2018)."""
    top, total = torch.full(x.shape[:-1], -math.inf), torch.zeros(x.shape[:-1])
    for k in range(x.shape[-1]):
        above = torch.maximum(top, x[..., k])
        total = total * torch.exp(top - above) + torch.exp(x[..., k] - above)
        top = above
    return top.unsqueeze(-1), total.unsqueeze(-1)


def _softmax_online(x: torch.Tensor, dim: int, half_to_float: bool) -> torch.Tensor:
    top, total = _online(x)
    return torch.exp(x - top) / total


def _log_softmax(x: torch.Tensor, dim: int, half_to_float: bool) -> torch.Tensor:
    top, total = _online(x)
    return x - top - torch.log(total)


def _log_sum_exp(x: torch.Tensor, dim: list[int]) -> torch.Tensor:
    top, total = _online(x)
    return (top + torch.log(total)).squeeze(-1)


def _attention(total: Sum) -> Kernel:
    def attention(
        q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: None, dropout: float, causal: bool
    ) -> torch.Tensor:
        score = total(q.unsqueeze(-2) * k.unsqueeze(-3), -1) * (q.shape[-1] ** -0.5)
        if causal:
            score = score.masked_fill(torch.ones_like(score, dtype=torch.bool).triu(1), -math.inf)
        weight = _softmax(total)(score, -1, False)
        return total(weight.unsqueeze(-1) * v.unsqueeze(-3), -2)

    return attention


def _attention_online(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: None, dropout: float, causal: bool
) -> torch.Tensor:
    """Flash attention, one key at a time."""
    score = (q * (q.shape[-1] ** -0.5)) @ k.transpose(-1, -2)
    if causal:
        score = score.masked_fill(torch.ones_like(score, dtype=torch.bool).triu(1), -math.inf)
    top, total, out = torch.full(q.shape[:-1], -math.inf), torch.zeros(q.shape[:-1]), torch.zeros(v.shape)
    for j in range(k.shape[-2]):
        above = torch.maximum(top, score[..., j])
        old, new = torch.exp(top - above), torch.exp(score[..., j] - above)
        total = total * old + new
        out = out * old.unsqueeze(-1) + new.unsqueeze(-1) * v[..., j, :].unsqueeze(-2)
        top = above
    return out / total.unsqueeze(-1)


def _convolution(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor, *rest: Any) -> torch.Tensor:
    """im2col, then a sequential sum, bias last."""
    columns = torch.nn.functional.unfold(x, w.shape[2:], padding=1)
    out = sequential(columns.unsqueeze(1) * w.reshape(1, w.shape[0], -1, 1), 2) + b.reshape(1, -1, 1)
    return out.reshape(x.shape[0], w.shape[0], x.shape[2], x.shape[3])


def _erfc_gelu(x: torch.Tensor, **kwargs: str) -> torch.Tensor:
    complement: torch.Tensor = torch.special.erfc(-x * math.sqrt(0.5))
    return 0.5 * x * complement


def _erf_gelu(x: torch.Tensor, **kwargs: str) -> torch.Tensor:
    return x * (0.5 + 0.5 * torch.erf(x / math.sqrt(2)))


def _tanh_gelu(x: torch.Tensor, **kwargs: str) -> torch.Tensor:
    inner = math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)
    return x * torch.sigmoid(2 * inner)


def _sums(make: Callable[[Sum], Kernel]) -> dict[str, Kernel]:
    return {name: make(total) for name, total in SUMS.items()}


HEALTHY: dict[str, dict[str, Kernel]] = {
    "aten.mm.default": {**_sums(_products), "fused": _fused, "threads": _threads(torch.mm), "split": _split},
    "aten.addmm.default": {
        "bias first": _addmm_started,
        "bias last": lambda c, a, b: _products(blocked)(a, b) + c,
        "threads": _threads(torch.addmm),
    },
    "aten.sum.dim_IntList": _sums(_sum),
    "aten.mean.dim": _sums(_mean),
    "aten.cumsum.default": {"sequential": _running_sum, "scan": _hillis_steele},
    "aten.linalg_vector_norm.default": {
        name: (lambda x, order, dim, total=total: torch.sqrt(total(x * x, -1))) for name, total in SUMS.items()
    },
    "aten.native_layer_norm.default": {**_sums(_two_pass), "welford": _welford},
    "aten.rms_norm.default": _sums(_rms_norm),
    "aten.var.correction": {
        **_sums(_variance),
        "welford": lambda x, dim, *, correction: _welford_moments(x)[1] / (x.shape[-1] - correction),
    },
    "aten._softmax.default": {**_sums(_softmax), "base 2": _softmax_base_2, "online": _softmax_online},
    "aten._log_softmax.default": {"online": _log_softmax},
    "aten.logsumexp.default": {"online": _log_sum_exp},
    "aten.scaled_dot_product_attention.default": {**_sums(_attention), "online": _attention_online},
    "aten.convolution.default": {"im2col": _convolution},
    "aten.gelu.default": {"erf": _erf_gelu, "erfc": _erfc_gelu},
    "aten.gelu.default tanh": {"sigmoid": _tanh_gelu},
    "aten.silu.default": {
        "division": lambda x: x / (1 + torch.exp(-x)),
        "product": lambda x: torch.sigmoid(x) * x,
    },
    "aten.sigmoid.default": {"exp": lambda x: 1 / (1 + torch.exp(-x))},
    "aten.tanh.default": {
        "expm1": lambda x: torch.sign(x) * (-torch.expm1(-2 * x.abs()) / (2 + torch.expm1(-2 * x.abs()))),
        "exp": lambda x: 1 - 2 / (torch.exp(2 * x) + 1),
    },
    "aten.exp.default": {"exp2": lambda x: torch.exp2(x * math.log2(math.e))},
    "aten.log.default": {"log2": lambda x: torch.log2(x) * math.log(2)},
    "aten.rsqrt.default": {"division": lambda x: 1 / torch.sqrt(x), "power": lambda x: torch.pow(x, -0.5)},
    "aten.pow.Tensor_Scalar": {
        "products": lambda x, y: x * x * x,
        "exp2": lambda x, y: torch.sign(x) * torch.exp2(y * torch.log2(x.abs())),
    },
    "aten.div.Tensor": {"reciprocal": lambda a, b: a * (1 / b)},
    "aten.add.Tensor": {"plain": lambda a, b, alpha: a + alpha * b, "swapped": lambda a, b, alpha: b * alpha + a},
    "aten.addcmul.default": {
        "rounded product": lambda c, a, b, value: c + value * (a * b),
        "fused": lambda c, a, b, value: (c.double() + a.double() * value * b.double()).float(),
    },
    "aten.sin.default": {"shifted": lambda x: torch.from_numpy(np.sin(x.numpy()))},
    "aten.softplus.default": {"stable": lambda x: x.clamp(min=0) + torch.log1p(torch.exp(-x.abs()))},
    "aten.expm1.default": {"tanh": lambda x: torch.where(x.abs() < 1, _expm1_half(x), torch.exp(x) - 1)},
    "aten.leaky_relu.default": {"where": lambda x, slope: torch.where(x > 0, x, x * slope)},
    "aten.avg_pool2d.default": {"sequential": lambda x, *rest: _pool(x)},
}
"""Kernels by operator (a word after a space tells apart calls of one operator) and by name."""


def _expm1_half(x: torch.Tensor) -> torch.Tensor:
    """``2 sinh(x/2) exp(x/2)``."""
    return 2 * torch.sinh(x / 2) * torch.exp(x / 2)


def _pool(x: torch.Tensor) -> torch.Tensor:
    patches = x.unfold(2, 2, 2).unfold(3, 2, 2).flatten(-2)
    return sequential(patches, -1) * 0.25


ROUNDED_INSIDE: dict[str, Kernel] = {
    "aten.add.Tensor": lambda a, b, alpha: a + b * alpha,
    "aten.pow.Tensor_Scalar": lambda x, y: x * x * x,
    "aten.rsqrt.default": lambda x: 1 / torch.sqrt(x),
    "aten.div.Tensor": lambda a, b: a / b,
}
"""Elementwise kernels that get 16-bit arguments as they are and round every intermediate, which compilers do."""
