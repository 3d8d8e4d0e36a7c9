"""What is known of a failing signature: its outcome on each device, and what PyTorch says today."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from tapml.boundary.neighbours import make
from tapml.migration.job import Job
from tapml.migration.ladder import Listener
from tapml.migration.outcome import WRONG, Outcome
from tapml.migration.pool import WorkerPool
from tapml.migration.settings import Settings
from tapml.numerics.judge import judge
from tapml.platform import DeviceInfo, all_devices
from tapml.suite.call import execute
from tapml.suite.case import Case, SignatureRecord
from tapml.suite.reader import Suite


@dataclass(frozen=True)
class Cell:
    """The outcome on one device."""

    target: str
    device: DeviceInfo
    outcome: Outcome

    def status(self, route: str) -> str:
        """Of one route: a signature may be wrong by one and then right by the next."""
        if not route or self.outcome.route == route:
            return self.outcome.status
        found = [a.status for a in self.outcome.attempts if a.route == route]
        return found[0] if found else self.outcome.status

    def wrong(self, route: str) -> bool:
        return self.status(route) in WRONG

    def right(self, route: str) -> bool:
        """Executed there, and judged to be right."""
        return self.status(route) == "passed" and self.outcome.launches > 0


@dataclass(frozen=True)
class Evidence:
    """``cells``: the device in question first.  ``route``: the way by which it fails there.  ``recorded``: what is wrong
    with the recorded results when PyTorch computes them again on this machine, empty if nothing.  ``off``: what the judge
    says of PyTorch's results against float64, empty if they are what rounding explains.  ``plain``: the outcome on the
    device in question without merged functions and without a schedule of ours; none where it is not wrong there."""

    record: SignatureRecord
    cells: tuple[Cell, ...]
    route: str
    recorded: str
    off: str
    plain: Cell | None = None

    @property
    def accused(self) -> Cell:
        return self.cells[0]


def places(target: str, accused: DeviceInfo) -> list[tuple[str, DeviceInfo]]:
    """(target, device): the one in question, whichever it is, and then all others but those that stand aside."""
    others = [
        (name, info)
        for name, found, _ in all_devices()
        for info in found
        if (name, info.name) != (target, accused.name) and not info.aside
    ]
    return [(target, accused), *others]


def gather(
    path: Path,
    settings: Settings,
    where: Sequence[tuple[str, DeviceInfo]],
    record: SignatureRecord,
    boundary: str,
    listen: Listener,
) -> Evidence:
    """Judge one signature (or its neighbour ``boundary``) in each of the :func:`places`, the one in question first.

    ``settings`` are resolved ones.
    """
    cells = []
    for target, device in where:
        job = replace(settings.job(path, record), target=target, device=device.name, boundary=boundary)
        cells.append(Cell(target, device, _outcome(job, settings)))
        listen("judged", cells[-1].outcome)
    route = _failing_route(cells[0].outcome)
    plain = None
    if cells[0].wrong(route):
        job = replace(settings.job(path, record), boundary=boundary, plain=True)
        plain = replace(cells[0], outcome=_outcome(job, settings))
    suite = Suite.open(path)
    cases = [suite.case(case) for case in record.cases]
    if boundary:
        cases = [make(cases[0], boundary)]
    return Evidence(record, tuple(cells), route, _recorded(cases), _off(cells), plain)


def _outcome(job: Job, settings: Settings) -> Outcome:
    with WorkerPool(1, memory_mb=settings.memory_mb, extensions=settings.extensions) as pool:
        (outcome,) = pool.run([job])  # a pool each: a process has one device
    return outcome


def _failing_route(outcome: Outcome) -> str:
    """The first route that gave something wrong; empty for a crash, and when nothing is wrong."""
    if outcome.attempts and outcome.attempts[0].status in WRONG:
        return outcome.attempts[0].route
    return outcome.route


def _recorded(cases: list[Case]) -> str:
    """The judge's words, where today's results and the recorded ones cannot both be right: each is judged by the other,
    since a verdict sides with float64 when its reference is off."""
    for case in cases:
        with torch.no_grad():
            now = execute(case.signature, case.tensors)
        for what, reference, candidate in (
            ("today's results", case.results, now),
            ("the recorded ones", now, case.results),
        ):
            verdict = judge(case.signature, case.tensors, reference, candidate)
            if not verdict.passed:
                return f"case {case.id}: {what} are wrong: {verdict.explanation}"
    return ""


def _off(cells: list[Cell]) -> str:
    """The judge's words, where the reference is not near float64."""
    for cell in cells:
        for warning in cell.outcome.warnings:
            if warning.startswith(("reference-off", "reference-nonfinite", "better-than-reference")):
                return warning
    return ""
