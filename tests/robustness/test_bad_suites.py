"""What can be wrong with a suite, a journal, a device or a file of converters when operators are tested and migrated."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tapml.lock import exclusive

from .conftest import Refused

MIGRATE = ("migrate", "suite", "--target", "llvm")
TEST = ("test", "suite", "--target", "llvm")


@pytest.fixture(autouse=True)
def copied(refused: Refused, suite: Path) -> None:
    shutil.copytree(suite, "suite")


def _edit(change: Callable[[dict[str, Any]], Any]) -> None:
    path = Path("suite/manifest.json")
    data = json.loads(path.read_text())
    changed = change(data)
    path.write_text(json.dumps(changed if changed is not None else data))


def _climb_out(data: dict[str, Any]) -> None:
    data["packs"][0]["path"] = "../../etc/passwd"


DAMAGE: dict[str, Callable[[], Any]] = {
    "a name that climbs out": lambda: _edit(_climb_out),
    "a version of the future": lambda: _edit(lambda d: d.update(version=d["version"] + 1)),
    "a wrong digest": lambda: _edit(lambda d: d.update(digest="0" * 64)),
    "another program's JSON": lambda: _edit(lambda d: {"hello": "world"}),
    "no JSON": lambda: Path("suite/manifest.json").write_text("{"),
    "no text": lambda: Path("suite/manifest.json").write_bytes(os.urandom(1000)),
    "no manifest": lambda: Path("suite/manifest.json").unlink(),
    "a manifest that is a directory": lambda: (Path("suite/manifest.json").unlink(), os.mkdir("suite/manifest.json")),
    "nothing": lambda: shutil.rmtree("suite"),
    "a file": lambda: (shutil.rmtree("suite"), Path("suite").write_text("x")),
    "no tensors": lambda: shutil.rmtree("suite/tensors"),
    "a pack cut off": lambda: _write_pack(lambda data: data[:-1]),
    "a pack with a lying header": lambda: _write_pack(lambda data: b"\xff" * 8 + data[8:]),
    "a pack that links out": lambda: (_pack().unlink(), _pack().symlink_to("/etc/passwd")),
}


def _pack() -> Path:
    name = json.loads(Path("suite/manifest.json").read_text())["packs"][0]["path"]
    return Path("suite") / str(name)


def _write_pack(change: Callable[[bytes], bytes]) -> None:
    path = _pack()
    path.write_bytes(change(path.read_bytes()))


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_suite(refused: Refused, damage: str) -> None:
    DAMAGE[damage]()
    for command in (("show", "suite"), TEST, MIGRATE):
        assert "suite" in refused(*command)


def test_values_that_are_not_what_was_written(refused: Refused) -> None:
    _write_pack(lambda data: data[:-64] + bytes(b ^ 1 for b in data[-64:]))
    for command in (TEST, MIGRATE):
        assert ".safetensors" in refused(*command)


@pytest.mark.parametrize(
    "options",
    [
        ("--target", "nope"),
        ("--device", "nope"),
        ("--device", "llvm:gpu"),
        ("--jobs", "0"),
        ("--timeout", "0"),
        ("--timeout", "-1"),
        ("--memory-limit", "1"),
        ("--json", "missing/out.json"),
        ("--json", "suite"),
    ],
)
def test_an_option(refused: Refused, options: tuple[str, ...]) -> None:
    for command in ("test", "migrate"):
        refused(command, "suite", "--target", "llvm", *options)


@pytest.mark.parametrize("expression", ["((", "and", "mm and", "not", "a b", "(mm", "mm or or x"])
def test_a_selection(refused: Refused, expression: str) -> None:
    refused(*TEST, "--select", expression)


FILES = {
    "missing.py": None,
    "raises.py": "raise ValueError('[/no]\\nway')",
    "syntax.py": "def f(:",
    "exits.py": "import sys; sys.exit(0)",
    "crashes.py": "import ctypes; print('here'); ctypes.string_at(0)",
    "operator.py": "import tapml\n@tapml.converter('softmax')\ndef f(ctx, x): ...",
    "text.txt": "hello",
    "folder.py": "",
}


@pytest.mark.parametrize("name", FILES)
def test_a_file_of_converters(refused: Refused, name: str) -> None:
    text = FILES[name]
    if name == "folder.py":
        os.mkdir(name)
    elif text is not None:
        Path(name).write_text(text)
    for command in (TEST, MIGRATE):
        assert name in refused(*command, "--with", name)


class TestJournal:
    folder = Path("suite/migrations/llvm-cpu")

    def write(self, text: str) -> None:
        self.folder.mkdir(parents=True)
        (self.folder / "journal.jsonl").write_text(text)

    def test_resume_without_one(self, refused: Refused) -> None:
        assert "nothing to resume" in refused(*MIGRATE, "--resume")

    @pytest.mark.parametrize(
        "text",
        [
            "garbage\nmore\n",
            '{"event": "begin", "version": 99}\n',
            '{"event": "gate"}\n',
            "[]\n[]\n",
            "\0" * 50 + "\n\n",
        ],
    )
    def test_that_is_damaged(self, refused: Refused, text: str) -> None:
        self.write(text)
        assert "--restart" in refused(*MIGRATE)
        assert "--restart" in refused(*MIGRATE, "--resume")

    def test_of_a_migration_with_other_settings(self, refused: Refused) -> None:
        self.write('{"event": "begin", "version": 1, "target": "llvm", "gate": "end"}\n')
        assert "--restart" in refused(*MIGRATE, "--resume")

    def test_that_another_process_holds(self, refused: Refused) -> None:
        self.folder.mkdir(parents=True)
        with exclusive(self.folder / "lock"):
            assert f"is being migrated by process {os.getpid()}" in refused(*MIGRATE)
            said = refused("carve", "anything.py:make", "-o", "suite", "--force")
            assert f"is being migrated by process {os.getpid()}" in said


class TestReference:
    def test_that_no_longer_loads(self, refused: Refused) -> None:
        _edit_source(location="/nowhere/gone.py:make")
        assert "/nowhere/gone.py" in refused(*MIGRATE, after=("suite/migrations", "cache/kernels"))

    def test_that_is_another_program_now(self, refused: Refused) -> None:
        path = Path("other.py")
        path.write_text(
            "import torch\n"
            "def make():\n"
            "    torch.manual_seed(1)\n"
            "    return torch.nn.Linear(3, 2).eval(), (torch.ones(1, 3),)\n"
        )
        _edit_source(location=f"{path.absolute()}:make")
        said = refused(*MIGRATE, after=("suite/migrations", "cache/kernels"))
        assert "gives other outputs than the suite has" in said and "carve the suite again" in said


def _edit_source(**changes: str) -> None:
    """Change where the suite came from, as if the file had changed since; the digest is made to fit."""
    from tapml.suite.manifest import manifest_text

    path = Path("suite/manifest.json")
    data = json.loads(path.read_text())
    data["info"]["source"].update(changes)
    path.write_text(manifest_text(data))
