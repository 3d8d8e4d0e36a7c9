"""Whether the errors of a candidate are rounding: suspects are confirmed against the analytic bound."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch

from tapml.numerics.metrics import Residuals, rms
from tapml.numerics.screens import Suspects, element_floor, find_suspects, share_of_tolerance
from tapml.numerics.sensitivity import Noise, RoundingModel
from tapml.numerics.tolerance import BIAS_RATIO, BIAS_UNITS, Limits
from tapml.suite.call import Json, dtype_name

MOST_GRADIENTS = 12
"""No more elements than this are looked at closely; fewer when the tensors are large."""

AFFORDABLE = 1 << 25
"""Elements of the result times gradients: what looking closely may cost."""


@dataclass(frozen=True)
class Finding:
    """The outcome for one floating result: ``code`` and ``explanation`` as in a verdict, and the floors that
    decided.
    """

    passed: bool
    code: str
    explanation: str
    figures: dict[str, Json] = field(default_factory=dict)


def judge_errors(res: Residuals, model: RoundingModel, limits: Limits) -> Finding:
    """Ratio rule, then analytic bound where that fails, then one-sidedness; see ``docs/numerics.md``."""
    if res.count == 0:
        return Finding(True, "exact", "no finite element to compare; NaN and infinities stand where they should")
    if torch.equal(res.error, res.reference_error):
        return Finding(True, "exact", "equal to the recorded result")
    suspects = find_suspects(res, limits)
    finding = _confirm(suspects, res, model, limits)
    if not finding.passed:
        return finding
    return _biased(res, limits) or finding


def _confirm(suspects: list[Suspects], res: Residuals, model: RoundingModel, limits: Limits) -> Finding:
    name = dtype_name(limits.dtype)
    times = _times(res)
    if not suspects:
        floor = element_floor(res, limits)
        peak = int(res.magnitude.argmax())
        text = f"error is {times} against float64: rounding noise of {name}"
        detail = {"floor_max": floor[peak].item(), "tolerance": share_of_tolerance(res, limits)}
        return Finding(True, "within-reference-error", text, detail)
    known: dict[int, Noise] = {}
    budget = max(4, min(MOST_GRADIENTS, AFFORDABLE // max(1, res.exact.numel())))
    for flat in _in_turns([s for s in suspects if not s.rmse])[:budget]:
        error = abs(float(res.error[flat]))
        known[flat] = model.noise(flat, error=error)
        if error > known[flat].bound:
            return _too_large(res, flat, known[flat], limits)
    for flat in _in_turns([s for s in suspects if s.rmse])[:budget]:
        known[flat] = known.get(flat) or model.noise(flat, error=abs(float(res.error[flat])))
    used: list[dict[str, Json]] = [
        {"of": "error of one element", "error": abs(float(res.error[f])), "allowed": n.bound} for f, n in known.items()
    ]
    for group in suspects:
        sample = [known[flat].typical for flat in group.elements if flat in known]
        if not sample or group.rmse == 0.0:
            continue
        floor_rmse = math.sqrt(sum(s * s for s in sample) / len(sample))
        allowed = max(group.ratio * group.reference_rmse, floor_rmse)
        if group.rmse > allowed:
            return _too_large_together(group, floor_rmse)
        used.append({"of": f"root mean square error {group.where}".strip(), "error": group.rmse, "allowed": allowed})
    terms = max(n.terms for n in known.values())
    nearest = max(used, key=lambda u: u["error"] / u["allowed"] if u["allowed"] else 0.0)
    detail = {"floor_max": max(n.bound for n in known.values()), "terms": terms, "tolerance": nearest}
    text = f"error is {times} against float64, and no larger than rounding can be in {name} with {terms} terms"
    return Finding(True, "within-floor", text, detail)


def _in_turns(suspects: list[Suspects]) -> list[int]:
    """The first element of every group, then the second of every group, and so on, without repetition."""
    longest = max((len(s.elements) for s in suspects), default=0)
    turns = [s.elements[i] for i in range(longest) for s in suspects if i < len(s.elements)]
    return list(dict.fromkeys(turns))


def _times(res: Residuals) -> str:
    rmse, reference = rms(res.error, res.count), rms(res.reference_error, res.count)
    if reference == 0.0:
        return f"{rmse:.2g} (the reference is exact)" if rmse else "zero"
    return f"{rmse / reference:.2g}x the reference's own"


def _too_large(res: Residuals, flat: int, noise: Noise, limits: Limits) -> Finding:
    error = abs(float(res.error[flat]))
    peak, largest = float(res.magnitude.max()), float(res.reference_error.abs().max())
    word = "max error" if error == peak else "error"
    if error > 2 * limits.peak_ratio * largest > 0:
        scale = f"{error / largest:.2g} times the reference's own"
    elif largest == 0:
        scale = "where the reference is exact"
    else:
        scale = f"{error / noise.bound:.2g} times what rounding explains there"
    text = (
        f"{word} {error:.3g} at {list(res.position(flat))} (candidate {res.candidate[flat].item():.6g}, float64 "
        f"{res.exact[flat].item():.6g}), {scale}: a defect, not rounding"
    )
    used = {"of": "error of one element", "error": error, "allowed": noise.bound}
    return Finding(False, "error-too-large", text, {"floor_max": noise.bound, "terms": noise.terms, "tolerance": used})


def _too_large_together(group: Suspects, floor_rmse: float) -> Finding:
    where = f" {group.where}" if group.where else ""
    compared = "while the reference is exact"
    if group.reference_rmse:
        compared = f"{group.rmse / group.reference_rmse:.2g} times the reference's own"
    text = (
        f"root mean square error{where} is {group.rmse:.3g}, {compared}, and rounding explains {floor_rmse:.3g}: "
        "a defect, not rounding"
    )
    allowed = max(group.ratio * group.reference_rmse, floor_rmse)
    used = {"of": f"root mean square error {group.where}".strip(), "error": group.rmse, "allowed": allowed}
    return Finding(False, "error-too-large", text, {"floor_rmse": floor_rmse, "tolerance": used})


def _biased(res: Residuals, limits: Limits) -> Finding | None:
    """Truncation instead of rounding to nearest: only 16-bit dtypes, whose rounding hides nothing else.

    Errors away from zero count as positive, in half units in the last place, cut off at 4 (cancellation).  Equal values
    round alike, so they count once.
    """
    if limits.unit <= limits.accumulate:
        return None
    exponent = torch.frexp(res.exact).exponent
    half_ulp = torch.ldexp(torch.full_like(res.exact, limits.unit), exponent - 1)
    use = res.scale > limits.smallest / limits.unit
    count = int(use.sum())
    if count < 64:
        return None
    sign = torch.sign(res.exact[use])
    errors = [(e[use] * sign / half_ulp[use]).clamp_(-4, 4) for e in (res.error, res.reference_error)]
    mean, reference = (float(e.mean()) for e in errors)
    rmse = rms(errors[0], count)
    if abs(mean) <= BIAS_UNITS + abs(reference) or rmse <= BIAS_RATIO / math.sqrt(3):
        return None
    values, inverse, counts = torch.unique(res.scale[use], return_inverse=True, return_counts=True)
    mean = float((torch.bincount(inverse, errors[0]) / counts).mean())
    if abs(mean) <= BIAS_UNITS + abs(reference) + 5 * rmse / math.sqrt(values.numel()):
        return None
    side = "toward" if mean < 0 else "away from"
    text = (
        f"errors lean {side} zero by {abs(mean):.2g} half units in the last place (reference {reference:.1g}): "
        f"{dtype_name(limits.dtype)} is truncated, not rounded to nearest"
    )
    used = {"of": "bias in half units in the last place", "error": abs(mean), "allowed": BIAS_UNITS + abs(reference)}
    return Finding(False, "biased-rounding", text, {"bias_half_ulp": mean, "tolerance": used})
