"""Write docs/cli.md from the help of every command: `make docs`. A test checks that it is up to date."""

from __future__ import annotations

import re
from pathlib import Path

import click

from tapml.cli.main import COMMANDS, cli

PAGE = Path(__file__).with_name("cli.md")
WIDTH = 110


def generate() -> str:
    """The page's text."""
    sections = [
        "# The command line\n\nWritten by `make docs` from each command's `--help`: change that, not this page.\n"
    ]
    top = click.Context(cli, info_name="tapml", terminal_width=WIDTH, max_content_width=WIDTH, **cli.context_settings)
    sections.append(_section("tapml", cli.get_help(top)))
    for name in COMMANDS:
        command = cli.get_command(top, name)
        assert command is not None
        context = click.Context(command, info_name=name, parent=top, terminal_width=WIDTH, max_content_width=WIDTH)
        sections.append(_section(f"tapml {name}", command.get_help(context)))
    return "\n".join(sections)


def _section(title: str, text: str) -> str:
    text = re.sub(r"[ \t]+$", "", text, flags=re.MULTILINE).strip()
    return f"## {title}\n\n```text\n{text}\n```\n"


if __name__ == "__main__":
    PAGE.write_text(generate())
    print(f"wrote {PAGE}")
