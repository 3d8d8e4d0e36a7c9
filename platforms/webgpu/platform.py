"""The webgpu platform: WGSL, and the devices that run it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import tvm

from tapml.errors import DeviceError, MissingFeatureError
from tapml.kernels import gpu_platform
from tapml.kernels.gpu_platform import PlanDevice, build_plan
from tapml.kernels.gpu_schedule import Threads
from tapml.kernels.plan import Artifact
from tapml.lowering.lower import Lowered
from tapml.platform import Device, DeviceInfo
from tapml.platforms.webgpu import native
from tapml.platforms.webgpu.browser import chromium, client
from tapml.platforms.webgpu.dialect import DIALECT

_REMOTE = "webgpu:remote/"
_BUFFERS = 8
"""Storage buffers that every WebGPU device lets a kernel have (https://www.w3.org/TR/webgpu/#limits)."""
_F16 = "adapter lacks shader-f16"


class WebgpuPlatform:
    """WGSL out of TVM's WebGPU code generator, executed by wgpu or a browser."""

    name = "webgpu"

    def devices(self) -> tuple[DeviceInfo, ...]:
        """Adapters of this machine, its Chromium, and browsers that have opened the page of ``tapml devices --listen``."""
        browser = chromium.describe_chromium()
        return (
            *(a.info for a in native.adapters()),
            *((browser,) if browser is not None else ()),
            *client.remote_devices(),
        )

    def target(self) -> tvm.target.Target:
        """Subgroups are left out: naga refuses them."""
        return tvm.target.Target({"kind": "webgpu", "max_num_threads": 256, "max_shared_memory_per_block": 16384})

    def fingerprint(self, device: str) -> str:
        """One for all devices: the code is the same."""
        folder = Path(__file__).parent
        return f"{gpu_platform.versions()} {self.target()} {gpu_platform.own_source(folder)}"

    def build(self, lowered: Lowered, device: str) -> Artifact:
        return build_plan(lowered, self.target(), DIALECT, threads=Threads(most=256), buffers=_BUFFERS)

    def open(self, device: str) -> Device:
        for adapter in native.adapters():
            if adapter.info.name == device:
                return _WebgpuDevice(adapter.info, native.WgpuRunner(adapter), "shader-f16" in adapter.features)
        if device == chromium.NAME:
            info = chromium.describe_chromium()
            if info is None:
                raise DeviceError("expected Chromium, found none", hint="`tapml doctor` says how to get it")
            return _browser(info, chromium.open_chromium())
        if device.startswith(_REMOTE):
            for info in client.remote_devices():
                if info.name == device:
                    return _browser(info, client.open_remote(device))
        raise DeviceError(f"expected a device of target webgpu, found {device!r}", hint="`tapml devices` lists them")


def _browser(info: DeviceInfo, runner: Any) -> Device:
    return _WebgpuDevice(info, runner, "shader-f16" in runner.features)


class _WebgpuDevice(PlanDevice):
    def __init__(self, info: DeviceInfo, runner: Any, has_f16: bool) -> None:
        super().__init__(info, runner)
        self._has_f16 = has_f16

    def load(self, artifact: Artifact, signature: Any) -> Any:
        """Raises :class:`UnsupportedError` for half precision on an adapter without it."""
        if not self._has_f16 and any(b.memory == "float16" for b in artifact.plan.buffers):
            raise MissingFeatureError(_F16)
        return super().load(artifact, signature)


PLATFORM = WebgpuPlatform()
