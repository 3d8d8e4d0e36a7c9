"""Checks that a plan fits a device, before the device sees it."""

from __future__ import annotations

from dataclasses import dataclass

from tapml.errors import UnsupportedError
from tapml.kernels.plan import Plan


@dataclass(frozen=True)
class Limits:
    """What a device lets a kernel have.  ``None``: no limit that matters.

    ``threads``: in a block; ``block``: along x, y, z; ``blocks``: of a launch along x, y, z; ``shared_bytes``: shared
    memory of a block; ``buffers``: storage buffers bound at once; ``buffer_bytes``: of one of them; ``iterations``: of
    all loops of a thread together.
    """

    threads: int = 256
    block: tuple[int, int, int] = (256, 256, 64)
    blocks: tuple[int, int, int] | None = None
    shared_bytes: int = 16384
    buffers: int | None = None
    buffer_bytes: int | None = None
    iterations: int | None = None


def check(plan: Plan, limits: Limits, device: str) -> None:
    """Raises :class:`UnsupportedError` naming the first limit that a plan exceeds, what it needs and what there is."""

    def require(what: str, needed: int, available: int | None, where: str) -> None:
        if available is not None and needed > available:
            raise UnsupportedError(f"{device} allows {available:,} {what}, and {where} needs {needed:,}")

    for kernel in plan.kernels.values():
        threads = kernel.block[0] * kernel.block[1] * kernel.block[2]
        require("threads in a block", threads, limits.threads, kernel.name)
        for axis, size, most in zip("xyz", kernel.block, limits.block, strict=True):
            require(f"threads along {axis}", size, most, kernel.name)
        require("bytes of shared memory", kernel.shared + kernel.declared, limits.shared_bytes, kernel.name)
        require("storage buffers in a kernel", len(kernel.pointers), limits.buffers, kernel.name)
        require("loop iterations in a thread", kernel.iterations, limits.iterations, kernel.name)
    for step in plan.steps:
        for axis, size, allowed in zip("xyz", step.grid, limits.blocks or (None,) * 3, strict=True):
            require(f"blocks along {axis}", size, allowed, step.kernel)
    for index, buffer in enumerate(plan.buffers):
        require("bytes in a storage buffer", buffer.nbytes, limits.buffer_bytes, f"buffer {index}")
