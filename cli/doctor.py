"""``tapml doctor``: what is missing."""

from __future__ import annotations

import click


@click.command(
    epilog="""\
\b
Examples:
  tapml doctor
"""
)
def command() -> int:
    """Say what is missing on this machine, and how to get it.

    Exit code 0 when everything that carving and the llvm target need is here, else 2.
    """
    from tapml.doctor import examine
    from tapml.report.terminal import print_findings

    findings = examine()
    print_findings(findings)
    return 0 if all(f.present or f.optional for f in findings) else 2
