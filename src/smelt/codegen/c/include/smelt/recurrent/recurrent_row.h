/* The recurrent product of a single row: all panels once through the core, which is all that a step of one sequence does.
 *
 * Input:     a row, panels of 16 columns as in gemm.h. Output: smelt_row_product().
 * Invariant: the bits of smelt_gemm_f32. No prefetch: the panels come from L2 in the order in which they lie, and the tiles of
 *            gemm.h, which prefetch for memory, are up to 1.15 times slower here.
 */
#ifndef SMELT_RECURRENT_ROW_H
#define SMELT_RECURRENT_ROW_H

#include <smelt/gemm/gemm.h>

/* Panels of the widest tile: eight independent sums hide the latency of a multiply-add. */
#if defined(__aarch64__)
#define SMELT_ROW_PANELS 4
#else
#define SMELT_ROW_PANELS (8 / SMELT_GEMM_VPP)
#endif

#define SMELT_ROW_UNROLL _Pragma("GCC unroll 16")
/* Panel q begins q / 2 * pair + q % 2 * stride floats behind the first. */
SMELT_GEMM_INLINE void smelt_row_tile(const float *a, const float *b, int64_t stride, int64_t pair, int64_t kc, float *c, int add,
                                      int W) {
  smelt_gemm_v s[SMELT_ROW_PANELS * SMELT_GEMM_VPP];
  SMELT_ROW_UNROLL
  for (int j = 0; j < W; j++) s[j] = (smelt_gemm_v){0};
  for (int64_t k = 0; k < kc; k++, b += SMELT_GEMM_PANEL) {
    SMELT_ROW_UNROLL
    for (int j = 0; j < W; j++)
      s[j] += a[k] * *(const smelt_gemm_vu *)(b + j / SMELT_GEMM_VPP / 2 * pair + j / SMELT_GEMM_VPP % 2 * stride +
                                              j % SMELT_GEMM_VPP * SMELT_GEMM_LANES);
  }
  SMELT_ROW_UNROLL
  for (int j = 0; j < W; j++) {
    smelt_gemm_vu *to = (smelt_gemm_vu *)(c + j * SMELT_GEMM_LANES);
    if (add) *to += s[j];
    else *to = s[j];
  }
}

#define SMELT_ROW_TILE(P)                                                                                                  \
  static __attribute__((noinline)) void smelt_row_tile_##P(const float *a, const float *b, int64_t stride, int64_t pair,   \
                                                           int64_t kc, float *c, int add) {                                \
    smelt_row_tile(a, b, stride, pair, kc, c, add, (P) * SMELT_GEMM_VPP);                                                  \
  }
SMELT_ROW_TILE(1)
SMELT_ROW_TILE(2)
#if SMELT_ROW_PANELS >= 4
SMELT_ROW_TILE(4)
#endif
#if SMELT_ROW_PANELS >= 8
SMELT_ROW_TILE(8)
#endif

/* c[0 .. 16 * panels) = the row a times the panels; K is cut as in smelt_gemm_f32. */
static __attribute__((unused)) void smelt_row_product(const float *a, const float *b, int64_t stride, int64_t pair, int64_t K,
                                                      float *c, int64_t panels) {
  const int64_t depth = smelt_gemm_depth(K);
  for (int64_t p = 0, wide; p < panels; p += wide) {
    wide = SMELT_ROW_PANELS;
    while (wide > panels - p) wide /= 2;
    for (int64_t k = 0; k < K; k += depth) {
      const float *from = b + p / 2 * pair + k * SMELT_GEMM_PANEL;
      float *to = c + p * SMELT_GEMM_PANEL;
      const int64_t kc = smelt_gemm_min(depth, K - k);
      switch (wide) {
      case 1: smelt_row_tile_1(a + k, from, stride, pair, kc, to, k > 0); break;
      case 2: smelt_row_tile_2(a + k, from, stride, pair, kc, to, k > 0); break;
#if SMELT_ROW_PANELS >= 4
      case 4: smelt_row_tile_4(a + k, from, stride, pair, kc, to, k > 0); break;
#endif
#if SMELT_ROW_PANELS >= 8
      default: smelt_row_tile_8(a + k, from, stride, pair, kc, to, k > 0); break;
#endif
      }
    }
  }
}

#endif
