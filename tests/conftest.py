"""What tests of several folders share: a cache of their own, carved suites of small programs, the command line."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

# Workers are forked from a process that keeps the environment which it was started with: set this before there is one.
_cache = tempfile.mkdtemp(prefix="tapml-tests-")
atexit.register(shutil.rmtree, _cache, ignore_errors=True)
os.environ["TAPML_CACHE"] = _cache
os.environ["HF_HUB_OFFLINE"] = "1"

ROOT = Path(__file__).resolve().parent.parent
PROGRAMS = ROOT / "tests" / "programs.py"


@dataclass(frozen=True)
class Ran:
    """What a command left: exit code, standard output, standard error."""

    code: int
    out: str
    err: str


@pytest.fixture
def tapml(capsys: pytest.CaptureFixture[str]) -> Callable[..., Ran]:
    """Run a command line in this process: ``tapml("test", suite, "--target", "llvm")``."""
    from tapml.cli.main import run

    def call(*arguments: object) -> Ran:
        capsys.readouterr()
        code = run([str(a) for a in arguments])
        captured = capsys.readouterr()
        return Ran(code, captured.out, captured.err)

    return call


@pytest.fixture(scope="session")
def carved(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """The suite of a program of ``tests/programs.py``, carved once: ``carved("mlp", keep=1)``.  Not to be changed."""
    from tapml.carving.carve import carve
    from tapml.carving.sources import find_source

    made: dict[tuple[str, int], Path] = {}

    def suite(program: str, keep: int = 3) -> Path:
        if (program, keep) not in made:
            out = tmp_path_factory.mktemp("suites") / f"{program}-{keep}"
            made[program, keep] = carve(find_source(f"{PROGRAMS}:{program}"), out, keep=keep).path
        return made[program, keep]

    return suite


@pytest.fixture
def copied(carved: Callable[..., Path], tmp_path: Path) -> Callable[..., Path]:
    """A copy of such a suite, without migrations, to write to."""

    def suite(program: str, keep: int = 3, name: str = "suite") -> Path:
        source = carved(program, keep)
        return Path(shutil.copytree(source, tmp_path / name, ignore=shutil.ignore_patterns("migrations")))

    return suite


@pytest.fixture
def in_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty working directory."""
    monkeypatch.chdir(tmp_path)
    yield tmp_path
