// Metal's types and functions in C++ for OpenCL, for checking only: nothing here is ever executed. Pointers have address
// spaces as in Metal (`constant` and `kernel` are words of both languages); what Metal lacks is left out. To be compiled
// with -cl-no-stdinc, or OpenCL's own functions would pass for Metal's.
#pragma OPENCL EXTENSION cl_khr_fp16 : enable

#define device __global
#define threadgroup __local
#define thread __private
#define INFINITY __builtin_inff()
#define NAN __builtin_nanf("")

typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned int uint;
typedef unsigned long ulong;
typedef long ptrdiff_t;
typedef unsigned long size_t;

// A vector is made by what looks like a call; the macros leave other uses of the names alone.
#define MSL_VECTOR(T, N)                                                                       \
  typedef T T##N __attribute__((ext_vector_type(N)));                                          \
  typedef T packed_##T##N __attribute__((ext_vector_type(N)));                                 \
  inline T##N msl_##T##N(T all) { return (T##N)(all); }                                        \
  template <class V> inline T##N msl_##T##N(V v) { return __builtin_convertvector(v, T##N); }
#define MSL_VECTORS(T)                                                          \
  MSL_VECTOR(T, 2) MSL_VECTOR(T, 3) MSL_VECTOR(T, 4)                            \
  inline T##2 msl_##T##2(T a, T b) { return (T##2)(a, b); }                     \
  inline T##3 msl_##T##3(T a, T b, T c) { return (T##3)(a, b, c); }             \
  inline T##4 msl_##T##4(T a, T b, T c, T d) { return (T##4)(a, b, c, d); }     \
  inline T##4 msl_##T##4(T##2 a, T##2 b) { return (T##4)(a, b); }
MSL_VECTORS(char) MSL_VECTORS(uchar) MSL_VECTORS(short) MSL_VECTORS(ushort) MSL_VECTORS(int) MSL_VECTORS(uint)
MSL_VECTORS(long) MSL_VECTORS(ulong) MSL_VECTORS(float) MSL_VECTORS(half)
#define char2(...) msl_char2(__VA_ARGS__)
#define char3(...) msl_char3(__VA_ARGS__)
#define char4(...) msl_char4(__VA_ARGS__)
#define uchar2(...) msl_uchar2(__VA_ARGS__)
#define uchar3(...) msl_uchar3(__VA_ARGS__)
#define uchar4(...) msl_uchar4(__VA_ARGS__)
#define short2(...) msl_short2(__VA_ARGS__)
#define short3(...) msl_short3(__VA_ARGS__)
#define short4(...) msl_short4(__VA_ARGS__)
#define ushort2(...) msl_ushort2(__VA_ARGS__)
#define ushort3(...) msl_ushort3(__VA_ARGS__)
#define ushort4(...) msl_ushort4(__VA_ARGS__)
#define int2(...) msl_int2(__VA_ARGS__)
#define int3(...) msl_int3(__VA_ARGS__)
#define int4(...) msl_int4(__VA_ARGS__)
#define uint2(...) msl_uint2(__VA_ARGS__)
#define uint3(...) msl_uint3(__VA_ARGS__)
#define uint4(...) msl_uint4(__VA_ARGS__)
#define long2(...) msl_long2(__VA_ARGS__)
#define long3(...) msl_long3(__VA_ARGS__)
#define long4(...) msl_long4(__VA_ARGS__)
#define ulong2(...) msl_ulong2(__VA_ARGS__)
#define ulong3(...) msl_ulong3(__VA_ARGS__)
#define ulong4(...) msl_ulong4(__VA_ARGS__)
#define float2(...) msl_float2(__VA_ARGS__)
#define float3(...) msl_float3(__VA_ARGS__)
#define float4(...) msl_float4(__VA_ARGS__)
#define half2(...) msl_half2(__VA_ARGS__)
#define half3(...) msl_half3(__VA_ARGS__)
#define half4(...) msl_half4(__VA_ARGS__)

template <class T, class F> T as_type(F value) {
  static_assert(sizeof(T) == sizeof(F), "as_type between types of different size");
  return __builtin_bit_cast(T, value);
}

namespace metal {

#define MSL_ALL(F, T) F(T) F(T##2) F(T##3) F(T##4)
#define MSL_FLOATS(F) MSL_ALL(F, float) MSL_ALL(F, half)
#define MSL_INTEGERS(F)                                                                              \
  MSL_ALL(F, char) MSL_ALL(F, uchar) MSL_ALL(F, short) MSL_ALL(F, ushort) MSL_ALL(F, int) MSL_ALL(F, uint) \
  MSL_ALL(F, long) MSL_ALL(F, ulong)
#define MSL_MATH(T)                                                                                       \
  T acos(T); T acosh(T); T asin(T); T asinh(T); T atan(T); T atan2(T, T); T atanh(T); T ceil(T);          \
  T copysign(T, T); T cos(T); T cosh(T); T cospi(T); T divide(T, T); T exp(T); T exp2(T); T exp10(T);     \
  T fabs(T); T fdim(T, T); T floor(T); T fma(T, T, T); T fmax(T, T); T fmin(T, T); T fmod(T, T); T fract(T); \
  T log(T); T log2(T); T log10(T); T pow(T, T); T powr(T, T); T rint(T); T round(T); T rsqrt(T); T sin(T); \
  T sinh(T); T sinpi(T); T sqrt(T); T tan(T); T tanh(T); T tanpi(T); T trunc(T); T mix(T, T, T);          \
  T saturate(T); T sign(T); T step(T, T); T smoothstep(T, T, T);
MSL_FLOATS(MSL_MATH)
#define MSL_COMMON(T) T abs(T); T max(T, T); T min(T, T); T clamp(T, T, T);
MSL_FLOATS(MSL_COMMON) MSL_INTEGERS(MSL_COMMON)
#define MSL_BITS(T) T popcount(T); T clz(T); T ctz(T); T rotate(T, T); T mulhi(T, T);
MSL_INTEGERS(MSL_BITS)
#define MSL_SCALAR(T) T select(T, T, bool);
MSL_SCALAR(bool) MSL_SCALAR(char) MSL_SCALAR(uchar) MSL_SCALAR(short) MSL_SCALAR(ushort) MSL_SCALAR(int)
MSL_SCALAR(uint) MSL_SCALAR(long) MSL_SCALAR(ulong) MSL_SCALAR(float) MSL_SCALAR(half)
#define MSL_SELECT(T, B) T##2 select(T##2, T##2, B##2); T##3 select(T##3, T##3, B##3); T##4 select(T##4, T##4, B##4);
MSL_SELECT(char, char) MSL_SELECT(uchar, char) MSL_SELECT(short, short) MSL_SELECT(ushort, short)
MSL_SELECT(half, short) MSL_SELECT(int, int) MSL_SELECT(uint, int) MSL_SELECT(float, int) MSL_SELECT(long, long)
MSL_SELECT(ulong, long)
bool isnan(float);
bool isnan(half);
bool isinf(float);
bool isinf(half);
bool isfinite(float);
bool isfinite(half);

enum class mem_flags { mem_none, mem_device, mem_threadgroup, mem_texture };
void threadgroup_barrier(mem_flags);
void simdgroup_barrier(mem_flags);
template <class T> T simd_shuffle(T, ushort);
template <class T> T simd_shuffle_up(T, ushort);
template <class T> T simd_shuffle_down(T, ushort);
template <class T> T simd_shuffle_xor(T, ushort);
template <class T> T simd_broadcast(T, ushort);
template <class T> T simd_sum(T);
template <class T> T simd_max(T);
template <class T> T simd_min(T);

template <class T, int Columns, int Rows> struct simdgroup_matrix {
  T elements[2];
};
typedef simdgroup_matrix<float, 8, 8> simdgroup_float8x8;
typedef simdgroup_matrix<half, 8, 8> simdgroup_half8x8;
template <class T, int C, int R> simdgroup_matrix<T, C, R> make_filled_simdgroup_matrix(T value);
#define MSL_MATRIX(space)                                                                             \
  template <class T, int C, int R>                                                                    \
  void simdgroup_load(thread simdgroup_matrix<T, C, R>&, const space T*, ulong = C, ulong2 = (ulong2)(0), bool = false); \
  template <class T, int C, int R>                                                                    \
  void simdgroup_store(thread const simdgroup_matrix<T, C, R>&, space T*, ulong = C, ulong2 = (ulong2)(0), bool = false);
MSL_MATRIX(device) MSL_MATRIX(threadgroup)
template <class D, class A, class B>
void simdgroup_multiply_accumulate(thread simdgroup_matrix<D, 8, 8>&, thread const simdgroup_matrix<A, 8, 8>&,
                                   thread const simdgroup_matrix<B, 8, 8>&, thread const simdgroup_matrix<D, 8, 8>&);

}  // namespace metal
