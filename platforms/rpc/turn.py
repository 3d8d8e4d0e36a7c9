"""Taking turns: a TVM server serves one connection at a time, and tapml works in several processes.

A process that wants the server waits for a lock on a file; a second lock tells the one that has it whether others wait.
Both are the operating system's, and gone with the process; the files, which are empty, lie in tapml's cache.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import time
from pathlib import Path

import platformdirs

_POLL_SECONDS = 0.02


class Turn:
    """The turn at something that has a name, among the processes of this user on this machine."""

    def __init__(self, name: str) -> None:
        configured = os.environ.get("TAPML_CACHE")
        self._folder = (Path(configured) if configured else platformdirs.user_cache_path("tapml")) / "turns"
        self._name = hashlib.sha256(name.encode()).hexdigest()[:16]
        self._held: int | None = None

    def take(self, seconds: float) -> bool:
        """Wait for the turn, at most so long; whether it came."""
        if self._held is not None:
            return True
        if self.wanted():  # they came first
            time.sleep(2 * _POLL_SECONDS)
        mine, waiting = self._open("lock"), self._open("wait")
        fcntl.flock(waiting, fcntl.LOCK_SH)
        end = time.monotonic() + seconds
        try:
            while not _locked(mine):
                if time.monotonic() > end:
                    os.close(mine)
                    return False
                time.sleep(_POLL_SECONDS)
        finally:
            os.close(waiting)
        self._held = mine
        return True

    def give(self) -> None:
        """Let others have it."""
        if self._held is not None:
            os.close(self._held)
            self._held = None

    def wanted(self) -> bool:
        """Whether another process waits."""
        waiting = self._open("wait")
        try:
            return not _locked(waiting)
        finally:
            os.close(waiting)

    def _open(self, kind: str) -> int:
        self._folder.mkdir(parents=True, exist_ok=True)
        return os.open(self._folder / f"{self._name}.{kind}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def _locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
