"""Reports of the engine, and differences between passes, in words."""

from __future__ import annotations

import signal
from collections.abc import Sequence

import numpy
from numpy.typing import NDArray

from tapml.kernels.plan import Buffer, Kernel
from tapml.kernels.runner import Fault
from tapml.platforms.simt.guard import Region, stacks
from tapml.platforms.simt.library import Report

_FLOATS = {"float16": numpy.float16, "float32": numpy.float32, "float64": numpy.float64}


def describe(report: Report, kernel: Kernel, source: str, regions: Sequence[Region]) -> Fault:
    """What a launch that did not complete did wrong.  ``regions``: all memory that the kernel could see, by label."""
    where = f"kernel {kernel.name}, block {tuple(report.block)}, thread {tuple(report.thread)}"
    site = _line(source, report.site)
    if report.code == Report.DIVERGENT:
        others = f"waits at another barrier, {_line(source, report.other_site)}" if report.other_site else "had ended"
        number = f"{report.count} of the block's {report.total} threads" if report.count > 1 else "one of its threads"
        return Fault("divergent-barrier", f"{where} waits at a barrier, {site}, while {number} {others}".strip())
    if report.code == Report.INCOMPLETE:
        return Fault(
            "divergent-barrier",
            f"{where} waits for its warp, {site}; {report.count} lanes of its mask (lane {report.total} first) never came",
        )
    if report.code == Report.MATRIX:
        return Fault(
            "divergent-barrier",
            f"{where} took part in {report.count} matrix operations, the first of its warp in {report.total}",
        )
    if report.signal == signal.SIGFPE:
        return Fault("division-by-zero", f"{where} divides an integer by zero")
    if report.signal == signal.SIGILL:
        return Fault("illegal-instruction", f"{where}: this processor does not know an instruction of it")
    return _out_of_bounds(report, where, regions)


def _out_of_bounds(report: Report, where: str, regions: Sequence[Region]) -> Fault:
    verb = {0: "reads", 1: "writes"}.get(report.write, "accesses")
    for region in regions:
        offset = region.offset(report.address)
        if offset is None:
            continue
        if 0 <= offset < region.nbytes:
            return Fault("writes-input", f"{where} {verb} {region.label} at byte {offset}, which is an input only")
        distance = f"{-offset} bytes before" if offset < 0 else f"{offset - region.nbytes} bytes after the end of"
        return Fault("out-of-bounds", f"{where} {verb} {distance} {region.label} ({region.nbytes} bytes)")
    if stacks().owner(report.address) is not None:
        size = stacks().size // 1024
        return Fault("out-of-memory", f"{where} needs more than the {size} KiB that a thread has for its own variables")
    return Fault("out-of-bounds", f"{where} {verb} memory that is none of its buffers")


def overwritten(region: Region, kernel_names: str) -> Fault | None:
    """The fault of having written beside a region, if that was done."""
    offset = region.overwritten()
    if offset is None:
        return None
    distance = f"{-offset} bytes before" if offset < 0 else f"{offset - region.nbytes} bytes after the end of"
    return Fault("out-of-bounds", f"{kernel_names} wrote {distance} {region.label} ({region.nbytes} bytes)")


def difference(
    code: str, why: str, result: str, buffer: Buffer, one: NDArray[numpy.uint8], other: NDArray[numpy.uint8]
) -> Fault | None:
    """The fault that two executions gave different bytes for a result, or ``None`` when they did not."""
    if numpy.array_equal(one, other):
        return None
    size = max(one.size // max(int(numpy.prod(buffer.shape)), 1), 1)
    differs = (one.reshape(-1, size) != other.reshape(-1, size)).any(axis=1)
    first = int(numpy.argmax(differs))
    index = tuple(int(i) for i in numpy.unravel_index(first, buffer.shape)) if buffer.shape else ()
    values = [_value(data[first * size : (first + 1) * size], buffer.memory) for data in (one, other)]
    return Fault(
        code,
        f"{result}: {int(differs.sum())} of {differs.size} elements differ, first {list(index)}: "
        f"{values[0]} and {values[1]}; {why}",
    )


def _value(data: NDArray[numpy.uint8], dtype: str) -> str:
    kind = _FLOATS.get(dtype)
    if kind is not None:
        return f"{data.copy().view(kind)[0]:.7g}"
    if dtype.startswith(("int", "uint")):
        return str(data.copy().view(dtype)[0])
    return "0x" + data[::-1].tobytes().hex()


def _line(source: str, number: int) -> str:
    lines = source.splitlines()
    text = lines[number - 1].strip() if 0 < number <= len(lines) else ""
    return f"line {number} ({text[:60]})"
