"""Which instances of a signature are worth keeping, decided one call at a time.

Of the calls that share a signature the first is kept, then the one of the largest magnitude, then the one of the widest
dynamic range, then further ones by magnitude.  At most ``keep + 1`` instances are held while the reference runs.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

import torch

from tapml.suite.call import Json

_FLOATS = frozenset({torch.float16, torch.bfloat16, torch.float32, torch.float64})
_HALVES = frozenset({torch.float16, torch.bfloat16})
_INTEGERS = frozenset({torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64})


def has_figures(tensor: torch.Tensor) -> bool:
    """Whether :class:`Figures` look at this tensor: real numbers, at least one."""
    return (tensor.dtype in _FLOATS or tensor.dtype in _INTEGERS) and tensor.numel() > 0


class Figures:
    """The numeric stress of one call, over its results and those of its inputs that are no parameters.

    ``magnitudes``: the largest absolute value of each tensor, infinite when it has a NaN or Inf, in descending order.
    ``ranges``: the largest absolute value over the mean absolute value of each float tensor, in descending order.  Both
    compare as tuples: a mask that is always there with its -3e38 is a tie, and the next tensor decides.
    ``finite_results``, ``finite_inputs``: whether all values were finite.
    """

    __slots__ = ("finite_inputs", "finite_results", "magnitudes", "ranges")

    def __init__(self, results: Iterable[torch.Tensor], inputs: Iterable[torch.Tensor]) -> None:
        magnitudes: list[float] = []
        ranges: list[float] = []
        self.finite_results = _look_at(results, magnitudes, ranges)
        self.finite_inputs = _look_at(inputs, magnitudes, ranges)
        magnitudes.sort(reverse=True)
        ranges.sort(reverse=True)
        self.magnitudes = tuple(magnitudes)
        self.ranges = tuple(ranges)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Figures) and (self.magnitudes, self.ranges) == (other.magnitudes, other.ranges)

    __hash__ = None  # type: ignore[assignment]


def _look_at(tensors: Iterable[torch.Tensor], magnitudes: list[float], ranges: list[float]) -> bool:
    """Append the figures of ``tensors``; returns whether all is finite.  Runs for nearly every call: keep it lean."""
    finite = True
    for tensor in tensors:
        low, high = tensor.aminmax()
        magnitude = float(max(-low.item(), high.item()))
        if tensor.dtype not in _FLOATS:
            magnitudes.append(magnitude)
        elif math.isfinite(magnitude):
            total = torch.linalg.vector_norm(tensor, 1, dtype=torch.float32 if tensor.dtype in _HALVES else None).item()
            magnitudes.append(magnitude)
            ranges.append(magnitude * tensor.numel() / total if total else 0.0)
        else:
            finite = False
            magnitudes.append(math.inf)
    return finite


@dataclass(eq=False)
class Instance:
    """One call that is held: what was recorded of it.

    ``tensors``: the signature's, before the call.  ``data``: indices of those that ``figures`` looked at.  ``nbytes``:
    what it keeps in memory, parameters aside.
    """

    call_index: int
    module: str
    source: str
    tensors: list[torch.Tensor]
    results: list[tuple[str, torch.Tensor]]
    data: list[int]
    figures: Figures | None
    nbytes: int

    def has_changed(self) -> bool:
        """Whether the values held no longer have the figures that the call had."""
        if self.figures is None:
            return False
        return self.figures != Figures(self._measured_results(), [self.tensors[i] for i in self.data])

    def stress(self, reason: str) -> dict[str, Json]:
        """The figures as the case states them: JSON numbers, over the finite elements of results and data inputs.

        ``kept``: the reason; ``max_abs``; ``dynamic_range``: the largest over the mean absolute value, of the float
        tensor where that is largest; ``nonfinite``: how many elements of the results are NaN or Inf.
        """
        results = self._measured_results()
        tensors = results + [self.tensors[i] for i in self.data]
        if not tensors:
            return {"kept": reason}
        largest, widest, nonfinite = 0.0, 0.0, 0
        for position, tensor in enumerate(tensors):
            values = tensor.double().abs()
            finite = values[torch.isfinite(values)]
            if position < len(results):
                nonfinite += values.numel() - finite.numel()
            if finite.numel() and (high := finite.max().item()) > 0:
                largest = max(largest, high)
                if tensor.is_floating_point():
                    widest = max(widest, high / finite.mean().item())
        return {"kept": reason, "max_abs": largest, "dynamic_range": widest, "nonfinite": nonfinite}

    def _measured_results(self) -> list[torch.Tensor]:
        return [t for _, t in self.results if has_figures(t)]


@dataclass(eq=False)
class Selection:
    """The instances kept of one signature, ``keep`` at the end."""

    keep: int
    first: Instance | None = None
    largest: list[Instance] = field(default_factory=list)
    """By magnitude, largest first, at most ``keep - 1``; without ``first``."""
    widest: Instance | None = None

    def wants(self, figures: Figures | None) -> bool:
        """Whether an instance with these figures would be kept, as things stand."""
        if self.first is None:
            return True
        if figures is None or self.first.figures is None or self.keep < 2:
            return False
        return self._is_wider(figures) or self._is_larger(figures)

    def add(self, instance: Instance) -> list[Instance]:
        """Keep ``instance``, which is wanted; returns those that are no longer kept."""
        before = self.held()
        if self.first is None:
            self.first = instance
            return []
        assert instance.figures is not None
        wider, larger = self._is_wider(instance.figures), self._is_larger(instance.figures)
        if wider:
            self.widest = instance
        if larger:
            self.largest.append(instance)
            self.largest.sort(key=_magnitudes, reverse=True)
            del self.largest[self.keep - 1 :]
        after = self.held()
        return [i for i in before if i not in after]

    def held(self) -> list[Instance]:
        found = [self.first, *self.largest, self.widest]
        return list(dict.fromkeys(i for i in found if i is not None))

    def kept(self) -> list[tuple[Instance, str]]:
        """The instances to keep for good, with the reason: ``first``, ``magnitude`` or ``range``."""
        order = [(self.first, "first")]
        order += [(i, "magnitude") for i in self.largest[:1]]
        order += [(self.widest, "range")]
        order += [(i, "magnitude") for i in self.largest[1:]]
        chosen: dict[Instance, str] = {}
        for instance, reason in order:
            if instance is not None and instance not in chosen and len(chosen) < self.keep:
                chosen[instance] = reason
        return list(chosen.items())

    def drop(self, instance: Instance) -> None:
        """Forget an instance whose values turned out to be unusable."""
        if self.first is instance:
            self.first = None
        if self.widest is instance:
            self.widest = None
        self.largest = [i for i in self.largest if i is not instance]

    def _is_larger(self, figures: Figures) -> bool:
        if len(self.largest) >= self.keep - 1 and figures.magnitudes <= _magnitudes(self.largest[-1]):
            return False
        return all(i.figures != figures for i in self.held())

    def _is_wider(self, figures: Figures) -> bool:
        if self.keep < 3:
            return False
        return all(
            i is None or i.figures is None or figures.ranges > i.figures.ranges for i in (self.first, self.widest)
        )


def _magnitudes(instance: Instance) -> tuple[float, ...]:
    return instance.figures.magnitudes if instance.figures is not None else ()
