"""What GPU platforms have in common: a lowered signature becomes a plan and sources, an opened device a runner of plans."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import tvm
import tvm_ffi

from tapml.kernels.device_code import generate
from tapml.kernels.dialect import Dialect
from tapml.kernels.executable import PlanExecutable
from tapml.kernels.fuse import to_tir
from tapml.kernels.gpu_schedule import Threads
from tapml.kernels.own_schedule import OwnSchedule
from tapml.kernels.packing import pack_parameters
from tapml.kernels.plan import Artifact, Plan, extract_plan
from tapml.kernels.runner import Runner
from tapml.lowering.lower import Lowered
from tapml.platform import DeviceInfo
from tapml.suite.call import Signature


def build_plan(
    lowered: Lowered,
    target: tvm.target.Target,
    dialect: Dialect,
    *,
    threads: Threads | None = None,
    buffers: int | None = None,
) -> Artifact:
    """Legalise, schedule and write a lowered signature; the artifact's files are the sources of its kernels.

    The user's schedule, if there is one, comes before tapml's own.

    ``buffers``: how many a kernel may have; where there are more, parameters share them.  Raises
    :class:`tapml.errors.CompileError` or :class:`tapml.errors.UnsupportedError`.
    """
    module = to_tir(lowered.module, target, merge=not lowered.plain)
    plan = extract_plan(module, lowered.results)
    functions = {
        symbol.name_hint: function
        for symbol, function in module.functions.items()
        if isinstance(function, tvm.tirx.PrimFunc)
    }
    if buffers is not None:
        functions, plan = pack_parameters(functions, plan, buffers)
    own = OwnSchedule.of(lowered)
    threads = replace(threads or Threads(), plain=lowered.plain)
    plan, files = generate(functions, plan, dialect, target, threads, own)
    notes = (*lowered.notes, *_narrowed(plan), *own.notes)
    return Artifact(plan, files, lowered.route, (*lowered.converters, *own.used), notes)


def _narrowed(plan: Plan) -> tuple[str, ...]:
    """What the verdict must say about dtypes: values that the device holds in fewer bits than the operator has."""
    wide = sorted({f"{b.dtype} as {b.stored}" for b in plan.buffers if b.dtype in ("int64", "uint64") and b.stored})
    return (f"{' and '.join(wide)}, every value sent to the device checked to fit",) if wide else ()


def own_source(*folders: Path) -> str:
    """A digest of the Python files that decide what code is made: of the platform's folders and of this package."""
    return _digest(tuple(folders))


@lru_cache(maxsize=None)
def _digest(folders: tuple[Path, ...]) -> str:
    digest = hashlib.sha256()
    for folder in folders:
        for path in sorted(folder.rglob("*")):
            if path.suffix in (".py", ".h", ".cc", ".js"):
                digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def versions() -> str:
    """Of the compiler."""
    return f"{tvm.__version__} {tvm_ffi.__version__}"


class PlanDevice:
    """An opened device that executes plans; see :class:`tapml.platform.Device`."""

    def __init__(self, info: DeviceInfo, runner: Runner) -> None:
        self.info = info
        self.runner: Any = runner

    def load(self, artifact: Artifact, signature: Signature) -> PlanExecutable:
        """See :class:`tapml.platform.Device`."""
        return PlanExecutable(self.runner.load(artifact.plan, artifact.files), artifact.plan, signature)
