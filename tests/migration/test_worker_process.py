"""A worker answers, raises, dies, hangs: the parent finds out, and says which."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tapml.errors import TapmlError, UsageError
from tapml.migration.process import Gone, WorkerProcess


def handler() -> Callable[[Any], Any]:
    def answer(message: str) -> Any:
        print(f"got {message}", flush=True)
        if message == "raise":
            raise UsageError("expected something else", hint="send something else")
        if message == "defect":
            raise ZeroDivisionError("division of 1 by 0")
        if message == "die":
            os.kill(os.getpid(), signal.SIGSEGV)
        if message == "exit":
            os._exit(3)
        if message == "hang":
            time.sleep(60)
        return message.upper()

    return answer


def broken() -> Callable[[Any], Any]:
    raise UsageError("no handler here", hint="look elsewhere")


@pytest.fixture
def worker() -> Iterator[WorkerProcess]:
    made = WorkerProcess(handler, (), "tapml-test")
    yield made
    made.kill()
    assert not made.process.is_alive() if made.process.pid else True


def test_it_answers_message_by_message(worker: WorkerProcess) -> None:
    assert worker.ask("hello", seconds=60) == "HELLO"
    assert worker.ask("again", seconds=60) == "AGAIN"


def test_its_errors_come_back_as_themselves(worker: WorkerProcess) -> None:
    with pytest.raises(UsageError) as caught:
        worker.ask("raise", seconds=60)
    assert (caught.value.message, caught.value.hint) == ("expected something else", "send something else")
    assert worker.ask("still here", seconds=60) == "STILL HERE"


def test_a_defect_is_told_in_one_line(worker: WorkerProcess) -> None:
    with pytest.raises((TapmlError, Gone)) as caught:
        worker.ask("defect", seconds=60)
    assert "ZeroDivisionError: division of 1 by 0" in caught.value.message
    assert "\n" not in caught.value.message


@pytest.mark.parametrize(("message", "how"), [("die", "SIGSEGV"), ("exit", "exit code 3")])
def test_death_names_the_signal_and_the_last_lines(worker: WorkerProcess, message: str, how: str) -> None:
    with pytest.raises(Gone) as caught:
        worker.ask(message, seconds=60)
    assert caught.value.status == "crashed"
    assert how in caught.value.message
    assert any(f"got {message}" in line for line in caught.value.output)


def test_silence_is_ended_in_time(worker: WorkerProcess) -> None:
    assert worker.ask("ready", seconds=60) == "READY"
    begin = time.monotonic()
    with pytest.raises(Gone) as caught:
        worker.ask("hang", seconds=0.5)
    assert caught.value.status == "timed out"
    assert time.monotonic() - begin < 20
    assert not worker.process.is_alive()


def test_an_error_while_starting_comes_back() -> None:
    worker = WorkerProcess(broken, (), "tapml-test")
    try:
        with pytest.raises(UsageError) as caught:
            worker.ask("anything", seconds=60)
        assert caught.value.message == "no handler here"
    finally:
        worker.kill()


_LEAVES_A_SEMAPHORE = """
import multiprocessing
from tapml.migration.process import Gone, WorkerProcess

def setup():
    lock = multiprocessing.get_context("spawn").RLock()  # as progress bars of other libraries have
    return lambda message: lock.acquire() and lock.acquire() and __import__("os").abort()

if __name__ == "__main__":
    worker = WorkerProcess(setup, (), "tapml-test")
    try:
        worker.ask("die", seconds=60)
    except Gone as gone:
        print(gone.status)
"""


def test_nothing_is_printed_about_semaphores_of_a_worker_that_died(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(_LEAVES_A_SEMAPHORE)
    ran = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=120, check=False)
    assert (ran.stdout, ran.stderr) == ("crashed\n", "")
