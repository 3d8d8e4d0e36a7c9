"""Compile, run and judge one signature, in this process; :mod:`tapml.migration.pool` does it in workers."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch

from tapml.boundary.neighbours import RefusedError, make
from tapml.errors import CompileError, DeviceError, MissingFeatureError, UnsupportedError
from tapml.kernels.executable import require_representable
from tapml.kernels.plan import Artifact
from tapml.lowering.lower import lower, routes
from tapml.lowering.registry import Entry, load_extensions, registered
from tapml.migration.blame import (
    blames,
    described,
    own_memory,
    require_space,
    same_bits,
    users_converter,
    users_schedule,
)
from tapml.migration.cache import KernelCache, artifact_key, cache_root
from tapml.migration.outcome import Attempt, CaseResult, Outcome, OwnCode
from tapml.migration.worker import in_worker, report_stage
from tapml.numerics.judge import determinism, judge
from tapml.numerics.oracle import Oracle, float64_results
from tapml.platform import Device, Executable, Platform, find_platform
from tapml.suite.call import Signature
from tapml.suite.case import Case
from tapml.suite.reader import Suite


@dataclass(frozen=True)
class Job:
    """Everything a worker needs: where the suite is, which signature, which device.

    ``extensions``: files of the user that register converters and kernels.  ``cache``: the cache's root, ``None`` for the
    user's.  ``seconds`` and ``memory_mb`` are limits that the pool enforces.  ``boundary``: the neighbour of the
    signature's first case to judge instead of its cases (:mod:`tapml.boundary`).  ``every_case``: judge
    the cases after one that fails too.  ``plain``: build it as simply as can be (:class:`tapml.lowering.lower.Lowered`).
    """

    suite: str
    signature: str
    operator: str
    target: str
    device: str
    extensions: tuple[str, ...] = ()
    cache: str | None = None
    seconds: float = 120.0
    memory_mb: int = 4096
    boundary: str = ""
    every_case: bool = False
    plain: bool = False


@dataclass
class Clock:
    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        begin = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - begin


def judge_signature(job: Job) -> Outcome:
    """Try the routes to the target one after another until one is right on every kept case.

    A converter of the user's stands in for all of tapml's own ways: when it fails, so does the signature.  It may
    decline a call by raising :class:`UnsupportedError`; the other routes are tried then, and the outcome says so.

    Never raises for what a candidate does: converters that raise, compilers that refuse and wrong numbers are outcomes.
    Raises :class:`tapml.errors.SuiteError` for a damaged suite and :class:`tapml.errors.DeviceError` for a missing device.
    """
    report_stage("loading the converters")
    load_extensions(job.extensions)
    clock = Clock()
    report_stage("reading the suite")
    with clock.phase("load"):
        suite = open_suite(job.suite)
        record = suite.signature(job.signature)
        cases = [suite.case(case) for case in record.cases[: 1 if job.boundary else None]]
    outcome = Outcome(job.signature, record.signature.operator, "unsupported", "")
    if not cases:
        return replace(outcome, status="skipped", message="the suite keeps no case of this signature")
    if not job.boundary:
        return _judge(job, record.signature, cases, outcome, clock)
    report_stage(f"executing {job.boundary} in PyTorch")
    try:
        case = make(cases[0], job.boundary)
    except RefusedError as error:
        return replace(outcome, status="refused", message=error.message, boundary=job.boundary)
    judged = _judge(job, case.signature, [case], outcome, clock)
    return replace(judged, signature=job.signature, boundary=job.boundary)


def _judge(job: Job, signature: Signature, cases: list[Case], outcome: Outcome, clock: Clock) -> Outcome:
    """By one route after another; ``outcome``: what to say when there is none."""
    platform, device = open_device(job.target, job.device)
    attempts: list[Attempt] = []
    truths: list[Oracle] = []
    first_failure: Outcome | None = None
    try:
        available = routes(signature, job.target)
        entry = users_converter(signature, job.target)
        rule = users_schedule(signature, job.target)
    except UnsupportedError as error:
        return replace(outcome, message=error.message)
    outcome = replace(outcome, own=tuple(_own_code(e) for e in (entry, rule) if e is not None))
    for route in available:
        result = _try_route(route, job, signature, cases, platform, device, clock, truths)
        if isinstance(result, Outcome) and result.status == "skipped":
            return replace(result, attempts=tuple(attempts), seconds=clock.seconds)
        if isinstance(result, Outcome) and result.passed:
            notes = (*result.notes, *_other_route(entry, attempts, route))
            return replace(result, notes=notes, attempts=tuple(attempts), seconds=clock.seconds)
        if isinstance(result, Outcome):
            attempts.append(Attempt(route, "failed", result.message))
            first_failure = first_failure or result
        else:
            attempts.append(result)
        if (entry is not None or rule is not None) and attempts[-1].status == "failed":
            break  # it was meant to replace tapml's own ways: passing by one of those would hide that it does not work
    if first_failure is not None:
        return replace(first_failure, attempts=tuple(attempts), seconds=clock.seconds)
    worst = next((a for a in attempts if a.status == "failed"), attempts[0])
    return replace(outcome, status=worst.status, message=worst.message, attempts=tuple(attempts), seconds=clock.seconds)


def _own_code(entry: Entry) -> OwnCode:
    given = entry.extension.file if entry.extension is not None else entry.file
    return OwnCode(entry.kind, entry.name, f"{Path(entry.file).name}:{entry.line}", str(given), entry.digest)


def _own_code_of(artifact: Artifact) -> tuple[OwnCode, ...]:
    """What the user registered of that which an artifact was made by."""
    users = {e.full_name: e for e in registered() if not e.builtin}
    return tuple(_own_code(users[name]) for name in dict.fromkeys(artifact.converters) if name in users)


def _other_route(entry: Entry | None, attempts: Sequence[Attempt], route: str) -> tuple[str, ...]:
    """What must be said of a signature that passes only by a later route."""
    for attempt in attempts:
        if attempt.route == "converter" and (entry is not None or attempt.status == "failed"):
            whose = entry.place if entry is not None else "tapml's own converter"
            return (f"{whose} was not used ({attempt.message}): route {route} was",)
    return ()


@lru_cache(maxsize=1)
def open_suite(path: str) -> Suite:
    """The suite, opened once per process."""
    return Suite.open(Path(path))


@lru_cache(maxsize=1)
def open_device(target: str, device: str) -> tuple[Platform, Device]:
    """The platform and the opened device, once per process."""
    platform = find_platform(target)
    return platform, platform.open(device)


def _try_route(
    route: str,
    job: Job,
    signature: Signature,
    cases: list[Case],
    platform: Platform,
    device: Device,
    clock: Clock,
    truths: list[Oracle],
) -> Outcome | Attempt:
    entry = users_converter(signature, job.target) if route == "converter" else None
    rule = users_schedule(signature, job.target)
    whose = entry.place if entry is not None else f"route {route}"
    whose += f" with schedule {rule.place}" if rule is not None else ""
    users = entry is not None or rule is not None
    try:
        artifact, key, cached = compile_route(route, job, signature, platform, clock, whose)
        for case in cases:
            require_representable(artifact.plan, case.results)
        executable = device.load(artifact, signature)
    except MissingFeatureError as error:
        return Outcome(signature.id, signature.operator, "skipped", error.message, route=route)
    except UnsupportedError as error:
        if entry is not None and not blames(error, (entry.file,)):  # not what it raised, but what it returned
            return Attempt(route, "failed", f"{whose}: {error.message}")
        return Attempt(route, "unsupported", error.message)
    except MemoryError:
        raise
    except BaseException as error:  # a converter is anybody's code
        if isinstance(error, KeyboardInterrupt) and not in_worker():
            raise
        require_space(error, cache_root(job.cache))
        if isinstance(error, CompileError | DeviceError):
            return Attempt(route, "failed", f"{whose}: {error.message}" if users else error.message)
        place = blames(error, job.extensions)
        at = f" ({place})" if place else ""
        return Attempt(route, "failed", f"{whose} raised {described(error)}{at}"[:600])
    results: list[CaseResult] = []
    for i, case in enumerate(cases):
        report_stage(f"computing case {case.id} in float64")
        with clock.phase("judge"):
            if i == len(truths):
                truths.append(float64_results(signature, case.tensors))
        report_stage(f"running case {case.id} by {whose}")
        try:
            results.append(run_case(case, executable, clock, truths[i]))
        except UnsupportedError as error:  # values that the device cannot hold
            return Attempt(route, "unsupported", error.message)
        if not results[-1].passed and not job.every_case:
            break
    bad = next((r for r in results if not r.passed), None)
    own = _own_code_of(artifact)
    return Outcome(
        signature.id,
        signature.operator,
        "failed" if bad else "passed",
        (f"{whose}: " if users else "") + (bad.explanation if bad else results[0].explanation),
        route=route,
        converters=artifact.converters,
        notes=(*artifact.notes, *(f"by the user's {code}" for code in own)),
        artifact=key,
        cached=cached,
        launches=results[0].launches,
        cases=tuple(results),
        own=own,
    )


def compile_route(
    route: str, job: Job, signature: Signature, platform: Platform, clock: Clock, whose: str = ""
) -> tuple[Artifact, str, bool]:
    """(artifact, its key, whether it came from the cache).  ``whose``: who converts, for reports of a crash."""
    cache = KernelCache(Path(job.cache) if job.cache else None)
    key = artifact_key(signature, route, job.target, platform.fingerprint(job.device), plain=job.plain)
    artifact = cache.get(key)
    if artifact is not None:
        return artifact, key, True
    report_stage(f"lowering by {whose or route}")
    with clock.phase("lower"):
        lowered = replace(lower(signature, job.target, route), plain=job.plain)
    report_stage(f"compiling what {whose or route} gave")
    with clock.phase("build"):
        artifact = platform.build(lowered, job.device)
    cache.put(key, artifact, _script(lowered.module))
    return artifact, key, False


def _script(module: Any) -> str:
    """TVMScript of a module.  It compiled: that TVM cannot print it is not the candidate's fault, and is written down."""
    try:
        return str(module.script())
    except Exception as error:
        return f"# TVM could not print this module: {described(error)}\n"


def run_case(case: Case, executable: Executable, clock: Clock, truth: Oracle) -> CaseResult:
    def bad(code: str, explanation: str) -> CaseResult:
        return CaseResult(case.id, False, code, explanation, (), 0, 0.0, {})

    names = [name for name, _ in case.signature.results]
    given = [own_memory(tensor) for tensor in case.tensors]
    try:
        with clock.phase("run"):
            first = executable.run(given)
            second = executable.run(given)
    except DeviceError as error:
        return bad("device", error.message)
    except (MemoryError, UnsupportedError):
        raise
    except Exception as error:  # what the runtime raises for a kernel whose arguments are not what it says
        return bad("device", f"the kernel raised {described(error)}")
    if first.launches == 0:
        return bad("not-executed", "no kernel was launched on the device")
    if first.faults:
        return bad(first.faults[0].code, "; ".join(fault.explanation for fault in first.faults))
    written = [i for i, (a, b) in enumerate(zip(case.tensors, given, strict=True)) if not same_bits(a, b)]
    if written:
        return bad("wrote-input", f"the kernel wrote to its input: argument {written[0]} is not what it was before")
    candidate = list(zip(names, first.results, strict=True))
    with clock.phase("judge"):
        verdict = judge(case.signature, case.tensors, case.results, candidate, oracle=truth)
        drift = determinism(candidate, list(zip(names, second.results, strict=True)))
    warnings = (*verdict.warnings, *dict.fromkeys((*first.notes, *second.notes)), *((drift,) if drift else ()))
    return CaseResult(
        case.id,
        verdict.passed,
        verdict.code,
        verdict.explanation,
        warnings,
        first.launches,
        second.seconds,
        verdict.to_json(),
    )


def guard_threads(jobs: int) -> None:
    """Share the cores between workers: PyTorch's threads in this process."""
    torch.set_num_threads(max(1, (torch.get_num_threads() or 1) // max(1, jobs)))
