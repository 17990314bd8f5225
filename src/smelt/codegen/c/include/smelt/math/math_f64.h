/* Elementary functions of f64: exponentials and logarithms.
 *
 * Input: v_f64. Output: exp expm1 log log1p tanh erf gelu sigmoid softplus sinh cosh asinh acosh atanh, as fn_f64(v), and
 * half_fn on one register. Invariant: at most 4 ULP, with or without FMA; IEEE special values; branch-free. */
#ifndef SMELT_MATH_F64_H
#define SMELT_MATH_F64_H

#include <smelt/math/math_round.h>

#define SMELT_LOG2E_F64 0x1.71547652b82fep0
/* ln 2 in two parts; the first has 32 bits, so that its product with any exponent is exact. */
#define SMELT_LN2_HIGH_F64 0x1.62e42feep-1
#define SMELT_LN2_LOW_F64 0x1.a39ef35793c76p-33

SMELT_FN h_f64 half_choose(h_i64 m, h_f64 a, h_f64 b) { return (h_f64)half_sel(m, (h_i64)a, (h_i64)b); }
SMELT_FN h_f64 half_clamp(h_f64 x, double low, double high) {
  return half_second_max(splat_f64(low), half_second_min(splat_f64(high), x));
}

/* e^r - 1 for |r| <= ln2 / 2. */
SMELT_FN h_f64 half_expm1_core(h_f64 r) {
  h_f64 p = 0x1.1ee88deefcdabp-29 * r + 0x1.af5ee8cfc7e25p-26;
  p = p * r + 0x1.27e5365baa9fap-22;
  p = p * r + 0x1.71ddf841b2279p-19;
  p = p * r + 0x1.a01a017b982d4p-16;
  p = p * r + 0x1.a01a01afe9c86p-13;
  p = p * r + 0x1.6c16c16c1f15bp-10;
  p = p * r + 0x1.111111110f6a9p-7;
  p = p * r + 0x1.555555555553ep-5;
  p = p * r + 0x1.5555555555559p-3;
  p = p * r + 0x1p-1;
  return (r * r) * p + r;
}
/* r = x - n ln2 for the whole number n left in the low bits of `shifted` (plus `bias`). */
SMELT_FN h_f64 half_exp_reduce(h_f64 x, double bias, h_f64 *shifted) {
  double large = 0x1.8p52 + bias;
  *shifted = x * SMELT_LOG2E_F64 + large;
  h_f64 n = *shifted - large;
  return (x - n * SMELT_LN2_HIGH_F64) - n * SMELT_LN2_LOW_F64;
}
/* 2^power e^x (1 + low) for x in [-746, 712], in two scalings by normal numbers. */
SMELT_FN h_f64 half_exp_scaled(h_f64 x, h_f64 low, double power) {
  h_f64 shifted, r = half_exp_reduce(x, 2046 + power, &shifted) + low;
  h_f64 p = half_expm1_core(r) + 1.0;
  h_u64 half = (h_u64)shifted >> 1;
  return p * (h_f64)(half << 52) * (h_f64)(((h_u64)shifted - half) << 52);
}
SMELT_FN h_f64 half_exp(h_f64 x) { return half_exp_scaled(half_clamp(x, -746.0, 710.0), splat_f64(0.0), 0); }

/* 2 (2^(n-1) (e^r - 1) + (2^(n-1) - 1/2)); below 2^-54 the answer is x, sign of zero included. */
SMELT_FN h_f64 half_expm1(h_f64 x) {
  h_f64 shifted, r = half_exp_reduce(half_clamp(x, -40.0, 710.0), 1022, &shifted);
  h_f64 scale = (h_f64)((h_u64)shifted << 52);
  h_f64 result = (scale * half_expm1_core(r) + (scale - 0.5)) * 2.0;
  return half_choose((h_i64)(half_abs(x) < 0x1p-54), x, result);
}
/* e^y - 1 for -60 <= y <= 0. */
SMELT_FN h_f64 half_expm1_negative(h_f64 y) {
  h_f64 shifted, r = half_exp_reduce(y, 1023, &shifted);
  h_f64 scale = (h_f64)((h_u64)shifted << 52);
  return scale * half_expm1_core(r) + (scale - 1.0);
}
SMELT_FN h_f64 half_tanh(h_f64 x) {
  h_f64 t = half_expm1_negative(-2.0 * half_second_min(splat_f64(19.1), half_abs(x)));
  return half_copysign(t / (t + 2.0), x);
}
SMELT_FN h_f64 half_sigmoid(h_f64 x) {
  h_f64 e = half_exp_scaled(half_second_max(splat_f64(-746.0), half_neg(half_abs(x))), splat_f64(0.0), 0);
  return half_choose((h_i64)(x < 0.0), e, splat_f64(1.0)) / (1.0 + e);
}

/* 1 - e^(-a q(a)) with q(a) = -log(erfc a) / a, in two pieces; from 5.95 on it rounds to 1. */
SMELT_FN h_f64 half_erf(h_f64 x) {
  h_f64 a = half_second_min(splat_f64(5.95), half_abs(x)), t = a - 3.75;
  h_f64 near = -0x1.77d8121e0211ep-30 * a + 0x1.831f1b4fff034p-26;
  near = near * a - 0x1.70c82dc323c1ep-23;
  near = near * a + 0x1.a4e5aecf2ad3fp-21;
  near = near * a - 0x1.2cf1d6136fcd5p-19;
  near = near * a + 0x1.b6744ed7944f8p-19;
  near = near * a + 0x1.a30ac4c86d1e5p-19;
  near = near * a - 0x1.f04a1dcc6ba3fp-16;
  near = near * a + 0x1.0e4647c6899e7p-14;
  near = near * a + 0x1.b26a0d5329374p-16;
  near = near * a - 0x1.3565ae57a2f41p-11;
  near = near * a + 0x1.bca681c1a1f99p-10;
  near = near * a - 0x1.b6b68f7bbecfep-13;
  near = near * a - 0x1.3966859396a64p-6;
  near = near * a + 0x1.a4f4e2a1b1f19p-4;
  near = near * a + 0x1.45f306dc9c894p-1;
  near = near * a + 0x1.20dd750429b6dp0;
  h_f64 far = 0x1.4d24f71b1ddd5p-48 * t + 0x1.fe7b833e91a95p-48;
  far = far * t - 0x1.5854af325193p-43;
  far = far * t + 0x1.97f7b006464e4p-42;
  far = far * t - 0x1.e113b1072e3afp-40;
  far = far * t + 0x1.e3993bbb757edp-37;
  far = far * t - 0x1.10522cf9215fep-34;
  far = far * t + 0x1.8d5c1ebc383f5p-33;
  far = far * t + 0x1.1090243a394bbp-34;
  far = far * t - 0x1.04d5cc53b8a16p-27;
  far = far * t + 0x1.7a186a6d7585p-24;
  far = far * t - 0x1.97822ef5c275p-21;
  far = far * t + 0x1.807e2bb6503d6p-18;
  far = far * t - 0x1.4f78666c6ecbfp-15;
  far = far * t + 0x1.1634064eb8594p-12;
  far = far * t - 0x1.bf0e53f663d19p-10;
  far = far * t + 0x1.62f23c93bcf42p-7;
  far = far * t + 0x1.dc07a96b0de52p-1;
  far = far * t + 0x1.10e30757a5af7p2;
  h_f64 q = half_choose((h_i64)(a < 1.5), near, far);
  return half_copysign(half_expm1_negative(half_neg(a * q)), x);
}
SMELT_FN h_f64 half_gelu(h_f64 x) { return x * 0.5 * (1.0 + half_erf(x * 0x1.6a09e667f3bcdp-1)); }

/* x = 2^e (1 + f), 1 + f in [sqrt(1/2), sqrt(2)), for positive normal x. */
SMELT_FN h_f64 half_split_exponent(h_f64 x, h_f64 *f) {
  h_u64 biased = ((h_u64)x + 0x00095f619980c433u) >> 52;
  *f = (h_f64)((h_u64)x - ((biased - 1023) << 52)) - 1.0;
  return (h_f64)(biased | 0x4330000000000000u) - (0x1p52 + 1023);
}
/* log x + correction: with s = f / (2 + f), log(1 + f) = f - f^2/2 + s (f^2/2 + s^2 r(s^2)). */
SMELT_FN h_f64 half_log_core(h_f64 x, h_f64 more_exponent, h_f64 correction) {
  h_f64 f, e = half_split_exponent(x, &f) + more_exponent;
  h_f64 s = f / (2.0 + f), z = s * s, square = 0.5 * f * f;
  h_f64 p = 0x1.2f0d91f6bd412p-3 * z + 0x1.39a0f49c96b12p-3;
  p = p * z + 0x1.746646313695p-3;
  p = p * z + 0x1.c71c51e7dcc09p-3;
  p = p * z + 0x1.2492494217c6fp-2;
  p = p * z + 0x1.999999997fb2fp-2;
  p = p * z + 0x1.5555555555593p-1;
  h_f64 tail = s * (square + z * p) + (e * SMELT_LN2_LOW_F64 + correction);
  return e * SMELT_LN2_HIGH_F64 + (f - (square - tail));
}
/* For x of the domain's edge: `edge` gives -inf, below it NaN; inf and NaN stay. */
SMELT_FN h_f64 half_log_specials(h_f64 x, h_f64 result, double edge) {
  h_f64 special = half_choose((h_i64)(x == edge), splat_f64(-__builtin_inf()), x);
  special = half_choose((h_i64)(x < edge), splat_f64(__builtin_nan("")), special);
  return half_choose((h_i64)(x > edge) & (h_i64)(x < __builtin_inf()), result, special);
}
SMELT_FN h_f64 half_log(h_f64 x) {
  h_i64 subnormal = (h_i64)(x < 0x1p-1022);
  h_f64 more = (h_f64)(subnormal & (h_i64)splat_f64(-54.0));
  h_f64 result = half_log_core(half_choose(subnormal, x * 0x1p54, x), more, splat_f64(0.0));
  return half_log_specials(x, result, 0.0);
}
/* u = 1 + x rounded, c what the rounding lost. */
SMELT_FN h_f64 half_log1p(h_f64 x) {
  h_f64 u = 1.0 + x;
  h_f64 c = half_choose((h_i64)(x >= 1.0), 1.0 - (u - x), x - (u - 1.0));
  h_f64 result = half_log_specials(x, half_log_core(u, splat_f64(0.0), c / u), -1.0);
  return half_choose((h_i64)(half_abs(x) < 0x1p-54), x, result);
}
SMELT_FN h_f64 half_softplus(h_f64 x) {
  h_f64 e = half_exp_scaled(half_second_max(splat_f64(-746.0), half_neg(half_abs(x))), splat_f64(0.0), 0);
  return (h_f64)((h_i64)x & (h_i64)(x > 0.0)) + half_log1p(e);
}

/* With E = e^a / 2: cosh = E + 1/(4E); sinh = E - 1/(4E), and for small a from t = e^a - 1: (t + t/(t+1)) / 2. */
SMELT_FN h_f64 half_cosh(h_f64 x) {
  h_f64 e = half_exp_scaled(half_second_min(splat_f64(712.0), half_abs(x)), splat_f64(0.0), -1);
  return e + 0.25 / e;
}
SMELT_FN h_f64 half_sinh(h_f64 x) {
  h_f64 a = half_second_min(splat_f64(712.0), half_abs(x));
  h_f64 e = half_exp_scaled(a, splat_f64(0.0), -1), t = half_expm1(half_second_min(splat_f64(2.0), a));
  h_f64 small = 0.5 * (t + t / (t + 1.0));
  h_f64 result = half_copysign(half_choose((h_i64)(a > 1.0), e - 0.25 / e, small), x);
  return half_choose((h_i64)(half_abs(x) < 0x1p-54), x, result);
}
/* Beyond 2^54 the square root is the argument itself, and adding 1 changes nothing: log(2a) = log a + ln 2. */
SMELT_FN h_f64 half_log1p_or_twice(h_f64 small, h_f64 a) {
  h_i64 large = (h_i64)(a > 0x1p54);
  h_f64 more = (h_f64)(large & (h_i64)splat_f64(0x1.62e42fefa39efp-1));
  return half_log1p(half_choose(large, a, small)) + more;
}
SMELT_FN h_f64 half_asinh(h_f64 x) {
  h_f64 a = half_abs(x), square = a * a;
  return half_copysign(half_log1p_or_twice(a + square / (1.0 + half_sqrt(1.0 + square)), a), x);
}
SMELT_FN h_f64 half_acosh(h_f64 x) {
  h_f64 t = x - 1.0;
  h_f64 result = half_log1p_or_twice(t + half_sqrt(2.0 * t + t * t), x);
  return half_choose((h_i64)(x < 1.0), splat_f64(__builtin_nan("")), result);
}
SMELT_FN h_f64 half_atanh(h_f64 x) {
  h_f64 a = half_abs(x);
  h_f64 result = half_copysign(0.5 * half_log1p((a + a) / (1.0 - a)), x);
  return half_choose((h_i64)(a < 0x1p-54), x, result);
}

SMELT_PAIR(exp) SMELT_PAIR(expm1) SMELT_PAIR(log) SMELT_PAIR(log1p) SMELT_PAIR(tanh) SMELT_PAIR(erf) SMELT_PAIR(gelu)
SMELT_PAIR(sigmoid) SMELT_PAIR(softplus) SMELT_PAIR(sinh) SMELT_PAIR(cosh) SMELT_PAIR(asinh) SMELT_PAIR(acosh)
SMELT_PAIR(atanh)

#endif
