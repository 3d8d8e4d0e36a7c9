"""Defects in the whole program: does the migration's bisection name the operator that has one?"""

from __future__ import annotations

import os
import random
import tempfile
import zlib
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tapml.errors import TapmlError
from tapml.kernels.plan import Artifact
from tapml.migration.cache import KernelCache
from tapml.migration.gate import Gate
from tapml.migration.hybrid import HybridSetup
from tapml.migration.journal import Journal
from tapml.migration.process import Gone, WorkerProcess
from tapml.migration.scratch import scratch
from tapml.migration.settings import Settings
from tapml.score.result import CAUGHT, Fate, Located, SignatureScore
from tapml.score.trial import Opening, Trial, setup
from tapml.suite.reader import Suite

_PATIENCE = 30.0
"""Seconds that the program may take with a defect in it, and five times what it takes without: some never stop."""


def locate(
    path: Path,
    settings: Settings,
    seed: int,
    count: int,
    scores: Sequence[SignatureScore],
    journal: Journal,
    listen: Callable[[str, Any], None],
) -> tuple[tuple[Located, ...], str]:
    """(what the program says of ``count`` caught defects, why it says nothing).

    All operators are in place at once, as with ``tapml migrate --gate end``, one of them with the defect.  When the
    program's outputs leave their bounds, bisection over the operators names one.  Nothing is said of a suite whose program
    cannot be run again, or that is not accepted with healthy kernels.
    """
    chosen = _chosen(scores, seed, count)
    if not chosen:
        return (), "none was asked for" if not count else "no defect was caught"
    known = {(e["located"]["signature"], e["located"]["defect"]): e["located"] for e in journal.of_kind("located")}
    done = {key: Located(**value) for key, value in known.items()}
    missing = [f for f in chosen if (f.signature, f.defect.id) not in done]
    if missing:
        try:
            with tempfile.TemporaryDirectory(dir=scratch(), prefix="score-") as cache:
                bench = _Bench(path, settings, seed, scores, Path(cache))
                with bench:
                    for fate in missing:
                        listen("program", f"the program with {fate.defect.id} of {fate.operator} in it")
                        found = bench.located(fate)
                        journal.append({"event": "located", "located": asdict(found)})
                        done[fate.signature, fate.defect.id] = found
        except (TapmlError, Gone) as error:
            found_so_far = tuple(done[f.signature, f.defect.id] for f in chosen if (f.signature, f.defect.id) in done)
            return found_so_far, error.message
    return tuple(done[f.signature, f.defect.id] for f in chosen), ""


def _chosen(scores: Sequence[SignatureScore], seed: int, count: int) -> list[Fate]:
    """Caught defects, of one operator after another, drawn with ``seed``; none that ended the process."""
    draw = random.Random(zlib.crc32(f"{seed} program".encode()))
    by_operator: dict[str, list[Fate]] = {}
    for score in scores:
        for fate in score.fates:
            if fate.fate == CAUGHT and not fate.spoilt and not _ended(fate):
                by_operator.setdefault(fate.operator, []).append(fate)
    queues = [by_operator[operator] for operator in sorted(by_operator)]
    for queue in queues:
        draw.shuffle(queue)
    draw.shuffle(queues)
    found: list[Fate] = []
    while queues and len(found) < count:
        for queue in list(queues):
            if len(found) < count:
                found.append(queue.pop())
            if not queue:
                queues.remove(queue)
    return found


def _ended(fate: Fate) -> bool:
    return any(text.startswith(("crashed", "timed out")) for text in fate.wrong.values())


class _Bench:
    """A gate, a worker that compiles defects, and a cache for both that is thrown away."""

    def __init__(
        self, path: Path, settings: Settings, seed: int, scores: Sequence[SignatureScore], cache: Path
    ) -> None:
        self._suite = Suite.open(path)
        self._path, self._settings, self._seed = path, settings, seed
        self._cache = KernelCache(cache)
        usual = KernelCache(Path(settings.cache) if settings.cache else None)
        self._kernels: dict[str, str] = {}
        for score in scores:
            artifact = usual.get(score.artifact) if score.status == "passed" else None
            if artifact is not None:
                self._cache.put(score.artifact, artifact)
                self._kernels[score.signature] = score.artifact
        where = HybridSetup(os.path.abspath(path), settings.target, settings.device, settings.extensions, str(cache))
        self._gate = Gate(where, settings.hybrid_seconds)
        self._worker: WorkerProcess | None = None
        self._sound = False

    def __enter__(self) -> _Bench:
        self._gate.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._gate.__exit__()
        if self._worker is not None:
            self._worker.kill()

    def located(self, fate: Fate) -> Located:
        """Raises :class:`TapmlError` when the healthy program is not accepted."""
        if not self._sound:
            healthy = self._gate.check("", {}, self._kernels)
            if not healthy.accepted:
                raise TapmlError(f"the program is not accepted with healthy kernels: {healthy.explanation}")
            self._sound = True
            self._gate.limit(_PATIENCE + 5 * healthy.seconds)
        key = f"{zlib.crc32(fate.defect.id.encode()):08x}".rjust(64, "d")
        self._cache.put(key, self._planted(fate))
        operator_of = {s: self._suite.signature(s).signature.operator for s in self._kernels}
        kernels = {s: key if s == fate.signature else k for s, k in self._kernels.items()}
        result = self._gate.check("", kernels, {})
        if result.accepted:
            return Located(fate.signature, fate.operator, fate.defect.id, False, "", result.explanation)
        _, found = self._gate.operator_at_fault(kernels, {}, operator_of.__getitem__)
        return Located(fate.signature, fate.operator, fate.defect.id, True, found, result.explanation)

    def _planted(self, fate: Fate) -> Artifact:
        if self._worker is None:
            self._worker = WorkerProcess(setup, (self._settings.memory_mb, self._settings.extensions), "tapml-score")
        job = self._settings.job(self._path, self._suite.signature(fate.signature))
        trial = Trial(Opening(job, self._seed, 0), fate.defect, export=True)
        artifact: Artifact = self._worker.ask(trial, seconds=self._settings.seconds)
        return artifact
