/* What 8-bit sums become: int32, float32, or bytes, a whole tile at a time.
 *
 * Input:     int32 sums of a tile, its place, and what each column still needs (int8_stage.h).
 * Output:    the tile in the result, by smelt_int8_store().
 * Invariant: the same bits at every vector width.
 */
#ifndef SMELT_INT8_EPILOGUE_H
#define SMELT_INT8_EPILOGUE_H

#include <smelt/int8/int8_store.h>

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
  const int32_t zero = s->shift ? s->second.zero : range.zero;
  uint8_t part[SMELT_INT8_LANES], beside[SMELT_INT8_LANES];
  for (int64_t r = 0; r < rows; r++, sums += step, y += stride) {
    smelt_int8_v sum = *(const smelt_int8_vu *)sums + c.added;
    if (!plain && row_sums) sum -= c.zeros * row_sums[r];
    smelt_int8_f scaled = smelt_rounded(__builtin_convertvector(sum, smelt_int8_f) * c.scale);
    if (!plain && s->offset) scaled += c.offset;
    smelt_int8_v x = smelt_int8_quantized(scaled, &range);
    if (!plain && s->shift) x = smelt_int8_shifted(s, x, c.shift);
    if (with_residual) {
      const uint8_t *from = residual + r * stride;
      if (wide < SMELT_INT8_LANES) {
        for (int64_t i = 0; i < SMELT_INT8_LANES; i++) beside[i] = i < wide ? from[i] : 0;
        from = beside;
      }
      x = smelt_int8_with_residual(s, x, smelt_int8_widened(from, s->residual_signed));
    } else x += zero;
    const smelt_int8_bytes bytes = __builtin_convertvector(x, smelt_int8_bytes);
    if (wide >= SMELT_INT8_LANES) *(smelt_int8_bytes *)y = bytes;
    else {
      *(smelt_int8_bytes *)part = bytes;
      smelt_int8_copy_part(y, part, wide);
    }
  }
}

/* One vector of columns of all rows, as int32 or float32: `wide` of them. */
SMELT_INLINE void smelt_int8_store_words(const smelt_int8_stage *s, const int as_float, const int32_t *sums, int64_t step,
                                         const int32_t *row_sums, int64_t rows, int64_t j, int64_t wide, int32_t *y, int64_t stride) {
  const smelt_int8_column c = smelt_int8_column_at(s, j);
  const int limited = s->range.low > -__builtin_inff() || s->range.high < __builtin_inff(), has_offset = s->offset != NULL;
  const float low = s->range.low, high = s->range.high;
  for (int64_t r = 0; r < rows; r++, sums += step, y += stride) {
    smelt_int8_v x = *(const smelt_int8_vu *)sums + c.added;
    if (row_sums) x -= c.zeros * row_sums[r];
    if (as_float) {
      smelt_int8_f scaled = smelt_rounded(__builtin_convertvector(x, smelt_int8_f) * c.scale);
      if (has_offset) scaled += c.offset;
      x = (smelt_int8_v)(limited ? smelt_int8_clamped(scaled, low, high) : scaled);
    }
    if (wide >= SMELT_INT8_LANES) *(smelt_int8_vu *)y = x;
    else
      for (int64_t i = 0; i < wide; i++) y[i] = x[i];
  }
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
  SMELT_INT8_OVER_TILE(smelt_int8_store_words(&stage, FLOAT, from, step, s->zeros ? row_sums : NULL, p->rows, column, wide,    \
                                              (int32_t *)y + at, p->stride);)

#if SMELT_VL == 64 && SMELT_VEX
/* By fours of panels, or as many as the tile has. */
static void smelt_int8_store_tile(const smelt_int8_stage *s, const smelt_int8_place *p, const int32_t *sums, const int32_t *row_sums,
                                  uint8_t *y) {
  const int64_t step = p->panels * SMELT_INT8_PANEL, padded = (p->columns + SMELT_INT8_PANEL - 1) / SMELT_INT8_PANEL * SMELT_INT8_PANEL;
  for (int64_t done = 0; done < p->panels; done += 4) {
    const int64_t j = p->first + done * SMELT_INT8_PANEL, at = p->row * p->stride + p->group * p->columns + j;
    if (j >= p->columns) return;
    smelt_int8_store_narrow(s, smelt_min(4, p->panels), sums + done * SMELT_INT8_PANEL, step, row_sums, p->rows, p->group * padded + j,
                            smelt_min(p->columns - j, p->panels * SMELT_INT8_PANEL), s->residual ? s->residual + at : NULL, y + at, p->stride);
  }
}
#endif

static void smelt_int8_store(const smelt_int8_stage *s, const smelt_int8_place *p, const int32_t *sums, const int32_t *row_sums, void *y) {
#if SMELT_VL == 64 && SMELT_VEX
  if (s->fits && s->kind >= SMELT_Q_UINT8) {
    smelt_int8_store_tile(s, p, sums, row_sums, y);
    return;
  }
#endif
  const smelt_int8_stage stage = *s; /* stores of bytes may not change it */
  const int64_t step = p->panels * SMELT_INT8_PANEL;
  const int plain = !s->zeros && !s->offset && !s->shift;
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
