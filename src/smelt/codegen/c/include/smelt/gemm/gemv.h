/* f32 GEMV and small-M GEMM, C = A * B of up to four rows: B is read once, strided, without packing.
 *
 * Input:     A (m x K, rows lda apart, 1 <= m <= 4); B with element (k, n) at B[k * k_step + n * n_step], one
 *            of the steps being 1. Output: C (m x N, rows ldc apart), the product or, with `add`, what was there and
 *            the product. Nothing is read or written beyond.
 * Invariant: an element's bits depend on its row of A, its column of B and K alone.
 *
 * Packing pays when many rows read the panels. One row (a decoder's next token) is bound by memory: packing would read B, write
 * it and read it again.
 */
#ifndef SMELT_GEMV_H
#define SMELT_GEMV_H

#include <smelt/gemm/gemm_micro.h>
#include <smelt/gemm/gemm_pack.h>

typedef smelt_gemm_v smelt_gemv_v;
typedef smelt_gemm_vu smelt_gemv_vu;
typedef float smelt_gemv_q __attribute__((vector_size(16), may_alias));
#define SMELT_GEMV_L SMELT_GEMM_LANES

/* The sum of a vector's lanes, in four lanes. */
SMELT_GEMM_INLINE smelt_gemv_q smelt_gemv_fold(smelt_gemv_v x) {
#if SMELT_VL == 64
  typedef float smelt_gemv_half __attribute__((vector_size(32)));
  const smelt_gemv_half h = __builtin_shufflevector(x, x, 0, 1, 2, 3, 4, 5, 6, 7) +
                           __builtin_shufflevector(x, x, 8, 9, 10, 11, 12, 13, 14, 15);
  return __builtin_shufflevector(h, h, 0, 1, 2, 3) + __builtin_shufflevector(h, h, 4, 5, 6, 7);
#elif SMELT_VL == 32
  return __builtin_shufflevector(x, x, 0, 1, 2, 3) + __builtin_shufflevector(x, x, 4, 5, 6, 7);
#else
  return x;
#endif
}

/* Lane i is the sum of the lanes of the i-th vector. */
SMELT_GEMM_INLINE smelt_gemv_q smelt_gemv_sums(smelt_gemv_q a, smelt_gemv_q b, smelt_gemv_q c, smelt_gemv_q d) {
  const smelt_gemv_q ab = __builtin_shufflevector(a, b, 0, 4, 1, 5) + __builtin_shufflevector(a, b, 2, 6, 3, 7);
  const smelt_gemv_q cd = __builtin_shufflevector(c, d, 0, 4, 1, 5) + __builtin_shufflevector(c, d, 2, 6, 3, 7);
  return __builtin_shufflevector(ab, cd, 0, 1, 4, 5) + __builtin_shufflevector(ab, cd, 2, 3, 6, 7);
}

/* Rows or columns of B that are prefetched: they come from memory, and its pages are short. */
#ifndef SMELT_GEMV_AHEAD
#define SMELT_GEMV_AHEAD 16
#endif

/* gcc leaves loops of constant length alone at -O2, and the accumulators in memory. */
#define SMELT_GEMV_UNROLL _Pragma("GCC unroll 4")

/* `columns` (1 or 4) columns of B, each contiguous, times one row. */
SMELT_GEMM_INLINE void smelt_gemv_dots(const float *a, const float *b, int64_t n_step, int64_t K, float *c, int columns,
                                     int add) {
  smelt_gemv_v s[4] = {{0}, {0}, {0}, {0}};
  int64_t k = 0;
  for (; k + SMELT_GEMV_L <= K; k += SMELT_GEMV_L) {
    const smelt_gemv_v x = *(const smelt_gemv_vu *)(a + k);
    SMELT_GEMV_UNROLL
    for (int j = 0; j < columns; ++j) {
      __builtin_prefetch(b + (j + SMELT_GEMV_AHEAD) * n_step + k);
      s[j] += x * *(const smelt_gemv_vu *)(b + j * n_step + k);
    }
  }
  const smelt_gemv_q sums =
      smelt_gemv_sums(smelt_gemv_fold(s[0]), smelt_gemv_fold(s[1]), smelt_gemv_fold(s[2]), smelt_gemv_fold(s[3]));
  SMELT_GEMV_UNROLL
  for (int j = 0; j < columns; ++j) {
    float sum = sums[j];
    for (int64_t rest = k; rest < K; ++rest)
      sum += a[rest] * b[j * n_step + rest];
    c[j] = add ? c[j] + sum : sum;
  }
}

/* Columns of B are contiguous: dot products, four columns at a time for every row while they are in L1. */
static __attribute__((unused)) void smelt_gemv_columns(const float *A, int64_t lda, const float *B, int64_t n_step, int64_t K,
                                                      int64_t N, float *C, int64_t ldc, int64_t m, int add) {
  int64_t n = 0;
  for (; n + 4 <= N; n += 4)
    for (int64_t i = 0; i < m; ++i)
      smelt_gemv_dots(A + i * lda, B + n * n_step, n_step, K, C + i * ldc + n, 4, add);
  for (; n < N; ++n)
    for (int64_t i = 0; i < m; ++i)
      smelt_gemv_dots(A + i * lda, B + n * n_step, n_step, K, C + i * ldc + n, 1, add);
}

/* W vectors of R rows: B's rows are contiguous and pass by once. */
#define SMELT_GEMV_BLOCK(R, W)                                                                                          \
  SMELT_GEMM_INLINE void SMELT_MICRO(f32_gemv, R, W)(const float *a, int64_t lda, const float *b, int64_t k_step, int64_t K,     \
                                             float *c, int64_t ldc, int add) {                                         \
    smelt_gemv_v s[R][W];                                                                                               \
    SMELT_GEMV_UNROLL                                                                                                   \
    for (int i = 0; i < R; ++i)                                                                                        \
      SMELT_GEMV_UNROLL                                                                                                 \
      for (int j = 0; j < W; ++j)                                                                                      \
        s[i][j] = add ? (smelt_gemv_v) * (const smelt_gemv_vu *)(c + i * ldc + j * SMELT_GEMV_L) : (smelt_gemv_v){0};      \
    for (int64_t k = 0; k < K; ++k, b += k_step) {                                                                     \
      SMELT_GEMV_UNROLL                                                                                                 \
      for (int j = 0; j < W; ++j)                                                                                      \
        __builtin_prefetch(b + SMELT_GEMV_AHEAD * k_step + j * SMELT_GEMV_L);                                            \
      SMELT_GEMV_UNROLL                                                                                                 \
      for (int i = 0; i < R; ++i)                                                                                      \
        SMELT_GEMV_UNROLL                                                                                               \
        for (int j = 0; j < W; ++j)                                                                                    \
          s[i][j] += a[i * lda + k] * *(const smelt_gemv_vu *)(b + j * SMELT_GEMV_L);                                    \
    }                                                                                                                  \
    SMELT_GEMV_UNROLL                                                                                                   \
    for (int i = 0; i < R; ++i)                                                                                        \
      SMELT_GEMV_UNROLL                                                                                                 \
      for (int j = 0; j < W; ++j)                                                                                      \
        *(smelt_gemv_vu *)(c + i * ldc + j * SMELT_GEMV_L) = s[i][j];                                                    \
  }
SMELT_GEMV_BLOCK(1, 4)
SMELT_GEMV_BLOCK(2, 4)
SMELT_GEMV_BLOCK(3, 2)
SMELT_GEMV_BLOCK(4, 2)
SMELT_GEMV_BLOCK(1, 1)
SMELT_GEMV_BLOCK(2, 1)
SMELT_GEMV_BLOCK(3, 1)
SMELT_GEMV_BLOCK(4, 1)

SMELT_GEMM_INLINE void smelt_gemv_wide(const float *a, int64_t lda, const float *b, int64_t k_step, int64_t K, float *c,
                                      int64_t ldc, int64_t m, int add) {
  if (m == 1) SMELT_MICRO(f32_gemv, 1, 4)(a, lda, b, k_step, K, c, ldc, add);
  else if (m == 2) SMELT_MICRO(f32_gemv, 2, 4)(a, lda, b, k_step, K, c, ldc, add);
  else if (m == 3) SMELT_MICRO(f32_gemv, 3, 2)(a, lda, b, k_step, K, c, ldc, add);
  else SMELT_MICRO(f32_gemv, 4, 2)(a, lda, b, k_step, K, c, ldc, add);
}

SMELT_GEMM_INLINE void smelt_gemv_narrow(const float *a, int64_t lda, const float *b, int64_t k_step, int64_t K, float *c,
                                        int64_t ldc, int64_t m, int add) {
  if (m == 1) SMELT_MICRO(f32_gemv, 1, 1)(a, lda, b, k_step, K, c, ldc, add);
  else if (m == 2) SMELT_MICRO(f32_gemv, 2, 1)(a, lda, b, k_step, K, c, ldc, add);
  else if (m == 3) SMELT_MICRO(f32_gemv, 3, 1)(a, lda, b, k_step, K, c, ldc, add);
  else SMELT_MICRO(f32_gemv, 4, 1)(a, lda, b, k_step, K, c, ldc, add);
}

/* Rows of B are contiguous: sums of them. */
static __attribute__((unused)) void smelt_gemv_rows(const float *A, int64_t lda, const float *B, int64_t k_step, int64_t K,
                                                   int64_t N, float *C, int64_t ldc, int64_t m, int add) {
  const int64_t wide = (m <= 2 ? 4 : 2) * SMELT_GEMV_L;
  int64_t n = 0;
  for (; n + wide <= N; n += wide)
    smelt_gemv_wide(A, lda, B + n, k_step, K, C + n, ldc, m, add);
  for (; n + SMELT_GEMV_L <= N; n += SMELT_GEMV_L)
    smelt_gemv_narrow(A, lda, B + n, k_step, K, C + n, ldc, m, add);
  for (; n < N; ++n)
    for (int64_t i = 0; i < m; ++i) {
      float sum = add ? C[i * ldc + n] : 0;
      for (int64_t k = 0; k < K; ++k)
        sum += A[i * lda + k] * B[k * k_step + n];
      C[i * ldc + n] = sum;
    }
}

#endif
