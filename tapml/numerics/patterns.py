"""Where NaN and infinities stand, and whether they stand where the exact result has them."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

from tapml.numerics.tolerance import ELEMENT_UNITS, Limits
from tapml.suite.call import Json, dtype_name

_FINITE, _POSITIVE, _NEGATIVE, _NAN = range(4)
_NAMES = ("a finite value", "inf", "-inf", "nan")


@dataclass(frozen=True)
class Pattern:
    """``compared``: which elements to compare by value (None: all).  ``mismatch``: why the pattern is wrong, or None,
    with the first element as ``detail``.  ``better``: why the candidate is better than the reference, or empty.
    """

    compared: torch.Tensor | None = None
    mismatch: str | None = None
    detail: Json = None
    better: str = ""
    warnings: tuple[str, ...] = field(default=())


def match_pattern(
    exact: torch.Tensor, reference: torch.Tensor, candidate: torch.Tensor, skip: torch.Tensor | None, limits: Limits
) -> Pattern:
    """Compare the pattern of the candidate with that of ``exact`` rounded to the result's dtype.

    All three are real float64 tensors of one shape; ``skip`` (bool, same shape) marks elements nobody may compare.
    Accepted too, with a warning: what the reference has there, where the reference itself is not as float64 says (an
    overflow inside the operator; ``nan_to_num``, whose result depends on the dtype).  At the very edge of the dtype
    either side of the overflow is rounding.
    """
    if skip is None and all(_ordinary(t, limits) for t in (exact, reference, candidate)):
        return Pattern()
    wanted = _classes(exact, limits.overflow)
    got, had = _classes(candidate), _classes(reference)
    keep = torch.ones_like(wanted, dtype=torch.bool) if skip is None else ~skip
    compared = (got == _FINITE) & (wanted == _FINITE) & keep
    edge = (exact.abs() - limits.overflow).abs() <= _slack(limits) * limits.overflow
    edge &= (got == _FINITE) | (wanted == _FINITE) | (got == wanted)
    edge &= torch.signbit(exact) == torch.signbit(candidate)
    close = (candidate - reference).abs() <= _slack(limits) * reference.abs()
    like_reference = (got == had) & ((got != _FINITE) | close)
    wrong = (got != wanted) & keep & ~edge & ~like_reference
    if bool(wrong.any()):
        return _mismatch(wrong, exact, candidate, wanted, got, limits, compared)
    differs = (had != wanted) & keep & ~edge
    warnings, better = [], ""
    followed = differs & (got != wanted)
    if bool(followed.any()):
        warnings.append(f"reference-nonfinite: {_describe(followed, exact, reference)}; the candidate has the same")
    if bool((differs & (got == wanted)).any()):
        better = f"{_describe(differs & (got == wanted), exact, reference)}; the candidate has the exact one"
    return Pattern(compared, None, None, better, tuple(warnings))


def _ordinary(values: torch.Tensor, limits: Limits) -> bool:
    """Whether all are finite and clear of overflow (NaN makes both bounds NaN)."""
    low, high = torch.aminmax(values)
    return -low.item() < limits.largest and high.item() < limits.largest


def _classes(values: torch.Tensor, overflow: float = float("inf")) -> torch.Tensor:
    kind = torch.zeros(values.shape, dtype=torch.int8)
    kind[values >= overflow] = _POSITIVE
    kind[values <= -overflow] = _NEGATIVE
    kind[torch.isnan(values)] = _NAN
    return kind


def _slack(limits: Limits) -> float:
    return 4 * (limits.output_units * limits.unit + ELEMENT_UNITS * limits.accumulate)


def _describe(mask: torch.Tensor, exact: torch.Tensor, reference: torch.Tensor) -> str:
    index = mask.nonzero()[0].tolist()
    where = tuple(index)
    return (
        f"PyTorch's result is {reference[where].item():.4g} at {index} where float64 gives {exact[where].item():.4g} "
        f"({int(mask.sum())} such elements)"
    )


def _mismatch(
    wrong: torch.Tensor,
    exact: torch.Tensor,
    candidate: torch.Tensor,
    wanted: torch.Tensor,
    got: torch.Tensor,
    limits: Limits,
    compared: torch.Tensor,
) -> Pattern:
    index = wrong.nonzero()[0].tolist()
    where = tuple(index)
    value, truth = candidate[where].item(), exact[where].item()
    right = f"{truth:.6g}"
    if wanted[where] != _FINITE and abs(truth) < float("inf"):
        right = f"{truth:.6g}, {_NAMES[int(wanted[where])]} in {dtype_name(limits.dtype)}"
    text = (
        (
            f"candidate has {_NAMES[int(got[where])]} ({value:.6g}) at {index} where the exact result is {right} "
            f"({int(wrong.sum())} of {wrong.numel()} elements)"
        )
        .replace("inf (inf)", "inf")
        .replace("nan (nan)", "nan")
    )
    detail = {"index": index, "candidate": repr(value), "float64": repr(truth), "count": int(wrong.sum())}
    return Pattern(compared, text, detail)
