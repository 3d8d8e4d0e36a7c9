"""Neighbours in memory: the same values, in other places."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from tapml.suite.call import Signature, has_overlap, mutated_tensors, resolve_operator


def _reversed(x: torch.Tensor) -> torch.Tensor:
    """The last dimension outermost, as of a transposed matrix."""
    dims = list(range(x.dim()))[::-1]
    return x.permute(dims).contiguous().permute(dims)


def _spaced(x: torch.Tensor) -> torch.Tensor:
    """Every second element of a larger array."""
    room = x.new_zeros((*x.shape[:-1], 2 * x.shape[-1]))
    room[..., ::2] = x
    return room[..., ::2]


def _expanded(x: torch.Tensor) -> torch.Tensor:
    """The first row again and again: a stride of 0."""
    return x[:1].clone().expand(x.shape)


def _windows(x: torch.Tensor) -> torch.Tensor:
    """Windows that overlap: each row begins one element after the one before."""
    line = torch.cat([x[..., 0, :], x[..., 1:, -1]], dim=-1).contiguous()
    return line.as_strided(x.shape, (*line.stride()[:-1], 1, 1))


WAYS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "transposed in memory": _reversed,
    "every second element": _spaced,
    "one row expanded": _expanded,
    "overlapping windows": _windows,
}


def names(signature: Signature) -> list[str]:
    """Of all neighbours in memory.  Memory that a call writes to does not overlap."""
    found = []
    mutated = mutated_tensors(resolve_operator(signature.operator), signature.template)
    for i, spec in enumerate(signature.tensors):
        if not spec.numel or not spec.shape:
            continue
        ways = ["every second element"] if spec.shape[-1] > 1 else []
        if sum(e > 1 for e in spec.shape) > 1:
            ways.append("transposed in memory")
        if i not in mutated:
            ways += ["one row expanded"] if spec.shape[0] > 1 else []
            ways += ["overlapping windows"] if len(spec.shape) > 1 and min(spec.shape[-2:]) > 1 else []
        found += [f"arg{i} {way}" for way in ways]
    return found


def change(tensor: torch.Tensor, way: str) -> torch.Tensor:
    """The argument with other strides."""
    return WAYS[way](tensor)


def describe(shape: Sequence[int], strides: Sequence[int]) -> str:
    """Whether memory is contiguous, dense in another order, spaced, or overlapping."""
    if has_overlap(shape, strides):
        return "overlapping"
    axes = [(s, e) for s, e in zip(strides, shape, strict=True) if e != 1]
    reach, dense = 1, True
    for stride, extent in sorted(axes):
        dense = dense and stride == reach
        reach *= extent
    if not dense:
        return "spaced"
    return "contiguous" if axes == sorted(axes, reverse=True) else "permuted"
