"""Launch the kernels of a plan with pyopencl alone.  Stands by itself: bundles of ``tapml repro`` have a copy of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy
import pyopencl as cl

_POISON = 0xFF
_PRELUDE = "#pragma OPENCL FP_CONTRACT OFF\n#line 1\n"
_EXTENSIONS = ("cl_khr_fp16", "cl_khr_fp64")


class Missing(Exception):
    """The device lacks something, or there is none."""


class Device:
    """The first GPU of any driver that is here, or else the first device."""

    def __init__(self) -> None:
        try:
            platforms = cl.get_platforms()
        except cl.LogicError as error:
            raise Missing(f"no OpenCL driver: {error}") from error
        devices = sorted((d for p in platforms for d in _devices(p)), key=lambda d: not d.type & cl.device_type.GPU)
        if not devices:
            raise Missing("no OpenCL device: install a driver (Debian's pocl-opencl-icd for the CPU)")
        self._device = devices[0]
        driver = f"{self._device.platform.name.strip()} ({self._device.driver_version})"
        self.description = f"{self._device.name.strip()} by {driver}"
        self._context = cl.Context([self._device])
        self._queue = cl.CommandQueue(self._context, self._device)

    def load(self, plan: Any, sources: dict[str, str]) -> Callable[[dict[int, Any]], dict[int, Any]]:
        """Compile the kernels; what comes back runs the plan on the bytes of its parameters."""
        kernels = {}
        for name, kernel in plan["kernels"].items():
            source = sources[kernel[0]]
            for extension in _EXTENSIONS:
                if extension in source and extension not in self._device.extensions.split():
                    raise Missing(f"{self.description} has no {extension}")
            program = cl.Program(self._context, _PRELUDE + source).build(options=["-cl-std=CL1.2"])
            kernels[name] = cl.Kernel(program, name)
        return lambda inputs: self._run(plan, kernels, inputs)

    def _run(self, plan: Any, kernels: Any, inputs: dict[int, Any]) -> dict[int, Any]:
        flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
        sizes, buffers = [], []
        for i, (shape, dtype, stored) in enumerate(plan["buffers"]):
            memory = stored or dtype
            itemsize = 2 if memory == "bfloat16" else numpy.dtype(memory).itemsize
            size = int(numpy.prod(shape, dtype=numpy.int64)) * itemsize
            sizes.append(size)
            data = inputs[i] if i in inputs and size else numpy.full(max(size, 4), _POISON, numpy.uint8)
            buffers.append(cl.Buffer(self._context, flags, hostbuf=numpy.ascontiguousarray(data)))
        for name, operands, scalars, grid in plan["steps"]:
            _, _, _, dtypes, block = plan["kernels"][name][:5]
            values = [numpy.dtype(d).type(s) for s, d in zip(scalars, dtypes, strict=True)]
            for place, argument in enumerate([*(buffers[b] for b in operands), *values]):
                kernels[name].set_arg(place, argument)
            threads = tuple(g * b for g, b in zip(grid, block, strict=True))
            cl.enqueue_nd_range_kernel(self._queue, kernels[name], threads, tuple(block))
        found = {}
        for i in plan["results"]:
            if i is not None:
                found[i] = numpy.empty(sizes[i], numpy.uint8)
                cl.enqueue_copy(self._queue, found[i], buffers[i])
        self._queue.finish()
        return found


def _devices(platform: Any) -> list[Any]:
    try:
        return list(platform.get_devices())
    except cl.RuntimeError:  # a driver whose hardware is not here
        return []
