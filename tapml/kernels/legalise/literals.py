"""Constants written with all their digits.

TVM 0.27 writes a float with seven digits; to tell a float32 from its neighbours takes nine, and a float64 seventeen.  So a
constant that seven do not suffice for becomes a call, whose text is then replaced.
"""

from __future__ import annotations

import math
from typing import Any

import numpy
import tvm_ffi
from tvm import tirx

_NAME = "tapml_literal_"
_SUFFIX = {"float32": "f", "float64": ""}


def name_literals(function: tirx.PrimFunc) -> tuple[tirx.PrimFunc, dict[str, str]]:
    """The function with calls in place of such constants; and what to write for the text of each call."""
    found: dict[str, str] = {}

    def replace(node: Any) -> Any:
        dtype, value = str(node.ty.dtype), float(node.value)
        if not math.isfinite(value):  # an infinity is a float32 in C, and a selection between it and a half ambiguous
            return tirx.Cast(dtype, tirx.FloatImm("float32", value)) if dtype == "float16" else node
        if dtype not in _SUFFIX:
            return node
        kind = numpy.dtype(dtype).type
        if kind(float(f"{value:.6e}")) == kind(value):
            return node
        shortest = float(str(kind(value)))  # the largest float32 is rounded up by that: Tint calls it too large
        exact = float(kind(value))
        text = repr(exact if abs(shortest) > float(numpy.finfo(kind).max) else shortest) + _SUFFIX[dtype]
        name = next((n for n, t in found.items() if t == text), f"{_NAME}{len(found)}")
        found[name] = text
        return tirx.call_pure_extern(dtype, name)

    function = tvm_ffi.structural_map(function, (tirx.FloatImm, replace))
    return function, {f"{name}()": text for name, text in found.items()}
