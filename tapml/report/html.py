"""The report as one HTML file that needs nothing else: no network, no other file, no server.

What is in it comes from anybody (names of operators and modules, messages of compilers, sources of kernels).  The template
escapes all of it; the script gets it as JSON in which ``<`` does not occur, and writes text nodes only; and a content
security policy lets nothing but the page's own script run.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import math
from importlib.resources import files
from typing import Any

import jinja2
from markupsafe import Markup

from tapml.migration.cache import LOWERED
from tapml.migration.outcome import CaseResult, Outcome
from tapml.report.model import Migration, Report, headroom, result_share, share
from tapml.report.style import STATUS_ORDER, human_bytes, human_seconds
from tapml.suite.call import Json
from tapml.suite.case import SignatureRecord

DIGITS = 5
"""Significant digits of figures in the page; ``--json`` has all."""

SCRIPTS = ("dom.js", "data.js", "figures.js", "detail.js", "ladder.js", "heat.js", "main.js")
"""In the order in which they run."""


def render(report: Report) -> str:
    """The text of the file."""
    page = files(__package__) / "page"
    script = "\n".join((page / name).read_text() for name in SCRIPTS)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True)
    environment.filters.update(bytes=human_bytes, seconds=human_seconds, count=lambda n: f"{n:,}", figure=_figure)
    template = environment.from_string((page / "report.html.j2").read_text())
    data, texts = _data(report)
    return template.render(
        report=report,
        statuses=[s for s in (*STATUS_ORDER, "not judged") if any(s in m.counts for m in report.migrations)],
        phases=[p for p in ("lower", "build", "load", "run", "judge", "program") if _has_phase(report, p)],
        slowest={m.folder: _slowest(m) for m in report.migrations},
        calls=sum(r.calls for r in report.signatures),
        policy=f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; img-src data:",
        style=Markup((page / "report.css").read_text()),
        script=Markup(script),
        data=Markup(_embedded(data)),
        texts=base64.b64encode(gzip.compress(json.dumps(texts).encode(), 9, mtime=0)).decode(),
    )


def _embedded(data: Json) -> str:
    """JSON that may stand in a script element: no ``<``, and no number that JSON lacks."""
    text = json.dumps(_rounded(data), separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def _rounded(value: Any) -> Json:
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}") if math.isfinite(value) else str(value)
    if isinstance(value, dict):
        return {k: _rounded(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(v) for v in value]
    return value


def _figure(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}"


def _has_phase(report: Report, phase: str) -> bool:
    return any(phase in m.seconds for m in report.migrations)


def _slowest(migration: Migration) -> list[tuple[Outcome, float]]:
    """The signatures that took longest, with their seconds over all phases."""
    times = [(o, sum(o.seconds.values())) for o in migration.outcomes.values()]
    return sorted(times, key=lambda t: -t[1])[:5]


def _data(report: Report) -> tuple[Json, list[str]]:
    """What the script shows, and the texts of the kernels, each once, to which it refers by number."""
    modules: dict[str, int] = {}
    texts: dict[str, int] = {}

    def number(table: dict[str, int], text: str) -> int:
        return table.setdefault(text, len(table))

    signatures = [
        {
            "id": r.signature.id,
            "operator": r.signature.operator,
            "text": str(r.signature)[len(r.signature.operator) :],
            "arguments": r.signature.arguments,
            "results": [f"{name}: {spec}" for name, spec in r.signature.results],
            "calls": r.calls,
            "modules": [[number(modules, m), calls] for m, calls in r.modules.items()],
            "cases": [
                {
                    "id": c,
                    "module": number(modules, report.cases[c].module),
                    "call": report.cases[c].call_index,
                    "source": report.cases[c].source,
                    "kept": report.cases[c].kept,
                }
                for c in r.cases
            ],
        }
        for r in report.signatures
    ]
    migrations = [
        {
            "label": m.label,
            "target": m.target,
            "device": m.device,
            "mode": m.mode,
            "statuses": [m.statuses[r.signature.id] for r in report.signatures],
            "outcomes": [
                _outcome(r, m.outcomes[r.signature.id]) if r.signature.id in m.outcomes else None
                for r in report.signatures
            ],
        }
        for m in report.migrations
    ]
    kernels = {
        key: {
            "files": [[name, number(texts, text), len(text)] for name, text in k.files.items() if name != LOWERED],
            "lowered": [[name, number(texts, text), len(text)] for name, text in k.files.items() if name == LOWERED],
            "binaries": list(k.binaries.items()),
        }
        for key, k in report.kernels.items()
    }
    data = {"signatures": signatures, "migrations": migrations, "kernels": kernels, "modules": list(modules)}
    return data, list(texts)


def _outcome(record: SignatureRecord, outcome: Outcome) -> Json:
    found = {
        "message": outcome.message,
        "route": outcome.route,
        "converters": outcome.converters,
        "notes": outcome.notes,
        "warnings": outcome.warnings,
        "artifact": outcome.artifact,
        "cached": outcome.cached,
        "launches": outcome.launches,
        "attempts": [[a.route, a.status, a.message] for a in outcome.attempts],
        "output": outcome.output,
        "seconds": outcome.seconds,
        "cases": [_case(record, c) for c in outcome.cases],
    }
    return {name: value for name, value in found.items() if value or name == "cases"}


def _case(record: SignatureRecord, case: CaseResult) -> Json:
    return {
        "id": case.case,
        "passed": case.passed,
        "code": case.code,
        "explanation": case.explanation,
        "launches": case.launches,
        "seconds": case.seconds,
        "share": share(case),
        "headroom": headroom(record, case),
        "results": [_result(r) for r in (case.verdict or {}).get("results", ())],
    }


def _result(result: Json) -> Json:
    """A result's verdict; what it would repeat of its case is left out."""
    figures = {k: v for k, v in (result.get("figures") or {}).items() if k not in _UNUSED and v is not None}
    if "cosine" in figures:  # all that matters of it would be lost when it is rounded
        figures["cosine_gap"] = 1 - float(figures.pop("cosine"))
    return {
        "name": result["name"],
        "passed": result["passed"],
        "code": result["code"],
        "share": result_share(result),
        "figures": figures,
    }


_UNUSED = ("worst_channel", "floor_max", "floor_rmse", "smallest_atol", "headroom")
"""Figures that the page does not show, for others say the same."""
