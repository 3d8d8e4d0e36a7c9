"""Many signatures over a few workers: whatever a candidate does to its worker costs its own signature only."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import wait
from typing import Any

from tapml.migration.job import Job, guard_threads, judge_signature
from tapml.migration.outcome import Outcome
from tapml.migration.process import Gone, WorkerProcess, unwrap
from tapml.migration.worker import limit_address_space

_POLL_SECONDS = 0.05


def default_jobs() -> int:
    """One worker for each core that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _setup(jobs: int, memory_mb: int) -> Callable[[Job], Outcome]:
    os.environ["TVM_NUM_THREADS"] = str(max(1, default_jobs() // max(1, jobs)))
    guard_threads(jobs)
    limit_address_space(memory_mb * 2)
    return judge_signature


@dataclass
class _Slot:
    worker: WorkerProcess
    job: Job | None = None
    ready: bool = False


class WorkerPool:
    """``jobs`` workers that judge signatures.  A context manager: leaving it ends the workers."""

    def __init__(self, jobs: int | None = None, *, memory_mb: int = 4096) -> None:
        self.jobs = jobs or default_jobs()
        self._memory_mb = memory_mb
        self._slots: list[_Slot] = []

    def __enter__(self) -> WorkerPool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End all workers now."""
        for slot in self._slots:
            slot.worker.kill()
        self._slots = []

    def start(self, count: int | None = None) -> None:
        """Start workers ahead of need."""
        while len(self._slots) < min(self.jobs, count or self.jobs):
            self._slots.append(self._new_slot())

    def run(self, jobs: Iterable[Job]) -> Iterator[Outcome]:
        """Outcomes as they come, in any order.  Raises the TapmlError of a worker that finds the suite or device bad."""
        queue = deque(jobs)
        self.start(len(queue))
        while queue or any(s.job for s in self._slots):
            for slot in self._slots:
                if slot.ready and slot.job is None and queue:
                    slot.job = queue.popleft()
                    slot.worker.send(slot.job, seconds=slot.job.seconds, memory_mb=slot.job.memory_mb)
            wait([s.worker.connection for s in self._slots], _POLL_SECONDS)
            for index, slot in enumerate(self._slots):
                try:
                    answer = slot.worker.poll()
                    if answer is None:
                        continue
                    value = unwrap(answer)
                except Gone as gone:
                    job = slot.job
                    slot.worker.kill()
                    self._slots[index] = self._new_slot()
                    if job is None:
                        raise
                    yield _lost(job, gone)
                    continue
                if not slot.ready:
                    slot.ready = True
                elif slot.job is not None:
                    slot.job = None
                    yield value

    def _new_slot(self) -> _Slot:
        return _Slot(WorkerProcess(partial(_setup, self.jobs, self._memory_mb), (), "tapml-worker"))


def _lost(job: Job, gone: Gone) -> Outcome:
    return Outcome(job.signature, job.operator, gone.status, gone.message, output=gone.output)
