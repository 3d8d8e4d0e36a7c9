"""Device memory that is used again: buffers of finished runs, and inputs that come again."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import count
from typing import Generic, TypeVar

from tapml.errors import DeviceError

Handle = TypeVar("Handle")

_IDLE = 256 << 20
"""Bytes of unused buffers that are kept for the next run."""
_MOST = 1024
"""Kept inputs: Vulkan drivers may allow no more than 4,096 allocations."""
_serial = count()


@dataclass(eq=False)
class Block(Generic[Handle]):
    """A buffer on the device, of at least ``capacity`` bytes.  ``serial`` is never given to another."""

    handle: Handle
    capacity: int
    serial: int = field(default_factory=lambda: next(_serial))


class Memory(Generic[Handle]):
    """Buffers by size, and inputs by key.

    ``allocate(nbytes)`` makes a buffer or raises :class:`DeviceError`; ``free`` ends its life.  ``budget``: bytes of
    inputs that are kept; the least recently used go first.  For one thread.
    """

    def __init__(self, allocate: Callable[[int], Handle], free: Callable[[Handle], None], budget: int) -> None:
        self._allocate = allocate
        self._free = free
        self._budget = budget
        self._idle: dict[int, list[Block[Handle]]] = {}
        self._idle_bytes = 0
        self._kept: OrderedDict[str, Block[Handle]] = OrderedDict()
        self._kept_bytes = 0
        self._in_use: set[str] = set()

    def take(self, nbytes: int) -> Block[Handle]:
        """A buffer with room for ``nbytes``; its contents are anything."""
        size = size_class(nbytes)
        if self._idle.get(size):
            self._idle_bytes -= size
            return self._idle[size].pop()
        try:
            return Block(self._allocate(size), size)
        except DeviceError:
            if not (self._idle_bytes or self._kept):
                raise
        self._drop_idle(0)
        self._shrink(0)
        return Block(self._allocate(size), size)

    def give(self, blocks: Iterable[Block[Handle]]) -> None:
        """Take buffers back."""
        for block in blocks:
            self._idle.setdefault(block.capacity, []).append(block)
            self._idle_bytes += block.capacity
        self._drop_idle(_IDLE)

    def find(self, key: str) -> Block[Handle] | None:
        """The buffer of a kept input, which stays until :meth:`finish`."""
        block = self._kept.get(key)
        if block is not None:
            self._kept.move_to_end(key)
            self._in_use.add(key)
        return block

    def keep(self, key: str, block: Block[Handle]) -> None:
        """Keep a buffer by a key that no other has; it stays until :meth:`finish` at least."""
        self._kept[key] = block
        self._kept_bytes += block.capacity
        self._in_use.add(key)
        self._shrink(self._budget)

    def finish(self) -> None:
        """The run is over: everything that was found or kept for it may go."""
        self._in_use.clear()
        self._shrink(self._budget)

    def close(self) -> None:
        """Free all that is here.  Buffers that were taken and not given back are the taker's."""
        self._in_use.clear()
        self._shrink(0)
        self._drop_idle(0)

    def _shrink(self, budget: int) -> None:
        for key in [k for k in self._kept if k not in self._in_use]:
            if self._kept_bytes <= budget and len(self._kept) <= (_MOST if budget else 0):
                return
            block = self._kept.pop(key)
            self._kept_bytes -= block.capacity
            self._free(block.handle)

    def _drop_idle(self, budget: int) -> None:
        for size in sorted(self._idle, reverse=True):
            while self._idle[size] and self._idle_bytes > budget:
                self._idle_bytes -= size
                self._free(self._idle[size].pop(0).handle)


def size_class(nbytes: int) -> int:
    """Bytes that are allocated for a buffer of ``nbytes``: at most an eighth more, a multiple of 256."""
    step = max(256, 1 << max(nbytes.bit_length() - 4, 0))
    return max(-(-nbytes // step), 1) * step
