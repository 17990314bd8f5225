/* A product of float32 rows with weights of float16 or bfloat16, as a unit of its own.
 *
 * Input:     smelt_task: b and s as the enums below count them. A is [rows, K] of float32; B is panels of 16 columns, [panel][k][column].
 * Output:    [rows, N]: A times B, in float32.
 * Invariant: weights are widened, which rounds nothing: in registers for few rows, else K block by K block into L2, for the
 *            micro-kernels of gemm.h. K is cut by sizes that depend on K alone, so that bits do not depend on threads.
 */
#ifndef SMELT_HALF_UNIT_H
#define SMELT_HALF_UNIT_H

#define SMELT_TILES_LINKED
#include <smelt/gemm/gemm.h>
#include <smelt/threads/loop.h>
#include <smelt/vec/vec.h>

enum { SMELT_HB_A, SMELT_HB_B, SMELT_HB_Y };
enum { SMELT_HS_ROWS, SMELT_HS_K, SMELT_HS_N, SMELT_HS_F16 };
/* Columns of a panel, panels that are widened together, K of such a block: it stays in L2 beside the rows that pass by. */
enum { SMELT_HALF_PANEL = 16, SMELT_HALF_GROUP = 4, SMELT_HALF_DEPTH = 512, SMELT_HALF_VPP = SMELT_HALF_PANEL / SMELT_L };
enum { SMELT_HALF_AHEAD = 1024 }; /* elements of panels that are prefetched */

/* Rows that pass by the weights together: their sums stay in registers. */
#if SMELT_VL == 64
enum { SMELT_HALF_ROWS = 8 };
#elif SMELT_VL == 32
enum { SMELT_HALF_ROWS = 4 };
#else
enum { SMELT_HALF_ROWS = 2 };
#endif

/* A product as its tasks see it: `each` panels and `row_step` rows a task. */
typedef struct {
  const smelt_task *task;
  const uint16_t *panels;
  const float *a;
  float *y;
  int64_t rows, K, N, count, each, depth, row_tasks, row_step;
  int f16;
} smelt_half;

#define SMELT_HALF_UNROLL _Pragma("GCC unroll 16")

SMELT_FN v_f32 smelt_half_load(const int f16, const uint16_t *p) { return f16 ? ld_f16(p) : ld_bf16(p); }

/* One k of R rows: adds to their sums. */
SMELT_FN void smelt_half_step(const int R, const int f16, const float *const *a, int64_t k, const uint16_t *w, v_f32 *sums) {
  SMELT_HALF_UNROLL for (int j = 0; j < SMELT_HALF_VPP; j++) {
    const v_f32 wide = smelt_half_load(f16, w + j * SMELT_L);
    SMELT_HALF_UNROLL for (int r = 0; r < R; r++) sums[r * SMELT_HALF_VPP + j] += a[r][k] * wide;
  }
}

/* The sums of one panel, R rows. Few rows have several chains of multiply-adds each, to cover the latency of one. */
SMELT_FN void smelt_half_gemv_panel(const int R, const int f16, const float *const *a, int64_t K, const uint16_t *w, float *out) {
  const int V = SMELT_HALF_VPP, S = R * V >= 8 ? 1 : R * V >= 4 ? 2 : 4;
  v_f32 sums[SMELT_HALF_PANEL];
  SMELT_HALF_UNROLL for (int i = 0; i < S * R * V; i++) sums[i] = (v_f32){0};
  int64_t k = 0;
  for (; k + S <= K; k += S, w += S * SMELT_HALF_PANEL) {
    __builtin_prefetch(w + SMELT_HALF_AHEAD);
    SMELT_HALF_UNROLL for (int i = 0; i < S; i++) smelt_half_step(R, f16, a, k + i, w + i * SMELT_HALF_PANEL, sums + i * R * V);
  }
  for (; k < K; k++, w += SMELT_HALF_PANEL) smelt_half_step(R, f16, a, k, w, sums);
  SMELT_HALF_UNROLL for (int i = R * V; i < S * R * V; i++) sums[i % (R * V)] += sums[i];
  SMELT_HALF_UNROLL for (int i = 0; i < R * V; i++) st_f32(out + i * SMELT_L, sums[i]);
}

static void smelt_half_gemv(int64_t tile, int f16, const float *const *a, int64_t K, const uint16_t *w, float *out) {
#define SMELT_HALF_CASE(R)                                     \
  case R:                                                      \
    if (f16) smelt_half_gemv_panel(R, 1, a, K, w, out);        \
    else smelt_half_gemv_panel(R, 0, a, K, w, out);            \
    break;
  switch (tile) {
    SMELT_HALF_CASE(1)
    SMELT_HALF_CASE(2)
#if SMELT_VL >= 32
    SMELT_HALF_CASE(4)
#endif
#if SMELT_VL == 64
    SMELT_HALF_CASE(8)
#endif
  }
#undef SMELT_HALF_CASE
}

static void smelt_half_small_body(void *context, int64_t index) {
  const smelt_half *p = context;
  float sums[SMELT_HALF_ROWS * SMELT_HALF_PANEL] __attribute__((aligned(64)));
  const int64_t tile = p->rows > 4 ? 8 : p->rows > 2 ? 4 : p->rows, last = smelt_min((index + 1) * p->each, p->count);
  const float *a[SMELT_HALF_ROWS];
  for (int64_t r = 0; r < tile; r++) a[r] = p->a + smelt_min(r, p->rows - 1) * p->K;
  for (int64_t panel = index * p->each; panel < last; panel++) {
    const int64_t first = panel * SMELT_HALF_PANEL, count = smelt_min(SMELT_HALF_PANEL, p->N - first);
    smelt_half_gemv(tile, p->f16, a, p->K, p->panels + panel * p->K * SMELT_HALF_PANEL, sums);
    for (int64_t r = 0; r < p->rows; r++)
      __builtin_memcpy(p->y + r * p->N + first, sums + r * SMELT_HALF_PANEL, (size_t)count * sizeof(float));
  }
}

static void smelt_half_widen(const smelt_half *p, int64_t panel, int64_t k, int64_t terms, float *to) {
  const uint16_t *from = p->panels + (panel * p->K + k) * SMELT_HALF_PANEL;
  for (int64_t i = 0; i < terms * SMELT_HALF_PANEL; i += SMELT_L) st_f32(to + i, smelt_half_load(p->f16, from + i));
}

/* Some rows of `panels` panels, K block after K block. */
static void smelt_half_group(const smelt_half *p, int64_t row, int64_t rows, int64_t panel, int64_t panels, float *widened) {
  const int64_t column = panel * SMELT_HALF_PANEL, columns = smelt_min(panels * SMELT_HALF_PANEL, p->N - column);
  const int64_t stride = p->depth * SMELT_HALF_PANEL;
  float *y = p->y + row * p->N + column;
  for (int64_t k = 0; k < p->K; k += p->depth) {
    const int64_t terms = smelt_min(p->depth, p->K - k);
    for (int64_t i = 0; i < panels; i++) smelt_half_widen(p, panel + i, k, terms, widened + i * stride);
    const float *a = p->a + row * p->K + k;
    const smelt_gemm_slab slab = {a, p->K, widened, stride, 0, y, p->N, rows, columns, k > 0, 0, NULL, 0, 0};
    smelt_gemm_chunks(slab, a, p->K, 1, terms, smelt_gemm_depth(terms), NULL);
  }
}

static void smelt_half_large_body(void *context, int64_t index) {
  const smelt_half *p = context;
  const int64_t row = index % p->row_tasks * p->row_step, first = index / p->row_tasks * p->each;
  const int64_t rows = smelt_min(p->row_step, p->rows - row), last = smelt_min(first + p->each, p->count);
  char *widened = smelt_claim(p->task);
  for (int64_t panel = first; panel < last && rows > 0; panel += SMELT_HALF_GROUP)
    smelt_half_group(p, row, rows, panel, smelt_min(SMELT_HALF_GROUP, last - panel), (float *)widened);
  smelt_release(p->task, widened);
}

static int32_t smelt_half_run(smelt_half *p, smelt_body body, int64_t tasks) {
  smelt_env *env = p->task->env;
  if (tasks == 1) body(p, 0);
  else env->parallel(env, tasks, body, p);
  return env->code;
}

/* Panels of a task: enough tasks for all threads, each worth starting. */
SMELT_INLINE int64_t smelt_half_panels_of_task(const smelt_half *p, int64_t processors, int64_t groups_of) {
  const int64_t tasks = processors == 1 ? 1 : processors > 1 ? 4 * processors : 16;
  const int64_t bytes = p->K * 2 * SMELT_HALF_PANEL * smelt_max(1, smelt_min(p->rows, 64) / 4);
  const int64_t each = smelt_max(((64 << 10) + bytes - 1) / bytes, (p->count + tasks - 1) / tasks);
  return (each + groups_of - 1) / groups_of * groups_of;
}

/* Columns are cut first: each task widens its own weights. Rows are cut where columns are too few for all threads. */
static int32_t smelt_half_large(smelt_half *p, smelt_task *t) {
  const int64_t processors = t->env->processors, groups = (p->count + SMELT_HALF_GROUP - 1) / SMELT_HALF_GROUP;
  const int64_t parts = (p->K + SMELT_HALF_DEPTH - 1) / SMELT_HALF_DEPTH;
  p->depth = (p->K + parts - 1) / parts;
  p->each = smelt_half_panels_of_task(p, processors, SMELT_HALF_GROUP);
  const int64_t across = (p->count + p->each - 1) / p->each;
  const int64_t short_of = processors > 1 && groups < processors ? (processors + groups - 1) / groups : 1;
  p->row_tasks = smelt_max(1, smelt_min(short_of, p->rows / 64));
  p->row_step = (p->rows + p->row_tasks - 1) / p->row_tasks;
  const int64_t bytes = p->depth * SMELT_HALF_GROUP * SMELT_HALF_PANEL * (int64_t)sizeof(float);
  if (smelt_reserve(t, across * p->row_tasks, bytes)) return t->env->code;
  smelt_half_run(p, smelt_half_large_body, across * p->row_tasks);
  if (!t->work->collecting) t->work->slots = t->work->slot_bytes = 0;
  return t->env->code;
}

int32_t SMELT_NAME(smelt_half_product)(smelt_task *t) {
  smelt_half p = {.task = t, .panels = t->b[SMELT_HB_B], .a = t->b[SMELT_HB_A], .y = t->b[SMELT_HB_Y], .rows = t->s[SMELT_HS_ROWS],
                  .K = t->s[SMELT_HS_K], .N = t->s[SMELT_HS_N], .f16 = (int)t->s[SMELT_HS_F16]};
  if (p.rows <= 0 || p.N <= 0) return SMELT_OK;
  p.count = (p.N + SMELT_HALF_PANEL - 1) / SMELT_HALF_PANEL;
  if (p.K <= 0) {
    __builtin_memset(p.y, 0, (size_t)(p.rows * p.N) * sizeof(float));
    return SMELT_OK;
  }
  if (p.rows > SMELT_HALF_ROWS) return smelt_half_large(&p, t);
  p.each = smelt_half_panels_of_task(&p, t->env->processors, 1);
  return smelt_half_run(&p, smelt_half_small_body, (p.count + p.each - 1) / p.each);
}

#endif
