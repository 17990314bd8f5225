/* The epilogue of a convolution: a bias for each column, an image that is added, limits; then the store.
 *
 * Input:     sums of windows, in registers or in a block. Output: smelt_epilogue, smelt_epilogue_block().
 * Invariant: an element is min(max(sum + bias + added, least), most), rounded after each addition, whoever computes it;
 *            NaN stays NaN. What is added may lie where the result goes: each element is read just before it is written.
 */
#ifndef SMELT_EPILOGUE_H
#define SMELT_EPILOGUE_H

#include <smelt/vec/vec.h>
#include <smelt/conv/window.h>

SMELT_INLINE v_f32 smelt_limited(v_f32 x, v_f32 least, v_f32 most) {
  return second_min_f32(most, second_max_f32(least, x));
}

/* The same for the window `row` places on, from column `col` on. */
SMELT_INLINE smelt_epilogue smelt_epilogue_at(const smelt_epilogue *f, int64_t row, int64_t col) {
  smelt_epilogue there = *f;
  there.bias += col, there.to += row * f->ld + col;
  if (f->added) there.added += row * f->ld + col;
  if (f->sums) there.sums += row * f->sums_ld + col;
  there.columns -= col;
  return there;
}

/* `rows` windows whose sums lie in a block. */
static __attribute__((unused)) void smelt_epilogue_block(const smelt_epilogue *f, const float *block, int64_t ld, int64_t rows) {
  const v_f32 least = bc_f32(f->least), most = bc_f32(f->most);
  for (int64_t row = 0; row < rows; row++, block += ld) {
    float *to = f->to + row * f->ld;
    const float *added = f->added ? f->added + row * f->ld : NULL;
    int64_t v = 0;
    for (; v + SMELT_L <= f->columns; v += SMELT_L) {
      v_f32 x = ld_f32(block + v) + ld_f32(f->bias + v);
      if (added) x += ld_f32(added + v);
      st_f32(to + v, smelt_limited(x, least, most));
    }
    if (v == f->columns) continue;
    const int64_t n = f->columns - v;
    v_f32 x = ld_f32_n(block + v, n) + ld_f32_n(f->bias + v, n);
    if (added) x += ld_f32_n(added + v, n);
    st_f32_n(to + v, smelt_limited(x, least, most), n);
  }
}

#endif
