"""Results in the terminal, and as JSON; both say the same."""

from __future__ import annotations

import json
import math
import sys
from collections import Counter
from collections.abc import Collection, Sequence
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from tapml.blame.decide import Blame
from tapml.blame.evidence import Evidence
from tapml.carving.carve import CarveSummary
from tapml.doctor import Finding
from tapml.migration.boundaries import BoundaryResult
from tapml.migration.ladder import MigrationResult
from tapml.migration.outcome import CaseResult, Outcome
from tapml.platform import DeviceInfo
from tapml.report.style import coloured, counted, human_bytes, human_seconds, in_order
from tapml.suite.call import Json


def console() -> Console:
    """Standard output; as wide as it needs when it is no terminal, so that nothing is cut off in a log."""
    return Console(width=None if sys.stdout.isatty() else 140, highlight=False, soft_wrap=False)


def write_json(path: Path, data: Json) -> None:
    """Write figures to a file, or to standard output for ``-``."""
    text = json.dumps(_strict(data), indent=1, allow_nan=False, default=str)
    if str(path) == "-":
        print(text)
    else:
        path.write_text(text + "\n")


def _strict(data: Json) -> Json:
    """NaN and infinities, which JSON lacks, as the strings ``nan``, ``inf`` and ``-inf``."""
    if isinstance(data, float) and not math.isfinite(data):
        return str(data)
    if isinstance(data, dict):
        return {key: _strict(value) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [_strict(value) for value in data]
    return data


def print_carve(summary: CarveSummary) -> None:
    """The table of a carve, what the reference said, and warnings."""
    out = console()
    table = Table(title=f"carved from {escape(summary.description)}", title_justify="left")
    table.add_column("operator")
    table.add_column("class")
    for name in ("calls", "signatures", "cases", "bytes"):
        table.add_column(name, justify="right")
    for row in summary.operators:
        table.add_row(
            row.operator, row.kind, f"{row.calls:,}", str(row.signatures), str(row.cases), human_bytes(row.nbytes)
        )
    out.print(table)
    if summary.text:
        out.print(f"the reference says: {escape(repr(summary.text))}")
    classes = ", ".join(f"{signatures} {kind}" for kind, (_, signatures) in summary.classes.items())
    out.print(f"{summary.calls:,} calls of {summary.signatures} signatures ({classes}), {summary.cases} cases kept")
    times = ", ".join(f"{name} {human_seconds(seconds)}" for name, seconds in summary.timing.items())
    out.print(f"wrote {summary.path} ({human_bytes(summary.nbytes)}); {times}")
    for warning in summary.warnings:
        out.print(f"[yellow]warning:[/] {escape(warning)}")


def print_test(target: str, device: DeviceInfo, outcomes: Sequence[Outcome]) -> None:
    """The table of ``tapml test``: operators by outcome, then each that did not pass."""
    out = console()
    _print_outcomes(out, target, device, outcomes)
    counts = Counter(o.status for o in outcomes)
    out.print(f"{len(outcomes)} compute signatures: {counted(counts)}")


def _print_outcomes(out: Console, target: str, device: DeviceInfo, outcomes: Sequence[Outcome]) -> None:
    out.print(_heading(target, device))
    out.print(_operator_table([(o, o.status) for o in outcomes]))
    _explain(out, [(o, o.status) for o in outcomes if not o.passed])
    _warn(out, outcomes)


def print_boundaries(target: str, result: BoundaryResult) -> None:
    """The table of ``tapml test --boundary``, then what is wrong by operator."""
    out = console()
    _print_outcomes(out, target, result.device, result.outcomes)
    counts = Counter(o.status for o in result.outcomes)
    out.print(
        f"{len(result.outcomes)} boundary cases: {counted(counts)}; {result.refused} more are no calls that PyTorch executes"
    )
    if result.wrong:
        out.print("what is wrong here was not met by the carved run: its cases are judged without --boundary")


def print_blame(evidence: Evidence, blame: Blame) -> None:
    """The matrix of ``tapml blame``, and what follows from it."""
    out = console()
    signature = evidence.record.signature
    table = Table(title=escape(f"{signature} {signature.id}"), title_justify="left")
    for name in ("target", "device", "mode", "outcome", "what it says"):
        table.add_column(name)
    for cell in evidence.cells:
        status = cell.status(evidence.route)
        attempt = next((a for a in cell.outcome.attempts if a.route == evidence.route), None)
        message = attempt.message if attempt is not None else cell.outcome.message
        table.add_row(cell.target, cell.device.name, cell.device.mode, coloured(status), escape(message))
    if evidence.plain is not None:
        cell = evidence.plain
        table.add_row(
            cell.target,
            f"{cell.device.name}, compiled plainly",
            cell.device.mode,
            coloured(cell.status(evidence.route)),
            escape(cell.outcome.message),
        )
    out.print(table)
    if evidence.route:
        out.print(f"by route {evidence.route}")
    out.print(f"[bold]{blame.part}[/]: {escape(blame.sentence)}")


def print_migration(result: MigrationResult) -> None:
    """The table of ``tapml migrate``, the program-level comparison, and what was left where."""
    out = console()
    out.print(_heading(result.target, result.device))
    rows = [(o, result.status(s)) for s, o in result.outcomes.items()]
    out.print(_operator_table(rows))
    _explain(out, [(o, s) for o, s in rows if s not in ("migrated", "rolled back")])
    for gate in result.gates:
        if gate.rejected:
            out.print(f"{coloured('rolled back')} {gate.operator}: {escape(gate.explanation)}")
            if gate.where:
                out.print(f"    first at {escape(gate.where)}")
    _warn(out, list(result.outcomes.values()))
    kept = ", ".join(f"{count} {kind}" for kind, count in result.kept.items())
    out.print(
        f"{len(rows)} compute signatures: {counted(result.counts)}" + (f"; kept in PyTorch: {kept}" if kept else "")
    )
    _print_final(out, result)


def print_again(result: MigrationResult, again: Collection[str]) -> None:
    """What was judged anew after a save, and the program with it."""
    out = console()
    rows = [(o, result.status(s)) for s, o in result.outcomes.items() if s in again]
    out.print(_operator_table(rows))
    for gate in result.gates:
        if set(gate.rejected) & set(again):
            out.print(f"{coloured('rolled back')} {gate.operator}: {escape(gate.explanation)}")
    _warn(out, [o for o, _ in rows])
    others = [o for s, o in result.outcomes.items() if s not in again and result.status(s) != "migrated"]
    left = f"; of the others, {len(others)} are not migrated" if others else ""
    out.print(f"{len(rows)} signatures again: {counted(Counter(s for _, s in rows))}{left}")
    _print_final(out, result)


def _print_final(out: Console, result: MigrationResult) -> None:
    final = result.final
    if final is None:
        out.print(f"[red]the program was not run on {result.device.name}[/]: nothing migrated")
        return
    verdict = "[green]accepted[/]" if final.accepted else "[red]not accepted[/]"
    calls = sum(final.on_target.values())
    out.print(
        f"the program with these on {result.device.name} ({result.device.mode}): {verdict}; "
        f"{calls:,} calls and {final.launches:,} kernel launches there, "
        f"{sum(final.in_torch.values()):,} calls in PyTorch, {human_seconds(final.seconds)}"
    )
    out.print(f"    {escape(final.explanation)}")
    if final.text:
        out.print(f"    it says: {escape(repr(final.text))}")
    if final.unknown:
        number, first = len(final.unknown), escape(final.unknown[0])
        out.print(f"[yellow]warning:[/] {number} signatures were called that the suite lacks, such as {first}")


def _heading(target: str, device: DeviceInfo) -> str:
    return f"target [bold]{target}[/], device [bold]{device.name}[/] ({device.mode}): {escape(device.description)}"


def _operator_table(rows: Sequence[tuple[Outcome, str]]) -> Table:
    table = Table()
    table.add_column("operator")
    statuses = in_order(status for _, status in rows)
    for status in statuses:
        table.add_column(status, justify="right")
    for name in ("cases", "routes", "worst error vs reference's", "warm run"):
        table.add_column(name, justify="right")
    by_operator: dict[str, list[tuple[Outcome, str]]] = {}
    for outcome, status in rows:
        by_operator.setdefault(outcome.operator, []).append((outcome, status))
    for operator, members in by_operator.items():
        cells = [str(sum(s == status for _, s in members) or "") for status in statuses]
        outcomes = [o for o, _ in members]
        cases = sum(len(o.cases) for o in outcomes)
        routes = ", ".join(sorted({o.route for o in outcomes if o.route}))
        seconds = [c.seconds for o in outcomes for c in o.cases if c.seconds]
        slowest = human_seconds(max(seconds)) if seconds else ""
        table.add_row(
            operator, *cells, str(cases), routes, worst_ratio([c for o in outcomes for c in o.cases]), slowest
        )
    return table


def worst_ratio(cases: Sequence[CaseResult]) -> str:
    """Largest rms error of a result relative to PyTorch's own error against float64; ``exact`` when there is none.

    Where there is no such ratio, the code of a verdict that is not passed (``integer-mismatch``).
    """
    worst, any_error, refused = 0.0, False, ""
    for case in cases:
        refused = refused or ("" if case.passed else case.code)
        for result in (case.verdict or {}).get("results", ()):
            figures = result.get("figures", {})
            error, reference = figures.get("rmse"), figures.get("rmse_reference")
            if isinstance(error, int | float) and error > 0:
                any_error = True
                if isinstance(reference, int | float) and reference > 0:
                    worst = max(worst, error / reference)
    return f"{worst:.2g}x" if worst else refused or ("within floor" if any_error else "exact")


def _explain(out: Console, rows: Sequence[tuple[Outcome, str]]) -> None:
    for outcome, status in rows:
        which = f"{outcome.signature} {outcome.boundary}".strip()
        out.print(f"{coloured(status)} {outcome.operator} {which}: {escape(outcome.message)}")
        for attempt in outcome.attempts:
            out.print(f"    route {attempt.route}: {attempt.status}: {escape(attempt.message)}")
        for line in outcome.output:
            out.print(f"    | {escape(line)}")


def _warn(out: Console, outcomes: Sequence[Outcome]) -> None:
    """Each distinct warning once, with the number of signatures that it concerns."""
    found: dict[str, list[str]] = {}
    for outcome in outcomes:
        for warning in outcome.warnings:
            found.setdefault(warning, []).append(outcome.operator)
        for note in outcome.notes:
            found.setdefault(note, []).append(outcome.operator)
    for warning, operators in found.items():
        out.print(f"[yellow]note:[/] {escape(warning)} ({len(operators)} signatures, such as {operators[0]})")


def print_devices(found: Sequence[tuple[str, Sequence[DeviceInfo], str]]) -> None:
    """Targets with their devices, or why they have none."""
    table = Table()
    for name in ("target", "device", "mode", "description"):
        table.add_column(name)
    for target, devices, why in found:
        for info in devices:
            details = "; ".join(f"{k} {v}" for k, v in info.details.items())
            table.add_row(
                target, info.name, info.mode, f"{info.description}\n{details}" if details else info.description
            )
        if not devices:
            table.add_row(target, "none", "", escape(why or "`tapml doctor` says what is missing"))
    console().print(table)


def print_findings(findings: Sequence[Finding]) -> None:
    """What is here and what is missing."""
    table = Table()
    for name in ("what", "for", "found", "how to get it"):
        table.add_column(name)
    for f in findings:
        state = (
            f"[green]{escape(f.found)}[/]"
            if f.present
            else f"[{'yellow' if f.optional else 'red'}]{escape(f.found)}[/]"
        )
        table.add_row(f.name, f.purpose, state, escape(f.remedy))
    console().print(table)
