"""The cuda platform: CUDA C++ out of TVM; emulated on the CPU of a machine without an NVIDIA GPU."""

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
from tapml.platforms.cuda.dialect import DIALECT
from tapml.platforms.simt.check_cuda import check_cuda
from tapml.platforms.simt.emulated import emulated_devices, open_emulated, with_emulation


class CudaPlatform:
    """TVM's CUDA code generator."""

    name = "cuda"

    def devices(self) -> tuple[DeviceInfo, ...]:
        return emulated_devices("cuda")

    def target(self) -> tvm.target.Target:
        return tvm.target.Target(
            {"kind": "cuda", "arch": "sm_80", "max_num_threads": 256, "max_shared_memory_per_block": 16384}
        )

    def fingerprint(self, device: str) -> str:
        """Differs by device, since the emulator's library is part of an artifact."""
        own = gpu_platform.own_source(Path(__file__).parent, Path(simt.__file__).parent)
        return f"{gpu_platform.versions()} {self.target()} {own} {device}"

    def build(self, lowered: Lowered, device: str) -> Artifact:
        artifact = build_plan(lowered, self.target(), DIALECT)
        return with_emulation(artifact, "cuda", device, check_cuda)

    def open(self, device: str) -> Device:
        for info in self.devices():
            if info.name == device:
                return open_emulated(info, "cuda")
        raise DeviceError(f"expected a device of target cuda, found {device!r}", hint="`tapml devices` lists them")


PLATFORM = CudaPlatform()
