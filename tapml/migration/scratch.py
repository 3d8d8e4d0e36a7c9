"""Temporary files of this process: in one directory, removed when it ends, or by the next one when it was killed."""

from __future__ import annotations

import atexit
import fcntl
import os
import shutil
import tempfile
from functools import lru_cache
from pathlib import Path

_PREFIX = "tapml-run-"
_LONGEST = 104 - len("/tapml-run-01234567/sock-01234567")
"""Bytes; macOS allows 104 for the path of a socket, Linux 108."""


@lru_cache(maxsize=1)
def scratch() -> Path:
    """The directory, made at the first call; locked, so that it is told from what dead processes left."""
    sweep()
    while True:
        path = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=_base()))
        descriptor = _claim(path)  # kept open: the lock ends with the process
        if descriptor is not None and path.exists():
            atexit.register(shutil.rmtree, path, ignore_errors=True)
            return path


def sweep() -> None:
    """Remove the directories of processes that are no more."""
    for path in _base().glob(f"{_PREFIX}*"):
        descriptor = _claim(path)
        if descriptor is not None:
            shutil.rmtree(path, ignore_errors=True)
            os.close(descriptor)


def _base() -> Path:
    """The directory for temporary files; ``/tmp`` when its name is too long for a socket in a directory in it."""
    given = Path(tempfile.gettempdir())
    return given if len(os.fsencode(given)) <= _LONGEST or not os.path.isdir("/tmp") else Path("/tmp")


def _claim(path: Path) -> int | None:
    """A descriptor that holds the directory's lock; ``None`` when another has it, or it is another user's."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        if os.fstat(descriptor).st_uid == os.getuid():
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return descriptor
    except OSError:
        pass
    os.close(descriptor)
    return None
