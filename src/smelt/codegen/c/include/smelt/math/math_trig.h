/* Trigonometric functions of f32 and f64, and their inverses.
 *
 * Input: v_f32 or v_f64. Output: sin cos tan asin acos atan.
 * Invariant: at most 4 ULP for every finite argument. Up to 2^20 the argument is reduced by pi/2 in parts whose products
 * are exact; a vector with a larger lane takes those lanes through the bits of 2/pi, in integers. */
#ifndef SMELT_MATH_TRIG_H
#define SMELT_MATH_TRIG_H

#include <smelt/math/math_f32.h>
#include <smelt/math/math_f64.h>

/* pi/2 = A + B + C + D; A, B and C have 33 bits each. */
#define SMELT_HALF_PI_A 0x1.921fb544p0
#define SMELT_HALF_PI_B 0x1.0b4611a6p-34
#define SMELT_HALF_PI_C 0x1.3198a2ep-69
#define SMELT_HALF_PI_D 0x1.b839a252049c1p-104
#define SMELT_HALF_PI_HIGH 0x1.921fb54442d18p0
#define SMELT_HALF_PI_LOW 0x1.1a62633145c07p-54
#define SMELT_TWO_OVER_PI 0x1.45f306dc9c883p-1
#define SMELT_EASY_ANGLE 0x1p20

typedef struct { h_f64 rest; h_i64 quadrant; } half_angle;

/* x = quadrant * pi/2 + rest, |rest| <= pi/4, for one finite |x| >= 2^20: x = m 2^e, and of m * 2^e * 2/pi only the bits
 * from 2 before to 190 after the point matter. */
static inline __attribute__((unused)) double reduce_huge_angle(double x, int64_t *quadrant) {
  static const uint64_t two_over_pi[21] = {0,
    0xa2f9836e4e441529u, 0xfc2757d1f534ddc0u, 0xdb6295993c439041u, 0xfe5163abdebbc561u, 0xb7246e3a424dd2e0u,
    0x06492eea09d1921cu, 0xfe1deb1cb129a73eu, 0xe88235f52ebb4484u, 0xe99c7026b45f7e41u, 0x3991d639835339f4u,
    0x9c845f8bbdf9283bu, 0x1ff897ffde05980fu, 0xef2f118b5a0a6d1fu, 0x6d367ecf27cb09b7u, 0x4f463f669e5fea2du,
    0x7527bac7ebe5f17bu, 0x3d0739f78a5292eau, 0x6bfb5fb11f8d5d08u, 0x56033046fc7b6babu, 0xf0cfbc209af4361du};
  uint64_t bits, word[3];
  __builtin_memcpy(&bits, &x, sizeof bits);
  int exponent = (int)(bits >> 52 & 2047);
  if (exponent == 2047) {
    *quadrant = 0;
    return x - x;
  }
  uint64_t m = (bits & 0xfffffffffffffu) | 0x10000000000000u;
  int position = exponent - 1075 - 2 + 64, first = position / 64, shift = position % 64;
  for (int i = 0; i < 3; i++) {
    uint64_t high = two_over_pi[first + i], low = first + i + 1 < 21 ? two_over_pi[first + i + 1] : 0;
    word[i] = shift ? high << shift | low >> (64 - shift) : high;
  }
  unsigned __int128 last = (unsigned __int128)m * word[2], middle = (unsigned __int128)m * word[1] + (uint64_t)(last >> 64);
  uint64_t top = m * word[0] + (uint64_t)(middle >> 64), next = (uint64_t)middle;
  uint64_t high = top << 2 | next >> 62, low = next << 2 | (uint64_t)last >> 62;
  int upper_half = (int)(high >> 63);
  int64_t q = (int64_t)(top >> 62) + upper_half;
  if (upper_half) {
    low = -low;
    high = ~high + (low == 0);
  }
  double major = (double)(int64_t)(high & ~(uint64_t)2047) * 0x1p-64;
  double minor = (double)(int64_t)(high & 2047) * 0x1p-64 + (double)(int64_t)(low >> 1) * 0x1p-127;
  double rest = major * SMELT_HALF_PI_HIGH + (major * SMELT_HALF_PI_LOW + minor * SMELT_HALF_PI_HIGH);
  int negative = (bits >> 63) != 0;
  *quadrant = negative ? -q : q;
  return negative != upper_half ? -rest : rest;
}
/* Replaces the lanes that are too large for the parts. Kept out of line: rare. */
static __attribute__((noinline, unused)) void reduce_huge_lanes(const double *x, double *rest, int64_t *quadrant, int n) {
  for (int i = 0; i < n; i++)
    if (!(x[i] < SMELT_EASY_ANGLE && x[i] > -SMELT_EASY_ANGLE)) rest[i] = reduce_huge_angle(x[i], quadrant + i);
}
SMELT_FN half_angle half_reduce_huge(h_f64 x, half_angle angle) {
  double lanes[SMELT_H], rest[SMELT_H];
  int64_t quadrant[SMELT_H];
  __builtin_memcpy(lanes, &x, sizeof x);
  __builtin_memcpy(rest, &angle.rest, sizeof x);
  __builtin_memcpy(quadrant, &angle.quadrant, sizeof x);
  reduce_huge_lanes(lanes, rest, quadrant, SMELT_H);
  __builtin_memcpy(&angle.rest, rest, sizeof x);
  __builtin_memcpy(&angle.quadrant, quadrant, sizeof x);
  return angle;
}
SMELT_FN int half_has_huge(h_f64 x) { return hor_b((v_i32)~(h_i64)(half_abs(x) < SMELT_EASY_ANGLE)); }

SMELT_FN half_angle half_reduce_angle(h_f64 x) {
  h_f64 shifted = x * SMELT_TWO_OVER_PI + 0x1.8p52, q = shifted - 0x1.8p52;
  h_f64 coarse = x - q * SMELT_HALF_PI_A, rest = coarse - q * SMELT_HALF_PI_B;
  h_f64 low = ((coarse - rest) - q * SMELT_HALF_PI_B) - q * SMELT_HALF_PI_C - q * SMELT_HALF_PI_D;
  half_angle angle = {rest + low, (h_i64)shifted};
  return half_has_huge(x) ? half_reduce_huge(x, angle) : angle;
}
SMELT_FN h_f64 half_sin_core(h_f64 r) {
  h_f64 z = r * r;
  h_f64 p = -0x1.aaa04d8b96479p-41 * z + 0x1.6120885a42508p-33;
  p = p * z - 0x1.ae6452876a8d2p-26;
  p = p * z + 0x1.71de3a532bf2ap-19;
  p = p * z - 0x1.a01a01a018a35p-13;
  p = p * z + 0x1.111111111110bp-7;
  p = p * z - 0x1.5555555555555p-3;
  return r + r * (z * p);
}
SMELT_FN h_f64 half_cos_core(h_f64 r) {
  h_f64 z = r * r, half_square = 0.5 * z, w = 1.0 - half_square;
  h_f64 p = -0x1.8fa29114d5356p-37 * z + 0x1.1ee9d3dcebd46p-29;
  p = p * z - 0x1.27e4f7e53eeaap-22;
  p = p * z + 0x1.a01a019c7cdadp-16;
  p = p * z - 0x1.6c16c16c14f47p-10;
  p = p * z + 0x1.555555555554bp-5;
  return w + (((1.0 - w) - half_square) + z * z * p);
}
/* sin of quadrant * pi/2 + r. */
SMELT_FN h_f64 half_sin_of(half_angle angle) {
  h_i64 odd = -(angle.quadrant & 1);
  h_f64 size = half_choose(odd, half_cos_core(angle.rest), half_sin_core(angle.rest));
  return (h_f64)((h_u64)size ^ ((h_u64)(angle.quadrant & 2) << 62));
}
SMELT_FN h_f64 half_sin(h_f64 x) {
  return half_choose((h_i64)(half_abs(x) < 0x1p-27), x, half_sin_of(half_reduce_angle(x)));
}
SMELT_FN h_f64 half_cos(h_f64 x) {
  half_angle angle = half_reduce_angle(x);
  angle.quadrant += 1;
  return half_sin_of(angle);
}
SMELT_FN h_f64 half_tan(h_f64 x) {
  half_angle angle = half_reduce_angle(x);
  h_f64 s = half_sin_core(angle.rest), c = half_cos_core(angle.rest);
  h_i64 odd = -(angle.quadrant & 1);
  h_f64 result = half_choose(odd, half_neg(c), s) / half_choose(odd, s, c);
  return half_choose((h_i64)(half_abs(x) < 0x1p-27), x, result);
}

/* f32 angles are reduced in f64, where two parts of pi/2 suffice; the rest goes on in f32. */
typedef struct { v_f32 rest; v_i32 quadrant; } word_angle;
SMELT_FN half_angle half_reduce_f32_angle(h_f64 x) {
  h_f64 shifted = x * SMELT_TWO_OVER_PI + 0x1.8p52, q = shifted - 0x1.8p52;
  half_angle angle = {(x - q * SMELT_HALF_PI_A) - q * (SMELT_HALF_PI_B + SMELT_HALF_PI_C), (h_i64)shifted};
  return half_has_huge(x) ? half_reduce_huge(x, angle) : angle;
}
SMELT_FN word_angle reduce_angle_f32(v_f32 x) {
  v_f64 wide = cvt_f32_f64(x);
  half_angle lo = half_reduce_f32_angle(wide.lo), hi = half_reduce_f32_angle(wide.hi);
  return (word_angle){cvt_f64_f32((v_f64){lo.rest, hi.rest}), cvt_i64_i32((v_i64){lo.quadrant, hi.quadrant})};
}
SMELT_FN v_f32 sin_core_f32(v_f32 r) {
  v_f32 z = r * r;
  v_f32 p = -0x1.994062p-13f * z + 0x1.11073p-7f;
  p = p * z - 0x1.555546p-3f;
  return r + r * (z * p);
}
SMELT_FN v_f32 cos_core_f32(v_f32 r) {
  v_f32 z = r * r;
  v_f32 p = 0x1.99e86ap-16f * z - 0x1.6c0c28p-10f;
  p = p * z + 0x1.55554ap-5f;
  return (1.0f - 0.5f * z) + z * z * p;
}
SMELT_FN v_f32 sin_of_f32(word_angle angle) {
  v_f32 size = sel_f32(-(angle.quadrant & 1), cos_core_f32(angle.rest), sin_core_f32(angle.rest));
  return (v_f32)((v_u32)size ^ ((v_u32)(angle.quadrant & 2) << 30));
}
SMELT_FN v_f32 sin_f32(v_f32 x) { return sel_f32((v_i32)(abs_f32(x) < 0x1p-13f), x, sin_of_f32(reduce_angle_f32(x))); }
SMELT_FN v_f32 cos_f32(v_f32 x) {
  word_angle angle = reduce_angle_f32(x);
  angle.quadrant += 1;
  return sin_of_f32(angle);
}
SMELT_FN v_f32 tan_f32(v_f32 x) {
  word_angle angle = reduce_angle_f32(x);
  v_f32 s = sin_core_f32(angle.rest), c = cos_core_f32(angle.rest);
  v_i32 odd = -(angle.quadrant & 1);
  v_f32 result = sel_f32(odd, neg_f32(c), s) / sel_f32(odd, s, c);
  return sel_f32((v_i32)(abs_f32(x) < 0x1p-13f), x, result);
}

/* asin s = s + s z p(z), z = s^2 <= 1/4; beyond 1/2 by asin a = pi/2 - 2 asin sqrt((1 - a) / 2). */
SMELT_FN h_f64 half_asin_tail(h_f64 s, h_f64 z) {
  h_f64 p = 0x1.0b80dfb377847p-5 * z - 0x1.58b41000a9bbap-6;
  p = p * z + 0x1.641b1e0f2deecp-6;
  p = p * z + 0x1.e45caa7123bc2p-9;
  p = p * z + 0x1.61571ce9a9c36p-7;
  p = p * z + 0x1.7580e27cffc33p-7;
  p = p * z + 0x1.ca201c6cdd0f2p-7;
  p = p * z + 0x1.1c49ea7fefe99p-6;
  p = p * z + 0x1.6e8bdf328e04ep-6;
  p = p * z + 0x1.f1c71a920f5abp-6;
  p = p * z + 0x1.6db6db721a178p-5;
  p = p * z + 0x1.333333332e089p-4;
  p = p * z + 0x1.5555555555577p-3;
  return s * (z * p);
}
SMELT_FN h_f64 half_asin(h_f64 x) {
  h_f64 a = half_abs(x);
  h_i64 large = (h_i64)(a > 0.5);
  h_f64 z = half_choose(large, 0.5 - 0.5 * a, a * a), s = half_choose(large, half_sqrt(z), a);
  h_f64 tail = half_asin_tail(s, z);
  h_f64 beyond = SMELT_HALF_PI_HIGH - (2.0 * s - (SMELT_HALF_PI_LOW - 2.0 * tail));
  return half_copysign(half_choose(large, beyond, s + tail), x);
}
SMELT_FN h_f64 half_acos(h_f64 x) {
  h_f64 a = half_abs(x);
  h_i64 large = (h_i64)(a > 0.5), negative = (h_i64)(x < 0.0);
  h_f64 z = half_choose(large, 0.5 - 0.5 * a, a * a), s = half_choose(large, half_sqrt(z), x);
  h_f64 tail = half_asin_tail(s, z);
  h_f64 middle = SMELT_HALF_PI_HIGH - (s - (SMELT_HALF_PI_LOW - tail));
  return half_choose(large, 2.0 * half_choose(negative, middle, s + tail), middle);
}
/* atan in three pieces: t = a, (a - 1)/(a + 1) or -1/a, added to 0, pi/4 or pi/2. */
SMELT_FN h_f64 half_atan(h_f64 x) {
  h_f64 a = half_abs(x), one = splat_f64(1.0);
  h_i64 large = (h_i64)(a > 2.414213562373095), middle = (h_i64)(a > 0.4142135623730950) & ~large;
  h_f64 above = half_choose(large, half_neg(one), half_choose(middle, a - 1.0, a));
  h_f64 below = half_choose(large, a, half_choose(middle, a + 1.0, one));
  h_f64 t = above / below, z = t * t;
  h_f64 high = half_choose(large, splat_f64(SMELT_HALF_PI_HIGH), (h_f64)(middle & (h_i64)splat_f64(SMELT_HALF_PI_HIGH / 2)));
  h_f64 low = half_choose(large, splat_f64(SMELT_HALF_PI_LOW), (h_f64)(middle & (h_i64)splat_f64(SMELT_HALF_PI_LOW / 2)));
  h_f64 p = -0x1.251c663afcfeap-6 * z + 0x1.37b1f5994952dp-5;
  p = p * z - 0x1.9cc4a19cfd75p-5;
  p = p * z + 0x1.df0c245362479p-5;
  p = p * z - 0x1.10eb804817a84p-4;
  p = p * z + 0x1.3b11141d414cfp-4;
  p = p * z - 0x1.745cf89307dcep-4;
  p = p * z + 0x1.c71c70e36de23p-4;
  p = p * z - 0x1.24924922a64e5p-3;
  p = p * z + 0x1.9999999995732p-3;
  p = p * z - 0x1.555555555553cp-2;
  return half_copysign(high + (t + (t * (z * p) + low)), x);
}
SMELT_PAIR(sin) SMELT_PAIR(cos) SMELT_PAIR(tan) SMELT_PAIR(asin) SMELT_PAIR(acos) SMELT_PAIR(atan)

#define SMELT_HALF_PI_HIGH_F32 0x1.921fb6p0f
#define SMELT_HALF_PI_LOW_F32 -0x1.777a5cp-25f
SMELT_FN v_f32 asin_tail_f32(v_f32 s, v_f32 z) {
  v_f32 p = 0x1.3370d2p-5f * z + 0x1.d8d63p-7f;
  p = p * z + 0x1.04963cp-5f;
  p = p * z + 0x1.6cae4ep-5f;
  p = p * z + 0x1.33388p-4f;
  p = p * z + 0x1.55554cp-3f;
  return s * (z * p);
}
SMELT_FN v_f32 asin_f32(v_f32 x) {
  v_f32 a = abs_f32(x);
  v_i32 large = (v_i32)(a > 0.5f);
  v_f32 z = sel_f32(large, 0.5f - 0.5f * a, a * a), s = sel_f32(large, sqrt_f32(z), a);
  v_f32 tail = asin_tail_f32(s, z);
  v_f32 beyond = SMELT_HALF_PI_HIGH_F32 - (2.0f * s - (SMELT_HALF_PI_LOW_F32 - 2.0f * tail));
  return copysign_f32(sel_f32(large, beyond, s + tail), x);
}
SMELT_FN v_f32 acos_f32(v_f32 x) {
  v_f32 a = abs_f32(x);
  v_i32 large = (v_i32)(a > 0.5f), negative = (v_i32)(x < 0.0f);
  v_f32 z = sel_f32(large, 0.5f - 0.5f * a, a * a), s = sel_f32(large, sqrt_f32(z), x);
  v_f32 tail = asin_tail_f32(s, z);
  v_f32 middle = SMELT_HALF_PI_HIGH_F32 - (s - (SMELT_HALF_PI_LOW_F32 - tail));
  return sel_f32(large, 2.0f * sel_f32(negative, middle, s + tail), middle);
}
SMELT_FN v_f32 atan_f32(v_f32 x) {
  v_f32 a = abs_f32(x);
  v_i32 large = (v_i32)(a > 1.0f);
  v_f32 t = sel_f32(large, bc_f32(-1.0f), a) / sel_f32(large, a, bc_f32(1.0f)), z = t * t;
  v_f32 p = -0x1.d62fc8p-10f * z + 0x1.65a646p-7f;
  p = p * z - 0x1.fed14cp-6f;
  p = p * z + 0x1.dac9dap-5f;
  p = p * z - 0x1.58348ep-4f;
  p = p * z + 0x1.c099fep-4f;
  p = p * z - 0x1.2421b6p-3f;
  p = p * z + 0x1.9991fep-3f;
  p = p * z - 0x1.55553ep-2f;
  v_f32 high = (v_f32)(large & (v_i32)bc_f32(SMELT_HALF_PI_HIGH_F32));
  v_f32 low = (v_f32)(large & (v_i32)bc_f32(SMELT_HALF_PI_LOW_F32));
  return copysign_f32(high + (t + (t * (z * p) + low)), x);
}

#endif
