"""The OpenCL devices of this machine, through pyopencl."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import platformdirs

from tapml.errors import DeviceError
from tapml.kernels.device_names import numbered, slug
from tapml.kernels.limits import Limits, Names, loop_iterations
from tapml.platform import DeviceInfo

POCL_CACHE = "POCL_CACHE_DIR"
"""Environment variable: where PoCL keeps compiled kernels.  Set to ``pocl`` in tapml's cache, unless it is set."""

_LIMITS: Names = {
    "threads": "max_work_group_size",
    "block": ("max_work_item_sizes.x", "max_work_item_sizes.y", "max_work_item_sizes.z"),
    "shared_bytes": "local_mem_size",
    "buffer_bytes": "max_mem_alloc_size",
    "argument_bytes": "max_parameter_size",
}
"""What pyopencl calls them, after OpenCL's CL_DEVICE_MAX_WORK_GROUP_SIZE and so on."""


@dataclass(frozen=True)
class Adapter:
    """A device, what pyopencl calls it, its extensions and limits."""

    info: DeviceInfo
    device: Any
    extensions: frozenset[str]
    limits: Limits


def binding() -> Any:
    """The module ``pyopencl``.  Raises :class:`DeviceError` where it is not installed.

    Before it is imported, PoCL's cache is directed to tapml's, and pyopencl's own is switched off.
    """
    if POCL_CACHE not in os.environ:  # PoCL reads it once, with its first device
        cache = Path(os.environ.get("TAPML_CACHE") or platformdirs.user_cache_path("tapml"), "pocl")
        os.environ[POCL_CACHE] = str(cache)
    os.environ.setdefault("PYOPENCL_NO_CACHE", "1")
    try:
        import pyopencl
    except ImportError as error:
        raise DeviceError(f"expected the Python package pyopencl: {error}", hint="pip install pyopencl") from error
    return pyopencl


def list_devices() -> tuple[DeviceInfo, ...]:
    """The OpenCL devices, GPUs first and CPUs last: ``opencl:pocl``, or a short form of the name.

    Raises :class:`DeviceError` where pyopencl is missing; no driver is no device.
    """
    return tuple(adapter.info for adapter in list_adapters(binding()))


def list_adapters(cl: Any) -> tuple[Adapter, ...]:
    """The devices of all OpenCL platforms that are here, best first."""
    try:
        platforms = cl.get_platforms()
    except cl.LogicError:  # PLATFORM_NOT_FOUND_KHR: a loader without any driver
        return ()
    devices = [device for platform in platforms for device in _devices(cl, platform)]
    devices.sort(key=lambda d: bool(d.type & cl.device_type.CPU))
    made: list[Adapter] = []
    for device in devices:
        name = f"opencl:{_name(cl, device)}"
        made.append(_adapter(cl, device, numbered(name, (a.info.name for a in made))))
    return tuple(made)


def _devices(cl: Any, platform: Any) -> list[Any]:
    try:
        return list(platform.get_devices())
    except cl.RuntimeError:  # DEVICE_NOT_FOUND: a driver whose hardware is not here
        return []


def _name(cl: Any, device: Any) -> str:
    if device.platform.name.startswith("Portable Computing Language") and device.type & cl.device_type.CPU:
        return "pocl"
    return slug(device.name)


def _adapter(cl: Any, device: Any, name: str) -> Adapter:
    extensions = frozenset(device.extensions.split())
    kind = "software driver on the CPU" if device.type & cl.device_type.CPU else "GPU"
    details = {
        "driver": f"{device.platform.name} {device.driver_version}",
        "opencl": device.version,
        "fp16": str("cl_khr_fp16" in extensions).lower(),
        "fp64": str("cl_khr_fp64" in extensions).lower(),
        "int64": str(device.profile == "FULL_PROFILE" or "cles_khr_int64" in extensions).lower(),
        "max_work_group_size": str(device.max_work_group_size),
        "local_mem_size": str(device.local_mem_size),
        "max_mem_alloc_size": str(device.max_mem_alloc_size),
    }
    x, y, z = device.max_work_item_sizes[:3]
    limits = Limits(
        threads=device.max_work_group_size,
        block=(x, y, z),
        shared_bytes=device.local_mem_size,
        buffer_bytes=device.max_mem_alloc_size,
        argument_bytes=device.max_parameter_size,
        iterations=loop_iterations(device.name),
        names=_LIMITS,
    )
    return Adapter(DeviceInfo(name, f"{device.name}, {kind}", details=details), device, extensions, limits)
