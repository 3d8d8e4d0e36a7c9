"""Shorter axes and fewer of them, over all tensors and arguments that belong together."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from tapml.repro.subject import Subject
from tapml.suite.call import Json, Signature, resolve_operator

_SUBSETS = 5
"""Axes of one extent of which every subset is tried; of more, all together, pairs and each alone."""

_AXIS_NAMES = ("dim", "dims", "dim0", "dim1", "axis", "axis0", "axis1", "dimension")
"""What ATen's schemas call arguments that number axes."""


@dataclass(frozen=True)
class Axis:
    """Axes (tensor, dimension) of one extent that change together, and integers among the arguments (by their path)."""

    extent: int
    places: tuple[tuple[int, int], ...]
    numbers: tuple[tuple[object, ...], ...] = ()

    def __str__(self) -> str:
        return "extent of " + ", ".join(f"x{tensor}.{dim}" for tensor, dim in self.places)


def axes(subject: Subject) -> list[Axis]:
    """Groups worth a try, the longest extents first, in each the largest group first."""
    places: dict[int, list[tuple[int, int]]] = {}
    for i, memory in enumerate(subject.tensors):
        for dim, extent in enumerate(memory.spec.shape):
            if extent > 1:
                places.setdefault(extent, []).append((i, dim))
    template = Signature(subject.operator, subject.arguments, ()).template
    found = []
    for extent in sorted(places, reverse=True):
        numbers = tuple(path for path, value in leaves(template) if type(value) is int and value == extent)
        for group in _groups(places[extent]):
            if numbers:
                found.append(Axis(extent, group, numbers))
            found.append(Axis(extent, group))
    return found


def _groups(places: list[tuple[int, int]]) -> Iterator[tuple[tuple[int, int], ...]]:
    sizes = range(len(places), 0, -1) if len(places) <= _SUBSETS else (len(places), 2, 1)
    for size in sizes:
        yield from itertools.combinations(places, size)


def keep(subject: Subject, axis: Axis, places: Sequence[int]) -> Subject:
    """The call with these places of an axis only."""
    tensors = [memory.tensor() for memory in subject.tensors]
    index = torch.tensor(list(places), dtype=torch.int64)
    for tensor, dim in axis.places:
        tensors[tensor] = _select(tensors[tensor], dim, index)
    template = Signature(subject.operator, subject.arguments, ()).template
    for path in axis.numbers:
        template = replaced(template, path, len(places))
    return Subject.made(subject.operator, template, tensors)


def _select(tensor: torch.Tensor, dim: int, index: torch.Tensor) -> torch.Tensor:
    """These places along one axis; in the memory order that the tensor has, a broadcast axis stays one."""
    if tensor.stride(dim) == 0:
        return tensor.narrow(dim, 0, len(index))
    strides = tuple(tensor.stride())
    order = sorted(range(tensor.dim()), key=lambda d: (-strides[d], d))
    dense = tensor.index_select(dim, index).permute(order).contiguous()
    inverse = sorted(range(tensor.dim()), key=order.__getitem__)
    broadcast = [d for d in range(tensor.dim()) if tensor.stride(d) == 0 and tensor.shape[d] > 1]
    dense = dense.permute(inverse)
    for d in broadcast:
        dense = dense.narrow(d, 0, 1).expand(*(-1 if e != d else dense.shape[d] for e in range(dense.dim())))
    return dense


def without_axes(subject: Subject) -> Iterator[tuple[str, Subject]]:
    """The call without one axis of extent 1: of all tensors that have it there, or of one; arguments along."""
    template = Signature(subject.operator, subject.arguments, ()).template
    ranks = {len(memory.spec.shape) for memory in subject.tensors}
    for rank in sorted(ranks, reverse=True):
        for dim in range(rank):
            having = [
                i
                for i, memory in enumerate(subject.tensors)
                if len(memory.spec.shape) == rank and memory.spec.shape[dim] == 1
            ]
            groups = [having, *([[i] for i in having] if len(having) > 1 else [])]
            for group in filter(None, groups):
                tensors = [memory.tensor() for memory in subject.tensors]
                for i in group:
                    tensors[i] = tensors[i].squeeze(dim)
                for adjusted in _adjusted(subject.operator, template, rank, dim):
                    what = f"without dimension {dim} of " + ", ".join(f"x{i}" for i in group)
                    yield what, Subject.made(subject.operator, adjusted, tensors)


def _adjusted(operator: str, template: Json, rank: int, dim: int) -> Iterator[Json]:
    """The arguments as they are, and with axes and lists of one entry an axis brought in line."""
    yield template
    names = [a.name for a in resolve_operator(operator)._schema.arguments]
    changed = template
    for path, value in leaves(template):
        name = names[int(str(path[1]))] if path[0] == 0 else str(path[1])
        if name in _AXIS_NAMES and type(value) is int:
            own = value + rank if value < 0 else value
            if own > dim:
                changed = replaced(changed, path, own - 1)
    args, kwargs = changed

    def shorter(value: Json, name: str) -> Json:
        per_axis = isinstance(value, list) and len(value) == rank and all(type(v) is int for v in value)
        return [v for d, v in enumerate(value) if d != dim] if per_axis and name not in _AXIS_NAMES else value

    changed = [
        [shorter(value, name) for name, value in zip(names, args, strict=False)],
        {name: shorter(value, name) for name, value in kwargs.items()},
    ]
    if changed != template:
        yield changed


def leaves(value: Json, path: tuple[object, ...] = ()) -> Iterator[tuple[tuple[object, ...], Json]]:
    """(path, value) of everything in a template that is no list; a tensor or dtype counts as one value."""
    if isinstance(value, list):
        for i, item in enumerate(value):
            yield from leaves(item, (*path, i))
    elif isinstance(value, dict) and len(path) == 1:
        for key, item in value.items():
            yield from leaves(item, (*path, key))
    else:
        yield path, value


def replaced(value: Json, path: tuple[object, ...], new: Json) -> Json:
    """A copy with one place changed."""
    if not path:
        return new
    if isinstance(value, list):
        return [replaced(item, path[1:], new) if i == path[0] else item for i, item in enumerate(value)]
    return {k: replaced(item, path[1:], new) if k == path[0] else item for k, item in value.items()}
