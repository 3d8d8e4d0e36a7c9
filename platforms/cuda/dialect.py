"""CUDA C++, as TVM's code generator writes it."""

from __future__ import annotations

from tapml.kernels.dialect import VALUES, Dialect
from tapml.kernels.mathlib.text import CUDA

_RESERVED = """
    alignas alignof and asm auto bool break case catch char class const constexpr continue decltype default delete do
    double else enum explicit export extern false float for friend goto if inline int long mutable namespace new noexcept
    not nullptr operator or private protected public register restrict return short signed sizeof static struct switch
    template this throw true try typedef typeid typename union unsigned using virtual void volatile wchar_t while xor half
    nv_bfloat16 warpSize threadIdx blockIdx blockDim gridDim dim3
"""

DIALECT = Dialect(
    kind="cuda",
    suffix="cu",
    values=VALUES,
    memory=VALUES - {"bool"},
    syntax=CUDA,
    reserved=frozenset(_RESERVED.split()),
)
