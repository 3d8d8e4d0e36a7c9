"""The verb: run a reference, record it, and write the suite."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Literal

import torch

from tapml._version import __version__
from tapml.carving.determinism import differing_outputs, first_difference
from tapml.carving.recorder import Progress, Recorded, Recorder
from tapml.carving.reference import Reference
from tapml.carving.selection import Instance
from tapml.carving.sources import Note, SourceSpec, load_source
from tapml.errors import UnsupportedError, UsageError
from tapml.suite.call import Json
from tapml.suite.case import CLASSES, Case, Origin, SignatureRecord
from tapml.suite.writer import SuiteWriter


@dataclass(frozen=True)
class OperatorRow:
    """One line of the table: what was carved of an operator.  ``nbytes``: of its cases, each storage counted once."""

    operator: str
    kind: str
    calls: int
    signatures: int
    cases: int
    nbytes: int


@dataclass(frozen=True)
class CarveSummary:
    """What a carve found and wrote.

    ``operators``: compute first, then by number of calls.  ``classes``: class -> (calls, signatures).  ``timing``, in
    seconds: ``load``, ``recording``, ``plain``, ``writing``.  ``text``: what a language model said.
    """

    path: Path
    description: str
    text: str
    calls: int
    signatures: int
    cases: int
    nbytes: int
    classes: dict[str, tuple[int, int]]
    operators: tuple[OperatorRow, ...]
    warnings: tuple[str, ...]
    timing: dict[str, float]


def carve(
    spec: SourceSpec,
    out: str | os.PathLike[str],
    *,
    keep: int = 3,
    params: Literal["embed", "reference"] = "embed",
    allow_nondeterministic: bool = False,
    force: bool = False,
    progress: Progress | None = None,
    note: Note | None = None,
) -> CarveSummary:
    """Run the reference with a recorder, run it again without, compare, and write the suite to ``out``.

    ``keep``: cases a signature at most.  ``params``: whether parameters are stored or referred to in the checkpoint.
    ``force`` replaces a suite that exists.  ``progress`` is called with calls, signatures and bytes while recording,
    and ``note`` with a few words when something takes long.

    Raises :class:`UsageError` for a source that cannot be run, and for outputs that differ between the two runs (naming
    the operator that differs first) unless ``allow_nondeterministic``; :class:`TapmlError` when the disk is full.
    Nothing is left at ``out`` then.
    """
    say = note or (lambda text: None)
    if keep < 1:
        raise UsageError(f"expected to keep at least 1 case a signature, found {keep}")
    loaded: list[Reference] = []
    timing: dict[str, float] = {}
    external = (lambda tensor: loaded[0].external(tensor)) if params == "reference" else None
    with SuiteWriter(out, force=force, params=params, external=external) as writer:
        start = time.perf_counter()
        reference = load_source(spec, note=say)
        loaded.append(reference)
        if params == "reference" and not reference.has_checkpoint:
            raise UsageError(
                f"{reference.description} has no safetensors checkpoint to refer to", hint="embed the parameters"
            )
        timing["load"] = time.perf_counter() - start
        recorder = Recorder(reference.model, keep=keep, progress=progress)
        start = time.perf_counter()
        outputs = reference.run(recorder)
        timing["recording"] = time.perf_counter() - start
        recorded = recorder.finish()
        say("running again, to compare")
        start = time.perf_counter()
        again = reference.run()
        timing["plain"] = time.perf_counter() - start
        warnings = [*recorder.warnings, *map(str, recorder.nonfinite)]
        if differing := differing_outputs(outputs, again):
            warnings.insert(0, _nondeterministic(reference, differing, allow_nondeterministic))
        say("writing")
        start = time.perf_counter()
        records, rows = _write_cases(writer, recorded, warnings)
        classes = {
            kind: (sum(r.calls for r in of_kind), len(of_kind))
            for kind in CLASSES
            if (of_kind := [r for r in recorded if r.kind == kind])
        }
        text = reference.text(outputs)
        info: dict[str, Json] = {
            "source": spec.to_json(),
            "description": reference.description,
            "text": text,
            "keep": keep,
            "params": params,
            "calls": recorder.calls,
            "classes": {kind: {"calls": c, "signatures": s} for kind, (c, s) in classes.items()},
            "warnings": warnings,
            "versions": _versions(),
            "host": {"platform": platform.platform(), "threads": torch.get_num_threads()},
            "timing": {name: round(seconds, 3) for name, seconds in timing.items()},
        }
        path = writer.commit(records, info=info, reference_outputs=outputs)
    timing["writing"] = time.perf_counter() - start
    return CarveSummary(
        path=path,
        description=reference.description,
        text=text,
        calls=recorder.calls,
        signatures=len(recorded),
        cases=sum(len(r.cases) for r in records),
        nbytes=sum(f.stat().st_size for f in path.rglob("*") if f.is_file()),
        classes=classes,
        operators=rows,
        warnings=tuple(warnings),
        timing=timing,
    )


def _write_cases(
    writer: SuiteWriter, recorded: Iterable[Recorded], warnings: list[str]
) -> tuple[list[SignatureRecord], tuple[OperatorRow, ...]]:
    """Add the cases of every signature; those that no suite can hold (a quantized tensor) become a warning."""
    records: list[SignatureRecord] = []
    rows: dict[tuple[str, str], OperatorRow] = {}
    storages: dict[tuple[str, str], dict[int, int]] = {}
    for item in recorded:
        signature = item.signature
        key = (signature.operator, item.kind)
        ids: list[str] = []
        for instance, reason in item.selection.kept():
            case = Case(
                id=f"{signature.id}/{len(ids)}",
                signature=signature,
                origin=Origin(instance.call_index, instance.module, instance.source),
                tensors=tuple(instance.tensors),
                results=tuple(instance.results),
                stress=instance.stress(reason),
            )
            try:
                writer.add_case(case)
            except UnsupportedError as error:
                warnings.append(f"a call of {signature} was not kept: {error.message}")
                continue
            ids.append(case.id)
            storages.setdefault(key, {}).update(_sizes(instance))
        records.append(
            SignatureRecord(signature, item.kind, item.calls, dict(item.modules), tuple(ids), dict(item.carved_from))
        )
        row = rows.get(key, OperatorRow(*key, 0, 0, 0, 0))
        nbytes = sum(storages.get(key, {}).values())
        rows[key] = OperatorRow(*key, row.calls + item.calls, row.signatures + 1, row.cases + len(ids), nbytes)
    return records, tuple(sorted(rows.values(), key=lambda r: (CLASSES.index(r.kind), -r.calls, r.operator)))


def _sizes(instance: Instance) -> dict[int, int]:
    tensors = [*instance.tensors, *(t for _, t in instance.results)]
    return {t.untyped_storage()._cdata: t.untyped_storage().nbytes() for t in tensors}


def _nondeterministic(reference: Reference, differing: list[str], allowed: bool) -> str:
    """The warning about outputs that differ between two runs; raised as an error unless it is allowed."""
    found = first_difference(reference)
    if found is None:
        where = "two more runs did not differ, so the operator is not known"
    else:
        where = f"the first call that differs is number {found[0]}, {found[1]}"
    message = f"the reference gave different results in two runs ({', '.join(differing[:5])}): {where}"
    if not allowed:
        raise UsageError(
            message,
            hint="seed what is random, keep no state between runs; or go on with --allow-nondeterministic",
        )
    return message


def _versions() -> dict[str, Json]:
    versions: dict[str, Json] = {"tapml": __version__, "python": platform.python_version(), "torch": torch.__version__}
    for package in ("transformers", "apache-tvm"):
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return versions
