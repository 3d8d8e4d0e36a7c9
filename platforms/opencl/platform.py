"""The opencl platform: OpenCL C out of TVM, built and executed by the OpenCL drivers of this machine."""

from __future__ import annotations

from pathlib import Path

import tvm

from tapml.kernels import gpu_platform
from tapml.kernels.gpu_platform import PlanDevice, build_plan
from tapml.kernels.opencl_c import DIALECT
from tapml.kernels.plan import Artifact
from tapml.lowering.lower import Lowered
from tapml.platform import Device, DeviceInfo
from tapml.platforms.opencl.devices import list_devices
from tapml.platforms.opencl.driver import OpenclRunner


class OpenclPlatform:
    """TVM's OpenCL code generator."""

    name = "opencl"

    def devices(self) -> tuple[DeviceInfo, ...]:
        return list_devices()

    def target(self) -> tvm.target.Target:
        return tvm.target.Target({"kind": "opencl", "max_num_threads": 256, "max_shared_memory_per_block": 16384})

    def fingerprint(self, device: str) -> str:
        """One for all devices: the code is the same."""
        return f"{gpu_platform.versions()} {self.target()} {gpu_platform.own_source(Path(__file__).parent)}"

    def build(self, lowered: Lowered, device: str) -> Artifact:
        return build_plan(lowered, self.target(), DIALECT)

    def open(self, device: str) -> Device:
        runner = OpenclRunner(device)
        return PlanDevice(runner.info, runner)


PLATFORM = OpenclPlatform()
