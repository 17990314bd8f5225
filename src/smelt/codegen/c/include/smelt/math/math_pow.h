/* Powers, floating remainders, and the f32 functions that go through f64.
 *
 * Input: vectors of f32 or f64. Output: pow, fmod (sign of the dividend), mod (sign of the divisor), and sinh cosh asinh
 * acosh atanh of f32. Invariant: pow has the IEEE 754 special cases; fmod is exact. */
#ifndef SMELT_MATH_POW_H
#define SMELT_MATH_POW_H

#include <smelt/math/math_f64.h>

#define SMELT_THROUGH_F64(fn) SMELT_FN v_f32 fn##_f32(v_f32 v) { return cvt_f64_f32(fn##_f64(cvt_f32_f64(v))); }
SMELT_THROUGH_F64(sinh) SMELT_THROUGH_F64(cosh) SMELT_THROUGH_F64(asinh) SMELT_THROUGH_F64(acosh) SMELT_THROUGH_F64(atanh)
#undef SMELT_THROUGH_F64

/* Sign and special cases of x^y around `size`, the power of |x| for finite arguments. */
SMELT_FN h_f64 half_pow_specials(h_f64 x, h_f64 y, h_f64 size) {
  h_f64 a = half_abs(x), half_y = 0.5 * y, infinity = splat_f64(__builtin_inf());
  h_i64 y_is_infinite = (h_i64)(half_abs(y) == infinity);
  h_i64 extreme = (h_i64)(a == 0.0) | (h_i64)(a == infinity) | y_is_infinite;
  h_f64 limit = half_choose((h_i64)(a > 1.0) ^ (h_i64)(y < 0.0), infinity, splat_f64(0.0));
  h_f64 result = half_choose(extreme, limit, size);
  result = half_choose((h_i64)(x != x), x, half_choose((h_i64)(y != y), y, result));
  h_i64 whole = (h_i64)(half_trunc(y) == y), odd = whole & (h_i64)(half_trunc(half_y) != half_y);
  result = (h_f64)((h_u64)result ^ ((h_u64)x & (h_u64)odd & 0x8000000000000000u));
  h_i64 no_root = (h_i64)(x < 0.0) & (h_i64)(a < infinity) & ~whole & (h_i64)(y == y);
  result = half_choose(no_root, splat_f64(__builtin_nan("")), result);
  h_i64 one = (h_i64)(x == 1.0) | (h_i64)(y == 0.0) | ((h_i64)(a == 1.0) & y_is_infinite);
  return half_choose(one, splat_f64(1.0), result);
}
/* f32: log and exp of f64 leave more than enough bits. */
SMELT_FN h_f64 half_pow_f32(h_f64 x, h_f64 y) {
  h_f64 product = y * half_log_core(half_abs(x), splat_f64(0.0), splat_f64(0.0));
  h_f64 size = half_exp_scaled(half_clamp(product, -746.0, 710.0), splat_f64(0.0), 0);
  return half_pow_specials(x, y, size);
}
SMELT_FN v_f32 pow_f32(v_f32 x, v_f32 y) {
  v_f64 a = cvt_f32_f64(x), b = cvt_f32_f64(y);
  return cvt_f64_f32((v_f64){half_pow_f32(a.lo, b.lo), half_pow_f32(a.hi, b.hi)});
}

/* Numbers of twice the precision: high + low, |low| at most half an ULP of high. */
typedef struct { h_f64 high, low; } half_double;
SMELT_FN half_double half_exact_product(h_f64 a, h_f64 b) {
#if SMELT_HAS_FMA
  h_f64 product = a * b;
  return (half_double){product, half_fma(a, b, half_neg(product))};
#else
  /* Halves of 26 and 27 bits: all partial products are exact. */
  h_f64 a_high = (h_f64)((h_u64)a & 0xfffffffff8000000u), a_low = a - a_high;
  h_f64 b_high = (h_f64)((h_u64)b & 0xfffffffff8000000u), b_low = b - b_high;
  h_f64 product = a * b;
  return (half_double){product, ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low};
#endif
}
SMELT_FN half_double half_quick_sum(h_f64 large, h_f64 small) {
  h_f64 sum = large + small;
  return (half_double){sum, small - (sum - large)};
}
SMELT_FN half_double half_exact_sum(h_f64 a, h_f64 b) {
  h_f64 sum = a + b, part = sum - a;
  return (half_double){sum, (a - (sum - part)) + (b - part)};
}
SMELT_FN half_double half_product(half_double a, half_double b) {
  half_double p = half_exact_product(a.high, b.high);
  return half_quick_sum(p.high, p.low + (a.high * b.low + a.low * b.high));
}
/* log x to about 66 bits: 2 atanh s = 2s + (2/3) s^3 + s^5 p(s^2), s = f / (2 + f), all but the last term doubled. */
SMELT_FN half_double half_precise_log(h_f64 x) {
  h_i64 subnormal = (h_i64)(x < 0x1p-1022);
  h_f64 f, more = (h_f64)(subnormal & (h_i64)splat_f64(-54.0));
  h_f64 e = half_split_exponent(half_choose(subnormal, x * 0x1p54, x), &f) + more;
  half_double below = half_quick_sum(splat_f64(2.0), f);
  h_f64 ratio = f / below.high;
  half_double back = half_exact_product(ratio, below.high);
  half_double s = {ratio, (((f - back.high) - back.low) - ratio * below.low) / below.high};
  half_double square = half_product(s, s), cube = half_product(square, s);
  half_double third = half_product(cube, (half_double){splat_f64(0x1.5555555555555p-1), splat_f64(0x1.5555555555555p-55)});
  h_f64 z = square.high;
  h_f64 p = 0x1.e2cf809c8d1e1p-4 * z + 0x1.df372bc51736bp-4;
  p = p * z + 0x1.111a312f19e1cp-3;
  p = p * z + 0x1.3b138e95b3a57p-3;
  p = p * z + 0x1.745d178d8025ep-3;
  p = p * z + 0x1.c71c71c6d35b5p-3;
  p = p * z + 0x1.2492492492576p-2;
  p = p * z + 0x1.999999999999ap-2;
  h_f64 rest = (z * cube.high) * p;
  half_double base = half_exact_sum(e * 0x1.62e42fefa2p-1, 2.0 * s.high);
  half_double sum = half_exact_sum(base.high, third.high);
  h_f64 low = (sum.low + base.low) + (third.low + (2.0 * s.low + (rest + e * 0x1.9ef35793c7673p-41)));
  return half_quick_sum(sum.high, low);
}
SMELT_FN h_f64 half_pow(h_f64 x, h_f64 y) {
  half_double log = half_precise_log(half_abs(x));
  h_f64 estimate = y * log.high;
  h_i64 inside = (h_i64)(half_abs(estimate) < 800.0);
  half_double product = half_exact_product(half_choose(inside, y, splat_f64(0.0)), log.high);
  h_f64 low = product.low + half_choose(inside, y, splat_f64(0.0)) * log.low;
  h_f64 exponent = half_choose(inside, product.high, half_choose((h_i64)(estimate > 0.0), splat_f64(800.0), splat_f64(-800.0)));
  h_f64 size = half_exp_scaled(half_clamp(exponent, -746.0, 712.0), low, 0);
  return half_pow_specials(x, y, size);
}
SMELT_FN v_f64 pow_f64(v_f64 x, v_f64 y) { return (v_f64){half_pow(x.lo, y.lo), half_pow(x.hi, y.hi)}; }

/* a = m 2^e and b = n 2^f: m 2^(e-f) mod n in integers, a few bits of the exponent at a time. */
static inline __attribute__((unused)) double exact_remainder(double a, double b) {
  uint64_t x, y;
  __builtin_memcpy(&x, &a, sizeof x);
  __builtin_memcpy(&y, &b, sizeof y);
  uint64_t sign = x & 0x8000000000000000u, infinity = 0x7ff0000000000000u;
  x ^= sign;
  y &= ~0x8000000000000000u;
  if (x >= infinity || y > infinity || y == 0) return __builtin_nan("");
  if (x < y) return a;
  int e = (int)(x >> 52), f = (int)(y >> 52);
  uint64_t m = e ? (x & 0xfffffffffffffu) | 0x10000000000000u : x, n = f ? (y & 0xfffffffffffffu) | 0x10000000000000u : y;
  e = e ? e : 1;
  f = f ? f : 1;
  for (m %= n; e > f && m != 0; m %= n) {
    int step = e - f < 11 ? e - f : 11;
    m <<= step;
    e -= step;
  }
  double rest = (double)(int64_t)m;
  uint64_t bits;
  if (m != 0 && f > 1) { /* the result is m 2^(f - 1075) */
    __builtin_memcpy(&bits, &rest, sizeof bits);
    int exponent = (int)(bits >> 52) + f - 1075;
    bits = exponent > 0 ? (bits & 0xfffffffffffffu) | (uint64_t)exponent << 52 : m << (f - 1);
  } else {
    bits = m;
  }
  bits |= sign;
  __builtin_memcpy(&rest, &bits, sizeof rest);
  return rest;
}
SMELT_FN v_f64 fmod_f64(v_f64 a, v_f64 b) {
  double x[SMELT_L], y[SMELT_L];
  st_f64(x, a);
  st_f64(y, b);
  for (int i = 0; i < SMELT_L; i++) x[i] = exact_remainder(x[i], y[i]);
  return ld_f64(x);
}
/* f32 operands are exact in f64, and so is their remainder in f32. While the quotient is below 2^28 its product with b is
 * exact too; a vector with a larger one goes lane by lane. */
SMELT_FN h_f64 half_small_remainder(h_f64 a, h_f64 b) {
  h_f64 x = half_abs(a), y = half_abs(b), rest = x - half_trunc(x / y) * y;
  rest = rest + (h_f64)((h_i64)y & (h_i64)(rest < 0.0));
  rest = half_choose((h_i64)(x < y), x, rest);
  return half_copysign(half_choose((h_i64)(rest >= y), rest - y, rest), a);
}
SMELT_FN v_f32 fmod_f32(v_f32 a, v_f32 b) {
  v_f64 x = cvt_f32_f64(a), y = cvt_f32_f64(b);
  v_b easy = lt_f64(abs_f64(x), mul_f64(abs_f64(y), bc_f64(0x1p28)));
  if (!hand_b(easy)) return cvt_f64_f32(fmod_f64(x, y));
  return cvt_f64_f32((v_f64){half_small_remainder(x.lo, y.lo), half_small_remainder(x.hi, y.hi)});
}
#define SMELT_DEFINE(D)                                                            \
  SMELT_FN v_##D mod_##D(v_##D a, v_##D b) {                                       \
    v_##D zero = bc_##D(0), rest = fmod_##D(a, b);                                 \
    v_b wrong = and_b(ne_##D(rest, zero), xor_b(lt_##D(rest, zero), lt_##D(b, zero))); \
    return sel_##D(wrong, add_##D(rest, b), sel_##D(eq_##D(rest, zero), copysign_##D(rest, b), rest)); \
  }
SMELT_DEFINE(f32) SMELT_DEFINE(f64)
#undef SMELT_DEFINE

#endif
