"""Boundary cases through workers, and what they say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tapml.boundary.neighbours import Neighbour
from tapml.migration.ladder import Listener
from tapml.migration.outcome import WRONG, Outcome
from tapml.migration.pool import WorkerPool
from tapml.migration.settings import Settings
from tapml.platform import DeviceInfo
from tapml.suite.case import SignatureRecord


@dataclass(frozen=True)
class BoundaryResult:
    """``outcomes``: of the calls that PyTorch executes; ``refused``: number of those that it does not."""

    device: DeviceInfo
    outcomes: list[Outcome]
    refused: int

    @property
    def wrong(self) -> list[Outcome]:
        """What was executed or compiled and is not right, crashes and time-outs included."""
        return [o for o in self.outcomes if o.status in WRONG]


def judge_boundaries(
    suite: Path, settings: Settings, chosen: Sequence[tuple[SignatureRecord, Neighbour]], listen: Listener
) -> BoundaryResult:
    """Judge neighbours of carved calls (see :func:`tapml.boundary.neighbours.choose`) on a device, in the order given.

    Raises as :func:`tapml.migration.ladder.test`.
    """
    settings, info = settings.resolved()
    jobs = [replace(settings.job(suite, record), boundary=neighbour.name) for record, neighbour in chosen]
    found: dict[tuple[str, str], Outcome] = {}
    with WorkerPool(settings.jobs, memory_mb=settings.memory_mb, extensions=settings.extensions) as pool:
        for outcome in pool.run(jobs):
            found[outcome.signature, outcome.boundary] = outcome
            listen("judged", outcome)
    outcomes = [found[job.signature, job.boundary] for job in jobs]
    executed = [o for o in outcomes if o.status != "refused"]
    return BoundaryResult(info, executed, len(outcomes) - len(executed))
