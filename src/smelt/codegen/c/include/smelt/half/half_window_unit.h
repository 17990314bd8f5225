/* Convolutions with panels of 16-bit floats as a unit of its own.
 *
 * Input:     smelt_window of one group, an NHWC image, weights in panels (panel, tap * channel, 16) as half_gemm.h has them.
 * Output:    what half_convolution.h declares, for the level it is compiled for.
 * Invariant: pixels of one tap are rows where they lie; other windows become im2col rows, a few at a time. Parts of k depend on
 *            the geometry alone, and so do bits. The text never depends on a model.
 */
#ifndef SMELT_HALF_WINDOW_UNIT_H
#define SMELT_HALF_WINDOW_UNIT_H

#define SMELT_TILES_LINKED
#include <smelt/conv/convolve.h>
#include <smelt/half/half_gemm.h>
#include <smelt/half/half_convolution.h>

/* Some windows from `first` on as im2col rows, part by part over k. */
static void smelt_half_windows(const smelt_window *w, const float *image, smelt_half *h, int64_t first) {
  float rows[SMELT_WINDOW_ROWS * SMELT_CONVOLVE_LD] __attribute__((aligned(64)));
  const int64_t step = smelt_convolve_depth(h->K);
  for (int64_t k = 0; k < h->K; k += step) {
    smelt_gemm_slab s = {.a = rows, .lda = SMELT_CONVOLVE_LD, .kc = smelt_gemm_min(step, h->K - k), .m = h->m};
    smelt_im2col(w, image, w->pixel, first, k, &s, rows);
    h->a = s.a, h->lda = s.lda;
    smelt_half_gemm(h, k, k + s.kc, k > 0);
  }
}

static void smelt_half_convolve(const smelt_window *w, const float *image, const uint16_t *panels, int64_t first, int64_t count,
                                int64_t c0, int64_t c1, float *block, int64_t ld, const smelt_epilogue *epilogue, int kind) {
  const int64_t K = w->kernel[0] * w->kernel[1] * w->kernel[2] * w->pixel;
  smelt_half h = {image + first * w->pixel, w->pixel, panels, K, block, ld, count, c1 - c0, epilogue, kind};
  h.b += c0 / SMELT_HALF_PANEL * smelt_half_panel(&h);
  if (K <= 0 || smelt_pointwise(w)) {
    smelt_half_gemm(&h, 0, K, 0);
    return;
  }
  const int64_t chunks = smelt_gemm_ceil_div(count, SMELT_BF16_MC);
  for (int64_t i = 0, t = 0; t < chunks; t++, i += h.m) {
    const smelt_epilogue here = epilogue ? smelt_epilogue_at(epilogue, i, 0) : (smelt_epilogue){0};
    h.m = count / chunks + (t < count % chunks), h.c = block + i * ld, h.epilogue = epilogue ? &here : NULL;
    smelt_half_windows(w, image, &h, first + i);
  }
}

#define SMELT_HALF_CONVOLUTIONS(TYPE)                                                                                           \
  void SMELT_CONVOLVE_##TYPE(const smelt_window *w, const float *image, const uint16_t *panels, int64_t first, int64_t count,   \
                             int64_t c0, int64_t c1, float *block, int64_t ld, const smelt_epilogue *epilogue) {                \
    smelt_half_convolve(w, image, panels, first, count, c0, c1, block, ld, epilogue, SMELT_HALF_##TYPE);                        \
  }
SMELT_HALF_CONVOLUTIONS(BF16)
SMELT_HALF_CONVOLUTIONS(WIDENED)
SMELT_HALF_CONVOLUTIONS(F16)

#endif
