/* f32 GEMM over an unpacked B: K blocks of B are packed into L1 as they are used.
 *
 * Input: A (m x K) with any strides; B with element (k, n) at B[k * k_step + n * n_step].
 * Output: the columns of panels p0..p1-1, written to C; nothing is written outside m rows and the valid columns.
 * Invariant: bits are those of smelt_gemm_f32 over packed panels.
 *
 * Panels of a matrix that changes from call to call serve one product. Packed as a whole they are written to memory and
 * read back; here a K block is packed right before the rows of A stream past it, and never leaves L1.
 */
#ifndef SMELT_GEMM_UNPACKED_H
#define SMELT_GEMM_UNPACKED_H

#include <smelt/gemm/gemm.h>
#include <smelt/gemm/nontemporal.h>

/* Floats of the panels that are packed at a time. */
#define SMELT_GEMM_PACKED (SMELT_GEMM_KC * SMELT_GEMM_WP * SMELT_GEMM_PANEL)
/* A transposed A is transposed one block of k at a time: rows and leading dimension of its copy. */
#define SMELT_GEMM_TRANSPOSED_LD (SMELT_GEMM_KC + 16)
#define SMELT_GEMM_TRANSPOSED_ROWS (49152 / SMELT_GEMM_TRANSPOSED_LD < SMELT_GEMM_MC ? 49152 / SMELT_GEMM_TRANSPOSED_LD : SMELT_GEMM_MC)

typedef struct {
  const float *at;
  int64_t k_step, n_step;
} smelt_gemm_matrix;

/* A block that comes next: `runs` of `lines` cache lines, `step` floats apart. */
typedef struct {
  const float *from;
  int64_t step, runs, lines;
} smelt_gemm_prefetch;

SMELT_GEMM_INLINE smelt_gemm_prefetch smelt_gemm_prefetch_of(const smelt_gemm_matrix *b, int64_t k, int64_t depth, int64_t col,
                                                     int64_t cols) {
  const float *from = b->at + k * b->k_step + col * b->n_step;
  if (b->k_step == 1)
    return (smelt_gemm_prefetch){from, b->n_step, cols, (depth + 15) / 16};
  if (b->n_step == 1)
    return (smelt_gemm_prefetch){from, b->k_step, depth, (cols + 15) / 16};
  return (smelt_gemm_prefetch){from, 0, 0, 0};
}

/* Part t of `parts` of it. */
SMELT_GEMM_INLINE void smelt_gemm_prefetch_part(const smelt_gemm_prefetch *prefetch, int64_t t, int64_t parts) {
  const int64_t first = prefetch->runs * t / parts, last = prefetch->runs * (t + 1) / parts;
  for (int64_t run = first; run < last; ++run)
    for (int64_t line = 0; line < prefetch->lines; ++line)
      __builtin_prefetch(prefetch->from + run * prefetch->step + line * 16, 0, 2);
}

/* Results of so many bytes that are complete after one block of k go past the caches: a store through them reads the line
 * first, which takes as long as the product where K is 128. */
#define SMELT_GEMM_NT_BYTES smelt_sizes.nontemporal_bytes

SMELT_GEMM_INLINE int smelt_gemm_stores_nt(const smelt_gemm_slab *s, int64_t K) {
  return SMELT_HAS_NT && K <= SMELT_GEMM_KC && s->m * s->ldc >= SMELT_GEMM_NT_BYTES / 4 && s->ldc % 16 == 0 &&
         ((uintptr_t)s->c & 63) == 0;
}

/* A tile of whole lines. */
SMELT_GEMM_INLINE void smelt_gemm_nt_tile(const smelt_gemm_slab *s, const float *a, float *c, int64_t rows) {
  float tile[SMELT_GEMM_WIDE_MR * SMELT_GEMM_WP * SMELT_GEMM_PANEL] __attribute__((aligned(64)));
  const int64_t width = SMELT_GEMM_WP * SMELT_GEMM_PANEL;
  smelt_gemm_block(s, a, s->b, tile, width, rows, SMELT_GEMM_WP, 0, s->b, 1);
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < width; j += 16)
      smelt_nt_line(c + i * s->ldc + j, tile + i * width + j);
}

/* All rows times the panels that lie in `s->b`; tile by tile what comes next is prefetched. */
static __attribute__((unused)) void smelt_gemm_unpacked_rows(const smelt_gemm_slab *s, int64_t panels, smelt_gemm_prefetch prefetch) {
  const int64_t most = panels < SMELT_GEMM_NP   ? SMELT_GEMM_NARROW_MR
                       : panels < SMELT_GEMM_WP ? SMELT_GEMM_MR
                                                : SMELT_GEMM_WIDE_MR;
  const int64_t tiles = smelt_gemm_ceil_div(s->m, most), base = s->m / tiles, extra = s->m % tiles;
  const float *a = s->a;
  float *c = s->c;
  for (int64_t t = 0; t < tiles; ++t) {
    const int64_t rows = base + (t < extra);
    smelt_gemm_prefetch_part(&prefetch, t, tiles);
    if (s->cols < panels * SMELT_GEMM_PANEL)
      smelt_gemm_ragged(s, a, s->b, c, rows, s->cols);
    else if (s->nontemporal && panels == SMELT_GEMM_WP)
      smelt_gemm_nt_tile(s, a, c, rows);
    else
      smelt_gemm_block(s, a, s->b, c, s->ldc, rows, panels, s->add, s->b, 1);
    a += rows * s->lda;
    c += rows * s->ldc;
  }
}

/* The columns from `col` on that one tile covers, block by block over k. */
static __attribute__((unused)) void smelt_gemm_unpacked_blocks(const smelt_gemm_slab *s, const smelt_gemm_matrix *b,
                                                            int64_t k0, int64_t col, int64_t panels, int64_t K,
                                                            int64_t depth, float *packed) {
  smelt_gemm_slab part = *s;
  part.cols = smelt_gemm_min(panels * SMELT_GEMM_PANEL, s->cols - col);
  part.c = s->c + col, part.b = packed;
  for (int64_t k = 0; k < K; k += depth, part.add = 1) {
    part.kc = smelt_gemm_min(depth, K - k), part.panel_stride = part.kc * SMELT_GEMM_PANEL;
    part.a = s->a + k;
    smelt_gemm_f32_pack_b(b->at + (k0 + k) * b->k_step + col * b->n_step, b->k_step, b->n_step, part.kc, part.cols, packed, 0,
                          panels);
    const int last = k + depth >= K;
    const int64_t next_col = last ? col + part.cols : col, next_k = last ? k0 : k0 + k + depth;
    const int64_t cols = smelt_gemm_min(part.cols, s->cols - next_col);
    const int64_t next_depth = smelt_gemm_min(depth, k0 + K - next_k);
    smelt_gemm_unpacked_rows(&part, panels, smelt_gemm_prefetch_of(b, next_k, next_depth, next_col, cols));
  }
}

/* All columns of the slab, over K of k from k0 on: panels of a block, and then the next. */
static __attribute__((unused)) void smelt_gemm_unpacked_columns(const smelt_gemm_slab *s, const smelt_gemm_matrix *b,
                                                             int64_t k0, int64_t K, int64_t depth, float *packed) {
  for (int64_t col = 0, panels; col < s->cols; col += panels * SMELT_GEMM_PANEL)
    panels = smelt_gemm_panels(s, col), smelt_gemm_unpacked_blocks(s, b, k0, col, panels, K, depth, packed);
}

/* Up to SMELT_GEMM_MC rows, read in place. */
static __attribute__((unused)) void smelt_gemm_unpacked_pass(smelt_gemm_slab s, const smelt_gemm_matrix *b, int64_t K,
                                                          int64_t depth, float *packed) {
  const int64_t k_outer = SMELT_GEMM_K_OUTER / depth * depth;
  const float *a = s.a;
  for (int64_t k = 0; k < K; k += k_outer) {
    s.a = a + k, s.add = k > 0;
    smelt_gemm_unpacked_columns(&s, b, k, smelt_gemm_min(k_outer, K - k), depth, packed);
  }
}

/* Up to SMELT_GEMM_TRANSPOSED_ROWS rows, transposed block by block. */
static __attribute__((noinline, unused)) void smelt_gemm_unpacked_transposed(smelt_gemm_slab s, int64_t col_stride,
                                                                      const smelt_gemm_matrix *b, int64_t K, int64_t depth,
                                                                      float *packed) {
  float transposed[SMELT_GEMM_TRANSPOSED_ROWS * SMELT_GEMM_TRANSPOSED_LD] __attribute__((aligned(64)));
  const int64_t row_stride = s.lda;
  const float *a = s.a;
  s.a = transposed, s.lda = SMELT_GEMM_TRANSPOSED_LD;
  for (int64_t k = 0; k < K; k += depth) {
    const int64_t kc = smelt_gemm_min(depth, K - k);
    smelt_gemm_pack_a(a + k * col_stride, row_stride, col_stride, s.m, kc, transposed, SMELT_GEMM_TRANSPOSED_LD);
    s.add = k > 0;
    smelt_gemm_unpacked_columns(&s, b, k, kc, depth, packed);
  }
}

/* C points at the place of row 0, column 16 * p0; `columns` is the number of columns of B. K = 0 gives zeros. */
static __attribute__((unused)) void smelt_gemm_f32_unpacked(const float *A, int64_t row_stride, int64_t col_stride,
                                                         const float *B, int64_t k_step, int64_t n_step, int64_t K, float *C,
                                                         int64_t ldc, int64_t m, int64_t p0, int64_t p1, int64_t columns) {
  float packed[SMELT_GEMM_PACKED] __attribute__((aligned(64)));
  const int64_t cols = smelt_gemm_min(columns, p1 * SMELT_GEMM_PANEL) - p0 * SMELT_GEMM_PANEL;
  if (cols <= 0 || m <= 0)
    return;
  if (K <= 0) {
    for (int64_t i = 0; i < m; ++i)
      __builtin_memset(C + i * ldc, 0, (size_t)cols * sizeof(float));
    return;
  }
  const smelt_gemm_matrix b = {B + p0 * SMELT_GEMM_PANEL * n_step, k_step, n_step};
  const int64_t most = col_stride == 1 ? SMELT_GEMM_MC : SMELT_GEMM_TRANSPOSED_ROWS;
  const int64_t depth = smelt_gemm_depth(K), chunks = smelt_gemm_ceil_div(m, most);
  smelt_gemm_slab s = {A, row_stride, packed, 0, 0, C, ldc, m, cols, 0, 0, NULL, 0, 0};
  for (int64_t i = 0, t = 0; t < chunks; ++t, i += s.m) {
    s.m = m / chunks + (t < m % chunks);
    s.a = A + i * row_stride, s.c = C + i * ldc;
    s.nontemporal = smelt_gemm_stores_nt(&s, K);
    if (col_stride == 1)
      smelt_gemm_unpacked_pass(s, &b, K, depth, packed);
    else
      smelt_gemm_unpacked_transposed(s, col_stride, &b, K, depth, packed);
    if (s.nontemporal) smelt_nt_end();
  }
}

/* Suggests a split of the product. Every block of rows lays B out anew, so rows are cut only where A leaves L2, and
 * panels make up for what threads want beyond. */
static __attribute__((unused)) smelt_gemm_tasks smelt_gemm_unpacked_plan(int64_t M, int64_t N, int64_t K) {
  const int64_t panels = smelt_gemm_ceil_div(N > 0 ? N : 1, SMELT_GEMM_PANEL), rows = M > 0 ? M : 1;
  const int64_t tasks = smelt_gemm_min(smelt_gemm_affordable(rows, panels, K), smelt_sizes.unpacked_tasks);
  const int64_t groups = smelt_gemm_ceil_div(panels, SMELT_GEMM_WP);
  const int64_t row_tasks = smelt_gemm_min(smelt_gemm_ceil_div(rows, SMELT_GEMM_MC), rows);
  smelt_gemm_tasks plan = {smelt_gemm_ceil_div(rows, row_tasks), panels, 1, 1};
  plan.row_tasks = smelt_gemm_ceil_div(rows, plan.rows);
  const int64_t panel_tasks = smelt_gemm_min(smelt_gemm_ceil_div(tasks, plan.row_tasks), groups);
  plan.panels = smelt_gemm_min(panels, smelt_gemm_ceil_div(groups, panel_tasks) * SMELT_GEMM_WP);
  plan.panel_tasks = smelt_gemm_ceil_div(panels, plan.panels);
  return plan;
}

#endif
