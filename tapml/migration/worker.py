"""A process that may die: it does what it is told over a pipe, and prints into a file of its own."""

from __future__ import annotations

import ctypes
import faulthandler
import os
import resource
import signal
import sys
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

from tapml.errors import TapmlError

_PR_SET_PDEATHSIG = 1


def serve(connection: Connection, log: str, setup: Callable[..., Callable[[Any], Any]], args: tuple[Any, ...]) -> None:
    """Run ``setup(*args)``, which gives a handler, and answer each message with ``("done", handler(message))``.

    A :class:`TapmlError` becomes ``("error", {type, message, hint})``, ``MemoryError`` becomes ``("memory", text)``, any
    other exception ``("raised", traceback)``.  Ends when the pipe closes.
    """
    _isolate(log)
    try:
        handler = setup(*args)
    except BaseException as error:
        connection.send(_answer(error))
        return
    connection.send(("ready", None))
    while True:
        try:
            message = connection.recv()
        except EOFError:
            return
        os.ftruncate(sys.stderr.fileno(), 0)  # what is left in the file belongs to the job that is running
        try:
            answer: tuple[str, Any] = ("done", handler(message))
        except BaseException as error:
            answer = _answer(error)
        sys.stdout.flush()
        sys.stderr.flush()
        connection.send(answer)


def _answer(error: BaseException) -> tuple[str, Any]:
    if isinstance(error, TapmlError):
        return "error", {"type": type(error).__name__, "message": error.message, "hint": error.hint}
    if isinstance(error, MemoryError):
        return "memory", str(error) or "out of memory"
    return "raised", "".join(traceback.format_exception(error))


def _isolate(log: str) -> None:
    """Output to a file, Ctrl-C left to the parent, death with the parent, a stack trace at a segfault."""
    descriptor = os.open(log, os.O_CREAT | os.O_WRONLY | os.O_TRUNC | os.O_APPEND, 0o600)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    os.close(descriptor)
    sys.stdout = open(1, "w", closefd=False)
    sys.stderr = open(2, "w", closefd=False)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    faulthandler.enable(sys.stderr)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def limit_address_space(megabytes: int) -> None:
    """Let this process map at most ``megabytes`` more than it has now: a runaway allocation becomes ``MemoryError``."""
    with open("/proc/self/statm") as file:
        mapped = int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (mapped + (megabytes << 20), hard))
