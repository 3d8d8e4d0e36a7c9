"""Checks that a plan fits a device, before the device sees it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tapml.errors import UnsupportedError

if TYPE_CHECKING:  # it imports TVM, which takes seconds, and listing devices does not need it
    from tapml.kernels.plan import Plan

Names = Mapping[str, str | tuple[str, str, str]]
_NAMES: Names = {
    "threads": "thread count",
    "block": ("thread count along x", "thread count along y", "thread count along z"),
    "blocks": ("block count along x", "block count along y", "block count along z"),
    "shared_bytes": "shared memory size (bytes)",
    "buffers": "storage buffer count",
    "binding_bytes": "storage buffer size (bytes)",
    "buffer_bytes": "buffer size (bytes)",
    "argument_bytes": "argument size (bytes)",
    "iterations": "loop iteration count",
}
"""What limits are called where the device's API has no name for them."""
_ARGUMENT = 8
"""Bytes that an argument counts for: the size of a pointer, and of the widest scalar."""
_LLVMPIPE_ITERATIONS = 65_535
"""Mesa's llvmpipe (lavapipe, and WebGPU on top of it) leaves every loop once a thread has gone round that many times in all
its loops together, silently and with wrong results: ``LP_MAX_TGSI_LOOP_ITERATIONS`` in gallivm/lp_bld_limits.h, seen in
Mesa 22.3."""


@dataclass(frozen=True)
class Limits:
    """What a device lets a kernel have.  ``None``: no limit that matters.

    ``threads``: in a block; ``block``: along x, y, z; ``blocks``: of a launch along x, y, z; ``shared_bytes``: shared
    memory of a block; ``buffers``: storage buffers bound at once; ``binding_bytes``: of one of them; ``buffer_bytes``: of
    any buffer, bound or not; ``argument_bytes``: of all arguments of a kernel; ``iterations``: of all loops of a thread
    together.  ``names``: by field, what the device's API calls the limit, or calls it along x, y, z.
    """

    threads: int | None = None
    block: tuple[int | None, int | None, int | None] = (None, None, None)
    blocks: tuple[int | None, int | None, int | None] = (None, None, None)
    shared_bytes: int | None = None
    buffers: int | None = None
    binding_bytes: int | None = None
    buffer_bytes: int | None = None
    argument_bytes: int | None = None
    iterations: int | None = None
    names: Names = field(default_factory=dict)

    def name(self, limit: str, axis: int = 0) -> str:
        """What to call a limit, by its field; ``axis``: 0 to 2 for one along x, y, z."""
        name = self.names.get(limit, _NAMES[limit])
        return name if isinstance(name, str) else name[axis]


def loop_iterations(driver: str) -> int | None:
    """How often a thread may go round its loops with a driver of this name, ``None`` where no limit is known."""
    return _LLVMPIPE_ITERATIONS if "llvmpipe" in driver.lower() else None


def require(device: str, what: str, limit: str, needed: int, available: int | None) -> None:
    """Raise :class:`UnsupportedError` where ``what`` (a kernel, a buffer) needs more of a limit than a device has."""
    if available is not None and needed > available:
        raise UnsupportedError(f"{what} needs {limit} of {needed:,}, {device} has {available:,}")


def check(plan: Plan, limits: Limits, device: str) -> None:
    """Raise :class:`UnsupportedError` naming the first limit that a plan exceeds, what it needs and what there is."""

    def within(what: str, limit: str, needed: int, available: int | None, axis: int = 0) -> None:
        require(device, what, limits.name(limit, axis), needed, available)

    for kernel in plan.kernels.values():
        what = f"kernel {kernel.name}"
        within(what, "threads", kernel.block[0] * kernel.block[1] * kernel.block[2], limits.threads)
        for axis in range(3):
            within(what, "block", kernel.block[axis], limits.block[axis], axis)
        within(what, "shared_bytes", kernel.shared + kernel.declared, limits.shared_bytes)
        within(what, "buffers", len(kernel.pointers), limits.buffers)
        arguments = _ARGUMENT * (len(kernel.pointers) + len(kernel.scalars))
        within(what, "argument_bytes", arguments, limits.argument_bytes)
        within(what, "iterations", kernel.iterations, limits.iterations)
    for step in plan.steps:
        for axis in range(3):
            within(f"kernel {step.kernel}", "blocks", step.grid[axis], limits.blocks[axis], axis)
    bound = {index for step in plan.steps for index in step.buffers}
    for index, buffer in enumerate(plan.buffers):
        what = f"a buffer of {buffer.memory} {list(buffer.shape)}"
        if index in bound:
            within(what, "binding_bytes", buffer.bound_bytes, limits.binding_bytes)
        within(what, "buffer_bytes", buffer.bound_bytes, limits.buffer_bytes)
