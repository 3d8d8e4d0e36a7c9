"""Memory whose ends are watched: an access beside it is a signal, not a wrong number.

A region lies between stretches of address space that nothing may touch.  It can be pushed against either of them: at the
upper one its last byte is the last of a page, so that the byte after it cannot be read; at the lower one its first byte is
the first of a page.  The rest of its pages is filled with a pattern, which is checked afterwards.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from dataclasses import dataclass
from functools import lru_cache

import numpy
from numpy.typing import NDArray

from tapml.errors import DeviceError

_PAGE = mmap.PAGESIZE
_GUARD = 1 << 24
"""Bytes of address space on either side: an index that is wrong by millions of elements is caught too."""
_SLACK = 0xA5
_NONE, _READ, _WRITE = 0, 1, 2
_FAILED = ctypes.c_void_p(-1).value


class Region:
    """``nbytes`` bytes between guards; ``label`` says what they are.  Freed by :meth:`close`."""

    def __init__(self, label: str, nbytes: int) -> None:
        self.label, self.nbytes = label, nbytes
        self._span = -(-nbytes // _PAGE) * _PAGE
        self._base = map_memory(self._span + 2 * _GUARD)
        self._first = self._base + _GUARD
        self.address = self._first
        self.protect(writable=True)

    def push(self, upper: bool) -> None:
        """Move to one of the guards; what was there is lost."""
        self.address = self._first + (self._span - self.nbytes if upper else 0)
        slack = self._slack()
        slack[...] = _SLACK

    def array(self) -> NDArray[numpy.uint8]:
        """The bytes themselves, not a copy."""
        return _view(self.address, self.nbytes)

    def fill(self, pattern: int) -> None:
        """Repeat 64 bits over the whole region."""
        whole, rest = self.array(), self.nbytes % 8
        whole[: self.nbytes - rest].view(numpy.uint64)[...] = pattern
        whole[self.nbytes - rest :] = numpy.frombuffer(pattern.to_bytes(8, "little"), numpy.uint8)[:rest]

    def protect(self, *, writable: bool) -> None:
        """Allow reads, and writes or not."""
        if self._span:
            protect_memory(self._first, self._span, writable=writable)

    def overwritten(self) -> int | None:
        """The offset from the region's start of a byte beside it that was written, or ``None``."""
        changed = numpy.flatnonzero(self._slack() != _SLACK)
        if not changed.size:
            return None
        return int(changed[0]) + (self._first - self.address if self.address > self._first else self.nbytes)

    def offset(self, address: int) -> int | None:
        """Bytes from the region's start to an address that lies within it or its guards, or ``None``."""
        inside = self._base <= address < self._first + self._span + _GUARD
        return address - self.address if inside else None

    def close(self) -> None:
        unmap_memory(self._base, self._span + 2 * _GUARD)

    def _slack(self) -> NDArray[numpy.uint8]:
        size = self._span - self.nbytes
        return _view(self._first if self.address > self._first else self.address + self.nbytes, size)


@dataclass(frozen=True)
class Stacks:
    """Stacks for the threads of a block: thread n has ``size`` bytes from ``address + n * stride``; a guard below each."""

    address: int
    size: int
    stride: int
    count: int

    def owner(self, address: int) -> int | None:
        """The thread in whose stack, or guard, an address lies."""
        index = (address - self.address + (self.stride - self.size)) // self.stride
        return index if 0 <= index < self.count else None


@lru_cache(maxsize=None)
def stacks() -> Stacks:
    """The stacks of this process: address space for 1,024 threads; memory only for what they touch."""
    size, count = 512 * 1024, 1024
    stride = size + _PAGE
    base = map_memory(stride * count)
    for index in range(count):
        protect_memory(base + index * stride + _PAGE, size, writable=True)
    return Stacks(base + _PAGE, size, stride, count)


def map_memory(nbytes: int) -> int:
    """Address space that may not be touched.  Raises :class:`DeviceError` when the system has none left."""
    private, anonymous, no_reserve = mmap.MAP_PRIVATE, mmap.MAP_ANONYMOUS, getattr(mmap, "MAP_NORESERVE", 0)
    address = _libc().mmap(None, nbytes, _NONE, private | anonymous | no_reserve, -1, 0)
    if address is None or address == _FAILED:
        raise DeviceError(f"the system refused {nbytes} bytes of address space: {os.strerror(ctypes.get_errno())}")
    return int(address)


def protect_memory(address: int, nbytes: int, *, writable: bool) -> None:
    """Allow reads, and writes or not.  Raises :class:`DeviceError` when the system refuses."""
    if _libc().mprotect(address, nbytes, _READ | _WRITE if writable else _READ):
        raise DeviceError(f"the system refused {nbytes} bytes of memory: {os.strerror(ctypes.get_errno())}")


def unmap_memory(address: int, nbytes: int) -> None:
    """Give memory back."""
    _libc().munmap(address, nbytes)


def _view(address: int, nbytes: int) -> NDArray[numpy.uint8]:
    return numpy.ctypeslib.as_array((ctypes.c_uint8 * nbytes).from_address(address))


@lru_cache(maxsize=None)
def _libc() -> ctypes.CDLL:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    return libc
