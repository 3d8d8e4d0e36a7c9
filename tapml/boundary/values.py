"""Neighbours in value: what one argument holds is replaced, its shape, dtype and strides stay."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch

from tapml.suite.call import Signature, TensorSpec, has_overlap, laid_out, torch_dtype

Change = Callable[[torch.Tensor], torch.Tensor]


def _one(value: float) -> Change:
    """One element in the middle replaced."""

    def change(x: torch.Tensor) -> torch.Tensor:
        flat = x.flatten().clone()
        flat[flat.numel() // 2] = value
        return flat.reshape(x.shape)

    return change


def _row(value: float) -> Change:
    """The first row along the last dimension replaced."""

    def change(x: torch.Tensor) -> torch.Tensor:
        found = x.clone()
        found.reshape(-1, x.shape[-1])[0] = value
        return found

    return change


def _all(value: float) -> Change:
    return lambda x: torch.full_like(x, value)


def _scaled_to(largest: Callable[[torch.finfo], float]) -> Change:
    """Scaled so that the largest finite magnitude is this."""

    def change(x: torch.Tensor) -> torch.Tensor:
        finite = x.double().where(x.isfinite(), 0.0)
        top = float(finite.abs().max())
        finite = torch.ones_like(finite) if top == 0 else finite / top
        return (finite * largest(torch.finfo(x.dtype))).to(x.dtype)

    return change


def _alternating_zeros(x: torch.Tensor) -> torch.Tensor:
    flat = torch.zeros(x.numel(), dtype=x.dtype)
    flat[1::2] = -0.0
    return flat.reshape(x.shape)


def _ties(x: torch.Tensor) -> torch.Tensor:
    """Two values only, so that any maximum, minimum or order has ties."""
    flat = x.flatten()
    return torch.where(torch.arange(x.numel()) % 3 == 0, flat[0], flat[-1]).reshape(x.shape)


FLOATS: dict[str, Change] = {
    "one NaN": _one(math.nan),
    "one Inf": _one(math.inf),
    "one -Inf": _one(-math.inf),
    "a row of -Inf": _row(-math.inf),
    "all equal": lambda x: torch.full_like(x, float(x.flatten()[0])),
    "ties": _ties,
    "zeros of both signs": _alternating_zeros,
    "subnormal": _scaled_to(lambda info: info.tiny / 4),
    "tiny": _scaled_to(lambda info: math.sqrt(info.tiny) / 4),
    "large": _scaled_to(lambda info: math.sqrt(info.max) * 4),
    "huge": lambda x: _scaled_to(lambda info: info.max / (4 * max(x.shape, default=1)))(x),
}
"""Huge: as large as can be without sums along a dimension that overflow, or do not, by their order."""
INTEGERS: dict[str, Change] = {
    "all zero": _all(0),
    "all equal": lambda x: torch.full_like(x, int(x.flatten()[0])),
    "ties": _ties,
}
NARROW: dict[str, Change] = {
    "all smallest": lambda x: torch.full_like(x, torch.iinfo(x.dtype).min),
    "all largest": lambda x: torch.full_like(x, torch.iinfo(x.dtype).max),
}
BOOLS: dict[str, Change] = {"all false": _all(0), "all true": _all(1), "a row of false": _row(0)}


def _changes(spec: TensorSpec) -> dict[str, Change]:
    dtype = torch_dtype(spec.dtype)
    if not spec.numel or dtype.is_complex:
        return {}
    if dtype.is_floating_point:
        found = FLOATS
    elif dtype == torch.bool:
        found = BOOLS
    else:
        found = INTEGERS | (NARROW if dtype.itemsize < 4 else {})
    return {name: change for name, change in found.items() if spec.shape or not name.startswith("a row")}


def names(signature: Signature) -> list[str]:
    """Of all neighbours in value."""
    return [f"arg{i} {what}" for i, spec in enumerate(signature.tensors) for what in _changes(spec)]


def change(tensor: torch.Tensor, what: str) -> torch.Tensor:
    """The argument with other values, in memory as it was (where its elements do not overlap there)."""
    found = _changes(TensorSpec.of(tensor))[what](tensor)
    return found if has_overlap(tensor.shape, tensor.stride()) else laid_out(found, tensor.stride())
