/* Convolution of an image that lies plane by plane: a few planes from outside, read as they come.
 *
 * Input:     smelt_window with planar images and side-by-side taps; weights in panels (panel, channel * tap, 16).
 * Output:    smelt_convolve_planes(): a block of windows times whole panels.
 * Invariant: every element is one chain over channels and taps in rising order, whatever tile computes it. Lines of the image
 *            are copied with zeros on both sides, so that no window is special; neighbouring windows share them in L1.
 */
#ifndef SMELT_CONVOLVE_PLANES_H
#define SMELT_CONVOLVE_PLANES_H

#include <smelt/convolve_finish.h>

enum { SMELT_PLANES_FLOATS = 8192 }; /* of copied lines */

/* Defines smelt_lines_RxW: R windows `lda` floats apart times W vectors of columns. A window's elements are `segments` runs of
 * `taps` floats, `segment` floats apart. */
#define SMELT_LINES_MICRO(R, W)                                                                                        \
  static __attribute__((noinline)) void smelt_lines_##R##x##W(const float *a_, int64_t lda, int64_t segments,          \
                                                              int64_t segment, int64_t taps, const float *b_,          \
                                                              int64_t panel_stride, float *c_, int64_t ldc,            \
                                                              const smelt_finish *f) {                                 \
    SMELT_GEMM_STRIDES                                                                                                 \
    SMELT_COLS_##W(SMELT_B_POINTER, 0)                                                                                 \
    SMELT_ROWS_##R(SMELT_ROW_ZERO_##W, 0)                                                                              \
    for (; segments > 0; --segments, a_ += segment) {                                                                  \
      SMELT_BASES_##R(SMELT_BASE_DECL)                                                                                 \
      for (int64_t k = taps; k > 0; --k) {                                                                             \
        SMELT_BASES_##R(SMELT_BASE_HIDE)                                                                               \
        SMELT_COLS_##W(SMELT_B_HIDE, 0)                                                                                \
        SMELT_LINES_STEP(R, W)                                                                                         \
        SMELT_BASES_##R(SMELT_BASE_STEP1)                                                                              \
        SMELT_COLS_##W(SMELT_B_STEP, 1)                                                                                \
      }                                                                                                                \
    }                                                                                                                  \
    if (f) {                                                                                                           \
      SMELT_FINISH_TILE(R, W)                                                                                          \
    } else {                                                                                                           \
      float *crow = c_;                                                                                                \
      SMELT_ROWS_##R(SMELT_ROW_PUT_##W, 0)                                                                             \
    }                                                                                                                  \
  }
#define SMELT_LINES_STEP(R, W)                                                                                         \
  {                                                                                                                    \
    __asm__ volatile("" : "+r"(lda_bytes)::"memory");                                                                  \
    SMELT_COLS_##W(SMELT_B_LOAD, 0)                                                                                    \
    SMELT_ROWS_##R(SMELT_ROW_FMA_##W, 0)                                                                               \
  }

typedef void (*smelt_lines_tile)(const float *a, int64_t lda, int64_t segments, int64_t segment, int64_t taps,
                                 const float *b, int64_t panel_stride, float *c, int64_t ldc, const smelt_finish *f);

/* Most windows at a time, some, and one; for main tiles and, on AVX-512, for an odd panel. */
#if SMELT_VL == 64 && defined(__AVX512F__)
SMELT_LINES_MICRO(14, 2) SMELT_LINES_MICRO(4, 2) SMELT_LINES_MICRO(1, 2)
SMELT_LINES_MICRO(14, 1) SMELT_LINES_MICRO(4, 1) SMELT_LINES_MICRO(1, 1)
static const smelt_lines_tile smelt_lines_main[] = {smelt_lines_14x2, smelt_lines_4x2, smelt_lines_1x2};
static const smelt_lines_tile smelt_lines_narrow[] = {smelt_lines_14x1, smelt_lines_4x1, smelt_lines_1x1};
enum { SMELT_LINES_MOST = 14, SMELT_LINES_SOME = 4 };
#elif SMELT_VL == 64
SMELT_LINES_MICRO(3, 2) SMELT_LINES_MICRO(2, 2) SMELT_LINES_MICRO(1, 2)
SMELT_LINES_MICRO(3, 1) SMELT_LINES_MICRO(2, 1) SMELT_LINES_MICRO(1, 1)
static const smelt_lines_tile smelt_lines_main[] = {smelt_lines_3x2, smelt_lines_2x2, smelt_lines_1x2};
static const smelt_lines_tile smelt_lines_narrow[] = {smelt_lines_3x1, smelt_lines_2x1, smelt_lines_1x1};
enum { SMELT_LINES_MOST = 3, SMELT_LINES_SOME = 2 };
#elif defined(__aarch64__)
SMELT_LINES_MICRO(6, 4) SMELT_LINES_MICRO(3, 4) SMELT_LINES_MICRO(1, 4)
static const smelt_lines_tile smelt_lines_main[] = {smelt_lines_6x4, smelt_lines_3x4, smelt_lines_1x4};
enum { SMELT_LINES_MOST = 6, SMELT_LINES_SOME = 3 };
#elif SMELT_VL == 32
SMELT_LINES_MICRO(6, 2) SMELT_LINES_MICRO(3, 2) SMELT_LINES_MICRO(1, 2)
static const smelt_lines_tile smelt_lines_main[] = {smelt_lines_6x2, smelt_lines_3x2, smelt_lines_1x2};
enum { SMELT_LINES_MOST = 6, SMELT_LINES_SOME = 3 };
#else
SMELT_LINES_MICRO(4, 2) SMELT_LINES_MICRO(2, 2) SMELT_LINES_MICRO(1, 2)
static const smelt_lines_tile smelt_lines_main[] = {smelt_lines_4x2, smelt_lines_2x2, smelt_lines_1x2};
enum { SMELT_LINES_MOST = 4, SMELT_LINES_SOME = 2 };
#endif

/* What the tiles of one run of windows read, and where they write. */
typedef struct {
  const float *lines;
  int64_t side, segments, segment, taps;
  const float *b;
  int64_t panel_stride;
  float *c;
  int64_t ldc;
  const smelt_finish *finish; /* of the run's windows; NULL: sums are stored */
} smelt_lines_run;

SMELT_GEMM_INLINE void smelt_lines_block(const smelt_lines_run *r, int kind, int64_t panels, int64_t window, int64_t col) {
  const float *a = r->lines + window * r->side, *b = r->b + col / SMELT_GEMM_PANEL * r->panel_stride;
  float *c = r->c + window * r->ldc + col;
#if SMELT_VL == 64
  const smelt_finish f = r->finish ? smelt_finish_at(r->finish, window, col) : (smelt_finish){0};
  (panels == 2 ? smelt_lines_main : smelt_lines_narrow)[kind](a, r->side, r->segments, r->segment, r->taps, b,
                                                              r->panel_stride, c, r->ldc, r->finish ? &f : NULL);
#else
  (void)panels;
  for (int64_t j = 0; j < SMELT_GEMM_PANEL; j += SMELT_GEMM_NV * SMELT_GEMM_LANES) {
    const smelt_finish f = r->finish ? smelt_finish_at(r->finish, window, col + j) : (smelt_finish){0};
    smelt_lines_main[kind](a, r->side, r->segments, r->segment, r->taps, b + j, r->panel_stride, c + j, r->ldc,
                           r->finish ? &f : NULL);
  }
#endif
}

/* `run` windows times `cols` columns, whole panels. The last tile may begin before the one before it ends. */
static __attribute__((unused)) void smelt_lines_tiles(const smelt_lines_run *r, int64_t run, int64_t cols) {
  const int kind = run >= SMELT_LINES_MOST ? 0 : run >= SMELT_LINES_SOME ? 1 : 2;
  const int64_t high = kind == 0 ? SMELT_LINES_MOST : kind == 1 ? SMELT_LINES_SOME : 1;
  for (int64_t col = 0, panels; col < cols; col += panels * SMELT_GEMM_PANEL) {
    panels = smelt_min(SMELT_GEMM_NP, (cols - col) / SMELT_GEMM_PANEL);
    for (int64_t window = 0; window < run; window += high)
      smelt_lines_block(r, kind, panels, smelt_min(window, run - high), col);
  }
}

/* n floats of a line from column x on, zeros where it has none; NULL: zeros. */
SMELT_GEMM_INLINE void smelt_line_put(float *to, const float *line, int64_t x, int64_t n, int64_t size) {
  const int64_t before = line ? smelt_max(smelt_min(-x, n), 0) : n;
  const int64_t inside = line ? smelt_max(smelt_min(n - before, size - (x + before)), 0) : 0;
  __builtin_memset(to, 0, (size_t)before * sizeof(float));
  if (inside) __builtin_memcpy(to + before, line + x + before, (size_t)inside * sizeof(float));
  __builtin_memset(to + before + inside, 0, (size_t)(n - before - inside) * sizeof(float));
}

/* The lines that windows from p on see, n floats of each: for each plane, each tap of the first axes. */
static __attribute__((unused)) void smelt_lines_fill(const smelt_window *w, const float *image, const smelt_place *p,
                                                     int64_t n, float *to) {
  const int64_t plane = w->in[0] * w->in[1] * w->in[2], x = p->at[2] * w->stride[2] - w->before[2];
  const float *from = image + p->image * w->pixel * plane;
  for (int64_t c = 0; c < w->pixel; c++, from += plane)
    for (int64_t ta = 0; ta < w->kernel[0]; ta++)
      for (int64_t tb = 0; tb < w->kernel[1]; tb++, to += n) {
        const int64_t z = p->at[0] * w->stride[0] + ta * w->dilation[0] - w->before[0];
        const int64_t y = p->at[1] * w->stride[1] + tb * w->dilation[1] - w->before[1];
        const int inside = z >= 0 && z < w->in[0] && y >= 0 && y < w->in[1];
        smelt_line_put(to, inside ? from + (z * w->in[1] + y) * w->in[2] : NULL, x, n, w->in[2]);
      }
}

/* Windows side by side whose lines fit; 0: not even one's. */
SMELT_GEMM_INLINE int64_t smelt_lines_fit(const smelt_window *w) {
  const int64_t each = SMELT_PLANES_FLOATS / (w->pixel * w->kernel[0] * w->kernel[1]);
  return each < w->kernel[2] || w->dilation[2] != 1 ? 0 : (each - w->kernel[2]) / w->stride[2] + 1;
}

/* `count` windows from `first` on, `cols` columns of the panels b on; smelt_lines_fit(w) is not 0. Tiles overlap, so what is added
 * where it lies must not be: then, and where columns do not fill their panels, windows are finished in a pass of their own. */
static __attribute__((unused)) void smelt_convolve_planes(const smelt_window *w, const float *image, const float *b,
                                                          int64_t first, int64_t count, int64_t cols, float *block,
                                                          int64_t ld, const smelt_finish *finish) {
  float lines[SMELT_PLANES_FLOATS] __attribute__((aligned(64)));
  const int direct = finish && !finish->added && finish->columns == cols;
  const int64_t segments = w->pixel * w->kernel[0] * w->kernel[1], most = smelt_lines_fit(w);
  smelt_lines_run r = {lines, w->stride[2], segments, 0, w->kernel[2], b, segments * w->kernel[2] * SMELT_GEMM_PANEL, block, ld, NULL};
  for (int64_t i = 0, run; i < count; i += run, r.c += run * ld) {
    const smelt_place p = smelt_place_of(w, first + i);
    const smelt_finish here = direct ? smelt_finish_at(finish, i, 0) : (smelt_finish){0};
    run = smelt_min(smelt_min(count - i, w->out[2] - p.at[2]), most);
    r.segment = (run - 1) * w->stride[2] + w->kernel[2], r.finish = direct ? &here : NULL;
    smelt_lines_fill(w, image, &p, r.segment, lines);
    smelt_lines_tiles(&r, run, cols);
  }
  if (finish && !direct) smelt_finish_block(finish, block, ld, count);
}

#endif
