"""``tapml migrate``: climb."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Set
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tapml.cli.options import settings_of, suite_argument, target_options
from tapml.cli.watching import Watch, require_watchable, watch_option

if TYPE_CHECKING:
    from tapml.migration.gate import Gate
    from tapml.migration.ladder import MigrationResult
    from tapml.migration.settings import Settings
    from tapml.suite.case import SignatureRecord


@click.command(
    epilog="""\
\b
Examples:
  tapml migrate suite --target llvm
  tapml migrate suite --target llvm --gate end --jobs 2
  tapml migrate suite --target webgpu --device webgpu:native --gate end
  tapml migrate suite --target llvm --with my_operators.py --restart
  tapml migrate suite --target llvm --with my_operators.py --watch
"""
)
@suite_argument
@target_options
@click.option(
    "--gate",
    type=click.Choice(["call", "operator", "end"]),
    default="operator",
    show_default=True,
    help="How often the program runs with what has migrated: after each signature, each operator, or once.",
)
@click.option(
    "--resume/--restart", default=None, help="Go on with the journal, or begin anew.  [default: go on if unfinished]"
)
@watch_option
def command(
    suite: Path,
    target: str,
    device: str,
    jobs: int | None,
    timeout: float,
    memory_limit: int,
    extensions: tuple[Path, ...],
    json_file: Path | None,
    gate: str,
    resume: bool | None,
    watch: bool,
) -> int:
    """Move a program onto a target operator by operator, checking the numbers at each step.

    An operator is compiled and judged on its cases; if it passes, the program runs with it and all operators migrated
    so far executing on the target, and its outputs are compared with the reference's.  What fails stays in PyTorch.
    The journal survives any interruption: the same command goes on where it was.

    With --watch it stays after that: whenever a file given by --with is saved, the operators that it is about are judged
    and put in place anew, and all else is kept.
    """
    if watch:
        require_watchable(extensions, json_file)
    from tapml.migration.process import start_fork_server

    start_fork_server(suite)
    from tapml.migration.ladder import compute_signatures, migrate
    from tapml.report.progress import outcome_progress
    from tapml.report.terminal import print_migration, write_json
    from tapml.suite.reader import Suite

    settings = settings_of(target, device, timeout, memory_limit, extensions, jobs=jobs, gate=gate)
    records = compute_signatures(Suite.open(suite))

    def climb(again: Set[str] | None = None, gate: Gate | None = None) -> MigrationResult:
        try:
            with outcome_progress(len(records)) as listen:
                result = migrate(suite, settings, resume=resume, listen=listen, again=again, gate=gate)
        except KeyboardInterrupt as stop:
            stop.hint = _how_to_go_on(suite, settings)  # type: ignore[attr-defined]
            raise
        if json_file is not None:
            write_json(json_file, result.to_json())
        return result

    if watch:
        return _watch(suite, settings.resolved()[0], records, climb)
    result = climb()
    if json_file is None or str(json_file) != "-":
        print_migration(result)
    return 0 if result.accepted else 1


def _watch(
    suite: Path, settings: Settings, records: list[SignatureRecord], climb: Callable[..., MigrationResult]
) -> int:
    """Climb, and once more what a save concerns; the program stays loaded."""
    from tapml.migration.ladder import open_gate
    from tapml.report.terminal import print_again, print_migration

    results: list[MigrationResult] = []
    with open_gate(suite, settings) as gate:

        def whole() -> int:
            results[:] = [climb(gate=gate)]
            print_migration(results[0])
            return 0 if results[0].accepted else 1

        def part(again: frozenset[str]) -> int:
            if again:
                results[:] = [climb(again, gate)]
                print_again(results[0], again)
            return 0 if results[0].accepted else 1

        return Watch(settings, records, whole, part, lambda: results[0].outcomes).run()


def _how_to_go_on(suite: Path, settings: Settings) -> str:
    """The command that resumes, with the options that a journal depends on."""
    if not any(suite.glob(f"migrations/{settings.target}*/journal.jsonl")):
        return "nothing was decided yet; run the same command again"
    words = ["tapml", "migrate", str(suite), "--target", settings.target]
    if settings.device:
        words += ["--device", settings.device]
    if settings.gate != "operator":
        words += ["--gate", settings.gate]
    for extension in settings.extensions:
        words += ["--with", extension]
    return f"`{shlex.join([*words, '--resume'])}` goes on where it was"
