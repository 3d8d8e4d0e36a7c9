"""Metal's shading language, as TVM's code generator writes it."""

from __future__ import annotations

from tapml.kernels.dialect import VALUES, Dialect
from tapml.kernels.mathlib.text import METAL

_RESERVED = """
    alignas alignof and asm auto bool break case catch char class const constexpr continue decltype default delete do
    double else enum explicit extern false float for friend goto if inline int long mutable namespace new not operator or
    private protected public register return short signed sizeof static struct switch template this throw true try typedef
    typename union unsigned using virtual void volatile while half uchar ushort uint ulong bfloat kernel vertex fragment
    device constant thread threadgroup threadgroup_imageblock ray_data object_data metal simd quad atomic_int atomic_uint
    texture sampler visible stitchable buffer size_t ptrdiff_t blockIdx threadIdx arg
"""
"""Key words of C++14 and those that Metal adds (Metal Shading Language Specification, 1.4), and names that TVM uses."""

_VALUES = VALUES - {"float64"}
_MISSING = ("erf", "log1p", "tan", "asin", "acos", "atan", "atan2", "asinh", "acosh")
"""MSL has no erf and no log1p; of the others TVM 0.27 writes C's names (``atanf``), which it does not have either."""
_FAST = ("tanh", "pow")
"""TVM compiles with fast math, in which tanh is NaN beyond 44, and pow for a negative base."""
DIALECT = Dialect(
    kind="metal",
    suffix="metal",
    values=_VALUES,
    memory=_VALUES - {"bool"},
    syntax=METAL,
    functions=frozenset(f"tirx.{name}" for name in (*_MISSING, *_FAST)),
    reserved=frozenset(_RESERVED.split()),
    narrow_select=False,
    repairs=(("nearbyint(", "rint("),),
)
