/* Rounding, classification, square root: exact functions of f32 and f64.
 *
 * Input: v_f32 or v_f64. Output: floor ceil round (half to even) trunc sign sqrt recip copysign, and isnan isinf isinf_pos
 * isinf_neg as v_b. Invariant: correctly rounded, signs of zeros kept, NaN stays NaN; no call into libm. */
#ifndef SMELT_MATH_ROUND_H
#define SMELT_MATH_ROUND_H

#include <smelt/vec/vec.h>

#define SMELT_PAIR(name) SMELT_FN v_f64 name##_f64(v_f64 v) { return (v_f64){half_##name(v.lo), half_##name(v.hi)}; }

#if SMELT_ISA >= 128
#if SMELT_ISA == 512
#define SMELT_ROUND_PS(v, mode) _mm512_roundscale_ps((__m512)(v), mode)
#define SMELT_ROUND_PD(v, mode) _mm512_roundscale_pd((__m512d)(v), mode)
#define SMELT_SQRT_PS(v) _mm512_sqrt_ps((__m512)(v))
#define SMELT_SQRT_PD(v) _mm512_sqrt_pd((__m512d)(v))
#elif SMELT_ISA == 256
#define SMELT_ROUND_PS(v, mode) _mm256_round_ps((__m256)(v), mode)
#define SMELT_ROUND_PD(v, mode) _mm256_round_pd((__m256d)(v), mode)
#define SMELT_SQRT_PS(v) _mm256_sqrt_ps((__m256)(v))
#define SMELT_SQRT_PD(v) _mm256_sqrt_pd((__m256d)(v))
#else
#define SMELT_ROUND_PS(v, mode) _mm_round_ps((__m128)(v), mode)
#define SMELT_ROUND_PD(v, mode) _mm_round_pd((__m128d)(v), mode)
#define SMELT_SQRT_PS(v) _mm_sqrt_ps((__m128)(v))
#define SMELT_SQRT_PD(v) _mm_sqrt_pd((__m128d)(v))
#endif
/* Modes: 0 nearest even, 1 down, 2 up, 3 toward zero; 8 suppresses the inexact flag. */
#define SMELT_DEFINE(name, mode)                                                   \
  SMELT_FN v_f32 name##_f32(v_f32 v) { return (v_f32)SMELT_ROUND_PS(v, mode); }    \
  SMELT_FN h_f64 half_##name(h_f64 v) { return (h_f64)SMELT_ROUND_PD(v, mode); }
SMELT_DEFINE(round, 8) SMELT_DEFINE(floor, 9) SMELT_DEFINE(ceil, 10) SMELT_DEFINE(trunc, 11)
#undef SMELT_DEFINE
SMELT_FN v_f32 sqrt_f32(v_f32 v) { return (v_f32)SMELT_SQRT_PS(v); }
SMELT_FN h_f64 half_sqrt(h_f64 v) { return (h_f64)SMELT_SQRT_PD(v); }
#undef SMELT_ROUND_PS
#undef SMELT_ROUND_PD
#undef SMELT_SQRT_PS
#undef SMELT_SQRT_PD
#elif SMELT_ISA == 64
#define SMELT_DEFINE(name, intrinsic)                                              \
  SMELT_FN v_f32 name##_f32(v_f32 v) { return (v_f32)intrinsic##_f32((float32x4_t)v); } \
  SMELT_FN h_f64 half_##name(h_f64 v) { return (h_f64)intrinsic##_f64((float64x2_t)v); }
SMELT_DEFINE(round, vrndnq) SMELT_DEFINE(floor, vrndmq) SMELT_DEFINE(ceil, vrndpq) SMELT_DEFINE(trunc, vrndq)
SMELT_DEFINE(sqrt, vsqrtq)
#undef SMELT_DEFINE
#else
/* Adding and subtracting 2^23 (2^52) rounds to nearest even; the sign is put back for zeros. Larger values are whole. */
SMELT_FN v_f32 round_f32(v_f32 v) {
  v_u32 sign = (v_u32)v & 0x80000000u;
  v_f32 a = abs_f32(v), near = (a + 0x1p23f) - 0x1p23f;
  return sel_f32((v_i32)(a < 0x1p23f), (v_f32)((v_u32)near | sign), v);
}
SMELT_FN h_f64 half_round(h_f64 v) {
  h_u64 sign = (h_u64)v & 0x8000000000000000u;
  h_f64 a = half_abs(v), near = (a + 0x1p52) - 0x1p52;
  return (h_f64)half_sel((h_i64)(a < 0x1p52), (h_i64)((h_u64)near | sign), (h_i64)v);
}
#define SMELT_STEP(name, compare, step)                                            \
  SMELT_FN v_f32 name##_f32(v_f32 v) {                                             \
    v_f32 near = round_f32(v);                                                     \
    v_f32 moved = near + (v_f32)((v_i32)(near compare v) & (v_i32)bc_f32(step));   \
    return (v_f32)((v_u32)moved | ((v_u32)v & 0x80000000u));                       \
  }                                                                                \
  SMELT_FN h_f64 half_##name(h_f64 v) {                                            \
    h_f64 near = half_round(v);                                                    \
    h_f64 moved = near + (h_f64)((h_i64)(near compare v) & (h_i64)splat_f64(step)); \
    return (h_f64)((h_u64)moved | ((h_u64)v & 0x8000000000000000u));               \
  }
SMELT_STEP(floor, >, -1.0f) SMELT_STEP(ceil, <, 1.0f)
#undef SMELT_STEP
SMELT_FN v_f32 trunc_f32(v_f32 v) {
  return (v_f32)((v_u32)floor_f32(abs_f32(v)) | ((v_u32)v & 0x80000000u));
}
SMELT_FN h_f64 half_trunc(h_f64 v) {
  return (h_f64)((h_u64)half_floor(half_abs(v)) | ((h_u64)v & 0x8000000000000000u));
}
SMELT_FN v_f32 sqrt_f32(v_f32 v) {
  for (int i = 0; i < SMELT_L; i++) v[i] = __builtin_sqrtf(v[i]);
  return v;
}
SMELT_FN h_f64 half_sqrt(h_f64 v) {
  for (int i = 0; i < SMELT_H; i++) v[i] = __builtin_sqrt(v[i]);
  return v;
}
#endif
SMELT_PAIR(round) SMELT_PAIR(floor) SMELT_PAIR(ceil) SMELT_PAIR(trunc) SMELT_PAIR(sqrt)

SMELT_FN v_f32 recip_f32(v_f32 v) { return 1.0f / v; }
SMELT_FN h_f64 half_recip(h_f64 v) { return 1.0 / v; }
SMELT_PAIR(recip)

SMELT_FN v_f32 copysign_f32(v_f32 size, v_f32 sign) {
  return (v_f32)(((v_u32)size & 0x7fffffffu) | ((v_u32)sign & 0x80000000u));
}
SMELT_FN h_f64 half_copysign(h_f64 size, h_f64 sign) {
  return (h_f64)(((h_u64)size & 0x7fffffffffffffffu) | ((h_u64)sign & 0x8000000000000000u));
}
SMELT_FN v_f64 copysign_f64(v_f64 size, v_f64 sign) {
  return (v_f64){half_copysign(size.lo, sign.lo), half_copysign(size.hi, sign.hi)};
}

SMELT_FN v_b isnan_f32(v_f32 v) { return (v_i32)(v != v); }
SMELT_FN v_b isinf_f32(v_f32 v) { return (v_i32)(((v_u32)v & 0x7fffffffu) == 0x7f800000u); }
SMELT_FN v_b isinf_pos_f32(v_f32 v) { return (v_i32)((v_u32)v == 0x7f800000u); }
SMELT_FN v_b isinf_neg_f32(v_f32 v) { return (v_i32)((v_u32)v == 0xff800000u); }
SMELT_FN v_b isnan_f64(v_f64 v) { return ne_f64(v, v); }
SMELT_FN v_b isinf_f64(v_f64 v) { return eq_f64(abs_f64(v), bc_f64(__builtin_inf())); }
SMELT_FN v_b isinf_pos_f64(v_f64 v) { return eq_f64(v, bc_f64(__builtin_inf())); }
SMELT_FN v_b isinf_neg_f64(v_f64 v) { return eq_f64(v, bc_f64(-__builtin_inf())); }

/* -1, 0, 1; of -0 it is 0, and NaN stays what it is. */
SMELT_FN v_f32 sign_f32(v_f32 v) {
  v_i32 ordinary = (v_i32)(abs_f32(v) > 0.0f);
  return sel_f32(ordinary, copysign_f32(bc_f32(1.0f), v), v + 0.0f);
}
SMELT_FN h_f64 half_sign(h_f64 v) {
  h_i64 ordinary = (h_i64)(half_abs(v) > 0.0);
  return (h_f64)half_sel(ordinary, (h_i64)half_copysign(splat_f64(1.0), v), (h_i64)(v + 0.0));
}
SMELT_PAIR(sign)
#define SMELT_SIGNED(D) \
  SMELT_FN v_##D sign_##D(v_##D v) { return max_##D(bc_##D(-1), min_##D(bc_##D(1), v)); }
#define SMELT_UNSIGNED(D) SMELT_FN v_##D sign_##D(v_##D v) { return min_##D(bc_##D(1), v); }
SMELT_SIGNED(i8) SMELT_SIGNED(i16) SMELT_SIGNED(i32) SMELT_SIGNED(i64)
SMELT_UNSIGNED(u8) SMELT_UNSIGNED(u16) SMELT_UNSIGNED(u32) SMELT_UNSIGNED(u64)
#undef SMELT_SIGNED
#undef SMELT_UNSIGNED

#endif
