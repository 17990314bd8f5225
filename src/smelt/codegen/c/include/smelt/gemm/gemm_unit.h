/* The matrix product as a unit of its own: the functions that loop_gemm.h declares.
 *
 * Input:     gemm_unpacked.h, gemv.h, nontemporal.h. Output: what loop_gemm.h declares, for the level it is compiled for.
 * Invariant: its text never depends on a model, so its object is compiled once and found in the cache ever after.
 */
#ifndef SMELT_GEMM_UNIT_H
#define SMELT_GEMM_UNIT_H

#define SMELT_TILES_LINKED
#include <smelt/gemm/gemv.h>
#include <smelt/gemm/gemm_epilogue.h>
#include <smelt/gemm/gemm_unpacked.h>
#include <smelt/gemm/loop_gemm.h>
#include <smelt/gemm/nontemporal.h>

void SMELT_PRODUCT(const float *a, int64_t lda, const float *panels, int64_t depth, float *c, int64_t ldc, int64_t m,
                   int64_t p0, int64_t p1, int64_t n_valid) {
  smelt_gemm_f32(a, lda, panels, depth, c, ldc, m, p0, p1, n_valid, NULL);
}

void SMELT_PRODUCT_WITHIN(const float *a, int64_t lda, const float *panels, int64_t whole, int64_t depth, float *c,
                          int64_t ldc, int64_t m, int64_t p0, int64_t p1, int64_t n_valid) {
  smelt_gemm_f32_within(a, lda, 1, panels, whole, depth, c, ldc, m, p0, p1, n_valid, NULL);
}

void SMELT_PRODUCT_K_BLOCK(const float *a, int64_t lda, const float *panels, int64_t depth, int64_t from, int64_t terms,
                        float *c, int64_t ldc, int64_t m, int64_t p0, int64_t p1, int64_t n_valid) {
  smelt_gemm_f32_k_block(a, lda, panels, depth, from, terms, c, ldc, m, p0, p1, n_valid);
}

int64_t SMELT_K_BLOCK_OF(int64_t rows, int64_t depth) {
  return (double)rows * (double)depth * sizeof(float) > SMELT_NEAR_ROWS ? smelt_gemm_k_block(depth) : depth;
}

void SMELT_PRODUCT_PREFETCH(const float *a, int64_t lda, const float *panels, int64_t depth, float *c, int64_t ldc, int64_t m,
                          int64_t p0, int64_t p1, int64_t n_valid, smelt_panels next) {
  smelt_gemm_f32_prefetch(a, lda, panels, depth, c, ldc, m, p0, p1, n_valid, next.at, next.stride);
}

void SMELT_PRODUCT_EPILOGUE(const float *a, int64_t lda, const float *panels, int64_t depth, float *block, int64_t ld,
                            int64_t m, int64_t p0, int64_t p1, const smelt_epilogue *epilogue, smelt_panels next) {
  smelt_gemm_f32_epilogue(a, lda, panels, depth, block, ld, m, p0, p1, epilogue, next.at, next.stride);
}

void SMELT_PRODUCT_UNPACKED(const float *a, int64_t row_step, int64_t col_step, const float *b, int64_t k_step,
                         int64_t n_step, int64_t depth, float *c, int64_t ldc, int64_t m, int64_t p0, int64_t p1,
                         int64_t columns) {
  smelt_gemm_f32_unpacked(a, row_step, col_step, b, k_step, n_step, depth, c, ldc, m, p0, p1, columns);
}

int SMELT_MODEST(const float *x, int64_t count) {
  typedef int32_t flags __attribute__((vector_size(SMELT_VL)));
  const float most = 1e12f;
  flags large = {0};
  int64_t i = 0;
  for (; i + SMELT_GEMM_LANES <= count; i += SMELT_GEMM_LANES) {
    const smelt_gemm_v e = *(const smelt_gemm_vu *)(x + i);
    large |= ~((e <= most) & (e >= -most));
  }
  int found = 0;
  for (int j = 0; j < SMELT_GEMM_LANES; ++j)
    found |= large[j] != 0;
  for (; i < count; ++i)
    found |= !(x[i] <= most && x[i] >= -most);
  return !found;
}

smelt_split SMELT_PRODUCT_SPLIT(int64_t rows, int64_t columns, int64_t depth, int whole_rows) {
  const smelt_gemm_tasks plan = smelt_gemm_plan(rows, columns, depth, 0, whole_rows);
  return (smelt_split){plan.rows, plan.panels, plan.row_tasks, plan.panel_tasks};
}

smelt_split SMELT_UNPACKED_SPLIT(int64_t rows, int64_t columns, int64_t depth) {
  const smelt_gemm_tasks plan = smelt_gemm_unpacked_plan(rows, columns, depth);
  return (smelt_split){plan.rows, plan.panels, plan.row_tasks, plan.panel_tasks};
}

void SMELT_PACK(const float *from, int64_t k_step, int64_t n_step, int64_t depth, int64_t columns, float *panels,
                int64_t p0, int64_t p1) {
  smelt_gemm_f32_pack_b(from, k_step, n_step, depth, columns, panels, p0, p1);
}

void SMELT_GEMV(const float *a, int64_t lda, const float *b, int64_t k_step, int64_t n_step, int64_t depth, int64_t columns,
               float *c, int64_t ldc, int64_t m, int add) {
  if (k_step == 1) smelt_gemv_columns(a, lda, b, n_step, depth, columns, c, ldc, m, add);
  else smelt_gemv_rows(a, lda, b, k_step, depth, columns, c, ldc, m, add);
}

void SMELT_MOVE(float *to, int64_t to_step, const float *from, int64_t from_step, int64_t rows, int64_t width) {
  smelt_nt_rows(to, to_step, from, from_step, rows, width);
}

#endif
