"""The limits of a WebGPU device, whoever implements it."""

from __future__ import annotations

from collections.abc import Mapping

from tapml.kernels.limits import Limits, Names

_SIDES = ("maxComputeWorkgroupSizeX", "maxComputeWorkgroupSizeY", "maxComputeWorkgroupSizeZ")
_NAMES: Names = {
    "threads": "maxComputeInvocationsPerWorkgroup",
    "block": _SIDES,
    "blocks": "maxComputeWorkgroupsPerDimension",
    "shared_bytes": "maxComputeWorkgroupStorageSize",
    "buffers": "maxStorageBuffersPerShaderStage",
    "binding_bytes": "maxStorageBufferBindingSize",
    "buffer_bytes": "maxBufferSize",
}
"""What GPUSupportedLimits calls them (https://www.w3.org/TR/webgpu/#limits)."""
NAMES = tuple(n for name in _NAMES.values() for n in ((name,) if isinstance(name, str) else name))
"""The limits that a device has to be asked for: it allows no more than the standard's defaults otherwise."""


def limits_of(given: Mapping[str, int], *, iterations: int | None = None) -> Limits:
    """``given``: a device's limits by the names of :data:`NAMES`; what it does not say is no limit here."""

    def most(limit: str) -> int | None:
        name = _NAMES[limit]
        assert isinstance(name, str)
        return given.get(name)

    side = most("blocks")
    return Limits(
        threads=most("threads"),
        block=(given.get(_SIDES[0]), given.get(_SIDES[1]), given.get(_SIDES[2])),
        blocks=(side, side, side),
        shared_bytes=most("shared_bytes"),
        buffers=most("buffers"),
        binding_bytes=most("binding_bytes"),
        buffer_bytes=most("buffer_bytes"),
        iterations=iterations,
        names=_NAMES,
    )
