"""The float64 truth of a call: the operator on the very bits recorded, computed in double precision."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch

from tapml.errors import TapmlError
from tapml.suite.call import Json, Signature, canonical_json, decode_arguments, execute

Override = Callable[[Signature, Sequence[torch.Tensor]], "Oracle"]

_OVERRIDES: dict[str, Override] = {}
_WIDER = {"complex32": "complex128", "complex64": "complex128"}
_WIDER |= {name: "float64" for name in ("float16", "bfloat16", "float32")}
_DEFAULT_DTYPE = threading.Lock()


@dataclass(frozen=True)
class Oracle:
    """Exact results of one call.

    ``results``: float64 (complex128) tensors by result name, shapes as recorded; integer and bool results are absent,
    because they are compared with the recorded ones.  ``undefined``: by name, a bool tensor of the result's shape, true
    where the operator leaves memory unwritten and nothing may be compared.  ``reason``: why there is no truth (then
    ``results`` is empty), in one sentence.  ``graphs``: where this is a dictionary, derivatives are kept in it
    for the next candidate, by result name (:class:`tapml.numerics.sensitivity.Sensitivity`); they hold the call in float64.
    """

    results: dict[str, torch.Tensor] = field(default_factory=dict)
    undefined: dict[str, torch.Tensor] = field(default_factory=dict)
    reason: str = ""
    graphs: dict[str, Any] | None = field(default=None, compare=False)


def oracle(operator: str) -> Callable[[Override], Override]:
    """Register a replacement for operators that have no float64 kernel, or whose float64 results need a remark.

    The function gets the widened signature and tensors (see :func:`widen`) and returns an :class:`Oracle`.
    """

    def register(function: Override) -> Override:
        _OVERRIDES[operator] = function
        return function

    return register


def float64_results(signature: Signature, tensors: Sequence[torch.Tensor]) -> Oracle:
    """Run the call in PyTorch in float64 on the bits of ``tensors`` (CPU; shapes and dtypes as in the signature).

    Never raises for an operator that cannot run in float64: the oracle's ``reason`` says so instead.
    """
    with torch.no_grad():
        return widened_results(*widen(signature, tensors))


def widen(signature: Signature, tensors: Sequence[torch.Tensor]) -> tuple[Signature, list[torch.Tensor]]:
    """The same call in float64: floating tensors and floating dtype arguments become float64, complex ones
    complex128.
    """
    wide = [_widen_tensor(t) for t in tensors]
    arguments = canonical_json(_widen_template(signature.template))
    return Signature(signature.operator, arguments, signature.tensors, signature.results), wide


def widened_results(signature: Signature, tensors: Sequence[torch.Tensor]) -> Oracle:
    """Results of a call that :func:`widen` made; differentiable where the operator is."""
    override = _OVERRIDES.get(signature.operator)
    try:
        if override is not None:
            found = override(signature, tensors)
            named = list(found.results.items())
        else:
            found = Oracle()
            with _double_precision():
                named = execute(signature, tensors)
    except (RuntimeError, NotImplementedError, TypeError, ValueError, IndexError, TapmlError) as error:
        return Oracle(
            reason=f"{signature.operator} does not run in float64: {str(error).strip().splitlines()[0][:200]}"
        )
    results: dict[str, torch.Tensor] = {}
    expected = dict(signature.results)
    for name, tensor in named:
        spec = expected.get(name)
        if spec is not None and spec.shape != tuple(tensor.shape):
            return Oracle(reason=f"{signature.operator} has another meaning in float64: {name} is {list(tensor.shape)}")
        if tensor.dtype in (torch.float64, torch.complex128):
            results[name] = tensor
    return Oracle(results, found.undefined, found.reason)


def _widen_tensor(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.is_complex():
        return tensor.to(torch.complex128)
    return tensor.to(torch.float64) if tensor.is_floating_point() else tensor


def _widen_template(value: Json) -> Json:
    if isinstance(value, list):
        return [_widen_template(v) for v in value]
    if isinstance(value, dict):
        if set(value) == {"dtype"} and isinstance(value["dtype"], str):
            return {"dtype": _WIDER.get(value["dtype"], value["dtype"])}
        return {k: _widen_template(v) for k, v in value.items()}
    return value


@contextmanager
def _double_precision() -> Iterator[None]:
    """Integer division, ``mean`` and factories produce the default dtype; the oracle needs that to be float64 too.

    Warnings of the operator are dropped: whoever recorded the call has seen them.
    """
    with _DEFAULT_DTYPE, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        before = torch.get_default_dtype()
        torch.set_default_dtype(torch.float64)
        try:
            yield
        finally:
            torch.set_default_dtype(before)


@oracle("aten._grouped_mm.default")
def _grouped_mm(signature: Signature, tensors: Sequence[torch.Tensor]) -> Oracle:
    """``_grouped_mm(self, mat2, offs, bias, out_dtype)``: one matrix product a group, groups ending at ``offs``.

    ``(M, K) x (G, K, N)`` groups rows, ``(G, M, K) x (K, N)`` groups columns, ``(M, K) x (K, N)`` groups the terms of
    the sum, ``(G, M, K) x (G, K, N)`` has no offsets.  PyTorch's CPU kernel (2.13) multiplies group by group, has no
    float64 version, and never writes rows or columns past the last offset.
    """
    args, kwargs = decode_arguments(signature.template, tensors)
    left, right, offsets, bias, _ = (args + [None] * 5)[:5]
    offsets, bias = kwargs.get("offs", offsets), kwargs.get("bias", bias)
    if left.dim() == right.dim() == 3:
        product = torch.bmm(left, right)
        return Oracle({"out0": product if bias is None else product + bias.unsqueeze(1)})
    ends = offsets.tolist()
    spans = list(zip([0, *ends[:-1]], ends, strict=True))
    if left.dim() == right.dim() == 2:
        return Oracle({"out0": torch.stack([left[:, a:b] @ right[a:b] for a, b in spans])})
    groups = range(len(spans))
    if left.dim() == 2:
        parts = [
            left[a:b] @ right[g] + (0 if bias is None else bias[g]) for g, (a, b) in zip(groups, spans, strict=True)
        ]
        axis, extent = 0, left.shape[0]
    else:
        parts = [left[g] @ right[:, a:b] for g, (a, b) in zip(groups, spans, strict=True)]
        axis, extent = 1, right.shape[1]
    rest = list(parts[0].shape)
    rest[axis] = extent - (ends[-1] if ends else 0)
    product = torch.cat([*parts, left.new_zeros(rest)], dim=axis)
    unwritten = torch.zeros(product.shape, dtype=torch.bool)
    unwritten.narrow(axis, extent - rest[axis], rest[axis]).fill_(True)
    return Oracle({"out0": product}, {"out0": unwritten} if rest[axis] else {})
