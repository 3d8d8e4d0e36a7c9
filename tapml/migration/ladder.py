"""The climb: each operator is compiled and judged on its cases, put in place, and the program is run with it.

Workers judge signatures ahead while the hybrid program runs; decisions are taken in the order in which the reference first
called the operators, so that a resumed migration ends as an undisturbed one.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from tapml.errors import SuiteError, TapmlError
from tapml.migration.cache import KernelCache
from tapml.migration.gate import Gate, GateResult
from tapml.migration.hybrid import HybridSetup
from tapml.migration.journal import Journal, journal_folder, locked
from tapml.migration.outcome import Outcome
from tapml.migration.pool import WorkerPool
from tapml.migration.resume import begin, begin_again, now
from tapml.migration.scratch import sweep
from tapml.migration.settings import Settings
from tapml.platform import DeviceInfo
from tapml.suite.call import Json
from tapml.suite.case import SignatureRecord
from tapml.suite.reader import Suite

_Parsed = TypeVar("_Parsed")

Listener = Callable[[str, Any], None]
"""Told of ``("recalled", number)`` of signatures known from the journal, and of ``("judged", Outcome)`` and
``("gate", GateResult)`` as they happen."""


@dataclass(frozen=True)
class MigrationResult:
    """How a migration ended.

    ``outcomes``: by signature id.  ``gates``: one decision for each step of the climb, in order.  ``kernels``: cache keys of
    what is migrated.  ``final``: the last hybrid run with everything that stayed in place, ``None`` when nothing did.
    ``kept``: signatures that stay in PyTorch by their class, with their number by class.
    """

    suite: str
    target: str
    device: DeviceInfo
    outcomes: dict[str, Outcome]
    gates: tuple[GateResult, ...]
    kernels: dict[str, str]
    final: GateResult | None
    kept: dict[str, int]
    resumed: bool

    @property
    def rolled_back(self) -> tuple[str, ...]:
        """Signatures that passed alone and were taken back."""
        return tuple(s for s, o in self.outcomes.items() if o.passed and s not in self.kernels)

    def status(self, signature: str) -> str:
        """``migrated``, ``rolled back``, or why not: ``failed``, ``unsupported``, ``crashed``, ``timed out``, ``skipped``."""
        outcome = self.outcomes[signature]
        if not outcome.passed:
            return outcome.status
        return "migrated" if signature in self.kernels else "rolled back"

    @property
    def counts(self) -> dict[str, int]:
        """Number of compute signatures by status."""
        return dict(Counter(map(self.status, self.outcomes)))

    @property
    def accepted(self) -> bool:
        """Every compute signature is on the target, and the program with all of them is accepted."""
        return set(self.counts) <= {"migrated"} and self.final is not None and self.final.accepted

    def to_json(self) -> Json:
        return {
            "suite": self.suite,
            "target": self.target,
            **self.device.to_json(),
            "accepted": self.accepted,
            "counts": self.counts,
            "kept": self.kept,
            "final": self.final.to_json() if self.final else None,
            "gates": [g.to_json() for g in self.gates],
            "signatures": [{**o.to_json(), "status": self.status(s)} for s, o in self.outcomes.items()],
        }


def compute_signatures(suite: Suite) -> list[SignatureRecord]:
    """The signatures that have to migrate, in order of their first call."""
    return [record for record in suite.signatures if record.kind == "compute"]


def kept_in_pytorch(suite: Suite) -> dict[str, int]:
    """Number of the signatures that do not migrate, by their class."""
    return dict(Counter(record.kind for record in suite.signatures if record.kind != "compute"))


def test(
    path: Path, settings: Settings, select: Callable[[SignatureRecord], bool], listen: Listener
) -> tuple[DeviceInfo, list[Outcome]]:
    """Judge each selected compute signature alone.  Outcomes in the suite's order."""
    settings, info = settings.resolved()
    records = [r for r in compute_signatures(Suite.open(path)) if select(r)]
    found: dict[str, Outcome] = {}
    with WorkerPool(settings.jobs, memory_mb=settings.memory_mb, extensions=settings.extensions) as pool:
        for outcome in pool.run([settings.job(path, r) for r in records]):
            found[outcome.signature] = outcome
            listen("judged", outcome)
    return info, [found[r.signature.id] for r in records]


def migrate(
    path: Path,
    settings: Settings,
    *,
    resume: bool | None,
    listen: Listener,
    again: Set[str] | None = None,
    gate: Gate | None = None,
) -> MigrationResult:
    """Climb.  ``resume``: go on with the journal (True), begin anew (False), or go on if it is unfinished (None).

    ``again``: signatures to judge anew after a migration that has finished, of which all else is taken over; they are put
    in place last.  ``gate``: one that is kept open, for the same suite, target and device.

    Raises :class:`UsageError` when another process migrates the suite on this device, or the journal belongs to
    something else; :class:`SuiteError` for a damaged suite; what loading the reference raises.
    """
    settings, info = settings.resolved()
    sweep()
    suite = Suite.open(path)
    folder = journal_folder(path, settings.target, settings.device)
    with locked(folder):
        journal = Journal(folder / "journal.jsonl", read=resume is not False or again is not None)
        try:
            if again is None:
                resumed = begin(journal, suite, settings, info, resume)
            else:
                resumed = True
                begin_again(journal, suite, settings, info, again)
            return _Climb(path, suite, settings, info, journal, listen, gate).run(resumed)
        finally:
            journal.close()


def open_gate(path: Path, settings: Settings) -> Gate:
    """For the program of a suite, with resolved settings."""
    setup = HybridSetup(os.path.abspath(path), settings.target, settings.device, settings.extensions, settings.cache)
    return Gate(setup, settings.hybrid_seconds)


def _step_name(added: Iterable[str]) -> str:
    """What a journal calls the step that puts signatures in place."""
    return "+".join(sorted(added))


@dataclass
class _Climb:
    path: Path
    suite: Suite
    settings: Settings
    info: DeviceInfo
    journal: Journal
    listen: Listener
    gate: Gate | None = None
    outcomes: dict[str, Outcome] = field(default_factory=dict)
    kernels: dict[str, str] = field(default_factory=dict)
    gates: list[GateResult] = field(default_factory=list)

    def run(self, resumed: bool) -> MigrationResult:
        records = compute_signatures(self.suite)
        self._recall(records)
        steps = self._steps(records)
        missing = [r for r in records if r.signature.id not in self.outcomes]
        self.listen("recalled", len(records) - len(missing))
        chosen = self.settings
        with (
            WorkerPool(chosen.jobs, memory_mb=chosen.memory_mb, extensions=chosen.extensions) as pool,
            nullcontext(self.gate) if self.gate is not None else open_gate(self.path, chosen) as gate,
        ):
            if missing:
                pool.start(len(missing))
                gate.start()
            judged = pool.run([self.settings.job(self.path, r) for r in missing])
            for name, members in steps:
                self._await(judged, members)
                self._step(gate, name, members)
            for _ in judged:
                raise TapmlError("a worker answered for a signature that is in no step")
            final = self._final(gate)
        result = MigrationResult(
            str(self.path),
            self.settings.target,
            self.info,
            {r.signature.id: self.outcomes[r.signature.id] for r in records},
            tuple(self.gates),
            dict(self.kernels),
            final,
            kept_in_pytorch(self.suite),
            resumed,
        )
        if not self.journal.finished:
            self.journal.append(
                {
                    "event": "finished",
                    "at": now(),
                    "counts": result.counts,
                    "accepted": result.accepted,
                    "final": final.to_json() if final is not None else None,
                }
            )
        return result

    def _steps(self, records: Sequence[SignatureRecord]) -> list[tuple[str, list[SignatureRecord]]]:
        """What is put in place together: a signature, an operator, or everything; what is decided already comes first."""
        if self.settings.gate == "call":
            steps = [(r.signature.operator, [r]) for r in records]
        elif self.settings.gate == "end":
            steps = [("", list(records))] if records else []
        else:
            by_operator: dict[str, list[SignatureRecord]] = {}
            for record in records:
                by_operator.setdefault(record.signature.operator, []).append(record)
            steps = list(by_operator.items())
        decided = {event.get("step"): i for i, event in enumerate(self.journal.of_kind("gate"))}
        return sorted(steps, key=lambda s: decided.get(_step_name(self._passed(s[1])), len(decided)))

    def _passed(self, members: Sequence[SignatureRecord]) -> dict[str, str]:
        """Kernels of those that passed, as far as they were judged."""
        found = (self.outcomes.get(m.signature.id) for m in members)
        return {o.signature: o.artifact for o in found if o is not None and o.passed}

    def _recall(self, records: Sequence[SignatureRecord]) -> None:
        """Take over what the journal knows; a passed signature whose kernel has gone from the cache is judged again."""
        cache = KernelCache(Path(self.settings.cache) if self.settings.cache else None)
        wanted = {r.signature.id for r in records}
        for event in self.journal.of_kind("judged"):
            outcome = self._parsed(Outcome.from_json, event.get("outcome"))
            if outcome.signature in wanted and (not outcome.passed or cache.get(outcome.artifact) is not None):
                self.outcomes[outcome.signature] = outcome

    def _await(self, judged: Iterator[Outcome], members: Sequence[SignatureRecord]) -> None:
        while any(m.signature.id not in self.outcomes for m in members):
            outcome = next(judged)
            self.outcomes[outcome.signature] = outcome
            self.journal.append({"event": "judged", "outcome": outcome.to_json()})
            self.listen("judged", outcome)

    def _step(self, gate: Gate, name: str, members: Sequence[SignatureRecord]) -> None:
        """Put what passed of ``members`` in place, if the program stays within its bounds with it."""
        added = self._passed(members)
        if not added:
            return
        step = _step_name(added)
        for event in self.journal.of_kind("gate"):
            if event.get("step") == step:
                for data in event.get("results", ()):
                    self._take(self._parsed(GateResult.from_json, data))
                return
        results = []
        for result in gate.decide(name, added, self.kernels, self._operator_of):
            results.append(result)
            self.listen("gate", result)
        self.journal.append({"event": "gate", "step": step, "results": [r.to_json() for r in results]})
        for result in results:
            self._take(result)

    def _parsed(self, parse: Callable[[Json], _Parsed], data: Json) -> _Parsed:
        try:
            return parse(data)
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise SuiteError(
                f"{self.journal.path}: expected what a migration wrote, found something else ({error})",
                hint="begin again with --restart",
            ) from error

    def _take(self, result: GateResult) -> None:
        self.gates.append(result)
        self.kernels.update(result.kernels)

    def _operator_of(self, signature: str) -> str:
        return self.suite.signature(signature).signature.operator

    def _final(self, gate: Gate) -> GateResult | None:
        """The last accepted run if it had everything in place, else one more run."""
        if not self.kernels:
            return None
        last = self.gates[-1] if self.gates else None
        if last is not None and last.accepted and last.complete == len(self.kernels):
            return last
        result = gate.check("", {}, self.kernels)
        self.listen("gate", result)
        return result
