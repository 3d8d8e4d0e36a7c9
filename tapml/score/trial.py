"""One signature in a worker: the healthy candidate on all inputs, then one defect after another."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import torch

from tapml.errors import CompileError, DeviceError, MissingFeatureError, TapmlError, UnsupportedError
from tapml.kernels.plan import Artifact
from tapml.lowering.lower import lower
from tapml.migration.blame import described, same_bits
from tapml.migration.job import Clock, Job, judge_signature, open_device, open_suite, run_case
from tapml.migration.outcome import Outcome
from tapml.migration.trying import Watched, prepare_worker
from tapml.migration.worker import report_stage
from tapml.numerics.oracle import Oracle, float64_results
from tapml.platform import Executable
from tapml.score.defect import Defect, sample
from tapml.score.inputs import CARVED, RANDOM, Input, is_large, other_inputs, random_inputs
from tapml.score.mutate_kernel import kernel_defects, plant_in_kernel
from tapml.score.mutate_module import in_tir, module_defects, plant_in_module, tvm_target
from tapml.suite.call import Signature

JUDGED, IDENTICAL, REFUSED = "judged", "identical", "refused"
RUNNING = "running it on "
"""How the stage begins in which a candidate is executed; what follows is the name of the input."""
AFTERWARDS = "running healthy operators after it"

_UNSUPPORTED = "unsupported: "

Results = tuple[torch.Tensor, ...]


@dataclass(frozen=True)
class Opening:
    """Ask for the healthy candidate of a signature, and the defects that will be planted in it."""

    job: Job
    seed: int
    limit: int


@dataclass(frozen=True)
class Trial:
    """Ask what becomes of one defect.  ``died``: inputs on which it ended the process before, not to be tried again;
    ``alone``: nothing healthy is run after it.

    ``export``: give the artifact with the defect in it, and execute nothing.
    """

    opening: Opening
    defect: Defect
    died: tuple[str, ...] = ()
    alone: bool = False
    export: bool = False


@dataclass(frozen=True)
class Opened:
    """``outcome``: of the healthy candidate, as ``tapml test`` gives it.  ``alarms``: inputs on which it is judged wrong,
    with the explanation; ``doubtful``: such inputs among the other ones, which are not used.  ``inputs``: how many were
    judged, by group.  ``sites``: defects that could be planted.  ``seconds``: of one look at all carved and random inputs."""

    outcome: Outcome
    alarms: tuple[tuple[str, str], ...] = ()
    inputs: dict[str, int] = field(default_factory=dict)
    sites: int = 0
    defects: tuple[Defect, ...] = ()
    seconds: float = 0.0


@dataclass(frozen=True)
class Tried:
    """What became of a defect.

    ``status``: ``judged``, ``identical`` (the compiler makes the same code of it) or ``refused`` (it does not compile).
    ``wrong``: explanation by input that caught it; ``groups``: those inputs' groups.  ``same``: bit-identical results on
    every input.  ``noise``: on inputs where its results differ, its error is that of the healthy candidate or of PyTorch.
    ``spoilt``: healthy operators whose verdict changed when they ran after it in the same process.
    """

    status: str
    defect: Defect
    message: str = ""
    wrong: dict[str, str] = field(default_factory=dict)
    groups: dict[str, str] = field(default_factory=dict)
    same: bool = False
    noise: bool = False
    tried: int = 0
    doubtful: tuple[str, ...] = ()
    spoilt: tuple[str, ...] = ()


def setup(memory_mb: int, extensions: tuple[str, ...]) -> Callable[[Opening | Trial], Opened | Tried | Artifact]:
    """For a worker: what answers in it."""
    os.environ["TVM_NUM_THREADS"] = "1"
    torch.set_num_threads(1)  # each defect is tried in a process of one core
    prepare_worker(memory_mb, extensions)
    return Bench().answer


@dataclass
class _Healthy:
    """An executable that is right, with what it gave."""

    name: str
    executable: Executable
    given: tuple[torch.Tensor, ...]
    results: Results

    def still(self) -> bool:
        """Whether it still gives the same."""
        found = self.executable.run(self.given)
        return all(same_bits(a, b) for a, b in zip(found.results, self.results, strict=True))


@dataclass
class Bench:
    """One signature is open at a time; of the one before it, one healthy call is kept."""

    _opening: Opening | None = None
    _opened: _Signature | None = None
    _neighbour: _Healthy | None = None

    def answer(self, message: Opening | Trial) -> Opened | Tried | Artifact:
        opening = message if isinstance(message, Opening) else message.opening
        if self._opening != opening:
            if self._opened is not None and self._opened.sample is not None:
                self._neighbour = self._opened.sample
            self._opening, self._opened = opening, None
            self._opened = _Signature(opening)
        assert self._opened is not None
        if isinstance(message, Opening):
            return self._opened.opened
        if message.export:
            return self._opened.planted(message.defect)[0]
        return self._opened.attempt(message, self._neighbour)


class _Signature:
    """Everything about one signature that its defects share."""

    def __init__(self, opening: Opening) -> None:
        self._job, self._seed = opening.job, opening.seed
        self.sample: _Healthy | None = None
        self._others: list[Input] | None = None
        self._doubtful: tuple[str, ...] = ()
        self._truths: dict[str, Oracle] = {}
        self._healthy: dict[str, Results] = {}
        outcome = judge_signature(self._job)
        self.opened = Opened(outcome)
        if not outcome.passed:
            alarms = tuple((f"carved {c.case}", c.explanation) for c in outcome.cases if not c.passed)
            self.opened = Opened(outcome, alarms, {CARVED: len(outcome.cases)})
            return
        record = open_suite(self._job.suite).signature(self._job.signature)
        self._signature: Signature = record.signature
        cases = [open_suite(self._job.suite).case(case) for case in record.cases]
        self._platform, self._device = open_device(self._job.target, self._job.device)
        report_stage("lowering it")
        plain = lower(self._signature, self._job.target, outcome.route)
        self._lowered = in_tir(plain, tvm_target(self._platform, self._job.device))
        self._artifact = self._platform.build(self._lowered, self._job.device)
        self._executable = self._device.load(self._artifact, self._signature)
        carved = [Input(CARVED, f"carved {case.id}", case) for case in cases]
        drawn = list(random_inputs(cases, self._seed))
        self._inputs = [*carved, *drawn]
        begin = time.perf_counter()
        found = dict(self._look(self._inputs, self._executable, self._healthy))
        seconds = time.perf_counter() - begin
        bad = set(found)
        alarms = tuple((name, why) for name, why in found.items() if not why.startswith(_UNSUPPORTED))
        self._inputs = [i for i in self._inputs if i.name not in bad]
        judged = [*self._inputs, *(i for i in [*carved, *drawn] if i.name in dict(alarms))]
        counts = {group: sum(i.group == group for i in judged) for group in (CARVED, RANDOM)}
        defects = [*module_defects(self._lowered), *kernel_defects(self._artifact)]
        limit = max(1, opening.limit // 3) if is_large(cases[0]) else opening.limit
        chosen = sample(defects, limit, self._seed, self._signature.id)
        self.opened = Opened(outcome, alarms, counts, len(defects), tuple(chosen), seconds)
        first = carved[0]
        self.sample = _Healthy(str(self._signature), self._executable, first.case.tensors, self._healthy[first.name])

    def planted(self, defect: Defect) -> tuple[Artifact, Defect]:
        """Raises what compiling raises."""
        if defect.level == "kernel":
            return plant_in_kernel(self._artifact, defect)
        lowered, planted = plant_in_module(self._lowered, defect)
        return self._platform.build(lowered, self._job.device), planted

    def attempt(self, trial: Trial, neighbour: _Healthy | None) -> Tried:
        """Never raises for what a defect does, as long as the process lives."""
        defect = trial.defect
        report_stage("planting it")
        try:
            artifact, defect = self.planted(defect)
            if artifact.files == self._artifact.files and artifact.plan == self._artifact.plan:
                return Tried(IDENTICAL, defect)
            executable = self._device.load(artifact, self._signature)
        except MemoryError:
            raise
        except (CompileError, UnsupportedError, MissingFeatureError, DeviceError) as error:
            return Tried(REFUSED, defect, error.message)
        except Exception as error:  # TVM raises anything for a module that nobody wrote
            return Tried(REFUSED, defect, described(error))
        inputs = [i for i in self._inputs if i.name not in trial.died]
        found: dict[str, Results] = {}
        wrong = dict(self._look(inputs, executable, found))
        if not any(name.startswith(CARVED) for name in (*wrong, *trial.died)):
            more = [i for i in self._other_inputs() if i.name not in trial.died]
            wrong.update(self._look(more, executable, found))
            inputs = [*inputs, *more]
        different = [i for i in inputs if not self._same(i, found)]
        report_stage(AFTERWARDS)
        healthy = [h for h in (self.sample, neighbour) if h is not None and not trial.alone]
        spoilt = [h.name for h in healthy if not _still(h)] if wrong else []
        return Tried(
            JUDGED,
            defect,
            wrong=wrong,
            groups={i.name: i.group for i in inputs if i.name in wrong},
            same=not different,
            noise=all(self._is_noise(i, found) for i in different),
            tried=len(inputs),
            doubtful=self._doubtful,
            spoilt=tuple(spoilt),
        )

    def _other_inputs(self) -> list[Input]:
        """Those on which the healthy candidate is right."""
        if self._others is None:
            report_stage("drawing other inputs")
            cases = [i.case for i in self._inputs if i.group == CARVED]
            drawn = list(other_inputs(cases, self._seed)) if cases else []
            alarms = dict(self._look(drawn, self._executable, self._healthy))
            self._others = [i for i in drawn if i.name not in alarms]
            self._doubtful = tuple(f"{n}: {why}" for n, why in alarms.items() if not why.startswith(_UNSUPPORTED))
        return self._others

    def _look(
        self, inputs: Sequence[Input], executable: Executable, results: dict[str, Results]
    ) -> Iterator[tuple[str, str]]:
        """(name, explanation) of the inputs on which a candidate is wrong; what it gave goes into ``results``."""
        for chosen in inputs:
            if chosen.name not in self._truths:
                report_stage("computing it in float64")
                truth = float64_results(self._signature, chosen.case.tensors)
                self._truths[chosen.name] = truth if is_large(chosen.case) else replace(truth, graphs={})
            report_stage(f"{RUNNING}{chosen.name}")
            watched = Watched(executable)
            try:
                result = run_case(chosen.case, watched, Clock(), self._truths[chosen.name])
            except UnsupportedError as error:  # values that the device cannot hold
                yield chosen.name, f"{_UNSUPPORTED}{error.message}"
                continue
            if watched.last is not None:
                results[chosen.name] = watched.last.results
            if not result.passed:
                yield chosen.name, f"{result.code}: {result.explanation}"

    def _same(self, chosen: Input, found: dict[str, Results]) -> bool:
        mine, other = found.get(chosen.name), self._healthy.get(chosen.name)
        return mine is not None and other is not None and all(map(same_bits, mine, other))

    def _is_noise(self, chosen: Input, found: dict[str, Results]) -> bool:
        """Whether the errors are those of healthy arithmetic: at most twice the healthy candidate's or PyTorch's own.

        The judge's floor is not granted: what passes by that alone is an escape, not an equivalent.
        """
        mine, other = found.get(chosen.name), self._healthy.get(chosen.name)
        if mine is None or other is None:
            return False
        truth = self._truths[chosen.name]
        for (name, recorded), a, b in zip(chosen.case.results, mine, other, strict=True):
            exact = truth.results.get(name)
            if same_bits(a, b):
                continue
            if exact is None:
                return not a.is_floating_point()  # the judge passes other integers for ties alone
            errors = [_rms(t, exact) for t in (a, b, recorded)]
            if errors[0] > 2 * max(errors[1:]) + torch.finfo(a.dtype).tiny:
                return False
        return True


def _still(healthy: _Healthy) -> bool:
    try:
        return healthy.still()
    except TapmlError:
        return False


def _rms(found: torch.Tensor, exact: torch.Tensor) -> float:
    error = (found.to(exact.dtype) - exact).abs()
    error = error[torch.isfinite(error)]
    return math.sqrt(float(error.square().mean())) if error.numel() else 0.0
