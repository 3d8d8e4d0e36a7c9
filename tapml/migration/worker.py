"""A process that may die: it does what it is told over a pipe, and prints into a file of its own."""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import fcntl
import os
import resource
import select
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any, TextIO

from tapml.errors import TapmlError

_PR_SET_PDEATHSIG = 1
_HIGH = 200
"""From this number on we keep descriptors of our own: out of the way of code that closes those it did not open."""

_connection: Connection | None = None


def serve(
    connection: Connection,
    lifeline: Connection,
    folder: str,
    setup: Callable[..., Callable[[Any], Any]],
    args: tuple[Any, ...],
) -> None:
    """Run ``setup(*args)``, which gives a handler, and answer each message with ``("done", handler(message))``.

    A :class:`TapmlError` becomes ``("error", {type, message, hint})``, ``MemoryError`` becomes ``("memory", text)``,
    any other exception ``("raised", traceback)``.  ``lifeline`` is a pipe of which the parent holds the other end and
    sends nothing: it ends this process when the parent is no more.  ``folder``: for the output and temporary files.
    """
    global _connection
    _connection = connection
    try:
        output = _isolate(folder, lifeline)
    except FileNotFoundError:  # whoever wanted this worker has left, and taken the folder along
        return
    try:
        handler = setup(*args)
    except BaseException as error:
        connection.send(_answer(error))
        return
    connection.send(("ready", None))
    while True:
        try:
            message = connection.recv()
        except (EOFError, OSError):
            return
        output.begin()
        try:
            answer: tuple[str, Any] = ("done", handler(message))
        except BaseException as error:
            answer = _answer(error)
        output.flush()
        connection.send(answer)


def report_stage(text: str) -> None:
    """Tell the parent what is being done, so that it can say what this process died of; nothing outside of a worker."""
    if _connection is not None:
        _connection.send(("stage", text))


def in_worker() -> bool:
    """Whether this process is a worker."""
    return _connection is not None


def _answer(error: BaseException) -> tuple[str, Any]:
    if isinstance(error, TapmlError):
        return "error", {"type": type(error).__name__, "message": error.message, "hint": error.hint}
    if isinstance(error, MemoryError):
        return "memory", str(error) or "out of memory"
    return "raised", "".join(traceback.format_exception(error))


class _Output:
    """Standard output and error, led into a file; put right before each job, whatever the last one did to them."""

    def __init__(self, path: str) -> None:
        opened = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC | os.O_APPEND, 0o600)
        self._descriptor = fcntl.fcntl(opened, fcntl.F_DUPFD_CLOEXEC, _HIGH)
        os.close(opened)
        self.begin()

    def begin(self) -> None:
        """What is left in the file belongs to the job that begins."""
        os.dup2(self._descriptor, 1)
        os.dup2(self._descriptor, 2)
        os.ftruncate(self._descriptor, 0)
        sys.stdout, sys.stderr = _writer(1), _writer(2)
        faulthandler.enable(2)

    def flush(self) -> None:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()


def _writer(descriptor: int) -> TextIO:
    """Flushed at each line, so that nothing is lost when the process dies."""
    return os.fdopen(descriptor, "w", buffering=1, errors="replace", closefd=False)


def _isolate(folder: str, lifeline: Connection) -> _Output:
    """Output to a file, Ctrl-C left to the parent, a group of its own, death with the parent, no core files."""
    os.setpgid(0, 0)
    output = _Output(os.path.join(folder, "output.log"))
    os.environ["TMPDIR"] = tempfile.tempdir = folder
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    _die_with(lifeline)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    return output


def _die_with(lifeline: Connection) -> None:
    """Have the kernel end this process when the other end of ``lifeline`` closes.

    The parent of a worker is the fork server, which lives as long as any worker does; and a thread that watches would
    wait for ever for the interpreter's lock if a converter loops in C.  So: a signal on the end of a socket.
    """
    descriptor = fcntl.fcntl(lifeline.fileno(), fcntl.F_DUPFD_CLOEXEC, _HIGH)
    signal.signal(signal.SIGIO, signal.SIG_DFL)
    fcntl.fcntl(descriptor, fcntl.F_SETOWN, os.getpid())
    if sys.platform == "linux":
        fcntl.fcntl(descriptor, fcntl.F_SETSIG, signal.SIGKILL)
    fcntl.fcntl(descriptor, fcntl.F_SETFL, fcntl.fcntl(descriptor, fcntl.F_GETFL) | os.O_ASYNC)
    if select.select([descriptor], [], [], 0)[0]:  # it has ended already
        os._exit(1)


def limit_address_space(megabytes: int) -> None:
    """Let this process map at most ``megabytes`` more than it has now: a runaway allocation becomes ``MemoryError``."""
    with open("/proc/self/statm") as file:
        mapped = int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (mapped + (megabytes << 20), hard))
