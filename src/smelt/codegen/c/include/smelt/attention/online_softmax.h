/* Online softmax: attention weights block by block of their columns, with a running maximum and sum for each row.
 *
 * Input:     for each block, what its columns give (rows of `ld` floats, a multiple of 16), and for each row the largest
 *            score in the block and the sum of its powers, which are relative to that score.
 * Output:    the same over all blocks so far.
 * Invariant: the largest score of a row never decreases, and is never below the lowest finite number: a block of nothing
 *            but -inf adds zeros, NaN and +inf spoil the row's sum as they do where a row is one block.
 */
#ifndef SMELT_ONLINE_SOFTMAX_H
#define SMELT_ONLINE_SOFTMAX_H

#include <smelt/attention/loop_b2b_gemm.h>
#include <smelt/math/math.h>
#include <smelt/vec/vec.h>

/* What a task knows of its rows. */
typedef struct {
  float *tops, *sums; /* of the block at hand */
  float *all_tops, *all_sums;
} smelt_softmax_state;

SMELT_INLINE smelt_softmax_state smelt_softmax_state_of(float *room, int64_t rows) {
  return (smelt_softmax_state){room, room + rows, room + 2 * rows, room + 3 * rows};
}

/* whole = whole * before + part * now */
SMELT_INLINE void smelt_softmax_add_row(float *whole, const float *part, int64_t ld, v_f32 before, v_f32 now) {
  for (int64_t j = 0; j < ld; j += SMELT_L)
    st_f32(whole + j, add_f32(mul_f32(ld_f32(whole + j), before), mul_f32(ld_f32(part + j), now)));
}

/* Adds a block's rows to those of earlier blocks; both are brought to the larger of their largest scores. */
static inline __attribute__((unused)) void smelt_softmax_merge(float *whole, const float *part, int64_t ld, int64_t count,
                                                            smelt_softmax_state seen, int first) {
  if (first) {
    __builtin_memcpy(whole, part, (size_t)(count * ld) * sizeof(float));
    __builtin_memcpy(seen.all_tops, seen.tops, (size_t)count * sizeof(float));
    __builtin_memcpy(seen.all_sums, seen.sums, (size_t)count * sizeof(float));
    return;
  }
  for (int64_t u = 0; u < count; u++) {
    const float top = seen.tops[u] > seen.all_tops[u] ? seen.tops[u] : seen.all_tops[u];
    const v_f32 before = exp_f32(bc_f32(seen.all_tops[u] - top)), now = exp_f32(bc_f32(seen.tops[u] - top));
    smelt_softmax_add_row(whole + u * ld, part + u * ld, ld, before, now);
    seen.all_sums[u] = seen.all_sums[u] * lane0_f32(before) + seen.sums[u] * lane0_f32(now);
    seen.all_tops[u] = top;
  }
}

SMELT_INLINE void smelt_softmax_scale_row(float *row, int64_t ld, v_f32 factor) {
  for (int64_t j = 0; j < ld; j += SMELT_L)
    st_f32(row + j, mul_f32(ld_f32(row + j), factor));
}

#endif
