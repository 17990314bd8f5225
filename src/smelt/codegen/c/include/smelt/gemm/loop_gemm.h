/* What kernels and launches of products know: their tasks, and the product as a function.
 *
 * Input:     smelt_gemm_task, the product's sizes. Output: declarations of smelt_launch_gemm() and of the product.
 * Invariant: both are compiled apart, once per level (launch_gemm_unit.h, gemm_unit.h), so that no unit of a model pays for them.
 */
#ifndef SMELT_LOOP_GEMM_H
#define SMELT_LOOP_GEMM_H

#include <smelt/threads/even_cut.h>
#include <smelt/threads/loop.h>

#define SMELT_PRODUCT SMELT_NAME(smelt_product)
#define SMELT_PRODUCT_WITHIN SMELT_NAME(smelt_product_within)
#define SMELT_PRODUCT_PREFETCH SMELT_NAME(smelt_product_prefetch)
#define SMELT_PRODUCT_K_BLOCK SMELT_NAME(smelt_product_k_block)
#define SMELT_K_BLOCK_OF SMELT_NAME(smelt_k_block_of)
#define SMELT_PRODUCT_EPILOGUE SMELT_NAME(smelt_product_epilogue)
#define SMELT_PRODUCT_UNPACKED SMELT_NAME(smelt_product_unpacked)
#define SMELT_UNPACKED_SPLIT SMELT_NAME(smelt_unpacked_split)
#define SMELT_MODEST SMELT_NAME(smelt_modest)
#define SMELT_PACK SMELT_NAME(smelt_pack)
#define SMELT_GEMV SMELT_NAME(smelt_gemv)
#define SMELT_MOVE SMELT_NAME(smelt_move)
#define SMELT_PRODUCT_SPLIT SMELT_NAME(smelt_product_split)
#define smelt_launch_gemm SMELT_NAME(smelt_launch_gemm)

typedef struct {
  int64_t rows, panels, row_tasks, panel_tasks;
} smelt_split;

/* smelt_launch_gemm(). */
typedef struct {
  SMELT_TASK
  int64_t row_blocks;               /* of one batch index */
  int64_t block_rows, block_panels; /* of a task */
  smelt_panels next;                /* that the next kernel with panels reads first */
  int32_t apart;                    /* computed before its epilogue: SMELT_PRODUCT_ONLY, then SMELT_EPILOGUE_ONLY */
  float *whole;                     /* that product */
  int64_t from, terms;              /* the part of its terms that is next: the first, and how many */
} smelt_gemm_task;

/* smelt_launch_pack(): panels as loops, or, of a row-block fusion, blocks of rows of the operand. */
typedef struct {
  SMELT_TASK
  SMELT_LOOPS
  int64_t block_rows;
} smelt_pack_task;

/* What becomes of the sums of some rows (windows) and columns: min(max(sum + bias + added, least), most) goes to `to`. See
 * epilogue.h. */
typedef struct {
  const float *bias, *added; /* of the first column; of the first row and column, or NULL */
  float *to;
  int64_t ld, columns; /* from one row to the next, of the result and of what is added; columns that exist */
  float least, most;
  const float *sums; /* in kernels: what the sum goes on from, or NULL */
  int64_t sums_ld;
} smelt_epilogue;

/* Rows 0..m-1 of the columns of panels p0..p1-1; see smelt_gemm_f32 in gemm.h. */
void SMELT_PRODUCT(const float *a, int64_t lda, const float *panels, int64_t depth, float *c, int64_t ldc, int64_t m,
                   int64_t p0, int64_t p1, int64_t n_valid);
/* The same over `depth` rows of panels that are `whole` deep. */
void SMELT_PRODUCT_WITHIN(const float *a, int64_t lda, const float *panels, int64_t whole, int64_t depth, float *c,
                          int64_t ldc, int64_t m, int64_t p0, int64_t p1, int64_t n_valid);
/* The same; its last tiles prefetch the panels of the product after it. */
void SMELT_PRODUCT_PREFETCH(const float *a, int64_t lda, const float *panels, int64_t depth, float *c, int64_t ldc, int64_t m,
                          int64_t p0, int64_t p1, int64_t n_valid, smelt_panels next);
/* `terms` terms of it from `from` on, a K block or all, added to those of the blocks before. */
void SMELT_PRODUCT_K_BLOCK(const float *a, int64_t lda, const float *panels, int64_t depth, int64_t from, int64_t terms,
                        float *c, int64_t ldc, int64_t m, int64_t p0, int64_t p1, int64_t n_valid);
/* Terms that all columns get before any gets the next ones. A left operand that does not stay in L2 beside the panels would
 * come from farther away for every group of them. */
int64_t SMELT_K_BLOCK_OF(int64_t rows, int64_t depth);
/* The whole product goes where `epilogue` says; the block is for sums that are not complete yet. */
void SMELT_PRODUCT_EPILOGUE(const float *a, int64_t lda, const float *panels, int64_t depth, float *block, int64_t ld,
                            int64_t m, int64_t p0, int64_t p1, const smelt_epilogue *epilogue, smelt_panels next);
/* The same with both operands unpacked, by the steps of their rows and columns; see gemm_unpacked.h. */
void SMELT_PRODUCT_UNPACKED(const float *a, int64_t row_step, int64_t col_step, const float *b, int64_t k_step,
                         int64_t n_step, int64_t depth, float *c, int64_t ldc, int64_t m, int64_t p0, int64_t p1,
                         int64_t columns);
smelt_split SMELT_PRODUCT_SPLIT(int64_t rows, int64_t columns, int64_t depth, int whole_rows);
smelt_split SMELT_UNPACKED_SPLIT(int64_t rows, int64_t columns, int64_t depth);

/* Panels p0..p1-1 of a matrix whose element (k, n) is at from[k * k_step + n * n_step]. */
void SMELT_PACK(const float *from, int64_t k_step, int64_t n_step, int64_t depth, int64_t columns, float *panels,
                int64_t p0, int64_t p1);

/* Whether none of them is NaN, infinite, or so large (1e12) that scores could come near the bias of a mask. */
int SMELT_MODEST(const float *x, int64_t count);

/* GEMV and small M: up to four rows times an unpacked matrix, one of whose steps is 1. See gemv.h. */
void SMELT_GEMV(const float *a, int64_t lda, const float *b, int64_t k_step, int64_t n_step, int64_t depth, int64_t columns,
               float *c, int64_t ldc, int64_t m, int add);

/* Rows of `width` floats by non-temporal stores, to a place that nobody reads soon. */
void SMELT_MOVE(float *to, int64_t to_step, const float *from, int64_t from_step, int64_t rows, int64_t width);

/* Bytes of one task: its block of the product, then the row buffers of its epilogue. */
#define SMELT_SLOT(rows, panels, extra) ((((rows) * (panels) * 64 + 63) & ~(int64_t)63) + (((extra) + 63) & ~(int64_t)63))

/* Blocks of a batched product that its epilogue still finds in L1. */
#define SMELT_BLOCK_FLOATS smelt_sizes.block_floats

/* What an epilogue wants: any columns, whole rows at once, or whole rows that may also be computed before it; or there is
 * none, and the product goes where it is stored. */
enum { SMELT_ANY_COLUMNS = 0, SMELT_WHOLE_ROWS = 1, SMELT_MAY_PART = 2, SMELT_NO_BLOCK = 3 };
/* Added to it where tasks pack the right operand themselves: rows are cut less, for each cut packs it again. */
enum { SMELT_UNPACKED = 4 };
/* Added to it where panels are of 16-bit floats: they take half the room, and rows are packed for them by each task. */
enum { SMELT_HALVED = 8 };
/* Bytes of a left operand that stay in L2 while panels pass by. */
#define SMELT_NEAR_ROWS smelt_sizes.near_rows

/* Rows of a tile of the widest micro-kernels, and panels; rows and panels that make a task worth starting; what panels that come
 * from afar cost, in rows. */
enum {
  SMELT_GEMM_TILE_ROWS = SMELT_VL == 64 || SMELT_VL == 32 ? 6 : 4,
  SMELT_GEMM_TILE_PANELS = SMELT_VL == 64 ? 4 : 2,
  SMELT_GEMM_LEAST_ROWS = 12,
  SMELT_GEMM_FETCH = 6
};

/* Blocks of rows of kernels of a row-block fusion are all that runs at a time: one for each of many processors, then for each
 * thread that took some of the first ones. */
SMELT_INLINE int64_t smelt_shares(const smelt_head *task) {
  if (task->work->collecting != SMELT_ROW_FUSED || task->env->processors <= 2) return 2;
  return task->work->ordered ? __atomic_load_n(&task->env->helpers, __ATOMIC_RELAXED) + 1 : task->env->processors;
}

/* Rows of a block: as many in each of an even number of them, whole panels where that can be. */
SMELT_INLINE int64_t smelt_row_affine_block(const smelt_head *task, int64_t rows) {
  const int64_t shares = smelt_shares(task);
  if (shares > 2) return smelt_min(smelt_max((rows / shares + 15) / 16 * 16, 16), SMELT_ROW_AFFINE_BLOCK);
  for (int64_t tall = SMELT_ROW_AFFINE_BLOCK; tall >= SMELT_ROW_AFFINE_BLOCK / 2; tall -= 16)
    if (rows % (2 * tall) == 0) return tall;
  const int64_t blocks = 2 * ((rows + 2 * SMELT_ROW_AFFINE_BLOCK - 1) / (2 * SMELT_ROW_AFFINE_BLOCK));
  return (rows + blocks - 1) / blocks;
}

/* The blocks of a task. */
SMELT_INLINE int64_t smelt_row_block(const smelt_gemm_task *t, int64_t task) {
  return t->across ? task / t->across : task % t->row_blocks;
}
SMELT_INLINE int64_t smelt_column_block(const smelt_gemm_task *t, int64_t task) {
  return t->across ? task % t->across : task / t->row_blocks;
}

/* Blocks of `tall` rows, each of `tasks` tasks that follow each other. */
SMELT_INLINE smelt_blocks smelt_blocks_of(int64_t rows, int64_t tall, int64_t tasks) {
  const int64_t count = (rows + tall - 1) / tall;
  return (smelt_blocks){tall, count, count, 1, tasks};
}

/* Packs an operand, panel by panel: `units` of them. In a row-block fusion it goes by the rows of the operand, where blocks
 * of them are whole panels of one of `batches`; each has `rows`. */
static inline __attribute__((unused)) int32_t smelt_launch_pack(smelt_pack_task *task, smelt_body body, int64_t units,
                                                               int64_t unit_cost, int64_t batches, int64_t rows) {
  if (units <= 0) return SMELT_OK;
  if (task->work->collecting != SMELT_ROW_FUSED) return smelt_launch(task, body, units, unit_cost, 0);
  task->block_rows = smelt_row_affine_block(&task->head, batches * rows);
  task->blocks = smelt_blocks_of(batches * rows, task->block_rows, 1);
  if (!(task->block_rows % 16 || rows % task->block_rows) && smelt_goes_on(task->work, &task->head))
    return smelt_run(task, body, task->blocks.count);
  task->blocks.rows = 0;
  return smelt_launch(task, body, units, unit_cost, 0);
}

/* `copies` products of the same sizes and left operand are computed by the same tasks; `how` is what the epilogue wants, and what is
 * added to it. See launch_gemm_unit.h. */
int32_t smelt_launch_gemm(smelt_gemm_task *task, smelt_body body, int64_t batches, int64_t rows, int64_t columns, int64_t depth,
                          int64_t extra, int how, int64_t copies);

#endif
