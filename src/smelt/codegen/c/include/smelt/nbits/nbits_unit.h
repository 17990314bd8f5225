/* A product with block-quantized weights, as a unit of its own.
 *
 * Input:     smelt_task: b and s as the enums below count them. A is [rows, K] of float32; B, scales and zero points are packed
 *            (nbits.h). Scratch memory as ops/block_quantized.py counts it.
 * Output:    [rows, N]: A times scale * (q - zero point), plus the bias.
 * Invariant: results do not depend on threads. Exact: float32 activations and sums. Fast: activations are quantized to 8 bits in
 *            blocks, sums of a block are exact integers.
 */
#ifndef SMELT_NBITS_UNIT_H
#define SMELT_NBITS_UNIT_H

#ifndef SMELT_NBITS_ALONE /* by tests, which link no tiles */
#define SMELT_TILES_LINKED
#endif
#include <smelt/nbits/nbits_dots.h>
#include <smelt/nbits/nbits_gemm.h>
#include <smelt/nbits/nbits_gemv.h>

enum { SMELT_NB_A, SMELT_NB_B, SMELT_NB_SCALES, SMELT_NB_ZEROS, SMELT_NB_BIAS, SMELT_NB_Y, SMELT_NB_SCRATCH };
enum { SMELT_NS_ROWS, SMELT_NS_K, SMELT_NS_N, SMELT_NS_BITS, SMELT_NS_BLOCK, SMELT_NS_ZERO_KIND, SMELT_NS_FAST, SMELT_NS_HALVES };

/* Panels of a task of few rows: enough tasks for all threads, each worth starting. */
SMELT_INLINE int64_t smelt_nb_panels_of_task(const smelt_nbits *p, int64_t processors, int64_t groups_of) {
  const int64_t tasks = processors == 1 ? 1 : processors > 1 ? 4 * processors : 16;
  const int64_t bytes = smelt_max(1, p->blocks * smelt_nb_block_bytes(p) * smelt_max(1, smelt_min(p->rows, 64) / 4));
  const int64_t least = ((64 << 10) + bytes - 1) / bytes;
  const int64_t each = smelt_max(least, (p->count + tasks - 1) / tasks);
  return (each + groups_of - 1) / groups_of * groups_of;
}

static int32_t smelt_nb_run(smelt_nbits *p, smelt_body body, int64_t tasks) {
  smelt_env *env = p->task->env;
  if (tasks == 1) body(p, 0);
  else env->parallel(env, tasks, body, p);
  return env->code;
}

static int32_t smelt_nb_small(smelt_nbits *p) {
  const int64_t processors = p->task->env->processors;
  if (p->rows == 1 && p->K == p->blocks * p->block) p->packed = (char *)p->a;
  else smelt_nb_pack_floats(p, 0, p->rows, (float *)p->packed);
  p->each = smelt_nb_panels_of_task(p, processors, 1);
  return smelt_nb_run(p, smelt_nb_gemv_body, (p->count + p->each - 1) / p->each);
}

/* Columns are cut first: each task widens its own weights. Rows are cut where columns are too few for all threads. */
static int32_t smelt_nb_large(smelt_nbits *p, smelt_task *t) {
  const int64_t processors = t->env->processors, groups = (p->count + SMELT_NB_GROUP - 1) / SMELT_NB_GROUP;
  p->depth = smelt_nb_depth(p);
  p->each = smelt_nb_panels_of_task(p, processors, SMELT_NB_GROUP);
  const int64_t across = (p->count + p->each - 1) / p->each;
  const int64_t short_of = processors > 1 && groups < processors ? (processors + groups - 1) / groups : 1;
  p->row_tasks = smelt_max(1, smelt_min(short_of, p->rows / 64));
  p->row_step = (p->rows + p->row_tasks - 1) / p->row_tasks;
  if (smelt_reserve(t, across * p->row_tasks, p->depth * SMELT_NB_GROUP * SMELT_NB_PANEL * (int64_t)sizeof(float))) return t->env->code;
  smelt_nb_run(p, smelt_nb_gemm_body, across * p->row_tasks);
  if (!t->work->collecting) t->work->slots = t->work->slot_bytes = 0;
  return t->env->code;
}

/* K = 0: the bias alone. */
static void smelt_nb_empty(const smelt_nbits *p) {
  for (int64_t i = 0; i < p->rows * p->N; i++) p->y[i] = p->bias ? p->bias[i % p->N] : 0;
}

int32_t SMELT_NAME(smelt_nbits_product)(smelt_task *t) {
  smelt_nbits p = {.task = t, .panels = t->b[SMELT_NB_B], .scales = t->b[SMELT_NB_SCALES], .bias = t->b[SMELT_NB_BIAS],
                   .zeros = t->b[SMELT_NB_ZEROS], .a = t->b[SMELT_NB_A], .packed = t->b[SMELT_NB_SCRATCH], .y = t->b[SMELT_NB_Y],
                   .rows = t->s[SMELT_NS_ROWS], .K = t->s[SMELT_NS_K], .N = t->s[SMELT_NS_N], .block = t->s[SMELT_NS_BLOCK],
                   .bits = (int)t->s[SMELT_NS_BITS], .zero_kind = (int)t->s[SMELT_NS_ZERO_KIND],
                   .halves = (int)t->s[SMELT_NS_HALVES]};
  if (p.rows <= 0 || p.N <= 0) return SMELT_OK;
  p.blocks = (p.K + p.block - 1) / p.block, p.count = (p.N + SMELT_NB_PANEL - 1) / SMELT_NB_PANEL;
  if (p.K <= 0) {
    smelt_nb_empty(&p);
    return SMELT_OK;
  }
  if (t->s[SMELT_NS_FAST]) return smelt_nb_fast(&p, smelt_nb_panels_of_task(&p, t->env->processors, 1));
  const int looked_up = smelt_nb_has_codebook(&p) && !SMELT_NB_TABLE; /* once for all rows */
  return p.rows <= SMELT_NB_ROWS && !looked_up ? smelt_nb_small(&p) : smelt_nb_large(&p, t);
}

#endif
