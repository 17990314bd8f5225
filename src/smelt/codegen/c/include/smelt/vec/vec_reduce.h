/* Reductions of one vector to a scalar.
 *
 * Input: a vector. Output: hsum_D hprod_D hmin_D hmax_D, a scalar of the same dtype; htop_f32, hmax_f32 that may miss NaN.
 * Invariant: a fixed tree (lane i with lane i + L/2, then i + L/4, ...): the same bits on every compiler. Integers wrap;
 * hmin and hmax give NaN if any lane is NaN. */
#ifndef SMELT_VEC_REDUCE_H
#define SMELT_VEC_REDUCE_H

#include <smelt/vec/vec_arith.h>

/* Rotations by a power of two, of 32-bit and of 64-bit lanes. */
#define SMELT_ROTATED(i) (((i) + by) & (SMELT_L - 1))
#define SMELT_ROTATED_HALF(i) (((i) + by) & (SMELT_H - 1))
#if defined(__clang__)
#define SMELT_SHUFFLE(v, ...) __builtin_shufflevector(v, v, __VA_ARGS__)
#define SMELT_SHUFFLE_HALF(v, ...) __builtin_shufflevector(v, v, __VA_ARGS__)
#else
#define SMELT_SHUFFLE(v, ...) __builtin_shuffle(v, (v_i32){__VA_ARGS__})
#define SMELT_SHUFFLE_HALF(v, ...) __builtin_shuffle(v, (h_i64){__VA_ARGS__})
#endif
#define SMELT_ROTATE(D, n)                                                                                        \
  SMELT_FN v_##D rotate##n##_##D(v_##D v) { enum { by = n }; return SMELT_SHUFFLE(v, SMELT_LANES(SMELT_ROTATED)); }
#define SMELT_ROTATE_HALF(D, n)                                                                                   \
  SMELT_FN h_##D half_rotate##n##_##D(h_##D v) {                                                                  \
    enum { by = n };                                                                                              \
    return SMELT_SHUFFLE_HALF(v, SMELT_LANES_LO(SMELT_ROTATED_HALF));                                                \
  }
#define SMELT_DEFINE(D) SMELT_ROTATE(D, 1) SMELT_ROTATE(D, 2) SMELT_ROTATE(D, 4) SMELT_ROTATE(D, 8)
SMELT_EACH_WORD(SMELT_DEFINE)
#undef SMELT_DEFINE
#define SMELT_DEFINE(D) SMELT_ROTATE_HALF(D, 1) SMELT_ROTATE_HALF(D, 2) SMELT_ROTATE_HALF(D, 4)
SMELT_EACH_WIDE(SMELT_DEFINE)
#undef SMELT_DEFINE

#define SMELT_HALF_OF(name, symbol, D)                                             \
  SMELT_FN h_##D half_##name##_##D(h_##D a, h_##D b) { return a symbol b; }
SMELT_HALF_OF(add, +, f64) SMELT_HALF_OF(mul, *, f64) SMELT_HALF_OF(add, +, u64) SMELT_HALF_OF(mul, *, u64)
SMELT_FN h_i64 half_add_i64(h_i64 a, h_i64 b) { return (h_i64)((h_u64)a + (h_u64)b); }
SMELT_FN h_i64 half_mul_i64(h_i64 a, h_i64 b) { return (h_i64)((h_u64)a * (h_u64)b); }

#define SMELT_REDUCE_WORD(result, op, D)                                           \
  SMELT_FN T_##D result##_##D(v_##D v) {                                           \
    if (SMELT_L >= 16) v = op##_##D(v, rotate8_##D(v));                            \
    if (SMELT_L >= 8) v = op##_##D(v, rotate4_##D(v));                             \
    v = op##_##D(v, rotate2_##D(v));                                               \
    v = op##_##D(v, rotate1_##D(v));                                               \
    return v[0];                                                                   \
  }
#define SMELT_REDUCE_WIDE(result, op, D)                                           \
  SMELT_FN T_##D result##_##D(v_##D pair) {                                        \
    h_##D v = half_##op##_##D(pair.lo, pair.hi);                                   \
    if (SMELT_H >= 8) v = half_##op##_##D(v, half_rotate4_##D(v));                 \
    if (SMELT_H >= 4) v = half_##op##_##D(v, half_rotate2_##D(v));                 \
    v = half_##op##_##D(v, half_rotate1_##D(v));                                   \
    return v[0];                                                                   \
  }
#define SMELT_REDUCE_SMALL(result, op, D) SMELT_FN T_##D result##_##D(v_##D v) { return (T_##D)result##_i32(v); }
#define SMELT_ALL(REDUCE, D) REDUCE(hsum, add, D) REDUCE(hprod, mul, D) REDUCE(hmin, min, D) REDUCE(hmax, max, D)
#define SMELT_DEFINE(D) SMELT_ALL(SMELT_REDUCE_WORD, D)
SMELT_EACH_WORD(SMELT_DEFINE)
SMELT_REDUCE_WORD(htop, second_max, f32)
#undef SMELT_DEFINE
#define SMELT_DEFINE(D) SMELT_ALL(SMELT_REDUCE_WIDE, D)
SMELT_EACH_WIDE(SMELT_DEFINE)
#undef SMELT_DEFINE
#define SMELT_DEFINE(D) SMELT_ALL(SMELT_REDUCE_SMALL, D)
SMELT_EACH_SMALL(SMELT_DEFINE)
#undef SMELT_DEFINE

#undef SMELT_ROTATED
#undef SMELT_ROTATED_HALF
#undef SMELT_SHUFFLE
#undef SMELT_SHUFFLE_HALF
#undef SMELT_ROTATE
#undef SMELT_ROTATE_HALF
#undef SMELT_HALF_OF
#undef SMELT_REDUCE_WORD
#undef SMELT_REDUCE_WIDE
#undef SMELT_REDUCE_SMALL
#undef SMELT_ALL

#endif
