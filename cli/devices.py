"""``tapml devices``: what is here."""

from __future__ import annotations

import click


@click.command(
    epilog="""\
\b
Examples:
  tapml devices
"""
)
def command() -> None:
    """List the targets and devices that are here, with driver, features and limits."""
    from tapml.platform import find_platform, platform_names
    from tapml.report.terminal import print_devices

    print_devices([(name, find_platform(name).devices()) for name in platform_names()])
