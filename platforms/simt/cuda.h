// CUDA's built-in types and functions, as far as TVM's sources use them. What CUDA lacks is not here either: the same
// source has to be refused here and there.
#pragma once
#include "prelude.h"

#define __CUDA_ARCH__ 800
#define __CUDACC_VER_MAJOR__ 12
#define __CUDACC_VER_MINOR__ 8
#define __device__
#define __host__
#define __forceinline__ inline
#define __align__(bytes)  // of types that the source defines: see the vectors of prelude.h
#define CUDART_INF_F __builtin_inff()
#define CUDART_NAN_F __builtin_nanf("")
#define CUDART_INF __builtin_inf()
#define CUDART_NAN __builtin_nan("")
#define blockDim (simt_self->blockDim)
#define gridDim (simt_self->gridDim)

using namespace simt_libm;
typedef half __half;
typedef long long simt_longlong;
typedef unsigned long long simt_ulonglong;
#define SIMT_CUDA_VECTORS(type, name)                                                                 \
  SIMT_VECTORS(type, name)                                                                            \
  typedef simt_vector<type, 1> name##1;                                                               \
  static inline name##2 make_##name##2(type x, type y) { return name##2(x, y); }                      \
  static inline name##3 make_##name##3(type x, type y, type z) { return name##3(x, y, z); }           \
  static inline name##4 make_##name##4(type x, type y, type z, type w) { return name##4(x, y, z, w); }
template <class T> struct simt_vector<T, 1> {
  T x;
};
SIMT_CUDA_VECTORS(signed char, char) SIMT_CUDA_VECTORS(unsigned char, uchar) SIMT_CUDA_VECTORS(short, short)
SIMT_CUDA_VECTORS(unsigned short, ushort) SIMT_CUDA_VECTORS(int, int) SIMT_CUDA_VECTORS(unsigned, uint)
SIMT_CUDA_VECTORS(long, long) SIMT_CUDA_VECTORS(unsigned long, ulong) SIMT_CUDA_VECTORS(simt_longlong, longlong)
SIMT_CUDA_VECTORS(simt_ulonglong, ulonglong) SIMT_CUDA_VECTORS(float, float) SIMT_CUDA_VECTORS(double, double)
typedef simt_vector<half, 2> half2;
typedef half2 __half2;
static inline half2 make_half2(half x, half y) { return half2(x, y); }
static inline half2 __halves2half2(half x, half y) { return half2(x, y); }
static inline half __low2half(half2 a) { return a.x; }
static inline half __high2half(half2 a) { return a.y; }

// ---- functions

static inline half __float2half(float x) { return half(x); }
static inline half __float2half_rn(float x) { return half(x); }
static inline half __double2half(double x) { return half((float)x); }
static inline float __half2float(half x) { return x; }
static inline half __ushort_as_half(unsigned short x) { return simt_bits<half>(x); }
static inline unsigned short __half_as_ushort(half x) { return x.bits; }
static inline float __int_as_float(int x) { return simt_bits<float>(x); }
static inline int __float_as_int(float x) { return simt_bits<int>(x); }
static inline float __uint_as_float(unsigned x) { return simt_bits<float>(x); }
static inline unsigned __float_as_uint(float x) { return simt_bits<unsigned>(x); }
static inline bool __hgt(half a, half b) { return a > b; }
static inline bool __hlt(half a, half b) { return a < b; }
static inline bool __hge(half a, half b) { return a >= b; }
static inline bool __hle(half a, half b) { return a <= b; }
static inline bool __heq(half a, half b) { return a == b; }
static inline bool __hne(half a, half b) { return a != b; }
static inline bool __hisnan(half a) { return a != a; }
static inline half __hadd(half a, half b) { return a + b; }
static inline half __hsub(half a, half b) { return a - b; }
static inline half __hmul(half a, half b) { return a * b; }
static inline half __hdiv(half a, half b) { return a / b; }
static inline half __hneg(half a) { return -a; }
static inline half __hfma(half a, half b, half c) { return half((float)((double)(float)a * (float)b + (float)c)); }
static inline half __habs(half a) {
  a.bits &= 0x7fff;
  return a;
}

static inline float __expf(float x) { return simt_fast_exp(x); }
static inline float __exp10f(float x) { return exp2f(x * 3.32192809f); }
static inline float __logf(float x) { return simt_fast_log(x); }
static inline float __log2f(float x) { return log2f(x); }
static inline float __log10f(float x) { return log2f(x) * 0.30103f; }
static inline float __sinf(float x) { return simt_fast_sin(x); }
static inline float __cosf(float x) { return simt_fast_cos(x); }
static inline float __tanf(float x) { return simt_fast_sin(x) / simt_fast_cos(x); }
static inline float __powf(float x, float y) { return simt_fast_pow(x, y); }
static inline float __fdividef(float x, float y) { return x / y; }
#ifdef SIMT_FAST_MATH  // what nvcc --use_fast_math replaces
#define expf __expf
#define exp10f __exp10f
#define logf __logf
#define log2f __log2f
#define log10f __log10f
#define sinf __sinf
#define cosf __cosf
#define tanf __tanf
#define powf __powf
#endif
static inline float rsqrtf(float x) { return 1 / sqrtf(x); }
static inline double rsqrt(double x) { return 1 / sqrt(x); }
static inline float erf(float x) { return erff(x); }
static inline float exp(float x) { return expf(x); }
static inline float log(float x) { return logf(x); }
static inline float sqrt(float x) { return sqrtf(x); }
static inline float fabs(float x) { return fabsf(x); }
static inline float fma(float a, float b, float c) { return fmaf(a, b, c); }
static inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
#define SIMT_CUDA_HALF(name) \
  static inline half h##name(half x) { return half(name##f((float)x)); }
SIMT_CUDA_HALF(exp) SIMT_CUDA_HALF(exp2) SIMT_CUDA_HALF(exp10) SIMT_CUDA_HALF(log) SIMT_CUDA_HALF(log2)
SIMT_CUDA_HALF(log10) SIMT_CUDA_HALF(sin) SIMT_CUDA_HALF(cos) SIMT_CUDA_HALF(sqrt) SIMT_CUDA_HALF(rsqrt)
SIMT_CUDA_HALF(floor) SIMT_CUDA_HALF(ceil) SIMT_CUDA_HALF(trunc) SIMT_CUDA_HALF(rint) SIMT_CUDA_HALF(tanh)
static inline half hrcp(half x) { return half(1 / (float)x); }

static inline float max(float a, float b) { return simt_max(a, b); }
static inline float min(float a, float b) { return simt_min(a, b); }
static inline double max(double a, double b) { return simt_max(a, b); }
static inline double min(double a, double b) { return simt_min(a, b); }
#define SIMT_CUDA_INTEGER(T)                                      \
  static inline T max(T a, T b) { return a < b ? b : a; }         \
  static inline T min(T a, T b) { return b < a ? b : a; }
SIMT_CUDA_INTEGER(int) SIMT_CUDA_INTEGER(unsigned) SIMT_CUDA_INTEGER(long) SIMT_CUDA_INTEGER(unsigned long)
SIMT_CUDA_INTEGER(long long) SIMT_CUDA_INTEGER(unsigned long long)
static inline int abs(int a) { return a < 0 ? -a : a; }
static inline long abs(long a) { return a < 0 ? -a : a; }
static inline bool isnan(float x) { return x != x; }
static inline bool isinf(float x) { return fabsf(x) == CUDART_INF_F; }
static inline bool isfinite(float x) { return fabsf(x) < CUDART_INF_F; }
static inline int __popc(unsigned x) { return __builtin_popcount(x); }
static inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
static inline int __clz(int x) { return x ? __builtin_clz((unsigned)x) : 32; }
static inline int __clzll(long long x) { return x ? __builtin_clzll((unsigned long long)x) : 64; }
static inline int __dp4a(int a, int b, int c) {
  for (int i = 0; i < 32; i += 8) c += (int)(signed char)(a >> i) * (signed char)(b >> i);
  return c;
}
template <class T> static inline T __ldg(const T* p) { return *p; }
template <class T> static inline T atomicAdd(T* p, T value) {
  const T old = *p;
  *p = old + value;
  return old;
}
template <class T> static inline T atomicMax(T* p, T value) {
  const T old = *p;
  *p = max(old, value);
  return old;
}
template <class T> static inline T atomicMin(T* p, T value) {
  const T old = *p;
  *p = min(old, value);
  return old;
}
static inline void __threadfence() {}
static inline void __threadfence_block() {}

// ---- blocks and warps

#define __syncthreads() simt_barrier(__LINE__)
#define __syncwarp(...) simt_syncwarp(__LINE__ __VA_OPT__(, ) __VA_ARGS__)
#define __activemask() ((unsigned)simt_meet(__LINE__, 0, 0, SIMT_LANES))
#define __shfl_sync(...) simt_shfl(__LINE__, __VA_ARGS__)
#define __shfl_down_sync(...) simt_shfl_down(__LINE__, __VA_ARGS__)
#define __shfl_up_sync(...) simt_shfl_up(__LINE__, __VA_ARGS__)
#define __shfl_xor_sync(...) simt_shfl_xor(__LINE__, __VA_ARGS__)
static inline void simt_syncwarp(unsigned site, unsigned mask = ~0u) { simt_meet(site, mask, 0, simt_lane()); }
template <class T> static inline T simt_shfl(unsigned site, unsigned mask, T value, int lane, int width = 32) {
  return simt_exchange(site, mask, value, (simt_lane() & ~(width - 1u)) | (lane & (width - 1u)));
}
template <class T> static inline T simt_shfl_down(unsigned site, unsigned mask, T value, unsigned delta, int width = 32) {
  const unsigned lane = simt_lane(), within = lane & (width - 1u);
  return simt_exchange(site, mask, value, within + delta < (unsigned)width ? lane + delta : lane);
}
template <class T> static inline T simt_shfl_up(unsigned site, unsigned mask, T value, unsigned delta, int width = 32) {
  const unsigned lane = simt_lane(), within = lane & (width - 1u);
  return simt_exchange(site, mask, value, within >= delta ? lane - delta : lane);
}
template <class T> static inline T simt_shfl_xor(unsigned site, unsigned mask, T value, unsigned with, int width = 32) {
  const unsigned lane = simt_lane(), other = lane ^ with;
  return simt_exchange(site, mask, value, other < (lane | (width - 1u)) + 1 ? other & 31 : lane);
}

namespace nvcuda {
namespace wmma {
struct matrix_a {};
struct matrix_b {};
struct accumulator {};
struct row_major {};
struct col_major {};
enum layout_t { mem_row_major, mem_col_major };
template <class Use, int M, int N, int K> struct simt_shape { static constexpr int rows = M, columns = N; };
template <int M, int N, int K> struct simt_shape<matrix_a, M, N, K> { static constexpr int rows = M, columns = K; };
template <int M, int N, int K> struct simt_shape<matrix_b, M, N, K> { static constexpr int rows = K, columns = N; };
template <class Use, int M, int N, int K, class T, class Layout = void> struct fragment {
  static constexpr int rows = simt_shape<Use, M, N, K>::rows, columns = simt_shape<Use, M, N, K>::columns;
  typedef typename simt_element<T>::type element;
  element elements[rows * columns];
};
template <class F, class T> static inline void simt_load(F& f, const T* from, unsigned stride, bool by_columns) {
  if (!simt_works_for_warp()) return;
  for (int i = 0; i < F::rows; ++i)
    for (int j = 0; j < F::columns; ++j)
      f.elements[i * F::columns + j] = (typename F::element)(by_columns ? from[j * stride + i] : from[i * stride + j]);
}
template <class U, int M, int N, int K, class T, class L, class V>
static inline void fill_fragment(fragment<U, M, N, K, T, L>& f, const V& value) {
  if (!simt_works_for_warp()) return;
  for (int i = 0; i < f.rows * f.columns; ++i) f.elements[i] = (typename simt_element<T>::type)(T)value;
}
template <class U, int M, int N, int K, class T>
static inline void load_matrix_sync(fragment<U, M, N, K, T, row_major>& f, const T* from, unsigned stride) {
  simt_load(f, from, stride, false);
}
template <class U, int M, int N, int K, class T>
static inline void load_matrix_sync(fragment<U, M, N, K, T, col_major>& f, const T* from, unsigned stride) {
  simt_load(f, from, stride, true);
}
template <int M, int N, int K, class T>
static inline void load_matrix_sync(fragment<accumulator, M, N, K, T>& f, const T* from, unsigned stride, layout_t layout) {
  simt_load(f, from, stride, layout == mem_col_major);
}
template <int M, int N, int K, class T>
static inline void store_matrix_sync(T* to, const fragment<accumulator, M, N, K, T>& f, unsigned stride, layout_t layout) {
  if (!simt_works_for_warp()) return;
  for (int i = 0; i < M; ++i)
    for (int j = 0; j < N; ++j)
      (layout == mem_col_major ? to[j * stride + i] : to[i * stride + j]) = (T)f.elements[i * N + j];
}
template <int M, int N, int K, class T, class A, class LA, class B, class LB>
static inline void mma_sync(fragment<accumulator, M, N, K, T>& d, const fragment<matrix_a, M, N, K, A, LA>& a,
                            const fragment<matrix_b, M, N, K, B, LB>& b, const fragment<accumulator, M, N, K, T>& c) {
  if (simt_works_for_warp()) simt_multiply<T, M, N, K>(d.elements, a.elements, b.elements, c.elements);
}
}  // namespace wmma
}  // namespace nvcuda
