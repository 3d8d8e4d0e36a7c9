"""``tapml report`` in the terminal: the short form."""

from __future__ import annotations

import math

from rich.markup import escape
from rich.table import Table

from tapml.report.model import Migration, Report
from tapml.report.style import coloured, counted, human_seconds
from tapml.report.terminal import console

_MOST = 8
"""Signatures that did not pass, each with its reason; the rest is counted."""


def print_report(report: Report, written: list[str]) -> None:
    """A line for each migration, what did not pass, and where the rest is."""
    out = console()
    out.print(
        f"[bold]{escape(report.title)}[/]: {len(report.signatures)} compute signatures, {len(report.cases)} cases; "
        f"digest {report.digest[:12]}"
    )
    table = Table()
    for name in ("device", "mode", "verdict", "signatures", "tolerance used", "launches", "program"):
        table.add_column(name, justify="right" if name in ("tolerance used", "launches") else "left", overflow="fold")
    for m in report.migrations:
        table.add_row(
            escape(m.label),
            f"[yellow]{m.mode}[/]" if m.emulated else m.mode,
            _verdict(m),
            counted(m.counts),
            _used(m),
            f"{m.launches:,}",
            human_seconds(m.final.seconds) if m.final is not None else "not run",
        )
    out.print(table)
    for m in report.migrations:
        _explain(m)
    for note in report.notes:
        out.print(f"[yellow]note:[/] {escape(note)}")
    for file in written:
        out.print(f"wrote {escape(file)}", soft_wrap=True)


def _verdict(migration: Migration) -> str:
    colour = "green" if migration.accepted else "red" if migration.state == "finished" else "yellow"
    return f"[{colour}]{migration.verdict}[/]"


def _used(migration: Migration) -> str:
    used = migration.share
    if used is None or math.isnan(used):
        return "" if used is None else "not recorded"
    return "exact" if used == 0 else f"{used:.0%}"


def _explain(migration: Migration) -> None:
    out = console()
    rows = [
        o for s, o in migration.outcomes.items() if migration.statuses[s] not in ("migrated", "passed", "rolled back")
    ]
    for o in rows[:_MOST]:
        status = coloured(migration.statuses[o.signature])
        out.print(f"{escape(migration.label)}: {status} {escape(o.operator)} {o.signature}: {escape(o.message)}")
    if len(rows) > _MOST:
        out.print(f"{escape(migration.label)}: and {len(rows) - _MOST} more")
    for gate in migration.gates:
        if gate.rejected:
            where = f"; first at {gate.where}" if gate.where else ""
            what = f"{escape(migration.label)}: {coloured('rolled back')} {escape(gate.operator)}"
            out.print(f"{what}: {escape(gate.explanation + where)}")
    if migration.final is not None and not migration.final.accepted:
        out.print(f"{escape(migration.label)}: the program: {escape(migration.final.explanation)}")
