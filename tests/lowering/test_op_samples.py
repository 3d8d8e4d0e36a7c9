"""PyTorch's own operator samples as inputs: nothing that is converted may be wrong, and most of it has to be converted."""

from __future__ import annotations

import itertools
import warnings
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from tapml.carving.recorder import Recorder
from tapml.errors import TapmlError, UnsupportedError
from tapml.lowering.lower import routes
from tests.lowering.running import Call, run_call

SAMPLES = 2
"""Samples of an operator, spread over those that PyTorch has."""

MOSTLY = 0.88
"""Share that has to be right; the rest are special functions, factorisations and other things that no model here uses."""

KNOWN = {
    "aten._upsample_bilinear2d_aa.default": "TVM's front end imports it as the resampling without the antialiasing filter",
    "aten.to.dtype": "to a complex dtype, which TVM has none of",
    "aten.unfold_copy.default": "PyTorch's decomposition divides by the rank of a zero-dimensional tensor",
    "aten._native_batch_norm_legit.default": "an epsilon of -1",
    "aten._batch_norm_with_update.default": "an epsilon of -1",
}


def recorded_calls(dtype: torch.dtype) -> Iterator[Call]:
    """Compute calls that PyTorch's operators make on its samples, each signature once."""
    from torch.testing._internal.common_methods_invocations import op_db

    seen: set[str] = set()
    for op in op_db:
        if dtype not in op.dtypes or op.name.startswith(("linalg", "fft", "special", "sparse", "masked", "signal")):
            continue
        try:
            found = list(itertools.islice(op.sample_inputs("cpu", dtype, requires_grad=False), 100))
        except Exception:  # samples that need what this machine lacks
            continue
        for sample in found[:: max(1, len(found) // SAMPLES)][:SAMPLES]:
            recorder = Recorder(None, keep=1)
            try:
                with torch.no_grad(), recorder:
                    op.op(sample.input, *sample.args, **sample.kwargs)
                everything = recorder.finish()
            except Exception:  # the recorder refuses what a suite cannot hold, PyTorch what its own samples should
                continue
            for item in everything:
                if item.kind != "compute" or item.signature.id in seen:
                    continue
                seen.add(item.signature.id)
                for instance, _ in item.selection.kept():
                    yield Call(item.signature, instance.tensors, instance.results)


def judged(call: Call) -> tuple[str, str]:
    """``right``, ``wrong`` or ``unsupported``, by the best of the routes, and why."""
    status, why = "unsupported", ""
    try:
        available = routes(call.signature, "llvm")
    except UnsupportedError as error:
        return status, error.message
    for route in available:
        try:
            ran = run_call(call, route)
        except TapmlError as error:
            why = why or error.message
            continue
        except Exception as error:
            status, why = "wrong", f"{type(error).__name__}: {error}"
            continue
        if ran.verdict.passed:
            return "right", ""
        status, why = "wrong", ran.verdict.explanation
    return status, why


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool], ids=str)
def test_pytorchs_samples(dtype: torch.dtype) -> None:
    pytest.importorskip("expecttest", reason="PyTorch's samples need the package expecttest")
    counts: Counter[str] = Counter()
    wrong: list[str] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.manual_seed(0)
        for call in recorded_calls(dtype):
            status, why = judged(call)
            counts[status] += 1
            if status == "wrong" and call.signature.operator not in KNOWN:
                wrong.append(f"{call.signature} {call.signature.arguments}: {why}")
    assert not wrong, "\n".join(wrong)
    assert counts["right"] >= MOSTLY * counts.total(), counts


def test_there_are_no_excuses_for_our_own_converters() -> None:
    from tapml.lowering.registry import find

    excused: list[Any] = [name for name in KNOWN if find(name, "llvm") is not None]
    assert excused == ["aten.to.dtype"]
