"""``tapml repro``: a bug report that stands alone."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import click

from tapml.cli.options import settings_of, signature_options, suite_argument


@click.command(
    epilog="""\
\b
Examples:
  tapml repro suite 59be5418ec13/0 --target llvm --route frontend -o bug
  tapml repro suite 59be5418ec13 --target llvm --route frontend -o bug --shrink --budget 20
"""
)
@suite_argument
@click.argument("case")
@signature_options
@click.option("-o", "--output", required=True, type=click.Path(path_type=Path), help="Directory to write.")
@click.option("--force", is_flag=True, help="Replace the bundle that is there.")
@click.option(
    "--route",
    default="",
    help="converter, frontend (TVM's own) or decomposition.  [default: what a migration would try first and that fails]",
)
@click.option(
    "--boundary", default="", help="A neighbour of the signature's first case, as `tapml test --boundary` names it."
)
@click.option("--shrink/--no-shrink", default=False, help="Make it smaller first.  [default: no]")
@click.option(
    "--budget",
    type=click.FloatRange(0, min_open=True),
    default=60.0,
    show_default=True,
    help="Seconds that shrinking may take.",
)
@click.option("--seed", default=0, show_default=True, help="Order in which reductions are tried, and PyTorch's seed.")
def command(
    suite: Path,
    case: str,
    target: str,
    device: str,
    timeout: float,
    memory_limit: int,
    extensions: tuple[Path, ...],
    json_file: Path | None,
    output: Path,
    force: bool,
    route: str,
    boundary: str,
    shrink: bool,
    budget: float,
    seed: int,
) -> int:
    """Write a bug report that stands alone: a directory with everything that one failing case needs.

    CASE is a case's id (signature/number), or a signature's id for its first case that fails.

    The directory has the tensors, the call in PyTorch, the TVM module and the kernels as text, the verdict, versions, the
    adapter and its limits, and a script that reproduces the failure with PyTorch and TVM alone (for WebGPU also a page
    that does so in a browser). The script is run once in a clean process: a bundle that does not reproduce says so.

    With --shrink, shapes, values and arguments become smaller while the failure stays of the same kind. The same seed
    takes the same steps; the budget decides how many.

    Exit codes: 0 the bundle reproduces, 1 it was written and does not, 2 nothing fails, or usage.
    """
    from tapml.migration.process import start_fork_server

    start_fork_server(suite)
    from tapml.report.progress import stage_progress
    from tapml.report.repro import print_bundle
    from tapml.report.terminal import write_json
    from tapml.repro.make import Options, reproduce_case

    settings = settings_of(target, device, timeout, memory_limit, extensions)
    options = Options(settings, route, budget if shrink else 0.0, seed, force, shlex.join(["tapml", *sys.argv[1:]]))
    try:
        with stage_progress() as listen:
            made = reproduce_case(suite, case, output, options, listen, boundary=boundary)
    except KeyboardInterrupt as stop:
        stop.hint = "nothing was written; a smaller --budget ends the shrinking sooner"  # type: ignore[attr-defined]
        raise
    if json_file is not None:
        write_json(json_file, made.to_json())
    if json_file is None or str(json_file) != "-":
        print_bundle(made)
    return 0 if made.bundle.confirmation.reproduced else 1
