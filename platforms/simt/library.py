"""A library of kernels, loaded: launches, as engine.h describes them."""

from __future__ import annotations

import ctypes
import os
import tempfile
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tapml.errors import DeviceError
from tapml.kernels.plan import Kernel
from tapml.platforms.simt.guard import stacks
from tapml.platforms.simt.translate import Translation

_SCALARS: dict[str, Any] = {
    "int8": ctypes.c_int8,
    "int16": ctypes.c_int16,
    "int32": ctypes.c_int32,
    "int64": ctypes.c_int64,
    "uint8": ctypes.c_uint8,
    "uint16": ctypes.c_uint16,
    "uint32": ctypes.c_uint32,
    "uint64": ctypes.c_uint64,
    "float32": ctypes.c_float,
    "float64": ctypes.c_double,
    "bool": ctypes.c_bool,
}
_ONE_AT_A_TIME = threading.Lock()
"""Signal handlers belong to the process."""


class _Row(ctypes.Structure):
    _fields_ = (
        ("thread", ctypes.c_void_p),
        ("shared_sizes", ctypes.POINTER(ctypes.c_ulong)),
        ("shared_count", ctypes.c_uint),
        ("fibres", ctypes.c_uint),
    )


class _Arguments(ctypes.Structure):
    _fields_ = (
        ("kernel", ctypes.c_uint),
        ("order", ctypes.c_uint),
        ("flush_denormals", ctypes.c_uint),
        ("unused", ctypes.c_uint),
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("arguments", ctypes.c_void_p),
        ("shared", ctypes.c_void_p),
        ("dynamic_shared", ctypes.c_ulong),
        ("poison", ctypes.c_ulonglong),
        ("stacks", ctypes.c_void_p),
        ("stack_size", ctypes.c_ulong),
        ("stack_stride", ctypes.c_ulong),
    )


class Report(ctypes.Structure):
    """How a launch ended.  ``code``: 0 when it completed, else one of the constants below it."""

    COMPLETED, SIGNAL, DIVERGENT, INCOMPLETE, MATRIX = range(5)

    code: int
    signal: int
    write: int
    site: int
    other_site: int
    count: int
    total: int
    thread: Sequence[int]
    block: Sequence[int]
    address: int
    _fields_ = (
        ("code", ctypes.c_int),
        ("signal", ctypes.c_int),
        ("write", ctypes.c_int),
        ("site", ctypes.c_uint),
        ("other_site", ctypes.c_uint),
        ("count", ctypes.c_uint),
        ("total", ctypes.c_uint),
        ("thread", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("address", ctypes.c_ulonglong),
    )


@dataclass(frozen=True)
class Mode:
    """How a pass executes.  ``order`` of threads and blocks: 0 forward, 1 reverse, others pseudo-random.  ``poison``: 64
    bits that fill memory.  ``flush_denormals``: whether subnormal floats are zero."""

    order: int
    poison: int
    flush_denormals: bool


class Library:
    """Compiled kernels in this process.  Raises :class:`DeviceError` when the system's loader refuses them."""

    def __init__(self, library: bytes, translation: Translation) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "kernels.so")
            with open(path, "wb") as file:
                file.write(library)
            try:
                self._library = ctypes.CDLL(path, mode=ctypes.RTLD_LOCAL)
            except OSError as error:
                raise DeviceError(f"the loader refused the emulated kernels: {error}") from error
        self._index = {name: n for n, name in enumerate(translation.kernels)}
        self._rows = (_Row * len(translation.kernels)).in_dll(self._library, "simt_kernels")

    def shared_sizes(self, kernel: Kernel) -> list[int]:
        """Bytes of each array in shared memory, in the order of the translation's names."""
        row = self._rows[self._index[kernel.name]]
        return [row.shared_sizes[n] or kernel.shared for n in range(row.shared_count)]

    def launch(
        self,
        kernel: Kernel,
        grid: tuple[int, int, int],
        buffers: Sequence[int],
        scalars: Sequence[int | float],
        shared: Sequence[int],
        mode: Mode,
        *,
        slots: bool,
    ) -> Report:
        """Execute all blocks.  ``buffers``, ``shared``: addresses; ``slots``: scalars are one argument, of 8 bytes each.

        Raises :class:`DeviceError` for a block that no device could execute.
        """
        values = [_SCALARS[dtype](value) for dtype, value in zip(kernel.scalars, scalars, strict=True)]
        packed = ctypes.create_string_buffer(8 * len(values) + 8)
        for n, value in enumerate(values):
            ctypes.memmove(ctypes.addressof(packed) + 8 * n, ctypes.addressof(value), ctypes.sizeof(value))
        extra = [ctypes.addressof(packed)] if slots else [ctypes.addressof(packed) + 8 * n for n in range(len(values))]
        pointers = (ctypes.c_void_p * (len(buffers) + len(extra) + 1))(*buffers, *extra)
        arrays = (ctypes.c_void_p * (len(shared) + 1))(*shared)
        space = stacks()
        arguments = _Arguments(
            self._index[kernel.name],
            mode.order,
            mode.flush_denormals,
            0,
            (ctypes.c_uint * 3)(*grid),
            (ctypes.c_uint * 3)(*kernel.block),
            ctypes.addressof(pointers),
            ctypes.addressof(arrays),
            kernel.shared,
            mode.poison,
            space.address,
            space.size,
            space.stride,
        )
        report = Report()
        with _ONE_AT_A_TIME:
            code = self._library.simt_launch(ctypes.byref(arguments), ctypes.byref(report))
        if code < 0:
            raise DeviceError(f"kernel {kernel.name}: expected at most 1024 threads in a block, found {kernel.block}")
        return report
