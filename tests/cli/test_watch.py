"""``--watch`` as it is used: a real process in a terminal, files that are saved, Ctrl-C."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import select
import shutil
import signal
import subprocess
import termios
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tapml.cli import interrupts, watching
from tapml.migration.settings import Settings
from tapml.migration.watching import saves
from tests.robustness.running import SCRIPT, Place, place

OPS = """
from tvm import tirx

import tapml
from gelu_of import value


@tapml.converter("aten.gelu.default")
def gelu(ctx, x, approximate="none"):
    return ctx.pointwise(value, x)
"""
RIGHT = """
from tvm import tirx


def value(v):
    half = tirx.const(0.5, "float32")
    return v * half * (tirx.erf(v * tirx.const(0.5**0.5, "float32")) + tirx.const(1.0, "float32"))
"""
WRONG = RIGHT.replace("v * half", "v")
WAITS = "Ctrl-C ends it"
SECONDS = 100.0


class Terminal:
    """A command in a terminal of its own."""

    def __init__(self, where: Place, *arguments: object) -> None:
        self._master, slave = pty.openpty()
        self._printed = ""
        self.process = subprocess.Popen(
            [str(SCRIPT), *map(str, arguments)],
            cwd=where.work,
            env=where.variables({"COLUMNS": "200", "NO_COLOR": "1", "TERM": "dumb"}),
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        os.close(slave)

    def until(self, words: str) -> str:
        """What it prints up to ``words`` and with them, from where the last such wait ended."""
        end = time.monotonic() + SECONDS
        while words not in self._printed:
            assert time.monotonic() < end, f"waited for {words!r}, found {self._printed}"
            if select.select([self._master], [], [], 0.2)[0]:
                try:
                    self._printed += os.read(self._master, 1 << 16).decode(errors="replace")
                except OSError:  # it has ended
                    raise AssertionError(f"waited for {words!r}, found the end of {self._printed}") from None
        before, found, self._printed = self._printed.partition(words)
        return before + found

    def interrupt(self) -> int:
        """Ctrl-C; the exit code."""
        os.write(self._master, b"\x03")
        code = self.process.wait(SECONDS)
        os.close(self._master)
        return code


@pytest.fixture
def where() -> Iterator[Place]:
    yield from place("watch")


def begin(where: Place, suite: Path, *words: object) -> Terminal:
    shutil.copytree(suite, where.work / "suite", ignore=shutil.ignore_patterns("migrations"))
    (where.work / "ops.py").write_text(OPS)
    (where.work / "gelu_of.py").write_text(WRONG)
    command = (*words, "--target", "llvm", "--jobs", 1, "--with", "ops.py", "--watch", "--json", "figures.json")
    return Terminal(where, *command)


def statuses(where: Place) -> dict[str, str]:
    data = json.loads((where.work / "figures.json").read_text())
    return {s["operator"]: s["status"] for s in data["signatures"]}


def test_a_migration_follows_the_file(
    where: Place, carved: Callable[..., Path], tapml: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal = begin(where, carved("mlp"), "migrate", "suite")
    first = terminal.until(WAITS)
    assert "compute signatures" in first
    before = statuses(where)
    assert before["aten.gelu.default"] == "failed" and before["aten._softmax.default"] == "migrated"

    (where.work / "ops.py").write_text(OPS.replace("return ctx", "return return ctx"))
    broken = terminal.until(WAITS)
    assert "ops.py:10: SyntaxError" in broken and "hint:" in broken

    replacement = where.work / "gelu_of.py.new"
    replacement.write_text(RIGHT)
    os.replace(replacement, where.work / "gelu_of.py")  # as editors save
    (where.work / "ops.py").write_text(OPS)
    terminal.until("signatures to judge")  # not at once where the two saves are seen one after the other
    terminal.until(WAITS)
    figures = json.loads((where.work / "figures.json").read_text())
    assert figures["accepted"] and set(figures["counts"]) == {"migrated"}
    assert figures["gates"][-1]["operator"] == "aten.gelu.default"  # on top of the others, which were kept
    assert figures["final"]["on_target"]["aten.gelu.default"] == 1 and figures["final"]["launches"] > 0
    gelu = next(s for s in figures["signatures"] if s["operator"] == "aten.gelu.default")
    assert gelu["own"][0]["file"].endswith("ops.py") and not gelu["cached"]

    assert terminal.interrupt() == 0
    assert where.wait_until_alone(20) == []
    journal = where.work / "suite" / "migrations" / "llvm-cpu" / "journal.jsonl"
    events = [json.loads(line) for line in journal.read_text().splitlines()]
    assert events[0]["extensions"] == [gelu["own"][0]["digest"]] and events[-1]["event"] == "finished"
    judged = [e["outcome"]["operator"] for e in events if e["event"] == "judged"]
    assert sorted(judged) == sorted(s["operator"] for s in figures["signatures"])
    monkeypatch.chdir(where.work)
    monkeypatch.setenv("TAPML_CACHE", str(where.cache))
    resumed = tapml("migrate", "suite", "--target", "llvm", "--with", "ops.py", "--resume", "--json", "-")
    assert resumed.code == 0, resumed.err
    assert json.loads(resumed.out)["final"] == figures["final"]  # from the journal, nothing is judged or run


def test_a_save_before_the_first_look_counts(tmp_path: Path) -> None:
    """The first run is under way then, or the line that says that it waits has just been printed."""
    early, late = tmp_path / "early.py", tmp_path / "late.py"
    early.touch()
    late.touch()
    waiting = saves([str(early), str(late)])
    early.write_text("import tapml")
    ends = threading.Timer(5, late.write_text, ["import tapml"])  # or it would wait for ever for what was lost
    ends.start()
    try:
        assert next(waiting) == (str(early),)
    finally:
        ends.cancel()


def test_ctrl_c_that_comes_with_the_line_that_names_it(where: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    (where.work / "ops.py").write_text("import tapml")
    settings = Settings("llvm", extensions=(str(where.work / "ops.py"),))
    watch = watching.Watch(settings, [], lambda: 0, lambda again: 0, dict)

    def echo(text: str, **options: Any) -> None:
        if WAITS in text:
            raise interrupts.Interrupted(signal.SIGINT)

    monkeypatch.setattr(watching.click, "echo", echo)
    monkeypatch.setattr(interrupts, "settled", lambda: None)  # it would have this process ignore Ctrl-C
    assert watch.run() == 0


@pytest.mark.slow
def test_a_test_follows_the_file(where: Place, carved: Callable[..., Path]) -> None:
    terminal = begin(where, carved("mlp"), "test", "suite")
    terminal.until(WAITS)
    assert statuses(where)["aten.gelu.default"] == "failed"
    (where.work / "gelu_of.py").write_text(RIGHT)
    again = terminal.until(WAITS)
    assert "1 signatures to judge" in again and set(statuses(where).values()) == {"passed"}
    (where.work / "gelu_of.py").write_text(WRONG)
    terminal.until(WAITS)
    assert terminal.interrupt() == 1
    assert where.wait_until_alone(20) == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--watch"], "--watch needs a file to watch"),
        (["--watch", "--with", "ops.py", "--json", "-"], "found '-'"),
        (["--watch", "--with", "no_file.py"], "no_file.py"),
    ],
)
def test_what_cannot_be_watched(
    tapml: Callable[..., Any], carved: Callable[..., Path], in_directory: Path, words: list[str], said: str
) -> None:
    (in_directory / "ops.py").touch()
    ran = tapml("migrate", carved("mlp"), "--target", "llvm", *words)
    assert ran.code == 2 and said in ran.err and ran.err.count("hint:") == 1
