"""The directory of a failure: written, run in a clean process, and told what came of that.

Everything that a reader needs is text; the scripts beside it need PyTorch and TVM alone wherever that is possible.
"""

from __future__ import annotations

import io
import json
import math
import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy
import torch

from tapml.errors import UsageError
from tapml.platform import platform_file
from tapml.repro import reproduce
from tapml.repro.calls import call_text, returns
from tapml.repro.confirm import SCRIPT, Confirmation, conclusion, confirm
from tapml.repro.failure import Failure
from tapml.repro.kind import yardstick
from tapml.repro.page import page_text
from tapml.repro.readme import readme
from tapml.repro.subject import Memory
from tapml.suite.call import Json

PAGE = "reproduce.html"


@dataclass(frozen=True)
class Bundle:
    """A directory that was written: ``nbytes`` of all its ``files``, which are given with theirs."""

    path: Path
    nbytes: int
    files: dict[str, int]
    confirmation: Confirmation


def require_free(path: Path, *, force: bool) -> None:
    """Raise :class:`UsageError` where something is in the way of a bundle."""
    if not path.exists() or (path.is_dir() and not any(path.iterdir())):
        return
    if not force:
        raise UsageError(f"expected no directory {path}, found one", hint="give another -o, or --force to replace it")
    if not (path / "bundle.json").is_file():
        raise UsageError(f"expected a bundle to replace at {path}, found something else", hint="give another -o")


def write_bundle(path: Path, failure: Failure, *, force: bool = False) -> Bundle:
    """Write the directory, run its script in a clean process, and write down what it did.

    The directory appears when it is complete.  Raises :class:`UsageError` where something is in the way.
    """
    require_free(path, force=force)
    path = path.absolute()
    path.parent.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=f".{path.name}.new-", dir=path.parent))
    try:
        os.chmod(folder, 0o777 & ~_umask())
        _write_files(folder, failure)
        confirmation = confirm(folder, failure, lambda how: _bundle_json(failure, how))
        _describe(folder, failure, confirmation)
        if path.exists():
            shutil.rmtree(path)
        os.replace(folder, path)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    files = {str(p.relative_to(path)): p.stat().st_size for p in sorted(path.rglob("*")) if p.is_file()}
    return Bundle(path, sum(files.values()), files, confirmation)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


# -- files ------------------------------------------------------------------------------------------------------------


def _write_files(folder: Path, failure: Failure) -> None:
    listing = failure.finding.listing
    case = failure.subject.case()
    shutil.copyfile(reproduce.__file__, folder / SCRIPT)
    (folder / SCRIPT).chmod(0o755)
    (folder / "call.py").write_text(call_text(case.signature))
    _write_tensors(folder, failure)
    if listing is None:
        return
    for name, text in (("module.py", listing.module), ("kernels.py", listing.functions)):
        if text:
            (folder / name).write_text(text)
    for name, data in listing.files.items():
        if name.endswith((".so", ".o")):
            (folder / name).write_bytes(data)
            continue
        (folder / "kernels").mkdir(exist_ok=True)
        (folder / "kernels" / name).write_bytes(data)
    if listing.plan is not None and listing.files and not listing.functions:
        replayer = platform_file(failure.target, "replay.py")
        if replayer is not None:
            shutil.copyfile(replayer, folder / "replay.py")
        page = platform_file(failure.target, PAGE)
        if page is not None:
            (folder / PAGE).write_text(page_text(page.read_text(), failure, _results(failure)))


def _write_tensors(folder: Path, failure: Failure) -> None:
    arrays = {f"x{i}": memory for i, memory in enumerate(failure.subject.tensors)}
    arrays.update({f"expected-{name}": memory for name, memory in failure.finding.expected})
    arrays.update({f"exact-{name}": memory for name, memory in failure.finding.exact})
    arrays.update({f"found-{name}": memory for name, memory in failure.finding.found})
    buffer = io.BytesIO()
    numpy.savez_compressed(buffer, **{name: numpy.frombuffer(m.data, numpy.uint8) for name, m in arrays.items()})  # type: ignore[arg-type]
    (folder / "tensors.npz").write_bytes(buffer.getvalue())


def _bundle_json(failure: Failure, how: str) -> Json:
    listing = failure.finding.listing
    return {
        "operator": failure.subject.operator,
        "case": failure.case,
        "target": failure.target,
        "device": failure.device.name,
        "route": failure.route,
        "how": how,
        "failure": failure.kind.to_json(),
        "changing": len(failure.kinds) > 1,
        "explanation": failure.finding.explanation,
        "seconds": failure.seconds if failure.kind.code == "timed out" else max(failure.seconds, 60.0),
        "tensors": [m.spec.to_json() for m in failure.subject.tensors],
        "results": _results(failure),
        "returns": returns(failure.subject.operator),
        "mutated": [int(name[3:]) for name, _ in failure.finding.expected if name.startswith("arg")],
        "orders": [None if o is None else list(o) for o in listing.orders] if listing is not None else [],
        "plan": listing.plan if listing is not None else None,
        "decompose": failure.route == "decomposition",
    }


def _results(failure: Failure) -> list[Json]:
    """Name, spec and ``limit`` of each: the error that is still rounding, half of the largest that was found; of a result that
    is right, twice that."""
    finding = failure.finding
    found, exact = dict(finding.found), dict(finding.exact)
    right = {r["name"] for r in (finding.verdict or {}).get("results", ()) if r["passed"]}
    limits = {
        name: largest_error(memory, exact.get(name), found[name]) * (2.0 if name in right else 0.5)
        for name, memory in finding.expected
        if name in found
    }
    return [{"name": n, **m.spec.to_json(), "limit": limits.get(n, 0.0)} for n, m in finding.expected]


def largest_error(expected: Memory, exact: Memory | None, found: Memory) -> float:
    """Of a result where it and the :func:`yardstick` are finite; 0 for other than floating ones."""
    a, b = expected.tensor(), found.tensor()
    if a.shape != b.shape or a.dtype != b.dtype or not (a.is_floating_point() or a.is_complex()) or not a.numel():
        return 0.0
    a = yardstick(a, None if exact is None else exact.tensor(), b)
    if a.is_complex():
        a, b = torch.view_as_real(a.resolve_conj()), torch.view_as_real(b.resolve_conj())
    error = (a.double() - b.double()).abs()
    return float(torch.where(torch.isfinite(error), error, 0.0).max())


def _describe(folder: Path, failure: Failure, confirmation: Confirmation) -> None:
    if confirmation.how != "library":
        for library in (*folder.glob("*.so"), *folder.glob("*.o")):
            library.unlink()
    shrunk = failure.shrunk
    verdict = {
        **failure.to_json(),
        "warnings": list(failure.finding.warnings),
        "notes": list(failure.finding.notes),
        "output": list(failure.finding.output),
        "verdict": failure.finding.verdict,
        "versions": failure.versions,
        "origin": failure.origin,
        "command": failure.command,
        "clean run": {
            "outcome": confirmation.words,
            "how": confirmation.how,
            "runs": {
                how: {"exit code": code, "said": conclusion(text)} for how, (code, text) in confirmation.runs.items()
            },
        },
        "shrink": None
        if shrunk is None
        else {
            "elements before": failure.before.elements if failure.before else None,
            "elements after": shrunk.subject.elements,
            "tried": shrunk.tried,
            "rejected by PyTorch": shrunk.rejected,
            "taken": list(shrunk.taken),
            "seconds": round(shrunk.seconds, 1),
            "finished": shrunk.finished,
            "undone": shrunk.undone,
        },
    }
    (folder / "verdict.json").write_text(json.dumps(_strict(verdict), indent=1, allow_nan=False) + "\n")
    (folder / "README.md").write_text(readme(failure, confirmation, sorted(p.name for p in folder.iterdir())))


def _strict(data: Json) -> Json:
    """NaN and infinities, which JSON lacks, as text."""
    if isinstance(data, float) and not math.isfinite(data):
        return str(data)
    if isinstance(data, dict):
        return {key: _strict(value) for key, value in data.items()}
    return [_strict(value) for value in data] if isinstance(data, list | tuple) else data
