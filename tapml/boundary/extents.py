"""Neighbours in extent: one number among the extents becomes another, wherever it stands or in one place.

``extent 64 -> 65``: every dimension of 64 in every tensor, and every argument that is the number 64, since that is how
operators tie extents together (both inner extents of a product, a normalised shape).  ``extent 64 -> 65 in arg0 dim 1``:
that dimension alone.
"""

from __future__ import annotations

import math
import re
from typing import Any

import torch

from tapml.suite.call import Json, Signature

NEW = (0, 1, 3, 16, 17, 63, 65, 257, 1025, 65537)
"""None, one, odd, and one beside or on the sizes of tiles and blocks; the last is beyond 16 bits."""
_NAME = re.compile(r"extent (\d+) -> (\d+)(?: in arg(\d+) dim (\d+))?")


def names(signature: Signature) -> list[str]:
    """Of all neighbours in extent."""
    places = [(i, d, e) for i, spec in enumerate(signature.tensors) for d, e in enumerate(spec.shape)]
    count = max((spec.numel for spec in signature.tensors), default=0)
    found = []
    for extent in dict.fromkeys(e for _, _, e in places):
        for new in NEW:
            if new == extent or (new > 1024 and count // max(extent, 1) > 64):
                continue
            found.append(f"extent {extent} -> {new}")
            alone = [(i, d) for i, d, e in places if e == extent]
            found += [f"extent {extent} -> {new} in arg{i} dim {d}" for i, d in alone if len(alone) > 1]
    return found


def elements(signature: Signature, name: str) -> int:
    """Elements that the arguments of a neighbour have together."""
    old, new, index, dim = _parsed(name)
    return sum(
        math.prod(new if e == old and index in (None, i) and dim in (None, d) else e for d, e in enumerate(spec.shape))
        for i, spec in enumerate(signature.tensors)
    )


def change(signature: Signature, tensors: list[torch.Tensor], name: str) -> tuple[list[torch.Tensor], Json]:
    """Arguments and template of a neighbour.  Values are the carved ones, cut off, or followed by some of them drawn by lot
    (integers: repeated in order); integers that point into a dimension that shrank point at its last element."""
    old, new, index, dim = _parsed(name)
    if index is not None and dim is not None:
        changed = list(tensors)
        changed[index] = _resized(tensors[index], [dim], new)
        return changed, signature.template
    changed = [_resized(t, [d for d, e in enumerate(t.shape) if e == old], new) for t in tensors]
    if 0 < new < old:
        changed = [_clamped(t, old, new) for t in changed]
    return changed, _renumbered(signature.template, old, new)


def _parsed(name: str) -> tuple[int, int, int | None, int | None]:
    """Extent before and after, and the one argument and dimension that it is about."""
    match = _NAME.fullmatch(name)
    assert match is not None, name
    old, new, index, dim = (None if part is None else int(part) for part in match.groups())
    assert old is not None and new is not None
    return old, new, index, dim


def _resized(tensor: torch.Tensor, dims: list[int], new: int) -> torch.Tensor:
    if not dims:
        return tensor
    steps = tensor.stride()
    order = sorted(range(tensor.dim()), key=lambda d: -steps[d])  # the same axes stay innermost
    found = tensor
    for dim in dims:
        extent = found.shape[dim]
        if extent == 0:
            found = found.new_zeros([new if d == dim else e for d, e in enumerate(found.shape)])
        else:
            found = found.index_select(dim, _picks(extent, new, drawn=tensor.is_floating_point()))
    inverse = [order.index(d) for d in range(len(order))]
    return found.permute(order).contiguous().permute(inverse)


def _picks(extent: int, new: int, *, drawn: bool) -> torch.Tensor:
    """Positions of the values of a dimension of another extent.

    In a sum of values that come again in the same order, roundings come again too, and add up to what no real run meets.
    """
    if not drawn or new <= extent:
        return torch.arange(new) % extent
    more = torch.randint(extent, (new - extent,), generator=torch.Generator().manual_seed(new))
    return torch.cat([torch.arange(extent), more])


def _clamped(tensor: torch.Tensor, old: int, new: int) -> torch.Tensor:
    if tensor.dtype not in (torch.int32, torch.int64) or not tensor.numel():
        return tensor
    points = int(tensor.max()) < old and int(tensor.min()) >= -old
    return tensor.clamp(-new, new - 1) if points else tensor


def _renumbered(value: Json, old: int, new: int) -> Any:
    if isinstance(value, list):
        return [_renumbered(v, old, new) for v in value]
    if isinstance(value, dict):
        return {k: v if k == "tensor" else _renumbered(v, old, new) for k, v in value.items()}
    return new if type(value) is int and value == old else value
