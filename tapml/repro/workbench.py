"""The parent's end of trials: a worker that is started again when a candidate ends it."""

from __future__ import annotations

import time
from dataclasses import dataclass
from types import TracebackType

from tapml.errors import TapmlError
from tapml.migration.process import Gone, WorkerProcess
from tapml.repro.kind import Kind, essence
from tapml.repro.subject import Subject
from tapml.repro.trial import Finding, Trial, setup


class OutOfTime(Exception):
    """The time that was given has been used."""


@dataclass
class Workbench:
    """Tries subjects by one route on one device; a context manager.

    ``seconds`` and ``memory_mb`` limit one trial.  ``extensions``: files of the user that register converters.
    """

    target: str
    device: str
    extensions: tuple[str, ...] = ()
    seconds: float = 120.0
    memory_mb: int = 6144
    seed: int = 0
    _worker: WorkerProcess | None = None

    def __enter__(self) -> Workbench:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._worker is not None:
            self._worker.kill()
            self._worker = None

    def attempt(
        self,
        subject: Subject,
        route: str,
        *,
        listing: bool = False,
        stop: str = "",
        deadline: float | None = None,
    ) -> Finding:
        """What comes of it; a crash or a hang of the worker is a finding too.

        ``deadline`` (of ``time.monotonic``): no answer by then raises :class:`OutOfTime`.  Raises the
        :class:`TapmlError` of a worker that cannot work: a missing device, a file of converters that cannot be loaded.
        """
        trial = Trial(subject, route, self.target, self.device, self.seed, listing, stop)
        if self._worker is None:
            self._worker = WorkerProcess(setup, (self.memory_mb, self.extensions), "tapml-repro")
        worker = self._worker
        try:
            worker.wait_ready()
        except Gone as gone:
            self._worker = None
            raise TapmlError(
                f"the process that tries candidates {gone.status} before it was ready: {gone.message}",
                hint=f"it printed: {gone.output[-1]}" if gone.output else "is there enough memory?",
            ) from gone
        seconds = self.seconds
        if deadline is not None:
            seconds = min(seconds, max(deadline - time.monotonic(), 0.0))
            if seconds <= 0:
                raise OutOfTime
        try:
            answer: Finding = worker.ask(trial, seconds=seconds, memory_mb=self.memory_mb)
            return answer
        except Gone as gone:
            worker.kill()
            self._worker = None
            if gone.status == "timed out" and seconds < self.seconds:
                raise OutOfTime from None
            return _died(gone)
        except TapmlError:
            raise
        except BaseException:
            worker.kill()
            self._worker = None
            raise


def _died(gone: Gone) -> Finding:
    how, _, doing = gone.message.partition(" while ")
    stage = next((stage for words, stage in _DOING if doing.startswith(words)), "run")
    if doing.startswith(_PYTORCH):
        return Finding("rejected", None, f"PyTorch did not survive it: {gone.message}", output=gone.output)
    kind = Kind(stage, gone.status, words=essence(how))
    return Finding(gone.status, kind, gone.message, output=gone.output)


_PYTORCH = ("executing the call in PyTorch", "computing the call in float64")
_DOING = (("lowering", "convert"), ("compiling", "compile"), ("running", "run"))
