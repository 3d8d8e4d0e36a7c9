"""Links lead somewhere, code in documents is code, and the commands in them exist."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from tapml.cli.main import cli

ROOT = Path(__file__).resolve().parent.parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "tests").glob("*.md")])
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def pages() -> list[Any]:
    return [pytest.param(p, id=str(p.relative_to(ROOT))) for p in PAGES]


def fences(page: Path, *languages: str) -> list[str]:
    return [code for language, code in FENCE.findall(page.read_text()) if language in languages]


def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", FENCE.sub("", page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in headings}


@pytest.mark.parametrize("page", pages())
def test_links_lead_somewhere(page: Path) -> None:
    text = FENCE.sub("", page.read_text())
    for target in re.findall(r"\[[^\]]*\]\(([^)\s]+)\)", text):
        if target.startswith(("http://", "https://")):
            continue
        path, _, anchor = target.partition("#")
        found = (page.parent / path).resolve() if path else page
        assert found.exists(), f"{page.name}: {target}"
        assert found.is_relative_to(ROOT), f"{page.name}: {target} leaves the repository"
        if anchor:
            assert anchor in anchors(found), f"{page.name}: no heading for {target}"


@pytest.mark.parametrize("page", pages())
def test_files_named_in_code_are_there(page: Path) -> None:
    """`tapml/migration/ladder.py` and the like, which a rename would leave behind."""
    text = FENCE.sub("", page.read_text())
    folders = "|".join(("tapml", "cli", "platforms", "tests", "docs", "examples", "benchmarks", r"\.ci"))
    for name in re.findall(rf"`((?:{folders})/[\w./-]*)`", text):
        assert (ROOT / name).exists(), f"{page.name} names {name}"


@pytest.mark.parametrize("page", pages())
def test_python_is_python(page: Path) -> None:
    for code in fences(page, "python", "py"):
        ast.parse(code)


def commands(page: Path) -> Iterator[list[str]]:
    """What follows ``$ tapml`` or begins a line with ``tapml`` in fences."""
    for code in fences(page, "", "sh", "bash", "console", "text"):
        for line in re.sub(r"\\\n\s*", "", code).splitlines():
            match = re.match(r"(?:\$ )?tapml ([a-z].*)", line.split(" #")[0])
            if match and "..." not in match[1]:
                yield shlex.split(match[1])


@pytest.mark.parametrize("page", pages())
def test_commands_parse(page: Path) -> None:
    for words in commands(page):
        context = click.Context(cli, info_name="tapml", **cli.context_settings)
        command = cli.get_command(context, words[0])
        assert command is not None, f"{page.name}: tapml {' '.join(words)}"
        own = click.Context(command, info_name=words[0], parent=context)
        command.make_parser(own).parse_args(args=words[1:])  # not the values: they name files of the reader


@pytest.mark.parametrize("page", pages())
def test_make_targets_exist(page: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = set(re.findall(r"`make ([a-z-]+)", page.read_text()))
    named |= {m for code in fences(page, "sh", "console") for m in re.findall(r"^(?:\$ )?make ([a-z-]+)", code, re.M)}
    assert named <= targets


def test_the_converter_of_the_readme_works(
    tapml: Callable[..., Any], carved: Callable[..., Path], tmp_path: Path
) -> None:
    (code,) = [c for c in fences(ROOT / "README.md", "python") if "tapml.converter" in c]
    file = tmp_path / "my_operators.py"
    file.write_text(code)
    ran = tapml("test", carved("silu"), "--target", "llvm", "--with", file)
    assert ran.code == 0, ran.err + ran.out


def test_the_six_files_to_read_first_are_six() -> None:
    section = (ROOT / "README.md").read_text().split("## Six files to read first")[1].split("\n## ")[0]
    assert len(re.findall(r"^\d\. ", section, re.MULTILINE)) == 6


def test_statuses_and_exit_codes_are_described() -> None:
    from tapml.migration.outcome import STATUSES

    page = (ROOT / "docs" / "migration.md").read_text()
    for status in (*STATUSES, "migrated", "rolled back"):
        assert f"`{status}`" in page, status
    for code in ("0", "1", "2", "130"):
        assert f"| {code} |" in (ROOT / "README.md").read_text()
