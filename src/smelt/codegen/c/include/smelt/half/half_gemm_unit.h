/* Products of float32 rows with packed panels of 16-bit floats as a unit of its own.
 *
 * Input:     half_gemm.h. Output: what half_product.h declares, for the level it is compiled for.
 * Invariant: its text never depends on a model, so its object is compiled once and found in the cache ever after.
 */
#ifndef SMELT_HALF_GEMM_UNIT_H
#define SMELT_HALF_GEMM_UNIT_H

#define SMELT_TILES_LINKED
#include <smelt/half/half_gemm.h>
#include <smelt/half/half_product.h>

/* Columns of panels p0..p1-1 that exist, and where those begin. */
SMELT_INLINE smelt_half smelt_half_of(const float *a, int64_t lda, const uint16_t *panels, int64_t depth, float *c, int64_t ldc,
                                      int64_t m, int64_t p0, int64_t p1, int64_t n_valid, int kind) {
  smelt_half h = {a, lda, panels, depth, c, ldc, m, smelt_gemm_min(n_valid, p1 * SMELT_HALF_PANEL) - p0 * SMELT_HALF_PANEL, NULL, kind};
  h.b += p0 * smelt_half_panel(&h);
  return h;
}

#define SMELT_HALF_PRODUCTS(TYPE)                                                                                              \
  void SMELT_PRODUCT_##TYPE(const float *a, int64_t lda, const uint16_t *panels, int64_t depth, float *c, int64_t ldc,         \
                            int64_t m, int64_t p0, int64_t p1, int64_t n_valid) {                                              \
    const smelt_half h = smelt_half_of(a, lda, panels, depth, c, ldc, m, p0, p1, n_valid, SMELT_HALF_##TYPE);                      \
    smelt_half_gemm(&h, 0, depth, 0);                                                                                          \
  }                                                                                                                            \
  void SMELT_PRODUCT_K_BLOCK_##TYPE(const float *a, int64_t lda, const uint16_t *panels, int64_t depth, int64_t from,          \
                                    int64_t terms, float *c, int64_t ldc, int64_t m, int64_t p0, int64_t p1,                   \
                                    int64_t n_valid) {                                                                         \
    const smelt_half h = smelt_half_of(a + from, lda, panels, depth, c, ldc, m, p0, p1, n_valid, SMELT_HALF_##TYPE);               \
    smelt_half_gemm(&h, from, smelt_gemm_min(depth, from + terms), from > 0);                                                  \
  }                                                                                                                            \
  void SMELT_PRODUCT_EPILOGUE_##TYPE(const float *a, int64_t lda, const uint16_t *panels, int64_t depth, float *block,         \
                                     int64_t ld, int64_t m, int64_t p0, int64_t p1, const smelt_epilogue *epilogue) {          \
    smelt_half h = smelt_half_of(a, lda, panels, depth, block, ld, m, p0, p1, p1 * SMELT_HALF_PANEL, SMELT_HALF_##TYPE);                     \
    h.cols = epilogue->columns, h.epilogue = epilogue;                                                                         \
    smelt_half_gemm(&h, 0, depth, 0);                                                                                          \
  }
SMELT_HALF_PRODUCTS(BF16)
SMELT_HALF_PRODUCTS(WIDENED)
SMELT_HALF_PRODUCTS(F16)

#endif
