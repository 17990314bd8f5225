/* Tiles of 8-bit sums to rows of bytes with AVX-512: four vectors of sums become 64 bytes.
 *
 * Input:     a stage whose numbers fit int32 (`fits`), sums of a tile, row by row, of one, two or four panels.
 * Output:    bytes, row by row; with a residual, its sum quantized again.
 * Invariant: the same bytes as smelt_int8_store_bytes() gives. Numbers are rounded to int32 and narrowed with saturation, so that only
 *            limits within the type's range are left to apply, to bytes; NaN becomes the least int32 and so the lower limit.
 */
#ifndef SMELT_INT8_STORE_H
#define SMELT_INT8_STORE_H

#include <smelt/int8/int8_stage.h>

#if SMELT_VL == 64 && SMELT_VEX
#define SMELT_INT8_TWO(OP, A, B) ({ smelt_int8_v two_; __asm__(OP " %2, %1, %0" : "=v"(two_) : "v"(A), "v"(B)); two_; })

typedef int8_t smelt_int8_32 __attribute__((vector_size(32), may_alias));
typedef int8_t smelt_int8_16 __attribute__((vector_size(16), may_alias));

enum { SMELT_INT8_TOGETHER = 8 }; /* vectors that go through each step side by side, so that none waits for another */

/* What bytes are made with, in all places. */
typedef struct {
  smelt_int8_v zero, low, high; /* int16; bytes; bytes */
  int is_signed;
} smelt_int8_narrow;

/* Four vectors, less their zero point, as bytes: lane l has four of each. */
SMELT_INLINE smelt_int8_v smelt_int8_narrowed(const smelt_int8_narrow *n, const int plain, const smelt_int8_v *x) {
  if (plain) {
    const smelt_int8_v first = SMELT_INT8_TWO("vpackssdw", x[0], x[1]), last = SMELT_INT8_TWO("vpackssdw", x[2], x[3]);
    return n->is_signed ? SMELT_INT8_TWO("vpacksswb", first, last) : SMELT_INT8_TWO("vpackuswb", first, last);
  }
  const smelt_int8_v first = SMELT_INT8_TWO("vpaddsw", n->zero, SMELT_INT8_TWO("vpackssdw", x[0], x[1]));
  const smelt_int8_v last = SMELT_INT8_TWO("vpaddsw", n->zero, SMELT_INT8_TWO("vpackssdw", x[2], x[3]));
  if (n->is_signed)
    return SMELT_INT8_TWO("vpminsb", n->high, SMELT_INT8_TWO("vpmaxsb", n->low, SMELT_INT8_TWO("vpacksswb", first, last)));
  return SMELT_INT8_TWO("vpminub", n->high, SMELT_INT8_TWO("vpmaxub", n->low, SMELT_INT8_TWO("vpackuswb", first, last)));
}

enum { SMELT_INT8_ALONE, SMELT_INT8_BESIDE_UNSIGNED, SMELT_INT8_BESIDE_SIGNED }; /* a residual */

/* Sixteen bytes of a residual as integers, those of the mask, or (whole) all. */
SMELT_INLINE smelt_int8_v smelt_int8_beside(const int beside, const int whole, const uint8_t *at, uint32_t mask) {
  if (whole) return smelt_int8_widened(at, beside == SMELT_INT8_BESIDE_SIGNED);
  smelt_int8_v out;
  if (beside == SMELT_INT8_BESIDE_SIGNED)
    __asm__("vpmovsxbd %1, %0%{%2%}%{z%}" : "=v"(out) : "m"(*(const smelt_int8_bytes *)at), "Yk"(mask));
  else __asm__("vpmovzxbd %1, %0%{%2%}%{z%}" : "=v"(out) : "m"(*(const smelt_int8_bytes *)at), "Yk"(mask));
  return out;
}

/* A number's limits and scale, and the scale of what it is quantized as with something added, in all lanes. */
typedef struct {
  smelt_int8_f low, high, own, next, inverse;
} smelt_int8_again;

typedef struct {
  smelt_int8_f scale;
  smelt_int8_v zero;
} smelt_int8_adding;

#define SMELT_INT8_EACH(...) SMELT_INT8_UNROLL for (int v = 0; v < SMELT_INT8_TOGETHER; v++) { __VA_ARGS__ }

/* smelt_int8_quotient() by the next scale. */
SMELT_INLINE void smelt_int8_divide(const smelt_int8_again *k, smelt_int8_f *x) {
  smelt_int8_f rest[SMELT_INT8_TOGETHER];
  SMELT_INT8_EACH(rest[v] = x[v];)
  SMELT_INT8_EACH(x[v] = smelt_rounded(x[v] * k->inverse);)
  SMELT_INT8_EACH(__asm__("vfnmadd231ps %1, %2, %0" : "+v"(rest[v]) : "v"(x[v]), "v"(k->next));)
  SMELT_INT8_EACH(__asm__("vfmadd231ps %1, %2, %0" : "+v"(x[v]) : "v"(rest[v]), "v"(k->inverse));)
}

/* Numbers quantized and restored. */
SMELT_INLINE void smelt_int8_requantize(const smelt_int8_again *k, smelt_int8_f *x) {
  SMELT_INT8_EACH(__asm__("vmaxps %1, %0, %0" : "+v"(x[v]) : "v"(k->low));)
  SMELT_INT8_EACH(__asm__("vminps %1, %0, %0" : "+v"(x[v]) : "v"(k->high));)
  SMELT_INT8_EACH(__asm__("vrndscaleps $8, %0, %0" : "+v"(x[v]));)
  SMELT_INT8_EACH(x[v] = smelt_rounded(x[v] * k->own);)
}

/* Part q of 64 bytes that belong to 4 / P rows; bytes of the mask, or (whole) all. */
SMELT_INLINE void smelt_int8_put_part(const int P, const int whole, const int q, smelt_int8_v bytes, uint64_t mask, uint8_t *to) {
  if (P == 4) {
    if (whole) __asm__("vmovdqu8 %1, %0" : "=m"(*(char(*)[64])to) : "v"(bytes));
    else __asm__("vmovdqu8 %1, %0%{%2%}" : "+m"(*(char(*)[64])to) : "v"(bytes), "Yk"(mask));
  } else if (P == 2 && whole) {
    if (q) __asm__("vextracti64x4 $1, %1, %0" : "=m"(*(char(*)[32])to) : "v"(bytes));
    else __asm__("vmovdqu8 %t1, %0" : "=m"(*(char(*)[32])to) : "v"(bytes));
  } else if (P == 2) {
    smelt_int8_32 half;
    if (q) __asm__("vextracti64x4 $1, %1, %0" : "=v"(half) : "v"(bytes));
    else __asm__("vmovdqa64 %t1, %0" : "=v"(half) : "v"(bytes));
    __asm__("vmovdqu8 %1, %0%{%2%}" : "+m"(*(char(*)[32])to) : "v"(half), "Yk"((uint32_t)mask));
  } else {
    smelt_int8_16 part; /* the quarter is spelled out: a build that checks bounds does not see that q is constant */
    if (q == 0) __asm__("vmovdqa64 %x1, %0" : "=v"(part) : "v"(bytes));
    else if (q == 1) __asm__("vextracti32x4 $1, %1, %0" : "=v"(part) : "v"(bytes));
    else if (q == 2) __asm__("vextracti32x4 $2, %1, %0" : "=v"(part) : "v"(bytes));
    else __asm__("vextracti32x4 $3, %1, %0" : "=v"(part) : "v"(bytes));
    __asm__("vmovdqu8 %1, %0%{%2%}" : "+m"(*(char(*)[16])to) : "v"(part), "Yk"((uint32_t)(mask & 0xffff)));
  }
}

/* Bytes by a table: two halves, each of two registers, chosen by the highest bit. For CPUs with VBMI. */
SMELT_INLINE smelt_int8_v smelt_int8_looked_up(const smelt_int8_vu *table, smelt_int8_v bytes) {
  smelt_int8_v low = bytes, high = bytes;
  uint64_t upper;
  __asm__("vpermi2b %2, %1, %0" : "+v"(low) : "v"(table[0]), "vm"(table[1]));
  __asm__("vpermi2b %2, %1, %0" : "+v"(high) : "v"(table[2]), "vm"(table[3]));
  __asm__("vpmovb2m %1, %0" : "=Yk"(upper) : "v"(bytes));
  __asm__("vmovdqu8 %1, %0%{%2%}" : "+v"(low) : "v"(high), "Yk"(upper));
  return low;
}

/* What is known of a tile when its code is compiled. */
typedef struct {
  int panels;
  int beside; /* SMELT_INT8_ALONE ... */
  int plain;  /* sums need no zero points of weights, numbers no offset */
  int twice;  /* quantized again with what a column adds */
  int whole;  /* no column is missing */
  int simple; /* whole; the result has no zero point, and no limits but its type's */
} smelt_int8_form;

/* Panels of a tile from column `column` on, of which `wide` columns are meant: sums of a row are `step` apart, bytes `stride`. */
SMELT_INLINE void smelt_int8_store_panels(const smelt_int8_stage *s, const smelt_int8_form form, const int32_t *sums, int64_t step,
                                          const int32_t *row_sums, int64_t rows, int64_t column, int64_t wide,
                                          const uint8_t *residual, uint8_t *y, int64_t stride) {
  const int P = form.panels;
  const smelt_int8_v none = {0}, order = {0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15};
  const smelt_int8_f nil = {0};
  const uint64_t mask = wide >= 64 ? ~(uint64_t)0 : ((uint64_t)1 << wide) - 1;
  const smelt_int8_narrow narrow = {s->words_zero - none, s->bytes_low - none, s->bytes_high - none, s->kind == SMELT_Q_INT8};
  const smelt_int8_range *last = form.twice ? &s->second : &s->range;
  const smelt_int8_again first = {s->range.low - nil, s->range.high - nil, s->first_scale - nil, s->second_scale - nil, s->second_inverse - nil};
  const smelt_int8_again own = {last->low - nil, last->high - nil, s->own_scale - nil, s->sum_scale - nil, s->inverse - nil};
  const smelt_int8_adding adding = {s->residual_scale - nil, s->residual_zero - none};
  const int together = SMELT_INT8_TOGETHER / P, has_offset = !form.plain && s->offset;
  smelt_int8_column c[4];
  SMELT_INT8_UNROLL for (int p = 0; p < P; p++) c[p] = smelt_int8_column_at(s, column + p * SMELT_INT8_PANEL);
  for (int64_t row = 0; row < rows; row += together, sums += together * step, y += together * stride, residual += together * stride) {
    smelt_int8_v x[SMELT_INT8_TOGETHER];
    smelt_int8_f f[SMELT_INT8_TOGETHER];
    int64_t q[SMELT_INT8_TOGETHER]; /* beyond the last row: the first again */
    SMELT_INT8_EACH(q[v] = row + v / P < rows ? v / P : 0;)
    SMELT_INT8_EACH(x[v] = *(const smelt_int8_vu *)(sums + q[v] * step + v % P * SMELT_INT8_PANEL) + c[v % P].added;)
    if (!form.plain && row_sums) SMELT_INT8_EACH(x[v] -= c[v % P].zeros * row_sums[row + q[v]];)
    SMELT_INT8_EACH(f[v] = __builtin_convertvector(x[v], smelt_int8_f);)
    SMELT_INT8_EACH(f[v] = smelt_rounded(f[v] * c[v % P].scale);)
    if (has_offset) SMELT_INT8_EACH(f[v] += c[v % P].offset;)
    if (form.twice) {
      smelt_int8_requantize(&first, f);
      SMELT_INT8_EACH(f[v] = smelt_rounded(f[v] + c[v % P].shift);)
      smelt_int8_divide(&first, f);
    }
    if (form.beside) {
      SMELT_INT8_EACH(x[v] = smelt_int8_beside(form.beside, form.whole, residual + q[v] * stride + v % P * SMELT_INT8_PANEL,
                                               (uint32_t)(mask >> v % P * 16) & 0xffff) - adding.zero;)
      smelt_int8_requantize(&own, f);
      smelt_int8_f other[SMELT_INT8_TOGETHER];
      SMELT_INT8_EACH(other[v] = smelt_rounded(__builtin_convertvector(x[v], smelt_int8_f) * adding.scale);)
      SMELT_INT8_EACH(f[v] = smelt_rounded(f[v] + other[v]);)
      smelt_int8_divide(&own, f);
    }
    SMELT_INT8_EACH(x[v] = smelt_int8_nearest(f[v]);)
    SMELT_INT8_UNROLL for (int half = 0; half < SMELT_INT8_TOGETHER / 4; half++) {
      smelt_int8_v bytes = smelt_int8_narrowed(&narrow, form.simple, x + 4 * half);
      __asm__("vpermd %0, %1, %0" : "+v"(bytes) : "v"(order));
      if (s->table) bytes = smelt_int8_looked_up((const smelt_int8_vu *)s->table, bytes);
      SMELT_INT8_UNROLL for (int i = 0; i < 4 / P; i++) {
        const int at = half * (4 / P) + i;
        if (row + at < rows) smelt_int8_put_part(P, form.whole, i, bytes, mask, y + at * stride);
      }
    }
  }
}

#define SMELT_INT8_STORE_PANELS(...)                                                                                           \
  smelt_int8_store_panels(s, (smelt_int8_form){__VA_ARGS__}, sums, step, row_sums, rows, column, wide, residual, y, stride)
#define SMELT_INT8_STORE_BESIDE(P, ...)                                                                                        \
  if (!residual) SMELT_INT8_STORE_PANELS(P, SMELT_INT8_ALONE, __VA_ARGS__);                                                    \
  else if (s->residual_signed) SMELT_INT8_STORE_PANELS(P, SMELT_INT8_BESIDE_SIGNED, __VA_ARGS__);                              \
  else SMELT_INT8_STORE_PANELS(P, SMELT_INT8_BESIDE_UNSIGNED, __VA_ARGS__);

/* Three forms of each width; most tiles have two whole panels, with forms of their own. */
#define SMELT_INT8_STORE_FORMS(P)                                                                                              \
  if (s->shift) {                                                                                                              \
    SMELT_INT8_STORE_BESIDE(P, 0, 1, 0, 0)                                                                                     \
  } else if (plain) {                                                                                                          \
    SMELT_INT8_STORE_BESIDE(P, 1, 0, 0, 0)                                                                                     \
  } else {                                                                                                                     \
    SMELT_INT8_STORE_BESIDE(P, 0, 0, 0, 0)                                                                                     \
  }

static void smelt_int8_store_narrow(const smelt_int8_stage *s, int64_t panels, const int32_t *sums, int64_t step, const int32_t *row_sums,
                                    int64_t rows, int64_t column, int64_t wide, const uint8_t *residual, uint8_t *y, int64_t stride) {
  const int plain = !s->zeros && !s->offset && !s->shift;
  if (panels == 2 && wide == 2 * SMELT_INT8_PANEL && s->shift) {
    SMELT_INT8_STORE_BESIDE(2, 0, 1, 1, 0)
  } else if (panels == 2 && wide == 2 * SMELT_INT8_PANEL && plain) {
    if (s->simple) {
      SMELT_INT8_STORE_BESIDE(2, 1, 0, 1, 1)
    } else {
      SMELT_INT8_STORE_BESIDE(2, 1, 0, 1, 0)
    }
  } else if (panels == 1) {
    SMELT_INT8_STORE_FORMS(1)
  } else if (panels == 2) {
    SMELT_INT8_STORE_FORMS(2)
  } else {
    SMELT_INT8_STORE_FORMS(4)
  }
}
#endif

#endif
