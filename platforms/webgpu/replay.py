"""Launch the kernels of a plan with wgpu alone.  Stands by itself: bundles of ``tapml repro`` have a copy of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy
import wgpu

_POISON = 0xFF
_FEATURES = ("shader-f16",)
_LIMITS = (
    "max-compute-invocations-per-workgroup",
    "max-compute-workgroup-size-x",
    "max-compute-workgroup-size-y",
    "max-compute-workgroup-size-z",
    "max-compute-workgroup-storage-size",
    "max-storage-buffers-per-shader-stage",
    "max-storage-buffer-binding-size",
    "max-buffer-size",
)


class Missing(Exception):
    """The device lacks something, or there is none."""


class Device:
    """The best adapter that is here."""

    def __init__(self) -> None:
        best = ("DiscreteGPU", "IntegratedGPU", "VirtualGPU", "Other", "CPU")
        backends = ("Vulkan", "Metal", "D3D12", "OpenGL")

        def rank(adapter: Any) -> tuple[int, int]:
            kind, backend = adapter.info["adapter_type"], adapter.info["backend_type"]
            return (best.index(kind) if kind in best else 9, backends.index(backend) if backend in backends else 9)

        adapters = sorted(wgpu.gpu.enumerate_adapters_sync(), key=rank)
        if not adapters:
            raise Missing("wgpu finds no adapter: install a Vulkan driver (Debian's mesa-vulkan-drivers for the CPU)")
        adapter = adapters[0]
        info = adapter.info
        self.description = f"{info['device']} by {info['backend_type']} ({info['adapter_type']}, {info['description']})"
        self._features = [f for f in _FEATURES if f in adapter.features]
        limits = {name: adapter.limits[name] for name in _LIMITS}
        self._device = adapter.request_device_sync(required_features=self._features, required_limits=limits)

    def load(self, plan: Any, sources: dict[str, str]) -> Callable[[dict[int, Any]], dict[int, Any]]:
        """Compile the kernels; what comes back runs the plan on the bytes of its parameters."""
        if any("enable f16" in text for text in sources.values()) and not self._features:
            raise Missing(f"{self.description} has no shader-f16")
        pipelines = {name: self._pipeline(name, kernel, sources) for name, kernel in plan["kernels"].items()}
        return lambda inputs: self._run(plan, pipelines, inputs)

    def _pipeline(self, name: str, kernel: Any, sources: dict[str, str]) -> Any:
        file, _, writes = kernel[:3]
        kinds = ["storage" if w else "read-only-storage" for w in writes] + ["uniform"]
        layout = self._device.create_bind_group_layout(
            entries=[
                {"binding": i, "visibility": wgpu.ShaderStage.COMPUTE, "buffer": {"type": kind}}
                for i, kind in enumerate(kinds)
            ]
        )
        pipeline = self._device.create_compute_pipeline(
            layout=self._device.create_pipeline_layout(bind_group_layouts=[layout]),
            compute={"module": self._device.create_shader_module(code=sources[file]), "entry_point": name},
        )
        return pipeline, layout

    def _buffer(self, data: bytes, usage: int) -> Any:
        return self._device.create_buffer_with_data(data=data + bytes(-len(data) % 4) or bytes(4), usage=usage)

    def _run(self, plan: Any, pipelines: Any, inputs: dict[int, Any]) -> dict[int, Any]:
        usage = wgpu.BufferUsage.STORAGE | wgpu.BufferUsage.COPY_SRC | wgpu.BufferUsage.COPY_DST
        sizes, buffers = [], []
        for i, (shape, dtype, stored) in enumerate(plan["buffers"]):
            size = int(numpy.prod(shape, dtype=numpy.int64)) * _itemsize(stored or dtype)
            sizes.append(size)
            data = inputs[i].tobytes() if i in inputs else bytes([_POISON]) * max(-(-size // 4) * 4, 4)
            buffers.append(self._buffer(data, usage))
        encoder = self._device.create_command_encoder()
        for name, operands, scalars, grid in plan["steps"]:
            pipeline, layout = pipelines[name]
            words = [
                numpy.asarray(s, d).view(numpy.uint32) for s, d in zip(scalars, plan["kernels"][name][3], strict=True)
            ]
            words.append(numpy.asarray(grid[0] - 1, numpy.uint32))
            data = numpy.array(words, numpy.uint32).tobytes()
            uniform = self._buffer(data + bytes(-len(data) % 16), wgpu.BufferUsage.UNIFORM)
            entries = [{"binding": i, "resource": {"buffer": buffers[b]}} for i, b in enumerate(operands)]
            entries.append({"binding": len(entries), "resource": {"buffer": uniform}})
            compute = encoder.begin_compute_pass()
            compute.set_pipeline(pipeline)
            compute.set_bind_group(0, self._device.create_bind_group(layout=layout, entries=entries))
            compute.dispatch_workgroups(*grid)
            compute.end()
        self._device.queue.submit([encoder.finish()])
        return {
            i: numpy.frombuffer(self._device.queue.read_buffer(buffers[i]), numpy.uint8)[: sizes[i]].copy()
            for i in plan["results"]
            if i is not None
        }


def _itemsize(dtype: str) -> int:
    return 2 if dtype == "bfloat16" else numpy.dtype(dtype).itemsize
