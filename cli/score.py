"""``tapml score``: what a suite catches."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tapml.cli.options import settings_of, suite_argument, target_options

if TYPE_CHECKING:
    from tapml.migration.settings import Settings
    from tapml.score.run import Options


@click.command(
    epilog="""\
\b
Examples:
  tapml score suite --target llvm --limit 2 --program 0
  tapml score suite --target llvm --select gelu --seed 1 --program 0 --json -
  tapml score suite --target llvm --limit 1 --program 0 --minimise -o smaller
"""
)
@suite_argument
@target_options
@click.option("--select", default="", help="Only signatures whose operator, id or module path match, as pytest's -k.")
@click.option(
    "--limit",
    type=click.IntRange(1),
    default=8,
    show_default=True,
    help="Defects planted in one signature at most, evenly over their kinds.",
)
@click.option("--seed", default=0, show_default=True, help="Which defects are drawn, and which random inputs.")
@click.option(
    "--program",
    type=click.IntRange(0),
    default=2,
    show_default=True,
    help="Caught defects to try in the whole program too, to see whether the migration names their operator.",
)
@click.option("--minimise", is_flag=True, help="Write a suite without the cases that add nothing to the score, to -o.")
@click.option(
    "--strengthen", is_flag=True, help="Write a suite with drawn inputs that catch what its cases miss, to -o."
)
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Directory of the suite that is written.")
@click.option("--force", is_flag=True, help="Replace the suite that is at -o.")
@click.option("--restart", is_flag=True, help="Begin anew.  [default: go on with what is known of the same suite]")
def command(
    suite: Path,
    target: str,
    device: str,
    jobs: int | None,
    timeout: float,
    memory_limit: int,
    extensions: tuple[Path, ...],
    json_file: Path | None,
    select: str,
    limit: int,
    seed: int,
    program: int,
    minimise: bool,
    strengthen: bool,
    output: Path | None,
    force: bool,
    restart: bool,
) -> int:
    """Plant defects in the kernels of a suite, and say how many its cases catch.

    Constants, operators, indices, guards, accumulators, dtypes and extents are changed in lowered modules, barriers and
    launches too in the kernels of a GPU target; each defect is compiled, executed on the device, and judged on the carved
    cases, beside as many random inputs. What nothing tells from the healthy kernel is excluded, and counted with the
    reason. --minimise and --strengthen write a suite anew that has less, or misses less. Exit code 1 when a healthy
    kernel is judged wrong.
    """
    from tapml.migration.process import start_fork_server

    start_fork_server(suite)
    from tapml.errors import UsageError
    from tapml.migration.ladder import compute_signatures
    from tapml.migration.select import selector
    from tapml.report.progress import score_progress
    from tapml.report.score import print_rewritten, print_score
    from tapml.report.terminal import write_json
    from tapml.score.rewrite import Rewritten, require_output, write_rewritten
    from tapml.score.run import Options, score
    from tapml.suite.reader import Suite

    if (minimise or strengthen) != (output is not None):
        raise UsageError(
            f"expected -o with --minimise or --strengthen, found {'-o alone' if output is not None else 'none'}",
            hint="--minimise -o NEW_SUITE writes a smaller suite there",
        )
    if output is not None:
        require_output(suite, output, force=force)
    settings = settings_of(target, device, timeout, memory_limit, extensions, jobs=jobs)
    chosen = selector(select)
    total = sum(map(chosen, compute_signatures(Suite.open(suite))))
    if not total:
        raise UsageError(
            f"expected compute signatures to score, found none that match {select!r}",
            hint=f"`tapml show {suite}` lists operators, ids and module paths",
        )
    options = Options(settings, seed, limit, program, chosen, restart)
    try:
        with score_progress(total) as listen:
            found = score(suite, options, listen)
    except KeyboardInterrupt as stop:
        stop.hint = f"what is done is kept: `{shlex.join(_again(suite, settings, options, select))}` goes on"  # type: ignore[attr-defined]
        raise
    new: Rewritten | None = None
    if output is not None:
        new = write_rewritten(found, suite, output, minimise=minimise, strengthen=strengthen, force=force)
    if json_file is not None:
        write_json(json_file, {**found.to_json(), "rewritten": new.to_json() if new is not None else None})
    if json_file is None or str(json_file) != "-":
        print_score(found)
        if new is not None:
            print_rewritten(new)
    return 1 if found.alarms else 0


def _again(suite: Path, settings: Settings, options: Options, select: str) -> list[str]:
    words = ["tapml", "score", str(suite), "--target", settings.target]
    words += ["--device", settings.device] if settings.device else []
    words += ["--select", select] if select else []
    words += ["--limit", str(options.limit), "--seed", str(options.seed)]
    return words
