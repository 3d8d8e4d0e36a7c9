"""Calls of elementary functions that a dialect writes itself, and names that it has already."""

from __future__ import annotations

from typing import Any

import tvm
import tvm_ffi
from tvm import tirx

from tapml.kernels.dialect import Dialect
from tapml.kernels.mathlib.functions import FUNCTIONS, called


def call_own_functions(function: tirx.PrimFunc, dialect: Dialect) -> tuple[tirx.PrimFunc, tuple[str, ...]]:
    """The function with calls of the library in place of operations; and which operations those are."""
    used: dict[str, None] = {}

    def replace(node: Any) -> Any:
        name = getattr(node.op, "name", "")
        dtype = str(node.ty.dtype) if name in dialect.functions else ""
        if name not in FUNCTIONS or dtype not in ("float32", "float16"):
            return node
        used[name] = None
        arguments = [a if str(a.ty.dtype) == "float32" else tirx.Cast("float32", a) for a in node.args]
        value = tirx.call_pure_extern("float32", called(name), *arguments)
        return value if dtype == "float32" else tirx.Cast(dtype, value)

    return tvm_ffi.structural_map(function, (tvm.ir.Call, replace)), tuple(used)


def rename_reserved(function: tirx.PrimFunc, dialect: Dialect) -> tirx.PrimFunc:
    """The function without a variable that is called like a word of the language."""
    renamed: list[tuple[Any, Any]] = []

    def rename(var: Any, mutator: Any) -> Any:
        if var.name not in dialect.reserved:
            return mutator.default_mutate(var)
        for before, after in renamed:
            if before.same_as(var):
                return after
        changed = mutator.default_mutate(var)
        after = tirx.Var(f"{var.name}_", changed.ty)
        renamed.append((var, after))
        return after

    return tvm_ffi.structural_mutate(function, (tvm.ir.Var, rename))
