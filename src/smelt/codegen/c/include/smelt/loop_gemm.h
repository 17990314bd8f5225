/* How a matrix product with an epilogue is cut into tasks.
 *
 * Input:     smelt_task, the product's sizes. Output: smelt_launch_gemm(), and the product itself as declared here.
 * Invariant: a task owns a block of rows and a range of panels: t->step rows, t->row_bytes panels, t->units row blocks;
 *            its block of the product lies on its stack, or in a slot when it is large. The product is compiled apart, once per level
 *            (gemm_unit.h), so that no kernel unit pays for its micro-kernels.
 */
#ifndef SMELT_LOOP_GEMM_H
#define SMELT_LOOP_GEMM_H

#include <smelt/loop.h>

#define SMELT_PRODUCT SMELT_NAME(smelt_product)
#define SMELT_PACK SMELT_NAME(smelt_pack)
#define SMELT_PRODUCT_SPLIT SMELT_NAME(smelt_product_split)

typedef struct {
  int64_t rows, panels, row_tasks, panel_tasks;
} smelt_split;

/* Rows 0..m-1 of the columns of panels p0..p1-1; see smelt_gemm_f32 in gemm.h. */
void SMELT_PRODUCT(const float *a, int64_t lda, const float *panels, int64_t depth, float *c, int64_t ldc, int64_t m,
                   int64_t p0, int64_t p1, int64_t n_valid);
smelt_split SMELT_PRODUCT_SPLIT(int64_t rows, int64_t columns, int64_t depth, int whole_rows);

/* Panels p0..p1-1 of a matrix whose element (k, n) is at from[k * k_step + n * n_step]. */
void SMELT_PACK(const float *from, int64_t k_step, int64_t n_step, int64_t depth, int64_t columns, float *panels,
                int64_t p0, int64_t p1);

/* Bytes of one task: its block of the product, then the row buffers of its epilogue. */
#define SMELT_SLOT(rows, panels, extra) ((((rows) * (panels) * 64 + 63) & ~(int64_t)63) + (((extra) + 63) & ~(int64_t)63))

/* Blocks of a batched product that its epilogue still finds in L1. */
enum { SMELT_BLOCK_FLOATS = 8192 };

/* `copies` products of the same sizes and left operand are computed by the same tasks. */
static inline __attribute__((unused)) int32_t smelt_launch_gemm(smelt_task *task, smelt_body body, int64_t batches,
                                                               int64_t rows, int64_t columns, int64_t depth,
                                                               int64_t extra, int whole_rows, int64_t copies) {
  if (batches <= 0 || rows <= 0 || columns <= 0) return SMELT_OK;
  smelt_env *env = task->env;
  smelt_split split = SMELT_PRODUCT_SPLIT(rows, columns, depth * copies, whole_rows);
  if (batches >= 4) {
    const int64_t fit = smelt_max(SMELT_BLOCK_FLOATS / columns, 12);
    split.panels = (columns + 15) / 16;
    split.rows = smelt_min(rows, fit);
    split.row_tasks = (rows + split.rows - 1) / split.rows;
    split.rows = (rows + split.row_tasks - 1) / split.row_tasks;
    split.panel_tasks = 1;
  }
  const int64_t slot = SMELT_SLOT(split.rows, split.panels * copies, extra);
  const int64_t tasks = batches * split.row_tasks * split.panel_tasks;
  task->rows = NULL;
  if (slot > 2 * SMELT_STACK_ROW && smelt_reserve(task, tasks, slot)) return env->code;
  task->units = split.row_tasks;
  task->step = split.rows;
  task->row_bytes = split.panels;
  return smelt_run(task, body, tasks);
}

#endif
