/* Copies of GEMM operands into the layouts that the micro-kernels read.
 *
 * Input: f32 matrices with any element strides. Output: B in panels of 16 columns, Bp[(p * K + k) * 16 + j], zero beyond N;
 * A as a row-major block. Invariant: values are copied bit for bit; nothing is written past the last panel or row.
 */
#ifndef SMELT_GEMM_PACK_H
#define SMELT_GEMM_PACK_H

#include <stddef.h>
#include <stdint.h>

#define SMELT_GEMM_INLINE static inline __attribute__((always_inline, unused))

typedef float smelt_gemm_q __attribute__((vector_size(16), may_alias));
typedef float smelt_gemm_qu __attribute__((vector_size(16), aligned(4), may_alias));

/* to[c * to_stride + r] = from[r * from_stride + c] for 4 x 4 elements. */
SMELT_GEMM_INLINE void smelt_gemm_transpose4(const float *from, int64_t from_stride, float *to, int64_t to_stride) {
  const smelt_gemm_q a = *(const smelt_gemm_qu *)from;
  const smelt_gemm_q b = *(const smelt_gemm_qu *)(from + from_stride);
  const smelt_gemm_q c = *(const smelt_gemm_qu *)(from + 2 * from_stride);
  const smelt_gemm_q d = *(const smelt_gemm_qu *)(from + 3 * from_stride);
  const smelt_gemm_q ab0 = __builtin_shufflevector(a, b, 0, 4, 1, 5), ab1 = __builtin_shufflevector(a, b, 2, 6, 3, 7);
  const smelt_gemm_q cd0 = __builtin_shufflevector(c, d, 0, 4, 1, 5), cd1 = __builtin_shufflevector(c, d, 2, 6, 3, 7);
  *(smelt_gemm_qu *)to = __builtin_shufflevector(ab0, cd0, 0, 1, 4, 5);
  *(smelt_gemm_qu *)(to + to_stride) = __builtin_shufflevector(ab0, cd0, 2, 3, 6, 7);
  *(smelt_gemm_qu *)(to + 2 * to_stride) = __builtin_shufflevector(ab1, cd1, 0, 1, 4, 5);
  *(smelt_gemm_qu *)(to + 3 * to_stride) = __builtin_shufflevector(ab1, cd1, 2, 3, 6, 7);
}

/* to[c * to_stride + r] = from[r * from_stride + c] for rows x cols elements. */
static __attribute__((unused)) void smelt_gemm_transpose(const float *from, int64_t from_stride, int64_t rows, int64_t cols,
                                                         float *to, int64_t to_stride) {
  const int64_t rows4 = rows & ~(int64_t)3, cols4 = cols & ~(int64_t)3;
  for (int64_t c = 0; c < cols4; c += 4)
    for (int64_t r = 0; r < rows4; r += 4)
      smelt_gemm_transpose4(from + r * from_stride + c, from_stride, to + c * to_stride + r, to_stride);
  for (int64_t c = 0; c < cols; ++c)
    for (int64_t r = c < cols4 ? rows4 : 0; r < rows; ++r)
      to[c * to_stride + r] = from[r * from_stride + c];
}

/* Rows 0..m-1, columns 0..k-1 of a strided A into a row-major block with leading dimension ld. */
static __attribute__((unused)) void smelt_gemm_pack_a(const float *A, int64_t row_stride, int64_t col_stride, int64_t m,
                                                      int64_t k, float *block, int64_t ld) {
  if (col_stride == 1) {
    for (int64_t i = 0; i < m; ++i)
      __builtin_memcpy(block + i * ld, A + i * row_stride, (size_t)k * sizeof(float));
  } else if (row_stride == 1) {
    smelt_gemm_transpose(A, col_stride, k, m, block, ld);
  } else {
    for (int64_t i = 0; i < m; ++i)
      for (int64_t c = 0; c < k; ++c)
        block[i * ld + c] = A[i * row_stride + c * col_stride];
  }
}

#if defined(__AVX512F__)
typedef float smelt_gemm_turn __attribute__((vector_size(64), may_alias));
typedef float smelt_gemm_turn_u __attribute__((vector_size(64), aligned(4), may_alias));
#define SMELT_GEMM_LOW 0, 16, 1, 17, 4, 20, 5, 21, 8, 24, 9, 25, 12, 28, 13, 29
#define SMELT_GEMM_HIGH 2, 18, 3, 19, 6, 22, 7, 23, 10, 26, 11, 27, 14, 30, 15, 31
#define SMELT_GEMM_LOW2 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29
#define SMELT_GEMM_HIGH2 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31

/* Four floats from each of rows 0, 4, 8 and 12 as one vector. */
#define SMELT_GEMM_PAIR(F, S, R)                                                                                       \
  __builtin_shufflevector(*(const smelt_gemm_qu *)((F) + (R) * (S)), *(const smelt_gemm_qu *)((F) + ((R) + 4) * (S)), 0, 1, \
                          2, 3, 4, 5, 6, 7)
#define SMELT_GEMM_FOUR(F, S)                                                                                          \
  __builtin_shufflevector(SMELT_GEMM_PAIR(F, S, 0), SMELT_GEMM_PAIR(F, S, 8), 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, \
                          14, 15)

/* panel[k * 16 + j] = from[j * stride + k] for K steps, a multiple of 4, of 16 columns. */
static __attribute__((unused)) void smelt_gemm_turn_panel(const float *from, int64_t stride, int64_t K, float *panel) {
  for (int64_t k = 0; k < K; k += 4, panel += 64) {
    const float *at = from + k;
    const smelt_gemm_turn r0 = SMELT_GEMM_FOUR(at, stride), r1 = SMELT_GEMM_FOUR(at + stride, stride);
    const smelt_gemm_turn r2 = SMELT_GEMM_FOUR(at + 2 * stride, stride), r3 = SMELT_GEMM_FOUR(at + 3 * stride, stride);
    const smelt_gemm_turn a = __builtin_shufflevector(r0, r1, SMELT_GEMM_LOW);
    const smelt_gemm_turn b = __builtin_shufflevector(r0, r1, SMELT_GEMM_HIGH);
    const smelt_gemm_turn c = __builtin_shufflevector(r2, r3, SMELT_GEMM_LOW);
    const smelt_gemm_turn d = __builtin_shufflevector(r2, r3, SMELT_GEMM_HIGH);
    *(smelt_gemm_turn_u *)panel = __builtin_shufflevector(a, c, SMELT_GEMM_LOW2);
    *(smelt_gemm_turn_u *)(panel + 16) = __builtin_shufflevector(a, c, SMELT_GEMM_HIGH2);
    *(smelt_gemm_turn_u *)(panel + 32) = __builtin_shufflevector(b, d, SMELT_GEMM_LOW2);
    *(smelt_gemm_turn_u *)(panel + 48) = __builtin_shufflevector(b, d, SMELT_GEMM_HIGH2);
  }
}
#else
static __attribute__((unused)) void smelt_gemm_turn_panel(const float *from, int64_t stride, int64_t K, float *panel) {
  smelt_gemm_transpose(from, stride, 16, K, panel, 16);
}
#endif

/* One panel of `cols` (1..16) valid columns. */
static __attribute__((unused)) void smelt_gemm_pack_panel(const float *B, int64_t k_stride, int64_t n_stride, int64_t K,
                                                          int64_t cols, float *panel) {
  if (cols < 16)
    __builtin_memset(panel, 0, (size_t)K * 16 * sizeof(float));
  if (n_stride == 1 && cols == 16) {
    for (int64_t k = 0; k < K; ++k)
      __builtin_memcpy(panel + k * 16, B + k * k_stride, 16 * sizeof(float));
  } else if (k_stride == 1 && cols == 16) {
    const int64_t whole = K & ~(int64_t)3;
    smelt_gemm_turn_panel(B, n_stride, whole, panel);
    smelt_gemm_transpose(B + whole, n_stride, 16, K - whole, panel + whole * 16, 16);
  } else if (k_stride == 1) {
    smelt_gemm_transpose(B, n_stride, cols, K, panel, 16);
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
