/* Large-M products with block-quantized weights in float32: K blocks of a few panels are widened into L2 and go through the
 * micro-kernels of gemm.h.
 *
 * Input:     rows as they are given, panels. Output: a task's rows and columns of the result, with the bias.
 * Invariant: a weight is the float32 scale * (q - zero point), rounded once; K is cut by sizes that depend on K and the block size
 *            alone, so that bits do not depend on tasks.
 */
#ifndef SMELT_NBITS_GEMM_H
#define SMELT_NBITS_GEMM_H

#include <smelt/gemm/gemm.h>
#include <smelt/nbits/nbits.h>

/* Floats of a widened block: beside the rows that pass by, it stays in L2. */
enum { SMELT_NB_WIDENED = 32768, SMELT_NB_GROUP = 4 };

/* One block of one panel as [k][column]. */
SMELT_INLINE void smelt_nb_widen_block(const int bits, const int kind, const smelt_nbits *p, const char *line, int64_t at, float *to) {
  const int T = 32 / bits, V = SMELT_NB_VPP;
  const smelt_nb_f table = smelt_nb_table(p, kind, bits);
  smelt_nb_f zero[SMELT_NB_VPP], scale[SMELT_NB_VPP];
  SMELT_NB_UNROLL for (int j = 0; j < V; j++) {
    zero[j] = smelt_nb_zero(p, kind, bits, at + j * SMELT_NB_LANES);
    scale[j] = smelt_nb_scale(p, at + j * SMELT_NB_LANES);
  }
  for (int64_t l = 0; l < p->block * bits / 32; l++, line += SMELT_NB_LINE, to += T * SMELT_NB_PANEL) {
    __builtin_prefetch(line + 1024);
    SMELT_NB_UNROLL for (int i = 0; i < T; i++)
      SMELT_NB_UNROLL for (int j = 0; j < V; j++)
        *(smelt_nb_fu *)(to + i * SMELT_NB_PANEL + j * SMELT_NB_LANES) =
            scale[j] * smelt_nb_weight(*(const smelt_nb_uu *)(line + j * SMELT_VL), bits, kind, i, table, zero[j]);
  }
}

typedef void (*smelt_nb_widen)(const smelt_nbits *p, int64_t panel, int64_t first, int64_t last, float *to);

/* Blocks [first, last) of a panel. */
#define SMELT_NB_WIDEN(BITS, KIND)                                                                                             \
  static __attribute__((noinline)) void smelt_nb_widen_##BITS##_##KIND(const smelt_nbits *p, int64_t panel, int64_t first, int64_t last, \
                                                                      float *to) {                                            \
    for (int64_t b = first; b < last; b++, to += p->block * SMELT_NB_PANEL)                                                    \
      smelt_nb_widen_block(BITS, KIND, p, p->panels + (panel * p->blocks + b) * smelt_nb_block_bytes(p),                       \
                           (panel * p->blocks + b) * SMELT_NB_PANEL, to);                                                      \
  }
SMELT_NB_WIDEN(2, 0)
SMELT_NB_WIDEN(2, 1)
SMELT_NB_WIDEN(4, 0)
SMELT_NB_WIDEN(4, 1)
SMELT_NB_WIDEN(8, 0)
SMELT_NB_WIDEN(8, 1)
static const smelt_nb_widen smelt_nb_widens[3][2] = {{smelt_nb_widen_2_0, smelt_nb_widen_2_1},
                                                     {smelt_nb_widen_4_0, smelt_nb_widen_4_1},
                                                     {smelt_nb_widen_8_0, smelt_nb_widen_8_1}};

#if !SMELT_NB_TABLE
/* Blocks [first, last) of a panel of 4 bits, each looked up in the codebook. */
static __attribute__((noinline)) void smelt_nb_widen_codebook(const smelt_nbits *p, int64_t panel, int64_t first, int64_t last, float *to) {
  const float *table = smelt_nb_codebooks[p->zero_kind - SMELT_NB_FP4];
  const uint32_t *words = (const uint32_t *)(p->panels + (panel * p->blocks + first) * smelt_nb_block_bytes(p));
  float scale[SMELT_NB_PANEL];
  for (int64_t b = first; b < last; b++) {
    for (int64_t j = 0; j < SMELT_NB_PANEL; j += SMELT_NB_LANES)
      *(smelt_nb_fu *)(scale + j) = smelt_nb_scale(p, (panel * p->blocks + b) * SMELT_NB_PANEL + j);
    for (int64_t l = 0; l < p->block / 8; l++, words += SMELT_NB_PANEL)
      for (int64_t i = 0; i < 8; i++, to += SMELT_NB_PANEL)
        for (int64_t j = 0; j < SMELT_NB_PANEL; j++) to[j] = scale[j] * table[words[j] >> (8 * (i % 4) + 4 * (i / 4)) & 15];
  }
}
#endif

SMELT_INLINE smelt_nb_widen smelt_nb_widen_of(const smelt_nbits *p) {
#if !SMELT_NB_TABLE
  if (smelt_nb_has_codebook(p)) return smelt_nb_widen_codebook;
#endif
  return smelt_nb_widens[p->bits / 3][smelt_nb_has_zeros(p)];
}

/* K of a widened block: whole blocks, the same in all but the last. */
SMELT_INLINE int64_t smelt_nb_depth(const smelt_nbits *p) {
  const int64_t most = smelt_max(1, SMELT_NB_WIDENED / (SMELT_NB_GROUP * SMELT_NB_PANEL) / p->block);
  const int64_t parts = (p->blocks + most - 1) / most;
  return (p->blocks + parts - 1) / parts * p->block;
}

/* Some rows of `panels` panels, K block after K block. */
static void smelt_nb_gemm_group(const smelt_nbits *p, int64_t row, int64_t rows, int64_t panel, int64_t panels, float *widened) {
  const smelt_nb_widen widen = smelt_nb_widen_of(p);
  const int64_t column = panel * SMELT_NB_PANEL, columns = smelt_min(panels * SMELT_NB_PANEL, p->N - column);
  float *y = p->y + row * p->N + column;
  for (int64_t k = 0; k < p->K; k += p->depth) {
    const int64_t first = k / p->block, last = smelt_min(p->blocks, (k + p->depth) / p->block), terms = smelt_min(p->depth, p->K - k);
    for (int64_t i = 0; i < panels; i++) widen(p, panel + i, first, last, widened + i * p->depth * SMELT_NB_PANEL);
    const float *a = p->a + row * p->K + k;
    const smelt_gemm_slab slab = {a, p->K, widened, p->depth * SMELT_NB_PANEL, 0, y, p->N, rows, columns, k > 0, 0, NULL, 0, 0};
    smelt_gemm_chunks(slab, a, p->K, 1, terms, smelt_gemm_depth(terms), NULL);
  }
  if (p->bias)
    for (int64_t r = 0; r < rows; r++)
      for (int64_t j = 0; j < columns; j++) y[r * p->N + j] += p->bias[column + j];
}

static void smelt_nb_gemm_body(void *context, int64_t index) {
  const smelt_nbits *p = context;
  const int64_t row = index % p->row_tasks * p->row_step, first = index / p->row_tasks * p->each;
  const int64_t rows = smelt_min(p->row_step, p->rows - row), last = smelt_min(first + p->each, p->count);
  char *widened = smelt_claim(p->task);
  for (int64_t panel = first; panel < last && rows > 0; panel += SMELT_NB_GROUP)
    smelt_nb_gemm_group(p, row, rows, panel, smelt_min(SMELT_NB_GROUP, last - panel), (float *)widened);
  smelt_release(p->task, widened);
}

#endif
