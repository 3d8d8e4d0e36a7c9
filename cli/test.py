"""``tapml test``: judge operators alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tapml.cli.options import settings_of, suite_argument, target_options
from tapml.cli.watching import Watch, watch_option

if TYPE_CHECKING:
    from tapml.migration.outcome import Outcome
    from tapml.migration.settings import Settings
    from tapml.platform import DeviceInfo
    from tapml.suite.call import Json
    from tapml.suite.case import SignatureRecord


@click.command(
    epilog="""\
\b
Examples:
  tapml test suite --target llvm
  tapml test suite --target llvm --select "softmax or layer_norm" --json -
  tapml test suite --target llvm --boundary --select gelu
  tapml test suite --target llvm --with my_operators.py --select mm --watch
"""
)
@suite_argument
@target_options
@click.option(
    "--boundary",
    is_flag=True,
    help="Not the carved inputs, but their neighbours: other extents, strides, NaN, Inf, ties, huge values.",
)
@click.option("--select", default="", help="Only signatures whose operator, id or module path match, as pytest's -k.")
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
    select: str,
    boundary: bool,
    watch: bool,
) -> int:
    """Judge each operator alone on a target, on its carved inputs.

    Every compute signature is compiled in a worker process, executed on the device on each of its cases, and judged
    against float64 and against PyTorch's own error.

    With --boundary the inputs are neighbours of the carved ones, which other runs meet sooner or later.  What is wrong
    there says nothing against a migration of the carved run.
    """
    from tapml.errors import UsageError
    from tapml.migration.process import start_fork_server

    start_fork_server(suite)
    from tapml.migration.ladder import compute_signatures, test
    from tapml.migration.select import selector
    from tapml.report.progress import outcome_progress
    from tapml.report.terminal import print_test, write_json
    from tapml.suite.reader import Suite

    settings = settings_of(target, device, timeout, memory_limit, extensions, jobs=jobs)
    chosen = selector(select)
    found = compute_signatures(Suite.open(suite))
    total = sum(map(chosen, found))
    if not total:
        raise UsageError(
            f"expected compute signatures to test, found none of {len(found)} that match {select!r}",
            hint=f"`tapml show {suite}` lists operators, ids and module paths",
        )
    if boundary:
        return _boundary(suite, settings, [r for r in found if chosen(r)], json_file)

    known: dict[str, Outcome] = {}

    def judge(select: Callable[[SignatureRecord], bool], count: int) -> list[Outcome]:
        with outcome_progress(count) as listen:
            info, outcomes = test(suite, settings, select, listen)
        known.update((o.signature, o) for o in outcomes)
        everything = [known[r.signature.id] for r in found if chosen(r)]
        if json_file is not None:
            figures = {**_heading(suite, target, info, everything), "signatures": [o.to_json() for o in everything]}
            write_json(json_file, figures)
        if json_file is None or str(json_file) != "-":
            print_test(target, info, outcomes)
        return everything

    def whole() -> int:
        return _code(judge(chosen, total))

    def part(again: frozenset[str]) -> int:
        if again:
            judge(lambda record: record.signature.id in again, len(again))
        return _code(known.values())

    if not watch:
        return whole()
    return Watch(settings.resolved()[0], [r for r in found if chosen(r)], whole, part, lambda: known).run()


def _code(outcomes: Iterable[Outcome]) -> int:
    return 0 if all(o.passed for o in outcomes) else 1


def _heading(suite: Path, target: str, info: DeviceInfo, outcomes: list[Outcome]) -> Json:
    """What the figures are of, and how many outcomes there are of each status."""
    counts = dict(Counter(o.status for o in outcomes))
    return {"suite": str(suite), "target": target, **info.to_json(), "counts": counts}


def _boundary(suite: Path, settings: Settings, records: list[SignatureRecord], json_file: Path | None) -> int:
    from tapml.boundary.neighbours import choose
    from tapml.migration.boundaries import judge_boundaries
    from tapml.report.progress import outcome_progress
    from tapml.report.terminal import print_boundaries, write_json

    chosen = choose(records)
    with outcome_progress(len(chosen)) as listen:
        result = judge_boundaries(suite, settings, chosen, listen)
    if json_file is not None:
        write_json(
            json_file,
            {
                **_heading(suite, settings.target, result.device, result.outcomes),
                "refused": result.refused,
                "boundary": [o.to_json() for o in result.outcomes],
            },
        )
    if json_file is None or str(json_file) != "-":
        print_boundaries(settings.target, result)
    return 0 if all(o.passed for o in result.outcomes) else 1
