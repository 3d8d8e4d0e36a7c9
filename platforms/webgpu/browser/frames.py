"""Messages between a client, the hub and a page: a header in JSON, and binary parts.

A frame is the header's length (4 bytes, little endian), the header (UTF-8, filled up with spaces so that what follows
begins at a multiple of 4), and the parts, each filled up to a multiple of 4 bytes, which is what WebGPU copies.  The header
has the parts' true lengths as ``parts``.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy
from numpy.typing import NDArray

Header = dict[str, Any]


def pack(header: Header, parts: Sequence[NDArray[numpy.uint8]] = ()) -> bytes:
    """A frame.  ``parts``: one-dimensional arrays of uint8."""
    text = json.dumps({**header, "parts": [p.nbytes for p in parts]}).encode()
    text += b" " * (-len(text) % 4)
    pieces: list[Any] = [len(text).to_bytes(4, "little"), text]
    for part in parts:
        pieces += [numpy.ascontiguousarray(part).data, b"\0" * (-part.nbytes % 4)]
    return b"".join(pieces)


def header_of(frame: bytes) -> Header:
    """The header of a frame.  Raises :class:`ValueError` when it has none."""
    length = int.from_bytes(frame[:4], "little")
    header = json.loads(frame[4 : 4 + length])
    if not isinstance(header, dict):
        raise ValueError(f"expected an object as the header of a message, found {type(header).__name__}")
    return header


def parts_of(frame: bytes, header: Header) -> list[NDArray[numpy.uint8]]:
    """The parts of a frame, as views of it."""
    at = 4 + int.from_bytes(frame[:4], "little")
    parts = []
    for nbytes in header["parts"]:
        parts.append(numpy.frombuffer(frame, numpy.uint8, nbytes, at))
        at += nbytes + -nbytes % 4
    return parts
