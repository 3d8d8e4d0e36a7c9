"""All devices agree: many operators on many dtypes, of odd shapes and strides, each result judged to be right."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import torch

from tapml.errors import TapmlError
from tests.lowering.running import Call, opened, record, run_any
from tests.lowering.samples import tensor

DEVICES = {
    "webgpu:native": 1,
    "llvm:cpu": 1,
    "vulkan:lavapipe": 2,
    "opencl:pocl": 4,
    "metal:emulated": 4,
    "cuda:emulated": 8,
}
"""Of how many calls one is tried, since compilers take from a tenth of a second to a whole one."""
FLOATS = (torch.float32, torch.float16, torch.bfloat16)
WHOLE = (torch.int64, torch.int32, torch.int8, torch.uint8)
BOOL = (torch.bool,)
SPECIAL = (float("nan"), float("inf"), -float("inf"), -0.0, 0.0, 1.0, -1.0, 0.5, 2.5, -3.5, 88.0, 1e-8)


def views(dtype: torch.dtype, seed: int = 0) -> list[torch.Tensor]:
    """Transposed, strided and misaligned, broadcast, of one element, of odd extents; and special values."""
    found = [
        tensor((5, 7), dtype, seed).t(),
        tensor((7, 11), dtype, seed + 1)[:, 1::2],
        tensor((7, 1), dtype, seed + 2).expand(7, 5),
        tensor((67,), dtype, seed + 3)[2:37].reshape(7, 5),
        tensor((1, 1), dtype, seed + 4),
        tensor((3, 129), dtype, seed + 5),
    ]
    if dtype.is_floating_point:
        found.append(torch.tensor(SPECIAL, dtype=dtype).roll(seed).reshape(3, 4))
    return found


@dataclass(frozen=True)
class Operator:
    """``arguments``: from two views that go together to the arguments of a call."""

    name: str
    dtypes: tuple[torch.dtype, ...]
    arguments: Callable[[torch.Tensor, torch.Tensor], tuple[Any, ...]]


def one(a: torch.Tensor, b: torch.Tensor) -> tuple[Any, ...]:
    return (a,)


def two(a: torch.Tensor, b: torch.Tensor) -> tuple[Any, ...]:
    return (a, b)


def indices(a: torch.Tensor) -> torch.Tensor:
    return torch.arange(a.shape[0]).flip(0) % max(a.shape[0] - 1, 1)


OPERATORS = (
    Operator("add.Tensor", (*FLOATS, *WHOLE, *BOOL), two),
    Operator("sub.Tensor", (*FLOATS, *WHOLE), two),
    Operator("mul.Tensor", (*FLOATS, *WHOLE, *BOOL), two),
    Operator("div.Tensor", (*FLOATS, *WHOLE, *BOOL), two),
    Operator("maximum.default", (*FLOATS, *WHOLE, *BOOL), two),
    Operator("eq.Tensor", (*FLOATS, *WHOLE, *BOOL), two),
    Operator("lt.Tensor", (*FLOATS, *WHOLE, *BOOL), two),
    Operator("remainder.Tensor", (torch.float32, *WHOLE), two),
    Operator("where.self", (*FLOATS, *WHOLE, *BOOL), lambda a, b: (a > b, a, b)),
    Operator("bitwise_xor.Tensor", (*WHOLE, *BOOL), two),
    Operator("neg.default", (*FLOATS, *WHOLE), one),
    Operator("abs.default", (*FLOATS, *WHOLE), one),
    Operator("exp.default", (*FLOATS, *WHOLE, *BOOL), one),
    Operator("tanh.default", (*FLOATS, *WHOLE), one),
    Operator("gelu.default", FLOATS, one),
    Operator("silu.default", FLOATS, one),
    Operator("pow.Tensor_Scalar", (*FLOATS, *WHOLE), lambda a, b: (a, 2)),
    Operator("mul.Scalar", (*FLOATS, *WHOLE), lambda a, b: (a, 0.123456789 if a.is_floating_point() else 3)),
    Operator("rsqrt.default", (*FLOATS, *WHOLE), one),
    Operator("sum.dim_IntList", (*FLOATS, *WHOLE, *BOOL), lambda a, b: (a, [-1])),
    Operator("mean.dim", FLOATS, lambda a, b: (a, [0], True)),
    Operator("amax.default", (*FLOATS, *WHOLE, *BOOL), lambda a, b: (a, [-1])),
    Operator("argmax.default", (*FLOATS, *WHOLE), lambda a, b: (a, 0)),
    Operator("_softmax.default", FLOATS, lambda a, b: (a, -1, False)),
    Operator("cumsum.default", (*FLOATS, *WHOLE, *BOOL), lambda a, b: (a, 0)),
    Operator("mm.default", FLOATS, lambda a, b: (a, b.t())),
    Operator("index_select.default", (*FLOATS, *WHOLE, *BOOL), lambda a, b: (a, 0, indices(a))),
    Operator("cat.default", (*FLOATS, *WHOLE, *BOOL), lambda a, b: ([a, b], 0)),
    Operator("to.dtype", (*FLOATS, *WHOLE, *BOOL), lambda a, b: (a, torch.float32)),
    Operator("ne.Scalar", (*FLOATS, *WHOLE, *BOOL), lambda a, b: (a, 0)),
)


def calls(operator: Operator) -> Iterator[Call]:
    for dtype in operator.dtypes:
        for a, b in zip(views(dtype), views(dtype, 10), strict=True):
            yield record(f"aten.{operator.name}", operator.arguments(a, b))


def problem(call: Call, device: str) -> str:
    try:
        ran = run_any(call, device)
    except pytest.skip.Exception:
        return ""  # the device has no half precision, or is not here
    except TapmlError as error:
        return f"{device}: {call.signature}: {error.message}"
    return "" if ran.right else f"{device}: {call.signature}: {ran.verdict.explanation} {ran.faults}"


@pytest.mark.parametrize("operator", OPERATORS, ids=lambda o: o.name)
def test_a_few_calls(operator: Operator) -> None:
    """Three calls on a device each, and two more on one; which ones differs by operator."""
    every = list(calls(operator))
    start = 3 * OPERATORS.index(operator)
    chosen = [(start + 5 * n, list(DEVICES)[(start + n) % len(DEVICES)]) for n in range(3)]
    chosen += [(start + 17 * n, "webgpu:native") for n in (1, 2)]
    problems = [p for n, device in chosen if (p := problem(every[n % len(every)], device))]
    assert not problems, "\n".join(problems)


@pytest.mark.slow
@pytest.mark.parametrize(("operator", "device"), itertools.product(OPERATORS, DEVICES),
                         ids=lambda v: v if isinstance(v, str) else v.name)  # fmt: skip
def test_many_calls(operator: Operator, device: str) -> None:
    opened(device)  # skips the test where it is not here
    step = DEVICES[device]
    chosen = itertools.islice(calls(operator), OPERATORS.index(operator) % step, None, step)
    problems = [p for call in chosen if (p := problem(call, device))]
    assert not problems, "\n".join(problems)
