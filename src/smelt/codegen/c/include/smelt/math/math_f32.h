/* Elementary functions of f32, in f32 arithmetic.
 *
 * Input: v_f32. Output: exp expm1 tanh erf sigmoid softplus log log1p gelu, as fn_f32(v).
 * Invariant: at most 4 ULP over all floats, subnormals included, with or without FMA; IEEE special values; branch-free.
 *            gelu is off by at most 2 ULP of its argument: what lies far below that is the tail. */
#ifndef SMELT_MATH_F32_H
#define SMELT_MATH_F32_H

#include <smelt/math/math_round.h>

#define SMELT_LOG2E_F32 0x1.715476p0f
/* ln 2 in two parts; the first has 15 bits, so that its product with any exponent is exact. */
#define SMELT_LN2_HIGH_F32 0x1.62e4p-1f
#define SMELT_LN2_LOW_F32 0x1.7f7d1cp-20f

/* e^r - 1 for |r| <= 0.35, relative error below 2^-26. */
SMELT_FN v_f32 expm1_core_f32(v_f32 r) {
  v_f32 p = 0x1.6beb32p-10f * r + 0x1.122d00p-7f;
  p = p * r + 0x1.555680p-5f;
  p = p * r + 0x1.5554aap-3f;
  p = p * r + 0x1.fffffep-2f;
  return (r * r) * p + r;
}
/* e^y - 1 for -18 <= y <= 0: 2^n (e^r - 1) + (2^n - 1). Adding the large constant rounds to the whole number n and
 * leaves n + 127 in the low bits. */
SMELT_FN v_f32 expm1_negative_f32(v_f32 y) {
  v_f32 shifted = y * SMELT_LOG2E_F32 + 12583039.0f;
  v_f32 n = shifted - 12583039.0f;
  v_f32 scale = (v_f32)((v_u32)shifted << 23);
  v_f32 r = y - n * SMELT_LN2_HIGH_F32;
  r = r - n * SMELT_LN2_LOW_F32;
  return scale * expm1_core_f32(r) + (scale - 1.0f);
}

/* e^x for x in [-104, 89] or NaN. The scale 2^n is applied in two halves: both are normal numbers, so that results down
 * to the smallest subnormal round once. */
SMELT_FN v_f32 exp_clamped_f32(v_f32 x) {
#if SMELT_ISA == 512
  v_f32 n = round_f32(x * SMELT_LOG2E_F32);
#else
  v_f32 shifted = x * SMELT_LOG2E_F32 + 12583166.0f; /* leaves n + 254 */
  v_f32 n = shifted - 12583166.0f;
#endif
  v_f32 r = x - n * SMELT_LN2_HIGH_F32;
  r = r - n * SMELT_LN2_LOW_F32;
  v_f32 p = 0x1.6a1a8ep-10f * r + 0x1.123fc6p-7f;
  p = p * r + 0x1.555916p-5f;
  p = p * r + 0x1.55548ap-3f;
  p = p * r + 0x1.fffffcp-2f;
  p = (r * r) * p + (r + 1.0f);
#if SMELT_ISA == 512
  return (v_f32)_mm512_scalef_ps((__m512)p, (__m512)n);
#else
  v_u32 half = (v_u32)shifted >> 1;
  return p * (v_f32)(half << 23) * (v_f32)(((v_u32)shifted - half) << 23);
#endif
}
/* e^x for x below 89 or NaN. Below -104 it is 0; such lanes (a masked softmax is full of them) compute e^0 instead, because
 * an underflow costs more than a hundred times as much as the rest. */
SMELT_FN v_f32 exp_below_f32(v_f32 x) {
  v_i32 stays = ~(v_i32)(x < -104.0f);
  return (v_f32)(stays & (v_i32)exp_clamped_f32((v_f32)(stays & (v_i32)x)));
}
/* A softmax's e^x, x at most 0 or NaN: what would be subnormal is 0, since it would cost as much again in each product. */
SMELT_FN v_f32 exp_weight_f32(v_f32 x) {
  v_i32 stays = ~(v_i32)(x < -87.33f);
  return (v_f32)(stays & (v_i32)exp_clamped_f32((v_f32)(stays & (v_i32)x)));
}
SMELT_FN v_f32 exp_f32(v_f32 x) { return exp_below_f32(second_min_f32(bc_f32(89.0f), x)); }

/* tanh a = -t / (t + 2) with t = e^(-2a) - 1; from 9.02 on it rounds to 1. */
SMELT_FN v_f32 tanh_f32(v_f32 x) {
  v_f32 a = second_min_f32(bc_f32(9.02f), abs_f32(x));
  v_f32 t = expm1_negative_f32(-2.0f * a);
  return copysign_f32(t / (t + 2.0f), x);
}

/* erf a = 1 - e^(-a q(a)), q(a) = -log(erfc a) / a, which is smooth; from 3.95 on it rounds to 1. */
SMELT_FN v_f32 erf_f32(v_f32 x) {
  v_f32 a = second_min_f32(bc_f32(3.95f), abs_f32(x));
  v_f32 q = 0x1.a9ce4ep-18f * a - 0x1.82e2fep-14f; /* -q(a) */
  q = q * a + 0x1.1e6f14p-11f;
  q = q * a - 0x1.8e5ffap-10f;
  q = q * a + 0x1.c53dcep-16f;
  q = q * a + 0x1.3ad516p-6f;
  q = q * a - 0x1.a508e6p-4f;
  q = q * a - 0x1.45f2d4p-1f;
  q = q * a - 0x1.20dd76p0f;
  return copysign_f32(expm1_negative_f32(a * q), x);
}

/* 2^(p - SMELT_EXP2_OFFSET) for p up to 0 or NaN, to 2 ULP; 0 where that would be subnormal. */
#if SMELT_ISA == 512
#define SMELT_EXP2_OFFSET 0.5f
#else
#define SMELT_EXP2_OFFSET 0.0f
#endif
SMELT_FN v_f32 exp2_offset_f32(v_f32 p) {
#if SMELT_ISA == 512
  v_f32 f = (v_f32)_mm512_reduce_ps((__m512)p, 1); /* p - floor(p) */
  v_f32 power = 0x1.5c08e6p-10f * f + 0x1.a09318p-8f;
  power = power * f + 0x1.43616ep-5f;
  power = power * f + 0x1.5bc794p-3f;
  power = power * f + 0x1.f5e57cp-2f;
  power = power * f + 0x1.6a09e4p-1f;
  return (v_f32)_mm512_maskz_scalef_ps(_mm512_cmp_ps_mask((__m512)p, _mm512_set1_ps(-125.0f), _CMP_NLT_UQ), (__m512)power,
                                       (__m512)p);
#else
  p = second_max_f32(bc_f32(-127.0f), p);
  v_f32 shifted = p + 12583039.0f; /* leaves n + 127, and 0 at the lower end */
  v_f32 f = p - (shifted - 12583039.0f);
  v_f32 power = 0x1.5bba14p-10f * f + 0x1.3cea88p-7f;
  power = power * f + 0x1.c6b752p-5f;
  power = power * f + 0x1.ebf9bcp-3f;
  power = power * f + 0x1.62e42ap-1f;
  power = power * f + 1.0f;
  return power * (v_f32)((v_u32)shifted << 23);
#endif
}
/* x times the share of a normal distribution below x. The share beyond a = |x| is 2^r(a), r(a) = log2(erfc(a / sqrt 2) / 2),
 * of which the fit is within 2^-26 / 2^r up to 6, and falls without end from there on. */
SMELT_FN v_f32 gelu_f32(v_f32 x) {
  v_f32 a = abs_f32(x);
  v_f32 p = -0x1.7c7edep-19f * a + 0x1.4a52f2p-15f;
  p = p * a - 0x1.8672c2p-13f;
  p = p * a - 0x1.1f2d28p-13f;
  p = p * a + 0x1.cee886p-8f;
  p = p * a - 0x1.ae0c78p-5f;
  p = p * a - 0x1.d63aacp-2f;
  p = p * a - 0x1.26aed4p0f;
  v_f32 beyond = exp2_offset_f32(p * a + (SMELT_EXP2_OFFSET - 1.0f));
  return x * sel_f32((v_i32)(x < 0.0f), beyond, 1.0f - beyond);
}

/* 1 / (1 + e^-|x|), or e^-|x| times that: nothing cancels and the tail stays accurate down to subnormals. */
SMELT_FN v_f32 sigmoid_f32(v_f32 x) {
  v_f32 e = exp_below_f32(-abs_f32(x));
  return sel_f32((v_i32)(x < 0.0f), e, bc_f32(1.0f)) / (1.0f + e);
}

/* 2 (2^(n-1) (e^r - 1) + (2^(n-1) - 1/2)); below 2^-25 the answer is x, sign of zero included. */
SMELT_FN v_f32 expm1_f32(v_f32 x) {
  v_f32 clamped = second_max_f32(bc_f32(-18.0f), second_min_f32(bc_f32(89.0f), x));
  v_f32 shifted = clamped * SMELT_LOG2E_F32 + 12583038.0f;
  v_f32 n = shifted - 12583038.0f;
  v_f32 scale = (v_f32)((v_u32)shifted << 23);
  v_f32 r = clamped - n * SMELT_LN2_HIGH_F32;
  r = r - n * SMELT_LN2_LOW_F32;
  v_f32 result = (scale * expm1_core_f32(r) + (scale - 0.5f)) * 2.0f;
  return sel_f32((v_i32)(abs_f32(x) < 0x1p-25f), x, result);
}

/* log(2^e (1 + f)) = e ln2 + f - f^2/2 + f^3 p(f), 1 + f in [sqrt(1/2), sqrt(2)), plus a correction; x is positive and
 * normal. */
SMELT_FN v_f32 log_core_f32(v_f32 x, v_i32 more_exponent, v_f32 correction) {
  v_i32 exponent = ((v_i32)x - 0x3f3504f3) >> 23;
  v_f32 f = (v_f32)((v_i32)x - (v_i32)((v_u32)exponent << 23)) - 1.0f;
  v_f32 e = cvt_i32_f32(exponent + more_exponent);
  v_f32 p = -0x1.38b6fap-4f * f + 0x1.055bb6p-3f;
  p = p * f - 0x1.0d8518p-3f;
  p = p * f + 0x1.22da0ep-3f;
  p = p * f - 0x1.547248p-3f;
  p = p * f + 0x1.99a00ap-3f;
  p = p * f - 0x1.000226p-2f;
  p = p * f + 0x1.555554p-2f;
  v_f32 square = f * f;
  v_f32 tail = (square * f) * p + (e * SMELT_LN2_LOW_F32 + correction - 0.5f * square);
  return e * SMELT_LN2_HIGH_F32 + (f + tail);
}
/* At the edge of the domain -inf, below it NaN; inf and NaN stay. */
SMELT_FN v_f32 log_specials_f32(v_f32 x, v_f32 result, float edge) {
  v_f32 special = sel_f32((v_i32)(x == edge), bc_f32(-__builtin_inff()), x);
  special = sel_f32((v_i32)(x < edge), bc_f32(__builtin_nanf("")), special);
  return sel_f32((v_i32)(x > edge) & (v_i32)(x < __builtin_inff()), result, special);
}
SMELT_FN v_f32 log_f32(v_f32 x) {
  v_i32 subnormal = (v_i32)(x < 0x1p-126f);
  v_f32 normal = sel_f32(subnormal, x * 0x1p23f, x);
  return log_specials_f32(x, log_core_f32(normal, subnormal & -23, bc_f32(0.0f)), 0.0f);
}
/* u = 1 + x rounded, c what the rounding lost. */
SMELT_FN v_f32 log1p_f32(v_f32 x) {
  v_f32 u = 1.0f + x;
  v_f32 c = sel_f32((v_i32)(x >= 1.0f), 1.0f - (u - x), x - (u - 1.0f));
  v_f32 result = log_specials_f32(x, log_core_f32(u, bc_i32(0), c / u), -1.0f);
  return sel_f32((v_i32)(abs_f32(x) < 0x1p-25f), x, result);
}
SMELT_FN v_f32 softplus_f32(v_f32 x) {
  v_f32 e = exp_below_f32(neg_f32(abs_f32(x)));
  return (v_f32)((v_i32)x & (v_i32)(x > 0.0f)) + log1p_f32(e);
}

#endif
