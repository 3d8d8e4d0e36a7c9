"""What a shading language can do: each GPU platform declares it, and legalisation meets it."""

from __future__ import annotations

from dataclasses import dataclass

from tapml.kernels.mathlib.text import Syntax

VALUES = frozenset(
    {
        "bool",
        "int8",
        "uint8",
        "int16",
        "uint16",
        "int32",
        "uint32",
        "int64",
        "uint64",
        "float16",
        "float32",
        "float64",
    }
)
"""The dtypes that arithmetic has in the descendants of C."""


@dataclass(frozen=True)
class Dialect:
    """A shading language as TVM emits it.

    ``kind``: TVM's name of the code generator; ``suffix``: of a source file.  ``values``: dtypes that arithmetic has;
    ``memory``: dtypes that arrays in device memory may have.  What is in neither is widened or narrowed, see
    :mod:`tapml.kernels.legalise.retype`.  ``functions``: TIR operations that are computed by functions of
    :mod:`tapml.kernels.mathlib`, spelled in ``syntax``, because the language lacks them or promises too little.
    ``reserved``: words that no variable may be called.  ``non_finite_literals``: whether infinity and NaN can be written
    as constants.  ``repairs``: text that TVM writes and the language refuses, and what to write instead.
    ``narrow_select``: whether a selection may be between integers of 8 or 16 bits, sums of which C++ makes wider.
    ``conditional_loads``: whether a condition may decide which of two buffers is loaded from.
    """

    kind: str
    suffix: str
    values: frozenset[str]
    memory: frozenset[str]
    syntax: Syntax
    functions: frozenset[str] = frozenset()
    reserved: frozenset[str] = frozenset()
    non_finite_literals: bool = True
    narrow_select: bool = True
    conditional_loads: bool = True
    repairs: tuple[tuple[str, str], ...] = ()
