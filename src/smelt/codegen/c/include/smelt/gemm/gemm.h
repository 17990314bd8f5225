/* f32 GEMM, C = A * B over packed B.
 *
 * Input: A (m x K) row-major or strided; B packed in panels of 16 columns, Bp[(p * K + k) * 16 + j], columns beyond N zero.
 * Output: the columns of panels p0..p1-1, written to C; nothing is written outside m rows and the valid columns.
 * Invariant: an element's bits depend on its row of A, its column of B and K alone: k is cut into blocks whose size
 * depends on K alone, each block is one chain in rising k, and block sums are added in rising order. Row blocking, panel
 * ranges, threads and the packing of A change nothing.
 */
#ifndef SMELT_GEMM_H
#define SMELT_GEMM_H

#include <smelt/base/machine.h>

#include <smelt/gemm/gemm_micro.h>
#include <smelt/gemm/gemm_pack.h>

/* Bytes of panels that the rows of A pass by: they stay in an L1 of 32 KB. This is no formula over the machine: it decides KC, KC
 * decides where a sum of products is cut into blocks that are added, and bits may not depend on caches. */
#ifndef SMELT_GEMM_BLOCK
#define SMELT_GEMM_BLOCK 32768
#endif
/* Largest depth of one block. */
#define SMELT_GEMM_KC (SMELT_GEMM_BLOCK / (SMELT_GEMM_WP * SMELT_GEMM_PANEL * 4))
/* Rows that share one pass over B: their block of A stays in L2. */
#ifndef SMELT_GEMM_ROWS
#define SMELT_GEMM_ROWS smelt_sizes.gemm_rows
#endif
#define SMELT_GEMM_MC (SMELT_GEMM_ROWS / SMELT_GEMM_WIDE_MR * SMELT_GEMM_WIDE_MR)
/* Depth of A that passes by all panels before the rest does: so much of it stays in L2. */
#define SMELT_GEMM_K_OUTER (SMELT_VL == 64 && SMELT_GEMM_KC < 768 ? 768 : SMELT_GEMM_KC < 512 ? 512 : SMELT_GEMM_KC)
/* Leading dimension of A's copy: off a power of two, so that rows do not share a cache set. */
#define SMELT_GEMM_LD (SMELT_GEMM_K_OUTER + 16)
/* Floats of workspace that smelt_gemm_f32 may use for m rows; 64-byte alignment helps and is not required. */
#define SMELT_GEMM_WORKSPACE(m) ((int64_t)((m) < SMELT_GEMM_MC ? (m) : SMELT_GEMM_MC) * SMELT_GEMM_LD)

SMELT_GEMM_INLINE int64_t smelt_gemm_ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
SMELT_GEMM_INLINE int64_t smelt_gemm_min(int64_t a, int64_t b) { return a < b ? a : b; }

/* Depth of a block: K cut evenly, a multiple of 4. */
SMELT_GEMM_INLINE int64_t smelt_gemm_depth(int64_t K) {
  const int64_t blocks = smelt_gemm_ceil_div(K, SMELT_GEMM_KC);
  return blocks <= 1 ? K : (smelt_gemm_ceil_div(K, blocks) + 3) & ~(int64_t)3;
}

/* What a pass over some panels needs to know; panel strides and column counts are in floats. */
typedef struct {
  const float *a;
  int64_t lda;
  const float *b; /* first panel, first k of the block */
  int64_t panel_stride;
  int64_t kc;
  float *c;
  int64_t ldc, m;
  int64_t cols; /* valid columns, from the first panel on */
  int add;
  int nontemporal; /* whole tiles are written by non-temporal stores */
  const float *prefetch; /* panels to prefetch in the last tiles, NULL: those that lie behind them */
  int64_t prefetch_stride, next_stride; /* from one of those to the next; the same of what tiles prefetch, 0: panel_stride */
} smelt_gemm_slab;

/* `rows` rows of one panel of which only `cols` columns exist in C. */
static __attribute__((unused)) void smelt_gemm_ragged(const smelt_gemm_slab *s, const float *a, const float *b, float *c,
                                                      int64_t rows, int64_t cols);

/* One tile of `rows` x `panels` panels (1, SMELT_GEMM_NP or SMELT_GEMM_WP), all columns valid. */
SMELT_GEMM_INLINE void smelt_gemm_block(const smelt_gemm_slab *s, const float *a, const float *b, float *c, int64_t ldc,
                                        int64_t rows, int64_t panels, int add, const float *next, int lines) {
#ifdef SMELT_GEMM_EAGER_ROWS
  if (lines > 1) {
    smelt_gemm_eager[rows](a, s->lda, b, s->panel_stride, s->kc, c, ldc, add, next);
    return;
  }
#endif
  (void)lines;
#if SMELT_VL == 64
  const smelt_gemm_tile *tiles = panels == 1 ? smelt_gemm_narrow : panels == SMELT_GEMM_WP ? smelt_gemm_wide : smelt_gemm_main;
  tiles[rows](a, s->lda, b, s->panel_stride, s->kc, c, ldc, add, next);
#else
  (void)panels;
  for (int64_t j = 0; j < SMELT_GEMM_PANEL; j += SMELT_GEMM_NV * SMELT_GEMM_LANES)
    smelt_gemm_main[rows](a, s->lda, b + j, s->panel_stride, s->kc, c + j, ldc, add, next);
#endif
}

static __attribute__((unused)) void smelt_gemm_ragged(const smelt_gemm_slab *s, const float *a, const float *b, float *c,
                                                      int64_t rows, int64_t cols) {
  float tile[SMELT_GEMM_MR * SMELT_GEMM_PANEL];
  smelt_gemm_block(s, a, b, tile, SMELT_GEMM_PANEL, rows, 1, 0, b, 1);
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < cols; ++j) {
      float *to = c + i * s->ldc + j;
      *to = s->add ? *to + tile[i * SMELT_GEMM_PANEL + j] : tile[i * SMELT_GEMM_PANEL + j];
    }
}

/* Whether the rows of the slab, as blocks of m, are an odd one: of two tasks for the same panels one is. */
SMELT_GEMM_INLINE int smelt_gemm_odd(const smelt_gemm_slab *s) {
  const int64_t block = s->m * s->lda * (int64_t)sizeof(float);
  return block > 0 && ((uintptr_t)s->a / (uintptr_t)block & 1);
}

/* Where tile t prefetches: a tile touches kc / 4 lines, or twice as many, so four or two tiles bring one panel of what comes
 * next. Tasks of few rows do not get to all panels: odd ones begin with the last. Panels come in powers of two: each tile does
 * this, and would wait for divisions. */
SMELT_GEMM_INLINE const float *smelt_gemm_next(const smelt_gemm_slab *s, const float *next, int64_t panels, int64_t t,
                                               int odd, int lines) {
  const int shift = lines > 1 ? 1 : 2;
  const int64_t each = (int64_t)1 << shift;
  t &= each * panels - 1;
  t = odd ? each * panels - 1 - t : t;
  const int64_t stride = s->next_stride ? s->next_stride : s->panel_stride;
  return next + (t >> shift) * stride + (t & (each - 1)) * (s->kc / 4 * lines) * SMELT_GEMM_PANEL;
}

/* Lines that tiles of at least `rows` rows prefetch at a time. */
SMELT_GEMM_INLINE int smelt_gemm_lines(int64_t tiles, int64_t panels, int64_t rows) {
#ifdef SMELT_GEMM_EAGER_ROWS
  return tiles < 4 * panels && panels == SMELT_GEMM_WP && rows >= SMELT_GEMM_EAGER_ROWS ? 2 : 1;
#else
  (void)tiles, (void)panels, (void)rows;
  return 1;
#endif
}

/* How the rows of a slab are cut into tiles: evenly, so that no tile is left with a row or two, where latency would show. */
typedef struct {
  int64_t count, rows, taller; /* tiles, rows of each, and how many of them have one more */
  int lines, odd;              /* see smelt_gemm_next() */
} smelt_gemm_tiles;

SMELT_GEMM_INLINE smelt_gemm_tiles smelt_gemm_tiles_of(const smelt_gemm_slab *s, int64_t panels) {
  const int64_t most = panels < SMELT_GEMM_NP   ? SMELT_GEMM_NARROW_MR
                       : panels < SMELT_GEMM_WP ? SMELT_GEMM_MR
                                                : SMELT_GEMM_WIDE_MR;
  const int64_t count = smelt_gemm_ceil_div(s->m, most);
  const int lines = smelt_gemm_lines(count, panels, s->m / count);
  smelt_gemm_tiles tiles = {count, s->m / count, s->m % count, lines, count * lines < 4 * panels && smelt_gemm_odd(s)};
  return tiles;
}

#ifdef SMELT_GEMM_HALF_MR
/* All rows of the slab times the first half of the panel at column `col`, of which `cols` columns are valid. */
static __attribute__((noinline, unused)) void smelt_gemm_half_rows(const smelt_gemm_slab *s, int64_t col, int64_t cols,
                                                                   const float *next) {
  const int64_t count = smelt_gemm_ceil_div(s->m, SMELT_GEMM_HALF_MR);
  const float *a = s->a, *b = s->b + col / SMELT_GEMM_PANEL * s->panel_stride;
  float *c = s->c + col, tile[SMELT_GEMM_HALF_MR * SMELT_GEMM_HALF];
  for (int64_t t = 0, rows; t < count; ++t, a += rows * s->lda, c += rows * s->ldc) {
    rows = s->m / count + (t < s->m % count);
    const float *prefetch = smelt_gemm_next(s, next, 1, t, 0, 1);
    if (cols == SMELT_GEMM_HALF) {
      smelt_gemm_half[rows](a, s->lda, b, s->panel_stride, s->kc, c, s->ldc, s->add, prefetch);
      continue;
    }
    smelt_gemm_half[rows](a, s->lda, b, s->panel_stride, s->kc, tile, SMELT_GEMM_HALF, 0, prefetch);
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t j = 0; j < cols; ++j) {
        float *to = c + i * s->ldc + j;
        *to = s->add ? *to + tile[i * SMELT_GEMM_HALF + j] : tile[i * SMELT_GEMM_HALF + j];
      }
  }
}
#endif

/* All rows of the slab times `panels` panels from column `col` on, of which `cols` columns are valid. Tiles prefetch `next`
 * on the way. */
static __attribute__((unused)) void smelt_gemm_rows(const smelt_gemm_slab *s, int64_t col, int64_t panels, int64_t cols,
                                                    const float *next) {
#ifdef SMELT_GEMM_HALF_MR
  if (cols <= SMELT_GEMM_HALF) {
    smelt_gemm_half_rows(s, col, cols, next);
    return;
  }
#endif
  const smelt_gemm_tiles tiles = smelt_gemm_tiles_of(s, panels);
  const float *a = s->a, *b = s->b + col / SMELT_GEMM_PANEL * s->panel_stride;
  float *c = s->c + col;
  for (int64_t t = 0; t < tiles.count; ++t) {
    const int64_t rows = tiles.rows + (t < tiles.taller);
    if (cols < panels * SMELT_GEMM_PANEL)
      smelt_gemm_ragged(s, a, b, c, rows, cols);
    else
      smelt_gemm_block(s, a, b, c, s->ldc, rows, panels, s->add,
                       smelt_gemm_next(s, next, panels, t, tiles.odd, tiles.lines), tiles.lines);
    a += rows * s->lda;
    c += rows * s->ldc;
  }
}

/* Panels of the tiles from column `col` on. */
SMELT_GEMM_INLINE int64_t smelt_gemm_panels(const smelt_gemm_slab *s, int64_t col) {
  const int64_t whole = (s->cols - col) / SMELT_GEMM_PANEL;
  return whole >= SMELT_GEMM_WP ? SMELT_GEMM_WP : whole >= SMELT_GEMM_NP ? SMELT_GEMM_NP : 1;
}

/* All columns of the slab from `col` on. After the last ones comes the next block of k. */
static __attribute__((unused)) void smelt_gemm_columns(const smelt_gemm_slab *s, int64_t col) {
  for (int64_t panels, cols; col < s->cols; col += cols) {
    panels = smelt_gemm_panels(s, col), cols = smelt_gemm_min(panels * SMELT_GEMM_PANEL, s->cols - col);
    const float *following = s->b + (col / SMELT_GEMM_PANEL + panels) * s->panel_stride;
    smelt_gemm_rows(s, col, panels, cols, col + cols < s->cols ? following : s->b + s->kc * SMELT_GEMM_PANEL);
  }
}

/* Small M: each group of panels is read once from its first k to its last. */
static __attribute__((unused)) void smelt_gemm_thin_pass(smelt_gemm_slab s, int64_t K, int64_t depth) {
  const int64_t group = smelt_gemm_thin_panels[s.m] * SMELT_GEMM_PANEL;
  const float *a = s.a, *b = s.b;
  int64_t col = 0;
  for (; s.cols - col >= group; col += group)
    for (int64_t k = 0; k < K; k += depth)
      smelt_gemm_thin[s.m](a + k, s.lda, b + col / SMELT_GEMM_PANEL * s.panel_stride + k * SMELT_GEMM_PANEL,
                           s.panel_stride, smelt_gemm_min(depth, K - k), s.c + col, s.ldc, k > 0, b);
  for (int64_t k = 0; k < K && col < s.cols; k += depth) {
    s.a = a + k, s.b = b + k * SMELT_GEMM_PANEL, s.kc = smelt_gemm_min(depth, K - k), s.add = k > 0;
    smelt_gemm_columns(&s, col);
  }
}

/* The columns from `col` on that one tile covers, block by block over k. After the last block come the panels that follow:
 * they may be another task's, and are closer then all the same. */
static __attribute__((unused)) void smelt_gemm_blocks(const smelt_gemm_slab *s, int64_t col, int64_t panels, int64_t K,
                                                      int64_t depth) {
  const int64_t cols = smelt_gemm_min(panels * SMELT_GEMM_PANEL, s->cols - col), first = col / SMELT_GEMM_PANEL;
  smelt_gemm_slab part = *s;
  for (int64_t k = 0; k < K; k += depth, part.add = 1) {
    part.a = s->a + k, part.b = s->b + k * SMELT_GEMM_PANEL, part.kc = smelt_gemm_min(depth, K - k);
    const float *here = part.b + first * s->panel_stride, *following = s->b + (first + panels) * s->panel_stride;
    const int ends = k + depth >= K, last = ends && s->prefetch && col + cols >= s->cols;
    part.next_stride = last ? s->prefetch_stride : 0;
    smelt_gemm_rows(&part, col, panels, cols, last ? s->prefetch : ends ? following : here + part.kc * SMELT_GEMM_PANEL);
  }
}

/* Depth of an outer K block: as much of A as stays in L2, in whole blocks. */
SMELT_GEMM_INLINE int64_t smelt_gemm_k_outer(int64_t depth) { return SMELT_GEMM_K_OUTER / depth * depth; }

/* Up to SMELT_GEMM_MC rows. */
static __attribute__((unused)) void smelt_gemm_pass(smelt_gemm_slab s, const float *A, int64_t row_stride,
                                                    int64_t col_stride, int64_t K, int64_t depth, float *workspace) {
  const int64_t k_outer = smelt_gemm_k_outer(depth);
  const float *b = s.b, *prefetch = s.prefetch;
  const int add = s.add;
  for (int64_t k = 0; k < K; k += k_outer) {
    const int64_t part = smelt_gemm_min(k_outer, K - k);
    s.prefetch = k + k_outer < K ? NULL : prefetch;
    s.a = A + k * col_stride, s.lda = row_stride, s.b = b + k * SMELT_GEMM_PANEL, s.add = add || k > 0;
    if (col_stride != 1) {
      smelt_gemm_pack_a(s.a, row_stride, col_stride, s.m, part, workspace, SMELT_GEMM_LD);
      s.a = workspace, s.lda = SMELT_GEMM_LD;
    }
    for (int64_t col = 0, panels; col < s.cols; col += panels * SMELT_GEMM_PANEL)
      panels = smelt_gemm_panels(&s, col), smelt_gemm_blocks(&s, col, panels, part, depth);
  }
}

/* All rows of the slab, over K of its depth. */
static __attribute__((unused)) void smelt_gemm_chunks(smelt_gemm_slab s, const float *A, int64_t row_stride,
                                                      int64_t col_stride, int64_t K, int64_t depth, float *workspace) {
  const int64_t m = s.m, chunks = smelt_gemm_ceil_div(m, SMELT_GEMM_MC);
  float *C = s.c;
  for (int64_t i = 0, t = 0; t < chunks; ++t, i += s.m) {
    s.m = m / chunks + (t < m % chunks);
    s.c = C + i * s.ldc;
    smelt_gemm_pass(s, A + i * row_stride, row_stride, col_stride, K, depth, workspace);
  }
}

/* The product with A's element (i, k) at A[i * row_stride + k * col_stride] and panels that are `whole` deep, of which Bp is
 * the first row of K. Unless col_stride is 1, workspace must hold SMELT_GEMM_WORKSPACE(m) floats. See smelt_gemm_f32 for the
 * rest. */
static __attribute__((unused)) void smelt_gemm_f32_within(const float *A, int64_t row_stride, int64_t col_stride,
                                                          const float *Bp, int64_t whole, int64_t K, float *C, int64_t ldc,
                                                          int64_t m, int64_t p0, int64_t p1, int64_t n_valid,
                                                          float *workspace) {
  const int64_t cols = smelt_gemm_min(n_valid, p1 * SMELT_GEMM_PANEL) - p0 * SMELT_GEMM_PANEL;
  if (cols <= 0 || m <= 0)
    return;
  if (K <= 0) {
    for (int64_t i = 0; i < m; ++i)
      __builtin_memset(C + i * ldc, 0, (size_t)cols * sizeof(float));
    return;
  }
  const int64_t depth = smelt_gemm_depth(K);
  smelt_gemm_slab s = {A, row_stride, Bp + p0 * whole * SMELT_GEMM_PANEL, whole * SMELT_GEMM_PANEL, 0, C, ldc, m, cols, 0, 0,
                       NULL, 0, 0};
  if (m <= SMELT_GEMM_THIN_ROWS && col_stride == 1) {
    smelt_gemm_thin_pass(s, K, depth);
    return;
  }
  smelt_gemm_chunks(s, A, row_stride, col_stride, K, depth, workspace);
}

static __attribute__((unused)) void smelt_gemm_f32_strided(const float *A, int64_t row_stride, int64_t col_stride,
                                                           const float *Bp, int64_t K, float *C, int64_t ldc, int64_t m,
                                                           int64_t p0, int64_t p1, int64_t n_valid, float *workspace) {
  smelt_gemm_f32_within(A, row_stride, col_stride, Bp, K, K, C, ldc, m, p0, p1, n_valid, workspace);
}

/* C[0..m-1][0..] = the columns of panels p0..p1-1 of A * B. C points at the place of row 0, column 16 * p0. n_valid is the
 * number of columns that exist, counted from panel 0: N for a real output, 16 * p1 or more for a padded buffer. A is
 * read in place, and workspace may be NULL. K = 0 gives zeros. Bp on a 64-byte boundary is faster. */
static __attribute__((unused)) void smelt_gemm_f32(const float *A, int64_t lda, const float *Bp, int64_t K, float *C,
                                                   int64_t ldc, int64_t m, int64_t p0, int64_t p1, int64_t n_valid,
                                                   float *workspace) {
  smelt_gemm_f32_strided(A, lda, 1, Bp, K, C, ldc, m, p0, p1, n_valid, workspace);
}

/* The same with the panels that are read next, and the floats from one of them to the next. */
static __attribute__((unused)) void smelt_gemm_f32_prefetch(const float *A, int64_t lda, const float *Bp, int64_t K, float *C,
                                                          int64_t ldc, int64_t m, int64_t p0, int64_t p1, int64_t n_valid,
                                                          const float *prefetch, int64_t prefetch_stride) {
  const int64_t cols = smelt_gemm_min(n_valid, p1 * SMELT_GEMM_PANEL) - p0 * SMELT_GEMM_PANEL;
  if (cols <= 0 || m <= SMELT_GEMM_THIN_ROWS || K <= 0) {
    smelt_gemm_f32(A, lda, Bp, K, C, ldc, m, p0, p1, n_valid, NULL);
    return;
  }
  const smelt_gemm_slab s = {A, lda, Bp + p0 * K * SMELT_GEMM_PANEL, K * SMELT_GEMM_PANEL, 0, C, ldc, m, cols, 0, 0,
                             prefetch, prefetch_stride, 0};
  smelt_gemm_chunks(s, A, lda, 1, K, smelt_gemm_depth(K), NULL);
}

/* Terms of a K block of a product that is computed block by block. */
SMELT_GEMM_INLINE int64_t smelt_gemm_k_block(int64_t K) { return K > SMELT_GEMM_KC ? smelt_gemm_k_outer(smelt_gemm_depth(K)) : K; }

/* `terms` terms from `from` on, K of them or a K block; those of the first block are stored, others are added to what is there.
 * All blocks after each other give the bits of smelt_gemm_f32. */
static __attribute__((unused)) void smelt_gemm_f32_k_block(const float *A, int64_t lda, const float *Bp, int64_t K, int64_t from,
                                                        int64_t terms, float *C, int64_t ldc, int64_t m, int64_t p0,
                                                        int64_t p1, int64_t n_valid) {
  const int64_t cols = smelt_gemm_min(n_valid, p1 * SMELT_GEMM_PANEL) - p0 * SMELT_GEMM_PANEL;
  if (terms >= K) {
    smelt_gemm_f32(A, lda, Bp, K, C, ldc, m, p0, p1, n_valid, NULL);
    return;
  }
  if (cols <= 0 || m <= 0)
    return;
  const float *b = Bp + (p0 * K + from) * SMELT_GEMM_PANEL;
  const smelt_gemm_slab s = {A, lda, b, K * SMELT_GEMM_PANEL, 0, C, ldc, m, cols, from > 0, 0, NULL, 0, 0};
  smelt_gemm_chunks(s, A + from, lda, 1, smelt_gemm_min(terms, K - from), smelt_gemm_depth(K), NULL);
}

/* How to share a product among tasks: task t does rows (t % row_tasks) * rows.. and panels (t / row_tasks) * panels.. */
typedef struct {
  int64_t rows, panels;           /* of one task; the last ones may be smaller */
  int64_t row_tasks, panel_tasks; /* tasks = row_tasks * panel_tasks */
} smelt_gemm_tasks;

/* Multiply-adds below which a task costs more to hand out than it brings. */
#ifndef SMELT_GEMM_GRAIN
#define SMELT_GEMM_GRAIN 50000
#endif
/* Rows below which a task that reads all of B waits for memory rather than computes. */
#define SMELT_GEMM_WHOLE_ROWS 24

/* Tasks that a product could be cut into without going below the grain. */
SMELT_GEMM_INLINE int64_t smelt_gemm_affordable(int64_t rows, int64_t panels, int64_t K) {
  const double tasks = (double)rows * (double)panels * SMELT_GEMM_PANEL * (double)(K > 0 ? K : 1) / SMELT_GEMM_GRAIN;
  return tasks < 1 ? 1 : tasks > 1e9 ? 1000000000 : (int64_t)tasks;
}

/* Rows that a task should not exceed. */
SMELT_GEMM_INLINE int64_t smelt_gemm_row_limit(int64_t panels, int whole_rows) {
  const int64_t fitting = smelt_sizes.epilogue_floats / (panels * SMELT_GEMM_PANEL);
  if (!whole_rows || fitting >= SMELT_GEMM_MC)
    return SMELT_GEMM_MC;
  return fitting > SMELT_GEMM_WHOLE_ROWS ? fitting : SMELT_GEMM_WHOLE_ROWS;
}

/* Blocks of rows when each task needs all columns: enough for all threads, in equal turns. */
SMELT_GEMM_INLINE int64_t smelt_gemm_whole_row_tasks(int64_t rows, int64_t tasks, int64_t threads) {
  const int64_t wanted = smelt_gemm_ceil_div(rows, SMELT_GEMM_WHOLE_ROWS), team = threads > 0 ? threads : 2;
  const int64_t row_tasks = smelt_gemm_min(tasks, threads > wanted ? threads : wanted);
  return row_tasks <= 1 ? 1 : smelt_gemm_min(smelt_gemm_ceil_div(row_tasks, team) * team, tasks);
}

/* Blocks of rows where groups of panels are too few to share among threads of unknown number and speed without much waiting at
 * the end. Tasks of the same panels follow each other, and find them in L2; small products are better left whole. Panels that
 * come from memory want 96 rows to wait for: from 12 groups on, which are nearly enough by themselves, rows are cut no lower. */
SMELT_GEMM_INLINE int64_t smelt_gemm_row_rounds(int64_t rows, int64_t groups, int64_t columns, int64_t K) {
  const int64_t wanted = smelt_gemm_ceil_div(smelt_sizes.gemm_rounds, groups), tall = rows / (groups < 12 ? 48 : 96);
  const double each = (double)rows * (double)columns * (double)K / 2e6;
  if (wanted <= 1 || tall <= 1 || each < 2 || columns * K * 4 > smelt_sizes.group_bytes)
    return 1;
  return smelt_gemm_min(smelt_gemm_min(wanted, tall), each > 128 ? 128 : (int64_t)each);
}

/* Panels that go through a tile together, of which a task has one or several. Where all panels of a few rows would be one
 * tile, which waits for memory and not for its sums, each of two threads has half of them. */
SMELT_GEMM_INLINE int64_t smelt_gemm_group(int64_t rows, int64_t panels, int64_t affordable) {
  if (rows > SMELT_GEMM_THIN_ROWS) return SMELT_GEMM_WP;
  const int64_t whole = smelt_gemm_thin_panels[rows];
  return affordable < 2 || panels > whole || panels < 2 ? whole : smelt_gemm_ceil_div(panels, 2);
}

/* Suggests a split of an M x N x K product. threads <= 0: unknown. whole_rows: an epilogue needs all columns of a row.
 * Otherwise rows are cut only where cache asks for it, so that B is read as few times as possible, and panels make up the
 * rest. One thread gets blocks of rows too: their epilogue finds them in cache. */
static __attribute__((unused)) smelt_gemm_tasks smelt_gemm_plan(int64_t M, int64_t N, int64_t K, int64_t threads,
                                                                int whole_rows) {
  const int64_t panels = smelt_gemm_ceil_div(N > 0 ? N : 1, SMELT_GEMM_PANEL), rows = M > 0 ? M : 1;
  const int64_t affordable = smelt_gemm_affordable(rows, panels, K);
  const int64_t tasks = smelt_gemm_min(affordable, threads == 1 ? 1 : threads > 0 ? 6 * threads : smelt_sizes.gemm_tasks);
  const int64_t passes = smelt_gemm_ceil_div(rows, smelt_gemm_row_limit(panels, whole_rows));
  const int64_t group = smelt_gemm_group(rows, panels, affordable);
  const int64_t groups = smelt_gemm_ceil_div(panels, group);
  const int64_t columns_short = threads > 0 ? smelt_gemm_min(smelt_gemm_ceil_div(threads, groups),
                                                             smelt_gemm_ceil_div(rows, SMELT_GEMM_WIDE_MR))
                                            : smelt_gemm_row_rounds(rows, groups, group * SMELT_GEMM_PANEL, K);
  const int64_t shares = whole_rows ? smelt_gemm_whole_row_tasks(rows, tasks, threads) : columns_short;
  const int64_t row_tasks = smelt_gemm_min(smelt_gemm_min(passes > shares ? passes : shares, affordable), rows);
  smelt_gemm_tasks plan = {smelt_gemm_ceil_div(rows, row_tasks), panels, 1, 1};
  plan.row_tasks = smelt_gemm_ceil_div(rows, plan.rows);
  if (whole_rows)
    return plan;
  const int64_t panel_tasks = smelt_gemm_min(smelt_gemm_ceil_div(tasks, plan.row_tasks), groups);
  plan.panels = smelt_gemm_min(panels, smelt_gemm_ceil_div(groups, panel_tasks) * group);
  plan.panel_tasks = smelt_gemm_ceil_div(panels, plan.panels);
  return plan;
}

#endif
