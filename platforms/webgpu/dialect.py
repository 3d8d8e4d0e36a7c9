"""WGSL, as TVM's code generator writes it."""

from __future__ import annotations

from tapml.kernels.dialect import Dialect
from tapml.kernels.mathlib.functions import FUNCTIONS
from tapml.kernels.mathlib.text import WGSL

_RESERVED = """
    alias break case const const_assert continue continuing default diagnostic discard else enable false fn for if
    let loop override requires return struct switch true var while array atomic bool f16 f32 i32 u32 mat2x2 mat2x3
    mat2x4 mat3x2 mat3x3 mat3x4 mat4x2 mat4x3 mat4x4 ptr sampler vec2 vec3 vec4 storage uniform workgroup private
    function read write read_write handle abs acos acosh all any asin asinh atan atan2 atanh ceil clamp cos cosh
    cross degrees distance dot exp exp2 floor fma fract frexp length log log2 max min mix modf normalize pow
    quantizeToF16 radians reflect refract round saturate select sign sin sinh smoothstep sqrt step tan tanh
    transpose trunc bitcast NULL Self abstract active alignas alignof as asm asm_fragment async attribute auto await
    become binding_array cast catch class co_await co_return co_yield coherent column_major common compile
    compile_fragment concept const_cast consteval constexpr constinit crate debugger decltype delete demote
    demote_to_helper do dynamic_cast enum explicit export extends extern external fallthrough filter final finally
    friend from fxgroup get goto groupshared highp impl implements import inline instanceof interface layout lowp
    macro macro_rules match mediump meta mod module move mut mutable namespace new nil noexcept noinline
    nointerpolation noperspective null nullptr of operator package packoffset partition pass patch pixelfragment
    precise precision premerge priv protected pub public readonly ref regardless register reinterpret_cast require
    resource restrict self set shared sizeof smooth snorm static static_assert static_cast std subroutine super
    target template this thread_local throw trait try type typedef typeid typename typeof union unless unorm unsafe
    unsized use using varying virtual volatile wgsl where with writeonly yield podArgs blockIdx gridDim threadIdx
    condval special_bits
"""
"""Key words, reserved words and predeclared functions (https://www.w3.org/TR/WGSL/#reserved-words), and names that TVM uses."""

DIALECT = Dialect(
    kind="webgpu",
    suffix="wgsl",
    values=frozenset({"bool", "int32", "uint32", "float32", "float16"}),
    memory=frozenset({"int32", "uint32", "float32", "float16"}),
    syntax=WGSL,
    functions=frozenset(FUNCTIONS),
    reserved=frozenset(_RESERVED.split()),
    non_finite_literals=False,
    repairs=(("-2147483648i", "i32(-2147483648)"),),
)
