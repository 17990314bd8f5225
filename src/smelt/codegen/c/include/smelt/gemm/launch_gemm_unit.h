/* GEMM launches as a unit of its own: how a product with an epilogue is cut into tasks (row-affine, B-streaming and column
 * schedules).
 *
 * Input:     smelt_gemm_task, the product's sizes. Output: smelt_launch_gemm() of the level it is compiled for.
 * Invariant: its text never depends on a model. A task owns a block of rows and a range of panels; its block of the product lies on
 *            its stack, or in a slot when it is large.
 */
#ifndef SMELT_LAUNCH_GEMM_UNIT_H
#define SMELT_LAUNCH_GEMM_UNIT_H

#include <smelt/gemm/loop_gemm.h>

/* Bytes of panels that stay in L2 while blocks of rows pass by: above, each block would fetch them again. */
#define SMELT_NEAR_PANELS smelt_sizes.near_panels
/* Rows from which on blocks of rows are tall enough, and many enough for any number of threads. */
enum { SMELT_TALL = 2048 };

/* Whether an epilogue that needs whole rows is better run after the whole product: a product that is cut by columns
 * reads its panels once, and a few rows still keep all threads busy. */
SMELT_INLINE int smelt_product_apart(int64_t rows, int64_t columns, int64_t depth, int32_t chosen) {
  if (chosen) return chosen == SMELT_AFTERWARDS;
  return rows < SMELT_TALL && (double)columns * (double)depth * sizeof(float) > SMELT_NEAR_PANELS;
}

/* The split for more than two threads: blocks of rows where groups of panels are too few. */
SMELT_INLINE smelt_split smelt_split_evenly(const smelt_head *task, smelt_split split, int64_t rows, int64_t columns, int64_t depth,
                                            int whole_rows) {
  if (task->env->processors <= 2) return split;
  const int64_t panels = (columns + 15) / 16;
  const smelt_extent least = {SMELT_GEMM_LEAST_ROWS, whole_rows ? panels : smelt_min(panels, SMELT_GEMM_TILE_PANELS)};
  const smelt_overheads o = {SMELT_GEMM_TILE_ROWS, 0, SMELT_GEMM_FETCH, SMELT_START / 16 / (double)smelt_max(depth, 1)};
  const smelt_extent cut = smelt_cut_evenly((smelt_extent){rows, panels}, (smelt_extent){split.rows, split.panels}, least, o,
                                            task->env->processors);
  return (smelt_split){cut.rows, cut.units, (rows + cut.rows - 1) / cut.rows, (panels + cut.units - 1) / cut.units};
}

/* The split that the product suggests, or, of many rows, blocks of as many as tuning chose. Few rows read the right operand
 * once, wherever it lies. */
SMELT_INLINE smelt_split smelt_split_of(const smelt_head *task, int64_t rows, int64_t columns, int64_t depth,
                                        int whole_rows, int unpacked) {
  smelt_split split = unpacked && rows > 4 ? SMELT_UNPACKED_SPLIT(rows, columns, depth)
                                        : SMELT_PRODUCT_SPLIT(rows, columns, depth, whole_rows);
  if (!task->cut.task_rows && rows > 4 && !unpacked) return smelt_split_evenly(task, split, rows, columns, depth, whole_rows);
  if (!task->cut.task_rows || rows <= task->cut.task_rows) return split;
  const int64_t row_tasks = (rows + task->cut.task_rows - 1) / task->cut.task_rows;
  split.rows = (rows + row_tasks - 1) / row_tasks;
  split.row_tasks = (rows + split.rows - 1) / split.rows;
  return split;
}

/* Row-affine schedule: products whose panels stay in L2 with room to spare. Their rows are cut into an even number of blocks,
 * as those of two small layers are (launch_b2b_gemm_unit.h), and the tasks of a block follow each other: a thread goes on with the
 * rows that it has made itself. Cut by columns alone, it would fetch half of its left operand from another core's cache. Fewer
 * rows would not cover the wait for panels from memory; more than that leave the caches anyway. */
#define SMELT_ROW_AFFINE_BYTES smelt_sizes.row_affine_bytes

SMELT_INLINE int smelt_row_affine(const smelt_head *task, int64_t rows, int64_t columns, int64_t depth, int how) {
  const double bytes = (double)columns * (double)depth * sizeof(float);
  const int64_t least = task->work->collecting == SMELT_ROW_FUSED ? SMELT_ROW_FUSED_LEAST : SMELT_ROW_AFFINE_LEAST;
  return (how == SMELT_ANY_COLUMNS || how == SMELT_NO_BLOCK) && rows >= least && rows <= SMELT_ROW_AFFINE_MOST &&
         bytes <= SMELT_ROW_AFFINE_BYTES && !task->cut.task_rows;
}

/* Panels of a task, in whole tiles of four, of which there are to be `tasks` for each block of rows. */
SMELT_INLINE int64_t smelt_row_affine_panels(int64_t panels, int64_t tasks) {
  return smelt_min(panels, ((panels + tasks - 1) / tasks + 3) / 4 * 4);
}

/* Pairs of blocks of rows by halves of the columns. More than two threads share the columns of a block; where these are too few,
 * blocks are lower too. */
SMELT_INLINE smelt_split smelt_row_affine_split(const smelt_head *task, int64_t rows, int64_t columns) {
  const int64_t panels = (columns + 15) / 16, threads = task->env->processors;
  int64_t tall = smelt_row_affine_block(task, rows), wide = smelt_row_affine_panels(panels, 2);
  if (threads > 2 && task->work->collecting != SMELT_ROW_FUSED) {
    const int64_t most = (panels + 3) / 4, blocks = (rows + tall - 1) / tall;
    if (blocks * most < threads) tall = smelt_max((rows * most / threads + 15) / 16 * 16, 16);
    wide = smelt_row_affine_panels(panels, smelt_max((2 * threads + blocks - 1) / blocks, 2));
  }
  return (smelt_split){tall, wide, (rows + tall - 1) / tall, (panels + wide - 1) / wide};
}

/* B-streaming schedule: panels that do not stay in L2 stream past, for enough rows at a time to cover the wait for them, and
 * every thread still keeps to its rows. Those of fewer rows, or larger ones, are better read by one thread each. */
enum { SMELT_B_STREAMING_LEAST = 192, SMELT_B_STREAMING_MOST = 1024, SMELT_B_STREAMING_BLOCK = 128 };
#define SMELT_B_STREAMING_BYTES smelt_sizes.b_streaming_bytes

SMELT_INLINE int smelt_b_streaming(const smelt_head *task, int64_t rows, int64_t columns, int64_t depth, int how) {
  const double bytes = (double)columns * (double)depth * sizeof(float);
  return (how == SMELT_ANY_COLUMNS || how == SMELT_NO_BLOCK) && rows >= SMELT_B_STREAMING_LEAST && rows <= SMELT_B_STREAMING_MOST &&
         bytes > SMELT_ROW_AFFINE_BYTES && bytes <= SMELT_B_STREAMING_BYTES && !task->cut.task_rows;
}

/* Pairs of blocks of rows by four panels: an epilogue finds its block in L1. Rows that each task packs are worth more panels. */
SMELT_INLINE smelt_split smelt_b_streaming_split(int64_t rows, int64_t columns, int halved) {
  const int64_t panels = (columns + 15) / 16, wide = smelt_min(panels, halved ? 12 : 4);
  const int64_t blocks = 2 * ((rows + 2 * SMELT_B_STREAMING_BLOCK - 1) / (2 * SMELT_B_STREAMING_BLOCK)), tall = (rows + blocks - 1) / blocks;
  return (smelt_split){tall, wide, (rows + tall - 1) / tall, (panels + wide - 1) / wide};
}

/* The product, then its epilogue, each cut as suits it. */
static int32_t smelt_launch_apart(smelt_gemm_task *task, smelt_body body, int64_t rows,
                                                                int64_t columns, int64_t depth, int64_t extra,
                                                                int64_t copies, int unpacked) {
  smelt_env *env = task->env;
  smelt_work *work = task->work;
  const int64_t panels = (columns + 15) / 16;
  int bad = 0;
  const int64_t bytes = smelt_size_mul(smelt_size_mul(rows, panels, &bad), 64 * copies, &bad);
  if (bad || bytes > work->whole_bytes) {
    if (work->whole && env->free_scratch) env->free_scratch(env, work->whole);
    work->whole = bad ? NULL : (float *)env->scratch(env, bytes);
    if (!work->whole) return smelt_fail(env, SMELT_E_MEMORY, -1, bytes, 0, 0);
    work->whole_bytes = bytes;
  }
  const smelt_split split = smelt_split_of(&task->head, rows, columns, depth * copies, 0, unpacked);
  task->whole = work->whole;
  task->apart = SMELT_PRODUCT_ONLY;
  task->row_blocks = split.row_tasks, task->block_rows = split.rows, task->block_panels = split.panels;
  task->from = 0, task->terms = unpacked ? depth : SMELT_K_BLOCK_OF(env->processors > 2 ? split.rows : rows, depth);
  do {
    if (smelt_run_now(task, body, split.row_tasks * split.panel_tasks)) return env->code;
    task->from += task->terms;
  } while (task->from < depth);
  task->apart = SMELT_EPILOGUE_ONLY;
  const int64_t blocks = smelt_max(16, env->processors);
  task->block_rows = smelt_max((rows + blocks - 1) / blocks, (4096 + columns - 1) / columns);
  task->row_blocks = (rows + task->block_rows - 1) / task->block_rows;
  task->block_panels = panels;
  if (extra > SMELT_STACK_ROW && smelt_reserve(task, task->row_blocks, (extra + 63) & ~(int64_t)63)) return env->code;
  return smelt_run_now(task, body, task->row_blocks);
}

/* The epilogue of rows without columns: a sum over them is 0, and still has to be stored. */
static int32_t smelt_launch_no_columns(smelt_gemm_task *task, smelt_body body, int64_t batches,
                                                                     int64_t rows, int64_t extra, int wants,
                                                                     int64_t copies) {
  if (wants != SMELT_WHOLE_ROWS && wants != SMELT_MAY_PART) return SMELT_OK;
  const int64_t slot = SMELT_SLOT(rows, copies, extra);
  task->memory = NULL, task->row_blocks = 1, task->block_rows = rows, task->block_panels = 1;
  if (slot > 2 * SMELT_STACK_ROW && smelt_reserve(task, batches, slot)) return task->env->code;
  return smelt_run(task, body, batches);
}

int32_t smelt_launch_gemm(smelt_gemm_task *task, smelt_body body, int64_t batches, int64_t rows, int64_t columns, int64_t depth,
                          int64_t extra, int how, int64_t copies) {
  if (batches <= 0 || rows <= 0) return SMELT_OK;
  smelt_env *env = task->env;
  const int wants = how & ~(SMELT_UNPACKED | SMELT_HALVED), unpacked = how & SMELT_UNPACKED, halved = how & SMELT_HALVED;
  const int64_t room = (halved ? (depth + 1) / 2 : depth) * copies; /* of a column of panels, in floats */
  if (columns <= 0) return smelt_launch_no_columns(task, body, batches, rows, extra, wants, copies);
  if (wants == SMELT_MAY_PART && (unpacked || smelt_product_apart(rows, columns, depth * copies, task->cut.epilogue)))
    return smelt_launch_apart(task, body, rows, columns, depth, extra, copies, unpacked);
  smelt_split split = smelt_split_of(&task->head, rows, columns, depth * copies,
                                     wants == SMELT_WHOLE_ROWS || wants == SMELT_MAY_PART, unpacked);
  if (batches >= 4) {
    const int64_t fit = smelt_max(SMELT_BLOCK_FLOATS / columns, 12);
    split.panels = (columns + 15) / 16;
    split.rows = smelt_min(rows, fit);
    split.row_tasks = (rows + split.rows - 1) / split.rows;
    split.rows = (rows + split.row_tasks - 1) / split.row_tasks;
    split.panel_tasks = 1;
  }
  if (batches == 1 && smelt_row_affine(&task->head, rows, columns, room, wants | unpacked)) {
    split = smelt_row_affine_split(&task->head, rows, columns);
    task->across = split.panel_tasks;
    task->blocks = smelt_blocks_of(rows, split.rows, split.panel_tasks);
  } else if (batches == 1 && smelt_b_streaming(&task->head, rows, columns, room, wants | unpacked)) {
    split = smelt_split_evenly(&task->head, smelt_b_streaming_split(rows, columns, halved), rows, columns, depth * copies, 0);
    task->across = split.panel_tasks;
  }
  const int64_t slot = SMELT_SLOT(split.rows, split.panels * copies, extra);
  const int64_t tasks = batches * split.row_tasks * split.panel_tasks;
  task->memory = NULL;
  if (wants != SMELT_NO_BLOCK && slot > 2 * SMELT_STACK_ROW && smelt_reserve(task, tasks, slot)) return env->code;
  task->row_blocks = split.row_tasks;
  task->block_rows = split.rows;
  task->block_panels = split.panels;
  return smelt_run(task, body, tasks);
}

#endif
