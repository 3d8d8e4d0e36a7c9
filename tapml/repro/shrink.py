"""A failing call made smaller while it fails in the same way.

Extents, values, arguments and strides are reduced in turn, each by delta debugging (:mod:`tapml.repro.ddmin`), until a
whole round changes nothing or the time is up.  Every candidate is executed in PyTorch, which gives the right results or
refuses it, and then on the device; it is taken when the failure is of the same :class:`tapml.repro.kind.Kind`.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from tapml.repro.arguments import simpler_arguments
from tapml.repro.ddmin import ddmin
from tapml.repro.extents import Axis, axes, keep, without_axes
from tapml.repro.kind import Kind
from tapml.repro.subject import Subject
from tapml.repro.trial import Finding
from tapml.repro.values import contiguous, simplify_values
from tapml.repro.workbench import OutOfTime

_ROUNDS = 8
_STARTS = 4
"""How often the call to begin with is tried: what reads memory that nobody wrote may pass, or fail in another way."""

Attempt = Callable[[Subject], Finding]
"""Tries a candidate.  Raises :class:`OutOfTime`."""


@dataclass(frozen=True)
class Shrunk:
    """``history``: what was taken, from the first to the smallest; ``taken``: what was done, one entry less.  ``tried``:
    candidates that were executed on the device.  ``rejected``: that PyTorch refused.  ``finished``: no reduction is left
    that keeps the failure; else the time was up.  ``undone``: steps taken back because the failure was not to be seen
    without tapml after them."""

    history: tuple[Subject, ...]
    tried: int
    rejected: int
    taken: tuple[str, ...]
    seconds: float
    finished: bool
    undone: int = 0

    @property
    def subject(self) -> Subject:
        """The smallest."""
        return self.history[-1]

    def back_to(self, index: int) -> Shrunk:
        """What was there before later steps, which are undone."""
        undone = len(self.history) - 1 - index
        return replace(self, history=self.history[: index + 1], taken=self.taken[:index], undone=undone)

    @property
    def end(self) -> str:
        """Why it is no smaller, in words."""
        end = (
            "nothing smaller was left to try" if self.finished else "the time was up: a longer --budget may go further"
        )
        return f"{end}; {self.undone} steps undone that do not reproduce without tapml" if self.undone else end


@dataclass
class Shrinker:
    """``kinds``: of the failure; several where it changes from one run to the next.  ``listen``: told what is being
    reduced, and of each candidate that is taken."""

    attempt: Attempt
    kinds: tuple[Kind, ...]
    seed: int = 0
    listen: Callable[[str, Subject], None] = lambda what, subject: None
    tried: int = 0
    rejected: int = 0
    taken: list[str] = field(default_factory=list)
    _known: dict[str, str] = field(default_factory=dict)

    def run(self, subject: Subject) -> Shrunk:
        """The smallest that was found; ``subject`` itself fails."""
        begin = time.monotonic()
        self.rng = random.Random(self.seed)
        self.best = subject
        self.history = [subject]
        finished = False
        try:
            for _ in range(_ROUNDS):
                before = self.best.digest
                self._arguments()
                self._extents()
                self._values()
                self._axes()
                if self.best.digest == before:
                    finished = True
                    break
        except OutOfTime:
            pass
        seconds = time.monotonic() - begin
        return Shrunk(tuple(self.history), self.tried, self.rejected, tuple(self.taken), seconds, finished)

    def begins_with(self, subject: Subject) -> bool:
        """Whether ``subject`` fails in the same way, so that there is something to begin with."""
        try:
            for _ in range(_STARTS):
                if self.outcome(subject) == "fails":
                    return True
                del self._known[subject.digest]
        except OutOfTime:
            pass
        return False

    # -- asking -------------------------------------------------------------------------------------------------------

    def outcome(self, candidate: Subject) -> str:
        """``fails`` in the same way, ``rejected`` by PyTorch, or ``other``."""
        digest = candidate.digest
        if digest not in self._known:
            finding = self.attempt(candidate)
            if finding.status == "rejected":
                self.rejected += 1
            else:
                self.tried += 1
            same = finding.kind is not None and any(kind.admits(finding.kind) for kind in self.kinds)
            self._known[digest] = "fails" if same else "rejected" if finding.status == "rejected" else "other"
        return self._known[digest]

    def take(self, candidate: Subject | None, what: str) -> bool:
        """Whether the candidate fails in the same way; it is the best one then."""
        if candidate is None or candidate.digest == self.best.digest or self.outcome(candidate) != "fails":
            return False
        self.best = candidate
        self.history.append(candidate)
        self.taken.append(what)
        self.listen(what, candidate)
        return True

    # -- reducing -----------------------------------------------------------------------------------------------------

    def _until_none(self, candidates: Callable[[Subject], Iterator[tuple[str, Subject]]]) -> None:
        """Take candidates as long as there is one to take; each is simpler than what it is made of."""
        going = True
        while going:
            going = any(self.take(candidate, what) for what, candidate in candidates(self.best))

    def _arguments(self) -> None:
        self._until_none(simpler_arguments)

    def _extents(self) -> None:
        done: set[Axis] = set()
        while True:
            left = [axis for axis in axes(self.best) if axis not in done]
            if not left:
                return
            done.add(left[0])
            self._shorten(left[0])

    def _shorten(self, axis: Axis) -> None:
        """The axis with as few of its places as the failure needs."""
        start = self.best
        half = list(range(max(axis.extent // 2, 1)))
        if all(self.outcome(keep(start, axis, part)) == "rejected" for part in (half, [0])):
            return  # these axes do not change together

        def fails(part: Sequence[int]) -> bool:
            return self.take(keep(start, axis, part), f"{axis} {axis.extent} -> {len(part)}")

        if not fails([0]):
            ddmin(list(range(axis.extent)), fails, self.rng)

    def _values(self) -> None:
        self._until_none(contiguous)
        simplify_values(self.best, lambda candidate, what: self.take(candidate, what), self.rng)

    def _axes(self) -> None:
        self._until_none(without_axes)
