/* Small M: queries over keys and values where they are; nothing is packed, and each is read once for all rows that share it.
 *
 * Input:     rows of queries side by side, `stride` of keys or values; a depth of whole panels.
 * Output:    scores of a block of keys, [row][SMELT_GQ_BLOCK]; sums of its values weighed by them, [row][depth].
 * Invariant: a score is one chain of products for each lane, and lanes are added in a tree, in the same order at every place; sums
 *            go over keys in rising order.
 */
#ifndef SMELT_GROUPED_QUERIES_FEW_H
#define SMELT_GROUPED_QUERIES_FEW_H

#include <smelt/threads/loop.h>
#include <smelt/vec/vec.h>

#define SMELT_GQ_UNROLL _Pragma("GCC unroll 16")
#if SMELT_VL == 64
enum { SMELT_GQ_WIDE_ROWS = 4 }; /* rows whose sums of four vectors stay in registers */
#define SMELT_GQ_EVEN 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30
#define SMELT_GQ_ODD 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31
#elif SMELT_VL == 32
enum { SMELT_GQ_WIDE_ROWS = 2 };
#define SMELT_GQ_EVEN 0, 2, 4, 6, 8, 10, 12, 14
#define SMELT_GQ_ODD 1, 3, 5, 7, 9, 11, 13, 15
#else
enum { SMELT_GQ_WIDE_ROWS = 2 };
#define SMELT_GQ_EVEN 0, 2, 4, 6
#define SMELT_GQ_ODD 1, 3, 5, 7
#endif

/* Sums of the lanes of SMELT_L vectors: neighbours are added until each vector is one lane. */
SMELT_INLINE v_f32 smelt_gq_lane_sums(const float *partial) {
  v_f32 x[SMELT_L];
  SMELT_GQ_UNROLL for (int i = 0; i < SMELT_L; i++) x[i] = ld_f32(partial + i * SMELT_L);
  SMELT_GQ_UNROLL for (int n = SMELT_L / 2; n > 0; n /= 2)
    SMELT_GQ_UNROLL for (int i = 0; i < n; i++)
      x[i] = add_f32(__builtin_shufflevector(x[2 * i], x[2 * i + 1], SMELT_GQ_EVEN), __builtin_shufflevector(x[2 * i], x[2 * i + 1], SMELT_GQ_ODD));
  return x[0];
}

/* Scores of `rows` rows against SMELT_L keys, `ld` floats from row to row. */
SMELT_INLINE void smelt_gq_few_scores(const float *q, int64_t rows, int64_t depth, const float *const *keys, float *partial, float *scores,
                                      int64_t ld) {
  for (int64_t i = 0; i < SMELT_L; i++)
    for (int64_t u = 0; u < rows; u++) {
      const float *row = q + u * depth;
      v_f32 sum = mul_f32(ld_f32(row), ld_f32(keys[i]));
      for (int64_t j = SMELT_L; j < depth; j += SMELT_L) sum = add_f32(sum, mul_f32(ld_f32(row + j), ld_f32(keys[i] + j)));
      st_f32(partial + (u * SMELT_L + i) * SMELT_L, sum);
    }
  for (int64_t u = 0; u < rows; u++) st_f32(scores + u * ld, smelt_gq_lane_sums(partial + u * SMELT_L * SMELT_L));
}

/* Adds R rows' weighed values to W vectors of their sums. */
SMELT_INLINE void smelt_gq_few_sums(const int R, const int W, const float *weights, int64_t ld, const float *values, int64_t stride,
                                    int64_t count, float *sums, int64_t wide) {
  v_f32 total[SMELT_GQ_WIDE_ROWS * 4];
  SMELT_GQ_UNROLL for (int i = 0; i < R * W; i++) total[i] = ld_f32(sums + i / W * wide + i % W * SMELT_L);
  for (int64_t key = 0; key < count; key++, values += stride) {
    v_f32 value[4];
    SMELT_GQ_UNROLL for (int j = 0; j < W; j++) value[j] = ld_f32(values + j * SMELT_L);
    SMELT_GQ_UNROLL for (int i = 0; i < R * W; i++)
      total[i] = add_f32(total[i], mul_f32(bc_f32(weights[i / W * ld + key]), value[i % W]));
  }
  SMELT_GQ_UNROLL for (int i = 0; i < R * W; i++) st_f32(sums + i / W * wide + i % W * SMELT_L, total[i]);
}

SMELT_INLINE void smelt_gq_few_columns(const int W, const float *weights, int64_t ld, int64_t rows, const float *values, int64_t stride,
                                       int64_t count, float *sums, int64_t wide) {
  int64_t u = 0;
  for (; u + SMELT_GQ_WIDE_ROWS <= rows; u += SMELT_GQ_WIDE_ROWS)
    smelt_gq_few_sums(SMELT_GQ_WIDE_ROWS, W, weights + u * ld, ld, values, stride, count, sums + u * wide, wide);
  for (; u < rows; u++) smelt_gq_few_sums(1, W, weights + u * ld, ld, values, stride, count, sums + u * wide, wide);
}

/* All rows and columns of a stretch of values. */
static inline __attribute__((unused)) void smelt_gq_few_values(const float *weights, int64_t ld, int64_t rows, const float *values,
                                                               int64_t stride, int64_t count, float *sums, int64_t wide) {
  int64_t column = 0;
  for (; column + 4 * SMELT_L <= wide; column += 4 * SMELT_L)
    smelt_gq_few_columns(4, weights, ld, rows, values + column, stride, count, sums + column, wide);
  for (; column < wide; column += SMELT_L)
    smelt_gq_few_columns(1, weights, ld, rows, values + column, stride, count, sums + column, wide);
}

#endif
