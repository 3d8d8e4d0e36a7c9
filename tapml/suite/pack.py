"""One safetensors file: the pack that tapml writes, and the header of any such file, checked before use.

The header is parsed here and not by the safetensors library because a damaged file must be reported with what was
expected and found, because each read needs a mapping of its own (see :func:`map_file`), and because packs are written
without a second copy of their buffers in memory.  The tests hold both directions against the library.
Format: https://huggingface.co/docs/safetensors (``u64`` header length, JSON header, data without holes).
"""

from __future__ import annotations

import json
import math
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from tapml.errors import SuiteError

CODES: dict[str, torch.dtype] = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U64": torch.uint64,
    "U32": torch.uint32,
    "U16": torch.uint16,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}
"""The safetensors dtypes that a buffer may have: those that every safetensors since 0.4 reads."""

_CODE_OF = {dtype: code for code, dtype in CODES.items()}

ALIGNMENT = 64
"""Bytes.  What PyTorch's allocator guarantees and TVM expects of a tensor's data."""

MAX_HEADER = 100_000_000
"""Bytes.  The limit of the safetensors library."""

DAMAGED = "the suite is damaged or was edited; carve it again"


@dataclass(frozen=True)
class Entry:
    """Where a buffer lies: ``begin`` and ``size`` in bytes from the start of the file; ``dtype`` of its elements."""

    path: Path
    dtype: torch.dtype
    shape: tuple[int, ...]
    begin: int
    size: int


def unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """``object_pairs_hook`` for ``json``: raises :class:`ValueError` where ``json`` would keep the last of two."""
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("two members of one object have one name")
    return found


def refuse_constant(name: str) -> Any:
    """``parse_constant`` for ``json``: ``NaN`` and ``Infinity`` are no JSON."""
    raise ValueError(f"{name} is no JSON value")


def write_pack(path: Path, buffers: Mapping[str, torch.Tensor]) -> int:
    """Write 1-D CPU tensors by name and flush them to the disk; returns the size of the file in bytes.

    Data starts at a multiple of :data:`ALIGNMENT`; buffers whose size is one come first, then the others by item size,
    so that no element is misaligned.  Raises :class:`OSError`.
    """
    order = sorted(buffers.items(), key=lambda item: (item[1].nbytes % ALIGNMENT != 0, -item[1].itemsize))
    header, end = {}, 0
    for name, buffer in order:
        begin, end = end, end + buffer.nbytes
        header[name] = {"dtype": _CODE_OF[buffer.dtype], "shape": [buffer.numel()], "data_offsets": [begin, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-(8 + len(text)) % ALIGNMENT)
    with open(path, "xb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for _, buffer in order:
            file.write(buffer.view(torch.uint8).numpy().data)
        file.flush()
        os.fsync(file.fileno())
    return 8 + len(text) + end


def regular_file_size(path: Path, *, hint: str) -> int:
    """Size in bytes; raises :class:`SuiteError` for what is missing, unreadable or no regular file (a pipe hangs)."""
    try:
        status = os.stat(path)
    except (OSError, ValueError) as error:  # ValueError: a name that no file can have
        reason = error.strerror if isinstance(error, OSError) else error
        raise SuiteError(f"{path}: expected a file, found: {reason}", hint=hint) from error
    if not stat.S_ISREG(status.st_mode):
        raise SuiteError(f"{path}: expected a regular file, found another kind", hint=hint)
    return status.st_size


def read_header(path: Path, *, hint: str = DAMAGED) -> dict[str, Entry]:
    """The tensors of a safetensors file by name; those of a dtype that is not in :data:`CODES` are left out.

    Every offset is checked: within the file, not overlapping, without holes, and as long as shape and dtype say.
    Raises :class:`SuiteError`.
    """
    file_size = regular_file_size(path, hint=hint)
    try:
        with open(path, "rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if file_size < 8 or length > min(MAX_HEADER, file_size - 8):
                raise SuiteError(
                    f"{path}: expected a safetensors header within the file's {file_size} bytes, found one that claims "
                    f"{length} bytes",
                    hint=hint,
                )
            text = file.read(length)
    except OSError as error:
        raise SuiteError(f"{path}: expected a readable file, found {error.strerror or error}", hint=hint) from error
    try:
        header = json.loads(text.decode(), object_pairs_hook=unique_keys, parse_constant=refuse_constant)
        if not isinstance(header, dict):
            raise ValueError("it is no object")
        return _check_header(path, header, 8 + length, file_size)
    except (ValueError, RecursionError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else error
        raise SuiteError(f"{path}: expected a safetensors header, found a damaged one: {reason}", hint=hint) from error


def _check_header(path: Path, header: dict[str, Any], start: int, file_size: int) -> dict[str, Entry]:
    header.pop("__metadata__", None)
    entries: dict[str, Entry] = {}
    regions: list[tuple[int, int, str]] = []
    for name, value in header.items():
        if not isinstance(value, dict) or value.keys() != {"dtype", "shape", "data_offsets"}:
            raise ValueError(f"tensor {name[:80]!r} has other members than dtype, shape and data_offsets")
        code, shape, offsets = value["dtype"], value["shape"], value["data_offsets"]
        if not (isinstance(shape, list) and all(type(n) is int and 0 <= n < 1 << 62 for n in shape)):
            raise ValueError(f"tensor {name[:80]!r} has the shape {str(shape)[:80]}")
        if not (isinstance(offsets, list) and len(offsets) == 2 and all(type(n) is int for n in offsets)):
            raise ValueError(f"tensor {name[:80]!r} has the offsets {str(offsets)[:80]}")
        begin, end = offsets
        if not 0 <= begin <= end <= file_size - start:
            raise ValueError(f"tensor {name[:80]!r} is at {begin}..{end} of {file_size - start} bytes of data")
        regions.append((begin, end, name))
        dtype = CODES.get(code) if isinstance(code, str) else None
        if dtype is None:
            continue
        if end - begin != math.prod(shape) * dtype.itemsize:
            raise ValueError(f"tensor {name[:80]!r} has {end - begin} bytes for shape {shape} of {code}")
        entries[name] = Entry(path, dtype, tuple(shape), start + begin, end - begin)
    regions.sort()
    position = 0
    for begin, end, name in regions:
        if begin != position:
            raise ValueError(f"tensor {name[:80]!r} starts at {begin}, expected {position} (an overlap or a hole)")
        position = end
    if position != file_size - start:
        raise ValueError(f"its tensors have {position} bytes, the file has {file_size - start} bytes of data")
    return entries


def map_file(path: Path, size: int, *, hint: str = DAMAGED) -> torch.UntypedStorage:
    """The first ``size`` bytes of a file as storage that only this caller sees: writes reach neither file nor others.

    Raises :class:`SuiteError` when the file is gone or became shorter.
    """
    if (found := regular_file_size(path, hint=hint)) < size:
        raise SuiteError(f"{path}: expected {size} bytes, found {found}: the file is truncated", hint=hint)
    try:
        storage = torch.UntypedStorage.from_file(str(path), False, size)
    except RuntimeError as error:
        raise SuiteError(f"{path}: expected a file that can be mapped, found: {error}", hint=hint) from error
    assert isinstance(storage, torch.UntypedStorage)
    return storage


def mapped_bytes(storage: torch.UntypedStorage, entry: Entry) -> torch.Tensor:
    """``uint8[size]``: the bytes of an entry in the mapping of its file."""
    return torch.empty(0, dtype=torch.uint8).set_(storage, entry.begin, (entry.size,), (1,))
