"""Defects to plant: what wrong kernels produce, made from a right call.

A judge that lets healthy kernels pass is worth nothing unless it also catches these.  ``benchmarks/calibrate.py``
plants them in made-up calls; they can be planted in the calls of a carved suite just as well::

    for planted in PLANTED:
        wrong = planted(signature, tensors, results)
        if wrong is not None:
            assert not judge(signature, tensors, results, wrong).passed

Defects that spoil finished results are here, those that need the call computed otherwise in
:mod:`tapml.numerics.miscomputed`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from tapml.errors import TapmlError
from tapml.numerics.example import Named
from tapml.numerics.miscomputed import MISCOMPUTED, truncated_rounding
from tapml.suite.call import Signature

Spoil = Callable[[Signature, Sequence[torch.Tensor], Named], "Named | None"]


@dataclass(frozen=True)
class Planted:
    """One kind of defect.  Calling it gives wrong results in the order of ``results``, or None where it does not apply
    (also when the outcome happens to be bitwise right).  Nothing passed in is mutated."""

    name: str
    what: str
    spoil: Spoil

    def __call__(self, signature: Signature, tensors: Sequence[torch.Tensor], results: Named) -> Named | None:
        try:
            with torch.no_grad():
                wrong = self.spoil(signature, tensors, results)
        except (RuntimeError, NotImplementedError, TypeError, ValueError, IndexError, TapmlError):
            return None
        if wrong is None or [(n, t.shape, t.dtype) for n, t in wrong] != [(n, t.shape, t.dtype) for n, t in results]:
            return None
        return None if all(_same(a, b) for (_, a), (_, b) in zip(wrong, results, strict=True)) else wrong


def _same(a: torch.Tensor, b: torch.Tensor) -> bool:
    different = a != b
    if a.dtype.is_floating_point or a.dtype.is_complex:
        different &= ~(torch.isnan(a) & torch.isnan(b))
    return not bool(different.any())


def _main(results: Named) -> torch.Tensor | None:
    """A contiguous copy of the first result, which most defects spoil, if it is floating and has elements."""
    tensor = results[0][1]
    if not tensor.is_floating_point() or tensor.numel() == 0:
        return None
    return tensor.clone(memory_format=torch.contiguous_format)


def _on_first(change: Callable[[torch.Tensor], torch.Tensor | None]) -> Spoil:
    """A defect that depends on the first result alone."""

    def spoil(signature: Signature, tensors: Sequence[torch.Tensor], results: Named) -> Named | None:
        tensor = _main(results)
        wrong = None if tensor is None else change(tensor)
        return None if wrong is None else [(results[0][0], wrong), *results[1:]]

    return spoil


def _typical_element(tensor: torch.Tensor) -> int:
    """Flat index of the finite element of median magnitude: one nobody would notice in a maximum."""
    magnitude = tensor.reshape(-1).abs().double()
    magnitude = torch.where(torch.isfinite(magnitude) & (magnitude > 0), magnitude, torch.nan)
    if bool(torch.isnan(magnitude).all()):
        return 0
    return int((magnitude - magnitude.nanmedian()).abs().nan_to_num(torch.inf).argmin())


def _one_element(factor: float) -> Callable[[torch.Tensor], torch.Tensor]:
    def change(tensor: torch.Tensor) -> torch.Tensor:
        tensor.view(-1)[_typical_element(tensor)] *= factor
        return tensor

    return change


def _one_channel(tensor: torch.Tensor) -> torch.Tensor | None:
    if tensor.dim() < 2 or tensor.shape[-1] < 4 or tensor.numel() // tensor.shape[-1] < 4:
        return None
    scale = tensor.reshape(-1, tensor.shape[-1]).double().abs().mean(0)
    channel = int((scale - scale.median()).abs().argmin())
    tensor[..., channel] = (tensor[..., channel].double() * 1.02).to(tensor.dtype)
    return tensor


def _tail(tensor: torch.Tensor) -> torch.Tensor:
    count = max(1, tensor.numel() // 16)
    tensor.view(-1)[-count:] = 0
    return tensor


def _rolled(tensor: torch.Tensor) -> torch.Tensor | None:
    return tensor.roll(1, -1) if tensor.dim() else None


def _repeated_row(tensor: torch.Tensor) -> torch.Tensor | None:
    if tensor.dim() < 2 or tensor.shape[-2] < 2:
        return None
    tensor[..., -1, :] = tensor[..., -2, :].clone()
    return tensor


def _wrong_order(tensor: torch.Tensor) -> torch.Tensor | None:
    return tensor.transpose(-1, -2).reshape(tensor.shape) if tensor.dim() >= 2 else None


def _stale(tensor: torch.Tensor) -> torch.Tensor | None:
    flat = tensor.view(-1)
    if flat.numel() < 8:
        return None
    quarter = flat.numel() // 4
    flat[-quarter:] = flat[:quarter].clone()
    return tensor


def _shifted(tensor: torch.Tensor) -> torch.Tensor | None:
    finite = tensor[torch.isfinite(tensor)].double()
    if not finite.numel():
        return None
    return (tensor.double() + 0.01 * finite.square().mean().sqrt()).to(tensor.dtype)


def _approximate(tensor: torch.Tensor) -> torch.Tensor:
    wave = torch.sin(torch.arange(tensor.numel(), dtype=torch.float64)).reshape(tensor.shape)
    return (tensor.double() * (1 + 1e-3 * wave)).to(tensor.dtype)


def _scaled(tensor: torch.Tensor) -> torch.Tensor:
    return (tensor.double() * 1.01).to(tensor.dtype)


def _low_precision(tensor: torch.Tensor) -> torch.Tensor | None:
    if tensor.dtype == torch.bfloat16:
        return None
    finite = torch.isfinite(tensor)
    return torch.where(finite, tensor.to(torch.bfloat16).to(tensor.dtype), tensor)


def _nan_dropped(tensor: torch.Tensor) -> torch.Tensor | None:
    return (
        torch.where(torch.isnan(tensor), torch.zeros_like(tensor), tensor) if bool(torch.isnan(tensor).any()) else None
    )


def _infinity_clipped(tensor: torch.Tensor) -> torch.Tensor | None:
    return tensor.clamp(-torch.finfo(tensor.dtype).max, torch.finfo(tensor.dtype).max)


def _nan_element(tensor: torch.Tensor) -> torch.Tensor:
    tensor.view(-1)[_typical_element(tensor)] = torch.nan
    return tensor


def _swapped_results(signature: Signature, tensors: Sequence[torch.Tensor], results: Named) -> Named | None:
    for i in range(len(results)):
        for j in range(i + 1, len(results)):
            (one, a), (other, b) = results[i], results[j]
            if a.shape == b.shape and a.dtype == b.dtype:
                swapped = list(results)
                swapped[i], swapped[j] = (one, b), (other, a)
                return swapped
    return None


def _integer_off_by_one(signature: Signature, tensors: Sequence[torch.Tensor], results: Named) -> Named | None:
    changed = [
        (name, t + 1 if not t.is_floating_point() and not t.is_complex() and t.dtype != torch.bool else t)
        for name, t in results
    ]
    return changed


def _one_bool(signature: Signature, tensors: Sequence[torch.Tensor], results: Named) -> Named | None:
    name, tensor = results[0]
    if tensor.dtype != torch.bool or tensor.numel() == 0:
        return None
    wrong = tensor.clone(memory_format=torch.contiguous_format)
    wrong.view(-1)[-1] ^= True
    return [(name, wrong), *results[1:]]


SPOILED: tuple[Planted, ...] = (
    Planted("one element", "one typical element 5% off", _on_first(_one_element(1.05))),
    Planted("one sign", "one typical element of the other sign", _on_first(_one_element(-1.0))),
    Planted("one zero", "one typical element never written", _on_first(_one_element(0.0))),
    Planted("one nan", "one typical element is NaN", _on_first(_nan_element)),
    Planted("one channel", "one typical channel 2% off", _on_first(_one_channel)),
    Planted("truncated tail", "the last sixteenth never written", _on_first(_tail)),
    Planted("off by one", "every row rotated by one element", _on_first(_rolled)),
    Planted("repeated row", "the last row is the one before", _on_first(_repeated_row)),
    Planted("transposed result", "the last two axes in the wrong order", _on_first(_wrong_order)),
    Planted("stale buffer", "the last quarter holds what was computed before", _on_first(_stale)),
    Planted("missing scale", "everything times 1.01", _on_first(_scaled)),
    Planted("shifted", "everything plus 1% of the root mean square", _on_first(_shifted)),
    Planted("approximated", "relative errors up to 1e-3", _on_first(_approximate)),
    Planted("low precision", "the result passed through bfloat16", _on_first(_low_precision)),
    Planted("dropped nan", "NaN replaced by 0", _on_first(_nan_dropped)),
    Planted("clipped infinity", "infinity replaced by the largest value", _on_first(_infinity_clipped)),
    Planted("swapped results", "two results of equal shape swapped", _swapped_results),
    Planted("integer off by one", "integer results plus 1", _integer_off_by_one),
    Planted("one bool", "one bool inverted", _one_bool),
    Planted("truncated rounding", "rounding toward zero instead of to nearest", truncated_rounding),
)

PLANTED: tuple[Planted, ...] = (*SPOILED, *(Planted(name, what, spoil) for name, what, spoil in MISCOMPUTED))
"""Every defect there is."""
