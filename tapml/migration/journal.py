"""The journal of a migration: one JSON object a line, appended and synced, never rewritten.

A process killed in the middle of a line leaves a torn last line, which the next opening cuts off.  A lock beside it, held
by the operating system for as long as the process lives, keeps two migrations of one suite on one device apart.
A journal appears with its first decision: a migration that fails before leaves the suite as it was.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tapml.errors import SuiteError, TapmlError, UsageError
from tapml.lock import Held, exclusive, owner
from tapml.suite.call import Json

VERSION = 1
LOCK = "lock"


def journal_folder(suite: Path, target: str, device: str) -> Path:
    """``SUITE/migrations/<target>-<device>``."""
    return suite / "migrations" / safe_name(target, device)


def safe_name(target: str, device: str) -> str:
    """``<target>-<device>``, as the name of a directory."""
    safe = "".join(c if c.isalnum() or c in "._-" else "-" for c in device)
    return safe if safe.startswith(target) else f"{target}-{safe}"


@contextmanager
def locked(folder: Path, doing: str = "migrated", journal: str = "migration") -> Iterator[None]:
    """Hold the migration in ``folder``, which is made; it is removed again if nothing was written.

    ``doing`` and ``journal``: for messages about something else that keeps a journal in the same way.

    Raises :class:`UsageError` naming the process that holds it already, or when nothing can be written there.
    """
    suite = folder.parent.parent
    with contextlib.ExitStack() as stack:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            stack.callback(_remove_empty, folder)
            stack.enter_context(exclusive(folder / LOCK))
        except Held as held:
            raise UsageError(
                f"{suite} is being {doing} by process {held.owner}",
                hint="wait for it, or end it and run the same command again",
            ) from None
        except OSError as error:
            raise UsageError(
                f"cannot keep the journal of the {journal} in {folder}: {error.strerror or error}",
                hint="work on a copy of the suite in a directory that can be written to",
            ) from error
        yield


def in_use(suite: Path) -> str | None:
    """``migrated by process 4711`` or ``scored by ...``, if a process does that to a suite, on any device."""
    for folder, doing in (("migrations", "migrated"), ("scores", "scored")):
        for lock in sorted(suite.glob(f"{folder}/*/{LOCK}")):
            found = owner(lock)
            if found is not None:
                return f"{doing} by process {found}"
    return None


def _remove_empty(folder: Path) -> None:
    with contextlib.suppress(OSError):
        folder.rmdir()
        folder.parent.rmdir()


class Journal:
    """An append-only list of events.  ``events`` holds what was read at opening and what was appended since.

    ``read=False`` leaves what is there unread, for it is going to be set aside: damage does not matter then.
    """

    def __init__(self, path: Path, *, read: bool = True) -> None:
        self.path = path
        self.events: list[Json] = []
        self._descriptor: int | None = None
        self._aside = False
        if read and path.exists():
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

    def restart(self, header: Json, kept: Sequence[Json] = ()) -> None:
        """Begin a new journal, with events ``kept`` from the old one.

        With its first event of its own, the old one is set aside as ``journal.previous.jsonl``.
        """
        self.close()
        self._aside = self.path.exists()
        self.events = [{"event": "begin", "version": VERSION, **header}, *kept]

    def append(self, event: Json) -> None:
        """Write one event and wait until it is on the disk.  Raises :class:`TapmlError` when it cannot be written."""
        try:
            if self._descriptor is None:
                self._open()
            self._write([event])
        except OSError as error:
            full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
            raise TapmlError(
                f"cannot write {self.path}: {'the disk is full' if full else error.strerror or error}",
                hint=f"{'free some space' if full else 'make it writable'}; the same command with --resume goes on",
            ) from error
        self.events.append(event)

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _open(self) -> None:
        if self._aside:
            os.replace(self.path, self.path.with_name("journal.previous.jsonl"))
            self._aside = False
        self._descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        if os.fstat(self._descriptor).st_size == 0:
            self._write(self.events)

    def _write(self, events: list[Json]) -> None:
        """All or nothing."""
        assert self._descriptor is not None
        size = os.fstat(self._descriptor).st_size
        data = "".join(json.dumps(event, allow_nan=True) + "\n" for event in events).encode()
        try:
            if os.write(self._descriptor, data) != len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fsync(self._descriptor)
        except OSError:
            os.ftruncate(self._descriptor, size)
            raise


def read_events(path: Path) -> list[Json]:
    """Events of a journal, which may be being written to; a torn last line is left out, and nothing is changed.

    Raises :class:`SuiteError` for damage anywhere else, and for a journal of another version.
    """
    return _parse(path, _read(path))[0]


def _recover(path: Path) -> list[Json]:
    """As :func:`read_events`, but a torn last line is cut off: only for whoever holds the lock."""
    data = _read(path)
    events, good = _parse(path, data)
    if good < len(data):
        with open(path, "r+b") as file:
            file.truncate(good)
    return events


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise SuiteError(f"cannot read {path}: {error.strerror or error}", hint="begin again with --restart") from error


def _parse(path: Path, data: bytes) -> tuple[list[Json], int]:
    """(events, how many bytes they take)."""
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
    if events and (events[0].get("event") != "begin" or events[0].get("version") != VERSION):
        raise SuiteError(f"{path}: expected a journal of version {VERSION}", hint="begin again with --restart")
    return events, good
