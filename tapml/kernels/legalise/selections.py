"""Selections between integers that are narrower than a language's ``int``."""

from __future__ import annotations

from typing import Any

import tvm_ffi
from tvm import tirx

_NARROW = ("int8", "uint8", "int16", "uint16")


def select_in_32_bits(function: tirx.PrimFunc) -> tirx.PrimFunc:
    """Selections between integers of 8 and 16 bits made of 32.

    TVM 0.27 writes ``select(b, a - 1, c)`` for Metal and OpenCL, where ``a - 1`` is an ``int`` and ``b`` a ``char``: the
    call is ambiguous.
    """

    def widened(node: Any) -> Any:
        dtype = str(node.ty.dtype)
        if dtype not in _NARROW:
            return node
        wide = [tirx.Cast("int32", value) for value in (node.true_value, node.false_value)]
        return tirx.Cast(dtype, tirx.Select(node.condition, *wide))

    return tvm_ffi.structural_map(function, (tirx.Select, widened))
