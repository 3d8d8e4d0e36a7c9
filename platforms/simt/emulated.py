"""Devices that are not here, emulated: the very source that is meant for them, executed on this machine's CPU."""

from __future__ import annotations

import platform as host
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tapml.errors import CompileError
from tapml.kernels.gpu_platform import PlanDevice
from tapml.kernels.plan import Artifact
from tapml.platform import DeviceInfo
from tapml.platforms.simt.compile import compile_kernels, find_compiler, library_name
from tapml.platforms.simt.compiles import Compiles
from tapml.platforms.simt.runner import EmulatedRunner
from tapml.platforms.simt.translate import Dialect

_FAST = "-fast"


def emulated_devices(target: Dialect) -> tuple[DeviceInfo, ...]:
    """``TARGET:emulated``, and the same with fast math."""
    details = {
        "executed by": f"the CPU of this machine ({host.machine()}), compiled by {find_compiler()}",
        "threads in a block": "1,024",
        "checks": "bounds of buffers, order of threads, unwritten memory, divergent barriers",
    }
    return (
        DeviceInfo(f"{target}:emulated", f"{target} kernels, emulated on the CPU", True, False, details),
        DeviceInfo(
            f"{target}:emulated{_FAST}", f"{target} kernels with fast math, emulated on the CPU", True, True, details
        ),
    )


def open_emulated(info: DeviceInfo, target: Dialect) -> PlanDevice:
    """The device of that name."""
    return PlanDevice(info, EmulatedRunner(target, fast_math=info.name.endswith(_FAST)))


def with_emulation(artifact: Artifact, target: Dialect, device: str, check: Callable[[str], Compiles]) -> Artifact:
    """The artifact with its kernels compiled for the emulator, checked by a compiler of the real language if one is here.

    Raises :class:`CompileError` when that compiler, or the emulator's, refuses a kernel.
    """
    fast = device.endswith(_FAST)
    library = compile_kernels(artifact.plan, artifact.files, target, fast)
    checked = check(joined(artifact))
    if checked.status == "refused":
        raise CompileError(f"{checked.by}: {checked.message}")
    note = f"compiles with {checked.by}" if checked.status == "compiles" else f"compiles: {checked.status}"
    files: dict[str, bytes] = {**artifact.files, library_name(fast): library}
    facts: dict[str, Any] = {**artifact.facts, "compiles": [checked.status, checked.by, checked.message]}
    return replace(artifact, files=files, facts=facts, notes=(*artifact.notes, note))


def joined(artifact: Artifact) -> str:
    """The sources of all kernels in one, with what they have in common (paragraphs of text) only once."""
    sources = [artifact.files[k.file].decode() for k in artifact.plan.kernels.values()]
    parts = (part.strip("\n") for source in sources for part in source.split("\n\n"))
    return "\n\n".join(dict.fromkeys(parts)) + "\n"
