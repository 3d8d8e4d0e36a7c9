"""``tapml show``: print a suite or a case."""

from __future__ import annotations

from pathlib import Path

import click

from tapml.cli.options import suite_argument


@click.command(
    epilog="""\
\b
Examples:
  tapml show suite
  tapml show suite 04d00df30e5a/0
"""
)
@suite_argument
@click.argument("case", required=False)
def command(suite: Path, case: str | None) -> None:
    """Print a suite, or one case of it: arguments, figures, module path, source line.

    CASE is a case's id (signature/number), or a signature's id for its first case.
    """
    from tapml.report.suite import print_case, print_suite
    from tapml.suite.reader import Suite

    opened = Suite.open(suite)
    if case is None:
        print_suite(opened)
    else:
        print_case(opened, case if "/" in case else f"{case}/0")
