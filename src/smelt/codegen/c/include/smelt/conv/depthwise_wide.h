/* Depthwise convolution with large filters: the lines of depthwise_lines.h, the patches of depthwise_patch.h, or what
 * SMELT_DEPTHWISE does with small ones.
 *
 * Input:     smelt_window, an NHWC image; weights in panels (panel, tap, 16). Output: a block of windows.
 * Invariant: that of depthwise.h.
 */
#ifndef SMELT_DEPTHWISE_WIDE_H
#define SMELT_DEPTHWISE_WIDE_H

#include <smelt/conv/depthwise_lines.h>
#include <smelt/conv/depthwise_patch.h>
#include <smelt/conv/epilogue.h>

/* Finished where they belong; the block has room for whole panels. */
static __attribute__((unused)) void smelt_depthwise_wide(const smelt_window *w, const float *image, const float *panels,
                                                           int64_t first, int64_t count, int64_t c0, int64_t c1,
                                                           float *block, int64_t ld, const smelt_epilogue *epilogue) {
  if (smelt_lines_pay(w)) smelt_depthwise_lines(w, image, panels, first, count, c0, c1, block, ld);
  else if (smelt_patches_pay(w)) smelt_depthwise_patches(w, image, panels, first, count, c0, c1, block, ld);
  else {
    SMELT_DEPTHWISE(w, image, panels, first, count, c0, c1, block, ld, epilogue);
    return;
  }
  if (epilogue) smelt_epilogue_block(epilogue, block, ld, count);
}

#endif
