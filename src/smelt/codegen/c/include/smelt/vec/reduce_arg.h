/* Positions of the largest and smallest element, for every dtype.
 *
 * Input:     a vector of candidates, the best so far and its position (-1: none yet).
 * Output:    smelt_KIND_D: the mask of lanes where the candidate wins; smelt_hKIND_D: the position across lanes.
 * Invariant: a NaN wins over every number; of equals the first wins, or the last for the _last kinds.
 */
#ifndef SMELT_REDUCE_ARG_H
#define SMELT_REDUCE_ARG_H

#include <smelt/threads/loop.h>
#include <smelt/vec/vec.h>

#define SMELT_ARG(KIND, D, CMP, LAST)                                                                                 \
  SMELT_INLINE v_b smelt_##KIND##_##D(v_##D x, v_##D best, v_i64 at) {                                                 \
    v_b nan = ne_##D(x, x), taken = LAST ? bc_b(0) : ne_##D(best, best);                                               \
    return or_b(lt_i64(at, bc_i64(0)), or_b(CMP##_##D(x, best), and_b(nan, not_b(taken))));                            \
  }                                                                                                                    \
  SMELT_INLINE int64_t smelt_h##KIND##_##D(v_##D best, v_i64 at) {                                                     \
    int64_t places[SMELT_L], found = -1;                                                                               \
    T_##D values[SMELT_L], top = 0;                                                                                    \
    st_i64(places, at);                                                                                                \
    st_##D(values, best);                                                                                              \
    for (int l = 0; l < SMELT_L; l++) {                                                                                \
      if (places[l] < 0) continue;                                                                                     \
      int nan = values[l] != values[l], top_nan = top != top;                                                          \
      int same = nan ? top_nan : values[l] == top;                                                                     \
      int wins = nan ? !top_nan : !top_nan && (SMELT_ARG_##CMP(values[l], top)) && values[l] != top;                   \
      if (found < 0 || wins || (same && (LAST ? places[l] > found : places[l] < found)))                               \
        found = places[l], top = values[l];                                                                            \
    }                                                                                                                  \
    return found < 0 ? 0 : found;                                                                                      \
  }
#define SMELT_ARG_gt(a, b) ((a) > (b))
#define SMELT_ARG_ge(a, b) ((a) >= (b))
#define SMELT_ARG_lt(a, b) ((a) < (b))
#define SMELT_ARG_le(a, b) ((a) <= (b))
#define SMELT_ARGS(D) \
  SMELT_ARG(argmax, D, gt, 0) SMELT_ARG(argmin, D, lt, 0) SMELT_ARG(argmax_last, D, ge, 1) SMELT_ARG(argmin_last, D, le, 1)
SMELT_ARGS(f32) SMELT_ARGS(f64) SMELT_ARGS(i8) SMELT_ARGS(i16) SMELT_ARGS(i32) SMELT_ARGS(i64)
SMELT_ARGS(u8) SMELT_ARGS(u16) SMELT_ARGS(u32) SMELT_ARGS(u64)

#endif
