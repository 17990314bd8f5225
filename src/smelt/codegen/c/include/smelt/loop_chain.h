/* How two products in one task are cut into tasks, and where a task's rows lie.
 *
 * Input:     smelt_task, the sizes of both products. Output: smelt_launch_chain().
 * Invariant: a task owns t->step rows of one batch index; t->units is the number of row blocks. Its block, t->row_bytes
 *            long, lies on the stack when it is small, else in a slot that it claims.
 */
#ifndef SMELT_LOOP_CHAIN_H
#define SMELT_LOOP_CHAIN_H

#include <smelt/loop_gemm.h>

enum {
  SMELT_CHAIN_STACK = 98304 /* bytes of a task's block that go on the stack */
};
#ifndef SMELT_CHAIN_FLOATS
#define SMELT_CHAIN_FLOATS 8192 /* of a block of rows that two products and what is between them pass over */
#endif
#ifndef SMELT_CHAIN_ROWS
#define SMELT_CHAIN_ROWS 14     /* rows below which the right operands would be read too often */
#endif

/* Rows of one task: as many as keep the block in cache, in equal parts. */
static inline __attribute__((unused)) int64_t smelt_chain_rows(int64_t rows, int64_t columns) {
  const int64_t most = smelt_max(SMELT_CHAIN_FLOATS / columns, SMELT_CHAIN_ROWS);
  const int64_t parts = (rows + most - 1) / most;
  return (rows + parts - 1) / parts;
}

/* `columns` of the first product, `wide` floats of all blocks together per row, `extra` bytes of row buffers. */
static inline __attribute__((unused)) int32_t smelt_launch_chain(smelt_task *task, smelt_body body, int64_t batches,
                                                                int64_t rows, int64_t columns, int64_t wide,
                                                                int64_t extra) {
  if (batches <= 0 || rows <= 0) return SMELT_OK;
  smelt_env *env = task->env;
  int bad = 0;
  task->step = smelt_chain_rows(rows, columns > 0 ? columns : 1);
  task->units = (rows + task->step - 1) / task->step;
  task->row_bytes = (smelt_size_add(smelt_size_mul(smelt_size_mul(task->step, wide, &bad), 4, &bad), extra, &bad) + 127)
                    & ~(int64_t)63;
  const int64_t tasks = smelt_size_mul(batches, task->units, &bad);
  if (bad) return smelt_fail(env, SMELT_E_OVERFLOW, -1, 0, 0, 0);
  task->rows = NULL;
  if (task->row_bytes > SMELT_CHAIN_STACK && smelt_reserve(task, tasks, task->row_bytes)) return env->code;
  return smelt_run(task, body, tasks);
}

#endif
