/* What 8-bit sums become: int32, float32, or quantized again, perhaps with a residual added.
 *
 * Input:     int32 sums of a * b, and what each column still needs (smelt_int8_stage).
 * Output:    smelt_int8_finished() of one vector; the whole of a tile by smelt_int8_store().
 * Invariant: the same bits at every vector width: products and sums are rounded one by one, quotients half to even. A residual is
 *            added to the quantized value, which is what separate nodes do.
 */
#ifndef SMELT_INT8_EPILOGUE_H
#define SMELT_INT8_EPILOGUE_H

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

/* The sums of one vector of columns, at column j, as numbers of the result's step (or as they are). */
SMELT_INLINE smelt_int8_f smelt_int8_scaled(const smelt_int8_stage *s, smelt_int8_v sums, int64_t j) {
  smelt_int8_f x = smelt_rounded(__builtin_convertvector(sums, smelt_int8_f) * *(const smelt_int8_fu *)(s->scale + j));
  if (s->offset) x += *(const smelt_int8_fu *)(s->offset + j);
  return x;
}

SMELT_INLINE smelt_int8_v smelt_int8_completed(const smelt_int8_stage *s, smelt_int8_v sums, int32_t row_sum, int64_t j) {
  sums += *(const smelt_int8_vu *)(s->added + j);
  if (s->zeros) sums -= *(const smelt_int8_vu *)(s->zeros + j) * row_sum;
  return sums;
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

SMELT_INLINE smelt_int8_v smelt_int8_with_residual(const smelt_int8_stage *s, smelt_int8_v own, smelt_int8_v residual) {
  const smelt_int8_f a = __builtin_convertvector(own, smelt_int8_f) * s->own_scale;
  const smelt_int8_f b = __builtin_convertvector(residual - s->residual_zero, smelt_int8_f) * s->residual_scale;
  const smelt_int8_f total = smelt_rounded(a) + smelt_rounded(b);
  return smelt_int8_quantized(smelt_int8_quotient(total, s->sum_scale, s->inverse), &s->sum) + s->sum.zero;
}

/* What one vector of columns needs, for all rows of a tile. */
typedef struct {
  smelt_int8_v added, zeros;
  smelt_int8_f scale, offset;
} smelt_int8_column;

SMELT_INLINE smelt_int8_column smelt_int8_column_at(const smelt_int8_stage *s, int64_t j) {
  smelt_int8_column c = {.added = *(const smelt_int8_vu *)(s->added + j), .scale = *(const smelt_int8_fu *)(s->scale + j)};
  if (s->zeros) c.zeros = *(const smelt_int8_vu *)(s->zeros + j);
  if (s->offset) c.offset = *(const smelt_int8_fu *)(s->offset + j);
  return c;
}

/* The first `wide` of 16 bytes. */
SMELT_INLINE void smelt_int8_copy_part(uint8_t *to, const uint8_t *from, int64_t wide) {
  if (wide == 8) __builtin_memcpy(to, from, 8);
  else
    for (int64_t i = 0; i < wide; i++) to[i] = from[i];
}

/* One vector of columns of all rows, as bytes: `wide` of a panel, rows `stride` apart in y and in the residual. */
SMELT_INLINE void smelt_int8_store_bytes(const smelt_int8_stage *s, const int with_residual, const int plain, const int32_t *sums, int64_t step,
                                         const int32_t *row_sums, int64_t rows, int64_t j, int64_t wide, const uint8_t *residual,
                                         uint8_t *y, int64_t stride) {
  const smelt_int8_column c = smelt_int8_column_at(s, j);
  const smelt_int8_range range = s->range;
  uint8_t part[SMELT_INT8_LANES], beside[SMELT_INT8_LANES];
  for (int64_t r = 0; r < rows; r++, sums += step, y += stride) {
    smelt_int8_v sum = *(const smelt_int8_vu *)sums + c.added;
    if (!plain && row_sums) sum -= c.zeros * row_sums[r];
    smelt_int8_f scaled = smelt_rounded(__builtin_convertvector(sum, smelt_int8_f) * c.scale);
    if (!plain && s->offset) scaled += c.offset;
    smelt_int8_v x = smelt_int8_quantized(scaled, &range);
    if (with_residual) {
      const uint8_t *from = residual + r * stride;
      if (wide < SMELT_INT8_LANES) {
        for (int64_t i = 0; i < SMELT_INT8_LANES; i++) beside[i] = i < wide ? from[i] : 0;
        from = beside;
      }
      x = smelt_int8_with_residual(s, x, smelt_int8_widened(from, s->residual_signed));
    } else x += range.zero;
    const smelt_int8_bytes bytes = __builtin_convertvector(x, smelt_int8_bytes);
    if (wide >= SMELT_INT8_LANES) *(smelt_int8_bytes *)y = bytes;
    else {
      *(smelt_int8_bytes *)part = bytes;
      smelt_int8_copy_part(y, part, wide);
    }
  }
}

/* One vector of columns of a row, as int32 or float32. */
SMELT_INLINE void smelt_int8_store_words(const smelt_int8_stage *s, const int as_float, const int32_t *sums, int32_t row_sum, int64_t j,
                                         int64_t wide, int32_t *to) {
  smelt_int8_v x = smelt_int8_completed(s, *(const smelt_int8_vu *)sums, row_sum, j);
  if (as_float) {
    smelt_int8_f scaled = smelt_int8_scaled(s, x, j);
    if (s->range.low > -__builtin_inff() || s->range.high < __builtin_inff())
      scaled = smelt_int8_clamped(scaled, s->range.low, s->range.high);
    x = (smelt_int8_v)scaled;
  }
  if (wide >= SMELT_INT8_LANES) *(smelt_int8_vu *)to = x;
  else
    for (int64_t i = 0; i < wide; i++) to[i] = x[i];
}

/* Where a tile is: of `rows` rows from `row` on, `panels` panels from column `column` on (`first` of this group's `columns`);
 * rows of the result are `stride` elements apart. */
typedef struct {
  int64_t row, rows, panels, first, columns, group, stride;
} smelt_int8_place;

/* Each vector of columns of a tile: `from` are its sums, `column` its place among what columns need, `at` that in the result. */
#define SMELT_INT8_OVER_TILE(...)                                                                                              \
  for (int64_t n = 0; n < p->panels * SMELT_INT8_VPP; n++) {                                                                   \
    const int64_t j = p->first + n * SMELT_INT8_LANES, wide = p->columns - j;                                                  \
    if (wide <= 0) break;                                                                                                      \
    const int64_t column = p->group * ((p->columns + SMELT_INT8_PANEL - 1) / SMELT_INT8_PANEL * SMELT_INT8_PANEL) + j;         \
    const int64_t at = p->row * p->stride + p->group * p->columns + j;                                                         \
    const int32_t *from = sums + n * SMELT_INT8_LANES;                                                                         \
    __VA_ARGS__                                                                                                                \
  }
#define SMELT_INT8_STORE_BYTES(RESIDUAL, PLAIN)                                                                                \
  SMELT_INT8_OVER_TILE(smelt_int8_store_bytes(&stage, RESIDUAL, PLAIN, from, step, row_sums, p->rows, column, wide,            \
                                              RESIDUAL ? stage.residual + at : NULL, (uint8_t *)y + at, p->stride);)
#define SMELT_INT8_STORE_WORDS(FLOAT)                                                                                          \
  SMELT_INT8_OVER_TILE(for (int64_t r = 0; r < p->rows; r++)                                                                   \
                         smelt_int8_store_words(&stage, FLOAT, from + r * step, row_sums ? row_sums[r] : 0, column, wide,      \
                                                (int32_t *)y + at + r * p->stride);)

static void smelt_int8_store(const smelt_int8_stage *s, const smelt_int8_place *p, const int32_t *sums, const int32_t *row_sums, void *y) {
  const smelt_int8_stage stage = *s; /* stores of bytes may not change it */
  const int64_t step = p->panels * SMELT_INT8_PANEL;
  const int plain = !s->zeros && !s->offset;
  if (s->kind == SMELT_Q_INT32) {
    SMELT_INT8_STORE_WORDS(0)
  } else if (s->kind == SMELT_Q_FLOAT) {
    SMELT_INT8_STORE_WORDS(1)
  } else if (s->residual && plain) {
    SMELT_INT8_STORE_BYTES(1, 1)
  } else if (s->residual) {
    SMELT_INT8_STORE_BYTES(1, 0)
  } else if (plain) {
    SMELT_INT8_STORE_BYTES(0, 1)
  } else {
    SMELT_INT8_STORE_BYTES(0, 0)
  }
}

#endif
