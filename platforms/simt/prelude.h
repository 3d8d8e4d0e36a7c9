// What Metal's and CUDA's sources have in common: half, vectors, functions of libm. No header of the system is included:
// <math.h> takes 0.7 s with the C++ overloads and claims names that kernels use.
#pragma once
#include "engine.h"

typedef signed char int8_t;
typedef short int16_t;
typedef int int32_t;
typedef long int64_t;
typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef unsigned int uint32_t;
typedef unsigned long uint64_t;

#define SIMT_LIBM(F)                                                                                            \
  F(exp) F(exp2) F(exp10) F(log) F(log2) F(log10) F(sin) F(cos) F(tan) F(asin) F(acos) F(atan) F(sinh) F(cosh)  \
  F(tanh) F(asinh) F(acosh) F(atanh) F(erf) F(log1p) F(expm1) F(cbrt)
#define SIMT_ROUNDING(F) F(floor) F(ceil) F(trunc) F(round) F(rint) F(nearbyint) F(sqrt) F(fabs)
#define SIMT_BINARY(F) F(pow) F(fmod) F(atan2) F(copysign) F(fdim) F(nextafter) F(hypot) F(fmax) F(fmin)
#define SIMT_DECLARE(name) float name##f(float) noexcept; double name(double) noexcept;
#define SIMT_DECLARE2(name) float name##f(float, float) noexcept; double name(double, double) noexcept;
namespace simt_libm {  // not seen by kernels of a language that lacks some of them
extern "C" {
SIMT_LIBM(SIMT_DECLARE) SIMT_ROUNDING(SIMT_DECLARE) SIMT_BINARY(SIMT_DECLARE2)
float fmaf(float, float, float) noexcept;
double fma(double, double, double) noexcept;
}
}  // namespace simt_libm

template <class T, class F>
static inline T simt_bits(const F& from) {
  static_assert(sizeof(T) == sizeof(F), "same size");
  T to;
  __builtin_memcpy(&to, &from, sizeof to);
  return to;
}

template <bool, class T> struct simt_if {};
template <class T> struct simt_if<true, T> { typedef T type; };
template <class T> struct simt_is_number { static constexpr bool value = false, integer = false; };
#define SIMT_NUMBER(T, i) \
  template <> struct simt_is_number<T> { static constexpr bool value = true, integer = i; };
SIMT_NUMBER(bool, true) SIMT_NUMBER(char, true) SIMT_NUMBER(signed char, true) SIMT_NUMBER(unsigned char, true)
SIMT_NUMBER(short, true) SIMT_NUMBER(unsigned short, true) SIMT_NUMBER(int, true) SIMT_NUMBER(unsigned, true)
SIMT_NUMBER(long, true) SIMT_NUMBER(unsigned long, true) SIMT_NUMBER(long long, true)
SIMT_NUMBER(unsigned long long, true) SIMT_NUMBER(float, false) SIMT_NUMBER(double, false)

// ---- half: an own type, because the bits must not depend on the compiler (g++ 12 has none; others keep excess precision)

#if defined(__F16C__)
typedef float simt_m128 __attribute__((vector_size(16)));
typedef short simt_m128s __attribute__((vector_size(16)));
static inline float simt_half_to_float(unsigned short bits) {
  return __builtin_ia32_vcvtph2ps(simt_m128s{(short)bits, 0, 0, 0, 0, 0, 0, 0})[0];
}
static inline unsigned short simt_float_to_half(float value) {
  return __builtin_ia32_vcvtps2ph(simt_m128{value, 0, 0, 0}, 0)[0];
}
#elif defined(__aarch64__)
static inline float simt_half_to_float(unsigned short bits) { return simt_bits<__fp16>(bits); }
static inline unsigned short simt_float_to_half(float value) { return simt_bits<unsigned short>((__fp16)value); }
#else
static inline float simt_half_to_float(unsigned short bits) {
  const unsigned sign = (unsigned)(bits & 0x8000) << 16, magnitude = bits & 0x7fff;
  if (magnitude >= 0x7c00) return simt_bits<float>(sign | 0x7f800000u | (magnitude & 0x3ff) << 13);
  if (magnitude >= 0x400) return simt_bits<float>(sign | ((magnitude << 13) + 0x38000000u));
  const float small = (float)(int)magnitude * 0x1p-24f;  // zero or subnormal
  return sign ? -small : small;
}
static inline unsigned short simt_float_to_half(float value) {
  const unsigned bits = simt_bits<unsigned>(value), sign = bits >> 16 & 0x8000, magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000u) return (unsigned short)(sign | 0x7e00 | (magnitude >> 13 & 0x3ff));
  if (magnitude >= 0x477ff000u) return (unsigned short)(sign | 0x7c00);  // rounds to infinity
  if (magnitude >= 0x38800000u)  // to nearest, ties to even
    return (unsigned short)(sign | ((magnitude - 0x38000000u + 0xfff + (magnitude >> 13 & 1)) >> 13));
  if (magnitude < 0x33000000u) return (unsigned short)sign;
  const unsigned exponent = magnitude >> 23, shift = 126 - exponent, mantissa = (magnitude & 0x7fffff) | 0x800000;
  const unsigned kept = mantissa >> shift, rest = mantissa & ((1u << shift) - 1), middle = 1u << (shift - 1);
  return (unsigned short)(sign | (kept + (rest > middle || (rest == middle && (kept & 1)))));
}
#endif

struct half {
  unsigned short bits;
  half() = default;
  template <class T, class = typename simt_if<simt_is_number<T>::value, T>::type>
  half(T value) : bits(simt_float_to_half((float)value)) {}
  operator float() const { return simt_half_to_float(bits); }
  half& operator+=(half other) { return *this = half((float)*this + (float)other); }
  half& operator-=(half other) { return *this = half((float)*this - (float)other); }
  half& operator*=(half other) { return *this = half((float)*this * (float)other); }
  half& operator/=(half other) { return *this = half((float)*this / (float)other); }
};
static inline half operator-(half a) {
  a.bits ^= 0x8000;
  return a;
}
template <class T, bool> struct simt_with_half { typedef half type; };  // with an integer
template <class T> struct simt_with_half<T, false> { typedef T type; };  // with float or double
#define SIMT_HALF(op)                                                                                            \
  static inline half operator op(half a, half b) { return half((float)a op(float) b); }                          \
  template <class T, class R = typename simt_with_half<typename simt_if<simt_is_number<T>::value, T>::type,      \
                                                       simt_is_number<T>::integer>::type>                        \
  static inline R operator op(half a, T b) { return R((float)a) op R(b); }                                       \
  template <class T, class R = typename simt_with_half<typename simt_if<simt_is_number<T>::value, T>::type,      \
                                                       simt_is_number<T>::integer>::type>                        \
  static inline R operator op(T a, half b) { return R(a) op R((float)b); }
SIMT_HALF(+) SIMT_HALF(-) SIMT_HALF(*) SIMT_HALF(/)
#define SIMT_HALF_COMPARE(op)                                                                                    \
  static inline bool operator op(half a, half b) { return (float)a op(float) b; }                                \
  template <class T, class = typename simt_if<simt_is_number<T>::value, T>::type>                                \
  static inline bool operator op(half a, T b) { return (float)a op b; }                                          \
  template <class T, class = typename simt_if<simt_is_number<T>::value, T>::type>                                \
  static inline bool operator op(T a, half b) { return a op(float) b; }
SIMT_HALF_COMPARE(<) SIMT_HALF_COMPARE(>) SIMT_HALF_COMPARE(<=) SIMT_HALF_COMPARE(>=) SIMT_HALF_COMPARE(==)
SIMT_HALF_COMPARE(!=)

// ---- vectors: aligned like their elements, so that a buffer can end, or begin, at a page whatever its length

template <class T, int N> struct simt_vector;
#define SIMT_VECTOR(N, members, parameters, values)                                        \
  template <class T> struct simt_vector<T, N> {                                            \
    T members;                                                                             \
    simt_vector() = default;                                                               \
    simt_vector parameters : values {}                                                     \
    explicit simt_vector(T all) { for (int i = 0; i < N; ++i) (&x)[i] = all; }             \
    template <class U> explicit simt_vector(const simt_vector<U, N>& other) {              \
      for (int i = 0; i < N; ++i) (&x)[i] = (T)other[i];                                   \
    }                                                                                      \
    T& operator[](int i) { return (&x)[i]; }                                               \
    const T& operator[](int i) const { return (&x)[i]; }                                   \
  };
#define SIMT_LIST(...) __VA_ARGS__
SIMT_VECTOR(2, SIMT_LIST(x, y), (T a, T b), SIMT_LIST(x(a), y(b)))
SIMT_VECTOR(3, SIMT_LIST(x, y, z), (T a, T b, T c), SIMT_LIST(x(a), y(b), z(c)))
SIMT_VECTOR(4, SIMT_LIST(x, y, z, w), (T a, T b, T c, T d), SIMT_LIST(x(a), y(b), z(c), w(d)))
#define SIMT_VECTORS(type, name)      \
  typedef simt_vector<type, 2> name##2; \
  typedef simt_vector<type, 3> name##3; \
  typedef simt_vector<type, 4> name##4;

// ---- approximations, for the fast mode

static inline float simt_fast_exp(float x) { return simt_libm::exp2f(x * 1.44269504f); }
static inline float simt_fast_log(float x) { return simt_libm::log2f(x) * 0.69314718f; }
static inline float simt_fast_pow(float x, float y) { return simt_libm::exp2f(y * simt_libm::log2f(x)); }
// Good within one period only: the range is reduced in float.
static inline float simt_fast_reduce(float x) { return x - 6.2831855f * simt_libm::rintf(x * 0.15915494f); }
static inline float simt_fast_sin(float x) { return simt_libm::sinf(simt_fast_reduce(x)); }
static inline float simt_fast_cos(float x) { return simt_libm::cosf(simt_fast_reduce(x)); }

// NaN gives way to the other operand, as in both languages.
template <class T> static inline T simt_max(T a, T b) { return a < b || a != a ? b : a; }
template <class T> static inline T simt_min(T a, T b) { return b < a || a != a ? b : a; }

template <class T>
static inline T simt_exchange(unsigned site, unsigned mask, T value, unsigned source) {
  static_assert(sizeof(T) <= 8, "a shuffle moves eight bytes at most");
  unsigned long long raw = 0;
  __builtin_memcpy(&raw, &value, sizeof value);
  raw = simt_meet(site, mask, raw, source);
  __builtin_memcpy(&value, &raw, sizeof value);
  return value;
}
static inline unsigned simt_lane() { return simt_self->linear & 31; }

// Matrices of a warp: its first lane has all elements and does the work, the others only count along.
template <class T> struct simt_element { typedef float type; };
template <> struct simt_element<signed char> { typedef int type; };
template <> struct simt_element<unsigned char> { typedef int type; };
template <> struct simt_element<int> { typedef int type; };
static inline bool simt_works_for_warp() {
  ++simt_self->matrix_operations;
  return simt_lane() == 0;
}
// D = A B + C, summed in float (or int), rounded once to the type of D's elements.
template <class T, int M, int N, int K, class E>
static inline void simt_multiply(E* d, const E* a, const E* b, const E* c) {
  for (int i = 0; i < M; ++i) {
    E sums[N];
    for (int j = 0; j < N; ++j) sums[j] = c[i * N + j];
    for (int k = 0; k < K; ++k)
      for (int j = 0; j < N; ++j) sums[j] += a[i * K + k] * b[k * N + j];
    for (int j = 0; j < N; ++j) d[i * N + j] = (E)(T)sums[j];
  }
}
