"""A lowered module -> TIR functions only, merged into a single one where TVM can.

An ATen operator becomes several Relax operators (reading its arguments, the operation, rounding the results).  Merged, they
are one function, whose schedule then decides what is a kernel of its own.
"""

from __future__ import annotations

import tvm
import tvm_ffi
from tvm import relax, tirx

from tapml.errors import CompileError

NAME = "kernel"
"""Global symbol of the merged function."""


def to_tir(module: tvm.IRModule, target: tvm.target.Target, *, merge: bool = True) -> tvm.IRModule:
    """Legalise every Relax operator to TIR; ``kernel`` becomes one merged TIR function called by ``main``, if ``merge``.

    When TVM cannot merge the functions (they call out of TIR), ``main`` calls them one by one instead.  Raises
    :class:`CompileError` when an operator has no TIR.
    """
    try:
        with target:
            legal = relax.transform.LegalizeOps()(relax.backend.DispatchSortScan()(module))
    except Exception as error:
        raise CompileError(f"no TIR for this module: {_first_line(error)}") from error
    plain = tvm.IRModule(dict(legal.functions.items()))
    plain["main"] = plain[NAME].with_attr("global_symbol", "main")
    del plain[NAME]
    if not merge:
        return relax.transform.DeadCodeElimination(["main"])(plain)
    try:
        with target:
            merged = relax.transform.FuseTIR()(_called_from_main(legal))
    except tvm.error.InternalError:  # TVM cannot merge functions that call out of TIR: several kernels then
        merged = plain
    return relax.transform.DeadCodeElimination(["main"])(merged)


def _called_from_main(module: tvm.IRModule) -> tvm.IRModule:
    symbol = module.get_global_var(NAME)
    function = module[NAME].with_attr("Primitive", True)
    module.update_func(symbol, function)
    parameters = [relax.Var(p.name, p.ty) for p in function.params]
    builder = relax.BlockBuilder(module)
    with builder.function("main", parameters):
        with builder.dataflow():
            value = builder.emit(relax.Call(symbol, parameters))
            value = builder.emit_output(value)
        builder.emit_func_output(value)
    return builder.get()


def without_offsets(function: tirx.PrimFunc) -> tirx.PrimFunc:
    """TE's extern operations leave room for an offset into each buffer; here buffers begin at their first element."""
    offsets = [b.ty.elem_offset for b in function.params if isinstance(b.ty.elem_offset, tvm.ir.Var)]
    if not offsets:
        return function
    zeros = (tvm.ir.Var, lambda v: tirx.const(0, str(v.ty.dtype)) if any(v.same_as(o) for o in offsets) else v)
    return tvm_ffi.structural_map(function, zeros)


def _first_line(error: Exception) -> str:
    lines = [line for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[-1].strip() if lines else ''}"[:300]
