"""A connection that comes back: shared between processes, closed when idle, opened again when it was lost."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from tapml.errors import DeviceError, TapmlError
from tapml.platforms.rpc.address import Address
from tapml.platforms.rpc.connecting import connect
from tapml.platforms.rpc.turn import Turn

PATIENCE = 30.0
"""Seconds for which a server that was there may be away: a restart of TVM's takes some."""
_TURN_SECONDS = 60.0
_IDLE_SECONDS = 0.1
"""After that others may connect; to connect again takes some 40 ms."""
_LONG_SECONDS = 20.0
"""So long a server of a tracker's is kept at most, as nobody can see here whether others wait for it."""

T = TypeVar("T")


@dataclass(eq=False)
class Link:
    """One session, with all that lives in it: dropping it is what ends the session.

    ``loaded``: by operator, what was made ready for it, with a method ``drop``.  ``kept``: data by name.  ``tracked``:
    the server came from a tracker.
    """

    session: Any
    tracked: bool
    loaded: WeakKeyDictionary[Any, Any] = field(default_factory=WeakKeyDictionary)
    kept: dict[str, Any] = field(default_factory=dict)
    since: float = field(default_factory=time.monotonic)

    def end(self) -> None:
        """End the session, though an exception's traceback may still refer to what used it."""
        for loaded in self.loaded.values():
            loaded.drop()
        self.loaded.clear()
        self.kept.clear()
        self.session = None

    def alive(self) -> bool:
        """Whether the other side answers."""
        try:
            self.session.get_function("tvm.rpc.server.upload")
        except Exception:  # whatever TVM raises
            return False
        return True


class Connection:
    """The way to one server.  For several threads, one at a time."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self._turn = Turn(f"{address.host}:{address.port}")
        self._mutex = threading.RLock()
        self._link: Link | None = None
        self._timer: threading.Timer | None = None
        self._patience = PATIENCE

    def do(self, work: Callable[[Link], T], *, patience: float | None = None) -> tuple[T, bool]:
        """``work``'s result, and whether the connection was lost in the middle.

        Then it is done once more on a new connection, so that neither a server that is restarted nor a network that
        fails costs a result.  Raises :class:`DeviceError` when it is lost again, when the server stays away, or in the
        server's words for what it refuses.
        """
        with self._mutex:
            try:
                try:
                    return self._attempt(work, patience), False
                except _LostError:
                    pass
                try:
                    return self._attempt(work, patience), True
                except _LostError as lost:
                    raise DeviceError(
                        f"the connection to {self.address} was lost twice while one operator ran: {lost}",
                        hint="the kernel may have ended the server's process; what does the server print?",
                    ) from None
            finally:
                self._rest()

    def close(self) -> None:
        """Let others have the server, now."""
        with self._mutex:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            self._drop()
            self._turn.give()

    def _drop(self) -> None:
        if self._link is not None:
            self._link.end()
            self._link = None

    def _attempt(self, work: Callable[[Link], T], patience: float | None) -> T:
        """Raises :class:`_LostError` when the connection breaks."""
        if self._link is None:
            self._open(patience)
        link = self._link
        assert link is not None
        try:
            return work(link)
        except TapmlError:
            raise
        except Exception as error:  # TVM raises one class for all that goes wrong between two machines
            text = " ".join(str(error).split())[:300]
        if link.alive():
            raise DeviceError(f"{self.address}: {text}")
        self._drop()
        raise _LostError(text)

    def _open(self, patience: float | None) -> None:
        if not self._turn.take(_TURN_SECONDS):
            raise DeviceError(
                f"expected {self.address} to be free within {_TURN_SECONDS:g} s, found it in use by other tapml processes"
            )
        try:
            session, tracked = connect(self.address, self._patience if patience is None else patience)
        except DeviceError:
            self._patience = 0.0  # it has been waited for: the next operator need not wait as long again
            self._turn.give()
            raise
        self._patience = PATIENCE
        self._link = Link(session, tracked)
        if tracked:  # the tracker has servers for several, and a queue of its own
            self._turn.give()

    def _rest(self) -> None:
        """Close when another process waits, or else soon."""
        if self._link is None:
            self._turn.give()
            return
        if self._timer is not None:
            self._timer.cancel()
        long = time.monotonic() - self._link.since > _LONG_SECONDS
        if long if self._link.tracked else self._turn.wanted():
            self.close()
            return
        self._timer = threading.Timer(_IDLE_SECONDS, self._expire)
        self._timer.daemon = True
        self._timer.start()

    def _expire(self) -> None:
        if self._mutex.acquire(blocking=False):  # else it is in use
            try:
                if self._timer is threading.current_thread():
                    self.close()
            finally:
                self._mutex.release()


class _LostError(Exception):
    """The connection broke."""
