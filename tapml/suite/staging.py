"""A directory that appears whole or not at all: written beside its place, then renamed into it.

The directory being written (``.NAME.tmp-<pid>``) and one being replaced (``.NAME.old-<pid>``) are locked by the process
that owns them, so that what a killed process left behind is told from what another one is writing at the moment.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from tapml.errors import UsageError
from tapml.lock import is_alive
from tapml.suite_format import is_suite


class StagingDirectory:
    """``path`` is where to write; :meth:`publish` renames it to ``target``, :meth:`discard` removes it.

    Raises :class:`UsageError` when ``target`` exists and may not be replaced, or cannot be written to.
    """

    def __init__(self, target: str | os.PathLike[str], *, force: bool = False) -> None:
        self.target = Path(os.path.realpath(target))
        self._force = force
        try:
            self._made_parents = _make_parents(self.target.parent)
            _recover(self.target)
            self._check_target()
            self.path, self._lock = self._make()
        except OSError as error:
            raise UsageError(
                f"cannot write {self.target}: {error.strerror or error}", hint="choose an output that can be written to"
            ) from error

    def publish(self) -> Path:
        """Flush directories to the disk and take the place of ``target``; returns it.  Raises :class:`OSError` too."""
        for folder, _, _ in os.walk(self.path):
            _sync_directory(Path(folder))
        self._check_target()
        old = self.target.with_name(f".{self.target.name}.old-{os.getpid()}")
        old_lock = _lock(self.target) if self.target.exists() else None
        try:
            if self.target.exists():
                self.target.rename(old)
            self.path.rename(self.target)
        except BaseException:
            if old.exists() and not self.target.exists():
                old.rename(self.target)
            raise
        finally:
            _unlock(old_lock)
        _sync_directory(self.target.parent)
        if old.exists():
            old.rename(self.path)  # half deleted, it must not be taken for one to put back
            shutil.rmtree(self.path, ignore_errors=True)
        _unlock(self._lock)
        self._lock = None
        return self.target

    def discard(self) -> None:
        """Remove everything that was written; harmless after :meth:`publish` and when called twice."""
        shutil.rmtree(self.path, ignore_errors=True)
        _unlock(self._lock)
        self._lock = None
        with contextlib.suppress(OSError):
            for parent in self._made_parents:
                parent.rmdir()

    def _check_target(self) -> None:
        if not self.target.exists():
            return
        if not self.target.is_dir():
            raise UsageError(f"{self.target} is a file, expected a directory to create", hint="choose another output")
        if not any(self.target.iterdir()):
            return
        if not is_suite(self.target):
            raise UsageError(
                f"{self.target} is neither empty nor a suite", hint="choose another output: tapml replaces suites only"
            )
        if not self._force:
            raise UsageError(
                f"{self.target} is a suite already", hint="choose another output, or replace it with --force"
            )

    def _make(self) -> tuple[Path, int | None]:
        path = self.target.with_name(f".{self.target.name}.tmp-{os.getpid()}")
        while True:
            try:
                path.mkdir()
            except FileExistsError as error:
                raise UsageError(
                    f"{self.target} is being written by this process already", hint="choose another output"
                ) from error
            lock = _lock(path, wait=True)
            # before it was locked, another process may have taken the directory for an abandoned one
            if path.exists():
                return path, lock
            _unlock(lock)


def _make_parents(directory: Path) -> list[Path]:
    """Create ``directory``; returns what had to be made, innermost first."""
    made = []
    parent = directory
    while not parent.exists():
        made.append(parent)
        parent = parent.parent
    directory.mkdir(parents=True, exist_ok=True)
    return made


def _recover(target: Path) -> None:
    """Remove what dead processes left beside ``target``, and put a suite back that one had renamed away."""
    for kind in ("old", "tmp"):
        prefix = f".{target.name}.{kind}-"
        for path in [p for p in target.parent.iterdir() if p.name.startswith(prefix)]:
            pid = path.name[len(prefix) :]
            if not pid.isdigit():
                continue
            with contextlib.suppress(OSError), _claim(path, int(pid)) as abandoned:
                if abandoned and kind == "old" and not target.exists():
                    path.rename(target)
                elif abandoned:
                    shutil.rmtree(path)


@contextlib.contextmanager
def _claim(path: Path, pid: int) -> Iterator[bool]:
    """Whether the process that made ``path`` is gone; while the context lasts, nobody else claims it."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        abandoned = True
    except BlockingIOError:
        abandoned = False
    except OSError:  # a file system without locks: go by the process id
        abandoned = not is_alive(pid)
    try:
        yield abandoned
    finally:
        os.close(descriptor)


def _lock(path: Path, *, wait: bool = False) -> int | None:
    """A descriptor that holds the lock on a directory, or ``None`` where another holds it or there are no locks."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return None
    return descriptor


def _unlock(descriptor: int | None) -> None:
    if descriptor is not None:
        os.close(descriptor)


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
