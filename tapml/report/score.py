"""A score in the terminal."""

from __future__ import annotations

from collections import Counter

from rich.markup import escape
from rich.table import Table

from tapml.report.style import human_bytes, human_seconds
from tapml.report.terminal import console
from tapml.score.result import REASONS, Score, carrying, witnesses
from tapml.score.rewrite import Rewritten

_MISSES = 20
"""Missed defects that are written out; all of them are in the JSON."""


def print_score(score: Score) -> None:
    """The table by kind of defect, what was excluded and why, what was missed, and which cases carry the score."""
    out = console()
    mode = "emulated" if score.device.emulated else "native"
    out.print(f"target {score.target}, device {score.device.name} ({mode}): {escape(score.device.description)}")
    table = Table()
    table.add_column("defect in")
    for name in ("planted", "caught", "in the right operator", "by N(0, 1) inputs", "excluded"):
        table.add_column(name, justify="right")
    for row in score.rows:
        style = "bold" if row.kind == "all" else None
        table.add_row(
            row.kind,
            f"{row.planted:,}",
            share(row.caught, row.planted),
            share(row.placed, row.caught),
            share(row.random, row.planted),
            f"{row.excluded:,}",
            style=style,
        )
    out.print(table)
    for reason, count in score.excluded.items():
        out.print(f"    excluded: {count:,} {REASONS[reason]}")
    for fate in score.missed[:_MISSES]:
        out.print(
            f"[yellow]missed[/] {fate.operator} {fate.signature}: {escape(fate.defect.what)} "
            f"({escape(fate.defect.place)}); caught by {escape(witnesses(fate))}"
        )
    if len(score.missed) > _MISSES:
        out.print(f"    and {len(score.missed) - _MISSES:,} more that were missed; --json has all")
    for fate in score.fates:
        if fate.spoilt:
            out.print(f"[red]misplaced[/] {fate.operator} {fate.signature}: {'; '.join(map(escape, fate.spoilt))}")
    _print_program(score)
    out.print(
        f"false alarms: {len(score.alarms)} of {score.judged:,} carved and random inputs on which healthy kernels were judged"
    )
    for text in score.alarms:
        out.print(f"    [red]false alarm[/] {escape(text)}")
    not_scored = Counter(s.status for s in score.signatures if s.status != "passed")
    for status, count in not_scored.items():
        out.print(f"    {count} signatures not scored: healthy candidate {status}")
    cases = {case for s in score.signatures for case in s.cases}
    carry = carrying(score.fates)
    alone = sum(len(f.cases) == 1 for f in score.fates)
    out.print(
        f"{len(carry):,} of {len(cases):,} cases catch something; {alone:,} defects are caught by one case alone; "
        f"{len(score.signatures)} signatures, at most {score.limit} defects each (seed {score.seed}), "
        f"{human_seconds(score.seconds)}"
    )


def _print_program(score: Score) -> None:
    out = console()
    if score.why_not and not score.program:
        out.print(f"in the whole program: nothing tried ({escape(score.why_not)})")
        return
    noticed = [p for p in score.program if p.noticed]
    right = sum(p.right for p in noticed)
    unnoticed = len(score.program) - len(noticed)
    out.print(
        f"in the whole program: of {len(score.program)} defects {len(noticed)} made it leave its bounds, and the migration "
        f"named their operator for {right}" + (f"; {unnoticed} it does not notice" if unnoticed else "")
    )
    for found in noticed:
        if not found.right:
            out.print(f"    [red]misplaced[/] {found.operator} {found.signature}: it named {found.found}")
    if score.why_not:
        out.print(f"    not all were tried: {escape(score.why_not)}")


def print_rewritten(rewritten: Rewritten) -> None:
    """What a suite has that was written anew."""
    new = rewritten
    added = f" and {new.added:,} drawn ones" if new.added else ""
    console().print(
        f"wrote {new.path}: {new.cases:,} of {new.cases_before:,} cases{added}, {human_bytes(new.nbytes)} of tensors "
        f"({100 * new.nbytes / max(new.nbytes_before, 1):.0f} % of the {human_bytes(new.nbytes_before)} before), "
        f"{human_bytes(new.stored)} on the disk ({human_bytes(new.stored_before)} before); it catches {new.caught:,} "
        f"defects ({new.caught_before:,} before)"
    )


def share(count: int, of: int) -> str:
    """``17 (94.4 %)``."""
    return f"{count:,} ({100 * count / of:.1f} %)" if of else "0"
