/* Convolutions as a unit of its own.
 *
 * Input:     convolve.h. Output: SMELT_CONVOLVE of the level it is compiled for.
 * Invariant: its text never depends on a model, so its object is compiled once and found in the cache.
 */
#ifndef SMELT_WINDOW_UNIT_H
#define SMELT_WINDOW_UNIT_H

#define SMELT_TILES_LINKED
#include <smelt/conv/convolve.h>

void SMELT_CONVOLVE(const smelt_window *w, const float *image, const float *panels, int64_t first, int64_t count,
                    int64_t c0, int64_t c1, float *block, int64_t ld, const smelt_epilogue *epilogue) {
  smelt_convolve(w, image, panels, first, count, c0, c1, block, ld, epilogue);
}

#endif
