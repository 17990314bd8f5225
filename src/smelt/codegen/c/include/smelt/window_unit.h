/* Convolutions as a unit of their own: functions that window.h declares.
 *
 * Input:     convolve.h, winograd.h. Output: SMELT_CONVOLVE, SMELT_WINOGRAD of the level it is compiled for.
 *            Invariant: its text never depends on a model, so its object is compiled once and found in the cache.
 */
#ifndef SMELT_WINDOW_UNIT_H
#define SMELT_WINDOW_UNIT_H

#define SMELT_TILES_LINKED
#include <smelt/convolve.h>
#include <smelt/winograd.h>

void SMELT_CONVOLVE(const smelt_window *w, const float *image, const float *panels, int64_t first, int64_t count,
                    int64_t c0, int64_t c1, float *block, int64_t ld, const smelt_finish *finish) {
  smelt_convolve(w, image, panels, first, count, c0, c1, block, ld, finish);
}

void SMELT_WINOGRAD(const smelt_window *w, const float *image, const float *panels, int transformed, int64_t first,
                    int64_t count, int64_t c0, int64_t c1, float *block, int64_t ld, float *workspace) {
  smelt_winograd(w, image, panels, transformed, first, count, c0, c1, block, ld, workspace);
}

#endif
