"""Reading a suite: structure is checked when it is opened, values are read and verified when they are asked for."""

from __future__ import annotations

import contextlib
import difflib
import gc
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import torch

from tapml.errors import SuiteError, UsageError
from tapml.suite.call import Json
from tapml.suite.case import Case, SignatureRecord
from tapml.suite.manifest import CaseEntry, Manifest
from tapml.suite.pack import DAMAGED, Entry, read_header, regular_file_size
from tapml.suite.parse import build_manifest, parse_manifest
from tapml.suite.record import TensorRecord, view_buffer
from tapml.suite.store import StoreReader
from tapml.suite_format import MANIFEST

_Found = TypeVar("_Found")

MAX_MANIFEST = 1 << 30
"""Bytes.  A suite of 1,000 cases has about one million."""


class Suite:
    """A suite on disk.  Nothing in it is executed, no file is kept open, and it may be sent to other processes.

    Use :meth:`open`.  All errors in what is read are :class:`SuiteError`.
    """

    def __init__(self, path: Path, digest: str, manifest: Manifest, entries: dict[str, Entry]) -> None:
        self.path = path
        self.digest = digest
        """Identity: the SHA-256 (hex) of the manifest without the volatile part of ``info``."""
        self._manifest = manifest
        sizes = {path / name: size for name, size in manifest.packs.items()}
        self._store = StoreReader(path / MANIFEST, entries, manifest.external, sizes)

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Suite:
        """Open and check the suite in directory ``path``.

        Raises :class:`SuiteError` for a directory that is none, or one that is damaged or of a later version.
        """
        root = Path(path)
        if not root.is_dir():
            raise SuiteError(
                f"{root}: expected the directory of a suite, found {_kind(root)}", hint=_missing_hint(root)
            )
        file = root / MANIFEST
        size = regular_file_size(file, hint="this is no suite; `tapml carve` writes one")
        if size > MAX_MANIFEST:
            raise SuiteError(f"{file}: expected at most {MAX_MANIFEST} bytes, found {size}", hint=DAMAGED)
        try:
            text = file.read_bytes()
        except OSError as error:
            raise SuiteError(f"{file}: expected a readable file, found: {error.strerror or error}") from error
        try:
            with _paused_collection():
                data = parse_manifest(text, file)
                manifest, entries = build_manifest(data, file, lambda name, size: _read_pack(root, name, size))
        except RecursionError as error:
            raise SuiteError(f"{file}: expected JSON, found a file that is nested too deeply", hint=DAMAGED) from error
        return cls(root, data["digest"], manifest, entries)

    @property
    def info(self) -> dict[str, Json]:
        """What the carve said of itself: source, settings, versions, counts, seed, timing, notes."""
        return self._manifest.info

    @property
    def signatures(self) -> tuple[SignatureRecord, ...]:
        """In order of their first call."""
        return tuple(self._manifest.signatures.values())

    @property
    def case_ids(self) -> tuple[str, ...]:
        """All ids, by signature."""
        return tuple(case_id for record in self.signatures for case_id in record.cases)

    @property
    def nbytes(self) -> int:
        """Bytes of all packs."""
        return sum(self._manifest.packs.values())

    def signature(self, signature_id: str) -> SignatureRecord:
        """Raises :class:`UsageError` for an id that is not in the suite."""
        return self._look_up(self._manifest.signatures, signature_id, "signature")

    def entry(self, case_id: str) -> CaseEntry:
        """Origin, stress figures and tensor records of a case, without reading a value."""
        return self._look_up(self._manifest.cases, case_id, "case")

    def case(self, case_id: str) -> Case:
        """Read one case.  Nothing that is done to its tensors reaches the disk or another case.

        Mutated arguments have memory of their own (shared with those they shared it with).  Other tensors of the case
        whose values are equal may share theirs: do not write to them.

        Raises :class:`UsageError` for an unknown id and :class:`SuiteError` when the values are not what was written.
        """
        entry = self.entry(case_id)
        mappings: dict[Path, torch.UntypedStorage] = {}
        tensors: dict[int, torch.Tensor] = {}
        for group in entry.aliases:
            data = self._store.read(entry.tensors[group[0]].buffer, mappings).clone()
            tensors.update((index, view_buffer(data, entry.tensors[index])) for index in group)
        for index, record in enumerate(entry.tensors):
            if index not in tensors:
                tensors[index] = self._read(record, mappings)
        return Case(
            id=entry.id,
            signature=self._manifest.signatures[entry.signature_id].signature,
            origin=entry.origin,
            tensors=tuple(tensors[index] for index in range(len(entry.tensors))),
            results=tuple((name, self._read(record, mappings)) for name, record in entry.results),
            stress=dict(entry.stress),
        )

    def cases(self, signature_id: str | None = None) -> Iterator[Case]:
        """The cases of a signature, or all, read one after the other."""
        ids = self.case_ids if signature_id is None else self.signature(signature_id).cases
        return map(self.case, ids)

    def reference_outputs(self) -> dict[str, torch.Tensor]:
        """What the reference run returned, by name, in the order of writing."""
        mappings: dict[Path, torch.UntypedStorage] = {}
        return {name: self._read(record, mappings) for name, record in self._manifest.reference_outputs}

    def checkpoint_tensor(self, record: TensorRecord) -> tuple[str, str, int] | None:
        """(safetensors file, name, offset in elements) of the checkpoint's tensor that ``record`` refers to, ``None`` if
        the suite holds it."""
        found = self._manifest.external.get(record.buffer)
        return None if found is None else (found.path, found.name, record.offset)

    def _read(self, record: TensorRecord, mappings: dict[Path, torch.UntypedStorage]) -> torch.Tensor:
        return view_buffer(self._store.read(record.buffer, mappings), record)

    def _look_up(self, table: dict[str, _Found], name: str, what: str) -> _Found:
        if name in table:
            return table[name]
        near = difflib.get_close_matches(name, table, n=1)
        hint = f"did you mean {near[0]}? " if near else ""
        raise UsageError(f"{self.path} has no {what} {name!r}", hint=f"{hint}`tapml show {self.path}` lists them")


@contextlib.contextmanager
def _paused_collection() -> Iterator[None]:
    """Without the cyclic collector, which takes longer than parsing: each new object might be the one to start it."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _read_pack(root: Path, name: str, size: int) -> dict[str, Entry]:
    path = root / name
    if not Path(os.path.realpath(path)).is_relative_to(os.path.realpath(root)):
        raise SuiteError(f"{path}: expected a pack within the suite, found a link out of it", hint=DAMAGED)
    found = regular_file_size(path, hint="copy the suite again from where it came, or carve it again")
    if found != size:
        raise SuiteError(
            f"{path}: expected {size} bytes, found {found}{': the pack is truncated' if found < size else ''}",
            hint="copy the suite again from where it came, or carve it again",
        )
    return read_header(path)


def _kind(path: Path) -> str:
    return "a file" if path.exists() else "nothing"


def _missing_hint(path: Path) -> str:
    old = next(path.absolute().parent.glob(f".{path.name}.old-*"), None) if path.name else None
    if old is not None:
        return f"replacing it was interrupted; carve again, or rename {old} back"
    return "`tapml carve` writes one"
