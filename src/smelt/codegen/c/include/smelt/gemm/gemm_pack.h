/* Copies of GEMM operands into the layouts that the micro-kernels read.
 *
 * Input: f32 matrices with any element strides. Output: B in panels of 16 columns, Bp[(p * K + k) * 16 + j], zero beyond N;
 * A as a row-major block. Invariant: values are copied bit for bit; nothing is written past the last panel or row.
 */
#ifndef SMELT_GEMM_PACK_H
#define SMELT_GEMM_PACK_H

#include <stddef.h>
#include <stdint.h>

#include <smelt/gemm/transpose.h>

#define SMELT_GEMM_INLINE static inline __attribute__((always_inline, unused))

/* Rows 0..m-1, columns 0..k-1 of a strided A into a row-major block with leading dimension ld. */
static __attribute__((unused)) void smelt_gemm_pack_a(const float *A, int64_t row_stride, int64_t col_stride, int64_t m,
                                                      int64_t k, float *block, int64_t ld) {
  if (col_stride == 1) {
    for (int64_t i = 0; i < m; ++i)
      __builtin_memcpy(block + i * ld, A + i * row_stride, (size_t)k * sizeof(float));
  } else if (row_stride == 1) {
    smelt_transpose_any(A, col_stride, k, m, block, ld);
  } else {
    for (int64_t i = 0; i < m; ++i)
      for (int64_t c = 0; c < k; ++c)
        block[i * ld + c] = A[i * row_stride + c * col_stride];
  }
}

/* One panel of `cols` (1..16) valid columns. */
static __attribute__((unused)) void smelt_gemm_pack_panel(const float *B, int64_t k_stride, int64_t n_stride, int64_t K,
                                                          int64_t cols, float *panel) {
  if (cols < 16)
    __builtin_memset(panel, 0, (size_t)K * 16 * sizeof(float));
  if (n_stride == 1 && cols == 16) {
    for (int64_t k = 0; k < K; ++k)
      __builtin_memcpy(panel + k * 16, B + k * k_stride, 16 * sizeof(float));
  } else if (k_stride == 1 && cols == 16) {
    smelt_transpose(B, n_stride, 16, K, panel, 16);
  } else if (k_stride == 1) {
    smelt_transpose_any(B, n_stride, cols, K, panel, 16);
  } else {
    for (int64_t k = 0; k < K; ++k)
      for (int64_t j = 0; j < cols; ++j)
        panel[k * 16 + j] = B[k * k_stride + j * n_stride];
  }
}

/* Floats that a packed K x N matrix takes. */
SMELT_GEMM_INLINE int64_t smelt_gemm_packed_floats(int64_t K, int64_t N) { return (N + 15) / 16 * 16 * K; }

/* Packs panels p0..p1-1 of B (element (k, n) at B[k * k_stride + n * n_stride]) into Bp, which starts at panel 0; panels are
 * independent, so a parallel loop can share the work. */
static __attribute__((unused)) void smelt_gemm_f32_pack_b(const float *B, int64_t k_stride, int64_t n_stride, int64_t K,
                                                          int64_t N, float *Bp, int64_t p0, int64_t p1) {
  for (int64_t p = p0; p < p1; ++p) {
    const int64_t left = N - p * 16;
    smelt_gemm_pack_panel(B + p * 16 * n_stride, k_stride, n_stride, K, left < 16 ? left : 16, Bp + p * K * 16);
  }
}

#endif
