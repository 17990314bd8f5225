/* Exports the static functions of gemm.h and gemm_unpacked.h for the tests; with PROBE_MAIN, a program that runs one case from stdin. */
#include "smelt/gemm/gemm_unpacked.h"

#define EXPORT __attribute__((visibility("default")))

EXPORT void probe_gemm(const float *A, int64_t row_stride, int64_t col_stride, const float *Bp, int64_t K, float *C,
                       int64_t ldc, int64_t m, int64_t p0, int64_t p1, int64_t n_valid, float *workspace) {
  if (col_stride == 1)
    smelt_gemm_f32(A, row_stride, Bp, K, C, ldc, m, p0, p1, n_valid, workspace);
  else
    smelt_gemm_f32_strided(A, row_stride, col_stride, Bp, K, C, ldc, m, p0, p1, n_valid, workspace);
}

EXPORT void probe_parts(const float *A, const float *Bp, int64_t K, float *C, int64_t m, int64_t N) {
  const int64_t terms = smelt_gemm_k_block(K);
  for (int64_t from = 0; from == 0 || from < K; from += terms)
    smelt_gemm_f32_k_block(A, K, Bp, K, from, terms, C, N, m, 0, (N + 15) / 16, N);
}
EXPORT int64_t probe_part(int64_t K) { return smelt_gemm_k_block(K); }

EXPORT void probe_unpacked(const float *A, int64_t row_stride, int64_t col_stride, const float *B, int64_t k_step, int64_t n_step,
                        int64_t K, float *C, int64_t ldc, int64_t m, int64_t p0, int64_t p1, int64_t columns) {
  smelt_gemm_f32_unpacked(A, row_stride, col_stride, B, k_step, n_step, K, C, ldc, m, p0, p1, columns);
}

EXPORT void probe_unpacked_plan(int64_t M, int64_t N, int64_t K, int64_t *plan) {
  const smelt_gemm_tasks t = smelt_gemm_unpacked_plan(M, N, K);
  plan[0] = t.rows, plan[1] = t.panels, plan[2] = t.row_tasks, plan[3] = t.panel_tasks;
}

EXPORT void probe_pack_b(const float *B, int64_t k_stride, int64_t n_stride, int64_t K, int64_t N, float *Bp, int64_t p0,
                         int64_t p1) {
  smelt_gemm_f32_pack_b(B, k_stride, n_stride, K, N, Bp, p0, p1);
}

EXPORT int64_t probe_workspace(int64_t m) { return SMELT_GEMM_WORKSPACE(m); }
EXPORT int64_t probe_micro_rows(void) { return SMELT_GEMM_MR; }

EXPORT void probe_plan(int64_t M, int64_t N, int64_t K, int64_t threads, int64_t whole_rows, int64_t *plan) {
  const smelt_gemm_tasks t = smelt_gemm_plan(M, N, K, threads, (int)whole_rows);
  plan[0] = t.rows, plan[1] = t.panels, plan[2] = t.row_tasks, plan[3] = t.panel_tasks;
}

#ifdef PROBE_MAIN
#include <stdio.h>
#include <stdlib.h>

/* stdin: records of int64 m, N, K, then A (m x K), packed B; until end of file. stdout: C (m x N) of each. */
int main(void) {
  int64_t head[3];
  while (fread(head, sizeof head, 1, stdin) == 1) {
    const int64_t m = head[0], N = head[1], K = head[2], packed = smelt_gemm_packed_floats(K, N);
    float *A = malloc((size_t)(m * K + 1) * 4), *Bp = malloc((size_t)(packed + 1) * 4), *C = malloc((size_t)(m * N) * 4);
    float *workspace = malloc((size_t)SMELT_GEMM_WORKSPACE(m) * 4);
    if (fread(A, 4, (size_t)(m * K), stdin) != (size_t)(m * K) || fread(Bp, 4, (size_t)packed, stdin) != (size_t)packed)
      return 1;
    smelt_gemm_f32(A, K, Bp, K, C, N, m, 0, (N + 15) / 16, N, workspace);
    fwrite(C, 4, (size_t)(m * N), stdout);
    free(A), free(Bp), free(C), free(workspace);
  }
  return 0;
}
#endif
