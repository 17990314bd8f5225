/* Winograd's convolutions as a unit of its own.
 *
 * Input:     winograd.h. Output: SMELT_WINOGRAD of the level it is compiled for.
 * Invariant: its text never depends on a model, so its object is compiled once and found in the cache.
 */
#ifndef SMELT_WINOGRAD_UNIT_H
#define SMELT_WINOGRAD_UNIT_H

#define SMELT_TILES_LINKED
#include <smelt/conv/winograd.h>

void SMELT_WINOGRAD(const smelt_window *w, const float *image, const float *panels, int transformed, int64_t first,
                    int64_t count, int64_t c0, int64_t c1, float *block, int64_t ld, float *workspace) {
  smelt_winograd(w, image, panels, transformed, first, count, c0, c1, block, ld, workspace);
}

#endif
