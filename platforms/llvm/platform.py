"""The llvm platform: TIR -> object code -> shared library -> a function that PyTorch tensors are passed to directly."""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform as host
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path

import torch
import tvm
import tvm_ffi

from tapml.errors import DeviceError
from tapml.kernels.executable import contiguous, ordered, require_memory, unwritten
from tapml.kernels.fuse import to_tir
from tapml.kernels.own_schedule import OwnSchedule
from tapml.kernels.plan import Artifact, Plan, extract_plan
from tapml.kernels.runner import POISON
from tapml.lowering.lower import Lowered, span
from tapml.platform import Device, DeviceInfo, Execution, is_remote, reach
from tapml.platforms.llvm.codegen import LIBRARY, compile_functions, export_functions, linker_for
from tapml.platforms.llvm.legalise import legalise
from tapml.platforms.llvm.schedule import schedule
from tapml.suite.call import Signature, torch_dtype


class LlvmPlatform:
    """TVM's LLVM code generator, for the processor of this machine, or of others (see :mod:`tapml.platform`)."""

    name = "llvm"
    elsewhere = True

    def devices(self) -> tuple[DeviceInfo, ...]:
        details = {"cpu": _cpu(), "cores": str(os.cpu_count()), "machine": host.machine()}
        return (DeviceInfo("llvm:cpu", f"{host.machine()} CPU ({_cpu()})", details=details),)

    def target(self, device: str = "llvm:cpu") -> tvm.target.Target:
        return tvm.target.Target(reach(device).processor() if is_remote(device) else {"kind": "llvm", "mcpu": _cpu()})

    def fingerprint(self, device: str) -> str:
        """TVM, the processor, the text of this platform's own passes, and how code for another machine is linked."""
        target = self.target(device)
        linked = f" for others by {linker_for(str(target.export()['mtriple']))}" if is_remote(device) else ""
        return f"{tvm.__version__} {tvm_ffi.__version__} {target} {_own_source()}{linked}"

    def prepare(self, lowered: Lowered, device: str) -> tuple[tvm.IRModule, Plan]:
        """The functions as they are handed to LLVM, and the plan that calls them."""
        return self._prepare(lowered, device, OwnSchedule.of(lowered))

    def _prepare(self, lowered: Lowered, device: str, own: OwnSchedule) -> tuple[tvm.IRModule, Plan]:
        module = to_tir(lowered.module, self.target(device), merge=not lowered.plain)
        plan = extract_plan(module, lowered.results)
        functions = {}
        for symbol, function in module.functions.items():
            if isinstance(function, tvm.tirx.PrimFunc):
                named = function.with_attr("global_symbol", symbol.name_hint)
                arranged = own.apply(named, self.target(device))
                if arranged is named and not lowered.plain:
                    arranged = schedule(named)
                functions[symbol.name_hint] = legalise(arranged.with_attr("global_symbol", symbol.name_hint))
        return tvm.IRModule(functions), plan

    def build(self, lowered: Lowered, device: str) -> Artifact:
        own = OwnSchedule.of(lowered)
        module, plan = self._prepare(lowered, device, own)
        functions = {symbol.name_hint: function for symbol, function in module.functions.items()}
        export = export_functions if is_remote(device) else _library
        files = export(functions, self.target(device))
        notes = (*lowered.notes, *own.notes)
        return Artifact(plan, files, lowered.route, (*lowered.converters, *own.used), notes)

    def open(self, device: str) -> Device:
        if is_remote(device):
            return reach(device).open(self.name)
        if device != "llvm:cpu":
            raise DeviceError(f"expected device llvm:cpu, found {device!r}")
        return LlvmDevice(self.devices()[0])


def _library(functions: dict[str, tvm.tirx.PrimFunc], target: tvm.target.Target) -> dict[str, bytes]:
    return {LIBRARY: compile_functions(functions, target)}


@lru_cache(maxsize=None)
def _cpu() -> str:
    return str(tvm.get_global_func("target.llvm_get_system_cpu")())


@lru_cache(maxsize=None)
def _own_source() -> str:
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


class LlvmDevice:
    """The CPU of this machine."""

    def __init__(self, info: DeviceInfo) -> None:
        self.info = info

    def load(self, artifact: Artifact, signature: Signature) -> LlvmExecutable:
        """Load the library.  Raises :class:`DeviceError` when the loader refuses it."""
        handle, path = tempfile.mkstemp(suffix=".so")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(artifact.files[LIBRARY])
            library = tvm.runtime.load_module(path)
        except RuntimeError as error:
            raise DeviceError(f"the loader refused a compiled kernel: {error}") from error
        finally:
            os.unlink(path)
        takes_memory = ALLOCATE.encode() in artifact.files[LIBRARY]
        return LlvmExecutable(library, artifact.plan, signature, takes_memory=takes_memory)


class LlvmExecutable:
    """A plan whose kernels are functions of a loaded library.  ``takes_memory``: they ask TVM for some while they run."""

    def __init__(self, library: tvm.runtime.Module, plan: Plan, signature: Signature, *, takes_memory: bool) -> None:
        self._library = library  # keeps the code mapped
        self._arguments = [
            (index, torch_dtype(s.dtype), span(s)) for index, s in zip(plan.parameters, signature.tensors, strict=True)
        ]
        self._results = [
            (index, order, spec, torch_dtype(spec.dtype), name.startswith("arg"))
            for index, order, (name, spec) in zip(plan.results, plan.orders, signature.results, strict=True)
        ]
        written = {index for index in plan.results if index is not None}
        self._temporaries = [
            (i, buffer.shape, torch_dtype(buffer.dtype))
            for i, buffer in enumerate(plan.buffers)
            if i not in written and i not in plan.parameters
        ]
        self._steps = [(library[s.kernel], s.buffers) for s in plan.steps]
        self._takes_memory = takes_memory
        self._largest = max((buffer.nbytes for buffer in plan.buffers), default=0)

    def run(self, tensors: Sequence[torch.Tensor]) -> Execution:
        """See :class:`tapml.platform.Executable`."""
        pointers: dict[int, ctypes.c_void_p] = {}
        for (index, dtype, length), tensor in zip(self._arguments, tensors, strict=True):
            require_memory(tensor, dtype, length)
            pointers[index] = ctypes.c_void_p(tensor.data_ptr())
        owned = []
        for index, shape, dtype in self._temporaries:
            owned.append(_poisoned(torch.empty(shape, dtype=dtype)))
            pointers[index] = ctypes.c_void_p(owned[-1].data_ptr())
        results = []
        for place, order, spec, dtype, mutated in self._results:
            strides = contiguous(spec.shape) if mutated or order is None else ordered(spec.shape, order)
            results.append(_poisoned(torch.empty_strided(spec.shape, strides, dtype=dtype)))
            if place is not None:
                pointers[place] = ctypes.c_void_p(results[-1].data_ptr())
        if self._takes_memory:
            _poison_workspaces(self._largest)
        begin = time.perf_counter()
        for kernel, operands in self._steps:
            kernel(*[pointers[i] for i in operands])
        seconds = time.perf_counter() - begin
        faults = [
            fault
            for number, (result, (place, *_)) in enumerate(zip(results, self._results, strict=True))
            if result.dtype == torch.bool and result.numel() and place is not None
            for fault in unwritten(result.view(torch.uint8).numpy(), number)
        ]
        return Execution(tuple(results), len(self._steps), seconds, faults=tuple(faults))


def _poisoned(tensor: torch.Tensor) -> torch.Tensor:
    """Fresh memory as on every other device: what no kernel writes is NaN, -1 or true, not a right answer of before."""
    if tensor.numel():
        ctypes.memset(tensor.data_ptr(), POISON, tensor.numel() * tensor.element_size())
    return tensor


ALLOCATE = "TVMBackendAllocWorkspace"
_WORKSPACES = 4
"""Blocks of memory, as many small ones as large ones, that are poisoned before a kernel may ask for them."""
_LARGEST_WORKSPACE = 1 << 20
"""Bytes of a large one at most: they cost time at each execution."""
_CPU = 1
"""``kDLCPU`` of DLPack."""


@lru_cache(maxsize=1)
def _memory() -> tuple[Callable[..., int], Callable[..., int], Callable[..., int]] | None:
    """TVM's functions that give a kernel memory and take it back, and the C library's for a block's size (glibc, musl)."""
    runtime = ctypes.CDLL(str(Path(tvm.__file__).parent / "lib" / "libtvm_runtime.so"))
    allocate, free = runtime[ALLOCATE], runtime["TVMBackendFreeWorkspace"]
    allocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_uint64, ctypes.c_int, ctypes.c_int]
    allocate.restype = ctypes.c_void_p
    free.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_void_p]
    try:
        size = ctypes.CDLL(None).malloc_usable_size
    except AttributeError:
        return None
    size.argtypes, size.restype = [ctypes.c_void_p], ctypes.c_size_t
    return allocate, free, size


def _poison_workspaces(nbytes: int) -> None:
    """The same for memory that kernels ask TVM for while they run, which TVM keeps for the next one.

    ``nbytes``: of the plan's largest buffer, as parts of results are what such memory holds.  Some is left as it is: what
    lies on the stack (less than a kilobyte), larger or more blocks than these, and what other threads keep.
    """
    if (memory := _memory()) is None:
        return
    allocate, free, size = memory
    wanted = [1] * _WORKSPACES + [min(nbytes, _LARGEST_WORKSPACE)] * _WORKSPACES
    blocks = [allocate(_CPU, 0, number, 0, 8) for number in wanted]
    for block in blocks:
        if block:
            ctypes.memset(block, POISON, min(size(block), _LARGEST_WORKSPACE))
            free(_CPU, 0, block)


PLATFORM = LlvmPlatform()
