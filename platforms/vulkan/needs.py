"""What the vulkan platform uses of a machine."""

from __future__ import annotations

import ctypes.util
from pathlib import Path

from tapml.doctor import Finding, find_package, find_program

_DRIVERS = ("/usr/share/vulkan/icd.d", "/etc/vulkan/icd.d", "/usr/local/share/vulkan/icd.d")


def examine() -> list[Finding]:
    """The loader and a driver, the binding, clspv; ``spirv-val`` for its tests."""
    extra = "pip install 'tapml[vulkan]'"
    clspv = find_package("pyclspv", "target vulkan: OpenCL C to SPIR-V", extra, optional=True)
    if not clspv.present:
        program = find_program(("clspv",), clspv.purpose, f"{extra}, or put a build of clspv on the PATH")
        clspv = program if program.present else clspv
    return [
        find_package("vulkan", "target vulkan", extra, optional=True),
        clspv,
        _driver(),
        find_program(("spirv-val",), "checking SPIR-V in tests", "apt-get install spirv-tools"),
    ]


def _driver() -> Finding:
    remedy = "apt-get install libvulkan1 mesa-vulkan-drivers (lavapipe, for the CPU), or your GPU's own driver"
    drivers = sorted(p.stem.split(".")[0] for folder in _DRIVERS for p in Path(folder).glob("*.json"))
    if ctypes.util.find_library("vulkan") is None:
        return Finding("Vulkan driver", "targets vulkan and webgpu", False, "no Vulkan loader", remedy, True)
    return Finding(
        "Vulkan driver", "targets vulkan and webgpu", bool(drivers), ", ".join(drivers) or "none", remedy, True
    )
