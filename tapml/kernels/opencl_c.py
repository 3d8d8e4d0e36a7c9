"""OpenCL C, as TVM's code generator writes it: for OpenCL itself, and for Vulkan by way of SPIR-V."""

from __future__ import annotations

from tapml.kernels.dialect import VALUES, Dialect
from tapml.kernels.mathlib.functions import FUNCTIONS
from tapml.kernels.mathlib.text import OPENCL

_RESERVED = """
    auto break case char const continue default do double else enum extern float for goto if inline int long register
    restrict return short signed sizeof static struct switch typedef union unsigned void volatile while bool half uchar
    ushort uint ulong size_t ptrdiff_t intptr_t uintptr_t quad complex imaginary image1d_t image2d_t image3d_t sampler_t
    event_t global local constant private generic kernel read_only write_only read_write uniform pipe vec_type_hint
    reqd_work_group_size barrier mem_fence abs clamp max min mix step sign dot cross length distance normalize select
    exp log sin cos tan pow sqrt rsqrt floor ceil round trunc fabs fmod fma erf tanh vload vstore printf convert as
"""
"""Key words (OpenCL C 3.0, 6.1.9), and built-in functions that a variable would hide."""

DIALECT = Dialect(
    kind="opencl",
    suffix="cl",
    values=VALUES,
    memory=VALUES - {"bool"},
    syntax=OPENCL,
    functions=frozenset(FUNCTIONS),
    reserved=frozenset(_RESERVED.split()),
    narrow_select=False,
    # clspv (as in pyclspv 0.0.1) crashes over convert_double of an integer; the cast is the same
    repairs=(("convert_double(", "(double)("),),
)
