"""Many signatures over a few workers: whatever a candidate does to its worker costs its own signature only.

A crash counts when it happens twice, the second time in a new process: so neither a process that was killed from
outside (by a person, or by the kernel for want of memory) nor one whose memory an earlier candidate had spoilt costs an
operator.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing.connection import wait

from tapml.errors import DeviceError, ExtensionError
from tapml.migration.job import Job, guard_threads, judge_signature
from tapml.migration.outcome import Outcome
from tapml.migration.process import Gone, WorkerProcess, unwrap
from tapml.migration.trying import prepare_worker

_POLL_SECONDS = 0.05
_STARTS = 3
"""Workers that may die in a row before they are ready."""


def default_jobs() -> int:
    """One worker for each core that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _setup(sharing: int, memory_mb: int, extensions: tuple[str, ...]) -> Callable[[Job], Outcome]:
    os.environ["TVM_NUM_THREADS"] = str(max(1, default_jobs() // max(1, sharing)))
    guard_threads(sharing)
    prepare_worker(memory_mb, extensions)
    return judge_signature


@dataclass
class _Slot:
    """``job``: what the worker is doing.  ``reserved``: what it shall do first, as ``first`` happened to another."""

    worker: WorkerProcess
    job: Job | None = None
    ready: bool = False
    reserved: Job | None = None
    first: str = ""


class WorkerPool:
    """``jobs`` workers that judge signatures.  A context manager: leaving it ends the workers.

    ``sharing``: how many workers there are on the cores, those of other processes included; ``None``: these alone.
    """

    def __init__(
        self,
        jobs: int | None = None,
        *,
        memory_mb: int = 4096,
        extensions: tuple[str, ...] = (),
        sharing: int | None = None,
    ) -> None:
        self.jobs = jobs or default_jobs()
        self._sharing = sharing or self.jobs
        self._memory_mb = memory_mb
        self._extensions = extensions
        self._slots: list[_Slot] = []
        self._failed_starts = 0

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
        """Outcomes as they come, in any order.  Raises the TapmlError of a worker: a bad suite, device or file."""
        queue = deque(jobs)
        self.start(len(queue))
        while queue or any(s.job or s.reserved for s in self._slots):
            for slot in self._slots:
                if slot.ready and slot.job is None and (slot.reserved or queue):
                    slot.job, slot.reserved = slot.reserved or queue.popleft(), None
                    slot.worker.send(slot.job, seconds=slot.job.seconds, memory_mb=slot.job.memory_mb)
            wait([s.worker.connection for s in self._slots], _POLL_SECONDS)
            for index in range(len(self._slots)):
                outcome = self._attend(index)
                if outcome is not None:
                    yield outcome

    def _attend(self, index: int) -> Outcome | None:
        """Look after one worker: its outcome if it has one.  One that is gone, or not to be trusted, is replaced."""
        slot = self._slots[index]
        try:
            answer = slot.worker.poll()
            if answer is None:
                return None
            value = unwrap(answer)
        except Gone as gone:
            output = gone.output or slot.worker.tail()
            return self._replace(index, Gone(gone.status, gone.message, output, died=gone.died))
        if not slot.ready:
            slot.ready, self._failed_starts = True, 0
            return None
        job, slot.job = slot.job, None
        if job is None:
            return None
        outcome: Outcome = value
        if slot.first:
            outcome = replace(
                outcome, notes=(*outcome.notes, f"judged in a second process: the first was {slot.first}")
            )
            slot.first = ""
        if not outcome.passed and job.extensions:  # what the user's code left behind is not for the next operator
            slot.worker.kill()
            self._slots[index] = self._new_slot()
        return outcome

    def _replace(self, index: int, gone: Gone) -> Outcome | None:
        slot = self._slots[index]
        slot.worker.kill()
        if not slot.ready:
            self._failed_starts += 1
            self._check_start(slot.worker.stage, gone)
        fresh = self._slots[index] = self._new_slot()
        fresh.reserved, fresh.first = slot.reserved, slot.first
        if slot.job is None:
            return None
        if gone.died and not slot.first:
            fresh.reserved, fresh.first = slot.job, gone.message
            return None
        fresh.first = ""
        message = (
            gone.message if not gone.died else f"{gone.message} (and before that, in another process: {slot.first})"
        )
        if slot.first == gone.message:
            message = f"{gone.message}, in each of two processes"
        job = slot.job
        return Outcome(job.signature, job.operator, gone.status, message, output=gone.output, boundary=job.boundary)

    def _check_start(self, stage: str, gone: Gone) -> None:
        last = gone.output[-1] if gone.output else ""
        if stage.startswith("loading ") and self._failed_starts > 1:
            raise ExtensionError(
                f"the process that loads converters {gone.status}: {gone.message}",
                hint=f"it printed: {last}" if last else "import the file in plain Python first",
            )
        if self._failed_starts >= _STARTS:
            raise DeviceError(
                f"{_STARTS} worker processes in a row {gone.status} before they were ready: {gone.message}",
                hint=f"the last one printed: {last}" if last else "is there enough memory? try --jobs 1",
            )

    def _new_slot(self) -> _Slot:
        setup = partial(_setup, self._sharing, self._memory_mb, self._extensions)
        return _Slot(WorkerProcess(setup, (), "tapml-worker"))
