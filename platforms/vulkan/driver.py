"""Plans on a Vulkan device: OpenCL C through clspv, or SPIR-V that clspv made, launched without any engine between."""

from __future__ import annotations

import struct
import weakref
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tapml.errors import DeviceError, UnsupportedError
from tapml.kernels.device_memory import Block
from tapml.kernels.limits import check
from tapml.kernels.plan import Plan, Step
from tapml.kernels.plan_memory import PlanMemory
from tapml.kernels.runner import Input, Ran
from tapml.platform import DeviceInfo
from tapml.platforms.vulkan.clspv import compile_spirv
from tapml.platforms.vulkan.devices import binding, create_instance, explained, list_adapters
from tapml.platforms.vulkan.session import DeviceBuffer, Pipeline, Session
from tapml.platforms.vulkan.spirv import MAGIC

TIMEOUT = 60.0
"""Seconds that the launches of a plan may take together."""
BUDGET = 2 << 30
"""Bytes of keyed inputs that are kept on the device."""
_RECORDINGS = 64
"""Command buffers that a plan keeps: one for each set of buffers that it was run with."""
_SCALARS = {
    "bool": "?",
    "int8": "b",
    "uint8": "B",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "uint32": "I",
    "int64": "q",
    "uint64": "Q",
    "float16": "e",
    "float32": "f",
    "float64": "d",
}


class VulkanRunner:
    """An open Vulkan device that executes plans.

    ``device``: an index into, or a name of, :func:`tapml.platforms.vulkan.devices.list_devices`.  ``timeout``: seconds
    that a run may take.  ``budget``: bytes of keyed inputs that stay on the device.  Raises :class:`DeviceError` when
    the device is not here.  For one thread; :meth:`close` frees everything, loaded plans included.
    """

    def __init__(self, device: int | str = 0, *, timeout: float = TIMEOUT, budget: int = BUDGET) -> None:
        vk = binding()
        made = create_instance(vk)
        try:
            adapters = list_adapters(vk, made)
            chosen = [a for i, a in enumerate(adapters) if device in (i, a.info.name)]
            if not chosen:
                here = ", ".join(a.info.name for a in adapters) or "none"
                raise DeviceError(
                    f"expected Vulkan device {device!r}, found {here}",
                    hint="apt-get install mesa-vulkan-drivers has a driver for the CPU",
                )
            self._session = Session(vk, made, chosen[0], timeout=timeout, budget=budget)
        except BaseException:
            vk.vkDestroyInstance(made, None)
            raise
        self._end = weakref.finalize(self, self._session.close)

    @property
    def info(self) -> DeviceInfo:
        """What the device is."""
        return self._session.adapter.info

    @property
    def uploads(self) -> int:
        """Inputs that were copied to the device so far."""
        return self._session.uploads

    def load(self, plan: Plan, files: Mapping[str, bytes]) -> VulkanPlan:
        """Compile the kernels of a plan; each file is a SPIR-V module from clspv, or OpenCL C.

        Raises :class:`CompileError` when clspv or the driver refuses, :class:`UnsupportedError` for a feature or limit
        that the device lacks (``adapter lacks shaderFloat16``).
        """
        self._session.check()
        check(plan, self._session.adapter.limits, self.info.name)
        return VulkanPlan(self, self._session, plan, files)

    def close(self) -> None:
        """Free everything on the device."""
        self._end()


@dataclass(frozen=True, eq=False)
class _Recording:
    """A command buffer with all launches, for one choice of buffers; its descriptor pool; the VkSubmitInfo of it, with
    what that points to."""

    commands: Any
    pool: Any
    submission: Any
    kept: Any


class _Resources:
    """What a loaded plan owns on the device."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.pipelines: dict[str, Pipeline] = {}
        self.recordings: OrderedDict[tuple[int, ...], _Recording] = OrderedDict()
        self.queries: Any = None
        session.owners.add(self.free)

    def free(self) -> None:
        self.session.owners.discard(self.free)
        if not self.session.usable:  # closed with all that was on it, or lost
            return
        while self.recordings:
            self.drop_recording()
        if self.queries is not None:
            self.session.vk.vkDestroyQueryPool(self.session.device, self.queries, None)
        for pipeline in self.pipelines.values():
            self.session.free_pipeline(pipeline)

    def drop_recording(self) -> None:
        """Free the least recently used recording."""
        vk, session = self.session.vk, self.session
        _, recording = self.recordings.popitem(last=False)
        vk.vkFreeCommandBuffers(session.device, session.commands, 1, [recording.commands])
        vk.vkDestroyDescriptorPool(session.device, recording.pool, None)


class VulkanPlan:
    """A plan whose kernels are ready on a Vulkan device."""

    def __init__(self, runner: VulkanRunner, session: Session, plan: Plan, files: Mapping[str, bytes]) -> None:
        self._runner = runner  # which closes the session when it is collected
        self._session = session
        self._plan = plan
        self._memory = PlanMemory(plan)
        self._resources = _Resources(session)
        self._end = weakref.finalize(self, self._resources.free)
        try:
            self._prepare(files)
        except BaseException:
            self._end()
            raise

    def _prepare(self, files: Mapping[str, bytes]) -> None:
        resources, session = self._resources, self._session
        vk = session.vk
        spirv: dict[str, bytes] = {}
        for name in dict.fromkeys(step.kernel for step in self._plan.steps):
            kernel = self._plan.kernels[name]
            if kernel.file not in spirv:
                code = files[kernel.file]
                spirv[kernel.file] = code if code.startswith(MAGIC) else compile_spirv(code.decode())
            resources.pipelines[name] = session.pipeline(kernel, spirv[kernel.file])
        if session.adapter.tick:
            info = vk.VkQueryPoolCreateInfo(queryType=vk.VK_QUERY_TYPE_TIMESTAMP, queryCount=2)
            resources.queries = vk.vkCreateQueryPool(session.device, info, None)
            self._ticks = vk.ffi.new("uint64_t[2]")

    def run(self, inputs: Mapping[int, Input]) -> Ran:
        """See :class:`tapml.kernels.runner.LoadedPlan`."""
        session, plan = self._session, self._plan
        session.check()
        taken: list[Block[DeviceBuffer]] = []
        try:
            blocks = self._memory.place(session.memory, inputs, taken, session.upload)
            seconds = self._launch(blocks) if plan.steps else 0.0
            outputs = {i: blocks[i].handle.view[: plan.buffers[i].nbytes].copy() for i in plan.results if i is not None}
        finally:
            if session.usable:
                session.memory.give(taken)
                session.memory.finish()
        return Ran(outputs, len(plan.steps), seconds)

    def close(self) -> None:
        """Free the plan's pipelines; what is collected as garbage does so itself."""
        self._end()

    def _launch(self, blocks: Sequence[Block[DeviceBuffer]]) -> float:
        """Execute all steps; seconds between the first and the end of the last."""
        session, recordings = self._session, self._resources.recordings
        chosen = tuple(b.serial for b in blocks)
        recording = recordings.get(chosen)
        if recording is None:
            if len(recordings) >= _RECORDINGS:
                self._resources.drop_recording()
            recording = recordings[chosen] = self._record(blocks)
        else:
            recordings.move_to_end(chosen)
        seconds = session.submit(recording.submission)
        if self._resources.queries is None:
            return seconds
        flags = session.vk.VK_QUERY_RESULT_64_BIT | session.vk.VK_QUERY_RESULT_WAIT_BIT
        session.vk.lib.vkGetQueryPoolResults(session.device, self._resources.queries, 0, 2, 16, self._ticks, 8, flags)
        return float((self._ticks[1] - self._ticks[0]) * session.adapter.tick * 1e-9)

    def _record(self, blocks: Sequence[Block[DeviceBuffer]]) -> _Recording:
        """A command buffer: poison what is no parameter, then launch after launch, each seeing what the last wrote."""
        session, resources, steps = self._session, self._resources, self._plan.steps
        vk = session.vk
        sets, pool = self._bind(blocks)
        info = vk.VkCommandBufferAllocateInfo(
            commandPool=session.commands, level=vk.VK_COMMAND_BUFFER_LEVEL_PRIMARY, commandBufferCount=1
        )
        commands = vk.vkAllocateCommandBuffers(session.device, info)[0]
        point, stage = vk.VK_PIPELINE_BIND_POINT_COMPUTE, vk.VK_SHADER_STAGE_COMPUTE_BIT
        compute = vk.VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT
        wrote, sees = vk.VK_ACCESS_SHADER_WRITE_BIT, vk.VK_ACCESS_SHADER_READ_BIT | vk.VK_ACCESS_SHADER_WRITE_BIT

        def order(before: int, wrote: int, after: int, sees: int) -> None:
            barrier = vk.VkMemoryBarrier(srcAccessMask=wrote, dstAccessMask=sees)
            vk.vkCmdPipelineBarrier(commands, before, after, 0, 1, [barrier], 0, None, 0, None)

        vk.vkBeginCommandBuffer(commands, vk.VkCommandBufferBeginInfo())
        for i in self._memory.others:
            vk.vkCmdFillBuffer(commands, blocks[i].handle.buffer, 0, self._memory.sizes[i], 0xFFFFFFFF)
        order(vk.VK_PIPELINE_STAGE_TRANSFER_BIT, vk.VK_ACCESS_TRANSFER_WRITE_BIT, compute, sees)
        if resources.queries is not None:
            vk.vkCmdResetQueryPool(commands, resources.queries, 0, 2)
            vk.vkCmdWriteTimestamp(commands, compute, resources.queries, 0)
        for number, (step, descriptors) in enumerate(zip(steps, sets, strict=True)):
            if number:
                order(compute, wrote, compute, sees)
            made = resources.pipelines[step.kernel]
            vk.vkCmdBindPipeline(commands, point, made.pipeline)
            vk.vkCmdBindDescriptorSets(commands, point, made.layout, 0, 1, [descriptors], 0, None)
            pushed = self._push(step, made)
            if pushed is not None:
                vk.vkCmdPushConstants(commands, made.layout, stage, 0, len(pushed), pushed)
            vk.vkCmdDispatch(commands, *step.grid)
        if resources.queries is not None:
            vk.vkCmdWriteTimestamp(commands, compute, resources.queries, 1)
        order(compute, wrote, vk.VK_PIPELINE_STAGE_HOST_BIT, vk.VK_ACCESS_HOST_READ_BIT)
        vk.vkEndCommandBuffer(commands)
        handles = vk.ffi.new("VkCommandBuffer[1]", [commands])
        submission = vk.ffi.new("VkSubmitInfo*")
        submission.sType = vk.VK_STRUCTURE_TYPE_SUBMIT_INFO
        submission.commandBufferCount, submission.pCommandBuffers = 1, handles
        return _Recording(commands, pool, submission, handles)

    def _bind(self, blocks: Sequence[Block[DeviceBuffer]]) -> tuple[list[Any], Any]:
        """A descriptor set for each step, and the pool that they are from."""
        session, steps = self._session, self._plan.steps
        vk, kind = session.vk, session.vk.VK_DESCRIPTOR_TYPE_STORAGE_BUFFER
        made = [self._resources.pipelines[step.kernel] for step in steps]
        count = max(sum(len(m.entry.bindings) for m in made), 1)
        size = vk.VkDescriptorPoolSize(type=kind, descriptorCount=count)
        with explained(vk, "descriptor sets"):
            pool = vk.vkCreateDescriptorPool(
                session.device,
                vk.VkDescriptorPoolCreateInfo(maxSets=len(steps), poolSizeCount=1, pPoolSizes=[size]),
                None,
            )
            layouts = [m.set_layout for m in made]
            info = vk.VkDescriptorSetAllocateInfo(
                descriptorPool=pool, descriptorSetCount=len(layouts), pSetLayouts=layouts
            )
            sets = list(vk.vkAllocateDescriptorSets(session.device, info))
        writes = []
        for step, pipeline, descriptors in zip(steps, made, sets, strict=True):
            for ordinal, slot in pipeline.entry.bindings.items():
                index = step.buffers[ordinal]
                where = vk.VkDescriptorBufferInfo(
                    buffer=blocks[index].handle.buffer, offset=0, range=self._memory.sizes[index]
                )
                writes.append(
                    vk.VkWriteDescriptorSet(
                        dstSet=descriptors,
                        dstBinding=slot,
                        descriptorCount=1,
                        descriptorType=kind,
                        pBufferInfo=[where],
                    )
                )
        vk.vkUpdateDescriptorSets(session.device, len(writes), writes, 0, None)
        return sets, pool

    def _push(self, step: Step, made: Pipeline) -> Any:
        """The scalar arguments of a step as push constants, ``None`` where there are none."""
        constants = made.entry.push_constants
        if not constants:
            return None
        kernel = self._plan.kernels[step.kernel]
        data = bytearray(-(-max(p.offset + p.size for p in constants) // 4) * 4)
        for constant in constants:
            place = constant.ordinal - len(kernel.pointers)
            dtype = kernel.scalars[place]
            if dtype not in _SCALARS or struct.calcsize(_SCALARS[dtype]) != constant.size:
                raise UnsupportedError(f"kernel {kernel.name}: a scalar of {dtype} in {constant.size} bytes")
            struct.pack_into(f"<{_SCALARS[dtype]}", data, constant.offset, step.scalars[place])
        return self._session.vk.ffi.new(f"char[{len(data)}]", bytes(data))
