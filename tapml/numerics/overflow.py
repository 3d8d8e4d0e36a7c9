"""Overflow: how close it is, and whether one was swallowed inside the operator."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from tapml.numerics.metrics import Residuals
from tapml.numerics.tolerance import HEADROOM, Limits
from tapml.suite.call import dtype_name


def headroom_warning(exact: torch.Tensor, reference: torch.Tensor, limits: Limits) -> list[str]:
    """A warning if a finite magnitude of the exact result exceeds half of the largest that the dtype holds.

    Values that are the dtype's largest itself are sentinels (attention masks are filled with it) and do not count.
    """
    low, high = (float(bound) for bound in torch.aminmax(exact))
    if max(-low, high) <= HEADROOM * limits.largest:
        return []
    magnitude = exact.abs()
    magnitude = magnitude[torch.isfinite(magnitude) & (reference.abs() != limits.largest)]
    if not magnitude.numel() or (peak := float(magnitude.max())) <= HEADROOM * limits.largest:
        return []
    name = dtype_name(limits.dtype)
    if peak >= limits.overflow:
        count = int((magnitude >= limits.overflow).sum())
        return [f"overflow: {count} exact values up to {peak:.4g} do not fit {name} (largest {limits.largest:.4g})"]
    return [f"headroom: {peak:.4g} is {peak / limits.largest:.0%} of the largest {name} ({limits.largest:.4g})"]


def absorbed_overflow(tensors: Sequence[torch.Tensor], res: Residuals, limits: Limits) -> str | None:
    """Why the result, finite as it looks, comes from an overflow inside the operator; None if it does not.

    The mark of it: where the candidate is far off, it is 0 or its last addend (a bias: some argument that broadcasts to
    the result), and squares or sums of an argument exceed the dtype.  A variance that became infinite does this,
    because dividing by it gives 0.
    """
    wrong = (res.magnitude > 0.5 * res.scale) & (res.scale > limits.unit)
    count = int(wrong.sum())
    if count == 0:
        return None
    absorbed = wrong & (res.candidate == 0)
    shape = torch.Size(res.shape)
    for tensor in tensors:
        if tensor.is_floating_point() and 0 < tensor.dim() < len(shape) and _broadcasts(tensor.shape, shape):
            addend = tensor.to(torch.float64).expand(shape).reshape(-1)
            absorbed |= wrong & (res.candidate == addend)
    if int(absorbed.sum()) < 0.9 * count:
        return None
    floating = [t for t in tensors if t.is_floating_point() and t.numel()]
    peak = max((float(torch.nan_to_num(t.abs(), posinf=0.0).max()) for t in floating), default=0.0)
    if peak**2 <= limits.largest and max((_row_sum(t) for t in floating), default=0.0) <= limits.largest:
        return None
    index = int((res.magnitude * absorbed).argmax())
    return (
        f"{count} elements are {res.candidate[index].item():.4g} like that at {list(res.position(index))}, where "
        f"float64 gives {res.exact[index].item():.4g}: an intermediate overflowed {dtype_name(limits.dtype)} "
        f"(an argument reaches {peak:.4g}) and was divided away"
    )


def _broadcasts(shape: torch.Size, target: torch.Size) -> bool:
    return all(a in (1, b) for a, b in zip(reversed(shape), reversed(target), strict=False))


def _row_sum(tensor: torch.Tensor) -> float:
    if tensor.dim() == 0:
        return 0.0
    return float(torch.nan_to_num(tensor.to(torch.float64), posinf=0.0, neginf=0.0).abs().sum(-1).max())
