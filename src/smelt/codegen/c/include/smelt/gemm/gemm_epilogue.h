/* f32 GEMM with a register epilogue: bias, addend and limits are applied before the only store.
 *
 * Input:     as smelt_gemm_f32; smelt_epilogue; a block for the sums of the blocks of k before the last one.
 * Output:    smelt_gemm_f32_epilogue(). Invariant: bits are those of smelt_gemm_f32() followed by smelt_epilogue_block().
 */
#ifndef SMELT_GEMM_EPILOGUE_H
#define SMELT_GEMM_EPILOGUE_H

#include <smelt/conv/convolve_epilogue.h>

/* Up to SMELT_GEMM_MC rows: parts of k but the last as smelt_gemm_pass() does them. */
static __attribute__((unused)) void smelt_gemm_epilogue_pass(smelt_gemm_slab s, int64_t K, int64_t depth,
                                                           const smelt_epilogue *epilogue) {
  const int64_t last = (K - 1) / smelt_gemm_k_outer(depth) * smelt_gemm_k_outer(depth);
  const float *prefetch = s.prefetch;
  s.prefetch = NULL;
  if (last > 0)
    smelt_gemm_pass(s, s.a, s.lda, 1, last, depth, NULL);
  s.a += last, s.b += last * SMELT_GEMM_PANEL, s.kc = K - last, s.add = last > 0;
  for (int64_t col = 0, panels; col < s.cols; col += panels * SMELT_GEMM_PANEL) {
    panels = smelt_gemm_panels(&s, col);
    const int ends = prefetch && col + panels * SMELT_GEMM_PANEL >= s.cols;
    const float *following = ends ? prefetch : s.b + (col / SMELT_GEMM_PANEL + panels) * s.panel_stride;
    s.next_stride = ends ? s.prefetch_stride : 0;
    smelt_epilogue_blocks(&s, col, panels, depth, following, epilogue);
  }
}

/* Rows 0..m-1 of the columns of panels p0..p1-1, before those of `prefetch`. The block has rows of `ld` floats, whole panels. */
static __attribute__((unused)) void smelt_gemm_f32_epilogue(const float *A, int64_t lda, const float *Bp, int64_t K,
                                                            float *block, int64_t ld, int64_t m, int64_t p0, int64_t p1,
                                                            const smelt_epilogue *epilogue, const float *prefetch,
                                                            int64_t prefetch_stride) {
  if (m <= SMELT_GEMM_THIN_ROWS || K <= 0) {
    smelt_gemm_f32(A, lda, Bp, K, block, ld, m, p0, p1, p1 * SMELT_GEMM_PANEL, NULL);
    smelt_epilogue_block(epilogue, block, ld, m);
    return;
  }
  const int64_t depth = smelt_gemm_depth(K), chunks = smelt_gemm_ceil_div(m, SMELT_GEMM_MC);
  smelt_gemm_slab s = {A, lda, Bp + p0 * K * SMELT_GEMM_PANEL, K * SMELT_GEMM_PANEL, 0, block, ld, m,
                       (p1 - p0) * SMELT_GEMM_PANEL, 0, 0, prefetch, prefetch_stride, 0};
  for (int64_t i = 0, t = 0; t < chunks; ++t, i += s.m) {
    s.m = m / chunks + (t < m % chunks);
    s.a = A + i * lda, s.c = block + i * ld;
    const smelt_epilogue here = smelt_epilogue_at(epilogue, i, 0);
    smelt_gemm_epilogue_pass(s, K, depth, &here);
  }
}

#endif
