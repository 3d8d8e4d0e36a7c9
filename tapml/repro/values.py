"""Simpler values: elements that do not matter become 0 or 1, the others as simple as the failure allows."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence

import torch

from tapml.repro.arguments import simpler_values
from tapml.repro.ddmin import ddmin
from tapml.repro.subject import Memory, Subject, flat
from tapml.suite.call import TensorSpec

_FILLS = (0.0, 1.0)
_ONE_BY_ONE = 64
"""Elements of a tensor that are simplified one after the other."""

Take = Callable[[Subject, str], bool]


def contiguous(subject: Subject) -> Iterator[tuple[str, Subject]]:
    """With contiguous tensors: all of them, or one."""
    strided = [i for i, m in enumerate(subject.tensors) if not m.tensor().is_contiguous()]
    for group in ([strided] if len(strided) > 1 else []) + [[i] for i in strided]:
        changed = list(subject.tensors)
        for i in group:
            changed[i] = Memory.of(changed[i].tensor().contiguous())
        names = ", ".join(f"x{i}" for i in group)
        yield f"{names} contiguous", Subject(subject.operator, subject.arguments, tuple(changed))


def simplify_values(subject: Subject, take: Take, rng: random.Random) -> None:
    """Reduce tensor after tensor, the largest first; ``take`` says whether a candidate fails in the same way."""
    order = sorted(range(len(subject.tensors)), key=lambda i: (-subject.tensors[i].spec.numel, i))
    for index in order:
        subject = _simplify(subject, index, take, rng)


def _simplify(subject: Subject, index: int, take: Take, rng: random.Random) -> Subject:
    memory = subject.tensors[index]
    if not memory.data or memory.tensor().is_complex():
        return subject
    best = [subject]
    values = flat(memory.tensor()).clone()

    def attempt(changed: torch.Tensor, what: str) -> bool:
        candidate = _with(subject, index, changed)
        if take(candidate, f"x{index}: {what}"):
            best[0] = candidate
            return True
        return False

    for fill in _FILLS:
        others = ((values != fill) & (values != 0)).nonzero().flatten().tolist()
        if not others:
            return best[0]
        filled = values.clone()
        filled[others] = fill
        if attempt(
            filled, f"every element {fill:g}" if len(others) == len(values) else f"{len(others)} elements {fill:g}"
        ):
            return best[0]

        def fails(
            part: Sequence[int], values: torch.Tensor = values, filled: torch.Tensor = filled, fill: float = fill
        ) -> bool:
            changed = filled.clone()
            changed[list(part)] = values[list(part)]
            return attempt(changed, f"{len(values) - len(part)} of {len(values)} elements {fill:g}")

        left = ddmin(others, fails, rng)
        if len(left) < len(others):
            break
    values = flat(best[0].tensors[index].tensor()).clone()
    simple = [i for i in range(len(values)) if _simpler(values[i])]
    for i in simple[:_ONE_BY_ONE]:
        for other in _simpler(values[i]):
            changed = values.clone()
            changed[i] = other
            if not _same(changed[i], values[i]) and attempt(changed, f"{values[i].item()} -> {other:g}"):
                values = changed
                break
    return best[0]


def _with(subject: Subject, index: int, values: torch.Tensor) -> Subject:
    spec: TensorSpec = subject.tensors[index].spec
    changed = list(subject.tensors)
    changed[index] = Memory(spec, values.contiguous().view(torch.uint8).numpy().tobytes())
    return Subject(subject.operator, subject.arguments, tuple(changed))


def _same(a: torch.Tensor, b: torch.Tensor) -> bool:
    return bool(torch.equal(a, b)) or bool(torch.isnan(a) and torch.isnan(b))


def _simpler(value: torch.Tensor) -> list[float]:
    if value.dtype == torch.bool:
        return [0.0] if bool(value) else []
    return simpler_values(float(value.item()), whole=not value.dtype.is_floating_point)
