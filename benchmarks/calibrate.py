"""Calibrate the judge: no false alarm on healthy kernels, every planted defect caught.

    python benchmarks/calibrate.py [--seeds 2] [--operators softmax gelu]

Healthy kernels are those of ``tapml.numerics.healthy``, defects those of ``tapml.numerics.planted``.  Inputs are of two
kinds, of the same shapes: ``realistic`` ones look like the activations of a language model (lognormal scale per token
and per channel, one channel in 64 with 60 times the magnitude), ``normal`` ones are N(0, 1).

A planted defect that changes no element by more than one unit in the last place of the result's dtype counts as
``invisible``: whether it is a defect cannot be told from its output.  Runs a few minutes on one thread.
"""

from __future__ import annotations

import argparse
import math
import platform
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

from tapml.numerics.example import Example, example
from tapml.numerics.healthy import HEALTHY, ROUNDED_INSIDE
from tapml.numerics.judge import judge
from tapml.numerics.metrics import ulp_distance
from tapml.numerics.oracle import Oracle, float64_results
from tapml.numerics.planted import PLANTED
from tapml.suite.call import decode_arguments, dtype_name

DTYPES = (torch.float32, torch.float16, torch.bfloat16)
Draw = Callable[..., torch.Tensor]


class Inputs:
    """Tensors of one kind (``realistic`` or ``normal``), dtype and seed."""

    def __init__(self, kind: str, dtype: torch.dtype, seed: int) -> None:
        self.realistic = kind == "realistic"
        self.dtype = dtype
        self._generator = torch.Generator().manual_seed(seed)

    def _normal(self, *shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=self._generator)

    def activation(self, *shape: int) -> torch.Tensor:
        """Last dimension: channels; the one before: tokens."""
        x = self._normal(*shape)
        if self.realistic:
            channels = torch.exp(self._normal(shape[-1]))
            channels[torch.randint(shape[-1], (max(1, shape[-1] // 64),), generator=self._generator)] *= 60
            x = x * channels
            if len(shape) > 1:
                x = x * torch.exp(0.5 * self._normal(shape[-2], 1))
        return x.clamp(-2000, 2000).to(self.dtype)

    def weight(self, *shape: int) -> torch.Tensor:
        """Of order ``1/sqrt(shape[0])``; columns of unequal scale if realistic."""
        w = self._normal(*shape) / math.sqrt(shape[0])
        return (w * torch.exp(0.7 * self._normal(shape[-1])) if self.realistic else w).to(self.dtype)

    def vector(self, size: int) -> torch.Tensor:
        return (1 + 0.3 * self._normal(size) if self.realistic else self._normal(size)).to(self.dtype)


def calls(draw: Inputs) -> Iterator[tuple[str, str, Example]]:
    """(key in HEALTHY or "", label, call) of every made-up call."""
    a, w, v = draw.activation, draw.weight, draw.vector

    def call(key: str, label: str, *args: Any, **kwargs: Any) -> tuple[str, str, Example]:
        return key, label, example(key.split(" ")[0], *args, **kwargs)

    yield call("aten.mm.default", "mm 16x576x96", a(16, 576), w(576, 96))
    yield call("aten.mm.default", "mm 2x49152x8", a(2, 49152), w(49152, 8))
    yield call("aten.mm.default", "mm 2x49152x8 >0", a(2, 49152).abs(), w(49152, 8).abs())
    yield call("aten.mm.default", "mm 64x64x64", a(64, 64), w(64, 64).t())
    yield call("aten.addmm.default", "addmm 8x512x64", v(64), a(8, 512), w(512, 64))
    yield call("aten.sum.dim_IntList", "sum 4x49152", a(4, 49152), [1])
    yield call("aten.sum.dim_IntList", "sum 2x49152 >0", (a(2, 49152).abs() / 16).clamp(max=1), [1])
    yield call("aten.mean.dim", "mean 8x4096", a(8, 4096), [1])
    yield call("aten.mean.dim", "mean over channels", a(2, 300, 64), [1])
    yield call("aten.cumsum.default", "cumsum 4x4096", a(4, 4096) / 64, 1)
    yield call("aten.linalg_vector_norm.default", "norm 8x1000", a(8, 1000), 2, [1])
    yield call("aten.native_layer_norm.default", "layer_norm 2x16x576", a(2, 16, 576), [576], v(576), v(576), 1e-5)
    yield call("aten.native_layer_norm.default", "layer_norm quiet", a(32, 64) / 64, [64], v(64), v(64), 1e-5)
    yield call("aten.native_layer_norm.default", "layer_norm offset", a(8, 256) + 400, [256], v(256), v(256), 1e-5)
    yield call("aten.rms_norm.default", "rms_norm 2x16x576", a(2, 16, 576) / 8, [576], v(576), 1e-5)
    yield call("aten.var.correction", "var 64x100", a(64, 100) / 16, [1], correction=1)
    yield call("aten._softmax.default", "softmax 2x8x64x64", a(2, 8, 64, 64) / 8, -1, False)
    yield call("aten._softmax.default", "softmax 16x2000 large", a(16, 2000) * 30, -1, False)
    yield call("aten._log_softmax.default", "log_softmax 4x49152", a(4, 49152) / 8, -1, False)
    yield call("aten.logsumexp.default", "logsumexp 16x1000", a(16, 1000), [1])
    heads = [a(2, 3, 48, 32) / 2 for _ in range(3)]
    yield call("aten.scaled_dot_product_attention.default", "attention causal", *heads, None, 0.0, True)
    pixels = a(2, 8, 12, 12) / 4
    convolution = [[1, 1], [1, 1], [1, 1], False, [0, 0], 1]
    yield call(
        "aten.convolution.default", "convolution 3x3", pixels, w(72, 16).t().reshape(16, 8, 3, 3), v(16), *convolution
    )
    yield call("aten.gelu.default", "gelu", a(64, 576))
    yield call("aten.gelu.default tanh", "gelu tanh", a(64, 576), approximate="tanh")
    for name in ("silu", "sigmoid", "tanh", "sin", "softplus"):
        yield call(f"aten.{name}.default", name, a(64, 576))
    yield call("aten.exp.default", "exp", a(64, 576).clamp(-10, 10))
    yield call("aten.expm1.default", "expm1", a(64, 576).clamp(-10, 10) / 16)
    yield call("aten.log.default", "log", a(64, 576).abs() + 1e-3)
    yield call("aten.rsqrt.default", "rsqrt", a(64, 576).abs() + 1e-3)
    yield call("aten.pow.Tensor_Scalar", "pow 3", a(64, 576).clamp(-30, 30), 3)
    yield call("aten.div.Tensor", "div", a(64, 576), a(64, 576).abs() + 1)
    yield call("aten.add.Tensor", "add alpha", a(64, 576), a(64, 576), alpha=0.3)
    yield call("aten.addcmul.default", "addcmul", a(64, 576), a(64, 576) / 8, a(64, 576) / 8, value=0.7)
    yield call("aten.leaky_relu.default", "leaky_relu", a(64, 576), 0.01)
    yield call("aten.avg_pool2d.default", "avg_pool2d", a(2, 8, 32, 32), [2, 2])
    # Copies, choices and integers: nothing to compute in another healthy way, everything to get wrong.
    hole = a(64, 576)
    hole[3, 5], hole[7, 9] = torch.nan, torch.inf
    yield "", "maximum with nan", example("aten.maximum.default", hole, a(64, 576))
    yield "", "remainder", example("aten.remainder.Scalar", a(64, 576), 3)
    yield "", "floor", example("aten.floor.default", a(64, 576))
    yield "", "round", example("aten.round.default", a(64, 576))
    yield "", "compare", example("aten.gt.Scalar", a(64, 576).round(), 0)
    yield "", "argmax", example("aten.argmax.default", a(64, 576), -1)
    yield "", "topk", example("aten.topk.default", a(64, 576), 5)
    ids = torch.randint(100, (2, 32), generator=torch.Generator().manual_seed(1))
    yield "", "embedding", example("aten.embedding.default", a(100, 64), ids)
    yield (
        "",
        "transposed view copied",
        example("aten.clone.default", a(48, 64).t(), memory_format=torch.contiguous_format),
    )
    yield "", "cast to float16", example("aten._to_copy.default", a(64, 576).float(), dtype=torch.float16)
    mask = torch.ones(64, 64, dtype=torch.bool).triu(1)
    yield "", "masked_fill", example("aten.masked_fill.Scalar", a(4, 64, 64), mask, -torch.inf)


@dataclass
class Count:
    """Outcomes of one row of a table."""

    good: int = 0
    bad: int = 0
    invisible: int = 0
    worst_float32: float = 0.0
    worst_narrow: float = 0.0
    notes: list[str] = field(default_factory=list)


def healthy_results(key: str, made: Example) -> Iterator[tuple[str, torch.Tensor]]:
    """(kernel, first result rounded to its dtype) of every healthy kernel for the call."""
    result = made.results[0][1]
    wide = [t.float() if t.is_floating_point() else t for t in made.tensors]
    kernels = [(name, kernel, wide) for name, kernel in HEALTHY.get(key, {}).items()]
    if key in ROUNDED_INSIDE and result.dtype != torch.float32:
        kernels.append(("rounded inside", ROUNDED_INSIDE[key], list(made.tensors)))
    for name, kernel, tensors in kernels:
        args, kwargs = decode_arguments(made.signature.template, tensors)
        yield name, kernel(*args, **kwargs).to(result.dtype)


def invisible(right: torch.Tensor, wrong: torch.Tensor) -> bool:
    """Whether no element of a floating result moved by more than one unit in the last place."""
    if not right.is_floating_point() or not torch.equal(torch.isfinite(right), torch.isfinite(wrong)):
        return torch.equal(right, wrong)
    finite = torch.isfinite(right)
    return (
        not finite.any() or float(ulp_distance(right[finite].double(), wrong[finite].double(), right.dtype).max()) <= 1
    )


def score_healthy(counts: dict[str, Count], key: str, label: str, made: Example, truth: Oracle) -> None:
    for kernel, value in healthy_results(key, made):
        verdict = judge(
            made.signature, made.tensors, made.results, [(made.results[0][0], value), *made.results[1:]], oracle=truth
        )
        count = counts[label]
        count.good, count.bad = count.good + verdict.passed, count.bad + (not verdict.passed)
        found = verdict.results[0].figures
        if found.get("rmse_reference"):
            ratio = found["rmse"] / found["rmse_reference"]
            if made.results[0][1].dtype == torch.float32:
                count.worst_float32 = max(count.worst_float32, ratio)
            else:
                count.worst_narrow = max(count.worst_narrow, ratio)
        if not verdict.passed:
            count.notes.append(f"alarm: {label}, {kernel}, {made.results[0][1].dtype}: {verdict.explanation}")


def score_planted(counts: dict[tuple[str, str], Count], kind: str, label: str, made: Example, truth: Oracle) -> None:
    for planted in PLANTED:
        wrong = planted(made.signature, made.tensors, made.results)
        if wrong is None:
            continue
        count = counts[planted.name, kind]
        verdict = judge(made.signature, made.tensors, made.results, wrong, oracle=truth)
        if not verdict.passed:
            count.good += 1
        elif all(invisible(right, found) for (_, right), (_, found) in zip(made.results, wrong, strict=True)):
            count.invisible += 1
        else:
            count.bad += 1
            ratio = verdict.results[0].figures["rmse"] / max(verdict.results[0].figures["rmse_reference"], 1e-300)
            dtype = dtype_name(made.results[0][1].dtype)
            count.notes.append(f"missed: {planted.name}, {kind}, {label}, {dtype}: {ratio:.2g}x the reference's error")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--operators", nargs="*", default=[], help="only calls whose label contains one of these")
    parser.add_argument("--notes", type=int, default=100, help="how many false alarms and misses to print in full")
    options = parser.parse_args()
    torch.set_num_threads(1)
    healthy: dict[str, Count] = defaultdict(Count)
    caught: dict[tuple[str, str], Count] = defaultdict(Count)
    began = time.perf_counter()
    for dtype in DTYPES:
        for kind in ("realistic", "normal"):
            for seed in range(options.seeds):
                for key, label, made in calls(Inputs(kind, dtype, seed)):
                    if options.operators and not any(word in label for word in options.operators):
                        continue
                    truth = float64_results(made.signature, made.tensors)
                    score_healthy(healthy, key, label, made, truth)
                    if seed == 0:
                        score_planted(caught, kind, label, made, truth)
    seconds = time.perf_counter() - began
    print_tables(healthy, caught, options.notes)
    verdicts = sum(c.good + c.bad + c.invisible for c in [*healthy.values(), *caught.values()])
    print(
        f"\n{verdicts} verdicts in {seconds:.0f} s; torch {torch.__version__}, Python {platform.python_version()}, "
        f"{platform.machine()}, 1 thread"
    )


def print_tables(healthy: dict[str, Count], caught: dict[tuple[str, str], Count], notes: int) -> None:
    print("Error of the candidate in units of the reference's: the worst root mean square over that of PyTorch.\n")
    print(f"{'healthy kernels':28} {'runs':>5} {'alarms':>7} {'float32':>9} {'16 bit':>9}")
    for label, count in healthy.items():
        print(
            f"{label:28} {count.good + count.bad:5} {count.bad:7} {count.worst_float32:9.3g} {count.worst_narrow:9.3g}"
        )
    runs, alarms = (sum(c.good + c.bad for c in healthy.values()), sum(c.bad for c in healthy.values()))
    print(f"{'total':28} {runs:5} {alarms:7}\n")
    print(f"{'planted defects':28} {'realistic':>18} {'normal':>18} {'invisible':>10}")
    totals = {kind: Count() for kind in ("realistic", "normal")}
    for planted in PLANTED:
        cells = []
        for kind, total in totals.items():
            count = caught[planted.name, kind]
            total.good, total.bad, total.invisible = (
                total.good + count.good,
                total.bad + count.bad,
                total.invisible + count.invisible,
            )
            cells.append(f"{count.good} of {count.good + count.bad}")
        unseen = sum(caught[planted.name, kind].invisible for kind in totals)
        print(f"{planted.name:28} {cells[0]:>18} {cells[1]:>18} {unseen:10}")
    cells = [f"{t.good} of {t.good + t.bad}" for t in totals.values()]
    print(f"{'total':28} {cells[0]:>18} {cells[1]:>18} {sum(t.invisible for t in totals.values()):10}")
    print()
    texts = [n for c in [*healthy.values(), *caught.values()] for n in c.notes]
    for text in texts[:notes]:
        print(text)


if __name__ == "__main__":
    main()
