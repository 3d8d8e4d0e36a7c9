"""Disks that are full or read-only, Ctrl-C, a suite that is deleted: the real command in a process of its own."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from .running import HERE, Place

FACTORY = f"{HERE / 'bad_factories.py'}:depends_on_a_file"
LOOP = f"{HERE / 'loop_program.py'}:make"
MIGRATE = ("migrate", "suite", "--target", "llvm")


def said(done: subprocess.CompletedProcess[str], code: int = 2) -> str:
    """Stderr of a command that was refused."""
    assert done.returncode == code, done.stderr
    lines = done.stderr.splitlines()
    assert sum(line.startswith("error: ") for line in lines) == 1, done.stderr
    assert sum(line.startswith("hint: ") for line in lines) == 1, done.stderr
    assert "Traceback" not in done.stderr and "unexpected" not in done.stderr
    return done.stderr


@contextlib.contextmanager
def disk(folder: Path, size: str, *options: str) -> Iterator[Path]:
    """A small disk of its own; skipped where that takes more rights than there are."""
    folder.mkdir(exist_ok=True)
    command = ["mount", "-t", "tmpfs", "-o", ",".join([f"size={size}", *options]), "tmpfs", str(folder)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("needs mount")
    if done.returncode != 0:
        pytest.skip(f"needs the right to mount: {done.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=False)


def fill(folder: Path) -> Path:
    """Leave no byte."""
    path = folder / "filler"
    with contextlib.suppress(OSError), open(path, "wb", buffering=0) as file:
        while file.write(bytes(1 << 16)):
            pass
    return path


@pytest.fixture
def carved(place: Place, suite: Path) -> Place:
    shutil.copytree(suite, place.work / "suite")
    return place


def clean(home: Place) -> None:
    assert home.wait_until_alone(5) == []
    assert home.temporaries() == []


def test_a_full_disk_while_carving(place: Place) -> None:
    with disk(place.work / "small", "4k"):
        err = said(place.run("carve", FACTORY, "-o", "small/suite"))
        assert "the disk is full" in err and "small/suite" in err
        assert os.listdir(place.work / "small") == []
    clean(place)


def test_a_full_disk_under_the_cache(carved: Place) -> None:
    with disk(carved.work / "small", "64k") as small:
        filler = fill(small)
        err = said(carved.run(*MIGRATE, TAPML_CACHE=str(small)))
        assert "the disk is full" in err and "TAPML_CACHE" in err
        assert not (carved.work / "suite/migrations").exists()
        filler.unlink()
        subprocess.run(["mount", "-o", "remount,size=16m", str(small)], check=True)
        assert carved.run(*MIGRATE, TAPML_CACHE=str(small)).returncode == 0
    clean(carved)


def test_a_full_disk_under_the_journal(place: Place, suite: Path) -> None:
    with disk(place.work / "small", "1m") as small:
        shutil.copytree(suite, small / "suite")
        filler = fill(small)
        err = said(place.run("migrate", "small/suite", "--target", "llvm"))
        assert "full" in err or "No space left" in err
        filler.unlink()
        done = place.run("migrate", "small/suite", "--target", "llvm")
        assert done.returncode == 0, done.stderr
    clean(place)


def test_a_suite_that_cannot_be_written_to(place: Place, suite: Path) -> None:
    with disk(place.work / "fixed", "1m") as fixed:
        shutil.copytree(suite, fixed / "suite")
        subprocess.run(["mount", "-o", "remount,ro", str(fixed)], check=True)
        err = said(place.run("migrate", "fixed/suite", "--target", "llvm"))
        assert "cannot keep the journal" in err and "Read-only" in err
        done = place.run("test", "fixed/suite", "--target", "llvm")  # that needs no journal
        assert done.returncode == 0, done.stderr
        assert "Read-only" in said(place.run("carve", FACTORY, "-o", "fixed/other"))
    clean(place)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("seconds", [0.5, 2.0, 3.5])
def test_interrupts_while_carving(place: Place, number: signal.Signals, seconds: float) -> None:
    (place.work / "slow.py").write_text(
        "import time, torch\n"
        "def make():\n"
        "    def run():\n"
        "        for _ in range(600):\n"
        "            time.sleep(0.1)\n"
        "            x = torch.ones(3) * 2\n"
        "        return x\n"
        "    return run\n"
    )
    interrupt(place, ["carve", "slow.py:make", "-o", "a/suite"], number, seconds)
    assert os.listdir(place.work) in (["slow.py"], ["__pycache__", "slow.py"], ["slow.py", "__pycache__"])


@pytest.mark.parametrize("instead", ["pass", "raise RecursionError", "raise ImportError('half')"])
def test_an_interrupt_that_is_swallowed(place: Place, instead: str) -> None:
    """As by numpy, when it comes in the midst of its import."""
    (place.work / "deaf.py").write_text(
        "import time, torch\n"
        "def make():\n"
        "    open('here', 'w').close()\n"
        "    try:\n"
        "        time.sleep(60)\n"
        "    except BaseException:\n"
        f"        {instead}\n"
        "    time.sleep(60)\n"
    )
    process = place.start("carve", "deaf.py:make", "-o", "suite")
    end = time.monotonic() + 60
    while not (place.work / "here").exists():
        assert time.monotonic() < end
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGTERM)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 128 + signal.SIGTERM, err
    assert err.strip().splitlines()[-2:-1] == ["interrupted"], err
    clean(place)


@pytest.mark.parametrize("seconds", [0.5, 2.0, 4.0, 6.0])
def test_interrupts_while_migrating(place: Place, hostile: Path, seconds: float) -> None:
    """Sent to the whole group, as a terminal does."""
    shutil.copytree(hostile, place.work / "suite")
    slow = [*MIGRATE, "--with", str(HERE / "hostile_converters.py"), "--jobs", "1"]
    err = interrupt(place, slow, signal.SIGINT, seconds)
    journal = next(place.work.glob("suite/migrations/*/journal.jsonl"), None)
    if journal is not None:
        assert "--resume` goes on where it was" in err and "--with" in err
    assert not list(place.work.glob("suite/migrations/*/lock"))


def interrupt(home: Place, arguments: list[str], number: signal.Signals, seconds: float) -> str:
    process = home.start(*arguments)
    time.sleep(seconds)
    os.killpg(process.pid, number)
    begin = time.monotonic()
    _, err = process.communicate(timeout=60)
    assert process.returncode == 128 + number, err
    assert time.monotonic() - begin < 15
    assert "Traceback" not in err
    if seconds > 1:
        assert err.strip().splitlines()[-2:-1] == ["interrupted"], err
        assert err.strip().splitlines()[-1].startswith("hint: "), err
    clean(home)
    return err


def test_a_suite_that_is_deleted_while_it_is_migrated(place: Place) -> None:
    assert place.run("carve", LOOP, "-o", "suite").returncode == 0
    process = place.start(*MIGRATE)
    end = time.monotonic() + 60
    while not list(place.work.glob("suite/migrations/*/lock")):
        assert time.monotonic() < end
        time.sleep(0.02)
    shutil.rmtree(place.work / "suite")
    out, err = process.communicate(timeout=120)
    assert process.returncode == 2, out
    assert "suite" in said(subprocess.CompletedProcess([], 2, out, err))
    clean(place)


def test_a_cache_that_is_a_file(carved: Place) -> None:
    (carved.root / "file").write_text("x")
    err = said(carved.run(*MIGRATE, TAPML_CACHE=str(carved.root / "file")))
    assert "TAPML_CACHE" in err
    clean(carved)
