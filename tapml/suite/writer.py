"""Writing a suite, case by case, so that it appears whole or not at all."""

from __future__ import annotations

import contextlib
import datetime
import errno
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Literal

import torch

from tapml.errors import SuiteError, TapmlError, UsageError
from tapml.suite.call import Json, TensorSpec
from tapml.suite.case import Case, SignatureRecord
from tapml.suite.fields import FieldChecker
from tapml.suite.manifest import CaseEntry, Manifest, manifest_text, signature_to_json
from tapml.suite.reader import Suite
from tapml.suite.record import TensorRecord, alias_groups, check_recordable
from tapml.suite.staging import StagingDirectory
from tapml.suite.store import PACK_BYTES, External, StoreWriter
from tapml.suite_format import MANIFEST

_DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class SuiteWriter:
    """Collects cases into a new suite at ``path``; use it as a context manager, and end with :meth:`commit`.

    Until then everything is in a temporary directory beside ``path``, which an exception, Ctrl-C or the next writer
    after a kill removes.  Values are copied by :meth:`add_case`, equal ones are stored once, and at most
    ``pack_bytes`` of them are held in memory (plus the largest tensor).

    ``force`` replaces a suite that exists; anything else that exists is refused in either case.  ``params``: ``embed``
    stores parameters like all values; ``reference`` only refers to the checkpoint tensor that ``external`` names for a
    tensor (safetensors file, name), wherever the bits are the same.

    Raises :class:`UsageError` for an output that exists or cannot be written to.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        force: bool = False,
        params: Literal["embed", "reference"] = "embed",
        external: External | None = None,
        pack_bytes: int = PACK_BYTES,
    ) -> None:
        if params not in ("embed", "reference"):
            raise UsageError(f"expected params to be embed or reference, found {params!r}")
        if params == "reference" and external is None:
            raise UsageError(
                "params=reference needs a checkpoint to refer to, the source has none",
                hint="embed the parameters, or carve from a directory with safetensors files",
            )
        self._staging = StagingDirectory(path, force=force)
        self._cases: dict[str, CaseEntry] = {}
        self._open = True
        with self._guard():
            (self._staging.path / "tensors").mkdir()
        self._store = StoreWriter(
            self._staging.path / "tensors", pack_bytes, external if params == "reference" else None
        )

    @property
    def path(self) -> Path:
        """Where the suite will be."""
        return self._staging.target

    def __enter__(self) -> SuiteWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Give up what has not been committed, and remove it."""
        self._open = False
        self._staging.discard()

    def add_case(self, case: Case, *, mutated: Sequence[int] | None = None) -> None:
        """Store a case.  Its id must be ``<signature id>/<n>`` and new.

        Tensors may be views, overlap, or be on a device.  Tensor arguments that share storage with one of ``mutated``
        (``None``: those the signature says are) will do so after reading.

        Raises :class:`SuiteError` when case and signature disagree, :class:`UnsupportedError` for a tensor that cannot
        be stored (sparse, quantized, fake), :class:`TapmlError` when the disk is full.  After the first two the writer
        goes on without the case; after the last it is closed.
        """
        self._check_open()
        written = case.signature.mutated if mutated is None else tuple(mutated)
        self._check_case(case, written)
        for tensor in (*case.tensors, *(tensor for _, tensor in case.results)):
            check_recordable(tensor)
        records: dict[int, TensorRecord] = {}
        results: list[tuple[str, TensorRecord]] = []
        groups = alias_groups(case.tensors, written)
        with self._guard():
            try:
                for group in groups:
                    if len(group) > 1:
                        members = [case.tensors[i] for i in group]
                        records.update(zip(group, self._store.record_group(members), strict=True))
                for index, tensor in enumerate(case.tensors):
                    if index not in records:
                        records[index] = self._store.record(tensor, case.signature.tensors[index])
                for name, tensor in case.results:
                    results.append((name, self._store.record(tensor, TensorSpec.of(tensor))))
                entry = CaseEntry(
                    id=case.id,
                    origin=case.origin,
                    tensors=tuple(records[i] for i in range(len(case.tensors))),
                    results=tuple(results),
                    aliases=tuple(groups),
                    stress=case.stress,
                )
                entry.to_json()  # raises for figures that are no JSON
            except TypeError as error:
                self._release([*records.values(), *(record for _, record in results)])
                raise SuiteError(f"case {case.id}: {error}") from error
            except TapmlError:
                self._release([*records.values(), *(record for _, record in results)])
                raise
        self._cases[case.id] = entry

    def discard_case(self, case_id: str) -> None:
        """Forget a case that was added (one that is worse has been found); :meth:`commit` frees its buffers."""
        self._check_open()
        self._release(self._cases.pop(case_id).records)

    def commit(
        self,
        signatures: Sequence[SignatureRecord],
        *,
        info: Mapping[str, Json],
        reference_outputs: Mapping[str, torch.Tensor] | None = None,
    ) -> Path:
        """Write the manifest and move the suite to its place, which is returned.

        ``signatures``: in order of their first call; together their ``cases`` are the ids of all cases added.
        ``info``: any JSON (source, settings, versions, seed, notes); ``created`` (UTC) is added.  Its members
        ``created``, ``timing`` and ``host`` are no part of the suite's digest.

        Raises what :meth:`add_case` does; but for a full disk, :meth:`commit` may be tried again then.
        """
        self._check_open()
        outputs = dict(reference_outputs or {})
        with self._guard():
            for tensor in outputs.values():
                check_recordable(tensor)
            records = tuple((name, self._store.record(t, TensorSpec.of(t))) for name, t in outputs.items())
            packs = self._store.finish()
            created = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
            manifest = Manifest(
                info={"created": created, **info},
                packs={f"tensors/{path.name}": path.stat().st_size for path in packs},
                external=self._store.referred,
                signatures={record.signature.id: record for record in signatures},
                cases=self._cases,
                reference_outputs=records,
            )
            try:
                text = manifest_text(manifest.to_json())
            except (TypeError, ValueError) as error:
                raise SuiteError(f"{self.path}: expected JSON as info, found something else: {error}") from error
            with open(self._staging.path / MANIFEST, "w", encoding="ascii") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            Suite.open(self._staging.path)  # what cannot be read must not be written
            target = self._staging.publish()
        self._open = False
        return target

    def _release(self, records: Sequence[TensorRecord]) -> None:
        for record in records:
            self._store.release(record)

    def _check_open(self) -> None:
        if not self._open:
            raise UsageError(f"the writer of {self.path} is closed", hint="begin another one")

    def _check_case(self, case: Case, written: Sequence[int]) -> None:
        signature_id, _, number = case.id.partition("/")
        if signature_id != case.signature.id or not number.isdecimal():
            raise SuiteError(f"expected a case id {case.signature.id}/<n>, found {case.id!r}")
        if case.id in self._cases:
            raise SuiteError(f"expected each case once, found {case.id} again")
        FieldChecker(f"case {case.id}", hint="").signature(signature_to_json(case.signature), ("signature",))
        specs = case.signature.tensors
        shapes = [(spec.shape, spec.dtype) for spec in specs]
        found = [TensorSpec.of(tensor) for tensor in case.tensors]
        if [(spec.shape, spec.dtype) for spec in found] != shapes:
            raise SuiteError(
                f"case {case.id}: expected the tensors of {case.signature}, found {', '.join(map(str, found))}"
            )
        if not all(0 <= index < len(specs) for index in written):
            raise SuiteError(f"case {case.id}: expected indices of {len(specs)} tensors as mutated, found {written}")
        for group in alias_groups(case.tensors, written):
            for index in group:
                if len(group) > 1 and found[index] != specs[index]:
                    raise SuiteError(
                        f"case {case.id}: expected tensor {index}, which shares storage, to have the strides "
                        f"{specs[index].strides}, found {found[index].strides}"
                    )

    @contextlib.contextmanager
    def _guard(self) -> Iterator[None]:
        """Turn a full disk into an error that says so, with everything removed."""
        try:
            yield
        except OSError as error:
            needed = self._store.written if hasattr(self, "_store") else 0
            self.close()
            if error.errno not in _DISK_FULL:
                raise UsageError(
                    f"cannot write {self.path}: {error.strerror or error}",
                    hint="choose an output that can be written to",
                ) from error
            free = shutil.disk_usage(self.path.parent).free
            raise TapmlError(
                f"the disk is full: {self.path} needs at least {needed:,} bytes, {free:,} are free",
                hint="free some space or choose another disk; fewer cases (--keep) make a smaller suite",
            ) from error
