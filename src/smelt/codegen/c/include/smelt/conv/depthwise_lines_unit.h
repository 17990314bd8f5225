/* Depthwise convolutions of SMELT_LINE_TAPS taps along a line, of windows SMELT_LINE_STRIDE pixels apart, as a unit of its own.
 *
 * Input:     depthwise_lines.h, and these two numbers. Output: SMELT_DEPTHWISE_LINES_<taps>_<stride> of the level it is compiled for.
 * Invariant: its text never depends on a model, so its object is compiled once and found in the cache.
 */
#ifndef SMELT_DEPTHWISE_LINES_UNIT_H
#define SMELT_DEPTHWISE_LINES_UNIT_H

#include <smelt/conv/depthwise_lines.h>
#include <smelt/conv/epilogue.h>

#define SMELT_LINES_NAMED(TAPS, STRIDE) SMELT_DEPTHWISE_LINES_##TAPS##_##STRIDE
#define SMELT_LINES_OF(TAPS, STRIDE) SMELT_LINES_NAMED(TAPS, STRIDE)

void SMELT_LINES_OF(SMELT_LINE_TAPS, SMELT_LINE_STRIDE)(const smelt_window *w, const float *image, const float *panels,
                                                        int64_t first, int64_t count, int64_t c0, int64_t c1, float *block,
                                                        int64_t ld, const smelt_epilogue *epilogue) {
  smelt_depthwise_lines(w, image, panels, first, count, c0, c1, block, ld);
  if (epilogue) smelt_epilogue_block(epilogue, block, ld, count);
}

#endif
