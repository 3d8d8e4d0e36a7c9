"""Scheduled TIR functions -> a shared library.

Four fifths of the time that ``tvm.compile`` takes on a small function go into what no kernel here needs: TVM 0.27 wraps
every function into 200-900 lines of LLVM IR that check the type, rank, shape, strides, device and alignment of each
argument and word an error for each, optimises that at level 3, and runs two dozen passes for GPUs.  Here

* kernels take bare pointers; the executor, which allocates all buffers but the arguments, checks those itself;
* only the passes run that a CPU schedule of ours can need;
* small kernels are generated at level 0: five times faster to compile, and no slower than calling them is.

Measured on one core: addition 70 -> 12 ms, attention of 37 tokens 460 -> 150 ms.
"""

from __future__ import annotations

import platform as host
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import tvm
from tvm import s_tir, tirx
from tvm.ir import PointerType, PrimType

from tapml.errors import CompileError
from tapml.kernels.fuse import without_offsets

LIBRARY = "kernels.so"
OBJECT = "kernels.o"
"""In place of the library for a machine that nothing here links for: it has to do that itself."""
_SMALL = 1 << 15
"""Innermost iterations up to which a kernel is generated at level 0 (some 0.1 ms of execution there)."""
_OPT_LEVEL = 2
"""Level 3 unrolls a reduction of 37 terms completely: twice the time to compile, for 2 % of its execution time."""


def compile_functions(functions: dict[str, tirx.PrimFunc], target: tvm.target.Target) -> bytes:
    """The shared library with a function of ``pointers -> None`` for each of ``functions``.

    Raises :class:`CompileError` with LLVM's or the linker's words.
    """
    return _link(_generate(functions, target, _take_pointers), _linker())


def export_functions(functions: dict[str, tirx.PrimFunc], target: tvm.target.Target) -> dict[str, bytes]:
    """The same for another machine: functions of ``tensors -> None``, as pointers mean nothing from here to there.

    One file: :data:`LIBRARY` where there is a linker for the target, else :data:`OBJECT`.
    """
    compiled = _generate(functions, target, without_offsets)
    linker = linker_for(str(target.export()["mtriple"]))
    if linker is not None:
        return {LIBRARY: _link(compiled, linker)}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, OBJECT)
        compiled.write_to_file(str(path), "o")
        return {OBJECT: path.read_bytes()}


def _generate(
    functions: dict[str, tirx.PrimFunc], target: tvm.target.Target, take: Callable[[tirx.PrimFunc], tirx.PrimFunc]
) -> tvm.runtime.Module:
    try:
        module = _before()(tirx.transform.BindTarget(target.with_host(target))(tvm.IRModule(functions)))
        small = sum(_iterations(f.body, 1) for f in module.functions.values()) <= _SMALL
        module = _after()(tvm.IRModule({symbol: take(f) for symbol, f in module.functions.items()}))
        final = tvm.target.Target({**target.export(), "opt-level": 0 if small else _OPT_LEVEL})
        return tvm.get_global_func("target.build.llvm")(module, final)
    except Exception as error:
        lines = [line for line in str(error).splitlines() if line.strip()]
        raise CompileError(f"LLVM: {type(error).__name__}: {lines[-1].strip() if lines else ''}"[:400]) from error


@lru_cache(maxsize=None)
def _before() -> tvm.transform.Pass:
    """Blocks -> loops over flat buffers: those passes of ``tvm.s_tir.pipeline`` that a CPU needs."""
    s, t = s_tir.transform, tirx.transform
    return tvm.transform.Sequential(
        [
            s.CanonicalizeLoop(),
            s.LowerInitBlock(),
            s.PlanAndUpdateBufferAllocationLocation(),
            s.ConvertBlocksToOpaque(),
            s.CompactBufferAllocation(),
            s.LowerMatchBuffer(),
            s.LowerOpaqueBlock(),
            t.FlattenBuffer(),
            t.BF16ComputeLegalize(),
            t.NarrowDataType(32),
            s.LoopPartition(),  # of those loops that a schedule has marked
            t.VectorizeLoop(True),
            t.StorageRewrite(),
            t.UnrollLoop(),
            t.StmtSimplify(),
            t.RemoveNoOp(),
            s.RewriteUnsafeSelect(),
            t.FP8ComputeLegalize(),
            t.AnnotateEntryFunc(),
        ]
    )


@lru_cache(maxsize=None)
def _after() -> tvm.transform.Pass:
    """Functions of pointers -> functions that TVM's FFI can call."""
    t = tirx.transform
    return tvm.transform.Sequential(
        [
            t.SplitHostDevice(),
            t.MakePackedAPI(),
            t.SkipAssert(),
            t.FP8StorageLegalize(),
            t.BF16StorageLegalize(),
            t.CommonSubexprElim(),
            t.LowerTVMBuiltin(),
            t.LowerIntrin(),
        ]
    )


def _take_pointers(function: tirx.PrimFunc) -> tirx.PrimFunc:
    """The function with a pointer in place of each buffer parameter, to the buffer's first element."""
    function = without_offsets(function)
    pointers, views = [], []
    for buffer in function.params:
        pointer = tirx.Var(f"{buffer.name}_data", PointerType(PrimType(str(buffer.ty.dtype)), "global"))
        pointers.append(pointer)
        views.append(tirx.DeclBuffer(buffer, data=pointer))
    body = function.body
    for key, value in (("device_type", 1), ("device_id", 0)):  # large temporaries are allocated on this device
        body = tirx.AttrStmt(tvm.ir.StringImm("default"), key, tirx.const(value, "int32"), body)
    return tirx.PrimFunc(pointers, tirx.SeqStmt([*views, body]), function.ret_type, function.attrs)


def _iterations(statement: Any, repeated: int) -> int:
    """How often innermost statements are executed, given that ``statement`` is ``repeated`` times."""
    if isinstance(statement, tirx.For):
        times = int(statement.extent.value) if isinstance(statement.extent, tirx.IntImm) else _SMALL
        return _iterations(statement.body, repeated * times)
    if isinstance(statement, tirx.SeqStmt):
        return sum(_iterations(part, repeated) for part in statement.seq)
    if isinstance(statement, tirx.IfThenElse):
        branches = (statement.then_case, statement.else_case)
        return sum(_iterations(branch, repeated) for branch in branches if branch is not None)
    if isinstance(statement, tirx.While):
        return repeated * _SMALL
    return _iterations(statement.body, repeated) if isinstance(statement, tirx.AttrStmt) else repeated


def _link(compiled: tvm.runtime.Module, linker: str) -> bytes:
    """Object code of a compiled module, linked into a shared library (5 ms with ``ld``)."""
    with tempfile.TemporaryDirectory() as folder:
        source, out = Path(folder, "kernels.o"), Path(folder, LIBRARY)
        compiled.write_to_file(str(source), "o")
        done = subprocess.run([linker, "-shared", "-o", out, source], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise CompileError(f"{linker} failed: {done.stderr.strip()[:300]}")
        return out.read_bytes()


@lru_cache(maxsize=None)
def _linker() -> str:
    linker = shutil.which("ld") or shutil.which("cc") or shutil.which("clang")
    if linker is None:
        raise CompileError(
            "expected a linker (ld, cc or clang) on the PATH, found none", hint="apt-get install binutils"
        )
    return linker


def linker_for(triple: str) -> str | None:
    """A linker here that makes shared libraries for another machine; ``None`` when there is none."""
    machine, _, system = triple.partition("-")
    if machine == host.machine() and "linux" in system and "android" not in system and sys.platform == "linux":
        return _linker()
    elf = "linux" in system or "android" in system
    return shutil.which("ld.lld") if elf else None
