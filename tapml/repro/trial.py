"""One attempt at one subject, in a worker: PyTorch, lowering, compilation, execution, judgement."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import torch

from tapml.errors import CompileError, DeviceError, MissingFeatureError, UnsupportedError
from tapml.kernels.executable import require_representable
from tapml.kernels.plan import Artifact
from tapml.lowering.lower import Lowered, lower
from tapml.migration.blame import described
from tapml.migration.job import Clock, guard_threads, open_device, run_case
from tapml.migration.trying import Watched, prepare_worker
from tapml.migration.worker import report_stage
from tapml.numerics.oracle import float64_results
from tapml.platform import Executable
from tapml.repro.kind import Kind, of_error, of_values, where_reference_is_off, yardstick
from tapml.repro.listing import Listing, listing_of
from tapml.repro.subject import Memory, Subject
from tapml.suite.call import Json, Signature

SHAPE_WORDS = " where the reference has "
"""In the messages of :func:`tapml.lowering.lower.lower` about results that are not those of the operator."""


@dataclass(frozen=True)
class Trial:
    """``listing``: also give what the bundle has of the module, the kernels and their sources.  ``stop``: the stage (of
    :data:`tapml.repro.kind.STAGES`) that is not to be entered, because it ends the process."""

    subject: Subject
    route: str
    target: str
    device: str
    seed: int = 0
    listing: bool = False
    stop: str = ""


@dataclass(frozen=True)
class Finding:
    """What came of a trial.  ``kind``: ``None`` when it passed, PyTorch refused the call, or the device lacks something.

    ``status``: as in :mod:`tapml.migration.outcome`, or ``rejected`` by PyTorch.  ``expected``: PyTorch's results;
    ``exact``: float64's in the dtype of the results, where PyTorch's are not finite and these are, or the other way round;
    ``found``: the candidate's, where it gave any.  ``verdict``: as JSON.  ``output``: what a process that died printed.
    """

    status: str
    kind: Kind | None
    explanation: str
    expected: tuple[tuple[str, Memory], ...] = ()
    exact: tuple[tuple[str, Memory], ...] = ()
    found: tuple[tuple[str, Memory], ...] = ()
    verdict: Json = None
    launches: int = 0
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    converters: tuple[str, ...] = ()
    listing: Listing | None = None
    output: tuple[str, ...] = ()


def setup(memory_mb: int, extensions: tuple[str, ...]) -> Callable[[Trial], Finding]:
    """For a worker: what answers trials in it."""
    guard_threads(1)
    prepare_worker(memory_mb, extensions)
    return Bench().attempt


@dataclass
class Bench:
    """Trials in this process.  The last operator that was compiled is kept: most trials change values alone."""

    _kept: tuple[tuple[Signature, str, str, str], Lowered, Artifact, Executable] | None = field(default=None)

    def attempt(self, trial: Trial) -> Finding:
        """Never raises for what PyTorch or a candidate does."""
        torch.manual_seed(trial.seed)
        report_stage("executing the call in PyTorch")
        try:
            case = trial.subject.case()
        except Exception as error:  # arguments that were changed: PyTorch may raise anything
            return Finding("rejected", None, described(error))
        expected = tuple((name, Memory.of(tensor)) for name, tensor in case.results)
        lowered: Lowered | None = None
        stage, artifact = "convert", None
        platform, device = open_device(trial.target, trial.device)
        try:
            key = (case.signature, trial.route, trial.target, trial.device)
            if self._kept is not None and self._kept[0] == key:
                _, lowered, artifact, executable = self._kept
            else:
                self._kept = None
                report_stage(f"lowering by route {trial.route}")
                _stop(trial, stage)
                lowered = lower(case.signature, trial.target, trial.route)
                report_stage(f"compiling what route {trial.route} gave")
                stage = "compile"
                _stop(trial, stage)
                artifact = platform.build(lowered, trial.device)
                stage = "load"
                _stop(trial, stage)
                require_representable(artifact.plan, case.results)
                executable = device.load(artifact, case.signature)
                self._kept = (key, lowered, artifact, executable)
            _stop(trial, "run")
        except _Stopped:
            finding = Finding("stopped", None, f"before {trial.stop}", expected)
        except MissingFeatureError as error:
            return Finding("skipped", None, error.message, expected)
        except MemoryError:
            raise
        except Exception as error:  # a converter is anybody's code
            finding = _refused(stage, error, expected)
        else:
            finding = self._run(trial, case.signature, executable, artifact, expected)
        if not trial.listing:
            return finding
        return replace(finding, listing=listing_of(platform, trial.device, lowered, artifact))

    def _run(
        self,
        trial: Trial,
        signature: Signature,
        executable: Executable,
        artifact: Artifact,
        expected: tuple[tuple[str, Memory], ...],
    ) -> Finding:
        case = trial.subject.case()
        watched = Watched(executable)
        report_stage("computing the call in float64")
        truth = float64_results(signature, case.tensors)
        report_stage(f"running what route {trial.route} gave")
        try:
            result = run_case(case, watched, Clock(), truth)
        except UnsupportedError as error:
            return _refused("run", error, expected)
        notes = tuple(dict.fromkeys((*artifact.notes, *(watched.last.notes if watched.last else ()))))
        found: tuple[tuple[str, Memory], ...] = ()
        kind: Kind | None = None
        off = {name: where_reference_is_off(tensor, truth.results.get(name)) for name, tensor in case.results}
        exact = tuple((name, Memory.of(tensor)) for name, tensor in off.items() if tensor is not None)
        if watched.last is not None:
            named = zip(signature.results, watched.last.results, strict=True)
            found = tuple((name, Memory.of(tensor)) for (name, _), tensor in named)
        if not result.passed:
            kind = _kind(result.code, result.explanation, result.verdict, expected, exact, found)
        return Finding(
            "passed" if result.passed else "failed",
            kind,
            result.explanation,
            expected,
            exact,
            found,
            result.verdict or None,
            result.launches,
            result.warnings,
            notes,
            artifact.converters,
        )


class _Stopped(Exception):
    pass


def _stop(trial: Trial, stage: str) -> None:
    if trial.stop == stage:
        raise _Stopped


def _refused(stage: str, error: Exception, expected: tuple[tuple[str, Memory], ...]) -> Finding:
    message = getattr(error, "message", "") or described(error)
    if SHAPE_WORDS in message:
        return Finding("unsupported", of_error(stage, message, "interface"), message, expected)
    if isinstance(error, UnsupportedError):  # by the words of TVM where it refused, which are said without tapml too
        words = str(error.__cause__ or "").strip() or message
        return Finding("unsupported", of_error(stage, words), message, expected)
    code = "refused" if isinstance(error, CompileError | DeviceError) else "raised"
    return Finding("failed", of_error(stage, message, code), message, expected)


def _kind(
    code: str,
    explanation: str,
    verdict: Json,
    expected: tuple[tuple[str, Memory], ...],
    exact: tuple[tuple[str, Memory], ...],
    found: tuple[tuple[str, Memory], ...],
) -> Kind:
    """Of a case that ran and is wrong."""
    failed = next((r["name"] for r in (verdict or {}).get("results", ()) if not r["passed"]), "")
    if not failed:  # a fault of the device, or nothing was executed
        return Kind("run", code, words=of_error("run", explanation).words)
    wanted, got = dict(expected).get(failed), dict(found).get(failed)
    if wanted is None or got is None:
        return Kind("result", code, failed)
    truth = dict(exact).get(failed)
    right = yardstick(wanted.tensor(), None if truth is None else truth.tensor(), got.tensor())
    return of_values(code, failed, right, got.tensor())
