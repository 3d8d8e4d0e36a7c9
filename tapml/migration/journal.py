"""The journal of a migration: one JSON object a line, appended and synced, never rewritten.

A process killed in the middle of a line leaves a torn last line, which the next opening cuts off.  A lock beside it, held
by the operating system for as long as the process lives, keeps two migrations of one suite on one device apart.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from tapml.errors import SuiteError, UsageError
from tapml.suite.call import Json

VERSION = 1


def journal_folder(suite: Path, target: str, device: str) -> Path:
    """``SUITE/migrations/<target>-<device>``."""
    safe = "".join(c if c.isalnum() or c in "._-" else "-" for c in device)
    return suite / "migrations" / (safe if safe.startswith(target) else f"{target}-{safe}")


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the migration in ``folder``.  Raises :class:`UsageError` naming the process that holds it already."""
    folder.mkdir(parents=True, exist_ok=True)
    owner = folder / "owner"
    lock = FileLock(folder / "lock")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        pid = owner.read_text().strip() if owner.exists() else "unknown"
        raise UsageError(
            f"{folder.parent.parent} is being migrated by process {pid}",
            hint="wait for it, or end it and run again with --resume",
        ) from None
    try:
        owner.write_text(str(os.getpid()))
        yield
    finally:
        owner.unlink(missing_ok=True)
        lock.release()


class Journal:
    """An append-only list of events.  ``events`` holds what was read at opening and what was appended since."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.events: list[Json] = []
        self._file = None
        if path.exists():
            self.events = _recover(path)

    @property
    def header(self) -> Json | None:
        return self.events[0] if self.events else None

    @property
    def finished(self) -> bool:
        return any(e["event"] == "finished" for e in self.events)

    def of_kind(self, kind: str) -> list[Json]:
        """Events of one kind, in order."""
        return [e for e in self.events if e["event"] == kind]

    def restart(self, header: Json) -> None:
        """Set the old journal aside as ``journal.previous.jsonl`` and begin a new one."""
        self.close()
        if self.path.exists():
            os.replace(self.path, self.path.with_name("journal.previous.jsonl"))
        self.events = []
        self.append({"event": "begin", "version": VERSION, **header})

    def append(self, event: Json) -> None:
        """Write one event and wait until it is on the disk."""
        if self._file is None:
            self._file = open(self.path, "a", encoding="utf-8")
        self._file.write(json.dumps(event, allow_nan=True) + "\n")
        self._file.flush()
        os.fsync(self._file.fileno())
        self.events.append(event)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


def _recover(path: Path) -> list[Json]:
    """Events of a journal; a torn last line is cut off.  Raises :class:`SuiteError` for damage anywhere else."""
    data = path.read_bytes()
    events: list[Json] = []
    good = 0
    for number, line in enumerate(data.splitlines(keepends=True), 1):
        try:
            event = json.loads(line)
            complete = line.endswith(b"\n") and isinstance(event, dict) and "event" in event
        except ValueError:
            complete = False
        if not complete:
            if good + len(line) == len(data):
                break
            raise SuiteError(f"{path}: line {number} is damaged", hint="begin again with --restart")
        events.append(event)
        good += len(line)
    if good < len(data):
        with open(path, "r+b") as file:
            file.truncate(good)
    if events and (events[0].get("event") != "begin" or events[0].get("version") != VERSION):
        raise SuiteError(f"{path}: expected a journal of version {VERSION}", hint="begin again with --restart")
    return events
