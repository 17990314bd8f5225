/* Convolutions with panels of 16-bit floats, as generated code calls them.
 *
 * Input:     as window.h has it; panels as half_gemm.h does. Output: declarations. Invariant: half_window_unit.h defines them.
 */
#ifndef SMELT_HALF_CONVOLUTION_H
#define SMELT_HALF_CONVOLUTION_H

#include <smelt/conv/window.h>

#define SMELT_CONVOLVE_BF16 SMELT_NAME(smelt_convolve_bf16)
#define SMELT_CONVOLVE_WIDENED SMELT_NAME(smelt_convolve_widened)
#define SMELT_CONVOLVE_F16 SMELT_NAME(smelt_convolve_f16)

#define SMELT_HALF_CONVOLUTION(TYPE)                                                                                            \
  void SMELT_CONVOLVE_##TYPE(const smelt_window *w, const float *image, const uint16_t *panels, int64_t first, int64_t count,   \
                             int64_t c0, int64_t c1, float *block, int64_t ld, const smelt_epilogue *epilogue);
SMELT_HALF_CONVOLUTION(BF16)
SMELT_HALF_CONVOLUTION(WIDENED)
SMELT_HALF_CONVOLUTION(F16)

#endif
