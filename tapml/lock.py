"""One process at a time: a lock file that names its owner and is gone when the owner has ended well.

The operating system drops the lock when the process dies, however it dies; a file that is left is taken over.
"""

from __future__ import annotations

import errno
import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_POLL_SECONDS = 0.1


class Held(Exception):
    """Another process has the lock.  ``owner``: its process id, as text."""

    def __init__(self, owner: str) -> None:
        super().__init__(owner)
        self.owner = owner


@contextmanager
def exclusive(path: Path, *, wait: bool = False) -> Iterator[None]:
    """Hold the lock ``path``, whose directory exists; the file is removed in the end.

    Raises :class:`Held` when another process has it, unless ``wait``; :class:`OSError` when it cannot be created.
    """
    descriptor = _acquire(path, wait)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)  # while it is held, so that it is no other's
        os.close(descriptor)


def owner(path: Path) -> str | None:
    """The process that has the lock ``path`` at the moment, ``None`` when it is free."""
    try:
        with exclusive(path):
            return None
    except Held as held:
        return held.owner
    except OSError:
        return None


def _acquire(path: Path, wait: bool) -> int:
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            if _lock(descriptor) and _is_same(descriptor, path):  # else its owner removed it in the meantime
                os.ftruncate(descriptor, 0)
                os.pwrite(descriptor, str(os.getpid()).encode(), 0)
                return descriptor
        except Held:
            os.close(descriptor)
            if not wait:
                raise
            time.sleep(_POLL_SECONDS)
            continue
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


def _lock(descriptor: int) -> bool:
    """Lock an open file.  Where the file system has no locks, go by whether the owner is alive."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        written = os.pread(descriptor, 20, 0).decode("ascii", "replace").strip()
        if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
            raise Held(written or "unknown") from None
        if written.isdigit() and is_alive(int(written)):
            raise Held(written) from None
    return True


def _is_same(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except FileNotFoundError:
        return False


def is_alive(pid: int) -> bool:
    """Whether a process of this number exists."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True
