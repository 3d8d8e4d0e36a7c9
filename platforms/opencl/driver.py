"""Plans on an OpenCL device, through pyopencl: OpenCL C is compiled by the device's own driver."""

from __future__ import annotations

import re
import time
import warnings
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy
from numpy.typing import NDArray

from tapml.errors import CompileError, DeviceError, MissingFeatureError, UnsupportedError
from tapml.kernels.device_memory import Block, Memory
from tapml.kernels.driver_output import captured
from tapml.kernels.limits import check, require
from tapml.kernels.plan import Kernel, Plan, Step
from tapml.kernels.plan_memory import PlanMemory
from tapml.kernels.runner import POISON, Input, Ran
from tapml.platform import DeviceInfo
from tapml.platforms.opencl.devices import binding, list_adapters

TIMEOUT = 60.0
"""Seconds that the launches of a plan may take together."""
BUDGET = 2 << 30
"""Bytes of keyed inputs that are kept on the device."""
_OPTIONS = ["-cl-std=CL1.2"]
"""For the driver's compiler: no relaxed mathematics."""
_PRELUDE = "#pragma OPENCL FP_CONTRACT OFF\n#line 1\n"
"""OpenCL C may compute a * b + c with one rounding, and PoCL does; no option forbids it, but this does."""
_EXTENSIONS = {"float16": "cl_khr_fp16", "float64": "cl_khr_fp64"}


class OpenclRunner:
    """An open OpenCL device that executes plans.

    ``device``: an index into, or a name of, :func:`tapml.platforms.opencl.devices.list_devices`.  ``timeout``: seconds
    that a run may take.  ``budget``: bytes of keyed inputs that stay on the device.  ``uploads`` counts inputs that
    were copied there.  Raises :class:`DeviceError` when the device is not here.  For one thread; :meth:`close` frees
    the memory on the device.
    """

    def __init__(self, device: int | str = 0, *, timeout: float = TIMEOUT, budget: int = BUDGET) -> None:
        cl = self._cl = binding()
        here = list_adapters(cl)
        chosen = [a for i, a in enumerate(here) if device in (i, a.info.name)]
        if not chosen:
            raise DeviceError(
                f"expected OpenCL device {device!r}, found {', '.join(a.info.name for a in here) or 'none'}",
                hint="apt-get install pocl-opencl-icd has a driver for the CPU",
            )
        self._adapter = chosen[0]
        self.timeout = timeout
        self.uploads = 0
        self.lost = ""
        self._context = cl.Context([self._adapter.device])
        profiling = cl.command_queue_properties.PROFILING_ENABLE
        self._queue = cl.CommandQueue(self._context, self._adapter.device, profiling)
        context = self._context

        def allocate(nbytes: int) -> Any:
            try:
                return cl.Buffer(context, cl.mem_flags.READ_WRITE, nbytes)
            except cl.Error as error:
                raise DeviceError(f"expected {nbytes:,} bytes of device memory: {_words(error)}") from error

        self._memory: Memory[Any] = Memory(allocate, lambda buffer: buffer.release(), budget)
        self._end = weakref.finalize(self, self._memory.close)

    @property
    def info(self) -> DeviceInfo:
        """What the device is."""
        return self._adapter.info

    def load(self, plan: Plan, files: Mapping[str, bytes]) -> OpenclPlan:
        """Compile the kernels of a plan; each file is OpenCL C.

        Raises :class:`CompileError` with the driver's build log, :class:`UnsupportedError` for an extension or limit
        that the device lacks (``adapter lacks cl_khr_fp16``).
        """
        self.check()
        check(plan, self._adapter.limits, self.info.name)
        kernels: dict[str, Any] = {}
        programs: dict[str, Any] = {}
        for name in dict.fromkeys(step.kernel for step in plan.steps):
            kernel = plan.kernels[name]
            if kernel.shared:
                raise UnsupportedError(f"kernel {name} asks for {kernel.shared:,} bytes of shared memory at launch")
            if kernel.file not in programs:
                programs[kernel.file] = self._build(kernel, files[kernel.file].decode())
            kernels[name] = self._kernel(kernel, programs[kernel.file])
        return OpenclPlan(self, plan, kernels)

    def check(self) -> None:
        """Raise :class:`DeviceError` if the device is closed, failed before, or is still busy with what timed out."""
        if self.lost:
            raise DeviceError(f"{self.info.name}: {self.lost}", hint="open the device anew, in a new process")
        if not self._end.alive:
            raise DeviceError("expected an open device, found one that was closed")

    def close(self) -> None:
        """Free the memory on the device.  One that did not finish keeps it: freeing it would wait."""
        self._end()

    def _lose(self, why: str) -> None:
        """The device cannot be used any more; its memory stays, for freeing it would wait for the device."""
        self.lost = self.lost or why
        self._end.detach()

    def _build(self, kernel: Kernel, source: str) -> Any:
        for dtype, extension in _EXTENSIONS.items():  # TVM's code names the extensions that it needs
            needed = extension in source or dtype in kernel.pointers
            if needed and extension not in self._adapter.extensions:
                raise MissingFeatureError(f"adapter lacks {extension}")
        # PoCL counts errors on standard error, and the log has them all; pyopencl warns of whatever a compiler says
        with captured(), warnings.catch_warnings():
            warnings.simplefilter("ignore", self._cl.CompilerWarning)
            try:
                return self._cl.Program(self._context, _PRELUDE + source).build(options=_OPTIONS)
            except self._cl.Error as error:
                raise CompileError(f"kernel {kernel.name}: the driver refused it: {_build_log(error)}") from error

    def _kernel(self, kernel: Kernel, program: Any) -> Any:
        cl, device = self._cl, self._adapter.device
        try:
            made = cl.Kernel(program, kernel.name)
        except cl.Error as error:
            found = program.kernel_names.replace(";", ", ") or "none"
            raise CompileError(f"expected an entry point {kernel.name} in {kernel.file}, found {found}") from error
        if made.num_args != len(kernel.pointers) + len(kernel.scalars):
            expected = len(kernel.pointers) + len(kernel.scalars)
            raise CompileError(f"kernel {kernel.name}: expected {expected} arguments, found {made.num_args}")
        info, limits, what = cl.kernel_work_group_info, self._adapter.limits, f"kernel {kernel.name}"
        x, y, z = kernel.block  # the driver knows only now what that takes
        shared = made.get_work_group_info(info.LOCAL_MEM_SIZE, device)
        require(self.info.name, what, limits.name("shared_bytes"), shared, limits.shared_bytes)
        threads = made.get_work_group_info(info.WORK_GROUP_SIZE, device)
        require(self.info.name, what, "CL_KERNEL_WORK_GROUP_SIZE", x * y * z, threads)
        return made

    @contextmanager
    def borrowing(self) -> Iterator[tuple[Memory[Any], list[Block[Any]]]]:
        """The memory, and a list of blocks to give back at the end.  Turns pyopencl's errors into DeviceError."""
        taken: list[Block[Any]] = []
        try:
            yield self._memory, taken
        except self._cl.Error as error:
            self._lose(_words(error))
            raise DeviceError(f"{self.info.name}: {_words(error)}") from error
        finally:
            if not self.lost:
                self._memory.give(taken)
                self._memory.finish()

    def upload(self, buffer: Any, data: NDArray[numpy.uint8]) -> None:
        """Copy an input to the device."""
        self._cl.enqueue_copy(self._queue, buffer, numpy.ascontiguousarray(data))
        self.uploads += 1

    def download(self, buffer: Any, nbytes: int) -> NDArray[numpy.uint8]:
        """Copy a result from the device."""
        data = numpy.empty(nbytes, numpy.uint8)
        self._cl.enqueue_copy(self._queue, data, buffer)
        return data

    def fill(self, buffer: Any, nbytes: int) -> None:
        """Poison a buffer; ``nbytes`` is a multiple of 4."""
        pattern = numpy.uint32(POISON * 0x01010101)
        self._cl.enqueue_fill_buffer(self._queue, buffer, pattern, 0, nbytes)

    def enqueue(self, made: Any, arguments: Sequence[Any], step: Step, kernel: Kernel) -> Any:
        """Launch a kernel; the event of its end."""
        for place, argument in enumerate(arguments):
            made.set_arg(place, argument)
        threads = tuple(g * b for g, b in zip(step.grid, kernel.block, strict=True))
        return self._cl.enqueue_nd_range_kernel(self._queue, made, threads, kernel.block)

    def wait(self, events: Sequence[Any]) -> float:
        """Wait for launches; seconds from the start of the first to the end of the last.

        Raises :class:`DeviceError` on a failure, and when they do not finish in time: the device is lost then.
        """
        self._queue.flush()
        last, start, pause = events[-1], time.monotonic(), 0.0
        complete = self._cl.command_execution_status.COMPLETE
        while (status := last.command_execution_status) > complete:  # OpenCL cannot wait with a time-out
            waited = time.monotonic() - start
            if waited > self.timeout:
                self._lose(f"kernels did not finish within {self.timeout:g} s")
                self.check()
            time.sleep(pause)
            pause = min(waited / 20, 0.005)
        if status < complete:
            self._lose(f"OpenCL: a kernel ended with status {status}")
            self.check()
        return float(last.profile.end - events[0].profile.start) * 1e-9


class OpenclPlan:
    """A plan whose kernels are ready on an OpenCL device."""

    def __init__(self, runner: OpenclRunner, plan: Plan, kernels: Mapping[str, Any]) -> None:
        self._runner = runner
        self._plan = plan
        self._kernels = kernels
        self._buffers = PlanMemory(plan)
        self._scalars = [
            [numpy.dtype(d).type(v) for d, v in zip(plan.kernels[s.kernel].scalars, s.scalars, strict=True)]
            for s in plan.steps
        ]

    def run(self, inputs: Mapping[int, Input]) -> Ran:
        """See :class:`tapml.kernels.runner.LoadedPlan`."""
        runner, plan = self._runner, self._plan
        runner.check()
        with runner.borrowing() as (memory, taken):
            blocks = self._buffers.place(memory, inputs, taken, runner.upload)
            for i in self._buffers.others:
                runner.fill(blocks[i].handle, self._buffers.sizes[i])
            events = [
                runner.enqueue(
                    self._kernels[step.kernel],
                    [*(blocks[i].handle for i in step.buffers), *scalars],
                    step,
                    plan.kernels[step.kernel],
                )
                for step, scalars in zip(plan.steps, self._scalars, strict=True)
            ]
            seconds = runner.wait(events) if events else 0.0
            wanted = [i for i in plan.results if i is not None]
            outputs = {i: runner.download(blocks[i].handle, plan.buffers[i].nbytes) for i in wanted}
        return Ran(outputs, len(plan.steps), seconds)


def _words(error: Exception) -> str:
    return f"OpenCL: {str(error).splitlines()[0][:300]}"


def _build_log(error: Exception) -> str:
    """The errors of a build log, without the paths of the driver's temporary files."""
    lines = [line.strip() for line in str(error).splitlines() if "error:" in line] or str(error).splitlines()[:1]
    return "; ".join(re.sub(r"\S*/tempfile\w*\.cl:", "source:", line) for line in lines)[:600]
