/* Back-to-back GEMM launches as a unit of its own: how two GEMMs in one task (attention, fused MLP) are cut into tasks, and where a
 * task's rows are.
 *
 * Input:     smelt_b2b_task, the sizes of both products. Output: smelt_launch_b2b_gemm(), smelt_launch_b2b_online_softmax(),
 *            smelt_launch_gemm_mlp() of the level it is compiled for.
 * Invariant: its text never depends on a model. A task owns a block of rows of one batch index, or of a group of them. What it needs
 *            for itself lies on the stack when it is small, else in a slot that it claims.
 */
#ifndef SMELT_LAUNCH_B2B_GEMM_UNIT_H
#define SMELT_LAUNCH_B2B_GEMM_UNIT_H

#include <smelt/attention/loop_b2b_gemm.h>

enum {
  SMELT_B2B_STACK = 98304 /* bytes of a task's block that go on the stack */
};
/* Measured over 128 to 2048 columns: few rows read the right operands too often, many leave L1 and then L2. */
#define SMELT_B2B_ROWS 28 /* of a block that does not stay in L1 */
#define SMELT_B2B_FLOATS smelt_sizes.b2b_floats
#define SMELT_B2B_MOST smelt_sizes.b2b_most
#define SMELT_B2B_TEAM smelt_sizes.b2b_team
enum {
  SMELT_B2B_LEAST = 6,      /* rows in any case */
  SMELT_B2B_GEMV_ROWS = 4         /* rows that read their right operands unpacked (GEMV) */
};

/* Columns from which on a task makes its rows of weights block by block, and the size of a block: then it can take many
 * rows at once however long they are, and reads its right operands as many times less. */
#define SMELT_B2B_LONG 2048
#define SMELT_B2B_SPAN 512
#define SMELT_B2B_LONG_ROWS 84

/* Rows of one task: as many as keep the block in cache, in equal parts. `chosen` by tuning, or 0. */
static int64_t smelt_b2b_rows(int64_t rows, int64_t columns, int64_t chosen) {
  const int64_t usual = chosen ? chosen : SMELT_B2B_ROWS;
  const int64_t in_l2 = smelt_max(smelt_min(usual, SMELT_B2B_MOST / columns), SMELT_B2B_LEAST);
  const int64_t most = smelt_max(SMELT_B2B_FLOATS / columns, in_l2);
  const int64_t parts = (rows + most - 1) / most;
  return (rows + parts - 1) / parts;
}

/* Rows of one task whose weights are made block by block: many, as long as there are tasks for all threads. */
static int64_t smelt_b2b_long_rows(int64_t batches, int64_t rows, int64_t chosen) {
  const int64_t shared = (int64_t)((double)batches * (double)rows / (double)SMELT_B2B_TEAM);
  const int64_t usual = smelt_min(smelt_max(shared, SMELT_B2B_ROWS), SMELT_B2B_LONG_ROWS);
  const int64_t most = chosen ? chosen : usual, parts = (rows + most - 1) / most;
  return (rows + parts - 1) / parts;
}

/* Rows of one task for more than two threads, of `batches` products. */
static int64_t smelt_b2b_even_rows(const smelt_b2b_task *task, int64_t batches, int64_t rows,
                                                                   int64_t columns, int64_t step) {
  if (task->env->processors <= 2 || rows <= SMELT_B2B_GEMV_ROWS || task->cut.attention_rows || task->work->collecting == SMELT_ROW_FUSED)
    return step;
  const smelt_overheads o = {SMELT_GEMM_TILE_ROWS, 0, SMELT_GEMM_FETCH, SMELT_START / 64 / (double)smelt_max(columns, 1)};
  const smelt_extent all = {rows, batches}, one = {step, 1}, least = {SMELT_B2B_LEAST, 1};
  return smelt_cut_evenly(all, one, least, o, task->env->processors).rows;
}

/* Tasks of block_rows rows and block_bytes each. */
static int32_t smelt_run_b2b_gemm(smelt_b2b_task *task, smelt_body body, int64_t batches,
                                                             int64_t rows, int64_t group) {
  smelt_env *env = task->env;
  int bad = 0;
  task->row_blocks = (rows + task->block_rows - 1) / task->block_rows;
  task->block_bytes = (smelt_size_add(task->block_bytes, 127, &bad)) & ~(int64_t)63;
  task->group = rows <= SMELT_B2B_GEMV_ROWS && group > 1 ? group : 1;
  const int64_t tasks = smelt_size_mul(batches / task->group, task->row_blocks, &bad);
  if (bad) return smelt_fail(env, SMELT_E_OVERFLOW, -1, 0, 0, 0);
  task->memory = NULL;
  if (task->block_bytes > SMELT_B2B_STACK && smelt_reserve(task, tasks, task->block_bytes)) return env->code;
  return smelt_run(task, body, tasks);
}

/* In a row-block fusion, blocks of rows of `middle` batch indices each are cut as those are; 0: rows do not lie so. */
static void smelt_b2b_row_blocks(smelt_b2b_task *task, int64_t batches, int64_t rows,
                                                               int64_t middle) {
  if (task->work->collecting != SMELT_ROW_FUSED || middle <= 0) return;
  const int64_t all = batches / middle * rows, tall = smelt_row_affine_block(&task->head, all), tasks = (tall + task->block_rows - 1) / task->block_rows;
  if (rows % tall || tall % tasks) return;
  task->block_rows = tall / tasks;
  task->blocks = (smelt_blocks){tall, all / tall, rows / tall, middle, tasks};
}

/* `columns` of the first product, `wide` floats of all blocks together per row, `extra` bytes of row buffers. `group`
 * neighbouring batch indices read the same right operands: where those are read unpacked, one task takes them all. */
int32_t smelt_launch_b2b_gemm(smelt_b2b_task *task, smelt_body body, int64_t batches, int64_t rows, int64_t columns, int64_t wide,
                              int64_t extra, int64_t group, int64_t middle) {
  if (batches <= 0 || rows <= 0) return SMELT_OK;
  smelt_env *env = task->env;
  int bad = 0;
  task->block_rows = smelt_b2b_rows(rows, columns > 0 ? columns : 1, task->cut.attention_rows);
  task->block_rows = smelt_b2b_even_rows(task, batches, rows, columns, task->block_rows);
  smelt_b2b_row_blocks(task, batches, rows, middle);
  task->block_bytes = smelt_size_add(smelt_size_mul(smelt_size_mul(task->block_rows, wide, &bad), 4, &bad), extra, &bad);
  if (bad) return smelt_fail(env, SMELT_E_OVERFLOW, -1, 0, 0, 0);
  return smelt_run_b2b_gemm(task, body, batches, rows, group);
}

/* Rows of one task of two products with constant panels. The first task waits for panels from memory, and fewer rows would not
 * cover that; where there are many rows, there are tasks for all threads, an even number of them. Fewer rows than that are two
 * tasks all the same. */
enum { SMELT_MLP_LEAST = 64, SMELT_MLP_MOST = 96 };

/* `wide` floats of all blocks together per row, `extra` bytes of row buffers. */
int32_t smelt_launch_gemm_mlp(smelt_b2b_task *task, smelt_body body, int64_t rows, int64_t wide, int64_t extra) {
  if (rows <= 0) return SMELT_OK;
  int bad = 0;
  const int64_t threads = task->env->processors, shared = (rows / smelt_max(threads, 1) + 15) / 16 * 16;
  const int64_t enough = threads > 2 ? smelt_min(smelt_max(shared, 16), SMELT_MLP_LEAST) : SMELT_MLP_LEAST;
  const int64_t many = smelt_min(smelt_max(rows / SMELT_B2B_TEAM, enough), SMELT_MLP_MOST);
  const int row_fused = task->work->collecting == SMELT_ROW_FUSED;
  const int64_t usual = row_fused ? smelt_row_affine_block(&task->head, rows) : smelt_min(many, rows > 16 ? (rows + 1) / 2 : rows);
  const int64_t most = task->cut.task_rows ? task->cut.task_rows : usual, least = (rows + most - 1) / most;
  const int64_t parts = row_fused || task->cut.task_rows || least < 8 ? least : least + least % 2;
  task->block_rows = (rows + parts - 1) / parts;
  task->block_bytes = smelt_size_add(smelt_size_mul(smelt_size_mul(task->block_rows, wide, &bad), 4, &bad), extra, &bad);
  if (bad) return smelt_fail(task->env, SMELT_E_OVERFLOW, -1, 0, 0, 0);
  task->blocks = smelt_blocks_of(rows, task->block_rows, 1);
  return smelt_run_b2b_gemm(task, body, 1, rows, 1);
}

/* The same where weights may be made block by block: t->span columns at a time. `beside` floats a row and `extra` bytes
 * beside the weights, `buffers` rows of as many columns. GEMVs read their operands unpacked, whole. */
int32_t smelt_launch_b2b_online_softmax(smelt_b2b_task *task, smelt_body body, int64_t batches, int64_t rows, int64_t columns,
                                        int64_t beside, int64_t buffers, int64_t extra, int64_t group, int64_t middle) {
  if (batches <= 0 || rows <= 0) return SMELT_OK;
  int bad = 0;
  const int64_t wide = (smelt_size_add(columns, 15, &bad)) & ~(int64_t)15, chosen = task->cut.attention_span;
  const int blocks = rows > SMELT_B2B_GEMV_ROWS && (chosen ? wide > chosen : columns > SMELT_B2B_LONG);
  task->span = blocks ? (chosen ? chosen : SMELT_B2B_SPAN) : smelt_max(wide, 16);
  task->block_rows = blocks ? smelt_b2b_long_rows(batches, rows, task->cut.attention_rows)
                      : smelt_b2b_rows(rows, columns > 0 ? columns : 1, task->cut.attention_rows);
  task->block_rows = smelt_b2b_even_rows(task, batches, rows, columns, task->block_rows);
  smelt_b2b_row_blocks(task, batches, rows, middle);
  const int64_t weights = smelt_size_mul(task->block_rows, smelt_size_add(task->span, beside, &bad), &bad);
  const int64_t buffered = smelt_size_mul(buffers, smelt_size_add(task->span, 16, &bad), &bad);
  const int64_t bytes = smelt_size_mul(smelt_size_add(weights, buffered, &bad), 4, &bad);
  task->block_bytes = smelt_size_add(bytes, extra, &bad);
  if (bad) return smelt_fail(task->env, SMELT_E_OVERFLOW, -1, 0, 0, 0);
  return smelt_run_b2b_gemm(task, body, batches, rows, group);
}

#endif
