"""Signals that end a command: raised as an exception until somebody takes notice, so that it can clean up."""

from __future__ import annotations

import signal
import sys
from types import FrameType

_AGAIN_SECONDS = 0.25


class Interrupted(KeyboardInterrupt):
    """The command was asked to end, by Ctrl-C or another signal.  ``number``: which."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number


_asked: list[int] = []
"""The first signal that asked this process to end, until :func:`settled`."""


def listen() -> None:
    """From now on SIGINT, SIGTERM and SIGHUP raise :class:`Interrupted`, unless they are ignored or handled already."""
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler):
            signal.signal(number, _end)
    if hasattr(signal, "setitimer"):
        signal.signal(signal.SIGALRM, _end)


def asked_to_end() -> int | None:
    """The signal that asked this process to end, if one did."""
    return _asked[0] if _asked else None


def settled() -> None:
    """The interruption was noticed: what is left is to clean up and to say so, and no signal disturbs that."""
    if hasattr(signal, "setitimer"):
        signal.setitimer(signal.ITIMER_REAL, 0)
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_IGN)


def _end(number: int, frame: FrameType | None) -> None:
    """Raise; and again in a while, if by then nobody is cleaning up.

    An import, a destructor or a callback of a C library may swallow what is raised in the midst of it.
    """
    if not _asked:
        if number == getattr(signal, "SIGALRM", None):
            return  # not ours
        _asked.append(number)
    if hasattr(signal, "setitimer"):
        signal.setitimer(signal.ITIMER_REAL, _AGAIN_SECONDS)
    if not _in_flight():
        raise Interrupted(_asked[0])


def _in_flight() -> bool:
    error = sys.exc_info()[1]
    while error is not None:
        if isinstance(error, Interrupted):
            return True
        error = error.__context__
    return False
