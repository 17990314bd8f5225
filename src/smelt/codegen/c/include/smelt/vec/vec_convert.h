/* Conversions between all dtypes, lane by lane.
 *
 * Input: a vector of dtype S. Output: cvt_S_D, a vector of dtype D, for every pair, bool included.
 * Invariant: defined for every bit pattern and equal on every CPU, to what x86 compilers do:
 *   float -> i32, i64: truncation; NaN and out of range give the minimum. float -> i8, i16, u8, u16: as i32, then wrapped.
 *   float -> u32: as i64, then wrapped. float -> u64: as i64 below 2^63, else 2^63 + (i64)(x - 2^63).
 *   int -> int wraps; int -> float rounds once, to nearest even; to bool: nonzero (NaN too) is true. */
#ifndef SMELT_VEC_CONVERT_H
#define SMELT_VEC_CONVERT_H

#include <smelt/vec/vec_types.h>

/* Between one register of 32-bit lanes and two registers of 64-bit lanes. */
#if SMELT_ISA == 512
#define SMELT_LOW(v) _mm512_castsi512_si256((__m512i)(v))
#define SMELT_HIGH(v) _mm512_extracti64x4_epi64((__m512i)(v), 1)
#define SMELT_JOIN(a, b) _mm512_inserti64x4(_mm512_castsi256_si512(a), b, 1)
SMELT_FN v_i64 cvt_i32_i64(v_i32 v) {
  return (v_i64){(h_i64)_mm512_cvtepi32_epi64(SMELT_LOW(v)), (h_i64)_mm512_cvtepi32_epi64(SMELT_HIGH(v))};
}
SMELT_FN v_i64 cvt_u32_i64(v_u32 v) {
  return (v_i64){(h_i64)_mm512_cvtepu32_epi64(SMELT_LOW(v)), (h_i64)_mm512_cvtepu32_epi64(SMELT_HIGH(v))};
}
SMELT_FN v_i32 cvt_i64_i32(v_i64 v) {
  return (v_i32)SMELT_JOIN(_mm512_cvtepi64_epi32((__m512i)v.lo), _mm512_cvtepi64_epi32((__m512i)v.hi));
}
SMELT_FN v_f64 cvt_f32_f64(v_f32 v) {
  return (v_f64){(h_f64)_mm512_cvtps_pd((__m256)SMELT_LOW(v)), (h_f64)_mm512_cvtps_pd((__m256)SMELT_HIGH(v))};
}
SMELT_FN v_f32 cvt_f64_f32(v_f64 v) {
  return (v_f32)SMELT_JOIN((__m256i)_mm512_cvtpd_ps((__m512d)v.lo), (__m256i)_mm512_cvtpd_ps((__m512d)v.hi));
}
SMELT_FN v_f64 cvt_i32_f64(v_i32 v) {
  return (v_f64){(h_f64)_mm512_cvtepi32_pd(SMELT_LOW(v)), (h_f64)_mm512_cvtepi32_pd(SMELT_HIGH(v))};
}
SMELT_FN v_i32 cvt_f64_i32(v_f64 v) {
  return (v_i32)SMELT_JOIN(_mm512_cvttpd_epi32((__m512d)v.lo), _mm512_cvttpd_epi32((__m512d)v.hi));
}
SMELT_FN v_i32 cvt_f32_i32(v_f32 v) { return (v_i32)_mm512_cvttps_epi32((__m512)v); }
#undef SMELT_LOW
#undef SMELT_HIGH
#undef SMELT_JOIN
#elif SMELT_ISA == 256
#define SMELT_LOW(v) _mm256_castsi256_si128((__m256i)(v))
#define SMELT_HIGH(v) _mm256_extracti128_si256((__m256i)(v), 1)
#define SMELT_JOIN(a, b) _mm256_inserti128_si256(_mm256_castsi128_si256(a), b, 1)
SMELT_FN v_i64 cvt_i32_i64(v_i32 v) {
  return (v_i64){(h_i64)_mm256_cvtepi32_epi64(SMELT_LOW(v)), (h_i64)_mm256_cvtepi32_epi64(SMELT_HIGH(v))};
}
SMELT_FN v_i64 cvt_u32_i64(v_u32 v) {
  return (v_i64){(h_i64)_mm256_cvtepu32_epi64(SMELT_LOW(v)), (h_i64)_mm256_cvtepu32_epi64(SMELT_HIGH(v))};
}
SMELT_FN v_i32 cvt_i64_i32(v_i64 v) {
  __m256 pairs = _mm256_shuffle_ps((__m256)v.lo, (__m256)v.hi, 0x88);
  return (v_i32)_mm256_permute4x64_epi64((__m256i)pairs, 0xd8);
}
SMELT_FN v_f64 cvt_f32_f64(v_f32 v) {
  return (v_f64){(h_f64)_mm256_cvtps_pd((__m128)SMELT_LOW(v)), (h_f64)_mm256_cvtps_pd((__m128)SMELT_HIGH(v))};
}
SMELT_FN v_f32 cvt_f64_f32(v_f64 v) {
  return (v_f32)SMELT_JOIN((__m128i)_mm256_cvtpd_ps((__m256d)v.lo), (__m128i)_mm256_cvtpd_ps((__m256d)v.hi));
}
SMELT_FN v_f64 cvt_i32_f64(v_i32 v) {
  return (v_f64){(h_f64)_mm256_cvtepi32_pd(SMELT_LOW(v)), (h_f64)_mm256_cvtepi32_pd(SMELT_HIGH(v))};
}
SMELT_FN v_i32 cvt_f64_i32(v_f64 v) {
  return (v_i32)SMELT_JOIN(_mm256_cvttpd_epi32((__m256d)v.lo), _mm256_cvttpd_epi32((__m256d)v.hi));
}
SMELT_FN v_i32 cvt_f32_i32(v_f32 v) { return (v_i32)_mm256_cvttps_epi32((__m256)v); }
#undef SMELT_LOW
#undef SMELT_HIGH
#undef SMELT_JOIN
#elif SMELT_ISA == 128
#define SMELT_HIGH(v) _mm_unpackhi_epi64((__m128i)(v), (__m128i)(v))
SMELT_FN v_i64 cvt_i32_i64(v_i32 v) {
  return (v_i64){(h_i64)_mm_cvtepi32_epi64((__m128i)v), (h_i64)_mm_cvtepi32_epi64(SMELT_HIGH(v))};
}
SMELT_FN v_i64 cvt_u32_i64(v_u32 v) {
  return (v_i64){(h_i64)_mm_cvtepu32_epi64((__m128i)v), (h_i64)_mm_cvtepu32_epi64(SMELT_HIGH(v))};
}
SMELT_FN v_i32 cvt_i64_i32(v_i64 v) { return (v_i32)_mm_shuffle_ps((__m128)v.lo, (__m128)v.hi, 0x88); }
SMELT_FN v_f64 cvt_f32_f64(v_f32 v) {
  return (v_f64){(h_f64)_mm_cvtps_pd((__m128)v), (h_f64)_mm_cvtps_pd((__m128)SMELT_HIGH(v))};
}
SMELT_FN v_f32 cvt_f64_f32(v_f64 v) {
  return (v_f32)_mm_movelh_ps(_mm_cvtpd_ps((__m128d)v.lo), _mm_cvtpd_ps((__m128d)v.hi));
}
SMELT_FN v_f64 cvt_i32_f64(v_i32 v) {
  return (v_f64){(h_f64)_mm_cvtepi32_pd((__m128i)v), (h_f64)_mm_cvtepi32_pd(SMELT_HIGH(v))};
}
SMELT_FN v_i32 cvt_f64_i32(v_f64 v) {
  return (v_i32)_mm_unpacklo_epi64(_mm_cvttpd_epi32((__m128d)v.lo), _mm_cvttpd_epi32((__m128d)v.hi));
}
SMELT_FN v_i32 cvt_f32_i32(v_f32 v) { return (v_i32)_mm_cvttps_epi32((__m128)v); }
#undef SMELT_HIGH
#else
typedef int32_t half_i32 __attribute__((vector_size(SMELT_VL / 2)));
typedef uint32_t half_u32 __attribute__((vector_size(SMELT_VL / 2)));
typedef float half_f32 __attribute__((vector_size(SMELT_VL / 2)));
#define SMELT_WIDEN(S, half, D)                                                    \
  SMELT_FN v_##D cvt_##S##_##D(v_##S v) {                                          \
    half part[2];                                                                  \
    __builtin_memcpy(part, &v, sizeof v);                                                    \
    return (v_##D){__builtin_convertvector(part[0], h_##D), __builtin_convertvector(part[1], h_##D)}; \
  }
#define SMELT_NARROW(S, half, D)                                                   \
  SMELT_FN v_##D cvt_##S##_##D(v_##S v) {                                          \
    half part[2] = {__builtin_convertvector(v.lo, half), __builtin_convertvector(v.hi, half)}; \
    v_##D out;                                                                     \
    __builtin_memcpy(&out, part, sizeof out);                                                \
    return out;                                                                    \
  }
SMELT_WIDEN(i32, half_i32, i64)
SMELT_WIDEN(u32, half_u32, i64)
SMELT_WIDEN(f32, half_f32, f64)
SMELT_WIDEN(i32, half_i32, f64)
SMELT_NARROW(f64, half_f32, f32)
SMELT_NARROW(u64, half_u32, u32)
SMELT_FN v_i32 cvt_i64_i32(v_i64 v) { return (v_i32)cvt_u64_u32((v_u64){(h_u64)v.lo, (h_u64)v.hi}); }
/* Out-of-range lanes are converted as 0 first: a C conversion of them would be undefined. */
SMELT_FN v_i32 cvt_f32_i32(v_f32 v) {
  v_i32 inside = (v >= -0x1p31f) & (v < 0x1p31f);
  v_i32 converted = __builtin_convertvector((v_f32)((v_i32)v & inside), v_i32);
  return (converted & inside) | (INT32_MIN & ~inside);
}
SMELT_FN h_i64 half_f64_i32(h_f64 v) {
  h_i64 inside = (h_i64)((v > -0x1p31 - 1) & (v < 0x1p31));
  h_i64 converted = __builtin_convertvector((h_f64)((h_i64)v & inside), h_i64);
  return (converted & inside) | (INT32_MIN & ~inside);
}
SMELT_FN v_i32 cvt_f64_i32(v_f64 v) { return cvt_i64_i32((v_i64){half_f64_i32(v.lo), half_f64_i32(v.hi)}); }
#undef SMELT_WIDEN
#undef SMELT_NARROW
#endif

/* i64 and u64 to and from f64. */
#if SMELT_ISA == 512
SMELT_FN h_f64 half_i64_f64(h_i64 v) { return (h_f64)_mm512_cvtepi64_pd((__m512i)v); }
SMELT_FN h_f64 half_u64_f64(h_u64 v) { return (h_f64)_mm512_cvtepu64_pd((__m512i)v); }
SMELT_FN h_i64 half_f64_i64(h_f64 v) { return (h_i64)_mm512_cvttpd_epi64((__m512d)v); }
#elif SMELT_ISA == 64
SMELT_FN h_f64 half_i64_f64(h_i64 v) { return __builtin_convertvector(v, h_f64); }
SMELT_FN h_f64 half_u64_f64(h_u64 v) { return __builtin_convertvector(v, h_f64); }
#else
/* The two 32-bit parts are placed in the mantissas of 2^52 and 2^84; the one rounding is the last sum. */
SMELT_FN h_f64 half_u64_f64(h_u64 v) {
  h_f64 low = (h_f64)((v & 0xffffffffu) | 0x4330000000000000u);
  h_f64 high = (h_f64)((v >> 32) | 0x4530000000000000u);
  return (high - 0x1.00000001p84) + low;
}
SMELT_FN h_f64 half_i64_f64(h_i64 v) {
  h_f64 low = (h_f64)(((h_u64)v & 0xffffffffu) | 0x4330000000000000u);
  h_f64 high = (h_f64)(((h_u64)v >> 32) ^ 0x4530000080000000u);
  return (high - 0x1.00000801p84) + low;
}
#endif
#if SMELT_ISA == 256 || SMELT_ISA == 128
#if SMELT_ISA == 256
#define SMELT_ROUND(v, mode) ((h_f64)_mm256_round_pd((__m256d)(v), mode))
#else
#define SMELT_ROUND(v, mode) ((h_f64)_mm_round_pd((__m128d)(v), mode))
#endif
/* x = high * 2^32 + low, each part read out of the mantissa of a large constant. */
SMELT_FN h_i64 half_f64_i64(h_f64 v) {
  h_f64 whole = SMELT_ROUND(v, 11);
  h_i64 inside = (h_i64)((whole >= -0x1p63) & (whole < 0x1p63));
  h_f64 high = SMELT_ROUND(whole * 0x1p-32, 9);
  h_f64 low = whole - high * 0x1p32;
  h_u64 high_bits = (h_u64)(high + 0x1.8p52) << 32;
  h_u64 low_bits = (h_u64)(low + 0x1p52) & 0xffffffffu;
  return ((h_i64)(high_bits | low_bits) & inside) | (INT64_MIN & ~inside);
}
#undef SMELT_ROUND
#elif SMELT_ISA == 0
SMELT_FN h_i64 half_f64_i64(h_f64 v) {
  h_i64 converted;
  for (int i = 0; i < SMELT_H; i++) converted[i] = v[i] >= -0x1p63 && v[i] < 0x1p63 ? (int64_t)v[i] : INT64_MIN;
  return converted;
}
#elif SMELT_ISA == 64
SMELT_FN h_i64 half_f64_i64(h_f64 v) {
  h_i64 inside = (h_i64)((v >= -0x1p63) & (v < 0x1p63));
  h_i64 converted = __builtin_convertvector((h_f64)((h_i64)v & inside), h_i64);
  return (converted & inside) | (INT64_MIN & ~inside);
}
#endif

SMELT_FN h_u64 half_f64_u64(h_f64 v) {
  h_i64 large = (h_i64)(v >= 0x1p63);
  h_f64 reduced = v - (h_f64)(large & (h_i64)splat_f64(0x1p63));
  return (h_u64)(half_f64_i64(reduced) ^ (large & INT64_MIN));
}
SMELT_FN v_f64 cvt_i64_f64(v_i64 v) { return (v_f64){half_i64_f64(v.lo), half_i64_f64(v.hi)}; }
SMELT_FN v_f64 cvt_u64_f64(v_u64 v) { return (v_f64){half_u64_f64(v.lo), half_u64_f64(v.hi)}; }
SMELT_FN v_i64 cvt_f64_i64(v_f64 v) { return (v_i64){half_f64_i64(v.lo), half_f64_i64(v.hi)}; }
SMELT_FN v_u64 cvt_f64_u64(v_f64 v) { return (v_u64){half_f64_u64(v.lo), half_f64_u64(v.hi)}; }
#if SMELT_ISA == 512
#define SMELT_JOIN(a, b) ((v_f32)_mm512_insertf32x8(_mm512_castps256_ps512(a), b, 1))
SMELT_FN v_f32 cvt_i64_f32(v_i64 v) {
  return SMELT_JOIN(_mm512_cvtepi64_ps((__m512i)v.lo), _mm512_cvtepi64_ps((__m512i)v.hi));
}
SMELT_FN v_f32 cvt_u64_f32(v_u64 v) {
  return SMELT_JOIN(_mm512_cvtepu64_ps((__m512i)v.lo), _mm512_cvtepu64_ps((__m512i)v.hi));
}
#undef SMELT_JOIN
#else
/* f64 is exact below 2^53. Beyond, the low 11 bits become one sticky bit first, so that f64 is exact and f32 rounds once. */
SMELT_FN h_i64 half_sticky(h_i64 v, h_i64 large) {
  h_i64 sticky = (((v & 2047) + 2047) | v) & ~(int64_t)2047;
  return (v & ~large) | (sticky & large);
}
SMELT_FN h_i64 half_beyond_53_bits(h_f64 v) { return (h_i64)((v >= 0x1p53) | (v <= -0x1p53)); }
#define SMELT_DEFINE(D)                                                            \
  SMELT_FN v_f32 cvt_##D##_f32(v_##D v) {                                          \
    v_f64 exact = cvt_##D##_f64(v);                                                \
    h_i64 low = half_beyond_53_bits(exact.lo), high = half_beyond_53_bits(exact.hi); \
    if (hor_b((v_i32)(low | high))) {                                              \
      exact.lo = half_##D##_f64((h_##D)half_sticky((h_i64)v.lo, low));             \
      exact.hi = half_##D##_f64((h_##D)half_sticky((h_i64)v.hi, high));            \
    }                                                                              \
    return cvt_f64_f32(exact);                                                     \
  }
SMELT_DEFINE(i64) SMELT_DEFINE(u64)
#undef SMELT_DEFINE
#endif
SMELT_FN v_i64 cvt_f32_i64(v_f32 v) { return cvt_f64_i64(cvt_f32_f64(v)); }
SMELT_FN v_u64 cvt_f32_u64(v_f32 v) { return cvt_f64_u64(cvt_f32_f64(v)); }
SMELT_FN v_f32 cvt_i32_f32(v_i32 v) { return __builtin_convertvector(v, v_f32); }

/* 64-bit reinterpretations and the unsigned 32-bit row and column, from the pieces above. */
SMELT_FN v_i64 cvt_u64_i64(v_u64 v) { return (v_i64){(h_i64)v.lo, (h_i64)v.hi}; }
SMELT_FN v_u64 cvt_i64_u64(v_i64 v) { return (v_u64){(h_u64)v.lo, (h_u64)v.hi}; }
SMELT_FN v_i32 cvt_u64_i32(v_u64 v) { return cvt_i64_i32(cvt_u64_i64(v)); }
SMELT_FN v_u32 cvt_i64_u32(v_i64 v) { return (v_u32)cvt_i64_i32(v); }
#if SMELT_ISA >= 128
SMELT_FN v_u32 cvt_u64_u32(v_u64 v) { return (v_u32)cvt_u64_i32(v); }
#endif
SMELT_FN v_u64 cvt_i32_u64(v_i32 v) { return cvt_i64_u64(cvt_i32_i64(v)); }
SMELT_FN v_u64 cvt_u32_u64(v_u32 v) { return cvt_i64_u64(cvt_u32_i64(v)); }
SMELT_FN v_u32 cvt_i32_u32(v_i32 v) { return (v_u32)v; }
SMELT_FN v_i32 cvt_u32_i32(v_u32 v) { return (v_i32)v; }
SMELT_FN v_f64 cvt_u32_f64(v_u32 v) { return cvt_i64_f64(cvt_u32_i64(v)); }
SMELT_FN v_f32 cvt_u32_f32(v_u32 v) { return cvt_f64_f32(cvt_u32_f64(v)); }
SMELT_FN v_u32 cvt_f64_u32(v_f64 v) { return cvt_i64_u32(cvt_f64_i64(v)); }
SMELT_FN v_u32 cvt_f32_u32(v_f32 v) { return cvt_i64_u32(cvt_f32_i64(v)); }

#define SMELT_DEFINE(D) SMELT_FN v_##D cvt_##D##_##D(v_##D v) { return v; }
SMELT_EACH_DTYPE(SMELT_DEFINE)
#undef SMELT_DEFINE

/* Small dtypes are i32 lanes: leaving them costs nothing more, entering them wraps. */
#define SMELT_LEAVE(S, D) SMELT_FN v_##D cvt_##S##_##D(v_##S v) { return cvt_i32_##D(v); }
#define SMELT_ENTER(S, D) SMELT_FN v_##D cvt_##S##_##D(v_##S v) { return wrap_##D(cvt_##S##_i32(v)); }
#define SMELT_DEFINE(D)                                                            \
  SMELT_LEAVE(D, i32) SMELT_LEAVE(D, u32) SMELT_LEAVE(D, i64)                      \
  SMELT_LEAVE(D, u64) SMELT_LEAVE(D, f32) SMELT_LEAVE(D, f64)                      \
  SMELT_ENTER(i32, D) SMELT_ENTER(u32, D) SMELT_ENTER(i64, D)                      \
  SMELT_ENTER(u64, D) SMELT_ENTER(f32, D) SMELT_ENTER(f64, D)
SMELT_EACH_SMALL(SMELT_DEFINE)
#undef SMELT_DEFINE
SMELT_ENTER(i8, i16) SMELT_ENTER(i8, u8) SMELT_ENTER(i8, u16)
SMELT_ENTER(i16, i8) SMELT_ENTER(i16, u8) SMELT_ENTER(i16, u16)
SMELT_ENTER(u8, i8) SMELT_ENTER(u8, i16) SMELT_ENTER(u8, u16)
SMELT_ENTER(u16, i8) SMELT_ENTER(u16, i16) SMELT_ENTER(u16, u8)
#undef SMELT_LEAVE
#undef SMELT_ENTER

#define SMELT_DEFINE(D) SMELT_FN v_##D cvt_b_##D(v_b v) { return cvt_i32_##D(v & 1); }
SMELT_EACH_SMALL(SMELT_DEFINE)
SMELT_EACH_WORD(SMELT_DEFINE)
SMELT_EACH_WIDE(SMELT_DEFINE)
#undef SMELT_DEFINE
#define SMELT_DEFINE(D) SMELT_FN v_b cvt_##D##_b(v_##D v) { return (v_i32)(v != 0); }
SMELT_EACH_SMALL(SMELT_DEFINE)
SMELT_EACH_WORD(SMELT_DEFINE)
#undef SMELT_DEFINE
#define SMELT_DEFINE(D)                                                            \
  SMELT_FN v_b cvt_##D##_b(v_##D v) { return cvt_i64_i32((v_i64){(h_i64)(v.lo != 0), (h_i64)(v.hi != 0)}); }
SMELT_EACH_WIDE(SMELT_DEFINE)
#undef SMELT_DEFINE

#endif
