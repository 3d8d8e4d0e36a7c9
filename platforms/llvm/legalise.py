"""What LLVM code generation in TVM 0.27 gets wrong, put right in TIR."""

from __future__ import annotations

from typing import Any

import tvm
import tvm_ffi
from tvm import tirx

from tapml.kernels.legalise.floats import cast_out_of_bfloat16


def legalise(function: tirx.PrimFunc) -> tirx.PrimFunc:
    """Replace, wherever they came from:

    * float ``max`` and ``min``, which drop a NaN in one operand, by a selection that keeps it;
    * ``!=``, which is an *ordered* comparison of floats (false for a NaN) and an invalid instruction for bools;
    * casts out of bfloat16, which TVM leaves as casts of the *bits* where a value has a name (a reduction of pairs);
    * ``tanh``, a formula that loses 10 bits near zero, and ``fmod``, which has no rule at all, by the C library's;
    * the promise that buffers are aligned to 64 bytes, which a view into the middle of a tensor breaks (a segfault).
    """
    callbacks = (
        (tirx.Max, _max),
        (tirx.Min, _min),
        (tirx.NE, _not_equal),
        (tirx.Cast, cast_out_of_bfloat16),
        (tvm.ir.Call, _call),
        (tirx.BufferType, _unaligned),
    )
    return tvm_ffi.structural_map(function, callbacks)


def _is_float(value: Any) -> bool:
    return str(value.ty.dtype).startswith(("float", "bfloat"))


def _max(node: Any) -> Any:
    a, b = node.a, node.b
    return tirx.Select(tirx.Or(a > b, tirx.isnan(a)), a, b) if _is_float(a) else node


def _min(node: Any) -> Any:
    a, b = node.a, node.b
    return tirx.Select(tirx.Or(a < b, tirx.isnan(a)), a, b) if _is_float(a) else node


def _not_equal(node: Any) -> Any:
    a, b = node.a, node.b
    if str(a.ty.dtype) == "bool":
        return tirx.Or(tirx.And(a, tirx.Not(b)), tirx.And(tirx.Not(a), b))
    return tirx.Or(node, tirx.Or(tirx.isnan(a), tirx.isnan(b))) if _is_float(a) else node


_LIBM = {"tirx.tanh": "tanh", "tirx.fmod": "fmod"}
_SUFFIX = {"float32": "f", "float64": ""}


def _call(node: Any) -> Any:
    name = _LIBM.get(getattr(node.op, "name", ""), "")
    dtype = str(node.ty.dtype) if name else ""
    return tirx.call_pure_extern(dtype, name + _SUFFIX[dtype], *node.args) if dtype in _SUFFIX else node


def _unaligned(node: Any) -> Any:
    size = max(1, tvm.DataType(str(node.dtype)).bits // 8)
    return tirx.BufferType(
        node.dtype,
        node.storage_scope,
        node.shape,
        node.strides,
        node.elem_offset,
        size,
        node.offset_factor,
        node.layout,
        node.allocated_addr,
    )
