// Metal's standard library, as far as TVM's sources use it. What Metal lacks is not here either: the same source has to be
// refused here and there.
#pragma once
#include "prelude.h"

#define device
#define threadgroup
#define thread
#define constant const
#define INFINITY __builtin_inff()
#define NAN __builtin_nanf("")

typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned int uint;
typedef unsigned long ulong;
SIMT_VECTORS(bool, bool) SIMT_VECTORS(char, char) SIMT_VECTORS(uchar, uchar) SIMT_VECTORS(short, short)
SIMT_VECTORS(ushort, ushort) SIMT_VECTORS(int, int) SIMT_VECTORS(uint, uint) SIMT_VECTORS(long, long)
SIMT_VECTORS(ulong, ulong) SIMT_VECTORS(float, float) SIMT_VECTORS(half, half)
SIMT_VECTORS(float, packed_float) SIMT_VECTORS(half, packed_half) SIMT_VECTORS(int, packed_int)
SIMT_VECTORS(char, packed_char) SIMT_VECTORS(uchar, packed_uchar) SIMT_VECTORS(short, packed_short)
SIMT_VECTORS(ushort, packed_ushort) SIMT_VECTORS(uint, packed_uint) SIMT_VECTORS(long, packed_long)

#define SIMT_ELEMENTWISE(op, R)                                                                     \
  template <class T, int N>                                                                         \
  static inline simt_vector<R, N> operator op(const simt_vector<T, N>& a, const simt_vector<T, N>& b) { \
    simt_vector<R, N> result;                                                                       \
    for (int i = 0; i < N; ++i) result[i] = a[i] op b[i];                                           \
    return result;                                                                                  \
  }                                                                                                 \
  template <class T, int N>                                                                         \
  static inline simt_vector<R, N> operator op(const simt_vector<T, N>& a, T b) {                    \
    return a op simt_vector<T, N>(b);                                                               \
  }                                                                                                 \
  template <class T, int N>                                                                         \
  static inline simt_vector<R, N> operator op(T a, const simt_vector<T, N>& b) {                    \
    return simt_vector<T, N>(a) op b;                                                               \
  }
SIMT_ELEMENTWISE(+, T) SIMT_ELEMENTWISE(-, T) SIMT_ELEMENTWISE(*, T) SIMT_ELEMENTWISE(/, T) SIMT_ELEMENTWISE(%, T)
SIMT_ELEMENTWISE(&, T) SIMT_ELEMENTWISE(|, T) SIMT_ELEMENTWISE(^, T) SIMT_ELEMENTWISE(<<, T) SIMT_ELEMENTWISE(>>, T)
SIMT_ELEMENTWISE(<, bool) SIMT_ELEMENTWISE(>, bool) SIMT_ELEMENTWISE(<=, bool) SIMT_ELEMENTWISE(>=, bool)
SIMT_ELEMENTWISE(==, bool) SIMT_ELEMENTWISE(!=, bool) SIMT_ELEMENTWISE(&&, bool) SIMT_ELEMENTWISE(||, bool)
template <class T, int N> static inline simt_vector<T, N> operator-(const simt_vector<T, N>& a) {
  simt_vector<T, N> result;
  for (int i = 0; i < N; ++i) result[i] = -a[i];
  return result;
}
template <int N> static inline simt_vector<bool, N> operator!(const simt_vector<bool, N>& a) {
  simt_vector<bool, N> result;
  for (int i = 0; i < N; ++i) result[i] = !a[i];
  return result;
}

namespace metal {

#define SIMT_METAL(name, value)                                              \
  static inline float name(float x) { return value; }                        \
  static inline half name(half x) { return half(metal::name((float)x)); }    \
  template <int N, class T> static inline simt_vector<T, N> name(const simt_vector<T, N>& x) { \
    simt_vector<T, N> result;                                                \
    for (int i = 0; i < N; ++i) result[i] = metal::name(x[i]);               \
    return result;                                                           \
  }
#define SIMT_METAL2(name, value)                                                             \
  static inline float name(float x, float y) { return value; }                               \
  static inline half name(half x, half y) { return half(metal::name((float)x, (float)y)); }  \
  template <int N, class T>                                                                  \
  static inline simt_vector<T, N> name(const simt_vector<T, N>& x, const simt_vector<T, N>& y) { \
    simt_vector<T, N> result;                                                                \
    for (int i = 0; i < N; ++i) result[i] = metal::name(x[i], y[i]);                         \
    return result;                                                                           \
  }

#ifdef SIMT_FAST_MATH
// A model, not measured here: fast::tanh as this quotient, which is NaN where exp(2x) overflows, from x = 44.4 on, and so
// explains GELU that is all NaN on Apple GPUs. The other functions are plausible approximations, no more.
SIMT_METAL(tanh, (simt_fast_exp(2 * x) - 1) / (simt_fast_exp(2 * x) + 1))
SIMT_METAL(exp, simt_fast_exp(x)) SIMT_METAL(log, simt_fast_log(x)) SIMT_METAL(sin, simt_fast_sin(x))
SIMT_METAL(cos, simt_fast_cos(x)) SIMT_METAL(tan, simt_fast_sin(x) / simt_fast_cos(x))
SIMT_METAL2(pow, simt_fast_pow(x, y)) SIMT_METAL(rsqrt, 1 / simt_libm::sqrtf(x))
SIMT_METAL(exp10, simt_libm::exp2f(x * 3.32192809f)) SIMT_METAL(log10, simt_libm::log2f(x) * 0.30103f)
#else
SIMT_METAL(tanh, simt_libm::tanhf(x)) SIMT_METAL(exp, simt_libm::expf(x)) SIMT_METAL(log, simt_libm::logf(x)) SIMT_METAL(sin, simt_libm::sinf(x))
SIMT_METAL(cos, simt_libm::cosf(x)) SIMT_METAL(tan, simt_libm::tanf(x)) SIMT_METAL2(pow, simt_libm::powf(x, y)) SIMT_METAL(rsqrt, 1 / simt_libm::sqrtf(x))
SIMT_METAL(exp10, simt_libm::exp10f(x)) SIMT_METAL(log10, simt_libm::log10f(x))
#endif
SIMT_METAL(exp2, simt_libm::exp2f(x)) SIMT_METAL(log2, simt_libm::log2f(x)) SIMT_METAL(sqrt, simt_libm::sqrtf(x)) SIMT_METAL(floor, simt_libm::floorf(x))
SIMT_METAL(ceil, simt_libm::ceilf(x)) SIMT_METAL(trunc, simt_libm::truncf(x)) SIMT_METAL(round, simt_libm::roundf(x)) SIMT_METAL(rint, simt_libm::rintf(x))
SIMT_METAL(fabs, simt_libm::fabsf(x)) SIMT_METAL(asin, simt_libm::asinf(x)) SIMT_METAL(acos, simt_libm::acosf(x)) SIMT_METAL(atan, simt_libm::atanf(x))
SIMT_METAL(sinh, simt_libm::sinhf(x)) SIMT_METAL(cosh, simt_libm::coshf(x)) SIMT_METAL(asinh, simt_libm::asinhf(x)) SIMT_METAL(acosh, simt_libm::acoshf(x))
SIMT_METAL(atanh, simt_libm::atanhf(x)) SIMT_METAL(fract, x - simt_libm::floorf(x))
SIMT_METAL2(fmod, simt_libm::fmodf(x, y)) SIMT_METAL2(atan2, simt_libm::atan2f(x, y)) SIMT_METAL2(copysign, simt_libm::copysignf(x, y))
SIMT_METAL2(powr, metal::pow(x, y)) SIMT_METAL2(fdim, simt_libm::fdimf(x, y)) SIMT_METAL2(nextafter, simt_libm::nextafterf(x, y))
SIMT_METAL2(fmax, simt_max(x, y)) SIMT_METAL2(fmin, simt_min(x, y))
SIMT_METAL2(max, simt_max(x, y)) SIMT_METAL2(min, simt_min(x, y))
#define SIMT_METAL_INTEGER(T)                                             \
  static inline T max(T a, T b) { return a < b ? b : a; }                 \
  static inline T min(T a, T b) { return b < a ? b : a; }
SIMT_METAL_INTEGER(char) SIMT_METAL_INTEGER(uchar) SIMT_METAL_INTEGER(short) SIMT_METAL_INTEGER(ushort)
SIMT_METAL_INTEGER(int) SIMT_METAL_INTEGER(uint) SIMT_METAL_INTEGER(long) SIMT_METAL_INTEGER(ulong)
SIMT_METAL_INTEGER(signed char) SIMT_METAL_INTEGER(bool)
static inline int abs(int a) { return a < 0 ? -a : a; }
static inline long abs(long a) { return a < 0 ? -a : a; }
static inline float abs(float a) { return simt_libm::fabsf(a); }
static inline half abs(half a) { return fabs(a); }
template <class T> static inline T clamp(T x, T low, T high) { return metal::min(metal::max(x, low), high); }
static inline float fma(float a, float b, float c) { return simt_libm::fmaf(a, b, c); }
static inline half fma(half a, half b, half c) { return half((double)(float)a * (float)b + (float)c); }
template <class T> static inline T select(T a, T b, bool c) { return c ? b : a; }
template <class T, int N>
static inline simt_vector<T, N> select(const simt_vector<T, N>& a, const simt_vector<T, N>& b,
                                       const simt_vector<bool, N>& c) {
  simt_vector<T, N> result;
  for (int i = 0; i < N; ++i) result[i] = c[i] ? b[i] : a[i];
  return result;
}
static inline bool isnan(float x) { return x != x; }
static inline bool isinf(float x) { return simt_libm::fabsf(x) == INFINITY; }
static inline bool isfinite(float x) { return simt_libm::fabsf(x) < INFINITY; }
template <class T> static inline T popcount(T x) {
  unsigned long long bits = 0;
  __builtin_memcpy(&bits, &x, sizeof x);
  return (T)__builtin_popcountll(bits);
}
static inline int clz(int x) { return x ? __builtin_clz((unsigned)x) : 32; }
static inline uint clz(uint x) { return x ? __builtin_clz(x) : 32; }
static inline long clz(long x) { return x ? __builtin_clzl((ulong)x) : 64; }

enum class mem_flags { mem_none, mem_device, mem_threadgroup };

// ---- SIMD-groups of 32 threads

#define threadgroup_barrier(flags) simt_barrier(((void)(flags), __LINE__))
#define simdgroup_barrier(flags) ((void)(flags), (void)simt_meet(__LINE__, 0, 0, simt_lane()))
#define simd_shuffle(...) simt_shuffle(__LINE__, __VA_ARGS__)
#define simd_shuffle_down(...) simt_shuffle_down(__LINE__, __VA_ARGS__)
#define simd_shuffle_up(...) simt_shuffle_up(__LINE__, __VA_ARGS__)
#define simd_shuffle_xor(...) simt_shuffle_xor(__LINE__, __VA_ARGS__)
template <class T> static inline T simt_shuffle(unsigned site, T value, ushort lane) {
  return simt_exchange(site, 0, value, lane & 31);
}
template <class T> static inline T simt_shuffle_down(unsigned site, T value, ushort delta) {
  const unsigned lane = simt_lane();
  return simt_exchange(site, 0, value, lane + delta < 32 ? lane + delta : lane);
}
template <class T> static inline T simt_shuffle_up(unsigned site, T value, ushort delta) {
  const unsigned lane = simt_lane();
  return simt_exchange(site, 0, value, lane >= delta ? lane - delta : lane);
}
template <class T> static inline T simt_shuffle_xor(unsigned site, T value, ushort mask) {
  return simt_exchange(site, 0, value, (simt_lane() ^ mask) & 31);
}

template <class T, int R, int C> struct simdgroup_matrix {
  float elements[R * C];
};
typedef simdgroup_matrix<float, 8, 8> simdgroup_float8x8;
typedef simdgroup_matrix<half, 8, 8> simdgroup_half8x8;
template <class T, int R, int C> static inline simdgroup_matrix<T, R, C> make_filled_simdgroup_matrix(T value) {
  simdgroup_matrix<T, R, C> result;
  if (simt_works_for_warp())
    for (int i = 0; i < R * C; ++i) result.elements[i] = (float)value;
  return result;
}
template <class T, int R, int C>
static inline void simdgroup_load(simdgroup_matrix<T, R, C>& m, const T* from, ulong stride, ulong2 origin, bool turned) {
  if (!simt_works_for_warp()) return;
  from += origin.y * stride + origin.x;
  for (int i = 0; i < R; ++i)
    for (int j = 0; j < C; ++j) m.elements[i * C + j] = (float)(turned ? from[j * stride + i] : from[i * stride + j]);
}
template <class T, int R, int C>
static inline void simdgroup_store(const simdgroup_matrix<T, R, C>& m, T* to, ulong stride, ulong2 origin, bool turned) {
  if (!simt_works_for_warp()) return;
  to += origin.y * stride + origin.x;
  for (int i = 0; i < R; ++i)
    for (int j = 0; j < C; ++j) (turned ? to[j * stride + i] : to[i * stride + j]) = (T)m.elements[i * C + j];
}
template <class T, int R, int C>
static inline void simdgroup_load(simdgroup_matrix<T, R, C>& m, const T* from, ulong stride, int origin, bool turned) {
  simdgroup_load(m, from, stride, ulong2((ulong)origin), turned);
}
template <class T, int R, int C>
static inline void simdgroup_store(const simdgroup_matrix<T, R, C>& m, T* to, ulong stride, int origin, bool turned) {
  simdgroup_store(m, to, stride, ulong2((ulong)origin), turned);
}
template <class T, class U, class V>
static inline void simdgroup_multiply_accumulate(simdgroup_matrix<T, 8, 8>& d, const simdgroup_matrix<U, 8, 8>& a,
                                                 const simdgroup_matrix<V, 8, 8>& b,
                                                 const simdgroup_matrix<T, 8, 8>& c) {
  if (simt_works_for_warp()) simt_multiply<T, 8, 8, 8>(d.elements, a.elements, b.elements, c.elements);
}

}  // namespace metal

template <class T, class F> static inline T as_type(const F& value) { return simt_bits<T>(value); }
