"""Scheduled TIR functions -> device functions and their launches -> source text.

The module is captured where TVM has split host from device code.  What is left on the host has to be a straight line of
launches: anything else would be a part of the operator that runs on the host.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import tvm
import tvm_ffi
from tvm import s_tir, tirx
from tvm.s_tir.schedule import ScheduleError

from tapml.errors import CompileError
from tapml.kernels.dialect import Dialect
from tapml.kernels.fuse import without_offsets
from tapml.kernels.gpu_schedule import Threads, schedule
from tapml.kernels.launches import expand
from tapml.kernels.legalise.floats import keep_casts_of_bfloat16, keep_special_values
from tapml.kernels.legalise.functions import call_own_functions, rename_reserved
from tapml.kernels.legalise.literals import name_literals
from tapml.kernels.legalise.loads import load_unconditionally
from tapml.kernels.legalise.reductions import from_known_reductions, to_known_reductions
from tapml.kernels.legalise.retype import memory_dtype, require_narrow_constants, retype
from tapml.kernels.legalise.scopes import local_temporaries, outermost_shared
from tapml.kernels.legalise.selections import select_in_32_bits
from tapml.kernels.mathlib.functions import FUNCTIONS, arity, called
from tapml.kernels.mathlib.text import Library
from tapml.kernels.own_schedule import OwnSchedule
from tapml.kernels.plan import Kernel, Plan


def generate(
    functions: dict[str, tirx.PrimFunc],
    plan: Plan,
    dialect: Dialect,
    target: tvm.target.Target,
    threads: Threads,
    own: OwnSchedule | None = None,
) -> tuple[Plan, dict[str, bytes]]:
    """Schedule, lower and write the functions that a plan calls; the plan of their launches, and source files by name.

    ``own``: the user's schedule, which comes first.

    Raises :class:`CompileError` with TVM's words, :class:`UnsupportedError` for what the dialect cannot express or what
    would run on the host, and whatever the user's schedule raises.
    """
    for function in functions.values():
        require_narrow_constants(function, dialect)
    prepared, finite = to_known_reductions({n: without_offsets(f) for n, f in functions.items()})
    if own is not None:
        prepared = {n: own.apply(f, target) for n, f in prepared.items()}
    try:
        scheduled = {n: schedule(f, threads).with_attr("global_symbol", n) for n, f in prepared.items()}
    except ScheduleError as error:
        raise CompileError(_words(error)) from error
    code = split(scheduled, target)
    kernels, files = {}, {}
    for name, function in code.device.items():
        kernel, source = emit(name, from_known_reductions(function) if finite else function, dialect, target)
        kernels[name] = kernel
        files[kernel.file] = source.encode()
    return expand(plan, code.host, kernels), files


@dataclass(frozen=True)
class DeviceCode:
    """Functions split by side.  ``host``: by the symbol that a plan calls; ``device``: by the kernel's name."""

    host: dict[str, tirx.PrimFunc]
    device: dict[str, tirx.PrimFunc]


def split(functions: dict[str, tirx.PrimFunc], target: tvm.target.Target) -> DeviceCode:
    """Lower scheduled functions and split them.

    Raises :class:`CompileError` with TVM's words, also when memory of the device is used on the host.
    """
    host = tvm.target.Target("llvm")
    try:
        module = tirx.transform.BindTarget(target.with_host(host))(tvm.IRModule(functions))
        module = _passes()(module)
    except Exception as error:
        raise CompileError(_words(error)) from error
    found = DeviceCode({}, {})
    for symbol, function in module.functions.items():
        on_device = "tirx.kernel_launch_params" in (function.attrs or {})
        (found.device if on_device else found.host)[symbol.name_hint] = function
    return found


@lru_cache(maxsize=None)
def _passes() -> tvm.transform.Pass:
    """TVM's ``tvm.s_tir.pipeline`` up to ``SplitHostDevice``, without what is for hardware that is not meant here, and
    without ``StorageRewrite``, which would make a kernel read and write one buffer under two names."""
    s, t = s_tir.transform, tirx.transform
    return tvm.transform.Sequential(
        [
            s.CanonicalizeLoop(),
            s.LowerCrossThreadReduction(),
            s.LowerInitBlock(),
            s.PlanAndUpdateBufferAllocationLocation(),
            s.ConvertBlocksToOpaque(),
            s.LiftThreadBinding(),
            s.CompactBufferAllocation(),
            s.LowerAutoCopy(),
            s.UnifyThreadBinding(),
            s.LowerMatchBuffer(),
            s.LowerOpaqueBlock(),
            t.StmtSimplify(),
            tirx.transform.prim_func_pass(_single_elements, opt_level=0),
            t.FlattenBuffer(),
            t.BF16ComputeLegalize(),
            t.NarrowDataType(32),
            t.VectorizeLoop(True),
            s.InjectVirtualThread(),
            t.UnrollLoop(),
            t.StmtSimplify(),
            t.RemoveNoOp(),
            s.RewriteUnsafeSelect(),
            t.CommonSubexprElim(),
            t.VerifyMemory(),
            t.AnnotateEntryFunc(),
            s.ThreadSync("shared"),
            s.ThreadSync("shared.dyn"),
            s.ThreadSync("warp"),
            s.InferFragment(),
            s.LowerThreadAllreduce(),
            s.MergeSharedMemoryAllocations(),
            t.SplitHostDevice(),
        ]
    )


def _single_elements(function: tirx.PrimFunc, module: Any, context: Any) -> tirx.PrimFunc:
    """Arrays of one element are indexed by zeros: TVM 0.27 leaves differences there, and divides by zero over some."""

    def zeros(shape: Any, indices: Any) -> list[Any] | None:
        ones = all(isinstance(extent, tirx.IntImm) and int(extent) == 1 for extent in shape)
        return [tirx.const(0, str(i.ty.dtype)) for i in indices] if ones else None

    def load(node: Any) -> Any:
        found = zeros(node.source.ty.shape, node.indices)
        return node if found is None else tirx.BufferLoad(node.source, found)

    def store(node: Any) -> Any:
        found = zeros(node.buffer.ty.shape, node.indices)
        return node if found is None else tirx.BufferStore(node.buffer, node.value, found)

    return tvm_ffi.structural_map(function, ((tvm.ir.TensorLoad, load), (tirx.BufferStore, store)))


@lru_cache(maxsize=None)
def _finish() -> tvm.transform.Pass:
    t = tirx.transform
    return tvm.transform.Sequential([t.LowerWarpMemory(), t.StmtSimplify(), t.LowerIntrin()])


_PLAIN = tvm.target.Target("opencl")


def _without_bfloat16(symbol: tvm.ir.GlobalVar, function: tirx.PrimFunc) -> tirx.PrimFunc:
    """The function on bits of bfloat16 instead; for CUDA too, where TVM would keep it if the target were known."""
    own, t = function.attrs["target"], tirx.transform
    function = t.BF16ComputeLegalize()(tvm.IRModule({symbol: function.with_attr("target", _PLAIN)}))[symbol]
    function = t.BF16StorageLegalize()(tvm.IRModule({symbol: keep_casts_of_bfloat16(function)}))[symbol]
    return function.with_attr("target", own)


def emit(name: str, function: tirx.PrimFunc, dialect: Dialect, target: tvm.target.Target) -> tuple[Kernel, str]:
    """A device function as a kernel and its source text.

    Raises :class:`UnsupportedError` for what the language cannot express, :class:`CompileError` with TVM's words.
    """
    symbol = tvm.ir.GlobalVar(name)
    function = _without_bfloat16(symbol, function)
    pointers = tuple(str(p.ty.element_type.dtype) for p in function.params if _is_pointer(p))
    scalars = tuple(str(p.ty.dtype) for p in function.params if not _is_pointer(p))
    function = rename_reserved(retype(outermost_shared(local_temporaries(function)), dialect), dialect)
    function = keep_special_values(function, dialect)
    function, used = call_own_functions(function, dialect)
    try:
        module = _finish()(tvm.IRModule({symbol: function}))
        function = module[symbol]
        if not dialect.conditional_loads:  # at the very end: TVM's simplifier would take the condition for granted
            function = load_unconditionally(function)
        if not dialect.narrow_select:
            function = select_in_32_bits(function)
        function, literals = name_literals(function)
        module = tvm.IRModule({symbol: function})
        built = tvm.get_global_func(f"target.build.{dialect.kind}")(module, target)
        source = _source_of(built, name, (*dialect.repairs, *literals.items()))
    except Exception as error:
        raise CompileError(_words(error)) from error
    kernel = Kernel(
        name,
        f"{name}.{dialect.suffix}",
        tuple(memory_dtype(d, dialect) for d in pointers),
        _written(function),
        scalars,
        declared=_shared_bytes(function),
        iterations=iterations(function.body),
    )
    return kernel, _with_library(source, used, dialect)


def _words(error: Exception) -> str:
    """The last line of what TVM says."""
    lines = [line for line in str(error).splitlines() if line.strip()]
    return f"TVM: {type(error).__name__}: {lines[-1].strip() if lines else ''}"[:400]


def _source_of(built: Any, name: str, repairs: tuple[tuple[str, str], ...]) -> str:
    """The text of one kernel."""
    text = str(built.inspect_source())
    for wrong, right in repairs:
        text = text.replace(wrong, right)
    if not text.strip():
        raise CompileError(f"no source for kernel {name}")
    return text


def iterations(node: Any) -> int:
    """Loop iterations that one thread goes through at most, of all loops together; loops without end count as none."""
    if isinstance(node, tirx.For) and node.kind != tirx.ForKind.THREAD_BINDING:
        extent = int(node.extent) if isinstance(node.extent, tirx.IntImm) else 0
        return extent + max(extent, 1) * iterations(node.body)
    if isinstance(node, tirx.SeqStmt):
        return sum(iterations(part) for part in node.seq)
    if isinstance(node, tirx.IfThenElse):
        return max(iterations(b) for b in (node.then_case, node.else_case) if b is not None)
    body = getattr(node, "body", None)
    return iterations(body) if body is not None else 0


def _shared_bytes(function: tirx.PrimFunc) -> int:
    """Bytes of shared memory that a device function declares."""
    found: list[int] = []

    def visit(node: Any) -> None:
        type_ = node.buffer.ty
        if type_.storage_scope == "shared":
            found.append(math.prod(int(d) for d in type_.shape) * max(tvm.DataType(str(type_.dtype)).bits // 8, 1))

    tvm_ffi.structural_walk(function.body, (tirx.AllocBuffer, visit))
    return sum(found)


_DIRECTIVES = ("enable ", "requires ", "#", "using ")
"""What a source file begins with, before any function."""


def _with_library(source: str, used: tuple[str, ...], dialect: Dialect) -> str:
    if not used:
        return source
    library = Library(dialect.syntax)
    for operation in used:
        library.require(called(operation), FUNCTIONS[operation], arity(operation))
    lines = source.splitlines(keepends=True)
    at = next((i + 1 for i in reversed(range(len(lines))) if lines[i].startswith(_DIRECTIVES)), 0)
    return f"{''.join(lines[:at])}\n{library.source()}\n{''.join(lines[at:])}"


def _is_pointer(parameter: Any) -> bool:
    return isinstance(parameter.ty, tvm.ir.PointerType)


def _written(function: tirx.PrimFunc) -> tuple[bool, ...]:
    """For each pointer parameter, whether it is stored to."""
    declared: list[tuple[Any, Any]] = []
    stored: list[Any] = []

    def visit_call(call: Any) -> None:
        """Intrinsics that take a pointer to write to (matrix units, atomics)."""
        if getattr(call.op, "name", "").endswith(_WRITING):
            tvm_ffi.structural_walk(call, (tvm.ir.Var, stored.append))

    tvm_ffi.structural_walk(function.body, (tirx.DeclBuffer, lambda n: declared.append((n.buffer, n.data))))
    tvm_ffi.structural_walk(function.body, (tirx.BufferStore, lambda n: stored.append(n.buffer)))
    tvm_ffi.structural_walk(function.body, (tvm.ir.Call, visit_call))
    pointers = [data for buffer, data in declared if any(buffer.same_as(s) for s in stored)] + stored
    return tuple(any(p.same_as(w) for w in pointers) for p in function.params if _is_pointer(p))


_WRITING = ("store", "tvm_access_ptr", "address_of", "store_matrix_sync")
