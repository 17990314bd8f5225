/* What the loops of the plain backend call: integer functions, conversions, and elementary functions in double.
 *
 * Input:     scalars. Output: scalars. Invariant: integers wrap, a zero divisor gives 0, NaN goes through minimum and maximum.
 */
#ifndef PLAIN_H
#define PLAIN_H

#include <math.h>
#include <smelt/threads/loop.h>

#define PLAIN static inline __attribute__((unused))

/* NaN is the largest and the smallest. */
#define PLAIN_ABOVE(a, b) ((a) > (b) || ((a) != (a) && (b) == (b)))
#define PLAIN_BELOW(a, b) ((a) < (b) || ((a) != (a) && (b) == (b)))
#define PLAIN_MAX(a, b) (PLAIN_ABOVE(b, a) ? (b) : (a))
#define PLAIN_MIN(a, b) (PLAIN_BELOW(b, a) ? (b) : (a))
#define PLAIN_SIGN(a) ((a) > 0 ? 1 : (a) < 0 ? -1 : (a))

/* sizes and indices */

PLAIN int64_t plain_floordiv(int64_t a, int64_t b) {
  if (b == 0) return 0;
  return a / b - (a % b != 0 && (a < 0) != (b < 0));
}
PLAIN int64_t plain_mod(int64_t a, int64_t b) { return b == 0 ? 0 : a - plain_floordiv(a, b) * b; }
PLAIN int64_t plain_truncdiv(int64_t a, int64_t b) { return b == 0 ? 0 : a / b; }
PLAIN int64_t plain_min(int64_t a, int64_t b) { return a < b ? a : b; }
PLAIN int64_t plain_max(int64_t a, int64_t b) { return a > b ? a : b; }
PLAIN int64_t plain_ne1(int64_t a) { return a != 1; }
PLAIN int64_t plain_eq(int64_t a, int64_t b) { return a == b; }
PLAIN int64_t plain_lt(int64_t a, int64_t b) { return a < b; }
PLAIN int64_t plain_sel(int64_t c, int64_t yes, int64_t no) { return c ? yes : no; }

/* Negative ones count from the end; -1 where it is out of range. */
PLAIN int64_t plain_index(int64_t index, int64_t size) {
  const int64_t at = index < 0 ? index + size : index;
  return at < 0 || at >= size ? -1 : at;
}

/* Elements of a shape, -1 where a size is negative or 63 bits do not hold them. */
PLAIN int64_t plain_count(const int64_t *dims, int32_t rank) {
  int64_t count = 1;
  for (int32_t axis = 0; axis < rank; ++axis)
    if (dims[axis] < 0 || __builtin_mul_overflow(count, dims[axis], &count)) return -1;
  return count;
}

PLAIN void *plain_memory(smelt_env *env, int64_t each, const int64_t *dims, int32_t rank) {
  const int64_t count = plain_count(dims, rank);
  int64_t bytes;
  if (count < 0 || __builtin_mul_overflow(count, each, &bytes)) {
    smelt_fail(env, SMELT_E_OVERFLOW, -1, 0, 0, 0);
    return NULL;
  }
  void *made = env->scratch(env, bytes > 0 ? bytes : 1);
  if (!made) smelt_fail(env, SMELT_E_MEMORY, -1, bytes, 0, 0);
  return made;
}

PLAIN void *plain_output(smelt_env *env, int32_t place, int32_t rank, const int64_t *dims) {
  if (plain_count(dims, rank) < 0) {
    smelt_fail(env, SMELT_E_OVERFLOW, -1, 0, 0, 0);
    return NULL;
  }
  void *made = env->output(env, place, rank, dims);
  if (!made) smelt_fail(env, SMELT_E_MEMORY, -1, 0, 0, 0);
  return made;
}

PLAIN int32_t plain_call(smelt_env *env, int32_t (*function)(smelt_task *), void **b, const int64_t *s, const double *f) {
  smelt_work work = {.bytes = NULL};
  smelt_task task = {.env = env, .b = b, .s = s, .f = f, .work = &work};
  return function(&task);
}

/* integer arithmetic */

PLAIN int64_t plain_div_int(int64_t a, int64_t b) { return b == 0 ? 0 : b == -1 ? -a : a / b; }
PLAIN uint64_t plain_div_uint(uint64_t a, uint64_t b) { return b == 0 ? 0 : a / b; }
PLAIN int64_t plain_mod_int(int64_t a, int64_t b) { return b == -1 ? 0 : plain_mod(a, b); }
PLAIN uint64_t plain_mod_uint(uint64_t a, uint64_t b) { return b == 0 ? 0 : a % b; }
PLAIN int64_t plain_fmod_int(int64_t a, int64_t b) { return b == 0 || b == -1 ? 0 : a % b; }
PLAIN uint64_t plain_fmod_uint(uint64_t a, uint64_t b) { return b == 0 ? 0 : a % b; }
PLAIN uint64_t plain_pow_uint(uint64_t a, uint64_t b) {
  uint64_t made = 1;
  for (; b; b >>= 1, a *= a)
    if (b & 1) made *= a;
  return made;
}
PLAIN int64_t plain_pow_int(int64_t a, int64_t b) {
  if (b < 0) return a == 1 ? 1 : a == -1 ? (b & 1 ? -1 : 1) : 0;
  return (int64_t)plain_pow_uint((uint64_t)a, (uint64_t)b);
}
PLAIN uint64_t plain_shl_uint(uint64_t a, uint64_t b, int bits) { return b < (uint64_t)bits ? a << b : 0; }
PLAIN uint64_t plain_shr_uint(uint64_t a, uint64_t b, int bits) { return b < (uint64_t)bits ? a >> b : 0; }
PLAIN int64_t plain_shl_int(int64_t a, int64_t b, int bits) { return b >= 0 && b < bits ? (int64_t)((uint64_t)a << b) : 0; }
PLAIN int64_t plain_shr_int(int64_t a, int64_t b, int bits) { return b >= 0 && b < bits ? a >> b : 0; }

/* floats */

PLAIN double plain_fmod_float(double a, double b) { return fmod(a, b); }
PLAIN double plain_mod_float(double a, double b) {
  const double rest = fmod(a, b);
  return rest == 0 ? copysign(0.0, b) : (rest < 0) != (b < 0) ? rest + b : rest;
}
PLAIN double plain_pow_float(double a, double b) { return pow(a, b); }
PLAIN double plain_gelu(double x) { return 0.5 * x * erfc(-x * 0.70710678118654752440); }
PLAIN double plain_sigmoid(double x) {
  const double small = exp(-fabs(x));
  return x >= 0 ? 1 / (1 + small) : small / (1 + small);
}
PLAIN double plain_softplus(double x) { return x != x ? x : (x > 0 ? x : 0) + log1p(exp(-fabs(x))); }

/* conversions */

PLAIN int64_t plain_to_i64(double x) { return x > -0x1.0000000000001p63 && x < 0x1p63 ? (int64_t)x : INT64_MIN; }
PLAIN int32_t plain_to_i32(double x) { return x > -2147483649.0 && x < 2147483648.0 ? (int32_t)x : INT32_MIN; }
PLAIN uint64_t plain_to_u64(double x) {
  return x >= 0x1p63 ? (uint64_t)plain_to_i64(x - 0x1p63) ^ (UINT64_C(1) << 63) : (uint64_t)plain_to_i64(x);
}

PLAIN float plain_from_bits(uint32_t bits) { return ((union { uint32_t u; float f; }){bits}).f; }
PLAIN uint32_t plain_bits(float x) { return ((union { float f; uint32_t u; }){x}).u; }
PLAIN float plain_from_bf16(uint16_t x) { return plain_from_bits((uint32_t)x << 16); }
PLAIN uint16_t plain_to_bf16(float x) {
  const uint32_t bits = plain_bits(x);
  return x != x ? (uint16_t)(bits >> 16 | 0x40) : (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
PLAIN float plain_from_f16(uint16_t x) {
  const int exponent = x >> 10 & 31, fraction = x & 1023;
  const float size = exponent == 31 ? (fraction ? NAN : INFINITY)
                     : exponent ? (float)ldexp(1024 + fraction, exponent - 25) : (float)ldexp(fraction, -24);
  return x >> 15 ? -size : size;
}
PLAIN uint16_t plain_to_f16(float x) {
  const uint16_t sign = (uint16_t)(plain_bits(x) >> 16 & 0x8000);
  const double size = fabs((double)x);
  if (x != x) return sign | 0x7e00;
  if (size >= 65520) return sign | 0x7c00;
  if (size < 0x1p-14) return sign | (uint16_t)rint(size * 0x1p24);
  int exponent;
  const double fraction = rint(frexp(size, &exponent) * 2048); /* 1024 to 2048; the carry goes into the exponent */
  return sign | (uint16_t)(((exponent + 13) << 10) + (int)fraction);
}

#endif
