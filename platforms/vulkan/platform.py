"""The vulkan platform: OpenCL C out of TVM, SPIR-V out of clspv, executed through the Vulkan API.

TVM's own code generator for Vulkan is missing from the wheels on PyPI.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import tvm

from tapml.kernels import gpu_platform
from tapml.kernels.gpu_platform import PlanDevice, build_plan
from tapml.kernels.opencl_c import DIALECT
from tapml.kernels.plan import Artifact
from tapml.lowering.lower import Lowered
from tapml.platform import Device, DeviceInfo
from tapml.platforms.vulkan.clspv import compile_spirv
from tapml.platforms.vulkan.devices import list_devices
from tapml.platforms.vulkan.driver import VulkanRunner

_DIALECT = replace(DIALECT, conditional_loads=False)


class VulkanPlatform:
    """SPIR-V kernels on any Vulkan driver (lavapipe for the CPU)."""

    name = "vulkan"

    def devices(self) -> tuple[DeviceInfo, ...]:
        return list_devices()

    def target(self) -> tvm.target.Target:
        """Of the language that TVM writes here, which is OpenCL C."""
        return tvm.target.Target({"kind": "opencl", "max_num_threads": 256, "max_shared_memory_per_block": 16384})

    def fingerprint(self, device: str) -> str:
        """One for all devices: the code is the same."""
        return f"{gpu_platform.versions()} {self.target()} {gpu_platform.own_source(Path(__file__).parent)}"

    def build(self, lowered: Lowered, device: str) -> Artifact:
        """The sources stay among the files, for whoever wants to read them."""
        artifact = build_plan(lowered, self.target(), _DIALECT)
        files, kernels = dict(artifact.files), {}
        for name, kernel in artifact.plan.kernels.items():
            kernels[name] = replace(kernel, file=f"{name}.spv")
            files[f"{name}.spv"] = compile_spirv(artifact.files[kernel.file].decode())
        return replace(artifact, plan=replace(artifact.plan, kernels=kernels), files=files)

    def open(self, device: str) -> Device:
        runner = VulkanRunner(device)
        return PlanDevice(runner.info, runner)


PLATFORM = VulkanPlatform()
