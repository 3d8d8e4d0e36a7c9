"""Plans on a WebGPU device of this machine, through ``wgpu`` (wgpu-native: Vulkan, Metal, D3D12 or OpenGL below it)."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy
from numpy.typing import NDArray

from tapml.errors import CompileError, DeviceError
from tapml.kernels.device_memory import Block, Memory
from tapml.kernels.device_names import slug
from tapml.kernels.driver_output import captured
from tapml.kernels.limits import Limits, check, loop_iterations
from tapml.kernels.plan import Plan
from tapml.kernels.plan_memory import PlanMemory
from tapml.kernels.runner import POISON, Input, Ran
from tapml.platform import DeviceInfo
from tapml.platforms.webgpu.limits import NAMES, limits_of

NAME = "webgpu:native"
_BUDGET = 2 << 30
_BEST = ("DiscreteGPU", "IntegratedGPU", "VirtualGPU", "Other", "CPU")
_BACKENDS = ("Vulkan", "Metal", "D3D12", "OpenGL")
_FEATURES = ("shader-f16", "timestamp-query", "subgroup")


@dataclass(frozen=True)
class Adapter:
    """An adapter, and what is said of it."""

    handle: Any
    info: DeviceInfo
    limits: Limits
    features: frozenset[str]


@lru_cache(maxsize=1)
def adapters() -> tuple[Adapter, ...]:
    """The adapters that are here, best first: real GPUs before software, Vulkan and Metal before OpenGL."""
    import wgpu

    with captured():  # Mesa's EGL complains of a missing XDG_RUNTIME_DIR, once for each display it tries
        found = wgpu.gpu.enumerate_adapters_sync()
    ranked = sorted(
        found, key=lambda a: (_rank(_BEST, a.info["adapter_type"]), _rank(_BACKENDS, a.info["backend_type"]))
    )
    seen: set[str] = set()
    described = []
    for i, adapter in enumerate(ranked):
        name = (
            NAME
            if i == 0
            else f"{NAME}/{slug(str(adapter.info['device']))}-{str(adapter.info['backend_type']).lower()}"
        )
        if name not in seen:
            seen.add(name)
            described.append(_describe(adapter, name))
    return tuple(described)


def _rank(order: tuple[str, ...], value: str) -> int:
    return order.index(value) if value in order else len(order)


def _describe(adapter: Any, name: str) -> Adapter:
    info = adapter.info
    given = {name: int(adapter.limits[_hyphened(name)]) for name in NAMES}
    limits = limits_of(given, iterations=loop_iterations(str(info["device"])))
    software = " (software)" if info["adapter_type"] == "CPU" else ""
    details = {
        "adapter": str(info["device"]),
        "driver": str(info["description"]),
        "backend": str(info["backend_type"]),
        "type": str(info["adapter_type"]),
        "features": ", ".join(f for f in _FEATURES if f in adapter.features) or "none",
        "threads in a block": f"{given['maxComputeInvocationsPerWorkgroup']:,}",
        "shared memory": f"{given['maxComputeWorkgroupStorageSize']:,} bytes",
        "storage buffers": str(given["maxStorageBuffersPerShaderStage"]),
        "largest buffer": f"{min(given['maxStorageBufferBindingSize'], given['maxBufferSize']):,} bytes",
    }
    description = f"{info['device']} by {info['backend_type']}{software}"
    return Adapter(adapter, DeviceInfo(name, description, details=details), limits, frozenset(adapter.features))


def _hyphened(name: str) -> str:
    """What wgpu calls a limit: ``maxBufferSize`` is its ``max-buffer-size``."""
    return re.sub("[A-Z]", lambda capital: f"-{capital[0].lower()}", name)


class WgpuRunner:
    """See :class:`tapml.kernels.runner.Runner`."""

    def __init__(self, adapter: Adapter) -> None:
        self.adapter = adapter
        self._open()

    def _open(self) -> None:
        adapter = self.adapter
        wanted = [_hyphened(name) for name in NAMES]
        try:
            self._device = adapter.handle.request_device_sync(
                required_features=[f for f in _FEATURES[:1] if f in adapter.features],
                required_limits={name: adapter.handle.limits[name] for name in wanted},
            )
        except Exception as error:  # wgpu has several of its own
            raise DeviceError(f"{adapter.info.name}: {_words(error)}") from error
        self._memory: Memory[Any] = Memory(self._allocate, lambda buffer: buffer.destroy(), _BUDGET)
        self._uniforms: dict[tuple[int, ...], Any] = {}
        self._failed = False

    def _allocate(self, nbytes: int) -> Any:
        import wgpu

        usage = wgpu.BufferUsage.STORAGE | wgpu.BufferUsage.COPY_DST | wgpu.BufferUsage.COPY_SRC
        try:
            return self._device.create_buffer(size=nbytes, usage=usage)
        except Exception as error:
            raise DeviceError(f"{self.adapter.info.name}: {_words(error)}") from error

    def load(self, plan: Plan, files: Mapping[str, bytes]) -> WgpuPlan:
        """See :class:`tapml.kernels.runner.Runner`."""
        if self._failed:  # a device may be lost by then, and never works again
            self._open()
        check(plan, self.adapter.limits, self.adapter.info.name)
        return WgpuPlan(self, plan, {name: self._pipeline(plan, name, files) for name in plan.kernels})

    def _pipeline(self, plan: Plan, name: str, files: Mapping[str, bytes]) -> Any:
        import wgpu

        kernel = plan.kernels[name]
        entries = [
            {
                "binding": i,
                "visibility": wgpu.ShaderStage.COMPUTE,
                "buffer": {"type": "storage" if writes else "read-only-storage"},
            }
            for i, writes in enumerate(kernel.writes)
        ]
        entries.append({"binding": len(entries), "visibility": wgpu.ShaderStage.COMPUTE, "buffer": {"type": "uniform"}})
        try:
            shader = self._device.create_shader_module(code=files[kernel.file].decode())
            layout = self._device.create_bind_group_layout(entries=entries)
            pipeline = self._device.create_compute_pipeline(
                layout=self._device.create_pipeline_layout(bind_group_layouts=[layout]),
                compute={"module": shader, "entry_point": name},
            )
        except Exception as error:
            raise CompileError(f"wgpu refused {name}: {_words(error)}") from error
        return pipeline, layout

    def uniform(self, words: tuple[int, ...]) -> Any:
        """A uniform buffer of 32-bit words."""
        import wgpu

        if words not in self._uniforms:
            data = numpy.asarray(words, numpy.uint32).tobytes()
            padded = data + bytes(-len(data) % 16)
            self._uniforms[words] = self._device.create_buffer_with_data(data=padded, usage=wgpu.BufferUsage.UNIFORM)
        return self._uniforms[words]

    def execute(self, plan: WgpuPlan, inputs: Mapping[int, Input]) -> Ran:
        """Upload, launch, read back."""
        taken: list[Block[Any]] = []
        sizes = plan.memory.sizes
        try:
            blocks = plan.memory.place(self._memory, inputs, taken, self._upload)
            for index in plan.memory.others:
                self._device.queue.write_buffer(blocks[index].handle, 0, _poison(sizes[index]))
            self._device.queue.submit([])
            begin = time.perf_counter()
            encoder = self._device.create_command_encoder()
            for step in plan.plan.steps:
                pipeline, layout = plan.pipelines[step.kernel]
                words = (*_words_of(step.scalars, plan.plan.kernels[step.kernel].scalars), step.grid[0] - 1)
                entries = [
                    {"binding": i, "resource": {"buffer": blocks[b].handle, "offset": 0, "size": sizes[b]}}
                    for i, b in enumerate(step.buffers)
                ]
                entries.append({"binding": len(entries), "resource": {"buffer": self.uniform(words)}})
                compute = encoder.begin_compute_pass()
                compute.set_pipeline(pipeline)
                compute.set_bind_group(0, self._device.create_bind_group(layout=layout, entries=entries))
                compute.dispatch_workgroups(*step.grid)
                compute.end()
            self._device.queue.submit([encoder.finish()])
            outputs = {}
            for index in dict.fromkeys(i for i in plan.plan.results if i is not None):
                data = self._device.queue.read_buffer(blocks[index].handle, 0, sizes[index])
                outputs[index] = numpy.frombuffer(data, numpy.uint8)[: plan.plan.buffers[index].nbytes].copy()
            seconds = time.perf_counter() - begin
        except DeviceError:
            self._failed = True
            raise
        except Exception as error:
            self._failed = True
            raise DeviceError(f"{self.adapter.info.name}: {_words(error)}") from error
        finally:
            self._memory.give(taken)
            self._memory.finish()
        return Ran(outputs, len(plan.plan.steps), seconds)

    def _upload(self, buffer: Any, data: NDArray[numpy.uint8]) -> None:
        if data.size % 4:  # whole words only can be written
            data = numpy.concatenate([data, numpy.zeros(-data.size % 4, numpy.uint8)])
        self._device.queue.write_buffer(buffer, 0, data)


class WgpuPlan:
    """See :class:`tapml.kernels.runner.LoadedPlan`."""

    def __init__(self, runner: WgpuRunner, plan: Plan, pipelines: dict[str, Any]) -> None:
        self._runner = runner
        self.plan = plan
        self.pipelines = pipelines
        self.memory = PlanMemory(plan)

    def run(self, inputs: Mapping[int, Input]) -> Ran:
        """See :class:`tapml.kernels.runner.LoadedPlan`."""
        return self._runner.execute(self, inputs)


@lru_cache(maxsize=64)
def _poison(nbytes: int) -> bytes:
    return bytes([POISON]) * nbytes


def _words_of(scalars: tuple[int | float, ...], dtypes: tuple[str, ...]) -> tuple[int, ...]:
    return tuple(int(numpy.asarray(s, d).view(numpy.uint32)) for s, d in zip(scalars, dtypes, strict=True))


def _words(error: Exception) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}"[:600]
