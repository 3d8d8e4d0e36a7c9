"""From an address to a session: what listens there, a server or a tracker, and how to get in."""

from __future__ import annotations

import re
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tapml.errors import DeviceError
from tapml.platforms.rpc.address import Address

_ANSWER_SECONDS = 10.0
_RETRY_SECONDS = 0.25
_STALE = 5
"""Servers that a tracker may name in vain, as many as TVM's own client tries."""
_START = "python -m tvm.exec.rpc_server --host HOST --port PORT --key KEY"
_TRACKED = f"{_START} --tracker TRACKER:PORT"


def connect(address: Address, patience: float) -> tuple[Any, bool]:
    """A ``tvm.rpc.RPCSession``, and whether it came by way of a tracker.

    ``patience``: seconds for which a server that is not there may still come.  Raises :class:`DeviceError` when nothing
    listens, or what listens does not answer, is no server, or has another key.
    """
    end = time.monotonic() + patience
    while True:
        try:
            return _connect(address)
        except _AwayError as away:
            left = end - time.monotonic()
            if left <= 0:
                waited = f", after {patience:g} s of waiting" if patience else ""
                raise DeviceError(
                    f"expected a TVM RPC server or tracker at {address}, found none{waited}: {away}",
                    hint=away.hint,
                ) from None
            time.sleep(min(_RETRY_SECONDS, left))


class _OtherKeyError(Exception):
    """The server has another key; a tracker's takes a new one for each client, and may have done so already."""


class _AwayError(Exception):
    """Nothing is there at the moment."""

    def __init__(self, what: str, hint: str = f"is it running, and the port right? {_START}") -> None:
        super().__init__(what)
        self.hint = hint


class _NoTrackerError(Exception):
    """What is there is no tracker."""


def _connect(address: Address) -> tuple[Any, bool]:
    """First a tracker's greeting, which tells one from the other, and whether anybody listens: a server that has another
    client, or whose last client's process crashed (TVM 0.27 then listens no more), would leave us waiting for ever."""
    with _greeted(address) as tracker:
        if tracker is None:
            try:
                return _handshake(address, address.host, address.port, address.key), False
            except _OtherKeyError:
                raise DeviceError(
                    f"expected a server with key {address.key!r} at {address}, found one with another key",
                    hint="the key is the part of the URL after the port; the server has what was given as its --key",
                ) from None
        for _ in range(_STALE):
            host, port, key = _request(address, tracker)
            try:
                return _handshake(address, host, port, key), True
            except _OtherKeyError:
                continue
    raise _AwayError(f"the tracker named servers {_STALE} times that had taken another key by then", _TRACKED)


def _handshake(address: Address, host: str, port: int, key: str) -> Any:
    from tvm import rpc

    try:
        return rpc.connect(host, port, key)
    except Exception as error:  # TVM raises one class for all that can happen
        text = " ".join(str(error).split())
    if "cannot find server that matches key" in text:
        raise _OtherKeyError
    if re.search(r"Connect to .* failed|connection reset|Connection reset|code=kShutdown|Broken pipe", text):
        raise _AwayError(text)
    raise DeviceError(f"expected a TVM RPC server at {address}, found something else: {text[:200]}", hint=_START)


def _request(address: Address, tracker: socket.socket) -> tuple[str, int, str]:
    """Host, port and key of a server that the tracker knows by the address's key and that is free."""
    from tvm.rpc import base

    try:
        base.sendjson(tracker, [base.TrackerCode.SUMMARY])
        _, summary = base.recvjson(tracker)
        keys = sorted({item["key"].partition(":")[2] for item in summary["server_info"]})
        if address.key not in keys:
            raise _AwayError(
                f"the tracker there knows servers of keys {keys}, and none of key {address.key!r}", _TRACKED
            )
        base.sendjson(tracker, [base.TrackerCode.REQUEST, address.key, "", 1])
        code, answer = base.recvjson(tracker)
    except TimeoutError:
        raise _AwayError(
            f"no server of key {address.key!r} became free within {_ANSWER_SECONDS:g} s", _TRACKED
        ) from None
    except OSError as error:
        raise _AwayError(f"the tracker closed the connection ({error})") from None
    if code != base.TrackerCode.SUCCESS:
        raise DeviceError(f"the tracker at {address} answered {answer!r}")
    host, port, key = answer
    return host, port, key


@contextmanager
def _greeted(address: Address) -> Iterator[socket.socket | None]:
    """A connection to a tracker, or ``None`` when a server is there: it closes the connection on a tracker's greeting.

    Raises :class:`_AwayError` when nothing is there, or nothing is said; :class:`DeviceError` for a host nobody knows.
    """
    from tvm.rpc import base

    try:
        connection = socket.create_connection((address.host, address.port), timeout=_ANSWER_SECONDS)
    except socket.gaierror as error:
        raise DeviceError(f"expected a host name or address, found {address.host!r}: {error.strerror}") from None
    except OSError as error:
        raise _AwayError(error.strerror or "no answer") from None
    with connection:
        magic = 0
        try:
            connection.sendall(struct.pack("<i", base.RPC_TRACKER_MAGIC))
            (magic,) = struct.unpack("<i", base.recvall(connection, 4))
        except TimeoutError:
            raise _AwayError(
                f"something listens, but said nothing for {_ANSWER_SECONDS:g} s",
                "is it a TVM RPC server, and free? it serves one client at a time, and none once a kernel has crashed it",
            ) from None
        except OSError:  # closed: no tracker
            pass
        yield connection if magic == base.RPC_TRACKER_MAGIC else None
