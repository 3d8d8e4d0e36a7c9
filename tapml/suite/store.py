"""The content-addressed buffers of a suite: packs under ``tensors/``, and checkpoints that are only referred to."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import torch

from tapml.errors import SuiteError
from tapml.suite.call import Json, TensorSpec, dtype_name, span
from tapml.suite.pack import ALIGNMENT, Entry, map_file, mapped_bytes, read_header, write_pack
from tapml.suite.record import STORED_AS, TensorRecord, buffer_hash, flatten, flatten_group

PACK_BYTES = 256 << 20
"""A pack is closed before it grows beyond this; one buffer that is larger has a pack of its own."""

External = Callable[[torch.Tensor], "tuple[str | os.PathLike[str], str] | tuple[str, str, int] | None"]
"""Tensor -> (safetensors file, name) of the checkpoint tensor that its storage was loaded from, if any; where that does not
begin as the storage does, with the offset of the tensor in it, in elements."""

MOVED = "put the checkpoint back where it was, or carve again with the parameters embedded"


@dataclass(frozen=True)
class ExternalBuffer:
    """A buffer that lives in a checkpoint: its file, the tensor's name there, dtype, and size in bytes."""

    path: str
    name: str
    dtype: str
    size: int

    def to_json(self) -> Json:
        return {"path": self.path, "name": self.name, "dtype": self.dtype, "size": self.size}


@dataclass
class StoreWriter:
    """Writes buffers below ``directory``; holds at most ``pack_bytes`` of them in memory.

    ``external`` tells which tensors are parameters of a checkpoint; those whose bits are the checkpoint's are referred
    to.  Each record holds a reference to its buffer; :meth:`release` gives it back.
    """

    directory: Path
    pack_bytes: int = PACK_BYTES
    external: External | None = None
    referred: dict[str, ExternalBuffer] = field(default_factory=dict)
    """What has been referred to so far, by hash."""

    written: int = 0
    """Bytes of the packs so far, the one being written included."""

    _pending: dict[str, torch.Tensor] = field(default_factory=dict)
    _pending_bytes: int = 0
    _packs: dict[Path, list[str]] = field(default_factory=dict)
    _stored: set[str] = field(default_factory=set)
    _references: Counter[str] = field(default_factory=Counter)
    _checkpoints: dict[str, dict[str, Entry]] = field(default_factory=dict)
    _checkpoint_hashes: dict[tuple[str, str], str] = field(default_factory=dict)

    def record(self, tensor: torch.Tensor, spec: TensorSpec) -> TensorRecord:
        """Store what ``tensor`` shows (of the shape and dtype of ``spec``)."""
        if self.external is not None and spec.numel and (found := self.external(tensor)) is not None:
            record = self._refer(tensor, spec, os.path.abspath(found[0]), *found[1:])
            if record is not None:
                return record
        buffer, packed = flatten(tensor, spec)
        return TensorRecord(self._put(buffer), spec, 0, packed)

    def record_group(self, tensors: Collection[torch.Tensor]) -> list[TensorRecord]:
        """Store tensors that share storage as views of one buffer."""
        buffer, offsets = flatten_group(list(tensors))
        records = []
        for tensor, offset in zip(tensors, offsets, strict=True):
            records.append(TensorRecord(self._put(buffer), TensorSpec.of(tensor), offset))
        return records

    def release(self, record: TensorRecord) -> None:
        self._references[record.buffer] -= 1

    def finish(self) -> list[Path]:
        """Write what is pending, take buffers without a reference out of the packs, and return the packs."""
        self._flush()
        for path, names in list(self._packs.items()):
            live = [name for name in names if self._references[name] > 0]
            if len(live) == len(names):
                continue
            if live:
                entries = read_header(path)
                storage = map_file(path, path.stat().st_size)
                kept = {n: mapped_bytes(storage, entries[n]).view(entries[n].dtype) for n in live}
                write_pack(path.with_suffix(".new"), kept)
                path.with_suffix(".new").replace(path)
                self._packs[path] = live
            else:
                path.unlink()
                del self._packs[path]
        self.referred = {name: where for name, where in self.referred.items() if self._references[name] > 0}
        return list(self._packs)

    def _put(self, buffer: torch.Tensor) -> str:
        name = buffer_hash(buffer, buffer.dtype)
        self._references[name] += 1
        if name in self._stored or name in self._pending or name in self.referred:
            return name
        if buffer.nbytes >= self.pack_bytes:
            self._write({name: buffer})
            return name
        if self._pending_bytes + buffer.nbytes > self.pack_bytes:
            self._flush()
        self._pending[name] = buffer.clone()
        self._pending_bytes += buffer.nbytes
        return name

    def _flush(self) -> None:
        live = {name: buffer for name, buffer in self._pending.items() if self._references[name] > 0}
        self._pending, self._pending_bytes = {}, 0
        if live:
            self._write(live)

    def _write(self, buffers: Mapping[str, torch.Tensor]) -> None:
        path = self.directory / f"pack-{len(self._packs):04d}.safetensors"
        self.written += sum(buffer.nbytes for buffer in buffers.values())
        write_pack(path, buffers)
        self._packs[path] = list(buffers)
        self._stored.update(buffers)

    def _refer(
        self, tensor: torch.Tensor, spec: TensorSpec, path: str, name: str, offset: int | None = None
    ) -> TensorRecord | None:
        """A record of the checkpoint's tensor, or ``None`` when ``tensor`` has not the same bits."""
        if tensor.is_conj() or tensor.is_neg() or tuple(tensor.stride()) != spec.strides:
            return None
        if path not in self._checkpoints:
            self._checkpoints[path] = read_header(Path(path), hint=MOVED)
        entry = self._checkpoints[path].get(name)
        if entry is None or entry.dtype != STORED_AS[tensor.dtype] or not entry.size:
            return None
        size = span(spec.shape, spec.strides) * tensor.itemsize
        flat = tensor.detach().as_strided((span(spec.shape, spec.strides),), (1,)).cpu().view(torch.uint8)
        data = mapped_bytes(map_file(Path(path), entry.begin + entry.size, hint=MOVED), entry)
        # the parameter starts where its storage does, unless something has put several into one storage
        for start in {int(tensor.storage_offset()) if offset is None else offset: None, 0: None}:
            begin = start * tensor.itemsize
            if begin + size <= entry.size and torch.equal(data[begin : begin + size], flat):
                break
        else:
            return None
        digest = self._checkpoint_hashes.get((path, name))
        if digest is None:
            digest = self._checkpoint_hashes[path, name] = buffer_hash(data, entry.dtype)
        self._references[digest] += 1
        if digest not in self._stored and digest not in self._pending:
            self.referred.setdefault(digest, ExternalBuffer(path, name, dtype_name(entry.dtype), entry.size))
        return TensorRecord(digest, spec, start)


@dataclass
class StoreReader:
    """Finds, maps and verifies buffers.  ``entries``: those in packs, by hash; ``external``: those in checkpoints."""

    manifest: Path
    entries: dict[str, Entry]
    external: dict[str, ExternalBuffer]
    pack_sizes: dict[Path, int]
    _verified: set[tuple[str, int, int]] = field(default_factory=set)

    def read(self, digest: str, mappings: dict[Path, torch.UntypedStorage]) -> torch.Tensor:
        """``uint8[size]``: the bytes of a buffer, aligned, writable without effect on others.

        ``mappings`` keeps the mapped files of one read; two reads share no memory.  The hash is verified the first
        time.  Raises :class:`SuiteError`.
        """
        where = self.external.get(digest)
        if where is None:
            entry = self.entries[digest]
            key = (digest, 0, 0)
            if entry.path not in mappings:
                mappings[entry.path] = map_file(entry.path, self.pack_sizes[entry.path])
        else:
            entry, key = self._find(digest, where)
            if entry.path not in mappings:
                mappings[entry.path] = map_file(entry.path, os.stat(entry.path).st_size, hint=MOVED)
        data = mapped_bytes(mappings[entry.path], entry)
        if key not in self._verified:
            found = buffer_hash(data, entry.dtype)
            if found != digest:
                self._differs(digest, where, entry, found)
            self._verified.add(key)
        return data.clone() if data.data_ptr() % ALIGNMENT else data

    def _find(self, digest: str, where: ExternalBuffer) -> tuple[Entry, tuple[str, int, int]]:
        path = Path(where.path)
        entry = read_header(path, hint=MOVED).get(where.name)
        if entry is None or (dtype_name(entry.dtype), entry.size) != (where.dtype, where.size):
            found = "none" if entry is None else f"{dtype_name(entry.dtype)} of {entry.size} bytes"
            raise SuiteError(
                f"{path}: expected the tensor {where.name!r} ({where.dtype} of {where.size} bytes), found {found}: the "
                f"checkpoint that {self.manifest} refers to has changed",
                hint=MOVED,
            )
        status = os.stat(path)
        return entry, (digest, status.st_mtime_ns, status.st_size)

    def _differs(self, digest: str, where: ExternalBuffer | None, entry: Entry, found: str) -> None:
        if where is None:
            raise SuiteError(
                f"{entry.path}: expected a buffer with the SHA-256 {digest}, found {found}: the data is damaged",
                hint="copy the suite again from where it came, or carve it again",
            )
        raise SuiteError(
            f"{entry.path}: expected the tensor {where.name!r} with the SHA-256 {digest}, found {found}: the "
            f"checkpoint that {self.manifest} refers to has changed",
            hint=MOVED,
        )
