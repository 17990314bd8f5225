/* How a matrix product with an epilogue is cut into tasks.
 *
 * Input:     smelt_task, the product's sizes. Output: smelt_launch_gemm().
 * Invariant: a task owns a block of rows and a range of panels: t->step rows, t->row_bytes panels, t->units row blocks;
 *            its block of the product lies in its own slot of t->rows.
 */
#ifndef SMELT_LOOP_GEMM_H
#define SMELT_LOOP_GEMM_H

#include <smelt/gemm.h>
#include <smelt/loop.h>

static inline __attribute__((unused)) int32_t smelt_launch_gemm(smelt_task *task, smelt_body body, int64_t rows,
                                                               int64_t columns, int64_t depth, int whole_rows) {
  if (rows <= 0 || columns <= 0) return SMELT_OK;
  smelt_env *env = task->env;
  const smelt_gemm_tasks plan = smelt_gemm_plan(rows, columns, depth, 0, whole_rows);
  const int64_t slot = (plan.rows * plan.panels * SMELT_GEMM_PANEL * 4 + 63) & ~(int64_t)63;
  const int64_t tasks = plan.row_tasks * plan.panel_tasks;
  int bad = 0;
  const int64_t bytes = smelt_size_mul(slot, tasks, &bad);
  task->rows = bad ? NULL : (char *)env->scratch(env, bytes);
  if (!task->rows) return smelt_fail(env, SMELT_E_MEMORY, -1, bytes, 0, 0);
  task->units = plan.row_tasks;
  task->step = plan.rows;
  task->row_bytes = plan.panels;
  if (tasks == 1) body(task, 0);
  else env->parallel(env, tasks, body, task);
  return env->code;
}

#endif
