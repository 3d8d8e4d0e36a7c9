"""Inputs on which compilers for GPUs have gone wrong, by kind, with PyTorch's right values; several inputs of each kind."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

nan, inf = math.nan, math.inf
f16, bf16, i8, u8, i16, boolean = torch.float16, torch.bfloat16, torch.int8, torch.uint8, torch.int16, torch.bool
Values = Callable[[], Any]


def t(values: Any, dtype: torch.dtype | None = torch.float32) -> torch.Tensor:
    return torch.tensor(values, dtype=dtype)


def long(values: Any) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int64)


@dataclass(frozen=True)
class Input:
    """A call of an operator.  ``expected``: its first result, where that is worth to be written down; it is compared with
    ``rtol``, and the call is judged in any case."""

    operator: str
    args: Callable[[], tuple[Any, ...]]
    expected: Values | None = None
    rtol: float = 0.0
    kwargs: dict[str, Any] = field(default_factory=dict)


def i(operator: str, args: Callable[[], tuple[Any, ...]], expected: Values | None = None, rtol: float = 0.0,
      **kwargs: Any) -> Input:  # fmt: skip
    return Input(f"aten.{operator}", args, expected, rtol, kwargs)


def spaced(count: int = 24, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Every second element of every row of a larger matrix, transposed."""
    return torch.arange(float(count * 4)).reshape(4, count).to(dtype)[:, 1::2].t()


def layer_norm_row(dtype: torch.dtype, size: int = 64, peak: float = 795.0) -> torch.Tensor:
    x = torch.full((1, size), 0.1, dtype=dtype)
    x[0, 0] = peak
    return x


def far_apart(*extra: float) -> torch.Tensor:
    return t([1.0, -2.0, nan, 4.0, -inf, inf, 0.0, -0.0, *extra])


KINDS: dict[str, list[Input]] = {
    "1 NaN is kept": [
        i("maximum.default", lambda: (t([1, nan]), t([nan, 1])), lambda: t([nan, nan])),
        i("minimum.default", lambda: (t([1, nan, -inf]), t([nan, 1, nan])), lambda: t([nan] * 3)),
        i("relu.default", lambda: (t([nan, -1]),), lambda: t([nan, 0])),
        i("relu.default", lambda: (t([nan, -1, inf, -inf], f16),), lambda: t([nan, 0, inf, 0], f16)),
        i("max.default", lambda: (t([2, nan, 7, 4, 1]),), lambda: t(nan)),
        i("min.default", lambda: (t([nan, 2, 7, 4, 1]),), lambda: t(nan)),
        i("amax.default", lambda: (t([[2, nan], [7, 4]]), [1]), lambda: t([nan, 7])),
        i("amin.default", lambda: (torch.cat([torch.ones(3, 300), t([[nan]] * 3)], 1), [1]), lambda: t([nan] * 3)),
        i("max.dim", lambda: (t([[2, nan, 9], [7, 4, -inf]]), 1), lambda: t([nan, 7])),
        i("clamp.default", lambda: (t([nan, -9, 9]), -1, inf), lambda: t([nan, -1, 9])),
        i("clamp.default", lambda: (t([nan, -9, 9], f16), 0, 6), lambda: t([nan, 0, 6], f16)),
        i("hardtanh.default", lambda: (t([nan, -9, 9]), -1.0, 1.0), lambda: t([nan, -1, 1])),
        i("leaky_relu.default", lambda: (t([nan, -2, 2]), 0.5), lambda: t([nan, -1, 2])),
        i("ne.Tensor", lambda: (t([nan, 1, nan]), t([nan, 1, 1])), lambda: t([True, False, True], boolean)),
        i("eq.Tensor", lambda: (t([nan, 1, inf]), t([nan, 1, inf])), lambda: t([False, True, True], boolean)),
        i("isnan.default", lambda: (t([nan, inf, 0]),), lambda: t([True, False, False], boolean)),
        i("isnan.default", lambda: (t([nan, inf, 0], f16),), lambda: t([True, False, False], boolean)),
        i("isinf.default", lambda: (t([nan, inf, -inf, 3e38]),), lambda: t([False, True, True, False], boolean)),
        i("isinf.default", lambda: (t([nan, inf, -inf, 65504], f16),), lambda: t([False, True, True, False], boolean)),
        i("isfinite.default", lambda: (t([nan, inf, -inf, 3e38]),), lambda: t([False, False, False, True], boolean)),
        i("isposinf.default", lambda: (far_apart(),)),
        i("isneginf.default", lambda: (far_apart(),)),
        i("eq.Scalar", lambda: (far_apart(), -inf)),
        i("ge.Scalar", lambda: (far_apart(), inf)),
        i("lt.Scalar", lambda: (far_apart(), inf)),
        i("nan_to_num.default", lambda: (far_apart(),)),
        i("masked_fill.Scalar", lambda: (t([1, 2, 3]), t([True, False, True], boolean), -inf),
          lambda: t([-inf, 2, -inf])),
        i("sort.default", lambda: (t([3, nan, -inf, 1]),), lambda: t([-inf, 1, 3, nan])),
    ],
    "2 sums of half precision": [
        i("mean.default", lambda: (torch.full((4096,), 60.0, dtype=f16),), lambda: t(60, f16)),
        i("mean.dim", lambda: (torch.full((3, 5000), 60.0, dtype=f16), [1], True), lambda: t([[60]] * 3, f16)),
        i("mean.default", lambda: (torch.full((4096,), 60.0, dtype=bf16),), lambda: t(60, bf16)),
        i("sum.default", lambda: (torch.ones(4096, dtype=f16),), lambda: t(4096, f16)),
        i("sum.dim_IntList", lambda: (torch.ones(4096, 3, dtype=bf16), [0]), lambda: t([4096] * 3, bf16)),
        i("mm.default", lambda: (torch.ones(2, 4096, dtype=f16), torch.ones(4096, 2, dtype=f16)),
          lambda: t([[4096] * 2] * 2, f16)),
        i("var.correction", lambda: (torch.arange(600.0).to(f16),)),
    ],
    "3 cumulative sums of half precision": [
        i("cumsum.default", lambda: (torch.ones(4096, dtype=f16), 0), lambda: torch.arange(1.0, 4097).to(f16)),
        i("cumsum.default", lambda: (torch.ones(2, 3000, dtype=bf16), 1)),
        i("cumsum.default", lambda: (torch.ones(3000, 2, dtype=f16), 0)),
    ],
    "4 narrow dtypes": [
        i("where.self", lambda: (t([True, False], boolean), t([1, 2]), t([3, 4])), lambda: t([1, 4])),
        i("where.self", lambda: (t([[True], [False]], boolean), t([1, 2], u8), t([3, 4], u8)),
          lambda: t([[1, 2], [3, 4]], u8)),
        i("gt.Tensor", lambda: (t([1, nan]), t([0, 0])), lambda: t([True, False], boolean)),
        i("add.Tensor", lambda: (t([127, -128], i8), t([1, -1], i8)), lambda: t([-128, 127], i8)),
        i("add.Tensor", lambda: (t([255, 0], u8), t([1, 0], u8)), lambda: t([0, 0], u8)),
        i("sub.Tensor", lambda: (t([0, 5], u8), t([1, 7], u8)), lambda: t([255, 254], u8)),
        i("mul.Tensor", lambda: (t([100, -128], i8), t([3, -1], i8)), lambda: t([44, -128], i8)),
        i("mul.Tensor", lambda: (t([30000], i16), t([3], i16)), lambda: t([24464], i16)),
        i("add.Tensor", lambda: (t([300], i16), t([5], i16)), lambda: t([305], i16)),
        i("neg.default", lambda: (t([-128, 127, 0], i8),), lambda: t([-128, -127, 0], i8)),
        i("abs.default", lambda: (t([-128, -127, 5], i8),), lambda: t([-128, 127, 5], i8)),
        i("bitwise_not.default", lambda: (t([0, 255, 5], u8),), lambda: t([255, 0, 250], u8)),
        i("bitwise_left_shift.Tensor", lambda: (t([255, 3], u8), t([1, 7], u8)), lambda: t([254, 128], u8)),
        i("bitwise_right_shift.Tensor", lambda: (t([-128, 127], i8), t([1, 1], i8)), lambda: t([-64, 63], i8)),
        i("bitwise_xor.Tensor", lambda: (t([-1, 5], i16), t([1, 4], i16)), lambda: t([-2, 1], i16)),
        i("floor_divide.default", lambda: (t([-7, 7, -128], i8), t([2, -2, 3], i8)), lambda: t([-4, -4, -43], i8)),
        i("remainder.Tensor", lambda: (t([-7, 7], i8), t([3, -3], i8)), lambda: t([2, -2], i8)),
        i("maximum.default", lambda: (t([200, 3], u8), t([100, 4], u8)), lambda: t([200, 4], u8)),
        i("max.default", lambda: (t([-128, -127], i8),), lambda: t(-127, i8)),
        i("min.default", lambda: (t([200, 255], u8),), lambda: t(200, u8)),
        i("sum.default", lambda: (t([[200, 255]], u8),), lambda: long(455)),
        i("to.dtype", lambda: (t([300, -1, 127], i16), i8), lambda: t([44, -1, 127], i8)),
        i("to.dtype", lambda: (long([300, -1]), u8), lambda: t([44, 255], u8)),
        i("to.dtype", lambda: (t([0.5, 0, nan, -0.0]), boolean), lambda: t([True, False, True, False], boolean)),
        i("to.dtype", lambda: (t([True, False], boolean), torch.float32), lambda: t([1, 0])),
        i("add.Tensor", lambda: (t([1.5], bf16), t([2], bf16)), lambda: t([3.5], bf16)),
        i("add.Tensor", lambda: (t([1.0, nan, -inf, 3e38], bf16), t([0.00390625, 1, 1, 3e38], bf16)),
          lambda: t([1.0, nan, -inf, inf], bf16)),
        i("logical_not.default", lambda: (t([0, 1, 255], u8),), lambda: t([True, False, False], boolean)),
        i("logical_and.default", lambda: (t([0.5, nan, 0]), t([1, 1, 1])), lambda: t([True, True, False], boolean)),
        i("any.default", lambda: (t([[False] * 40, [False] * 39 + [True]], boolean),), lambda: t(True, boolean)),
        i("all.dim", lambda: (t([[1, 0, 255], [1, 2, 3]], u8), 1), lambda: t([0, 1], u8)),
        i("cat.default", lambda: ([t([True], boolean), t([False, True], boolean)],),
          lambda: t([True, False, True], boolean)),
    ],
    "5 64-bit integers": [
        i("embedding.default", lambda: (t([[1, 2], [3, 4]]), long([1, 0, 1])), lambda: t([[3, 4], [1, 2], [3, 4]])),
        i("embedding.default", lambda: (torch.arange(6.0).reshape(3, 2).to(f16), long([[2, 0]])),
          lambda: t([[[4, 5], [0, 1]]], f16)),
        i("take.default", lambda: (t([[1, 2], [3, 4]]), long([3, -4])), lambda: t([4, 1])),
        i("gather.default", lambda: (t([[1, 2], [3, 4]]), 1, long([[1], [0]])), lambda: t([[2], [3]])),
        i("index.Tensor", lambda: (torch.arange(12.0).reshape(3, 4), [long([-1, 0]), long([1, -1])]),
          lambda: t([9, 3])),
        i("index_select.default", lambda: (torch.arange(6).reshape(2, 3), 1, long([2, 2, 0])),
          lambda: long([[2, 2, 0], [5, 5, 3]])),
        i("argmax.default", lambda: (t([1, nan, 3, nan]),), lambda: long(1)),
        i("argmax.default", lambda: (t([3, 5, 5]),), lambda: long(1)),
        i("argmax.default", lambda: (t([-inf] * 4),), lambda: long(0)),
        i("argmin.default", lambda: (long([[3, 1], [0, 7]]), 1), lambda: long([1, 0])),
        i("argmax.default", lambda: (torch.arange(1000.0).reshape(4, 250).flip(1), 1), lambda: long([0] * 4)),
        i("max.dim", lambda: (long([[3, 9], [-(2**31), -5]]), 1), lambda: long([9, -5])),
        i("topk.default", lambda: (t([[3, nan, 5, 5], [1, 2, -inf, inf]]), 2), lambda: t([[nan, 5], [inf, 2]])),
        i("one_hot.default", lambda: (long([2, 0, 1]), 3), lambda: long([[0, 0, 1], [1, 0, 0], [0, 1, 0]])),
        i("to.dtype", lambda: (t([-1.9, 2.9]), torch.int64), lambda: long([-1, 2])),
        i("to.dtype", lambda: (t([True, False], boolean), torch.int64), lambda: long([1, 0])),
        i("add.Tensor", lambda: (long([2**31 - 1, -(2**31)]), long([0, 0])), lambda: long([2**31 - 1, -(2**31)])),
        i("sum.default", lambda: (long([[1, 2], [3, -4]]),), lambda: long(2)),
        i("cumsum.default", lambda: (long([[1, 2, 3], [-1, 5, 7]]), 1), lambda: long([[1, 3, 6], [-1, 4, 11]])),
        i("cumsum.default", lambda: (t([True, False, True], boolean), 0), lambda: long([1, 1, 2])),
        i("scatter.src", lambda: (torch.zeros(2, 3), 1, long([[2, 0], [1, 2]]), t([[1, 2], [3, 4]])),
          lambda: t([[2, 0, 1], [0, 3, 4]])),
        i("arange.default", lambda: (7,), lambda: torch.arange(7)),
        i("eq.Tensor", lambda: (long([[1, 2]]), long([[1], [2]])), lambda: t([[True, False], [False, True]], boolean)),
        i("sort.default", lambda: (long([3, -1, 2]),), lambda: long([-1, 2, 3])),
    ],
    "6 functions far from zero": [
        i("gelu.default", lambda: (t([50, 100, -100]),), lambda: t([50, 100, -0.0]), approximate="tanh"),
        i("gelu.default", lambda: (t([50, 100, -100, 3e38, -3e38, 0.0, -0.0]),), approximate="tanh"),
        i("gelu.default", lambda: (t([50, 100, -100, 3e38, -3e38, nan, inf]),), approximate="none"),
        i("gelu.default", lambda: (t([20, 300, -300, 60000], f16),), lambda: t([20, 300, -0.0, 60000], f16),
          approximate="tanh"),
        i("tanh.default", lambda: (t([44, 88.8, -1e30, inf, -inf, nan, 1e-30, -0.0]),),
          lambda: t([1, 1, -1, 1, -1, nan, 1e-30, -0.0])),
        i("sigmoid.default", lambda: (t([100, -100, inf, -inf, 0]),)),
        i("silu.default", lambda: (t([100, -100, 1e30, -1e30, nan]),), lambda: t([100, -0.0, 1e30, -0.0, nan]), 1e-2),
        i("softplus.default", lambda: (t([100, -100, 19.9, 20.1, inf]),)),
        i("exp.default", lambda: (t([-104, -87, 88.7, 89, inf, -inf, nan]),)),
        i("erf.default", lambda: (t([-10, 10, 1e30, 1e-30, nan, inf]),), lambda: t([-1, 1, 1, 1.1283792e-30, nan, 1]), 1e-6),
        i("log1p.default", lambda: (t([-1, -2, 1e-30, 1e30, inf, 0]),)),
        i("expm1.default", lambda: (t([-100, 1e-30, 89, 0.5]),)),
        i("mish.default", lambda: (t([-50, 50, 1e30]),)),
        i("log.default", lambda: (t([0, -1, 1, inf, nan]),), lambda: t([-inf, nan, 0, inf, nan])),
        i("atan2.default", lambda: (t([0, -0.0, 0, 1, inf, 3e38]), t([-1, -1, 1, -0.0, -inf, -3e38]))),
        i("log_sigmoid_forward.default", lambda: (t([-100, 100, 0]),)),
        i("logaddexp.default", lambda: (t([-inf, 100, inf]), t([-inf, 100, inf]))),
    ],
    "7 corrections": [
        i("std.correction", lambda: (t([1, 2, 3, 4, 5]),), lambda: t(1.5811388), 1e-6, correction=1),
        i("std.correction", lambda: (t([1, 2, 3, 4, 5]),), lambda: t(1.4142135), 1e-6, correction=0),
        i("var.correction", lambda: (t([[1, 2, 4], [5, 5, 5]]), [1]), lambda: t([14 / 3, 0]), 1e-6, correction=2),
        i("var.correction", lambda: (t([[1, 2, 4], [5, 5, 5]]), [0]), lambda: t([8, 4.5, 0.5]), 1e-6, correction=1),
        i("var_mean.correction", lambda: (torch.arange(300.0).reshape(3, 100), [1]), correction=0),
    ],
    "8 several axes": [
        i("flip.default", lambda: (torch.arange(12).reshape(3, 4), [-1, -2]),
          lambda: torch.arange(11, -1, -1).reshape(3, 4)),
        i("flip.default", lambda: (torch.arange(24.0).reshape(2, 3, 4), [0, 2])),
        i("roll.default", lambda: (torch.arange(12).reshape(3, 4), [1, -1], [0, 1])),
        i("sum.dim_IntList", lambda: (torch.arange(24.0).reshape(2, 3, 4), [0, -1], True)),
        i("amax.default", lambda: (torch.arange(24.0).reshape(2, 3, 4), [-1, 0]), lambda: t([15, 19, 23])),
        i("permute.default", lambda: (torch.arange(24.0).reshape(2, 3, 4), [2, 0, 1])),
    ],
    "9 reductions of everything": [
        i("sum.default", lambda: (torch.ones(2, 3),), lambda: t(6)),
        i("sum.dim_IntList", lambda: (torch.ones(2, 3), []), lambda: t(6)),
        i("sum.default", lambda: (t(5),), lambda: t(5)),
        i("sum.default", lambda: (torch.ones(7, 131),), lambda: t(917)),
        i("mean.default", lambda: (torch.arange(1000.0),), lambda: t(499.5), 1e-6),
        i("prod.default", lambda: (t([1, 2, 3, -4]),), lambda: t(-24)),
        i("max.default", lambda: (t(-3),), lambda: t(-3)),
        i("amax.default", lambda: (torch.arange(6.0).reshape(2, 3), []), lambda: t(5)),
        i("any.default", lambda: (t([[0.0, nan]]),), lambda: t(True, boolean)),
    ],
    "10 remainders": [
        i("remainder.Scalar", lambda: (long([-7, 7, 0]), 3), lambda: long([2, 1, 0])),
        i("remainder.Scalar", lambda: (long([-7, 7]), -3), lambda: long([-1, -2])),
        i("fmod.Scalar", lambda: (long([-7, 7]), 3), lambda: long([-1, 1])),
        i("fmod.Tensor", lambda: (t([-7.5, 7.5]), t([2, -2])), lambda: t([-1.5, 1.5])),
        i("fmod.Tensor", lambda: (t([1e20, 5, inf, 5, -0.0, 3e38]), t([3, inf, 2, 0, 1, 3e-3]))),
        i("remainder.Tensor", lambda: (t([-7.5, 7.5, -0.5]), t([2, -2, 1])), lambda: t([0.5, -0.5, 0.5])),
        i("remainder.Tensor", lambda: (t([5, inf, -5, -1e-8]), t([inf, 2, inf, 1]))),
        i("fmod.Scalar", lambda: (t([-7, 7], i8), 3), lambda: t([-1, 1], i8)),
        i("div.Tensor_mode", lambda: (long([-7, 7]), long([2, -2])), lambda: long([-4, -4]), rounding_mode="floor"),
        i("div.Tensor_mode", lambda: (long([-7, 7]), long([2, -2])), lambda: long([-3, -3]), rounding_mode="trunc"),
        i("div.Tensor_mode", lambda: (t([-7, 7, 1e10]), t([2, -2, 0.1])), rounding_mode="floor"),
        i("floor_divide.default", lambda: (t([-7, 7]), t([2, -2])), lambda: t([-4, -4])),
    ],
    "11 powers": [
        i("pow.Tensor_Scalar", lambda: (t([-2, -3]), 3), lambda: t([-8, -27])),
        i("pow.Tensor_Scalar", lambda: (t([-2, -3]), 3.0), lambda: t([-8, -27])),
        i("pow.Tensor_Tensor", lambda: (t([-2, -3, 2, -2, 0, 0]), t([3, 2, -1, 0.5, 0, -1])),
          lambda: t([-8, 9, 0.5, nan, 1, inf])),
        i("pow.Tensor_Tensor", lambda: (t([-0.0, -inf, inf, nan, 1, -1]), t([3, 3, -1, 0, nan, inf])),
          lambda: t([-0.0, -inf, 0, 1, 1, 1])),
        i("pow.Scalar", lambda: (-2, t([3, 2, 1])), lambda: t([-8, 4, -2])),
        i("pow.Tensor_Scalar", lambda: (long([-2, 3]), 3), lambda: long([-8, 27])),
        i("pow.Tensor_Scalar", lambda: (t([-2, -3, 7], f16), 3), lambda: t([-8, -27, 343], f16)),
        i("pow.Tensor_Scalar", lambda: (t([4, 9, -1, 0]), 0.5), lambda: t([2, 3, nan, 0])),
        i("pow.Tensor_Scalar", lambda: (t([4, -2, 0]), -2), lambda: t([0.0625, 0.25, inf])),
        i("pow.Tensor_Tensor", lambda: (t([1.0000001, 10, 0.5]), t([1e7, 38, 149]))),
    ],
    "12 variances of half precision": [
        i("native_layer_norm.default", lambda: (layer_norm_row(f16), [64], None, None, 1e-5)),
        i("native_layer_norm.default", lambda: (layer_norm_row(f16, 512, 60000.0), [512], None, None, 1e-5)),
        i("native_layer_norm.default", lambda: (layer_norm_row(bf16, 100, 30000.0), [100], None, None, 1e-5)),
        i("native_layer_norm.default", lambda: (torch.full((2, 48), 3.0), [48], torch.ones(48), torch.zeros(48), 1e-5)),
        i("native_layer_norm.default", lambda: (torch.full((2, 384), 0.1234567), [384], None, None, 1e-12)),
        i("native_layer_norm.default", lambda: (torch.linspace(1000, 1001, 384).expand(2, 384), [384], None, None, 0.0)),
        i("native_layer_norm.default", lambda: (t([[1, inf, 2], [1, 2, 4]]), [3], None, None, 1e-5)),
        i("native_group_norm.default", lambda: (layer_norm_row(f16).reshape(1, 4, 16), None, None, 1, 4, 16, 2, 1e-5)),
    ],
    "13 overflow of half precision": [
        i("add.Tensor", lambda: (t([58820], f16), t([33760], f16)), lambda: t([inf], f16)),
        i("mul.Tensor", lambda: (t([-300, 300], f16), t([300, 200], f16)), lambda: t([-inf, 60000], f16)),
        i("to.dtype", lambda: (t([65519, 65520, -1e9, 1e-8, nan]), f16), lambda: t([65504, inf, -inf, 0, nan], f16)),
        i("exp.default", lambda: (t([11, 12, -20], f16),)),
        i("add.Tensor", lambda: (t([3e38, 1]), t([3e38, 1])), lambda: t([inf, 2])),
    ],
    "14 masked rows": [
        i("_softmax.default", lambda: (t([-inf] * 4), 0, False), lambda: t([nan] * 4)),
        i("_softmax.default", lambda: (t([[-inf] * 100, [0.0] * 100]), 1, False)),
        i("_softmax.default", lambda: (t([[-inf, 5, -inf]]), 1, False), lambda: t([[0, 1, 0]])),
        i("_softmax.default", lambda: (t([[-3.4028234663852886e38] * 70]), 1, False)),
        i("_safe_softmax.default", lambda: (t([-inf] * 4), 0), lambda: t([0] * 4)),
        i("_safe_softmax.default", lambda: (t([[-inf] * 200, [1.0] * 200]), 1)),
        i("_log_softmax.default", lambda: (t([[-inf] * 3, [1, -inf, 2]]), 1, False)),
        i("logsumexp.default", lambda: (t([[-inf] * 80, [1.0] * 80]), [1])),
        i("amax.default", lambda: (torch.full((2, 300), -inf), [1]), lambda: t([-inf] * 2)),
        i("amin.default", lambda: (torch.full((2, 300), inf), [1]), lambda: t([inf] * 2)),
        i("amax.default", lambda: (torch.full((600, 65), -3.4028234663852886e38), [1])),
        i("scaled_dot_product_attention.default", lambda: (
            *(torch.linspace(-1, 1, 8).reshape(1, 1, 2, 4),) * 3, t([[True, False], [False, False]], boolean))),
    ],
    "15 places from the end": [
        i("select.int", lambda: (torch.arange(6).reshape(2, 3), 1, -1), lambda: long([2, 5])),
        i("select.int", lambda: (torch.arange(6.0).reshape(2, 3), -2, -2), lambda: t([0, 1, 2])),
        i("slice.Tensor", lambda: (torch.arange(6.0), 0, -3, -1), lambda: t([3, 4])),
        i("select_scatter.default", lambda: (torch.zeros(2, 2), t([1, 2]), 1, -1), lambda: t([[0, 1], [0, 2]])),
        i("narrow_copy.default", lambda: (torch.arange(6.0), 0, -2, 2), lambda: t([4, 5])),
    ],
    "16 empty parts": [
        i("cat.default", lambda: ([torch.empty(0), torch.ones(1, 2)], 0), lambda: torch.ones(1, 2)),
        i("cat.default", lambda: ([torch.ones(2, 0), torch.ones(2, 3), torch.ones(2, 0)], 1), lambda: torch.ones(2, 3)),
        i("mm.default", lambda: (torch.ones(2, 0), torch.ones(0, 3)), lambda: torch.zeros(2, 3)),
        i("sum.dim_IntList", lambda: (torch.ones(2, 0), [1]), lambda: torch.zeros(2)),
        i("stack.default", lambda: ([t(1), t(2)],), lambda: t([1, 2])),
    ],
    "17 strides": [
        i("mm.default", lambda: (t([[1, 2], [3, 4]]).t(), t([[1, 0], [0, 2]]).t()), lambda: t([[1, 6], [2, 8]])),
        i("neg.default", lambda: (torch.arange(24.0).reshape(2, 3, 4)[:, :, 1],),
          lambda: -torch.arange(24.0).reshape(2, 3, 4)[:, :, 1]),
        i("add.Tensor", lambda: (t([1, 2]).unsqueeze(1).expand(2, 3), t([[10, 20, 30]])),
          lambda: t([[11, 21, 31], [12, 22, 32]])),
        i("mul.Tensor", lambda: (spaced(), spaced()), lambda: spaced() * spaced()),
        i("mul.Tensor", lambda: (spaced(24, u8), spaced(24, u8)), lambda: spaced(24, u8) * spaced(24, u8)),
        i("mul.Tensor", lambda: (spaced(24, f16), t(2, f16))),
        i("bmm.default", lambda: (torch.arange(24.0).reshape(3, 4, 2).permute(2, 0, 1),
                                  torch.arange(24.0).reshape(4, 2, 3).transpose(0, 1))),
        i("add.out", lambda: (torch.ones(3, 2), torch.ones(3, 2)), lambda: torch.full((3, 2), 2.0),
          out=torch.zeros(3, 4)[:, ::2]),
        i("sum.dim_IntList", lambda: (spaced(), [0])),
        i("clone.default", lambda: (t([[1, 2, 3]], boolean).expand(3, 3),)),
        i("_softmax.default", lambda: (torch.linspace(-3, 3, 600).reshape(100, 6).t(), 1, False)),
    ],
    "18 changes in place": [
        i("add_.Tensor", lambda: (torch.ones(3), t([1, 2, 3])), lambda: t([2, 3, 4])),
        i("add_.Tensor", lambda: (torch.ones(3, dtype=u8), t([255, 2, 3], u8)), lambda: t([0, 3, 4], u8)),
        i("mul_.Tensor", lambda: (spaced(), t(2))),
        i("index_copy.default", lambda: (torch.zeros(3, 2), 0, long([2]), torch.ones(1, 2)),
          lambda: t([[0, 0], [0, 0], [1, 1]])),
        i("index_copy_.default", lambda: (torch.zeros(3, 2), 0, long([2, 0]), t([[1, 2], [3, 4]])),
          lambda: t([[3, 4], [0, 0], [1, 2]])),
        i("index_put_.default", lambda: (torch.zeros(4), [long([1, 1, 3])], t([1, 2, 3]), True), lambda: t([0, 3, 0, 3])),
        i("masked_fill_.Scalar", lambda: (t([1, 2]), t([True, False], boolean), 9), lambda: t([9, 2])),
        i("copy_.default", lambda: (torch.zeros(2, 3), t([1, 2, 3])), lambda: t([[1, 2, 3]] * 2)),
    ],
    "19 products of half precision": [
        i("mm.default", lambda: (torch.linspace(-2, 2, 4096).reshape(64, 64).to(f16),
                                 torch.linspace(-1, 1, 4096).reshape(64, 64).to(f16))),
        i("mm.default", lambda: (torch.linspace(-2, 2, 33 * 65).reshape(33, 65).to(f16),
                                 torch.linspace(-1, 1, 65 * 7).reshape(65, 7).to(f16))),
        i("mm.default", lambda: (torch.linspace(-2, 2, 4096).reshape(64, 64).to(bf16),
                                 torch.linspace(-1, 1, 4096).reshape(64, 64).to(bf16).t())),
        i("addmm.default", lambda: (torch.ones(5, dtype=f16), torch.ones(3, 100, dtype=f16),
                                    torch.full((100, 5), 0.5, dtype=f16)), lambda: torch.full((3, 5), 51.0, dtype=f16)),
    ],
    "20 prefix sums": [
        i("cumsum.default", lambda: (torch.ones(4096), 0), lambda: torch.arange(1.0, 4097)),
        i("cumsum.default", lambda: (torch.ones(3, 1031, dtype=torch.int64), 1),
          lambda: torch.arange(1, 1032).expand(3, 1031)),
        i("cumsum.default", lambda: (torch.ones(513, 3), 0)),
        i("cumsum.default", lambda: (t([1, nan, 1, inf, -inf]), 0)),
        i("cumprod.default", lambda: (t([[2, -1, 3], [1, 0, 5]]), 1), lambda: t([[2, -2, -6], [1, 0, 0]])),
        i("cummax.default", lambda: (t([3, nan, 5, 1]), 0), lambda: t([3, nan, nan, nan])),
        i("logcumsumexp.default", lambda: (t([0, -inf, 100]), 0)),
    ],
}  # fmt: skip
