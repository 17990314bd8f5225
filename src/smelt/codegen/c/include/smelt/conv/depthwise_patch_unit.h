/* Depthwise convolutions with large filters as a unit of its own.
 *
 * Input:     depthwise_patch.h. Output: SMELT_DEPTHWISE_PATCH of the level it is compiled for.
 * Invariant: its text never depends on a model, so its object is compiled once and found in the cache.
 */
#ifndef SMELT_DEPTHWISE_PATCH_UNIT_H
#define SMELT_DEPTHWISE_PATCH_UNIT_H

#include <smelt/conv/depthwise_patch.h>
#include <smelt/conv/epilogue.h>

void SMELT_DEPTHWISE_PATCH(const smelt_window *w, const float *image, const float *panels, int64_t first, int64_t count,
                           int64_t c0, int64_t c1, float *block, int64_t ld, const smelt_epilogue *epilogue) {
  if (!smelt_patches_pay(w)) {
    SMELT_DEPTHWISE(w, image, panels, first, count, c0, c1, block, ld, epilogue);
    return;
  }
  smelt_depthwise_patches(w, image, panels, first, count, c0, c1, block, ld);
  if (epilogue) smelt_epilogue_block(epilogue, block, ld, count);
}

#endif
