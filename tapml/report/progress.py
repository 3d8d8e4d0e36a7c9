"""Progress of long work in the terminal; silent where there is no terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)

from tapml.report.style import human_bytes

_ERROR = Console(stderr=True)


def _line(*columns: ProgressColumn) -> Progress:
    """``columns`` between a sign of life and what is being done; gone when it ends."""
    return Progress(
        SpinnerColumn(),
        *columns,
        TextColumn("{task.description}"),
        TimeElapsedColumn(),
        console=_ERROR,
        transient=True,
        disable=not _ERROR.is_terminal,
    )


@contextmanager
def carve_progress() -> Iterator[tuple[Callable[[int, int, int], None], Callable[[str], None]]]:
    """(progress, note): what :func:`tapml.carving.carve.carve` reports calls, signatures, bytes, and phases to."""
    with _line() as bar:
        task = bar.add_task("loading the reference")

        def progress(calls: int, signatures: int, nbytes: int) -> None:
            text = f"recording: {calls:,} calls, {signatures:,} signatures, {human_bytes(nbytes)} kept"
            bar.update(task, description=text)

        def note(text: str) -> None:
            bar.update(task, description=text)

        yield progress, note


@contextmanager
def outcome_progress(total: int) -> Iterator[Callable[[str, Any], None]]:
    """A listener for :mod:`tapml.migration.ladder`: a bar over signatures, and a line for what needs attention."""
    with _line(BarColumn(), MofNCompleteColumn()) as bar:
        task = bar.add_task("compiling and judging", total=total)

        def listen(kind: str, value: Any) -> None:
            if kind == "judged":
                bar.advance(task)
                if not value.passed and value.status != "refused":
                    which = f"{value.signature} {value.boundary}".strip()
                    text = f"[red]{value.status}[/] {value.operator} {which}: {escape(value.message)}"
                    bar.console.print(text, soft_wrap=True)
            elif kind == "recalled":
                bar.update(task, completed=value)
            elif kind == "gate":
                where = value.operator or "the whole program"
                if value.accepted:
                    bar.update(task, description=f"the program runs with {where} in place")
                else:
                    text = f"[red]rolled back[/] {where}: {escape(value.explanation)}; {escape(value.where)}"
                    bar.console.print(text, soft_wrap=True)

        yield listen


@contextmanager
def stage_progress() -> Iterator[Callable[[str], None]]:
    """What is being done, in a line that is replaced by the next one."""
    with _line() as bar:
        task = bar.add_task("starting")
        yield lambda text: bar.update(task, description=escape(text))


@contextmanager
def score_progress(total: int) -> Iterator[Callable[[str, Any], None]]:
    """A listener for :func:`tapml.score.run.score`: a bar over signatures, and what has been caught so far."""
    with Progress(
        SpinnerColumn(),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.description}"),
        TimeElapsedColumn(),
        console=_ERROR,
        transient=True,
        disable=not _ERROR.is_terminal,
    ) as bar:
        task = bar.add_task("planting defects", total=total)
        counts = {"caught": 0, "missed": 0, "excluded": 0}

        def listen(kind: str, value: Any) -> None:
            if kind == "recalled":
                bar.update(task, completed=value)
            elif kind == "scored":
                for fate in value.fates:
                    counts[fate.fate] += 1
                text = ", ".join(f"{count:,} {name}" for name, count in counts.items())
                bar.update(task, advance=1, description=f"planting defects: {text}")
            elif kind == "program":
                bar.update(task, description=escape(value))

        yield listen
