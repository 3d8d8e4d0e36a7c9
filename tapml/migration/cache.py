"""Compiled kernels on disk, by what determines them.

A key covers the signature, the route, the content of the user's files, tapml's own lowering, the target and the versions of the
compilers; so an entry never has to be invalidated, only forgotten.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import time
import uuid
from functools import lru_cache
from pathlib import Path

from platformdirs import user_cache_path

from tapml._version import __version__
from tapml.kernels.plan import Artifact, Plan
from tapml.lowering.functional import functional_overload
from tapml.lowering.registry import find, find_schedule, registered
from tapml.suite.call import Json, Signature, resolve_operator

LOWERED = "lowered.py"
"""TVMScript of the lowered module; for people, nothing executes it."""

_META = "artifact.json"

_TORN_SECONDS = 600
"""Age from which a half-written entry is certainly nobody's."""


def cache_root(given: str | None = None) -> Path:
    """``given``, else ``$TAPML_CACHE``, else tapml's folder in the user's cache directory."""
    if given:
        return Path(given)
    configured = os.environ.get("TAPML_CACHE")
    return Path(configured) if configured else user_cache_path("tapml")


def artifact_key(signature: Signature, route: str, target: str, fingerprint: str, *, plain: bool = False) -> str:
    """The key under which the kernel of a signature is kept (64 hex digits).  ``plain``: see :class:`Lowered`."""
    operator = str(functional_overload(resolve_operator(signature.operator)))
    own = [find(operator, target), find_schedule(operator, target)]
    if route == "decomposition":  # into any operators
        own += registered()
    users = sorted({f"{e.full_name} {e.digest}" for e in own if e is not None and not e.builtin})
    results = [[name, spec.to_json()] for name, spec in signature.results]
    parts = [signature.id, results, route, target, fingerprint, users, _lowering_source(), __version__]
    parts += ["plain"] if plain else []
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


@lru_cache(maxsize=None)
def _lowering_source() -> str:
    digest = hashlib.sha256()
    package = Path(__file__).parent.parent
    for folder in ("lowering", "kernels"):
        for path in sorted((package / folder).rglob("*.py")):
            digest.update(path.read_bytes())
    return digest.hexdigest()


class KernelCache:
    """Artifacts in a directory; safe to share between processes (entries appear by one rename)."""

    def __init__(self, root: Path | None = None) -> None:
        self.root = (root or cache_root()) / "kernels"

    def get(self, key: str) -> Artifact | None:
        """The artifact, or ``None`` when it is absent or damaged; what is damaged is removed."""
        folder = self._folder(key)
        if not folder.exists():
            return None
        try:
            return _read(folder)
        except PermissionError:
            raise
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            shutil.rmtree(folder, ignore_errors=True)  # or it could never be written again
            return None

    def texts(self, key: str) -> tuple[dict[str, str], dict[str, int]] | None:
        """What of an artifact a person can read, by file name (device code, and :data:`LOWERED`, the module that it was
        compiled from), and the sizes in bytes of what is binary.  ``None`` when it is absent."""
        folder = self._folder(key)
        texts: dict[str, str] = {}
        binaries: dict[str, int] = {}
        try:
            for path in sorted(folder.iterdir()):
                data = path.read_bytes()
                if path.name == _META:
                    continue
                try:
                    text = data.decode()
                except UnicodeDecodeError:
                    text = "\0"
                if "\0" in text:
                    binaries[path.name] = len(data)
                else:
                    texts[path.name] = text
        except (FileNotFoundError, NotADirectoryError):
            return None
        return texts, binaries

    def put(self, key: str, artifact: Artifact, lowered: str = "") -> None:
        """Keep an artifact, and the text of the module that it was compiled from.

        Raises ``OSError`` when the disk is full.
        """
        folder = self._folder(key)
        if folder.exists():
            return
        _forget_torn(folder.parent)
        temporary = folder.with_name(f".{folder.name}.{uuid.uuid4().hex}")
        try:
            temporary.mkdir(parents=True)
            for name, data in artifact.files.items():
                (temporary / name).write_bytes(data)
            meta: Json = {
                "plan": artifact.plan.to_json(),
                "files": {n: hashlib.sha256(d).hexdigest() for n, d in artifact.files.items()},
                "route": artifact.route,
                "converters": list(artifact.converters),
                "notes": list(artifact.notes),
                "facts": artifact.facts,
            }
            if lowered:
                (temporary / LOWERED).write_text(lowered)
            (temporary / _META).write_text(json.dumps(meta))
            os.rename(temporary, folder)
        except FileExistsError:
            shutil.rmtree(temporary, ignore_errors=True)
        except OSError:
            shutil.rmtree(temporary, ignore_errors=True)
            if not folder.exists():
                raise

    def _folder(self, key: str) -> Path:
        return self.root / key[:2] / key


def _forget_torn(folder: Path) -> None:
    """Remove what processes that were killed while they wrote left behind."""
    before = time.time() - _TORN_SECONDS
    for left in folder.glob(".*.*"):
        try:
            if left.stat().st_mtime < before:
                shutil.rmtree(left, ignore_errors=True)
        except FileNotFoundError:
            continue


def _read(folder: Path) -> Artifact:
    """Raises one of several errors when anything in the folder is not what :meth:`KernelCache.put` wrote."""
    meta = json.loads((folder / _META).read_text())
    files = {name: (folder / name).read_bytes() for name in meta["files"]}
    for name, digest in meta["files"].items():
        if hashlib.sha256(files[name]).hexdigest() != digest:
            raise ValueError(f"{folder / name} is damaged")
    return Artifact(
        Plan.from_json(meta["plan"]),
        files,
        meta["route"],
        tuple(meta["converters"]),
        tuple(meta["notes"]),
        meta["facts"],
    )
