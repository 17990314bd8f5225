/* What 8-bit sums still need to become int32, float32, or quantized again, perhaps with a residual added.
 *
 * Input:     int32 sums of a * b, and what each column still needs (smelt_int8_stage).
 * Output:    one vector of the result.
 * Invariant: the same bits at every vector width: products and sums are rounded one by one, quotients half to even. A number for each
 *            column, then a residual, may be added to the quantized value, as separate nodes do.
 */
#ifndef SMELT_INT8_STAGE_H
#define SMELT_INT8_STAGE_H

#include <smelt/int8/int8_tiles.h>

enum { SMELT_Q_INT32, SMELT_Q_FLOAT, SMELT_Q_UINT8, SMELT_Q_INT8 };

typedef float smelt_int8_f __attribute__((vector_size(SMELT_VL), may_alias));
typedef float smelt_int8_fu __attribute__((vector_size(SMELT_VL), aligned(4), may_alias));
typedef uint8_t smelt_int8_bytes __attribute__((vector_size(SMELT_VL / 4), aligned(1), may_alias));
typedef int8_t smelt_int8_sbytes __attribute__((vector_size(SMELT_VL / 4), aligned(1), may_alias));

/* From quantized integers less their zero point to others: clamp, round, add the zero point. */
typedef struct {
  float low, high; /* less the zero point */
  int32_t zero;
} smelt_int8_range;

typedef struct {
  const int32_t *added;        /* to the sums of each column */
  const int32_t *zeros;        /* of B, as its bytes are packed; NULL: all are 0 */
  const float *scale, *offset; /* of each column; offset NULL: all are 0 */
  int kind;                    /* of the result: SMELT_Q_* */
  smelt_int8_range range;      /* for a float32 result only its limits */
  const uint8_t *residual;     /* NULL: none */
  int residual_signed;
  int32_t residual_zero;
  float own_scale, residual_scale, sum_scale;
  float inverse; /* of sum_scale; 0: the quotient is divided out */
  smelt_int8_range sum;
  const float *shift; /* NULL, or of each column: added to the quantized value, of first_scale, which is quantized again */
  float first_scale, second_scale, second_inverse;
  smelt_int8_range second;
  int32_t words_zero, bytes_low, bytes_high; /* of bytes: their zero point as two int16, their limits as four bytes */
  const uint8_t *table; /* of the bytes that the result's become, where registers hold it; or NULL */
  int simple; /* of bytes: no zero point, and no limits but the type's */
  int fits; /* whether no number, nor sum with a residual, leaves the range of int32 before it is limited */
} smelt_int8_stage;

/* Within limits; NaN becomes the lower one. */
SMELT_INLINE smelt_int8_f smelt_int8_clamped(smelt_int8_f x, float low, float high) {
  const smelt_int8_f least = low - (smelt_int8_f){0}, most = high - (smelt_int8_f){0};
#if SMELT_VEX
  __asm__("vmaxps %1, %0, %0\n\tvminps %2, %0, %0" : "+v"(x) : "v"(least), "v"(most));
  return x;
#else
  const smelt_int8_v above = x > least;
  x = (smelt_int8_f)(((smelt_int8_v)x & above) | ((smelt_int8_v)least & ~above));
  const smelt_int8_v below = x < most;
  return (smelt_int8_f)(((smelt_int8_v)x & below) | ((smelt_int8_v)most & ~below));
#endif
}

/* Half to even; |x| is below 2^22. */
SMELT_INLINE smelt_int8_v smelt_int8_nearest(smelt_int8_f x) {
#if SMELT_VEX
  smelt_int8_v out;
  __asm__("vcvtps2dq %1, %0" : "=v"(out) : "v"(x));
  return out;
#else
  const float whole = 12582912; /* 1.5 * 2^23 */
  return __builtin_convertvector(smelt_rounded(x + whole) - whole, smelt_int8_v);
#endif
}

/* Quantized, less its zero point. */
SMELT_INLINE smelt_int8_v smelt_int8_quantized(smelt_int8_f x, const smelt_int8_range *to) {
  return smelt_int8_nearest(smelt_int8_clamped(x, to->low, to->high));
}

/* Bytes of a residual as integers. Spelled out: gcc inserts them one by one. */
SMELT_INLINE smelt_int8_v smelt_int8_widened(const uint8_t *at, int is_signed) {
#if SMELT_VEX
  smelt_int8_v out;
  if (is_signed) __asm__("vpmovsxbd %1, %0" : "=v"(out) : "m"(*(const smelt_int8_bytes *)at));
  else __asm__("vpmovzxbd %1, %0" : "=v"(out) : "m"(*(const smelt_int8_bytes *)at));
  return out;
#endif
  if (is_signed) return __builtin_convertvector(*(const smelt_int8_sbytes *)at, smelt_int8_v);
  return __builtin_convertvector(*(const smelt_int8_bytes *)at, smelt_int8_v);
}

/* x / d, rounded as a division does: a product with the rounded inverse, corrected by its remainder. */
SMELT_INLINE smelt_int8_f smelt_int8_quotient(smelt_int8_f x, float d, float inverse) {
#if SMELT_VEX
  if (inverse != 0) {
    const smelt_int8_f by = d - (smelt_int8_f){0}, times = inverse - (smelt_int8_f){0};
    smelt_int8_f q = smelt_rounded(x * times), rest = x;
    __asm__("vfnmadd231ps %1, %2, %0" : "+v"(rest) : "v"(q), "v"(by));
    __asm__("vfmadd231ps %1, %2, %0" : "+v"(q) : "v"(rest), "v"(times));
    return q;
  }
#else
  (void)inverse;
#endif
  return x / d;
}

/* A quantized value plus a residual, in steps of the sum. */
SMELT_INLINE smelt_int8_f smelt_int8_total(const smelt_int8_stage *s, smelt_int8_v own, smelt_int8_v residual) {
  const smelt_int8_f a = __builtin_convertvector(own, smelt_int8_f) * s->own_scale;
  const smelt_int8_f b = __builtin_convertvector(residual - s->residual_zero, smelt_int8_f) * s->residual_scale;
  return smelt_int8_quotient(smelt_rounded(a) + smelt_rounded(b), s->sum_scale, s->inverse);
}

/* A quantized value, quantized again with what its column adds; less the zero point. */
SMELT_INLINE smelt_int8_v smelt_int8_shifted(const smelt_int8_stage *s, smelt_int8_v own, smelt_int8_f shift) {
  const smelt_int8_f x = smelt_rounded(__builtin_convertvector(own, smelt_int8_f) * s->first_scale) + shift;
  return smelt_int8_quantized(smelt_int8_quotient(x, s->second_scale, s->second_inverse), &s->second);
}

SMELT_INLINE smelt_int8_v smelt_int8_with_residual(const smelt_int8_stage *s, smelt_int8_v own, smelt_int8_v residual) {
  return smelt_int8_quantized(smelt_int8_total(s, own, residual), &s->sum) + s->sum.zero;
}

/* What one vector of columns needs, for all rows of a tile. */
typedef struct {
  smelt_int8_v added, zeros;
  smelt_int8_f scale, offset, shift;
} smelt_int8_column;

SMELT_INLINE smelt_int8_column smelt_int8_column_at(const smelt_int8_stage *s, int64_t j) {
  smelt_int8_column c = {.added = *(const smelt_int8_vu *)(s->added + j), .scale = *(const smelt_int8_fu *)(s->scale + j)};
  if (s->zeros) c.zeros = *(const smelt_int8_vu *)(s->zeros + j);
  if (s->offset) c.offset = *(const smelt_int8_fu *)(s->offset + j);
  if (s->shift) c.shift = *(const smelt_int8_fu *)(s->shift + j);
  return c;
}

#endif
