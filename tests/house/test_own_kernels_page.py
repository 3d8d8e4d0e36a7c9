"""docs/own-kernels.md is true: its commands are run in order, with its files, and say what the page shows."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
PAGE = ROOT / "docs" / "own-kernels.md"
PART = re.compile(r"^```(\w+)\n(.*?)^```$(?:\n<!-- exit (\d) -->)?", re.MULTILINE | re.DOTALL)


def comparable(text: str) -> list[str]:
    """Lines without what differs between machines and runs: times, errors, adapters, the widths of tables."""
    text = re.sub(r"\d[\d.,]*(?: min \d+)? (us|ms|s)\b", "# s", text)
    text = re.sub(r"\d[\d.]*(e[+-]?\d+)?(x| times)", r"#\2", text)
    text = re.sub(r"error \d[\d.]*(e[+-]?\d+)?", "error #", text)
    text = re.sub(r"(\((?:native|emulated)\): )(?!accepted|not accepted).*", r"\1...", text)
    text = re.sub(r"[┏┓┗┛┡┩└┘━┳╇┴─┃│]+", "|", text)
    return [" ".join(line.split()) for line in text.splitlines() if line.strip()]


def shown(expected: str, found: str) -> str:
    """The first line of the page that the command did not print, in its place; empty when there is none."""
    lines = iter(comparable(found))
    for line in comparable(expected):
        if line != "..." and line not in lines:
            return line
    return ""


@pytest.fixture
def webgpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """The target, and a registry of its own: `tapml repro` loads converters in this process."""
    from tapml.lowering import registry
    from tapml.platform import find_platform

    registry.registered()
    for name in ("_entries", "_schedules", "_loaded"):
        monkeypatch.setattr(registry, name, getattr(registry, name).copy())

    if not find_platform("webgpu").devices():
        pytest.skip("needs an adapter for webgpu")


def parts() -> Iterator[tuple[str, str, int]]:
    """(language, text, exit code) of what the page shows; Python is the whole file as it is by then."""
    file = ""
    for language, text, code in PART.findall(PAGE.read_text()):
        if language == "python":
            first = text.splitlines()[0]
            assert first in ("# my_ops.py", "# my_ops.py, continued")
            text = file = text if first == "# my_ops.py" else file + text
        yield language, text, int(code or 0)


@pytest.mark.slow
@pytest.mark.usefixtures("webgpu")
def test_the_page_runs_from_start_to_end(tapml: Callable[..., Any], in_directory: Path) -> None:
    (in_directory / "examples").symlink_to(ROOT / "examples")
    ran = 0
    for language, text, code in parts():
        if language == "python":
            (in_directory / "my_ops.py").write_text(text)
        elif language == "console":
            command, _, expected = text.partition("\n")
            words = shlex.split(command)
            assert words[:2] == ["$", "tapml"]
            result = tapml(*words[2:])
            assert result.code == code, f"{command}\n{result.err}{result.out}"
            assert expected, f"{command} shows nothing"
            missing = shown(expected, result.out)
            assert not missing, f"{command} does not print\n{missing}\nbut\n{result.out}"
            ran += 1
    assert ran == 8


@pytest.mark.usefixtures("webgpu")
def test_the_failure_of_the_page_and_its_way_out(tapml: Callable[..., Any], in_directory: Path) -> None:
    """The quick part: carved, unsupported without the file, and right with it as it stands at the end."""
    assert tapml("carve", f"{ROOT / 'examples' / 'counts.py'}:counts", "-o", "suite").code == 0
    command = ("test", "suite", "--target", "webgpu", "--jobs", 1, "--select", "lgamma or addmm or exp", "--json", "-")
    before = {s["operator"]: s["status"] for s in json.loads(tapml(*command).out)["signatures"]}
    assert before["aten.lgamma.default"] == "unsupported" and before["aten.addmm.default"] == "passed"
    (in_directory / "my_ops.py").write_text([text for language, text, _ in parts() if language == "python"][-1])
    ran = tapml(*command, "--with", "my_ops.py")
    assert ran.code == 0, ran.err + ran.out
    own = {s["operator"]: s["own"][0]["name"] for s in json.loads(ran.out)["signatures"]}
    assert own == {
        "aten.lgamma.default": "lgamma_in_threads",
        "aten.addmm.default": "Matmul",
        "aten.exp.default": "wide",
    }


def test_what_is_not_printed_is_noticed() -> None:
    assert shown("a\nc 3 ms\n", "a\nb\nc 4.5 ms\n") == ""
    assert shown("a\nd\n", "a\nb\n") == "d"
    assert shown("b\na\n", "a\nb\n") == "a"
    assert shown("2 passed\n", "1 passed\n") == "2 passed"
