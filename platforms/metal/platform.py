"""The metal platform: Metal's shading language out of TVM; emulated on the CPU of a machine without a Metal device."""

from __future__ import annotations

from pathlib import Path

import tvm

from tapml.errors import DeviceError
from tapml.kernels import gpu_platform
from tapml.kernels.gpu_platform import build_plan
from tapml.kernels.plan import Artifact
from tapml.lowering.lower import Lowered
from tapml.platform import Device, DeviceInfo
from tapml.platforms import simt
from tapml.platforms.metal.dialect import DIALECT
from tapml.platforms.simt.check_msl import check_msl
from tapml.platforms.simt.emulated import emulated_devices, open_emulated, with_emulation


class MetalPlatform:
    """TVM's Metal code generator."""

    name = "metal"

    def devices(self) -> tuple[DeviceInfo, ...]:
        return emulated_devices("metal")

    def target(self) -> tvm.target.Target:
        return tvm.target.Target({"kind": "metal", "max_num_threads": 256, "max_shared_memory_per_block": 16384})

    def fingerprint(self, device: str) -> str:
        """Differs by device, since the emulator's library is part of an artifact."""
        own = gpu_platform.own_source(Path(__file__).parent, Path(simt.__file__).parent)
        return f"{gpu_platform.versions()} {self.target()} {own} {device}"

    def build(self, lowered: Lowered, device: str) -> Artifact:
        artifact = build_plan(lowered, self.target(), DIALECT)
        return with_emulation(artifact, "metal", device, check_msl)

    def open(self, device: str) -> Device:
        for info in self.devices():
            if info.name == device:
                return open_emulated(info, "metal")
        raise DeviceError(f"expected a device of target metal, found {device!r}", hint="`tapml devices` lists them")


PLATFORM = MetalPlatform()
