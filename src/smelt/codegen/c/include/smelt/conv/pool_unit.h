/* Pools as a unit of its own.
 *
 * Input:     pool.h. Output: SMELT_POOL and SMELT_POOL_NCHW of the level it is compiled for.
 * Invariant: its text never depends on a model, so its object is compiled once and found in the cache.
 */
#ifndef SMELT_POOL_UNIT_H
#define SMELT_POOL_UNIT_H

#include <smelt/conv/pool.h>

void SMELT_POOL(const smelt_window *w, const float *image, int kind, int64_t first, int64_t count, int64_t c0, int64_t c1,
                float *block, int64_t ld) {
  smelt_pool(w, image, kind, first, count, c0, c1, block, ld);
}

void SMELT_POOL_NCHW(const smelt_window *w, const float *image, int kind, int64_t first, int64_t count, int64_t c0,
                       int64_t c1, float *block, int64_t ld) {
  for (int64_t r = 0; r < count; r++)
    smelt_pool(w, image, kind, (first + r) * w->out[2] + c0, c1 - c0, 0, 1, block + r * ld, 1);
}

#endif
