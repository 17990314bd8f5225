/* Micro-kernels with a register epilogue: bias, addend and limits are applied to the sums before the only store.
 *
 * Input:     smelt_gemm_slab, whose block holds the sums of the blocks of k before the last one; smelt_epilogue.
 * Output:    smelt_epilogue_rows(). Invariant: bits are those of smelt_gemm_rows() followed by smelt_epilogue_block().
 */
#ifndef SMELT_CONVOLVE_EPILOGUE_H
#define SMELT_CONVOLVE_EPILOGUE_H

#include <smelt/conv/epilogue.h>
#include <smelt/gemm/gemm.h>

#if defined(SMELT_TILES_LINKED) || defined(SMELT_TILES_UNIT)
#define smelt_epilogue_narrow SMELT_NAME(smelt_epilogue_narrow)
#define smelt_epilogue_main SMELT_NAME(smelt_epilogue_main)
#define smelt_epilogue_wide SMELT_NAME(smelt_epilogue_wide)
#define smelt_epilogue_eager SMELT_NAME(smelt_epilogue_eager)
#endif

/* The usual sums have a bias alone; others may have sums before them and something that is added. */
#define SMELT_EPILOGUE_BIAS(I, J) const v_f32 bias##J = ld_f32(f->bias + SMELT_TILE_COL(J));
#define SMELT_EPILOGUE_1(I, J) st_f32(to + SMELT_TILE_COL(J), smelt_limited((v_f32)c##I##_##J + bias##J, least, most));
#define SMELT_EPILOGUE_MORE_1(I, J)                                                                                      \
  st_f32(to + SMELT_TILE_COL(J), smelt_limited(ld_f32(sums + SMELT_TILE_COL(J)) + (v_f32)c##I##_##J + bias##J +         \
                                                   ld_f32(added + SMELT_TILE_COL(J)), least, most));
#define SMELT_EPILOGUE_NEXT to += f->ld;
#define SMELT_EPILOGUE_MORE_NEXT to += f->ld, sums += sums_step, added += added_step;
#define SMELT_ROW_EPILOGUE_1(I, B, O, U) SMELT_COLS_1(SMELT_EPILOGUE_1, I) SMELT_EPILOGUE_NEXT
#define SMELT_ROW_EPILOGUE_2(I, B, O, U) SMELT_COLS_2(SMELT_EPILOGUE_1, I) SMELT_EPILOGUE_NEXT
#define SMELT_ROW_EPILOGUE_4(I, B, O, U) SMELT_COLS_4(SMELT_EPILOGUE_1, I) SMELT_EPILOGUE_NEXT
#define SMELT_ROW_EPILOGUE_MORE_1(I, B, O, U) SMELT_COLS_1(SMELT_EPILOGUE_MORE_1, I) SMELT_EPILOGUE_MORE_NEXT
#define SMELT_ROW_EPILOGUE_MORE_2(I, B, O, U) SMELT_COLS_2(SMELT_EPILOGUE_MORE_1, I) SMELT_EPILOGUE_MORE_NEXT
#define SMELT_ROW_EPILOGUE_MORE_4(I, B, O, U) SMELT_COLS_4(SMELT_EPILOGUE_MORE_1, I) SMELT_EPILOGUE_MORE_NEXT

/* What stands for sums or an addend that do not exist: x + -0 is x, whatever x is. */
static __attribute__((unused)) const float smelt_no_epilogue[4 * SMELT_GEMM_PANEL] = {[0 ... 4 * SMELT_GEMM_PANEL - 1] = -0.0f};

/* Stores a tile of sums. */
#define SMELT_EPILOGUE_TILE(R, W)                                                                                        \
  const v_f32 least = bc_f32(f->least), most = bc_f32(f->most);                                                        \
  float *to = f->to;                                                                                                   \
  SMELT_COLS_##W(SMELT_EPILOGUE_BIAS, 0)                                                                                 \
  if (f->sums || f->added) {                                                                                           \
    const float *sums = f->sums ? f->sums : smelt_no_epilogue, *added = f->added ? f->added : smelt_no_epilogue; \
    const int64_t sums_step = f->sums ? f->sums_ld : 0, added_step = f->added ? f->ld : 0;                             \
    SMELT_ROWS_##R(SMELT_ROW_EPILOGUE_MORE_##W, 0)                                                                       \
  } else {                                                                                                             \
    SMELT_ROWS_##R(SMELT_ROW_EPILOGUE_##W, 0)                                                                            \
  }

#define SMELT_EPILOGUE_MICRO_AS(NAME, R, W, LINES) SMELT_TILE(SMELT_EPILOGUE_MICRO_CODE(NAME, R, W, LINES))
#define SMELT_EPILOGUE_MICRO_CODE(NAME, R, W, LINES)                                                                     \
  static __attribute__((noinline)) void SMELT_MICRO(NAME, R, W)(const float *a_, int64_t lda, const float *b_,         \
                                                                 int64_t panel_stride, int64_t kc, const float *next,  \
                                                                 const smelt_epilogue *f) {                              \
    SMELT_GEMM_SUMS(R, W, LINES, f->to, f->ld)                                                                         \
    SMELT_EPILOGUE_TILE(R, W)                                                                                            \
  }
#define SMELT_EPILOGUE_MICRO(R, W) SMELT_EPILOGUE_MICRO_AS(f32_gemm_epilogue, R, W, 1)
#define SMELT_EPILOGUE_MICRO_3(W) SMELT_EPILOGUE_MICRO(1, W) SMELT_EPILOGUE_MICRO(2, W) SMELT_EPILOGUE_MICRO(3, W)
#define SMELT_EPILOGUE_MICRO_6(W) SMELT_EPILOGUE_MICRO_3(W) SMELT_EPILOGUE_MICRO(4, W) SMELT_EPILOGUE_MICRO(5, W) SMELT_EPILOGUE_MICRO(6, W)
#define SMELT_EPILOGUE_MICRO_14(W)                                                                                       \
  SMELT_EPILOGUE_MICRO_6(W) SMELT_EPILOGUE_MICRO(7, W) SMELT_EPILOGUE_MICRO(8, W) SMELT_EPILOGUE_MICRO(9, W)                   \
  SMELT_EPILOGUE_MICRO(10, W) SMELT_EPILOGUE_MICRO(11, W) SMELT_EPILOGUE_MICRO(12, W) SMELT_EPILOGUE_MICRO(13, W)              \
  SMELT_EPILOGUE_MICRO(14, W)
#define SMELT_EPILOGUE_NAME(R, W) SMELT_MICRO(f32_gemm_epilogue, R, W)
#define SMELT_EPILOGUE_NAMES_3(W) 0, SMELT_EPILOGUE_NAME(1, W), SMELT_EPILOGUE_NAME(2, W), SMELT_EPILOGUE_NAME(3, W)
#define SMELT_EPILOGUE_NAMES_6(W) SMELT_EPILOGUE_NAMES_3(W), SMELT_EPILOGUE_NAME(4, W), SMELT_EPILOGUE_NAME(5, W), SMELT_EPILOGUE_NAME(6, W)
#define SMELT_EPILOGUE_NAMES_14(W)                                                                                       \
  SMELT_EPILOGUE_NAMES_6(W), SMELT_EPILOGUE_NAME(7, W), SMELT_EPILOGUE_NAME(8, W), SMELT_EPILOGUE_NAME(9, W), SMELT_EPILOGUE_NAME(10, W),            \
      SMELT_EPILOGUE_NAME(11, W), SMELT_EPILOGUE_NAME(12, W), SMELT_EPILOGUE_NAME(13, W), SMELT_EPILOGUE_NAME(14, W)

typedef void (*smelt_epilogue_tile)(const float *a, int64_t lda, const float *b, int64_t panel_stride, int64_t kc,
                                  const float *next, const smelt_epilogue *f);

#if SMELT_VL == 64 && defined(__AVX512F__)
SMELT_EPILOGUE_MICRO_14(1) SMELT_EPILOGUE_MICRO_14(2) SMELT_EPILOGUE_MICRO_6(4) SMELT_EPILOGUE_MICRO_AS(f32_gemm_epilogue_eager, 5, 4, 2) SMELT_EPILOGUE_MICRO_AS(f32_gemm_epilogue_eager, 6, 4, 2)
SMELT_TILES(smelt_epilogue_tile, smelt_epilogue_narrow, SMELT_EPILOGUE_NAMES_14(1))
SMELT_TILES(smelt_epilogue_tile, smelt_epilogue_main, SMELT_EPILOGUE_NAMES_14(2))
SMELT_TILES(smelt_epilogue_tile, smelt_epilogue_wide, SMELT_EPILOGUE_NAMES_6(4))
SMELT_TILES(smelt_epilogue_tile, smelt_epilogue_eager, 0, 0, 0, 0, 0, SMELT_MICRO(f32_gemm_epilogue_eager, 5, 4), SMELT_MICRO(f32_gemm_epilogue_eager, 6, 4))
#elif SMELT_VL == 64
SMELT_EPILOGUE_MICRO_3(1) SMELT_EPILOGUE_MICRO_3(2) SMELT_EPILOGUE_MICRO(4, 2) SMELT_EPILOGUE_MICRO(5, 2) SMELT_EPILOGUE_MICRO(1, 4)
SMELT_EPILOGUE_MICRO(2, 4)
SMELT_TILES(smelt_epilogue_tile, smelt_epilogue_narrow, SMELT_EPILOGUE_NAMES_3(1))
SMELT_TILES(smelt_epilogue_tile, smelt_epilogue_main, SMELT_EPILOGUE_NAMES_3(2), SMELT_EPILOGUE_NAME(4, 2), SMELT_EPILOGUE_NAME(5, 2))
SMELT_TILES(smelt_epilogue_tile, smelt_epilogue_wide, 0, SMELT_EPILOGUE_NAME(1, 4), SMELT_EPILOGUE_NAME(2, 4))
#elif SMELT_VL == 32
SMELT_EPILOGUE_MICRO_6(2)
SMELT_TILES(smelt_epilogue_tile, smelt_epilogue_main, SMELT_EPILOGUE_NAMES_6(2))
#elif defined(__aarch64__)
SMELT_EPILOGUE_MICRO_6(4)
SMELT_TILES(smelt_epilogue_tile, smelt_epilogue_main, SMELT_EPILOGUE_NAMES_6(4))
#else
SMELT_EPILOGUE_MICRO_3(2) SMELT_EPILOGUE_MICRO(4, 2)
SMELT_TILES(smelt_epilogue_tile, smelt_epilogue_main, SMELT_EPILOGUE_NAMES_3(2), SMELT_EPILOGUE_NAME(4, 2))
#endif

/* One tile of `rows` x `panels` panels. */
SMELT_GEMM_INLINE void smelt_epilogue_one(const smelt_gemm_slab *s, const float *a, const float *b, int64_t rows,
                                        int64_t panels, const float *next, int lines, const smelt_epilogue *f) {
#ifdef SMELT_GEMM_EAGER_ROWS
  if (lines > 1) {
    smelt_epilogue_eager[rows](a, s->lda, b, s->panel_stride, s->kc, next, f);
    return;
  }
#endif
  (void)lines;
#if SMELT_VL == 64
  const smelt_epilogue_tile *tiles = panels == 1 ? smelt_epilogue_narrow : panels == SMELT_GEMM_WP ? smelt_epilogue_wide : smelt_epilogue_main;
  tiles[rows](a, s->lda, b, s->panel_stride, s->kc, next, f);
#else
  (void)panels;
  for (int64_t j = 0; j < SMELT_GEMM_PANEL; j += SMELT_GEMM_NV * SMELT_GEMM_LANES) {
    const smelt_epilogue there = smelt_epilogue_at(f, 0, j);
    smelt_epilogue_main[rows](a, s->lda, b + j, s->panel_stride, s->kc, next, &there);
  }
#endif
}

/* All rows of the slab times `panels` panels from column `col` on, as smelt_gemm_rows() cuts them. Where the last panel has
 * columns that do not exist, its sums go by the block, which has room for them. */
static __attribute__((unused)) void smelt_epilogue_rows(const smelt_gemm_slab *s, int64_t col, int64_t panels, const float *next,
                                                      const smelt_epilogue *epilogue) {
  smelt_epilogue f = smelt_epilogue_at(epilogue, 0, col);
  if (f.columns < panels * SMELT_GEMM_PANEL) {
    smelt_gemm_rows(s, col, panels, f.columns <= SMELT_GEMM_HALF ? SMELT_GEMM_HALF : panels * SMELT_GEMM_PANEL, next);
    smelt_epilogue_block(&f, s->c + col, s->ldc, s->m);
    return;
  }
  f.sums = s->add ? s->c + col : NULL, f.sums_ld = s->ldc;
  const smelt_gemm_tiles tiles = smelt_gemm_tiles_of(s, panels);
  const float *b = s->b + col / SMELT_GEMM_PANEL * s->panel_stride;
  for (int64_t t = 0, row = 0, rows; t < tiles.count; ++t, row += rows) {
    rows = tiles.rows + (t < tiles.taller);
    const smelt_epilogue there = smelt_epilogue_at(&f, row, 0);
    smelt_epilogue_one(s, s->a + row * s->lda, b, rows, panels, smelt_gemm_next(s, next, panels, t, tiles.odd, tiles.lines),
                     tiles.lines, &there);
  }
}

/* As smelt_gemm_blocks() over all of the slab's depth. `following` comes after the last block, and with `epilogue` sums are
 * finished then. */
static __attribute__((unused)) void smelt_epilogue_blocks(const smelt_gemm_slab *s, int64_t col, int64_t panels, int64_t depth,
                                                        const float *following, const smelt_epilogue *epilogue) {
  const int64_t cols = panels * SMELT_GEMM_PANEL, first = col / SMELT_GEMM_PANEL;
  smelt_gemm_slab part = *s;
  for (int64_t k = 0; k < s->kc; k += depth, part.add = 1) {
    part.a = s->a + k, part.b = s->b + k * SMELT_GEMM_PANEL, part.kc = smelt_gemm_min(depth, s->kc - k);
    const int last = k + depth >= s->kc;
    part.next_stride = last ? s->next_stride : 0;
    const float *next = last ? following : part.b + first * s->panel_stride + depth * SMELT_GEMM_PANEL;
    if (last && epilogue) smelt_epilogue_rows(&part, col, panels, next, epilogue);
    else smelt_gemm_rows(&part, col, panels, smelt_gemm_min(cols, s->cols - col), next);
  }
}

#endif
