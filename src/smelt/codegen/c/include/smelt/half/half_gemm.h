/* GEMM of float32 rows with packed panels of bfloat16 or float16, sums in float32.
 *
 * Input:     A (m x K) row-major; B in panels of 16 columns: bfloat16 as [panel][pair of k][column][two k], of odd K with a zero,
 *            float16 as [panel][k][column].
 * Output:    smelt_half_gemm(): terms k0..k1-1 of the columns of panels p0..p1-1, stored, added, or finished by an epilogue.
 * Invariant: with AVX512_BF16 rows of A are rounded to bfloat16 as they are packed, and multiplied two k at a time. Else panels
 *            are widened into L1 and L2, which rounds nothing, for the micro-kernels of gemm.h: then bits are those of float32
 *            GEMM with the same weights. Neither depends on how rows, columns and k are cut.
 */
#ifndef SMELT_HALF_GEMM_H
#define SMELT_HALF_GEMM_H

#include <smelt/base/features.h>
#include <smelt/gemm/gemm_epilogue.h>
#include <smelt/half/bf16_tiles.h>

enum {
  SMELT_BF16_MC = 48,       /* rows of A that are packed together */
  SMELT_BF16_PACKED = 49152, /* numbers of them: they stay in L2, and on the stack */
  SMELT_BF16_PAIRS = 128    /* pairs of k of a block: four panels of it stay in L1 */
};

/* How a product is computed: with bfloat16 weights by bfloat16 rows, where the CPU can; else widened, and so with float16. */
enum { SMELT_HALF_BF16, SMELT_HALF_WIDENED, SMELT_HALF_F16 };

/* The operands of a product, A from the first of the terms that are asked for on; K is the depth of the panels, `cols` are the columns that exist, from the first panel on. */
typedef struct {
  const float *a;
  int64_t lda;
  const uint16_t *b; /* the first panel */
  int64_t K;
  float *c; /* of the first row and column; with an epilogue a block of whole panels */
  int64_t ldc, m, cols;
  const smelt_epilogue *epilogue;
  int kind;
} smelt_half;

SMELT_INLINE int smelt_half_f16(const smelt_half *h) { return h->kind == SMELT_HALF_F16; }

/* Numbers of a panel. */
SMELT_INLINE int64_t smelt_half_panel(const smelt_half *h) { return (smelt_half_f16(h) ? h->K : (h->K + 1) & ~(int64_t)1) * SMELT_HALF_PANEL; }

/* Sums that are stored after all, where there are none: K is 0. */
static __attribute__((unused)) void smelt_half_empty(const smelt_half *h) {
  for (int64_t i = 0; i < h->m; i++) __builtin_memset(h->c + i * h->ldc, 0, (size_t)h->cols * sizeof(float));
  if (h->epilogue) smelt_epilogue_block(h->epilogue, h->c, h->ldc, h->m);
}

#ifdef SMELT_BF16_DOTS
SMELT_INLINE int smelt_half_dots(int kind) { return kind == SMELT_HALF_BF16 && smelt_has(SMELT_CPU_avx512bf16); }

/* Packed rows of A, over some pairs of k, as a group of panels meets them. */
typedef struct {
  const uint16_t *a;
  int64_t ld, m, pairs;
  int add, last; /* sums go on from C; they are complete */
} smelt_bf16_part;

/* One tile whose last panel has columns that do not exist: by a copy. */
static __attribute__((noinline)) void smelt_bf16_ragged(const smelt_half *h, smelt_bf16_tile t, int64_t rows, int64_t cols) {
  float sums[SMELT_BF16_ROWS * SMELT_HALF_PANEL] __attribute__((aligned(64)));
  float *c = t.c;
  const smelt_epilogue *f = t.f;
  t.c = sums, t.ldc = SMELT_HALF_PANEL, t.f = NULL;
  for (int64_t i = 0; t.add && i < rows; i++) st_f32(sums + i * SMELT_HALF_PANEL, ld_f32_n(c + i * h->ldc, cols));
  smelt_bf16_by_1[rows - 1](&t);
  if (f) smelt_epilogue_block(f, sums, SMELT_HALF_PANEL, rows);
  else
    for (int64_t i = 0; i < rows; i++) st_f32_n(c + i * h->ldc, ld_f32(sums + i * SMELT_HALF_PANEL), cols);
}

/* All rows of a part times `panels` panels from column `col` on. Tiles prefetch `next` on the way: four panels of a block at
 * most, each in whole steps of a tile. */
static void smelt_bf16_group(const smelt_half *h, const smelt_bf16_part *p, const char *b, int64_t col, int64_t panels,
                             const char *next) {
  const int64_t most = panels == 4 ? 6 : SMELT_BF16_ROWS, count = smelt_gemm_ceil_div(p->m, most);
  const int64_t valid = smelt_gemm_min(h->cols - col, panels * SMELT_HALF_PANEL), stride = smelt_half_panel(h) * 2;
  const smelt_bf16_tile_fn *tiles = panels == 4 ? smelt_bf16_by_4 : panels == 2 ? smelt_bf16_by_2 : smelt_bf16_by_1;
  const int64_t each = smelt_max(1, count / panels);
  for (int64_t t = 0, row = 0, rows; t < count; t++, row += rows) {
    rows = p->m / count + (t < p->m % count);
    const int64_t panel = smelt_gemm_min(t / each, panels - 1);
    smelt_epilogue f;
    if (p->last && h->epilogue) f = smelt_epilogue_at(h->epilogue, row, col);
    const smelt_bf16_tile tile = {
        (const char *)(p->a + row * p->ld), b, next + panel * stride + t % each * (p->pairs / each) * SMELT_HALF_LINE, p->ld * 2,
        stride, SMELT_HALF_LINE / each, p->pairs, h->c + row * h->ldc + col, h->ldc, p->last && h->epilogue ? &f : NULL, p->add};
    if (valid < panels * SMELT_HALF_PANEL) smelt_bf16_ragged(h, tile, rows, valid);
    else tiles[rows - 1](&tile);
  }
}

/* Panels of the tiles from column `col` on. */
SMELT_INLINE int64_t smelt_bf16_panels(const smelt_half *h, int64_t col) {
  const int64_t whole = (h->cols - col) / SMELT_HALF_PANEL;
  return whole >= 4 ? 4 : whole >= 2 ? 2 : 1;
}

/* Packed rows over k from `first` on, `terms` of them: each group of panels block by block over k. */
static void smelt_bf16_pass(const smelt_half *h, const uint16_t *a, int64_t ld, int64_t first, int64_t terms, int add, int last) {
  const int64_t pairs = (terms + 1) / 2, stride = smelt_half_panel(h) * 2;
  const int64_t deep = h->m <= 3 ? pairs : SMELT_BF16_PAIRS;
  for (int64_t col = 0, panels; col < h->cols; col += panels * SMELT_HALF_PANEL) {
    panels = smelt_bf16_panels(h, col);
    const char *b = (const char *)h->b + col / SMELT_HALF_PANEL * stride + first / 2 * SMELT_HALF_LINE;
    for (int64_t k = 0; k < pairs; k += deep) {
      const int64_t some = smelt_gemm_min(deep, pairs - k);
      const smelt_bf16_part part = {a + 2 * k, ld, h->m, some, add || k > 0, last && k + some == pairs};
      const char *next = k + some < pairs ? b + (k + some) * SMELT_HALF_LINE : b + panels * stride;
      smelt_bf16_group(h, &part, b + k * SMELT_HALF_LINE, col, panels, next);
    }
  }
}

/* Rows of A, packed a few at a time over as many k as there is room for. */
static void smelt_bf16_gemm(const smelt_half *whole, int64_t k0, int64_t k1, int add) {
  uint16_t packed[SMELT_BF16_PACKED + 64] __attribute__((aligned(64)));
  smelt_half h = *whole;
  const int64_t chunks = smelt_gemm_ceil_div(whole->m, SMELT_BF16_MC);
  for (int64_t i = 0, t = 0; t < chunks; t++, i += h.m) {
    h.m = whole->m / chunks + (t < whole->m % chunks), h.a = whole->a + i * whole->lda, h.c = whole->c + i * whole->ldc;
    const smelt_epilogue here = whole->epilogue ? smelt_epilogue_at(whole->epilogue, i, 0) : (smelt_epilogue){0};
    h.epilogue = whole->epilogue ? &here : NULL;
    const int64_t most = (SMELT_BF16_PACKED / h.m - 32) & ~(int64_t)31, parts = smelt_gemm_ceil_div(k1 - k0, most);
    const int64_t deep = (smelt_gemm_ceil_div(k1 - k0, parts) + 31) & ~(int64_t)31;
    for (int64_t k = k0; k < k1; k += deep) {
      const int64_t terms = smelt_gemm_min(deep, k1 - k), ld = deep + 32;
      smelt_bf16_rows(h.a + (k - k0), h.lda, h.m, terms, packed, ld);
      smelt_bf16_pass(&h, packed, ld, k, terms, add || k > k0, k + terms == h.K);
    }
  }
}
#endif

/* Panels that are widened together, and numbers of each; rows up to which they are widened in registers; numbers of panels that
 * these prefetch. */
enum { SMELT_HALF_GROUP = SMELT_VL == 64 ? 4 : 2, SMELT_HALF_BLOCK = 512 * SMELT_HALF_PANEL, SMELT_HALF_THIN = 4, SMELT_HALF_AHEAD = 512 };
enum { SMELT_HALF_WIDE = SMELT_HALF_GROUP * SMELT_HALF_PANEL };
#define SMELT_HALF_UNROLL _Pragma("GCC unroll 16")

/* Of a line of two k side by side: the first, and the second. */
SMELT_FN v_f32 smelt_half_even(const uint16_t *line) { return (v_f32)((v_u32)ld_i32((const int32_t *)line) << 16); }
SMELT_FN v_f32 smelt_half_odd(const uint16_t *line) { return (v_f32)((v_u32)ld_i32((const int32_t *)line) & 0xffff0000u); }

/* Terms k..k+terms-1 of a panel as floats, [k][column]; k is even. */
static __attribute__((unused)) void smelt_half_widen(const smelt_half *h, int64_t panel, int64_t k, int64_t terms, float *to) {
  const uint16_t *from = h->b + panel * smelt_half_panel(h) + k * SMELT_HALF_PANEL;
  if (smelt_half_f16(h)) {
    for (int64_t i = 0; i < terms * SMELT_HALF_PANEL; i += SMELT_L) st_f32(to + i, ld_f16(from + i));
    return;
  }
  for (int64_t i = 0; i < terms; i += 2, to += 2 * SMELT_HALF_PANEL, from += 2 * SMELT_HALF_PANEL)
    for (int64_t c = 0; c < SMELT_HALF_PANEL; c += SMELT_L) {
      st_f32(to + c, smelt_half_even(from + 2 * c));
      if (i + 1 < terms) st_f32(to + SMELT_HALF_PANEL + c, smelt_half_odd(from + 2 * c));
    }
}

/* All columns of a slab that is the last part of k, finished in registers. */
static __attribute__((unused)) void smelt_half_epilogue(const smelt_gemm_slab *s, int64_t depth, const smelt_epilogue *epilogue) {
  for (int64_t col = 0, panels; col < s->cols; col += panels * SMELT_GEMM_PANEL) {
    panels = smelt_gemm_panels(s, col);
    smelt_epilogue_blocks(s, col, panels, depth, s->b, epilogue);
  }
}

/* Some panels from `panel` on, widened part by part over k: parts are whole blocks of float32 GEMM. */
static __attribute__((unused)) void smelt_half_widened_group(const smelt_half *h, int64_t k0, int64_t k1, int add, int64_t panel,
                                                             int64_t panels) {
  float wide[SMELT_HALF_GROUP * SMELT_HALF_BLOCK] __attribute__((aligned(64)));
  const int64_t depth = smelt_gemm_depth(h->K), col = panel * SMELT_HALF_PANEL;
  const int64_t part = smelt_max(1, 512 / depth) * depth, exist = smelt_gemm_min(panels * SMELT_HALF_PANEL, h->cols - col);
  for (int64_t k = k0; k < k1; k += part) {
    const int64_t terms = smelt_gemm_min(part, k1 - k);
    for (int64_t i = 0; i < panels; i++) smelt_half_widen(h, panel + i, k, terms, wide + i * terms * SMELT_HALF_PANEL);
    smelt_gemm_slab s = {h->a + (k - k0), h->lda, wide, terms * SMELT_HALF_PANEL, terms, h->c + col, h->ldc, h->m, exist, add || k > k0, 0,
                         NULL, 0, 0};
    if (!h->epilogue || k + terms < h->K) {
      smelt_gemm_chunks(s, s.a, s.lda, 1, terms, depth, NULL);
      continue;
    }
    const smelt_epilogue there = smelt_epilogue_at(h->epilogue, 0, col);
    s.cols = panels * SMELT_HALF_PANEL;
    smelt_half_epilogue(&s, depth, &there);
  }
}

/* A block of k of R rows times P panels: sums of the block are added to those of the blocks before it. */
SMELT_FN void smelt_half_gemv_block(const int R, const int P, const int f16, const smelt_half *h, const float *a, const uint16_t *b,
                                    int64_t k, int64_t terms, float *total) {
  enum { VPP = SMELT_HALF_PANEL / SMELT_L };
  v_f32 sums[4 * SMELT_HALF_GROUP * VPP];
  const int64_t stride = smelt_half_panel(h);
  SMELT_HALF_UNROLL for (int i = 0; i < R * P * VPP; i++) sums[i] = (v_f32){0};
  for (int64_t i = 0; i < terms; i++) {
    const uint16_t *line = b + (f16 ? k + i : (k + i) & ~(int64_t)1) * SMELT_HALF_PANEL;
    SMELT_HALF_UNROLL for (int j = 0; j < P * VPP; j++) {
      const uint16_t *at = line + j / VPP * stride + j % VPP * SMELT_L * (f16 ? 1 : 2);
      const v_f32 wide = f16 ? ld_f16(at) : (k + i) & 1 ? smelt_half_odd(at) : smelt_half_even(at);
      if (j % VPP == 0) __builtin_prefetch(at + SMELT_HALF_AHEAD);
      SMELT_HALF_UNROLL for (int r = 0; r < R; r++) sums[r * P * VPP + j] += bc_f32(a[r * h->lda + i]) * wide;
    }
  }
  SMELT_HALF_UNROLL for (int i = 0; i < R * P * VPP; i++) {
    float *to = total + i / (P * VPP) * SMELT_HALF_WIDE + i % (P * VPP) * SMELT_L;
    st_f32(to, ld_f32(to) + sums[i]);
  }
}

/* Sums that start from C, or from zero; then where they go. */
static __attribute__((unused)) void smelt_half_gemv_group(const smelt_half *h, int64_t k0, int64_t k1, int add, int64_t panel, int64_t panels) {
  float total[SMELT_HALF_THIN * SMELT_HALF_WIDE] __attribute__((aligned(64))) = {0};
  const int64_t depth = smelt_gemm_depth(h->K), col = panel * SMELT_HALF_PANEL, cols = smelt_gemm_min(panels * SMELT_HALF_PANEL, h->cols - col);
  const uint16_t *b = h->b + panel * smelt_half_panel(h);
  for (int64_t r = 0; add && r < h->m; r++) __builtin_memcpy(total + r * SMELT_HALF_WIDE, h->c + r * h->ldc + col, (size_t)cols * sizeof(float));
  for (int64_t k = k0; k < k1; k += depth) {
    const int64_t terms = smelt_gemm_min(depth, k1 - k);
    const float *a = h->a + (k - k0);
#define SMELT_HALF_CASE(R)                                                                                        \
  case R:                                                                                                         \
    if (panels > 1 && smelt_half_f16(h)) smelt_half_gemv_block(R, SMELT_HALF_GROUP, 1, h, a, b, k, terms, total);              \
    else if (panels > 1) smelt_half_gemv_block(R, SMELT_HALF_GROUP, 0, h, a, b, k, terms, total);                   \
    else smelt_half_gemv_block(R, 1, smelt_half_f16(h), h, a, b, k, terms, total);                                              \
    break;
    switch (h->m) { SMELT_HALF_CASE(1) SMELT_HALF_CASE(2) SMELT_HALF_CASE(3) SMELT_HALF_CASE(4) }
#undef SMELT_HALF_CASE
  }
  if (h->epilogue && k1 == h->K) {
    const smelt_epilogue there = smelt_epilogue_at(h->epilogue, 0, col);
    smelt_epilogue_block(&there, total, SMELT_HALF_WIDE, h->m);
    return;
  }
  for (int64_t r = 0; r < h->m; r++) __builtin_memcpy(h->c + r * h->ldc + col, total + r * SMELT_HALF_WIDE, (size_t)cols * sizeof(float));
}

/* Few rows: weights are widened in registers. */
static __attribute__((unused)) void smelt_half_gemv(const smelt_half *h, int64_t k0, int64_t k1, int add, int64_t count) {
  for (int64_t panel = 0, panels; panel < count; panel += panels) {
    panels = count - panel >= SMELT_HALF_GROUP ? SMELT_HALF_GROUP : 1;
    smelt_half_gemv_group(h, k0, k1, add, panel, panels);
  }
}

static __attribute__((unused)) void smelt_half_gemm(const smelt_half *h, int64_t k0, int64_t k1, int add) {
  if (h->m <= 0 || h->cols <= 0) return;
  if (h->K <= 0) {
    smelt_half_empty(h);
    return;
  }
#ifdef SMELT_BF16_DOTS
  if (smelt_half_dots(h->kind)) {
    smelt_bf16_gemm(h, k0, k1, add);
    return;
  }
#endif
  const int64_t count = smelt_gemm_ceil_div(h->cols, SMELT_HALF_PANEL);
  if (h->m <= SMELT_HALF_THIN) {
    smelt_half_gemv(h, k0, k1, add, count);
    return;
  }
  for (int64_t panel = 0; panel < count; panel += SMELT_HALF_GROUP)
    smelt_half_widened_group(h, k0, k1, add, panel, smelt_gemm_min(SMELT_HALF_GROUP, count - panel));
}

#endif
