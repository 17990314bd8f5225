/* Small M: queries over keys and values where they are; nothing is packed, and each is read once for all rows that share it.
 *
 * Input:     rows of queries side by side, `stride` of keys or values; a depth of whole panels.
 * Output:    scores of a block of keys, [row][SMELT_GQ_BLOCK]; sums of its values weighed by them, [row][depth].
 * Invariant: a score is one chain of products for each lane, and lanes are added in a tree, in the same order at every place; sums
 *            go over keys in rising order. What is read from memory is prefetched a phase ahead.
 */
#ifndef SMELT_GROUPED_QUERIES_FEW_H
#define SMELT_GROUPED_QUERIES_FEW_H

#include <smelt/threads/loop.h>
#include <smelt/vec/vec.h>

#define SMELT_GQ_UNROLL _Pragma("GCC unroll 16")
#define SMELT_GQ_LINE 16 /* floats of a cache line */
/* Rows whose scores with four keys stay in registers; rows whose sums of two vectors stay there, and of four. */
#if SMELT_VL == 64
enum { SMELT_GQ_SCORE_ROWS = 4, SMELT_GQ_SUM_ROWS = 8, SMELT_GQ_WIDE_ROWS = 4 };
#define SMELT_GQ_LANES(A, B) A, 16 + A, B, 16 + B, A + 4, 20 + A, B + 4, 20 + B, A + 8, 24 + A, B + 8, 24 + B, A + 12, 28 + A, B + 12, 28 + B
#define SMELT_GQ_PAIRS(A) A, A + 1, 16 + A, 17 + A, A + 4, A + 5, 20 + A, 21 + A, A + 8, A + 9, 24 + A, 25 + A, A + 12, A + 13, 28 + A, 29 + A
#define SMELT_GQ_HALF(A) A, A + 1, A + 2, A + 3, A + 8, A + 9, A + 10, A + 11, 16 + A, 17 + A, 18 + A, 19 + A, 24 + A, 25 + A, 26 + A, 27 + A
#elif SMELT_VL == 32
enum { SMELT_GQ_SCORE_ROWS = 2, SMELT_GQ_SUM_ROWS = 4, SMELT_GQ_WIDE_ROWS = 0 };
#define SMELT_GQ_LANES(A, B) A, 8 + A, B, 8 + B, A + 4, 12 + A, B + 4, 12 + B
#define SMELT_GQ_PAIRS(A) A, A + 1, 8 + A, 9 + A, A + 4, A + 5, 12 + A, 13 + A
#define SMELT_GQ_HALF(A) A, A + 1, A + 2, A + 3, 8 + A, 9 + A, 10 + A, 11 + A
#else
enum { SMELT_GQ_SCORE_ROWS = 2, SMELT_GQ_SUM_ROWS = 4, SMELT_GQ_WIDE_ROWS = 0 };
#define SMELT_GQ_LANES(A, B) A, 4 + A, B, 4 + B
#define SMELT_GQ_PAIRS(A) A, A + 1, 4 + A, 5 + A
#endif
enum { SMELT_GQ_KEYS = 4 }; /* of a tile of scores */

/* Lines side by side, so that the CPU goes on with them by itself. */
SMELT_INLINE void smelt_gq_prefetch(const float *from, int64_t count) {
  for (int64_t j = 0; j < count; j += SMELT_GQ_LINE) __builtin_prefetch(from + j);
}

/* Of four vectors one, in which each part of four lanes has a sum of each of them. */
SMELT_INLINE v_f32 smelt_gq_part_sums(const v_f32 *x) {
  const v_f32 a = add_f32(__builtin_shufflevector(x[0], x[1], SMELT_GQ_LANES(0, 1)), __builtin_shufflevector(x[0], x[1], SMELT_GQ_LANES(2, 3)));
  const v_f32 b = add_f32(__builtin_shufflevector(x[2], x[3], SMELT_GQ_LANES(0, 1)), __builtin_shufflevector(x[2], x[3], SMELT_GQ_LANES(2, 3)));
  return add_f32(__builtin_shufflevector(a, b, SMELT_GQ_PAIRS(0)), __builtin_shufflevector(a, b, SMELT_GQ_PAIRS(2)));
}

/* Scores of a row against SMELT_L keys from the part sums of each four. */
SMELT_INLINE v_f32 smelt_gq_lane_sums(const float *partial) {
#if SMELT_L == 4
  return ld_f32(partial);
#else
  v_f32 x[SMELT_L / SMELT_GQ_KEYS];
  SMELT_GQ_UNROLL for (int i = 0; i < SMELT_L / SMELT_GQ_KEYS; i++) x[i] = ld_f32(partial + i * SMELT_L);
  SMELT_GQ_UNROLL for (int n = SMELT_L / SMELT_GQ_KEYS / 2; n > 0; n /= 2)
    SMELT_GQ_UNROLL for (int i = 0; i < n; i++)
      x[i] = add_f32(__builtin_shufflevector(x[2 * i], x[2 * i + 1], SMELT_GQ_HALF(0)), __builtin_shufflevector(x[2 * i], x[2 * i + 1], SMELT_GQ_HALF(4)));
  return x[0];
#endif
}

/* Products of R rows with four keys, from place j on; added to the sums unless they are the first. */
SMELT_INLINE void smelt_gq_few_products(const int R, const int first, const float *q, int64_t depth, const float *const *keys, int64_t j,
                                        v_f32 *sum) {
  v_f32 key[SMELT_GQ_KEYS];
  SMELT_GQ_UNROLL for (int i = 0; i < SMELT_GQ_KEYS; i++) key[i] = ld_f32(keys[i] + j);
  SMELT_GQ_UNROLL for (int u = 0; u < R; u++) {
    const v_f32 row = ld_f32(q + u * depth + j);
    SMELT_GQ_UNROLL for (int i = 0; i < SMELT_GQ_KEYS; i++) {
      const v_f32 made = mul_f32(row, key[i]);
      sum[u * SMELT_GQ_KEYS + i] = first ? made : add_f32(sum[u * SMELT_GQ_KEYS + i], made);
    }
  }
}

/* Part sums of R rows and four keys. */
SMELT_INLINE void smelt_gq_few_tile(const int R, const float *q, int64_t depth, const float *const *keys, float *partial, int64_t ld) {
  v_f32 sum[SMELT_GQ_SCORE_ROWS * SMELT_GQ_KEYS];
  smelt_gq_few_products(R, 1, q, depth, keys, 0, sum);
  for (int64_t j = SMELT_L; j < depth; j += SMELT_L) smelt_gq_few_products(R, 0, q, depth, keys, j, sum);
  SMELT_GQ_UNROLL for (int u = 0; u < R; u++) st_f32(partial + u * ld, smelt_gq_part_sums(sum + u * SMELT_GQ_KEYS));
}

/* Scores of `rows` rows against SMELT_L keys, `ld` floats from row to row. */
SMELT_INLINE void smelt_gq_few_scores(const float *q, int64_t rows, int64_t depth, const float *const *keys, float *partial, float *scores,
                                      int64_t ld) {
  const int64_t each = SMELT_L / SMELT_GQ_KEYS * SMELT_L;
  for (int64_t i = 0; i < SMELT_L / SMELT_GQ_KEYS; i++) {
    const float *const *four = keys + i * SMELT_GQ_KEYS;
    int64_t u = 0;
#if SMELT_VL == 64
    for (; u + 4 <= rows; u += 4) smelt_gq_few_tile(4, q + u * depth, depth, four, partial + u * each + i * SMELT_L, each);
    if (u + 3 <= rows) smelt_gq_few_tile(3, q + u * depth, depth, four, partial + u * each + i * SMELT_L, each), u += 3;
#endif
    for (; u + 2 <= rows; u += 2) smelt_gq_few_tile(2, q + u * depth, depth, four, partial + u * each + i * SMELT_L, each);
    if (u < rows) smelt_gq_few_tile(1, q + u * depth, depth, four, partial + u * each + i * SMELT_L, each);
  }
  for (int64_t u = 0; u < rows; u++) st_f32(scores + u * ld, smelt_gq_lane_sums(partial + u * each));
}

/* Rows' weights of a stretch of values, `ld` floats from row to row. */
typedef struct {
  const float *weights, *values;
  int64_t ld, stride, count, wide;
} smelt_gq_stretch_of;

/* Adds R rows' weighed values to W vectors of their sums. */
SMELT_INLINE void smelt_gq_few_sums(const int R, const int W, const smelt_gq_stretch_of *s, int64_t row, int64_t column, float *sums) {
  const float *weights = s->weights + row * s->ld, *values = s->values + column;
  v_f32 total[SMELT_GQ_SUM_ROWS * 2 > SMELT_GQ_WIDE_ROWS * 4 ? SMELT_GQ_SUM_ROWS * 2 : SMELT_GQ_WIDE_ROWS * 4];
  float *to = sums + row * s->wide + column;
  SMELT_GQ_UNROLL for (int i = 0; i < R * W; i++) total[i] = ld_f32(to + i / W * s->wide + i % W * SMELT_L);
  for (int64_t key = 0; key < s->count; key++, values += s->stride) {
    v_f32 value[4];
    SMELT_GQ_UNROLL for (int j = 0; j < W; j++) value[j] = ld_f32(values + j * SMELT_L);
    SMELT_GQ_UNROLL for (int i = 0; i < R; i++) {
      const v_f32 weight = bc_f32(weights[i * s->ld + key]);
      SMELT_GQ_UNROLL for (int j = 0; j < W; j++) total[i * W + j] = add_f32(total[i * W + j], mul_f32(weight, value[j]));
    }
  }
  SMELT_GQ_UNROLL for (int i = 0; i < R * W; i++) st_f32(to + i / W * s->wide + i % W * SMELT_L, total[i]);
}

/* All columns of R rows. */
SMELT_INLINE void smelt_gq_row_block(const int R, const smelt_gq_stretch_of *s, int64_t row, float *sums) {
  int64_t column = 0;
  if (R <= SMELT_GQ_WIDE_ROWS)
    for (; column + 4 * SMELT_L <= s->wide; column += 4 * SMELT_L) smelt_gq_few_sums(R, 4, s, row, column, sums);
  for (; column + 2 * SMELT_L <= s->wide; column += 2 * SMELT_L) smelt_gq_few_sums(R, 2, s, row, column, sums);
  for (; column < s->wide; column += SMELT_L) smelt_gq_few_sums(R, 1, s, row, column, sums);
}

/* All rows and columns of a stretch of values: as few groups of rows as there may be, of nearly the same size. */
static inline __attribute__((unused)) void smelt_gq_few_values(const smelt_gq_stretch_of *s, int64_t rows, float *sums) {
  for (int64_t groups = (rows + SMELT_GQ_SUM_ROWS - 1) / SMELT_GQ_SUM_ROWS, row = 0, count; row < rows; row += count, groups--) {
    count = (rows - row + groups - 1) / groups;
    switch (count) {
#if SMELT_VL == 64
    case 8: smelt_gq_row_block(8, s, row, sums); break;
    case 7: smelt_gq_row_block(7, s, row, sums); break;
    case 6: smelt_gq_row_block(6, s, row, sums); break;
    case 5: smelt_gq_row_block(5, s, row, sums); break;
#endif
    case 4: smelt_gq_row_block(4, s, row, sums); break;
    case 3: smelt_gq_row_block(3, s, row, sums); break;
    case 2: smelt_gq_row_block(2, s, row, sums); break;
    default: smelt_gq_row_block(1, s, row, sums);
    }
  }
}

#endif
