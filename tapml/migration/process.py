"""The parent's end of a worker: start it, ask it, watch its time, memory and output, bury it."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import lru_cache
from multiprocessing import forkserver, resource_tracker
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import Any

from tapml import errors
from tapml.migration.scratch import scratch
from tapml.migration.worker import serve

_TAIL_LINES = 12
_TAIL_BYTES = 1 << 16
_WIDTH = 200
_FATAL = ("Fatal Python error", "!!!!!!! Segfault encountered")
"""How a report of a crash begins: its first lines matter, and what was printed before; not the end of its stacks."""
_OUTPUT_MB = 256
"""A worker that prints more is ended: its output is kept on the disk."""
_START_SECONDS = 300.0


_QUIET_THREADS = {"TVM_THREAD_POOL_SPIN_COUNT": "0", "OMP_WAIT_POLICY": "passive", "GOMP_SPINCOUNT": "0"}
"""PyTorch's and TVM's thread pools take turns in a hybrid run; one that spins while it waits robs the other."""


@lru_cache(maxsize=1)
def _context() -> ForkServerContext:
    for name, value in _QUIET_THREADS.items():
        os.environ.setdefault(name, value)
    # where multiprocessing keeps its sockets; by default a directory that stays when this process is killed
    configuration: dict[str, Any] = getattr(multiprocessing.current_process(), "_config", {})
    configuration.setdefault("tempdir", str(scratch()))
    # The tracker removes semaphores of workers that died, and need not say so: it takes over these options.
    sys.warnoptions.append("ignore:resource_tracker:UserWarning")
    resource_tracker.ensure_running()  # which unblocks SIGINT when it starts: before the fork server, that must not see it
    sys.warnoptions.pop()
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tapml.migration.preload"])
    return context


@contextlib.contextmanager
def _without_interrupts() -> Iterator[None]:
    """What is started here never sees Ctrl-C, not even while it imports; here it is delivered at the end."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def start_fork_server(suite: Path) -> None:
    """Begin to load what workers need, in a process beside this one, while this one still loads what it needs itself.

    Does nothing where there is no suite to work on.
    """
    if not (suite / "manifest.json").is_file():
        return
    _context()
    with _without_interrupts():
        forkserver.ensure_running()


class Gone(Exception):
    """The process is no more, or had to be killed.

    ``status`` is ``crashed`` or ``timed out``.  ``died``: it was not ended here for breaking its limits.
    """

    def __init__(self, status: str, message: str, output: tuple[str, ...], *, died: bool = False) -> None:
        super().__init__(message)
        self.status, self.message, self.output, self.died = status, message, output, died


class WorkerProcess:
    """One worker.  ``setup(*args)`` runs in it and gives its handler; see :func:`tapml.migration.worker.serve`."""

    def __init__(self, setup: Callable[..., Callable[[Any], Any]], args: tuple[Any, ...], name: str) -> None:
        context = _context()
        self._folder = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=scratch()))
        self._log = os.open(self._folder / "output.log", os.O_CREAT | os.O_RDONLY | os.O_CLOEXEC, 0o600)
        self._started = False
        self._ended = False
        self.stage = ""
        """What it said last that it is doing."""
        with _without_interrupts():
            self.connection, theirs = context.Pipe()
            self._lifeline, watched = context.Pipe()
            arguments = (theirs, watched, str(self._folder), setup, args)
            self.process = context.Process(target=serve, args=arguments, name=name, daemon=True)
            self.process.start()
            theirs.close()
            watched.close()
        self.deadline = time.monotonic() + _START_SECONDS
        self._seconds = _START_SECONDS
        self._memory_mb: int | None = None

    # -- asking -------------------------------------------------------------------------------------------------------

    def send(self, message: Any, *, seconds: float, memory_mb: int | None = None) -> None:
        """Hand over a message.  ``seconds`` and ``memory_mb`` (of anonymous memory) limit what answering may take."""
        self._seconds, self._memory_mb = seconds, memory_mb
        self.deadline = time.monotonic() + seconds
        self.stage = ""
        with contextlib.suppress(OSError):  # poll() tells what happened
            self.connection.send(message)

    def poll(self, wait: float = 0.0) -> tuple[str, Any] | None:
        """The answer if there is one.  Raises :class:`Gone` when it died or broke its limits (it is dead then)."""
        try:
            while self.connection.poll(wait):
                kind, value = self.connection.recv()
                if kind != "stage":
                    return kind, value
                self.stage = value
        except (EOFError, OSError):
            raise self._gone() from None
        if not self.process.is_alive() and not self.connection.poll():
            raise self._gone()
        if time.monotonic() > self.deadline:
            raise self._end("timed out", f"no answer within {self._seconds:g} s")
        if os.fstat(self._log).st_size > _OUTPUT_MB << 20:
            raise self._end("crashed", f"printed more than {_OUTPUT_MB} MB")
        if self._memory_mb is not None:
            used = anonymous_memory_mb(self.process.pid)
            if used > self._memory_mb:
                raise self._end("crashed", f"used {used} MB of memory, the limit is {self._memory_mb} MB")
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
        """The last lines that the worker printed; none once it has been buried."""
        if self._ended:
            return ()
        size = os.fstat(self._log).st_size
        text = os.pread(self._log, _TAIL_BYTES, max(0, size - _TAIL_BYTES)).decode(errors="replace")
        lines = [line if len(line) <= _WIDTH else line[:_WIDTH] + "..." for line in text.splitlines() if line.strip()]
        fatal = next((i for i, line in enumerate(lines) if line.startswith(_FATAL)), None)
        if fatal is None:
            return tuple(lines[-_TAIL_LINES:])
        return tuple(lines[max(0, fatal - _TAIL_LINES // 3) :][:_TAIL_LINES])

    def kill(self) -> None:
        """End the process now, with all that it started, and remove its temporary files."""
        if self._ended:
            return
        self._ended = True
        if self.process.pid is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.process.pid, signal.SIGKILL)
        if self.process.is_alive():
            self.process.kill()
        self.process.join(5)
        self.connection.close()
        self._lifeline.close()
        os.close(self._log)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _end(self, status: str, message: str) -> Gone:
        """Kill it for breaking a limit."""
        tail = self.tail()
        self.kill()
        return Gone(status, message + self._during(), tail)

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
        elif code is None:
            how = "closed its pipe"
        else:
            how = f"ended with exit code {code}"
        return Gone("crashed", how + self._during(), tail, died=True)

    def _during(self) -> str:
        return f" while {self.stage}" if self.stage else ""


def unwrap(answer: tuple[str, Any]) -> Any:
    """The value of a worker's answer.

    Raises what the worker raised: a TapmlError as itself; :class:`Gone` for anything else, which leaves it in doubt.
    """
    kind, value = answer
    if kind in ("done", "ready"):
        return value
    if kind == "error":
        family = getattr(errors, value["type"], errors.TapmlError)
        raise family(value["message"], hint=value["hint"])
    if kind == "memory":
        raise Gone("crashed", f"memory limit: {value}", ())
    lines = [line for line in value.strip().splitlines() if line.strip()]
    raise Gone("crashed", f"raised {lines[-1].strip()}", tuple(lines[-_TAIL_LINES:]))


def anonymous_memory_mb(pid: int | None) -> int:
    """Memory of a process that is its own (not mapped files), in MB; 0 when it cannot be read."""
    used = 0
    try:
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith(("RssAnon:", "RssShmem:")):
                used += int(line.split()[1])
    except (OSError, ValueError, IndexError):
        pass
    return used >> 10
