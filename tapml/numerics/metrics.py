"""Errors of a candidate and of the reference against float64, and every figure derived from them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import torch

from tapml.numerics.tolerance import Limits
from tapml.suite.call import Json

SAMPLE = 1 << 20
"""Above so many elements, the figures that gate nothing (ulp, cosine, bias) are taken from a regular sample."""


WORST = 4
"""How many of the worst elements and channels are named."""

HISTOGRAM_BINS = 24

HISTOGRAM_SAMPLE = 1 << 14
"""Elements that a histogram is made from; more are sampled."""

_WIDEST = 1e-12
"""The scale of a histogram is no smaller share of its largest value than this."""


@dataclass(frozen=True)
class Residuals:
    """One result of candidate and reference next to the truth, flattened, in float64.

    ``exact``, ``candidate``, ``error`` (candidate - exact) and ``reference_error``: float64, one dimension, C order of
    ``shape`` (complex results have a trailing dimension of 2).  Elements that are not compared (infinite, NaN,
    unwritten) hold 0 in all four, and ``compared`` is the mask of the others, or None when that is all of them.
    """

    shape: tuple[int, ...]
    exact: torch.Tensor
    candidate: torch.Tensor
    error: torch.Tensor
    reference_error: torch.Tensor
    compared: torch.Tensor | None

    @cached_property
    def magnitude(self) -> torch.Tensor:
        """``abs(error)``."""
        return self.error.abs()

    @cached_property
    def scale(self) -> torch.Tensor:
        """``abs(exact)``."""
        return self.exact.abs()

    @cached_property
    def binades(self) -> tuple[torch.Tensor, int]:
        """A group number (int64) for each element, by power of two and sign of the exact value, and their count."""
        exponent = torch.frexp(self.exact).exponent
        groups = exponent.sub_(exponent.min()).to(torch.int64).mul_(2).add_(self.exact < 0)
        return groups, int(groups.max()) + 1

    @cached_property
    def count(self) -> int:
        """How many elements are compared."""
        return self.exact.numel() if self.compared is None else int(self.compared.sum())

    def position(self, flat: int) -> tuple[int, ...]:
        """Flat index -> index in ``shape``."""
        index = []
        for extent in reversed(self.shape):
            flat, last = divmod(flat, extent)
            index.append(last)
        return tuple(reversed(index))


def residuals(
    exact: torch.Tensor, candidate: torch.Tensor, reference: torch.Tensor, compared: torch.Tensor | None
) -> Residuals:
    """Compare three real float64 tensors of one shape; ``compared`` is a bool tensor of that shape, or None for all.

    The reference's error is taken to be 0 where the reference is not finite.
    """
    y64, y, ref = (t.reshape(-1) for t in (exact, candidate, reference))
    mask = None if compared is None else compared.reshape(-1)
    if mask is not None:
        y64, y, ref = (torch.where(mask, t, 0.0) for t in (y64, y, ref))
        ref = torch.where(torch.isfinite(ref), ref, y64)
    return Residuals(tuple(exact.shape), y64, y, y - y64, ref - y64, mask)


def rms(values: torch.Tensor, count: int) -> float:
    """Root mean square of ``values`` over ``count`` elements (those left out are 0), safe from over- and underflow."""
    if count == 0 or values.numel() == 0:
        return 0.0
    norm = float(torch.linalg.vector_norm(values))
    if 1e-140 < norm < 1e140:
        return norm / math.sqrt(count)
    peak = float(values.abs().max())
    if peak == 0.0 or not math.isfinite(peak):
        return peak
    return peak * float(torch.linalg.vector_norm(values / peak)) / math.sqrt(count)


def ulp_distance(candidate: torch.Tensor, exact: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """How many representable values of ``dtype`` lie between two tensors of finite values; float64 (exact to 2^53)."""
    a, b = (_ordered_bits(t.to(dtype)) for t in (candidate, exact))
    return (a - b).abs()


def _ordered_bits(values: torch.Tensor) -> torch.Tensor:
    """Floating values -> numbers (float64) in the same order, one apart for neighbours; +0 and -0 both map to 0."""
    integer = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[values.element_size()]
    bits = values.view(integer)
    magnitude = bits & torch.iinfo(integer).max
    return torch.where(bits < 0, -magnitude, magnitude).to(torch.float64)


def worst_channels(res: Residuals, most: int = WORST) -> list[Json]:
    """The slices along the last dimension and dimension 1 with the largest root mean square errors, worst first."""
    dims = sorted({1, len(res.shape) - 1}) if len(res.shape) >= 2 else []
    found: list[Json] = []
    for dim in dims:
        others = [d for d in range(len(res.shape)) if d != dim]
        mean, reference = (
            t.reshape(res.shape).square().mean(dim=others).sqrt() for t in (res.error, res.reference_error)
        )
        for channel in mean.topk(min(most, mean.numel())).indices.tolist():
            found.append(
                {
                    "dim": dim,
                    "index": channel,
                    "rmse": mean[channel].item(),
                    "rmse_reference": reference[channel].item(),
                }
            )
    return sorted(found, key=lambda channel: -channel["rmse"])[:most]


def worst_channel(res: Residuals) -> Json:
    """The first of :func:`worst_channels`, None for results of less than two dimensions."""
    return next(iter(worst_channels(res, 1)), None)


def figures(res: Residuals, limits: Limits) -> dict[str, Json]:
    """Everything point 4 of ``docs/numerics.md`` names.  Figures that do not exist (no error: no SQNR) are None."""
    count = res.count
    found: dict[str, Json] = {"elements": math.prod(res.shape), "compared": count}
    if count == 0:
        return found
    magnitude, scale = res.magnitude, res.scale
    peak = int(magnitude.argmax())
    found["max_abs"] = _at(res, peak, magnitude[peak].item())
    relative = magnitude / scale.clamp(min=limits.smallest)
    most = int(relative.argmax())
    found["max_rel"] = _at(res, most, relative[most].item())
    found["smallest_atol"] = magnitude[peak].item()
    found["smallest_rtol"] = _finite(relative[most].item()) if not _wrong_zero(magnitude, scale) else None
    found["rmse"], found["rmse_reference"] = rms(res.error, count), rms(res.reference_error, count)
    found["max_abs_reference"] = _peak(res.reference_error)
    found["headroom"] = max(_peak(res.exact), _peak(res.candidate)) / limits.largest
    channels = worst_channels(res)
    found["worst_channel"] = channels[0] if channels else None
    found["worst_channels"] = channels
    largest = magnitude.topk(min(WORST, magnitude.numel()))
    found["worst_elements"] = [
        _at(res, int(flat), error)
        for flat, error in zip(largest.indices.tolist(), largest.values.tolist(), strict=True)
        if error > 0
    ]
    step = -(-res.exact.numel() // SAMPLE)
    exact, candidate, error = (t[::step] for t in (res.exact, res.candidate, res.error))
    if step > 1:
        found["sampled_every"] = step
        count = exact.numel() if res.compared is None else int(res.compared[::step].sum())
    ulp = ulp_distance(candidate, exact, limits.dtype)
    found["ulp"] = ulp.max().item()
    signal, noise, own = rms(exact, count), rms(error, count), rms(candidate, count)
    found["sqnr_db"] = _finite(20 * math.log10(signal / noise)) if signal > 0 and noise > 0 else None
    found["cosine"] = None
    if 0 < signal < math.inf and 0 < own < math.inf:
        found["cosine"] = float((exact / signal) @ (candidate / own)) / max(count, 1)
    found["bias"] = _finite(float(error.sum()) / max(count, 1))
    return found


def histogram(reference: torch.Tensor, candidate: torch.Tensor) -> Json:
    """How the finite values of two real float64 tensors of one shape are spread, in common bins.

    Edges are ``scale * sinh(e)`` for :data:`HISTOGRAM_BINS` + 1 equidistant ``e`` from ``asinh(low / scale)`` to
    ``asinh(high / scale)``: nearly linear up to ``scale`` (the mean absolute value of the reference), logarithmic
    beyond, so that outlying channels do not squeeze all else into one bin.  ``reference`` and ``candidate``: counts;
    ``nonfinite``: how many of each are in no bin.  ``sampled_every``: distance of the elements that were taken.
    """
    step = _stride(reference.numel())
    taken = [t.reshape(-1)[::step] for t in (reference, candidate)]
    finite = [t[torch.isfinite(t)] for t in taken]
    found: dict[str, Json] = {"nonfinite": [t.numel() - f.numel() for t, f in zip(taken, finite, strict=True)]}
    if step > 1:
        found["sampled_every"] = step
    bounds = [bound.item() for f in finite if f.numel() for bound in torch.aminmax(f)]
    if not bounds:
        return {**found, "low": 0.0, "high": 0.0, "scale": 1.0, "reference": [], "candidate": []}
    scale = float((finite[0] if finite[0].numel() else finite[1]).abs().clamp(max=1e300).mean())
    low, high = min(bounds), max(bounds)
    scale = max(scale, abs(low) * _WIDEST, abs(high) * _WIDEST) or 1.0
    begin, end = math.asinh(low / scale), math.asinh(high / scale)
    width = (end - begin) / HISTOGRAM_BINS
    edges = torch.tensor([scale * math.sinh(begin + width * i) for i in range(1, HISTOGRAM_BINS)], dtype=torch.float64)
    counts = [torch.bincount(torch.bucketize(f, edges, right=True), minlength=HISTOGRAM_BINS).tolist() for f in finite]
    return {**found, "low": low, "high": high, "scale": scale, "reference": counts[0], "candidate": counts[1]}


def _stride(count: int) -> int:
    """A step through so many elements that takes at most :data:`HISTOGRAM_SAMPLE` and goes through all channels."""
    step = -(-count // HISTOGRAM_SAMPLE)
    while step > 1 and math.gcd(step, count) > 1:
        step += 1
    return max(1, step)


def _peak(values: torch.Tensor) -> float:
    low, high = torch.aminmax(values)
    return max(-low.item(), high.item())


def _wrong_zero(magnitude: torch.Tensor, scale: torch.Tensor) -> bool:
    """Whether an element that should be 0 is not, so that no relative tolerance would do."""
    return bool(((scale == 0) & (magnitude > 0)).any())


def _at(res: Residuals, flat: int, value: float) -> Json:
    return {
        "error": value,
        "index": list(res.position(flat)),
        "candidate": res.candidate[flat].item(),
        "float64": res.exact[flat].item(),
    }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
