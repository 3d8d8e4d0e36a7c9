"""Defects that come of computing a call otherwise: wrong arguments, wrong reads, wrong functions, wrong accumulators.

See :mod:`tapml.numerics.planted`, which lists them next to the ones that spoil finished results.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch

from tapml.numerics.example import Named
from tapml.numerics.oracle import float64_results
from tapml.suite.call import Json, Signature, canonical_json, execute, resolve_operator

Tensors = Sequence[torch.Tensor]
Miscompute = Callable[[Signature, Tensors, Named], "Named | None"]


def _with_argument(*names: str, change: Callable[[Json], Json]) -> Miscompute:
    """The call with one argument changed, the first of ``names`` that the schema has; ``change`` may return None:
    no.
    """

    def spoil(signature: Signature, tensors: Tensors, results: Named) -> Named | None:
        schema = resolve_operator(signature.operator)._schema.arguments
        args, kwargs = signature.template
        for place, argument in enumerate(schema):
            if argument.name not in names:
                continue
            default = argument.default_value if argument.has_default_value() else None
            before = args[place] if place < len(args) else kwargs.get(argument.name, default)
            after = change(before)
            if after is None or after == before:
                continue
            if place < len(args):
                args[place] = after
            else:
                kwargs[argument.name] = after
            return execute(_replaced(signature, [args, kwargs]), tensors)
        return None

    return spoil


def _replaced(signature: Signature, template: Json, operator: str = "") -> Signature:
    arguments = canonical_json(template)
    return Signature(operator or signature.operator, arguments, signature.tensors, signature.results)


def _number(change: Callable[[float], float | None]) -> Callable[[Json], Json]:
    def of(value: Json) -> Json:
        return change(value) if isinstance(value, int | float) and not isinstance(value, bool) else None

    return of


def _other_axis(value: Json) -> Json:
    if isinstance(value, int) and not isinstance(value, bool):
        return value - 1 if value != 0 else 1
    if isinstance(value, list) and len(value) == 1:
        return [_other_axis(value[0])]
    return None


def _with_tensors(change: Callable[[Signature, list[torch.Tensor]], list[torch.Tensor] | None]) -> Miscompute:
    """The call on other tensors; ``change`` gets a list that it may alter (not the tensors in it)."""

    def spoil(signature: Signature, tensors: Tensors, results: Named) -> Named | None:
        changed = change(signature, list(tensors))
        return None if changed is None else execute(signature, changed)

    return spoil


def _swapped_operands(signature: Signature, tensors: list[torch.Tensor]) -> list[torch.Tensor] | None:
    if len(tensors) < 2 or tensors[0].shape != tensors[1].shape or tensors[0].dtype != tensors[1].dtype:
        return None
    return [tensors[1], tensors[0], *tensors[2:]]


def _without_bias(signature: Signature, tensors: list[torch.Tensor]) -> list[torch.Tensor] | None:
    vectors = [i for i, t in enumerate(tensors) if i > 0 and t.dim() == 1 and t.is_floating_point()]
    if signature.operator.startswith("aten.addmm"):
        vectors = [0]
    if not vectors:
        return None
    tensors[vectors[-1]] = torch.zeros_like(tensors[vectors[-1]])
    return tensors


def _transposed_weight(signature: Signature, tensors: list[torch.Tensor]) -> list[torch.Tensor] | None:
    for i, tensor in reversed(list(enumerate(tensors))):
        if tensor.dim() >= 2 and tensor.shape[-1] == tensor.shape[-2] > 1 and tensor.is_floating_point():
            tensors[i] = tensor.transpose(-1, -2)
            return tensors
    return None


def _last_term(signature: Signature, tensors: list[torch.Tensor]) -> list[torch.Tensor] | None:
    first = tensors[0] if tensors else None
    if first is None or not first.is_floating_point() or first.dim() == 0 or first.shape[-1] < 2:
        return None
    tensors[0] = first.clone()
    tensors[0][..., -1] = 0
    return tensors


def _strides_ignored(signature: Signature, tensors: list[torch.Tensor]) -> list[torch.Tensor] | None:
    changed = False
    for i, tensor in enumerate(tensors):
        if tensor.is_contiguous() or tensor.numel() < 2:
            continue
        storage = torch.empty(0, dtype=tensor.dtype).set_(tensor.untyped_storage())[tensor.storage_offset() :]
        if storage.numel() >= tensor.numel():
            tensors[i] = storage[: tensor.numel()].reshape(tensor.shape)
            changed = True
    return tensors if changed else None


def _index_off_by_one(signature: Signature, tensors: list[torch.Tensor]) -> list[torch.Tensor] | None:
    changed = False
    for i, tensor in enumerate(tensors):
        if i > 0 and tensor.dtype in (torch.int64, torch.int32) and tensor.numel():
            tensors[i] = torch.where(tensor == tensor.max(), tensor, tensor + 1)
            changed = True
    return tensors if changed else None


def _mask_off_by_one(signature: Signature, tensors: list[torch.Tensor]) -> list[torch.Tensor] | None:
    for i, tensor in enumerate(tensors):
        mask = tensor.dtype == torch.bool or (tensor.is_floating_point() and bool(torch.isinf(tensor).any()))
        if mask and tensor.dim():
            tensors[i] = tensor.roll(1, -1)
            return tensors
    return None


def _batch_ignored(signature: Signature, tensors: list[torch.Tensor]) -> list[torch.Tensor] | None:
    first = tensors[0] if tensors else None
    if first is None or first.dim() < 3 or first.shape[0] < 2:
        return None
    tensors[0] = first[:1].expand_as(first)
    return tensors


def _coarse_inputs(signature: Signature, tensors: list[torch.Tensor]) -> list[torch.Tensor] | None:
    dtypes = {torch.float32: torch.bfloat16, torch.float16: torch.float8_e4m3fn, torch.bfloat16: torch.float8_e4m3fn}
    if not tensors or tensors[0].dtype not in dtypes:
        return None
    coarse = tensors[0].clamp(-400, 400).to(dtypes[tensors[0].dtype]).to(tensors[0].dtype)
    tensors[0] = torch.where(torch.isfinite(tensors[0]) & (tensors[0].abs() < 400), coarse, tensors[0])
    return tensors


def _narrow_accumulator(signature: Signature, tensors: Tensors, results: Named) -> Named | None:
    """Operators linear in their first tensor, summed in 64 portions with a 16-bit running sum."""
    (name, result), first = results[0], tensors[0]
    if not result.is_floating_point() or not first.is_floating_point() or first.dim() == 0 or first.shape[-1] < 128:
        return None
    narrow = torch.float16 if result.dtype == torch.float32 else result.dtype
    truth = float64_results(signature, tensors).results[name]
    running, exact = torch.zeros_like(result, dtype=narrow), torch.zeros_like(truth)
    portions = torch.zeros_like(truth)
    owner = torch.arange(first.shape[-1]) * 64 // first.shape[-1]
    for portion in range(64):
        part = [torch.where(owner == portion, first, torch.zeros_like(first)), *tensors[1:]]
        value = float64_results(signature, part).results[name]
        exact += value
        portions += value != 0
        running = (running.double() + value).to(narrow)
    if float(portions.mean()) < 8 or not torch.allclose(exact, truth, rtol=1e-9, atol=1e-9 * float(truth.abs().max())):
        return None
    return [(name, running.to(result.dtype)), *results[1:]]


def truncated_rounding(signature: Signature, tensors: Tensors, results: Named) -> Named | None:
    """Exact results, rounded toward zero to their 16-bit dtype."""
    name, result = results[0]
    if result.dtype not in (torch.float16, torch.bfloat16) or result.numel() < 256:
        return None
    exact = float64_results(signature, tensors).results[name]
    wrong = exact.to(result.dtype).contiguous()
    over = (wrong.double().abs() > exact.abs()) & torch.isfinite(exact) & torch.isfinite(wrong)
    wrong.view(torch.int16)[over] -= 1
    return [(name, wrong), *results[1:]]


_CONFUSED: dict[str, str] = {
    "aten.silu.default": "aten.relu.default",
    "aten.gelu.default": "aten.silu.default",
    "aten.remainder.Scalar": "aten.fmod.Scalar",
    "aten.remainder.Tensor": "aten.fmod.Tensor",
    "aten.fmod.Scalar": "aten.remainder.Scalar",
    "aten.fmod.Tensor": "aten.remainder.Tensor",
    "aten.floor.default": "aten.trunc.default",
    "aten.trunc.default": "aten.floor.default",
    "aten.ceil.default": "aten.round.default",
    "aten.round.default": "aten.floor.default",
    "aten.maximum.default": "aten.fmax.default",
    "aten.minimum.default": "aten.fmin.default",
    "aten.sigmoid.default": "aten.hardsigmoid.default",
    "aten.tanh.default": "aten.hardtanh.default",
    "aten.exp.default": "aten.exp2.default",
    "aten.log.default": "aten.log2.default",
    "aten.amax.default": "aten.amin.default",
    "aten.argmax.default": "aten.argmin.default",
    "aten.sin.default": "aten.cos.default",
    "aten.rsqrt.default": "aten.reciprocal.default",
    "aten.gt.Scalar": "aten.ge.Scalar",
    "aten.le.Tensor": "aten.lt.Tensor",
}


def _another_function(signature: Signature, tensors: Tensors, results: Named) -> Named | None:
    twin = _CONFUSED.get(signature.operator)
    return None if twin is None else execute(_replaced(signature, signature.template, twin), tensors)


def _expm1_log1p(signature: Signature, tensors: Tensors, results: Named) -> Named | None:
    x = tensors[0]
    if signature.operator == "aten.expm1.default":
        return [(results[0][0], torch.exp(x) - 1)]
    if signature.operator == "aten.log1p.default":
        return [(results[0][0], torch.log(1 + x))]
    return None


def _softmax_without_maximum(signature: Signature, tensors: Tensors, results: Named) -> Named | None:
    """Only where exponentials of the inputs overflow: elsewhere it is as good as any other softmax."""
    if signature.operator not in ("aten._softmax.default", "aten.softmax.int"):
        return None
    wide = tensors[0].float()
    if float(wide.max()) <= math.log(torch.finfo(torch.float32).max):
        return None
    exponential = torch.exp(wide)
    dim = signature.template[0][1]
    return [(results[0][0], (exponential / exponential.sum(dim, keepdim=True)).to(results[0][1].dtype))]


def _cancelling_variance(signature: Signature, tensors: Tensors, results: Named) -> Named | None:
    """E[x^2] - E[x]^2 in float32, only where the mean dwarfs the deviation: elsewhere it is as good as two passes."""
    args, _ = signature.template
    x = tensors[0].float()
    if signature.operator == "aten.native_layer_norm.default" and len(args[1]) == 1:
        mean, square = x.mean(-1, keepdim=True), (x * x).mean(-1, keepdim=True)
        if not bool((mean.square() > 1e3 * x.var(-1, keepdim=True)).any()):
            return None
        rstd = torch.rsqrt(square - mean * mean + args[4])
        value = (x - mean) * rstd
        for place, tensor in ((2, torch.mul), (3, torch.add)):
            if args[place] is not None:
                value = tensor(value, tensors[args[place]["tensor"]].float())
        return [(results[0][0], value.to(results[0][1].dtype)), *results[1:]]
    return None


MISCOMPUTED: tuple[tuple[str, str, Miscompute], ...] = (
    ("swapped operands", "first and second tensor exchanged", _with_tensors(_swapped_operands)),
    ("missing bias", "the last vector argument read as 0", _with_tensors(_without_bias)),
    ("transposed weight", "a square matrix read in the wrong order", _with_tensors(_transposed_weight)),
    ("last term", "the last element of each row of the first tensor read as 0", _with_tensors(_last_term)),
    ("strides ignored", "a non-contiguous argument read as it lies in memory", _with_tensors(_strides_ignored)),
    ("index off by one", "integer arguments plus 1", _with_tensors(_index_off_by_one)),
    ("mask off by one", "a mask rotated by one", _with_tensors(_mask_off_by_one)),
    ("batch ignored", "every item of the batch computed from the first", _with_tensors(_batch_ignored)),
    ("coarse inputs", "the first tensor at lower precision", _with_tensors(_coarse_inputs)),
    ("narrow accumulator", "a sum of 64 portions kept in 16 bits", _narrow_accumulator),
    ("wrong axis", "the neighbouring axis", _with_argument("dim", change=_other_axis)),
    ("epsilon times 10", "epsilon ten times too large", _with_argument("eps", change=_number(lambda v: v * 10))),
    ("no epsilon", "epsilon left out", _with_argument("eps", change=_number(lambda v: 0.0))),
    ("wrong correction", "divisor N instead of N - 1", _with_argument("correction", change=lambda v: 0 if v else 1)),
    ("wrong slope", "negative slope doubled", _with_argument("negative_slope", change=_number(lambda v: 2 * v))),
    (
        "tanh for erf",
        "the other approximation",
        _with_argument("approximate", change=lambda v: "none" if v == "tanh" else "tanh"),
    ),
    ("no causality", "causal mask left out, or put in", _with_argument("is_causal", change=lambda v: not v)),
    ("attention scale", "queries not scaled", _with_argument("scale", change=lambda v: 1.0)),
    ("alpha ignored", "alpha read as 1", _with_argument("alpha", change=_number(lambda v: 1))),
    ("another function", "a function of similar name or shape", _another_function),
    ("cancelling formula", "exp(x) - 1 and log(1 + x)", _expm1_log1p),
    ("no maximum", "softmax without subtracting the maximum", _softmax_without_maximum),
    ("cancelling variance", "the mean square minus the squared mean", _cancelling_variance),
)
"""Name, description, and how to compute it wrongly."""
