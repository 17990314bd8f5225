/* What kernels and launches of back-to-back GEMMs (attention, fused MLP) know: their task.
 *
 * Input:     smelt_b2b_task, the sizes of both products. Output: declarations of the launchers.
 * Invariant: they are compiled apart, once per level (launch_b2b_gemm_unit.h), so that no unit of a model pays for them.
 */
#ifndef SMELT_LOOP_B2B_GEMM_H
#define SMELT_LOOP_B2B_GEMM_H

#include <smelt/gemm/loop_gemm.h>

#define smelt_launch_b2b_gemm SMELT_NAME(smelt_launch_b2b_gemm)
#define smelt_launch_gemm_mlp SMELT_NAME(smelt_launch_gemm_mlp)
#define smelt_launch_b2b_online_softmax SMELT_NAME(smelt_launch_b2b_online_softmax)

typedef struct {
  SMELT_TASK
  int64_t row_blocks, block_rows; /* of one batch index; of a task */
  int64_t block_bytes;            /* that a task needs for itself */
  int64_t group;                  /* batch indices that one task takes */
  int64_t span;                   /* columns of its rows that are made at a time, with an online softmax */
  smelt_panels next;              /* that the next kernel with panels reads first */
} smelt_b2b_task;

/* `columns` of the first product, `wide` floats of all blocks together per row, `extra` bytes of row buffers. `group`
 * neighbouring batch indices read the same right operands: where those are read unpacked, one task takes them all. */
int32_t smelt_launch_b2b_gemm(smelt_b2b_task *task, smelt_body body, int64_t batches, int64_t rows, int64_t columns, int64_t wide,
                              int64_t extra, int64_t group, int64_t middle);
/* `wide` floats of all blocks together per row, `extra` bytes of row buffers. */
int32_t smelt_launch_gemm_mlp(smelt_b2b_task *task, smelt_body body, int64_t rows, int64_t wide, int64_t extra);
/* The first where weights may be made block by block: t->span columns at a time. `beside` floats a row and `extra` bytes
 * beside the weights, `buffers` rows of as many columns. GEMVs read their operands unpacked, whole. */
int32_t smelt_launch_b2b_online_softmax(smelt_b2b_task *task, smelt_body body, int64_t batches, int64_t rows, int64_t columns,
                                        int64_t beside, int64_t buffers, int64_t extra, int64_t group, int64_t middle);

#endif
