"""One case's part of the outcome of its signature, and how it is put into words."""

from __future__ import annotations

import math
import shlex
from dataclasses import dataclass
from pathlib import Path

from tapml.errors import TapmlError
from tapml.kernels.executable import contiguous
from tapml.migration.outcome import CaseResult, Outcome
from tapml.platform import DeviceInfo
from tapml.report.terminal import worst_ratio
from tapml.suite.call import Signature, TensorSpec, decode_arguments
from tapml.suite.case import SignatureRecord
from tapml.suite.manifest import CaseEntry

_MODULES = 3
"""Module paths that are written out."""


@dataclass(frozen=True)
class CaseOutcome:
    """What became of one case.  ``status`` is one of :data:`tapml.migration.outcome.STATUSES`.

    ``result`` is ``None`` when the case was not executed to its end; ``status`` is not ``passed`` then.
    """

    status: str
    explanation: str
    result: CaseResult | None


def case_outcome(outcome: Outcome, case_id: str) -> CaseOutcome:
    """What the outcome of a signature says of one of its cases."""
    result = next((r for r in outcome.cases if r.case == case_id), None)
    if outcome.status not in ("passed", "failed") or not outcome.cases:
        status = outcome.status if outcome.status != "passed" else "failed"
        return CaseOutcome(status, outcome.message or "no case was executed", None)
    if result is None:
        return CaseOutcome("failed", f"not executed: {outcome.message}", None)
    if result.passed and not result.launches:
        return CaseOutcome("failed", "no kernel was launched on the device", result)
    return CaseOutcome("passed" if result.passed else "failed", result.explanation, result)


def properties(outcome: Outcome, case: CaseOutcome, target: str, info: DeviceInfo) -> list[tuple[str, str]]:
    """Name and value of what is recorded of a case beside its status, for JUnit XML."""
    found = [
        ("target", target),
        ("device", info.name),
        ("mode", info.mode),
        ("operator", outcome.operator),
        ("signature", outcome.signature),
        ("status", case.status),
        ("launches", str(case.result.launches if case.result else 0)),
    ]
    if outcome.route:
        found.append(("route", outcome.route))
    if case.result is not None:
        found.append(("verdict", case.result.code))
        found.append(("error", worst_ratio([case.result])))
        found.extend((name, f"{value:.6g}") for name, value in _figures(case.result).items())
    return found


def _figures(result: CaseResult) -> dict[str, float]:
    """The largest error of a case's results, against float64."""
    found: dict[str, float] = {}
    for verdict in (result.verdict or {}).get("results", ()):
        figures = verdict.get("figures", {})
        largest = (figures.get("max_abs") or {}).get("error")
        for name, value in (("max_abs_error", largest), ("rms_error", figures.get("rmse"))):
            if isinstance(value, int | float) and math.isfinite(value):
                found[name] = max(found.get(name, 0.0), value)
    return found


def with_hint(error: TapmlError) -> str:
    """What an error says, and on a second line what to do."""
    return f"{error.message}\nhint: {error.hint}" if error.hint else error.message


def notes(outcome: Outcome, case: CaseOutcome) -> list[str]:
    """What has to be said of a case even if it passed: what was changed, warnings of its verdict."""
    return list(dict.fromkeys((*outcome.notes, *(case.result.warnings if case.result else ()))))


def explain(
    outcome: Outcome,
    case: CaseOutcome,
    entry: CaseEntry,
    record: SignatureRecord,
    suite: Path,
    target: str,
    info: DeviceInfo,
) -> str:
    """All that is known of a case that did not pass, on as many lines as it takes."""
    signature, number = record.signature, entry.id.partition("/")[2]
    of = f"case {number} of {len(record.cases)} (numbered from 0)" if len(record.cases) > 1 else "its only case"
    rows = [
        ("", f"{case.status} on {info.name} ({info.mode}), target {target}: {case.explanation}"),
        ("call", described_call(signature)),
        ("results", ", ".join(f"{name} {_described_tensor(spec)}" for name, spec in signature.results)),
        ("signature", f"{signature.id}, {of}, kept for: {entry.stress.get('kept', 'unknown')}"),
        ("this case", f"call {entry.origin.call_index:,} in {_module(entry.origin.module)}, at {entry.origin.source}"),
        ("called by", _callers(record)),
    ]
    if outcome.route:
        converters = f": {', '.join(outcome.converters)}" if outcome.converters else ""
        rows.append(("route", f"{outcome.route}{converters}"))
    rows.extend(("attempt", f"{a.route}: {a.status}: {a.message}") for a in outcome.attempts)
    if case.result is not None:
        rows.append(("launches", str(case.result.launches)))
    others = [f"{r.case} {'passed' if r.passed else 'failed'}" for r in outcome.cases if r.case != entry.id]
    if others:
        rows.append(("other cases", ", ".join(others)))
    rows.extend(("note", note) for note in notes(outcome, case))
    rows.extend(("it printed", line) for line in outcome.output)
    rows.append(("look at it", shlex.join(["tapml", "show", str(suite), entry.id])))
    return "\n".join(f"{name:<11} {text}" if name else text for name, text in rows)


def _module(path: str) -> str:
    return path or "the program"


def _callers(record: SignatureRecord) -> str:
    shown = [f"{_module(path)} ({calls:,})" for path, calls in list(record.modules.items())[:_MODULES]]
    more = len(record.modules) - len(shown)
    return ", ".join(shown) + (f" and {more} more modules" if more > 0 else "")


class _Text(str):
    """Stands for a tensor in decoded arguments, and is written without quotes."""

    def __repr__(self) -> str:
        return str(self)


def described_call(signature: Signature) -> str:
    """``aten.mm.default(float32[3, 8], float32[8, 16] strides (1, 8))``: each argument as the call had it."""
    args, kwargs = decode_arguments(signature.template, [_Text(_described_tensor(t)) for t in signature.tensors])
    words = [repr(a) for a in args] + [f"{name}={value!r}" for name, value in kwargs.items()]
    return f"{signature.operator}({', '.join(words)})"


def _described_tensor(spec: TensorSpec) -> str:
    return str(spec) if spec.strides == contiguous(spec.shape) else f"{spec} strides {spec.strides}"
