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
/* Measured over 128 to 2048 columns: few rows read the right operands too often, many leave L1 and then L2. Longer rows
 * cost the same per element, so that there is no second algorithm for them. */
#ifndef SMELT_CHAIN_ROWS
#define SMELT_CHAIN_ROWS 28 /* of a block that does not stay in L1 */
#endif
enum {
  SMELT_CHAIN_FLOATS = 8192,  /* of a block that stays in L1 */
  SMELT_CHAIN_MOST = 131072,  /* floats of a block of so many rows, which then stays in L2 */
  SMELT_CHAIN_LEAST = 6,      /* rows in any case */
  SMELT_CHAIN_FEW = 4         /* rows that read their right operands where they lie */
};

/* Rows of one task: as many as keep the block in cache, in equal parts. */
static inline __attribute__((unused)) int64_t smelt_chain_rows(int64_t rows, int64_t columns) {
  const int64_t in_l2 = smelt_max(smelt_min(SMELT_CHAIN_ROWS, SMELT_CHAIN_MOST / columns), SMELT_CHAIN_LEAST);
  const int64_t most = smelt_max(SMELT_CHAIN_FLOATS / columns, in_l2);
  const int64_t parts = (rows + most - 1) / most;
  return (rows + parts - 1) / parts;
}

/* `columns` of the first product, `wide` floats of all blocks together per row, `extra` bytes of row buffers. `group`
 * neighbouring batch indices read the same right operands: where those are read as they lie, one task takes them all. */
static inline __attribute__((unused)) int32_t smelt_launch_chain(smelt_task *task, smelt_body body, int64_t batches,
                                                                int64_t rows, int64_t columns, int64_t wide,
                                                                int64_t extra, int64_t group) {
  if (batches <= 0 || rows <= 0) return SMELT_OK;
  smelt_env *env = task->env;
  int bad = 0;
  task->step = smelt_chain_rows(rows, columns > 0 ? columns : 1);
  task->units = (rows + task->step - 1) / task->step;
  task->row_bytes = (smelt_size_add(smelt_size_mul(smelt_size_mul(task->step, wide, &bad), 4, &bad), extra, &bad) + 127)
                    & ~(int64_t)63;
  task->group = rows <= SMELT_CHAIN_FEW && group > 1 ? group : 1;
  const int64_t tasks = smelt_size_mul(batches / task->group, task->units, &bad);
  if (bad) return smelt_fail(env, SMELT_E_OVERFLOW, -1, 0, 0, 0);
  task->rows = NULL;
  if (task->row_bytes > SMELT_CHAIN_STACK && smelt_reserve(task, tasks, task->row_bytes)) return env->code;
  return smelt_run(task, body, tasks);
}

#endif
