"""``tapml operators``: a command to start from. Copy to cli/<name>.py, and add one line to COMMANDS in cli/main.py:

    "operators": "List the operators of a suite.",

Import nothing heavy at module level: `tapml --help` imports none of these files, and must stay fast.
"""

from __future__ import annotations

from pathlib import Path

import click

from tapml.cli.options import suite_argument


@click.command(
    epilog="""\
\b
Examples:
  tapml operators suite
  tapml operators suite --kind view
"""
)
@suite_argument
@click.option("--kind", default="compute", show_default=True, help="Class of the signatures to list.")
def command(suite: Path, kind: str) -> int:
    """List the operators of a suite, with their signatures and calls.

    Exit code 1 when there is none.
    """
    from tapml.suite.reader import Suite

    calls: dict[str, list[int]] = {}
    for record in Suite.open(suite).signatures:  # a SuiteError becomes an error line, a hint and exit code 2
        if record.kind == kind:
            calls.setdefault(record.signature.operator, []).append(record.calls)
    for operator, counts in sorted(calls.items()):
        click.echo(f"{operator}: {len(counts)} signatures, {sum(counts)} calls")
    return 0 if calls else 1
