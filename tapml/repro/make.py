"""``tapml repro``: find what fails, make it smaller, write it down."""

from __future__ import annotations

import os
import platform as host
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import torch
import tvm
import tvm_ffi

from tapml._version import __version__
from tapml.boundary.neighbours import make, require_neighbour
from tapml.errors import UnsupportedError, UsageError
from tapml.lowering.lower import ROUTES, routes
from tapml.lowering.registry import find, load_extensions
from tapml.migration.blame import described
from tapml.migration.settings import Settings
from tapml.repro.bundle import Bundle, require_free, write_bundle
from tapml.repro.failure import Failure
from tapml.repro.kind import Kind
from tapml.repro.parts import parts
from tapml.repro.shrink import Shrinker, Shrunk
from tapml.repro.subject import Subject
from tapml.repro.trial import Finding
from tapml.repro.workbench import Workbench
from tapml.suite.call import Json, Signature
from tapml.suite.case import Case
from tapml.suite.reader import Suite

_AGAIN = 2
"""How often a failure is tried again to see whether it is always the same."""

Listener = Callable[[str], None]
"""Told in a few words what is being done."""


@dataclass(frozen=True)
class Options:
    """``route``: empty for what a migration would try first and that fails.  ``budget``: seconds of shrinking, 0: none."""

    settings: Settings
    route: str = ""
    budget: float = 0.0
    seed: int = 0
    force: bool = False
    command: str = ""


@dataclass(frozen=True)
class Made:
    """A bundle, with the failure that it shows."""

    bundle: Bundle
    failure: Failure

    def to_json(self) -> Json:
        """All figures."""
        failure, confirmation, shrunk = self.failure, self.bundle.confirmation, self.failure.shrunk
        return {
            "bundle": str(self.bundle.path),
            "bytes": self.bundle.nbytes,
            "files": self.bundle.files,
            **failure.to_json(),
            "reproduced": confirmation.reproduced,
            "how": confirmation.how,
            "clean run": confirmation.words,
            "elements": failure.subject.elements,
            "elements before": failure.before.elements if failure.before else failure.subject.elements,
            "tensors": [str(m.spec) for m in failure.subject.tensors],
            "shrink": None
            if shrunk is None
            else {
                "tried": shrunk.tried,
                "rejected": shrunk.rejected,
                "taken": list(shrunk.taken),
                "seconds": shrunk.seconds,
                "finished": shrunk.finished,
                "undone": shrunk.undone,
            },
        }


def reproduce_case(
    suite: Path,
    case: str,
    out: Path,
    options: Options,
    listen: Listener = lambda text: None,
    *,
    boundary: str = "",
) -> Made:
    """Write a bundle of a case of a suite to ``out``.

    ``case``: its id, or a signature's for the first of its cases that fails.  ``boundary``: that neighbour of the first of
    them instead (:mod:`tapml.boundary`).  Raises :class:`UsageError` when nothing fails, when there is no such case, and where
    something is in the way of ``out``; :class:`RefusedError` for a neighbour that PyTorch does not execute.
    """
    opened = Suite.open(suite)
    ids = (case,) if "/" in case else opened.signature(case).cases
    if not ids:
        raise UsageError(f"expected a case, found none of signature {case}", hint=f"`tapml show {suite}` lists them")
    if boundary:
        require_neighbour(opened.case(ids[0]).signature, boundary)
    cases = [make(opened.case(ids[0]), boundary)] if boundary else [opened.case(i) for i in ids]
    return reproduce_call(cases, out, options, listen)


def reproduce_call(cases: list[Case], out: Path, options: Options, listen: Listener = lambda text: None) -> Made:
    """The same for cases of one signature, wherever they come from."""
    require_free(out, force=options.force)
    settings, device = options.settings.resolved()
    load_extensions(settings.extensions)
    bench = Workbench(
        settings.target, device.name, settings.extensions, settings.seconds, settings.memory_mb, options.seed
    )
    with bench:
        case, route, finding = _first_failure(cases, settings, options.route, bench, listen)
        original = Subject.of_case(case)
        kinds = _kinds(original, route, finding, bench, listen)
        shrunk: Shrunk | None = None
        if options.budget > 0:
            shrunk = _shrink(original, route, kinds, options, bench, listen)

        def made(shrunk: Shrunk | None) -> Made:
            listen("writing down the module and the kernels")
            subject = shrunk.subject if shrunk is not None else original
            final = _final(subject, route, kinds, bench)
            assert final.kind is not None
            if route == "decomposition" and final.kind.stage == "result":
                listen("looking for the operator at fault")
                final = replace(final, notes=(*final.notes, *_at_fault(subject, bench)))
            assert final.kind is not None
            origin = {"case": case.id, "module path": case.origin.module, "source line": case.origin.source}
            failure = Failure(
                case.id,
                subject,
                final,
                final.kind,
                kinds,
                route,
                settings.target,
                device,
                origin,
                versions(),
                options.command,
                settings.extensions,
                settings.seconds,
                shrunk,
                original,
            )
            listen("reproducing it in a clean process")
            return Made(write_bundle(out, failure, force=True), failure)

        smallest = made(shrunk)
        if smallest.bundle.confirmation.reproduced or shrunk is None or not shrunk.taken:
            return smallest
        return _larger(shrunk, made) or made(shrunk)


def _larger(shrunk: Shrunk, made: Callable[[Shrunk], Made]) -> Made | None:
    """The bundle of the smallest that does reproduce outside of tapml, found by bisection of what was taken."""
    if not made(shrunk.back_to(0)).bundle.confirmation.reproduced:
        return None
    good, bad = 0, len(shrunk.history) - 1
    while bad - good > 1:
        middle = (good + bad) // 2
        if made(shrunk.back_to(middle)).bundle.confirmation.reproduced:
            good = middle
        else:
            bad = middle
    return made(shrunk.back_to(good))


def _kinds(subject: Subject, route: str, finding: Finding, bench: Workbench, listen: Listener) -> tuple[Kind, ...]:
    """What kinds of failure it shows when it is tried again: memory that nobody wrote gives another one each time."""
    assert finding.kind is not None
    found = [finding.kind]
    if finding.kind.stage == "result":
        for _ in range(_AGAIN):
            listen("trying it again")
            again = bench.attempt(subject, route).kind
            if again is not None and not any(kind.admits(again) for kind in found):
                found.append(again)
    return tuple(found)


def _at_fault(subject: Subject, bench: Workbench) -> tuple[str, ...]:
    """Which of the operators that the call decomposes into is the first that is wrong by itself."""
    try:
        found = parts(subject, bench.target)
    except Exception as error:  # PyTorch's decompositions raise anything, and the failure stands without this
        return (f"the decomposition cannot be followed in PyTorch: {described(error)}",)
    for number, part in enumerate(found):
        finding = bench.attempt(part, "converter" if find(part.operator, bench.target) else "frontend")
        if finding.kind is not None:
            shapes = ", ".join(str(m.spec) for m in part.tensors)
            text = f"operator {number + 1} of {len(found)} in the decomposition is the first that is wrong by itself: "
            return (f"{text}{part.operator}({shapes}): {finding.explanation}",)
    return (f"each of the {len(found)} operators in the decomposition is right by itself",)


def _final(subject: Subject, route: str, kinds: tuple[Kind, ...], bench: Workbench) -> Finding:
    """The finding that is written down, with what there is of module and kernels."""
    for _ in range(1 + _AGAIN):  # a failure that changes has another chance
        final = bench.attempt(subject, route, listing=True)
        if final.kind is not None and any(kind.admits(final.kind) for kind in kinds):
            break
    if final.kind is None:
        raise UsageError(
            f"expected {kinds[0]} again, found that the call passes now: {final.explanation}",
            hint="the failure is not deterministic; try again",
        )
    if final.listing is None:  # the process died of it: another one tells what it can before
        before = bench.attempt(subject, route, listing=True, stop=final.kind.stage)
        final = replace(final, listing=before.listing, expected=before.expected)
    return final


def _first_failure(
    cases: list[Case], settings: Settings, route: str, bench: Workbench, listen: Listener
) -> tuple[Case, str, Finding]:
    signature = cases[0].signature
    if route and route not in ROUTES:
        raise UsageError(f"expected a route of {', '.join(ROUTES)}, found {route!r}")
    available = (route,) if route else _routes(signature, settings.target)
    refused: tuple[Case, str, Finding] | None = None
    passed = ""
    for tried in available:
        for case in cases:
            listen(f"trying {case.id} by route {tried}")
            finding = bench.attempt(Subject.of_case(case), tried)
            if finding.status == "skipped":
                raise UsageError(f"nothing to reproduce: {case.id} is skipped on {bench.device}: {finding.explanation}")
            if finding.status == "unsupported":
                refused = refused or (case, tried, finding)
                break
            if finding.kind is not None:
                return case, tried, finding
        else:
            passed = tried
            break
    if refused is not None and not passed:
        return refused
    named = cases[0].id if len(cases) == 1 else f"every one of the {len(cases)} cases of {signature.id}"
    others = ", ".join(r for r in ROUTES if r != passed)
    raise UsageError(
        f"expected a failure, found none: {named} ({signature.operator}) passes on {bench.device} by route {passed}",
        hint=f"`tapml test` names what fails; --route shows another one that may fail ({others})",
    )


def _routes(signature: Signature, target: str) -> tuple[str, ...]:
    try:
        return routes(signature, target)
    except UnsupportedError:
        return ROUTES[:1]


def _shrink(
    subject: Subject, route: str, kinds: tuple[Kind, ...], options: Options, bench: Workbench, listen: Listener
) -> Shrunk:
    deadline = time.monotonic() + options.budget

    def attempt(candidate: Subject) -> Finding:
        return bench.attempt(candidate, route, deadline=deadline)

    def told(what: str, candidate: Subject) -> None:
        listen(f"shrinking: {candidate.elements:,} of {subject.elements:,} elements ({what})")

    listen("shrinking")
    shrinker = Shrinker(attempt, kinds, options.seed, told)
    fresh = replace(subject, results=None)
    if not shrinker.begins_with(fresh):  # what was carved is not what PyTorch gives now: only that very case fails
        return Shrunk((subject,), shrinker.tried, shrinker.rejected, (), 0.0, False)
    return shrinker.run(fresh)


def versions() -> dict[str, str]:
    """Of everything that has a part in a failure."""
    return {
        "tapml": __version__,
        "torch": torch.__version__,
        "tvm": str(tvm.__version__),
        "tvm-ffi": str(tvm_ffi.__version__),
        "python": host.python_version(),
        "machine": f"{host.system()} {host.machine()}, {os.cpu_count()} cores",
    }
