"""The score of a suite: signatures over workers, each defect in a process that may die of it, a journal of what is done."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from dataclasses import dataclass, field, replace
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

import tapml.score
from tapml.errors import DeviceError, SuiteError
from tapml.kernels.gpu_platform import own_source
from tapml.migration.journal import Journal, locked, safe_name
from tapml.migration.ladder import compute_signatures
from tapml.migration.outcome import Outcome
from tapml.migration.pool import default_jobs
from tapml.migration.process import Gone, WorkerProcess, unwrap
from tapml.migration.resume import header
from tapml.migration.scratch import sweep
from tapml.migration.settings import Settings
from tapml.score.inputs import CARVED, OTHER, RANDOM
from tapml.score.program import locate
from tapml.score.result import CAUGHT, EXCLUDED, MISSED, Fate, Score, SignatureScore
from tapml.score.trial import AFTERWARDS, IDENTICAL, JUDGED, REFUSED, RUNNING, Opened, Opening, Trial, Tried, setup
from tapml.suite.case import SignatureRecord
from tapml.suite.reader import Suite

Listener = Callable[[str, Any], None]
"""Told of ``("recalled", number)`` of signatures that the journal has, ``("scored", SignatureScore)``, and
``("program", text)`` while the whole program runs with a defect in it."""

_POLL_SECONDS = 0.05
_STARTS = 3
_DEATHS = 3
"""Inputs on which a defect may end the process; on those that remain it is not tried, and counted as not caught there."""
_PATIENCE = 60.0
"""Seconds that any defect may take, and that many times as long as the healthy candidate took, before it is hung."""


@dataclass(frozen=True)
class Options:
    """``limit``: defects a signature at most.  ``program``: defects tried in the whole program.  ``select``: which
    signatures.  ``restart``: begin a new journal."""

    settings: Settings
    seed: int = 0
    limit: int = 8
    program: int = 2
    select: Callable[[SignatureRecord], bool] = lambda record: True
    restart: bool = False


def score(path: Path, options: Options, listen: Listener = lambda kind, value: None) -> Score:
    """Score the suite at ``path``, going on with what its journal has of the same seed, limit, tapml and device.

    Raises :class:`SuiteError` for a damaged suite, :class:`DeviceError` without a device, and :class:`UsageError` when
    another process scores the suite there, or nothing can be written.
    """
    begin = time.perf_counter()
    settings, info = options.settings.resolved()
    sweep()
    suite = Suite.open(path)
    records = [r for r in compute_signatures(suite) if options.select(r)]
    folder = score_folder(path, settings.target, settings.device)
    with (
        locked(folder, "scored", "score"),
        closing(Journal(folder / "journal.jsonl", read=not options.restart)) as journal,
    ):
        known = _begin(journal, suite, settings, options)
        known = {s: found for s, found in known.items() if s in {r.signature.id for r in records}}
        listen("recalled", len(known))
        missing = [r for r in records if r.signature.id not in known]
        for found in _scored(path, settings, options, missing):
            journal.append({"event": "scored", "score": found.to_json()})
            known[found.signature] = found
            listen("scored", found)
        scores = tuple(known[r.signature.id] for r in records)
        program, why_not = locate(path, settings, options.seed, options.program, scores, journal, listen)
    return Score(
        str(path),
        settings.target,
        info,
        options.seed,
        options.limit,
        scores,
        program,
        why_not,
        time.perf_counter() - begin,
    )


def score_folder(suite: Path, target: str, device: str) -> Path:
    """``SUITE/scores/<target>-<device>``."""
    return suite / "scores" / safe_name(target, device)


def _begin(journal: Journal, suite: Suite, settings: Settings, options: Options) -> dict[str, SignatureScore]:
    """Make the journal ready; what it has already."""
    source = own_source(Path(tapml.score.__file__).parent, Path(tapml.score.__file__).parent.parent / "numerics")
    wanted = {**header(suite, settings), "seed": options.seed, "limit": options.limit, "source": source}
    found = journal.header
    if found is None or any(found.get(name) != value for name, value in wanted.items()):
        journal.restart(wanted)
        return {}
    try:
        known = [SignatureScore.from_json(event["score"]) for event in journal.of_kind("scored")]
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise SuiteError(
            f"{journal.path}: expected what a score wrote, found something else ({error})",
            hint="begin again with --restart",
        ) from error
    return {s.signature: s for s in known}


# -- one signature ------------------------------------------------------------------------------------------------------

Message = Opening | Trial
Script = Generator[tuple[Message, float], Any, SignatureScore]
"""Yields what to ask a worker and the seconds that answering may take; is sent the answer, or the :class:`Gone` of a worker
that was replaced; returns the score."""


def _script(path: Path, settings: Settings, options: Options, record: SignatureRecord) -> Script:
    begin = time.perf_counter()
    signature, operator = record.signature.id, record.signature.operator
    opening = Opening(settings.job(path, record), options.seed, options.limit)
    answer: Opened | Gone = yield opening, settings.seconds
    if isinstance(answer, Gone) and answer.died:
        answer = yield opening, settings.seconds
    if isinstance(answer, Gone):
        answer = Opened(Outcome(signature, operator, answer.status, answer.message))
    fates: list[Fate] = []
    doubtful: tuple[str, ...] = ()
    seconds = min(settings.seconds, _PATIENCE * (1 + answer.seconds))
    for defect in answer.defects:
        tried, died, spoilt = yield from _tried(Trial(opening, defect), seconds)
        doubtful = doubtful or tried.doubtful
        fates.append(_fate(signature, operator, tried, died, spoilt))
    outcome = answer.outcome
    return SignatureScore(
        signature,
        operator,
        outcome.status,
        outcome.message,
        record.cases,
        answer.inputs,
        answer.sites,
        tuple(f"{name}: {why}" for name, why in answer.alarms),
        doubtful,
        tuple(fates),
        outcome.artifact,
        time.perf_counter() - begin,
    )


def _tried(trial: Trial, seconds: float) -> Generator[tuple[Message, float], Any, tuple[Tried, dict[str, str], str]]:
    """(what came of a defect, how it ended the process by the input that it did so on, how it ended those that ran
    after it)."""
    died: dict[str, str] = {}
    spoilt, suspect = "", None
    while True:
        answer: Tried | Gone = yield replace(trial, died=tuple(died), alone=bool(spoilt)), seconds
        if isinstance(answer, Tried):
            return answer, died, spoilt
        doing = answer.message.partition(" while ")[2]
        if answer.died and not died and suspect != doing:
            suspect = doing  # a crash counts when it happens twice, as anywhere
            continue
        how = f"{answer.status}: {answer.message}"
        if doing.startswith(RUNNING):
            died[doing.removeprefix(RUNNING)] = how
            if len(died) >= _DEATHS or not answer.died:
                return Tried(JUDGED, trial.defect), died, spoilt
        elif doing == AFTERWARDS and not spoilt:
            spoilt = how
        else:
            return Tried(REFUSED, trial.defect, how), died, spoilt


def _fate(signature: str, operator: str, tried: Tried, died: dict[str, str], ended: str) -> Fate:
    wrong, groups = dict(tried.wrong), dict(tried.groups)
    for name, how in died.items():
        wrong[name] = how
        groups[name] = next((g for g in (CARVED, RANDOM) if name.startswith(g)), OTHER)
    fate, reason = MISSED, ""
    spoilt = (*tried.spoilt, ended) if ended else tried.spoilt
    if tried.status in (IDENTICAL, REFUSED) and not died:
        fate, reason = EXCLUDED, tried.status
    elif CARVED in groups.values():
        fate = CAUGHT
    elif not wrong and (tried.same or tried.noise):
        fate, reason = EXCLUDED, "same" if tried.same else "noise"
    return Fate(signature, operator, tried.defect, fate, reason, wrong, groups, tried.tried + len(died), spoilt)


# -- workers ------------------------------------------------------------------------------------------------------------


@dataclass
class _Slot:
    worker: WorkerProcess
    script: Script | None = None
    pending: tuple[Message, float] | None = None
    ready: bool = False
    asked: bool = field(default=False)


def _scored(
    path: Path, settings: Settings, options: Options, records: list[SignatureRecord]
) -> Iterator[SignatureScore]:
    """Scores of signatures as they come, in any order.  Raises the TapmlError of a worker."""
    jobs = min(settings.jobs or default_jobs(), len(records))
    queue = deque(records)
    slots = [_Slot(_worker(settings)) for _ in range(jobs)]
    failed = 0
    try:
        while queue or any(s.script for s in slots):
            for slot in slots:
                if slot.script is None and queue:
                    slot.script = _script(path, settings, options, queue.popleft())
                    slot.pending = next(slot.script)
                if slot.ready and slot.pending is not None and not slot.asked:
                    message, seconds = slot.pending
                    slot.worker.send(message, seconds=seconds, memory_mb=settings.memory_mb)
                    slot.asked = True
            wait([s.worker.connection for s in slots], _POLL_SECONDS)
            for slot in slots:
                try:
                    answer = slot.worker.poll()
                    if answer is None:
                        continue
                    value: Any = unwrap(answer)
                except Gone as gone:
                    slot.worker.kill()
                    failed = 0 if slot.ready else failed + 1
                    if failed >= _STARTS:
                        raise DeviceError(
                            f"{_STARTS} worker processes in a row {gone.status} before they were ready: {gone.message}",
                            hint="is there enough memory? try --jobs 1",
                        ) from None
                    value, started = gone, slot.ready
                    slot.worker, slot.ready = _worker(settings), False
                    if not started:
                        continue
                else:
                    if not slot.ready:
                        slot.ready, failed = True, 0
                        continue
                slot.asked = False
                assert slot.script is not None
                try:
                    slot.pending = slot.script.send(value)
                except StopIteration as end:
                    slot.script, slot.pending = None, None
                    yield end.value
    finally:
        for slot in slots:
            slot.worker.kill()


def _worker(settings: Settings) -> WorkerProcess:
    return WorkerProcess(setup, (settings.memory_mb, settings.extensions), "tapml-score")
