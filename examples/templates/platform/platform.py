"""A platform to start from: copy the folder to platforms/<target>, and replace `template` and `Template` throughout.

It compiles for the plainest processor of this machine's kind and executes in this process. What to replace for a target
of your own is marked with 1 to 4.
"""

from __future__ import annotations

import hashlib
import os
import platform as host
import shutil
import subprocess
import tempfile
import time
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

import torch
import tvm
import tvm_ffi

from tapml.errors import CompileError, DeviceError
from tapml.kernels.fuse import to_tir
from tapml.kernels.plan import Artifact, Plan, extract_plan
from tapml.lowering.lower import Lowered, span
from tapml.platform import DeviceInfo, Execution
from tapml.suite.call import Signature, torch_dtype

DEVICE = "template:cpu"
LIBRARY = "kernels.so"


class TemplatePlatform:
    """Meets :class:`tapml.platform.Platform`."""

    name = "template"

    @cached_property
    def target(self) -> tvm.target.Target:
        """1. What TVM compiles for: ``{"kind": "webgpu"}``, ``{"kind": "metal"}``, ..."""
        return tvm.target.Target({"kind": "llvm"})

    def devices(self) -> tuple[DeviceInfo, ...]:
        """2. The devices that are here now. None is a good answer: look, and do not raise.

        ``emulated=True`` when something else than the real device executes the kernels.
        """
        return (DeviceInfo(DEVICE, f"this process ({host.machine()})"),)

    def fingerprint(self, device: str) -> str:
        """Compiled kernels are cached under this text: whatever changes them must be in it, this file included."""
        own = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()
        return f"{tvm.__version__} {tvm_ffi.__version__} {self.target} {own}"

    def build(self, lowered: Lowered, device: str) -> Artifact:
        """3. TIR functions -> device code.

        Here the target's own corrections have their place (see platforms/llvm/legalise.py), and a schedule: a GPU needs
        one, with its threads bound. What cannot be compiled is a CompileError, with the compiler's last line.
        """
        module = to_tir(lowered.module, self.target)
        plan = extract_plan(module, lowered.results)
        functions = {
            symbol.name_hint: function.with_attr("global_symbol", symbol.name_hint)
            for symbol, function in module.functions.items()
            if isinstance(function, tvm.tirx.PrimFunc)
        }
        try:
            compiled = tvm.compile(tvm.IRModule(functions), target=self.target)
        except Exception as error:
            raise CompileError(f"{self.name}: {str(error).strip().splitlines()[-1]}") from error
        return Artifact(plan, {LIBRARY: link(compiled)}, lowered.route, lowered.converters, lowered.notes)

    def open(self, device: str) -> TemplateDevice:
        if device != DEVICE:
            raise DeviceError(f"expected device {DEVICE}, found {device!r}", hint="`tapml devices` lists what is here")
        return TemplateDevice(self.devices()[0])


def link(compiled: tvm.runtime.Executable) -> bytes:
    linker = shutil.which("ld") or shutil.which("cc")
    if linker is None:
        raise CompileError("expected a linker (ld or cc) on the PATH, found none", hint="apt-get install binutils")
    with tempfile.TemporaryDirectory() as folder:
        source, out = Path(folder, "kernels.o"), Path(folder, LIBRARY)
        compiled.mod.write_to_file(str(source), "o")
        subprocess.run([linker, "-shared", "-o", out, source], check=True, capture_output=True)
        return out.read_bytes()


class TemplateDevice:
    """Meets :class:`tapml.platform.Device`."""

    def __init__(self, info: DeviceInfo) -> None:
        self.info = info

    def load(self, artifact: Artifact, signature: Signature) -> TemplateExecutable:
        handle, path = tempfile.mkstemp(suffix=".so")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(artifact.files[LIBRARY])
            return TemplateExecutable(tvm.runtime.load_module(path), artifact.plan, signature)
        finally:
            os.unlink(path)


class TemplateExecutable:
    """Meets :class:`tapml.platform.Executable`."""

    def __init__(self, library: tvm.runtime.Module, plan: Plan, signature: Signature) -> None:
        self._library, self._plan, self._signature = library, plan, signature

    def run(self, tensors: Sequence[torch.Tensor]) -> Execution:
        """4. Copy arguments to the device, launch every step of the plan, copy results back.

        A parameter of the plan is the one-dimensional span of memory that a tensor argument covers.
        """
        plan = self._plan
        buffers = [torch.empty(b.shape, dtype=torch_dtype(b.dtype)) for b in plan.buffers]
        for index, tensor, spec in zip(plan.parameters, tensors, self._signature.tensors, strict=True):
            buffers[index] = torch.as_strided(tensor, (span(spec),), (1,), tensor.storage_offset()).clone()
        begin = time.perf_counter()
        for step in plan.steps:
            self._library[step.kernel](*[buffers[i] for i in step.buffers])
        seconds = time.perf_counter() - begin
        results = []
        for index, order, (_, spec) in zip(plan.results, plan.orders, self._signature.results, strict=True):
            if index is None or order is None:  # a result without elements
                results.append(torch.empty(spec.shape, dtype=torch_dtype(spec.dtype)))
            else:  # the kernel wrote the axes in this order: put them back
                results.append(buffers[index].permute([order.index(axis) for axis in range(len(order))]))
        return Execution(tuple(results), len(plan.steps), seconds)


PLATFORM = TemplatePlatform()
