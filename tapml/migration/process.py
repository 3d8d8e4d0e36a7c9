"""The parent's end of a worker: start it, ask it, watch its time and memory, bury it."""

from __future__ import annotations

import multiprocessing
import os
import signal
import tempfile
import time
from collections.abc import Callable
from functools import lru_cache
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import Any

from tapml import errors
from tapml.migration.worker import serve

_TAIL_LINES = 12
_START_SECONDS = 300.0


_QUIET_THREADS = {"TVM_THREAD_POOL_SPIN_COUNT": "0", "OMP_WAIT_POLICY": "passive", "GOMP_SPINCOUNT": "0"}
"""PyTorch's and TVM's thread pools take turns in a hybrid run; one that spins while it waits robs the other of its core."""


@lru_cache(maxsize=1)
def _context() -> ForkServerContext:
    for name, value in _QUIET_THREADS.items():
        os.environ.setdefault(name, value)
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tapml.migration.preload"])
    return context


class Gone(Exception):
    """The process is no more, or had to be killed.  ``status`` is ``crashed`` or ``timed out``."""

    def __init__(self, status: str, message: str, output: tuple[str, ...]) -> None:
        super().__init__(message)
        self.status, self.message, self.output = status, message, output


class WorkerProcess:
    """One worker.  ``setup(*args)`` runs in it and gives its handler; see :func:`tapml.migration.worker.serve`."""

    def __init__(self, setup: Callable[..., Callable[[Any], Any]], args: tuple[Any, ...], name: str) -> None:
        handle, self._log = tempfile.mkstemp(prefix="tapml-worker-", suffix=".log")
        os.close(handle)
        self._setup, self._args, self._name = setup, args, name
        self._started = False
        self.connection, theirs = _context().Pipe()
        self.process = _context().Process(target=serve, args=(theirs, self._log, setup, args), name=name, daemon=True)
        self.process.start()
        theirs.close()
        self.deadline = time.monotonic() + _START_SECONDS
        self._seconds = _START_SECONDS
        self._memory_mb: int | None = None

    # -- asking -------------------------------------------------------------------------------------------------------

    def send(self, message: Any, *, seconds: float, memory_mb: int | None = None) -> None:
        """Hand over a message.  ``seconds`` and ``memory_mb`` (of anonymous memory) limit what answering may take."""
        self._seconds, self._memory_mb = seconds, memory_mb
        self.deadline = time.monotonic() + seconds
        try:
            self.connection.send(message)
        except (BrokenPipeError, OSError):
            pass  # poll() tells what happened

    def poll(self, wait: float = 0.0) -> tuple[str, Any] | None:
        """The answer if there is one.  Raises :class:`Gone` when the worker died or broke its limits (it is dead then)."""
        try:
            if self.connection.poll(wait):
                return self.connection.recv()  # type: ignore[no-any-return]
        except (EOFError, ConnectionError):
            raise self._gone() from None
        if not self.process.is_alive() and not self.connection.poll():
            raise self._gone()
        if time.monotonic() > self.deadline:
            tail = self.tail()
            self.kill()
            raise Gone("timed out", f"no answer within {self._seconds:g} s", tail)
        if self._memory_mb is not None:
            used = anonymous_memory_mb(self.process.pid)
            if used > self._memory_mb:
                tail = self.tail()
                self.kill()
                raise Gone("crashed", f"used {used} MB of memory, the limit is {self._memory_mb} MB", tail)
        return None

    def ask(self, message: Any, *, seconds: float, memory_mb: int | None = None) -> Any:
        """Send and wait.  Raises :class:`Gone`, or the :class:`TapmlError` that the worker raised."""
        self.wait_ready()
        self.send(message, seconds=seconds, memory_mb=memory_mb)
        while True:
            answer = self.poll(0.1)
            if answer is not None:
                return unwrap(answer)

    def wait_ready(self) -> None:
        """Wait until the worker has started.  Raises as :meth:`ask`."""
        while not self._started:
            answer = self.poll(0.1)
            if answer is not None:
                self._started = True
                unwrap(answer)

    # -- the end ------------------------------------------------------------------------------------------------------

    def tail(self) -> tuple[str, ...]:
        """The last lines that the worker printed."""
        try:
            lines = Path(self._log).read_text(errors="replace").splitlines()
        except OSError:
            return ()
        return tuple(line for line in lines if line.strip())[-_TAIL_LINES:]

    def kill(self) -> None:
        """End the process now."""
        if self.process.is_alive():
            self.process.kill()
        self.process.join(5)
        self.connection.close()
        Path(self._log).unlink(missing_ok=True)

    def _gone(self) -> Gone:
        self.process.join(5)
        code = self.process.exitcode
        tail = self.tail()
        self.kill()
        if code is not None and code < 0:
            try:
                how = f"killed by {signal.Signals(-code).name}"
            except ValueError:
                how = f"killed by signal {-code}"
        else:
            how = f"ended with exit code {code}"
        return Gone("crashed", how, tail)


def unwrap(answer: tuple[str, Any]) -> Any:
    """The value of a worker's answer.  Raises what the worker raised: a TapmlError as itself, anything else as one."""
    kind, value = answer
    if kind in ("done", "ready"):
        return value
    if kind == "error":
        family = getattr(errors, value["type"], errors.TapmlError)
        raise family(value["message"], hint=value["hint"])
    if kind == "memory":
        raise Gone("crashed", f"memory limit: {value}", ())
    raise errors.TapmlError(f"a worker failed: {value.strip().splitlines()[-1]}", hint=value)


def anonymous_memory_mb(pid: int | None) -> int:
    """Memory of a process that is its own (not mapped files), in MB; 0 when it cannot be read."""
    try:
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("RssAnon:"):
                return int(line.split()[1]) >> 10
    except (OSError, ValueError, IndexError):
        pass
    return 0
