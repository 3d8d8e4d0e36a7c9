"""Where a candidate's error stands out against the reference's: cheap, vectorised, and never the last word.

Comparing whole tensors hides defects: activations of language models have channels 1,000 times larger than the rest,
and the reference's rounding error there covers anything elsewhere.  So the ratio rule is applied to groups of
comparable elements as well:

* elements of one sign and one power of two, which rounding treats alike (finds a wrong tail of a gelu);
* slices along each dimension: a channel, a row, a head (finds one wrong channel);
* single elements, against the error predicted from the reference's in its row, column, ... (finds one wrong element).

A healthy float32 kernel that sums in another order may stand out too, by luck of the reference or because PyTorch
sums in blocks.  So each screen only names suspects; :mod:`tapml.numerics.judge` confirms them against the analytic
bound.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from tapml.numerics.metrics import Residuals, rms
from tapml.numerics.tolerance import (
    ELEMENT_UNITS,
    SEPARABLE_RATIO,
    TYPICAL_ELEMENT_UNITS,
    TYPICAL_OUTPUT_UNITS,
    Limits,
)
from tapml.suite.call import Json

ENOUGH = 16
"""Fewer elements make no root mean square."""

NAMED = 3
"""How many elements, or slices, a screen names."""


@dataclass(frozen=True)
class Suspects:
    """Elements that stand out by themselves, or that stand for a group which does.

    ``elements``: flat indices.  ``where``: which group, in words.  ``rmse``, ``reference_rmse`` and ``ratio`` (how many
    times the reference's is allowed) are of the group; elements by themselves have ``rmse`` 0.
    """

    elements: tuple[int, ...]
    where: str = ""
    rmse: float = 0.0
    reference_rmse: float = 0.0
    ratio: float = 0.0


def element_floor(res: Residuals, limits: Limits) -> torch.Tensor:
    """``c*u*|y64|``, and what is allowed at 0; float64, one dimension."""
    units = limits.output_units * limits.unit + ELEMENT_UNITS * limits.accumulate
    return res.scale.mul(units).add_(limits.smallest)


def typical_units(limits: Limits) -> float:
    """Root mean square error of elementwise arithmetic and one rounding, in units of ``|y64|``."""
    return TYPICAL_OUTPUT_UNITS * limits.unit + TYPICAL_ELEMENT_UNITS * limits.accumulate


def find_suspects(res: Residuals, limits: Limits) -> list[Suspects]:
    """Every group whose error exceeds ratio rule plus elementwise floor; empty when nothing stands out."""
    error, floor = res.magnitude, element_floor(res, limits)
    found = [_whole(res, limits)]
    if bool((error > floor).any()):
        found.append(_peaks_by_magnitude(res, limits, error, floor))
        found.append(_peaks_by_prediction(res, limits, error, floor))
    found.extend(_magnitudes(res, limits))
    for dim in range(len(res.shape)):
        found.extend(_slices(res, limits, dim))
    return [s for s in found if s is not None]


def _whole(res: Residuals, limits: Limits) -> Suspects | None:
    count = res.count
    rmse, reference = rms(res.error, count), rms(res.reference_error, count)
    if count < ENOUGH or rmse <= _allowed_rms(res, limits, reference):
        return None
    ratio = limits.ratio * (1 + 4 / math.sqrt(max(1, count)))
    return Suspects(_spread(res.magnitude), "", rmse, reference, ratio)


def share_of_tolerance(res: Residuals, limits: Limits) -> Json:
    """How much of what the ratio rule allows the whole result uses up: its largest error or its root mean square,
    whichever is nearer to what is allowed."""
    peak = int(res.magnitude.argmax())
    largest = limits.peak_ratio * float(res.reference_error.abs().max())
    allowed = max(largest, float(element_floor(res, limits)[peak]))
    error = float(res.magnitude[peak])
    if res.count >= ENOUGH:
        rmse, reference = rms(res.error, res.count), rms(res.reference_error, res.count)
        allowed_rms = _allowed_rms(res, limits, reference)
        if rmse / allowed_rms > error / allowed:
            return {"of": "root mean square error", "error": rmse, "allowed": allowed_rms}
    return {"of": "largest error", "error": error, "allowed": allowed}


def _allowed_rms(res: Residuals, limits: Limits, reference: float) -> float:
    ratio = limits.ratio * (1 + 4 / math.sqrt(max(1, res.count)))
    return max(ratio * reference, typical_units(limits) * rms(res.exact, res.count)) + limits.smallest


def _spread(error: torch.Tensor) -> tuple[int, ...]:
    """The largest errors, and a few elements at random which stand for the rest."""
    generator = torch.Generator().manual_seed(0)
    some = torch.randint(error.numel(), (2 * NAMED,), generator=generator)
    return (*error.topk(min(NAMED, error.numel())).indices.tolist(), *some.tolist())


def _peaks_by_magnitude(res: Residuals, limits: Limits, error: torch.Tensor, floor: torch.Tensor) -> Suspects | None:
    bins, count = res.binades
    peak = torch.zeros(count, dtype=torch.float64)
    peak.scatter_reduce_(0, bins, res.reference_error.abs(), "amax")
    return _exceeding(error, torch.maximum(floor, limits.peak_ratio * peak[bins]))


def _peaks_by_prediction(res: Residuals, limits: Limits, error: torch.Tensor, floor: torch.Tensor) -> Suspects | None:
    whole = rms(res.reference_error, res.count)
    predicted = _predicted(res, whole)
    if predicted is None:
        return None
    own = limits.peak_ratio * res.reference_error.abs()
    return _exceeding(error, torch.maximum(torch.maximum(floor, own), SEPARABLE_RATIO * predicted))


def _predicted(res: Residuals, whole: float) -> torch.Tensor | None:
    """The reference's root mean square error at each element if it is a product of a row's and a column's share."""
    dims = [d for d, extent in enumerate(res.shape) if extent > 1 and res.exact.numel() // extent >= ENOUGH]
    if not dims or whole == 0.0 or res.compared is not None:
        return None
    square = res.reference_error.reshape(res.shape).square()
    predicted = torch.full((1,) * len(res.shape), whole, dtype=torch.float64)
    for dim in dims:
        share = square.mean(dim=[d for d in range(len(res.shape)) if d != dim], keepdim=True).sqrt_()
        predicted = predicted * (share / whole)
    return predicted.expand(res.shape).reshape(-1)


def _exceeding(error: torch.Tensor, allowed: torch.Tensor) -> Suspects | None:
    excess = error / allowed
    worst = excess.topk(min(2 * NAMED, excess.numel()))
    named = worst.indices[worst.values > 1].tolist()
    if not named:
        return None
    largest = int(error.argmax())
    return Suspects((largest, *named) if excess[largest] > 1 else tuple(named))


def _magnitudes(res: Residuals, limits: Limits) -> list[Suspects]:
    bins, count = res.binades
    weights = None if res.compared is None else res.compared.to(torch.float64)
    size = torch.bincount(bins, weights, minlength=count).to(torch.float64)

    def total(values: torch.Tensor) -> torch.Tensor:
        return torch.bincount(bins, values.square(), minlength=count)

    groups = _worst_groups(total(res.error), total(res.reference_error), total(res.exact), size, limits)
    found = []
    for group, rmse, reference, ratio in groups:
        members = (bins == group).nonzero().reshape(-1)
        magnitude = abs(float(res.exact[members[0]]))
        sign = "negative" if group % 2 else "positive"
        where = f"among {sign} values of magnitude 2^{math.frexp(magnitude)[1] - 1}" if magnitude else "among zeros"
        elements = members[list(_spread(res.error[members].abs()))].tolist()
        found.append(Suspects(tuple(elements), where, rmse, reference, ratio))
    return found


def _slices(res: Residuals, limits: Limits, dim: int) -> list[Suspects]:
    extent = res.shape[dim]
    if extent < 2 or res.exact.numel() // extent < ENOUGH:
        return []
    others = [d for d in range(len(res.shape)) if d != dim]

    def total(values: torch.Tensor) -> torch.Tensor:
        squares = values.reshape(res.shape).square()
        return squares.sum(dim=others) if others else squares

    size = torch.full((extent,), res.exact.numel() / extent, dtype=torch.float64)
    if res.compared is not None:
        size = res.compared.reshape(res.shape).to(torch.float64).sum(dim=others)
    found = []
    flat = torch.arange(res.exact.numel()).reshape(res.shape) if extent else torch.empty(0)
    groups = _worst_groups(total(res.error), total(res.reference_error), total(res.exact), size, limits)
    for group, rmse, reference, ratio in groups:
        members = flat.select(dim, group).reshape(-1)
        elements = members[list(_spread(res.error[members].abs()))].tolist()
        found.append(Suspects(tuple(elements), f"at index {group} of dimension {dim}", rmse, reference, ratio))
    return found


def _worst_groups(
    error: torch.Tensor, reference: torch.Tensor, exact: torch.Tensor, size: torch.Tensor, limits: Limits
) -> Sequence[tuple[int, float, float, float]]:
    """(group, rmse, reference's rmse, ratio allowed) of the groups that break the rule, from sums of squares.

    The fewer the elements, the more the two root mean squares scatter: the ratio allowed grows by ``4/sqrt(n)``.
    """
    error, reference, exact = ((t / size.clamp(min=1)).sqrt() for t in (error, reference, exact))
    ratio = limits.ratio * (1 + 4 / size.clamp(min=1).sqrt())
    allowed = torch.maximum(ratio * reference, typical_units(limits) * exact) + limits.smallest
    excess = torch.where(size >= ENOUGH, error / allowed, 0.0)
    worst = excess.topk(min(NAMED, excess.numel()))
    groups = worst.indices[worst.values > 1].tolist()
    return [(g, error[g].item(), reference[g].item(), ratio[g].item()) for g in groups]
