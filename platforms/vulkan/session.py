"""An open Vulkan device: memory that the host can see, pipelines, and submission with a time-out."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy
from numpy.typing import NDArray

from tapml.errors import CompileError, DeviceError, MissingFeatureError
from tapml.kernels.device_memory import Memory
from tapml.kernels.limits import require
from tapml.kernels.plan import Kernel
from tapml.platforms.vulkan.devices import Adapter, enabled_features, explained
from tapml.platforms.vulkan.spirv import MAGIC, EntryPoint, reflect, strip_reflection


@dataclass(frozen=True, eq=False)
class DeviceBuffer:
    """A storage buffer with memory of its own, mapped as long as it lives: ``view`` is its bytes."""

    buffer: Any
    memory: Any
    view: NDArray[numpy.uint8]


@dataclass(frozen=True, eq=False)
class Pipeline:
    """A kernel, compiled by the driver."""

    entry: EntryPoint
    module: Any
    set_layout: Any
    layout: Any
    pipeline: Any


class Session:
    """A logical device with one queue.  Owns every handle; :meth:`close` frees them all.

    ``uploads`` counts inputs that were copied to the device; ``owners`` are called first when it is closed, to free
    what they made on it.  For one thread.
    """

    def __init__(self, vk: Any, instance: Any, adapter: Adapter, *, timeout: float, budget: int) -> None:
        self.vk = vk
        self.adapter = adapter
        self.timeout = timeout
        self.uploads = 0
        self._lost = ""
        self._closed = False
        self._instance = instance
        self.owners: set[Callable[[], None]] = set()
        physical = vk.vkEnumeratePhysicalDevices(instance)[adapter.index]
        head, kept = enabled_features(vk, adapter.features)
        queue = vk.VkDeviceQueueCreateInfo(queueFamilyIndex=adapter.queue_family, queueCount=1, pQueuePriorities=[1.0])
        with explained(vk, f"opening {adapter.info.description}"):
            self.device = vk.vkCreateDevice(
                physical,
                vk.VkDeviceCreateInfo(
                    pNext=head,
                    queueCreateInfoCount=1,
                    pQueueCreateInfos=[queue],
                    enabledExtensionCount=len(adapter.extensions),
                    ppEnabledExtensionNames=list(adapter.extensions),
                ),
                None,
            )
        del kept  # the structures behind head live until here
        self._queue = vk.vkGetDeviceQueue(self.device, adapter.queue_family, 0)
        self.commands = vk.vkCreateCommandPool(
            self.device, vk.VkCommandPoolCreateInfo(queueFamilyIndex=adapter.queue_family), None
        )
        self._fence = vk.ffi.new("VkFence[1]", [vk.vkCreateFence(self.device, vk.VkFenceCreateInfo(), None)])
        self._types = _memory_types(vk, vk.vkGetPhysicalDeviceMemoryProperties(physical))
        self.memory: Memory[DeviceBuffer] = Memory(self._allocate, self._free, budget)

    def _allocate(self, nbytes: int) -> DeviceBuffer:
        vk = self.vk
        usage = vk.VK_BUFFER_USAGE_STORAGE_BUFFER_BIT | vk.VK_BUFFER_USAGE_TRANSFER_DST_BIT
        with explained(vk, f"a buffer of {nbytes:,} bytes"):
            buffer = vk.vkCreateBuffer(self.device, vk.VkBufferCreateInfo(size=nbytes, usage=usage), None)
        needs = vk.vkGetBufferMemoryRequirements(self.device, buffer)
        for type_ in self._types:
            if not needs.memoryTypeBits >> type_ & 1:
                continue
            try:
                info = vk.VkMemoryAllocateInfo(allocationSize=needs.size, memoryTypeIndex=type_)
                memory = vk.vkAllocateMemory(self.device, info, None)
            except (vk.VkErrorOutOfDeviceMemory, vk.VkErrorOutOfHostMemory, vk.VkErrorTooManyObjects):
                continue  # another heap may have room
            vk.vkBindBufferMemory(self.device, buffer, memory, 0)
            view = numpy.frombuffer(vk.vkMapMemory(self.device, memory, 0, needs.size, 0), numpy.uint8)
            return DeviceBuffer(buffer, memory, view)
        vk.vkDestroyBuffer(self.device, buffer, None)
        raise DeviceError(f"expected {nbytes:,} bytes of device memory, found no room for them")

    def _free(self, made: DeviceBuffer) -> None:
        self.vk.vkDestroyBuffer(self.device, made.buffer, None)
        self.vk.vkFreeMemory(self.device, made.memory, None)

    def pipeline(self, kernel: Kernel, spirv: bytes) -> Pipeline:
        """Compile a kernel with the driver.

        Raises :class:`UnsupportedError` for a feature or limit that the adapter lacks, and :class:`CompileError` where
        module and kernel disagree, or the driver refuses.
        """
        vk = self.vk
        if not spirv.startswith(MAGIC):
            raise CompileError(f"kernel {kernel.name}: expected SPIR-V in {kernel.file}, found {spirv[:16]!r}")
        reflection = reflect(spirv)
        entry = reflection.entry_points.get(kernel.name)
        if entry is None:
            found = ", ".join(reflection.entry_points) or "none"
            raise CompileError(f"expected an entry point {kernel.name} in {kernel.file}, found {found}")
        missing = [f for f in reflection.features if f not in self.adapter.features]
        if missing:
            raise MissingFeatureError(f"adapter lacks {', '.join(missing)}")
        if any(ordinal >= len(kernel.pointers) for ordinal in entry.bindings):
            raise CompileError(f"kernel {kernel.name}: expected {len(kernel.pointers)} buffers, found {entry.bindings}")
        what, limits, device = f"kernel {kernel.name}", self.adapter.limits, self.adapter.info.name
        pushed = max((p.offset + p.size for p in entry.push_constants), default=0)
        shared = reflection.shared + kernel.shared
        require(device, what, limits.name("shared_bytes"), shared, limits.shared_bytes)
        require(device, what, "maxPushConstantsSize", pushed, self.adapter.push_constants)
        if kernel.block != (1, 1, 1) and reflection.workgroup_size is None:
            raise CompileError(f"kernel {kernel.name}: expected specialisation constants for its size, found none")
        code = strip_reflection(spirv)
        stage = vk.VK_SHADER_STAGE_COMPUTE_BIT
        slots = [
            vk.VkDescriptorSetLayoutBinding(
                binding=binding,
                descriptorType=vk.VK_DESCRIPTOR_TYPE_STORAGE_BUFFER,
                descriptorCount=1,
                stageFlags=stage,
            )
            for binding in entry.bindings.values()
        ]
        ranges = [vk.VkPushConstantRange(stageFlags=stage, offset=0, size=-(-pushed // 4) * 4)] if pushed else []
        with explained(vk, f"compiling {kernel.name}"):
            module = vk.vkCreateShaderModule(
                self.device, vk.VkShaderModuleCreateInfo(codeSize=len(code), pCode=code), None
            )
            set_layout = vk.vkCreateDescriptorSetLayout(
                self.device, vk.VkDescriptorSetLayoutCreateInfo(bindingCount=len(slots), pBindings=slots), None
            )
            layout = vk.vkCreatePipelineLayout(
                self.device,
                vk.VkPipelineLayoutCreateInfo(
                    setLayoutCount=1,
                    pSetLayouts=[set_layout],
                    pushConstantRangeCount=len(ranges),
                    pPushConstantRanges=ranges,
                ),
                None,
            )
            made = Pipeline(entry, module, set_layout, layout, None)
            try:
                pipeline = self._compile(kernel, made, reflection.workgroup_size)
            except (vk.VkError, vk.VkException) as error:
                self.free_pipeline(made)
                raise CompileError(f"kernel {kernel.name}: the driver refused it: {type(error).__name__}") from error
        return Pipeline(entry, module, set_layout, layout, pipeline)

    def _compile(self, kernel: Kernel, made: Pipeline, size: tuple[int, int, int] | None) -> Any:
        vk = self.vk
        entries = [
            vk.VkSpecializationMapEntry(constantID=constant, offset=4 * axis, size=4)
            for axis, constant in enumerate(size or ())
        ]
        block = vk.ffi.new("uint32_t[3]", kernel.block)
        special = vk.VkSpecializationInfo(
            mapEntryCount=len(entries), pMapEntries=entries, dataSize=4 * len(entries), pData=block
        )
        stage = vk.VkPipelineShaderStageCreateInfo(
            stage=vk.VK_SHADER_STAGE_COMPUTE_BIT, module=made.module, pName=kernel.name, pSpecializationInfo=special
        )
        info = vk.VkComputePipelineCreateInfo(stage=stage, layout=made.layout)
        return vk.vkCreateComputePipelines(self.device, None, 1, [info], None)[0]

    def upload(self, buffer: DeviceBuffer, data: NDArray[numpy.uint8]) -> None:
        """Copy an input to the device."""
        buffer.view[: data.nbytes] = data
        self.uploads += 1

    def submit(self, submission: Any) -> float:
        """Execute a VkSubmitInfo and wait; seconds from submission to completion, seen from the host.

        Raises :class:`DeviceError` on a failure, and when it does not finish in time: the device is lost then.
        """
        vk, lib = self.vk, self.vk.lib
        self.check()
        start = time.perf_counter()
        result = lib.vkQueueSubmit(self._queue, 1, submission, self._fence[0])
        if result == vk.VK_SUCCESS:
            result = lib.vkWaitForFences(self.device, 1, self._fence, 1, int(self.timeout * 1e9))
        seconds = time.perf_counter() - start
        if result == vk.VK_TIMEOUT:
            self._lost = f"kernels did not finish within {self.timeout:g} s"
        elif result != vk.VK_SUCCESS:
            self._lost = f"Vulkan: {vk.exception_codes[result].__name__}"
        self.check()
        lib.vkResetFences(self.device, 1, self._fence)
        return seconds

    def check(self) -> None:
        """Raise :class:`DeviceError` if the device is closed, failed before, or is still busy with what timed out."""
        if self._closed:
            raise DeviceError("expected an open device, found one that was closed")
        if self._lost:
            raise DeviceError(f"{self.adapter.info.name}: {self._lost}", hint="open the device anew, in a new process")

    @property
    def usable(self) -> bool:
        """Whether handles can be freed: not after :meth:`close`, nor while the device may still use them."""
        return not (self._closed or self._lost)

    def free_pipeline(self, made: Pipeline) -> None:
        """End the life of what :meth:`pipeline` made."""
        vk = self.vk
        if made.pipeline is not None:
            vk.vkDestroyPipeline(self.device, made.pipeline, None)
        vk.vkDestroyPipelineLayout(self.device, made.layout, None)
        vk.vkDestroyDescriptorSetLayout(self.device, made.set_layout, None)
        vk.vkDestroyShaderModule(self.device, made.module, None)

    def close(self) -> None:
        """Free everything.  A device that did not finish keeps its handles: freeing them would wait for it."""
        if not self.usable:
            return
        vk = self.vk
        for free in list(self.owners):
            free()
        self._closed = True
        self.memory.close()
        vk.vkDestroyFence(self.device, self._fence[0], None)
        vk.vkDestroyCommandPool(self.device, self.commands, None)
        vk.vkDestroyDevice(self.device, None)
        vk.vkDestroyInstance(self._instance, None)


def _memory_types(vk: Any, properties: Any) -> list[int]:
    """The memory types that the host sees without flushing, those first that are cached, then those on the device."""
    visible = vk.VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | vk.VK_MEMORY_PROPERTY_HOST_COHERENT_BIT
    cached, local = vk.VK_MEMORY_PROPERTY_HOST_CACHED_BIT, vk.VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT
    flags = [properties.memoryTypes[i].propertyFlags for i in range(properties.memoryTypeCount)]
    usable = [i for i, f in enumerate(flags) if f & visible == visible]
    return sorted(usable, key=lambda i: (not flags[i] & cached, not flags[i] & local))
