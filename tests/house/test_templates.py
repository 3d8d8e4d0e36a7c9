"""What CONTRIBUTING tells to copy works when it is copied."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
TEMPLATES = ROOT / "examples" / "templates"
CACHES = shutil.ignore_patterns("__pycache__")
UNFINISHED = shutil.ignore_patterns("*.pyc.*")
"""What another process is just writing there; compiled files themselves are copied, which saves each start seconds."""


class Tree:
    """A copy of the package with the folders where their names say, as an installed tapml has them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.package = Path(shutil.copytree(ROOT / "tapml", folder / "tapml", ignore=UNFINISHED))
        for name in ("cli", "platforms"):
            shutil.copytree(ROOT / name, self.package / name, ignore=UNFINISHED)

    def run(self, *arguments: object) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "tapml.cli.main", *map(str, arguments)],
            env={**os.environ, "PYTHONPATH": str(self.folder), "PYTHONSAFEPATH": "1"},
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
            stdin=subprocess.DEVNULL,
            timeout=250,
        )


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)


def test_a_platform_is_a_new_folder_and_nothing_else(tree: Tree, copied: Callable[..., Path]) -> None:
    target = tree.package / "platforms" / "mytarget"
    shutil.copytree(TEMPLATES / "platform", target, ignore=CACHES)
    for path in target.rglob("*.py"):
        path.write_text(path.read_text().replace("template", "mytarget").replace("Template", "Mytarget"))
    devices = tree.run("devices")
    assert "mytarget:cpu" in devices.stdout and "llvm:cpu" in devices.stdout, devices.stderr
    suite = copied("mlp")
    migrated = tree.run("migrate", suite, "--target", "mytarget", "--gate", "end", "--jobs", 1, "--json", "-")
    assert migrated.returncode == 0, migrated.stderr + migrated.stdout
    data = json.loads(migrated.stdout)
    assert data["device"] == "mytarget:cpu" and set(data["counts"]) == {"migrated"}
    assert data["final"]["launches"] > 0
    assert (suite / "migrations").is_dir()


def test_a_command_is_a_new_file_and_one_line(tree: Tree, carved: Callable[..., Path]) -> None:
    shutil.copy(TEMPLATES / "command.py", tree.package / "cli" / "operators.py")
    main = tree.package / "cli" / "main.py"
    line = '    "operators": "List the operators of a suite.",\n'
    assert line.strip() in (TEMPLATES / "command.py").read_text()
    text = main.read_text()
    assert text.count("COMMANDS = {\n") == 1
    main.write_text(text.replace("COMMANDS = {\n", f"COMMANDS = {{\n{line}"))
    assert "List the operators of a suite." in tree.run("--help").stdout
    ran = tree.run("operators", carved("mlp"))
    assert ran.returncode == 0 and "aten.addmm.default: 2 signatures, 2 calls" in ran.stdout, ran.stderr
    assert tree.run("operators", carved("mlp"), "--kind", "random").returncode == 1
    missing = tree.run("operators", "no_suite")
    assert missing.returncode == 2 and missing.stderr.startswith("error: no_suite")


def test_converters_and_kernels_are_a_file_that_is_passed(
    tapml: Callable[..., Any], carved: Callable[..., Path]
) -> None:
    ran = tapml("test", carved("triangle"), "--target", "llvm", "--with", TEMPLATES / "converters.py", "--json", "-")
    assert ran.code == 0, ran.err + ran.out
    signatures = json.loads(ran.out)["signatures"]
    assert {s["operator"] for s in signatures} == {"aten.softplus.default", "aten.mm.default", "aten.tril.default"}
    for signature in signatures:
        assert signature["status"] == "passed" and signature["route"] == "converter"
        assert any("converters" in c for c in signature["converters"]), signature["converters"]


def test_templates_raise_for_what_they_do_not_handle(tapml: Callable[..., Any], carved: Callable[..., Path]) -> None:
    """Another way is tried then."""
    ran = tapml(
        "test", carved("triangle_float64"), "--target", "llvm", "--with", TEMPLATES / "converters.py", "--json", "-"
    )
    for signature in json.loads(ran.out)["signatures"]:
        attempt = signature["attempts"][0]
        assert (attempt["route"], attempt["status"]) == ("converter", "unsupported")
        assert "float64" in attempt["message"] or "float32 matrix" in attempt["message"]
