/* Small depthwise convolutions as a unit of its own.
 *
 * Input:     depthwise.h. Output: SMELT_DEPTHWISE of the level it is compiled for.
 * Invariant: its text never depends on a model, so its object is compiled once and found in the cache.
 */
#ifndef SMELT_DEPTHWISE_UNIT_H
#define SMELT_DEPTHWISE_UNIT_H

#include <smelt/conv/depthwise.h>

void SMELT_DEPTHWISE(const smelt_window *w, const float *image, const float *panels, int64_t first, int64_t count,
                       int64_t c0, int64_t c1, float *block, int64_t ld, const smelt_epilogue *epilogue) {
  smelt_depthwise(w, image, panels, first, count, c0, c1, block, ld, epilogue);
}

#endif
