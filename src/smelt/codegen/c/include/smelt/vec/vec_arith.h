/* Selection, comparison, logic and arithmetic of every dtype, and reductions of one vector to a scalar.
 *
 * Input: vectors of one dtype. Output: op_D(...) of that dtype; comparisons give v_b.
 * Invariant: no undefined behaviour and no trap for any bit pattern.
 *   Integers wrap. Division truncates; a divisor of 0 gives 0, MIN / -1 gives MIN. mod has the divisor's sign, fmod the
 *   dividend's. Shifts by the width or more (or by a negative count) give 0; shr of signed dtypes keeps the sign.
 *   min and max of floats give NaN if any operand is NaN. neg and abs of floats change only the sign bit. */
#ifndef SMELT_VEC_ARITH_H
#define SMELT_VEC_ARITH_H

#include <smelt/vec/vec_convert.h>
#include <smelt/vec/vec_memory.h>

/* m ? a : b on whole registers. */
SMELT_FN v_i32 sel_i32(v_b m, v_i32 a, v_i32 b) {
#if SMELT_ISA == 512
  return (v_i32)_mm512_ternarylogic_epi32((__m512i)m, (__m512i)a, (__m512i)b, 0xca);
#elif SMELT_ISA == 256
  return (v_i32)_mm256_blendv_ps((__m256)b, (__m256)a, (__m256)m);
#elif SMELT_ISA == 128
  return (v_i32)_mm_blendv_ps((__m128)b, (__m128)a, (__m128)m);
#else
  return (m & a) | (~m & b);
#endif
}
SMELT_FN h_i64 half_sel(h_i64 m, h_i64 a, h_i64 b) { return (h_i64)sel_i32((v_i32)m, (v_i32)a, (v_i32)b); }
SMELT_FN v_b and_b(v_b a, v_b b) { return a & b; }
SMELT_FN v_b or_b(v_b a, v_b b) { return a | b; }
SMELT_FN v_b xor_b(v_b a, v_b b) { return a ^ b; }
SMELT_FN v_b not_b(v_b a) { return ~a; }

#define SMELT_DEFINE(D) SMELT_FN v_##D sel_##D(v_b m, v_##D a, v_##D b) { return (v_##D)sel_i32(m, (v_i32)a, (v_i32)b); }
SMELT_EACH_SMALL(SMELT_DEFINE)
SMELT_DEFINE(f32) SMELT_DEFINE(u32) SMELT_DEFINE(b)
#undef SMELT_DEFINE
#define SMELT_DEFINE(D)                                                            \
  SMELT_FN v_##D sel_##D(v_b m, v_##D a, v_##D b) {                                \
    v_i64 wide = cvt_i32_i64(m);                                                   \
    return (v_##D){(h_##D)half_sel(wide.lo, (h_i64)a.lo, (h_i64)b.lo),             \
                   (h_##D)half_sel(wide.hi, (h_i64)a.hi, (h_i64)b.hi)};            \
  }
SMELT_EACH_WIDE(SMELT_DEFINE)
#undef SMELT_DEFINE

/* The value itself, rounded before a sum reads it. */
SMELT_FN v_f32 rounded_f32(v_f32 v) {
  SMELT_HELD(v);
  return v;
}
SMELT_FN v_f64 rounded_f64(v_f64 v) {
  SMELT_HELD(v.lo);
  SMELT_HELD(v.hi);
  return v;
}

/* Comparisons. */
#define SMELT_COMPARE_WORD(name, D, op) SMELT_FN v_b name##_##D(v_##D a, v_##D b) { return (v_i32)(a op b); }
#define SMELT_COMPARE_WIDE(name, D, op)                                            \
  SMELT_FN v_b name##_##D(v_##D a, v_##D b) {                                      \
    return cvt_i64_i32((v_i64){(h_i64)(a.lo op b.lo), (h_i64)(a.hi op b.hi)});     \
  }
#define SMELT_COMPARE_ALL(COMPARE, D)                                              \
  COMPARE(eq, D, ==) COMPARE(ne, D, !=) COMPARE(lt, D, <) COMPARE(le, D, <=) COMPARE(gt, D, >) COMPARE(ge, D, >=)
#define SMELT_DEFINE(D) SMELT_COMPARE_ALL(SMELT_COMPARE_WORD, D)
SMELT_EACH_SMALL(SMELT_DEFINE)
SMELT_EACH_WORD(SMELT_DEFINE)
#undef SMELT_DEFINE
#define SMELT_DEFINE(D) SMELT_COMPARE_ALL(SMELT_COMPARE_WIDE, D)
SMELT_EACH_WIDE(SMELT_DEFINE)
#undef SMELT_DEFINE
SMELT_FN v_b eq_b(v_b a, v_b b) { return ~(a ^ b); }
SMELT_FN v_b ne_b(v_b a, v_b b) { return a ^ b; }

/* Sums, differences, products, bit operations. Signed lanes are added as unsigned: they wrap. */
#define SMELT_INT32_BINARY(name, D, op)                                            \
  SMELT_FN v_##D name##_##D(v_##D a, v_##D b) { return wrap_##D((v_i32)((v_u32)a op (v_u32)b)); }
#define SMELT_DIRECT_BINARY(name, D, op) SMELT_FN v_##D name##_##D(v_##D a, v_##D b) { return a op b; }
#define SMELT_WIDE_INT_BINARY(name, D, op)                                         \
  SMELT_FN v_##D name##_##D(v_##D a, v_##D b) {                                    \
    return (v_##D){(h_##D)((h_u64)a.lo op (h_u64)b.lo), (h_##D)((h_u64)a.hi op (h_u64)b.hi)}; \
  }
#define SMELT_WIDE_BINARY(name, D, op)                                             \
  SMELT_FN v_##D name##_##D(v_##D a, v_##D b) { return (v_##D){a.lo op b.lo, a.hi op b.hi}; }
#define SMELT_DEFINE(D)                                                            \
  SMELT_INT32_BINARY(add, D, +) SMELT_INT32_BINARY(sub, D, -) SMELT_INT32_BINARY(mul, D, *) \
  SMELT_DIRECT_BINARY(band, D, &) SMELT_DIRECT_BINARY(bor, D, |) SMELT_DIRECT_BINARY(bxor, D, ^) \
  SMELT_FN v_##D neg_##D(v_##D a) { return wrap_##D((v_i32)-(v_u32)a); }           \
  SMELT_FN v_##D bnot_##D(v_##D a) { return wrap_##D(~a); }
SMELT_EACH_INT32(SMELT_DEFINE)
#undef SMELT_DEFINE
SMELT_DIRECT_BINARY(add, u32, +) SMELT_DIRECT_BINARY(sub, u32, -) SMELT_DIRECT_BINARY(mul, u32, *)
SMELT_DIRECT_BINARY(band, u32, &) SMELT_DIRECT_BINARY(bor, u32, |) SMELT_DIRECT_BINARY(bxor, u32, ^)
SMELT_FN v_u32 neg_u32(v_u32 a) { return -a; }
SMELT_FN v_u32 bnot_u32(v_u32 a) { return ~a; }
#define SMELT_DEFINE(D)                                                            \
  SMELT_WIDE_INT_BINARY(add, D, +) SMELT_WIDE_INT_BINARY(sub, D, -) SMELT_WIDE_INT_BINARY(mul, D, *) \
  SMELT_WIDE_INT_BINARY(band, D, &) SMELT_WIDE_INT_BINARY(bor, D, |) SMELT_WIDE_INT_BINARY(bxor, D, ^) \
  SMELT_FN v_##D neg_##D(v_##D a) { return (v_##D){(h_##D)-(h_u64)a.lo, (h_##D)-(h_u64)a.hi}; } \
  SMELT_FN v_##D bnot_##D(v_##D a) { return (v_##D){~a.lo, ~a.hi}; }
SMELT_DEFINE(i64) SMELT_DEFINE(u64)
#undef SMELT_DEFINE
SMELT_DIRECT_BINARY(add, f32, +) SMELT_DIRECT_BINARY(sub, f32, -) SMELT_DIRECT_BINARY(mul, f32, *) SMELT_DIRECT_BINARY(div, f32, /)
SMELT_WIDE_BINARY(add, f64, +) SMELT_WIDE_BINARY(sub, f64, -) SMELT_WIDE_BINARY(mul, f64, *) SMELT_WIDE_BINARY(div, f64, /)
SMELT_FN v_f32 neg_f32(v_f32 a) { return (v_f32)((v_u32)a ^ 0x80000000u); }
SMELT_FN v_f32 abs_f32(v_f32 a) { return (v_f32)((v_u32)a & 0x7fffffffu); }
SMELT_FN h_f64 half_abs(h_f64 a) { return (h_f64)((h_u64)a & 0x7fffffffffffffffu); }
SMELT_FN h_f64 half_neg(h_f64 a) { return (h_f64)((h_u64)a ^ 0x8000000000000000u); }
SMELT_FN v_f64 neg_f64(v_f64 a) { return (v_f64){half_neg(a.lo), half_neg(a.hi)}; }
SMELT_FN v_f64 abs_f64(v_f64 a) { return (v_f64){half_abs(a.lo), half_abs(a.hi)}; }

/* a * b + c with one rounding where the target has it (SMELT_HAS_FMA), else two. */
#if SMELT_HAS_FMA && SMELT_ISA == 512
SMELT_FN v_f32 fma_f32(v_f32 a, v_f32 b, v_f32 c) { return (v_f32)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c); }
SMELT_FN h_f64 half_fma(h_f64 a, h_f64 b, h_f64 c) { return (h_f64)_mm512_fmadd_pd((__m512d)a, (__m512d)b, (__m512d)c); }
#elif SMELT_HAS_FMA && SMELT_ISA == 256
SMELT_FN v_f32 fma_f32(v_f32 a, v_f32 b, v_f32 c) { return (v_f32)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c); }
SMELT_FN h_f64 half_fma(h_f64 a, h_f64 b, h_f64 c) { return (h_f64)_mm256_fmadd_pd((__m256d)a, (__m256d)b, (__m256d)c); }
#elif SMELT_HAS_FMA && SMELT_ISA == 128
SMELT_FN v_f32 fma_f32(v_f32 a, v_f32 b, v_f32 c) { return (v_f32)_mm_fmadd_ps((__m128)a, (__m128)b, (__m128)c); }
SMELT_FN h_f64 half_fma(h_f64 a, h_f64 b, h_f64 c) { return (h_f64)_mm_fmadd_pd((__m128d)a, (__m128d)b, (__m128d)c); }
#elif SMELT_ISA == 64
SMELT_FN v_f32 fma_f32(v_f32 a, v_f32 b, v_f32 c) {
  return (v_f32)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b);
}
SMELT_FN h_f64 half_fma(h_f64 a, h_f64 b, h_f64 c) {
  return (h_f64)vfmaq_f64((float64x2_t)c, (float64x2_t)a, (float64x2_t)b);
}
#else
SMELT_FN v_f32 fma_f32(v_f32 a, v_f32 b, v_f32 c) { return a * b + c; }
SMELT_FN h_f64 half_fma(h_f64 a, h_f64 b, h_f64 c) { return a * b + c; }
#endif
SMELT_FN v_f64 fma_f64(v_f64 a, v_f64 b, v_f64 c) {
  return (v_f64){half_fma(a.lo, b.lo, c.lo), half_fma(a.hi, b.hi, c.hi)};
}

/* Minimum, maximum, absolute value. */
#if SMELT_ISA == 512
#define SMELT_X86(name, suffix, type) _mm512_##name##_##suffix
#elif SMELT_ISA == 256
#define SMELT_X86(name, suffix, type) _mm256_##name##_##suffix
#elif SMELT_ISA == 128
#define SMELT_X86(name, suffix, type) _mm_##name##_##suffix
#endif
#if SMELT_ISA >= 128
#if SMELT_ISA == 512
typedef __m512i native_int;
typedef __m512 native_f32;
typedef __m512d native_f64;
#elif SMELT_ISA == 256
typedef __m256i native_int;
typedef __m256 native_f32;
typedef __m256d native_f64;
#else
typedef __m128i native_int;
typedef __m128 native_f32;
typedef __m128d native_f64;
#endif
/* minps and maxps give the second operand when one is NaN: that covers a NaN in b, the selection one in a. */
#define SMELT_DEFINE(name)                                                         \
  SMELT_FN v_i32 name##_i32(v_i32 a, v_i32 b) { return (v_i32)SMELT_X86(name, epi32, )((native_int)a, (native_int)b); } \
  SMELT_FN v_u32 name##_u32(v_u32 a, v_u32 b) { return (v_u32)SMELT_X86(name, epu32, )((native_int)a, (native_int)b); } \
  SMELT_FN v_f32 second_##name##_f32(v_f32 a, v_f32 b) {                           \
    return (v_f32)SMELT_X86(name, ps, )((native_f32)a, (native_f32)b);             \
  }                                                                                \
  SMELT_FN h_f64 half_second_##name(h_f64 a, h_f64 b) {                            \
    return (h_f64)SMELT_X86(name, pd, )((native_f64)a, (native_f64)b);             \
  }                                                                                \
  SMELT_FN v_f32 name##_f32(v_f32 a, v_f32 b) { return sel_f32((v_i32)(a != a), a, second_##name##_f32(a, b)); } \
  SMELT_FN h_f64 half_##name(h_f64 a, h_f64 b) {                                   \
    return (h_f64)half_sel((h_i64)(a != a), (h_i64)a, (h_i64)half_second_##name(a, b)); \
  }
SMELT_DEFINE(min) SMELT_DEFINE(max)
#undef SMELT_DEFINE
#elif SMELT_ISA == 64
#define SMELT_DEFINE(name, intrinsic)                                              \
  SMELT_FN v_i32 name##_i32(v_i32 a, v_i32 b) { return (v_i32)intrinsic##_s32((int32x4_t)a, (int32x4_t)b); } \
  SMELT_FN v_u32 name##_u32(v_u32 a, v_u32 b) { return (v_u32)intrinsic##_u32((uint32x4_t)a, (uint32x4_t)b); } \
  SMELT_FN v_f32 name##_f32(v_f32 a, v_f32 b) { return (v_f32)intrinsic##_f32((float32x4_t)a, (float32x4_t)b); } \
  SMELT_FN h_f64 half_##name(h_f64 a, h_f64 b) { return (h_f64)intrinsic##_f64((float64x2_t)a, (float64x2_t)b); } \
  SMELT_FN v_f32 second_##name##_f32(v_f32 a, v_f32 b) { return name##_f32(a, b); } \
  SMELT_FN h_f64 half_second_##name(h_f64 a, h_f64 b) { return half_##name(a, b); }
SMELT_DEFINE(min, vminq) SMELT_DEFINE(max, vmaxq)
#undef SMELT_DEFINE
#else
#define SMELT_DEFINE(name, op)                                                     \
  SMELT_FN v_i32 name##_i32(v_i32 a, v_i32 b) { return sel_i32(a op b, a, b); }    \
  SMELT_FN v_u32 name##_u32(v_u32 a, v_u32 b) { return sel_u32((v_i32)(a op b), a, b); } \
  SMELT_FN v_f32 second_##name##_f32(v_f32 a, v_f32 b) { return sel_f32((v_i32)(a op b), a, b); } \
  SMELT_FN h_f64 half_second_##name(h_f64 a, h_f64 b) { return (h_f64)half_sel((h_i64)(a op b), (h_i64)a, (h_i64)b); } \
  SMELT_FN v_f32 name##_f32(v_f32 a, v_f32 b) { return sel_f32((v_i32)((a op b) | (a != a)), a, b); } \
  SMELT_FN h_f64 half_##name(h_f64 a, h_f64 b) { return (h_f64)half_sel((h_i64)((a op b) | (a != a)), (h_i64)a, (h_i64)b); }
SMELT_DEFINE(min, <) SMELT_DEFINE(max, >)
#undef SMELT_DEFINE
#endif
#undef SMELT_X86
SMELT_FN v_f64 min_f64(v_f64 a, v_f64 b) { return (v_f64){half_min(a.lo, b.lo), half_min(a.hi, b.hi)}; }
SMELT_FN v_f64 max_f64(v_f64 a, v_f64 b) { return (v_f64){half_max(a.lo, b.lo), half_max(a.hi, b.hi)}; }
#define SMELT_DEFINE(D)                                                            \
  SMELT_FN v_##D min_##D(v_##D a, v_##D b) { return min_i32(a, b); }               \
  SMELT_FN v_##D max_##D(v_##D a, v_##D b) { return max_i32(a, b); }
SMELT_EACH_SMALL(SMELT_DEFINE)
#undef SMELT_DEFINE
#define SMELT_DEFINE(D)                                                            \
  SMELT_FN h_##D half_min_##D(h_##D a, h_##D b) { return (h_##D)half_sel((h_i64)(a < b), (h_i64)a, (h_i64)b); } \
  SMELT_FN h_##D half_max_##D(h_##D a, h_##D b) { return (h_##D)half_sel((h_i64)(a > b), (h_i64)a, (h_i64)b); } \
  SMELT_FN v_##D min_##D(v_##D a, v_##D b) { return (v_##D){half_min_##D(a.lo, b.lo), half_min_##D(a.hi, b.hi)}; } \
  SMELT_FN v_##D max_##D(v_##D a, v_##D b) { return (v_##D){half_max_##D(a.lo, b.lo), half_max_##D(a.hi, b.hi)}; }
SMELT_DEFINE(i64) SMELT_DEFINE(u64)
#undef SMELT_DEFINE
SMELT_FN h_f64 half_min_f64(h_f64 a, h_f64 b) { return half_min(a, b); }
SMELT_FN h_f64 half_max_f64(h_f64 a, h_f64 b) { return half_max(a, b); }
#define SMELT_SIGNED(D) SMELT_FN v_##D abs_##D(v_##D a) { return max_##D(a, neg_##D(a)); }
#define SMELT_UNSIGNED(D) SMELT_FN v_##D abs_##D(v_##D a) { return a; }
SMELT_SIGNED(i8) SMELT_SIGNED(i16) SMELT_SIGNED(i32) SMELT_SIGNED(i64)
SMELT_UNSIGNED(u8) SMELT_UNSIGNED(u16) SMELT_UNSIGNED(u32) SMELT_UNSIGNED(u64)
#undef SMELT_SIGNED
#undef SMELT_UNSIGNED

/* Shifts. The count is masked for the instruction, then the result is cleared where it was too large. */
SMELT_FN v_u32 shl_u32(v_u32 a, v_u32 n) { return (a << (n & 31)) & (v_u32)(n < 32); }
SMELT_FN v_u32 shr_u32(v_u32 a, v_u32 n) { return (a >> (n & 31)) & (v_u32)(n < 32); }
SMELT_FN v_i32 shl_i32(v_i32 a, v_i32 n) { return (v_i32)shl_u32((v_u32)a, (v_u32)n); }
SMELT_FN v_i32 shr_i32(v_i32 a, v_i32 n) { return (a >> (n & 31)) & (v_i32)((v_u32)n < 32); }
#define SMELT_DEFINE(D, width)                                                     \
  SMELT_FN v_##D shl_##D(v_##D a, v_##D n) { return wrap_##D(shl_i32(a, n)); }     \
  SMELT_FN v_##D shr_##D(v_##D a, v_##D n) { return shr_i32(a, n) & (v_i32)((v_u32)n < width); }
SMELT_DEFINE(i8, 8) SMELT_DEFINE(u8, 8) SMELT_DEFINE(i16, 16) SMELT_DEFINE(u16, 16)
#undef SMELT_DEFINE
#define SMELT_DEFINE(D)                                                            \
  SMELT_FN h_##D half_shl_##D(h_##D a, h_##D n) {                                  \
    return (h_##D)(((h_u64)a << ((h_u64)n & 63)) & (h_u64)((h_u64)n < 64));        \
  }                                                                                \
  SMELT_FN h_##D half_shr_##D(h_##D a, h_##D n) { return (a >> (n & 63)) & (h_##D)((h_u64)n < 64); } \
  SMELT_FN v_##D shl_##D(v_##D a, v_##D n) { return (v_##D){half_shl_##D(a.lo, n.lo), half_shl_##D(a.hi, n.hi)}; } \
  SMELT_FN v_##D shr_##D(v_##D a, v_##D n) { return (v_##D){half_shr_##D(a.lo, n.lo), half_shr_##D(a.hi, n.hi)}; }
SMELT_DEFINE(i64) SMELT_DEFINE(u64)
#undef SMELT_DEFINE

#undef SMELT_COMPARE_WORD
#undef SMELT_COMPARE_WIDE
#undef SMELT_COMPARE_ALL
#undef SMELT_INT32_BINARY
#undef SMELT_DIRECT_BINARY
#undef SMELT_WIDE_INT_BINARY
#undef SMELT_WIDE_BINARY

#endif
