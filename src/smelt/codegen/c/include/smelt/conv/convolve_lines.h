/* Convolution line by line: the lines of the image that windows see are copied into L1 and multiplied there.
 *
 * Input:     smelt_window with taps side by side, NHWC or NCHW; weights in panels (panel, tap * channel, 16), or
 *            (panel, channel * tap, 16) for NCHW. Output: smelt_convolve_lines(): a block of windows times whole and half
 *            panels.
 * Invariant: every element is one chain over the window in the order of its panels, whatever tile computes it. Lines are copied
 *            with zeros on both sides, so that no window is special; a window is `segments` runs of `taps` floats in them, and
 *            neighbouring windows share them.
 */
#ifndef SMELT_CONVOLVE_LINES_H
#define SMELT_CONVOLVE_LINES_H

#include <smelt/conv/convolve_epilogue.h>

/* Defines smelt_f32_igemm_<MR>x<NR>__<feature>: R windows `lda` floats apart times W vectors of columns. A window's elements are `segments` runs of
 * `taps` floats, `segment` floats apart. With each of these, the next `step` bytes from `ahead` on are prefetched. */
#define SMELT_LINES_NAME(R, W) SMELT_MICRO(f32_igemm, R, W)
#define SMELT_LINES_MICRO(R, W)                                                                                        \
  static __attribute__((noinline)) void SMELT_LINES_NAME(R, W)(const float *a_, int64_t lda, int64_t segments,          \
                                                              int64_t segment, int64_t taps, const float *b_,          \
                                                              int64_t panel_stride, float *c_, int64_t ldc,            \
                                                              const smelt_epilogue *f, const char *ahead,              \
                                                              int64_t step) {                                          \
    SMELT_GEMM_STRIDES                                                                                                 \
    SMELT_COLS_##W(SMELT_B_POINTER, 0)                                                                                 \
    SMELT_ROWS_##R(SMELT_ROW_ZERO_##W, 0)                                                                              \
    for (; segments > 0; --segments, a_ += segment) {                                                                  \
      SMELT_BASES_##R(SMELT_BASE_DECL)                                                                                 \
      for (int64_t k = taps; k > 0; --k) {                                                                             \
        SMELT_BASES_##R(SMELT_BASE_HIDE)                                                                               \
        SMELT_COLS_##W(SMELT_B_HIDE, 0)                                                                                \
        SMELT_LINES_STEP(R, W)                                                                                         \
        __builtin_prefetch(ahead, 0, 2);                                                                               \
        ahead += step;                                                                                                 \
        SMELT_BASES_##R(SMELT_BASE_STEP1)                                                                              \
        SMELT_COLS_##W(SMELT_B_STEP, 1)                                                                                \
      }                                                                                                                \
    }                                                                                                                  \
    if (f) {                                                                                                           \
      SMELT_EPILOGUE_TILE(R, W)                                                                                          \
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
                                 const float *b, int64_t panel_stride, float *c, int64_t ldc, const smelt_epilogue *f,
                                 const char *ahead, int64_t step);

/* By height, the tallest first; for main tiles and, on AVX-512, for an odd panel. */
#if SMELT_VL == 64 && defined(__AVX512F__)
#define SMELT_LINES_TILES(W) {SMELT_LINES_NAME(14, W), SMELT_LINES_NAME(8, W), SMELT_LINES_NAME(4, W), SMELT_LINES_NAME(1, W)}
SMELT_LINES_MICRO(14, 2) SMELT_LINES_MICRO(8, 2) SMELT_LINES_MICRO(4, 2) SMELT_LINES_MICRO(1, 2)
SMELT_LINES_MICRO(14, 1) SMELT_LINES_MICRO(8, 1) SMELT_LINES_MICRO(4, 1) SMELT_LINES_MICRO(1, 1)
static const smelt_lines_tile smelt_lines_main[] = SMELT_LINES_TILES(2), smelt_lines_narrow[] = SMELT_LINES_TILES(1);
static const int8_t smelt_lines_heights[] = {14, 8, 4, 1};
#elif SMELT_VL == 64
#define SMELT_LINES_TILES(W) {SMELT_LINES_NAME(3, W), SMELT_LINES_NAME(2, W), SMELT_LINES_NAME(1, W)}
SMELT_LINES_MICRO(3, 2) SMELT_LINES_MICRO(2, 2) SMELT_LINES_MICRO(1, 2)
SMELT_LINES_MICRO(3, 1) SMELT_LINES_MICRO(2, 1) SMELT_LINES_MICRO(1, 1)
static const smelt_lines_tile smelt_lines_main[] = SMELT_LINES_TILES(2), smelt_lines_narrow[] = SMELT_LINES_TILES(1);
static const int8_t smelt_lines_heights[] = {3, 2, 1};
#elif defined(__aarch64__)
SMELT_LINES_MICRO(6, 4) SMELT_LINES_MICRO(3, 4) SMELT_LINES_MICRO(1, 4)
static const smelt_lines_tile smelt_lines_main[] = {SMELT_LINES_NAME(6, 4), SMELT_LINES_NAME(3, 4), SMELT_LINES_NAME(1, 4)};
static const int8_t smelt_lines_heights[] = {6, 3, 1};
#elif SMELT_VL == 32
SMELT_LINES_MICRO(6, 2) SMELT_LINES_MICRO(3, 2) SMELT_LINES_MICRO(1, 2)
static const smelt_lines_tile smelt_lines_main[] = {SMELT_LINES_NAME(6, 2), SMELT_LINES_NAME(3, 2), SMELT_LINES_NAME(1, 2)};
static const int8_t smelt_lines_heights[] = {6, 3, 1};
/* For the first half of the last panel. */
SMELT_LINES_MICRO(12, 1) SMELT_LINES_MICRO(8, 1) SMELT_LINES_MICRO(4, 1) SMELT_LINES_MICRO(1, 1)
static const smelt_lines_tile smelt_lines_half[] = {SMELT_LINES_NAME(12, 1), SMELT_LINES_NAME(8, 1), SMELT_LINES_NAME(4, 1), SMELT_LINES_NAME(1, 1)};
static const int8_t smelt_lines_half_heights[] = {12, 8, 4, 1};
#else
SMELT_LINES_MICRO(4, 2) SMELT_LINES_MICRO(2, 2) SMELT_LINES_MICRO(1, 2)
static const smelt_lines_tile smelt_lines_main[] = {SMELT_LINES_NAME(4, 2), SMELT_LINES_NAME(2, 2), SMELT_LINES_NAME(1, 2)};
static const int8_t smelt_lines_heights[] = {4, 2, 1};
#endif

/* The tile that comes when `left` of `run` windows are: the tallest that they fill, at the end the lowest that they fit, which
 * then computes windows again. Heights fall to 1. */
SMELT_GEMM_INLINE int smelt_lines_kind(const int8_t *heights, int64_t run, int64_t left) {
  int kind = 0;
  while (heights[kind] > left) kind++;
  return kind > 0 && heights[kind] < left && heights[kind - 1] <= run ? kind - 1 : kind;
}

/* What the tiles of one run of windows read, and where they write. */
typedef struct {
  const float *lines;
  int64_t side, segments, segment, taps;
  const float *b;
  int64_t panel_stride;
  float *c;
  int64_t ldc;
  const smelt_epilogue *epilogue; /* of the run's windows; NULL: sums are stored */
  const float *ahead;             /* lines that the next windows down the image see; each is prefetched by a tile */
  int64_t ahead_count, ahead_line;
} smelt_lines_run;

SMELT_GEMM_INLINE void smelt_lines_block(const smelt_lines_run *r, int kind, int64_t panels, int64_t window, int64_t col,
                                         const char *ahead, int64_t step) {
  const float *a = r->lines + window * r->side, *b = r->b + col / SMELT_GEMM_PANEL * r->panel_stride;
  float *c = r->c + window * r->ldc + col;
#if SMELT_VL == 64
  const smelt_epilogue f = r->epilogue ? smelt_epilogue_at(r->epilogue, window, col) : (smelt_epilogue){0};
  (panels == 2 ? smelt_lines_main : smelt_lines_narrow)[kind](a, r->side, r->segments, r->segment, r->taps, b,
                                                              r->panel_stride, c, r->ldc, r->epilogue ? &f : NULL,
                                                              ahead, step);
#else
  (void)panels;
  for (int64_t j = 0; j < SMELT_GEMM_PANEL; j += SMELT_GEMM_NV * SMELT_GEMM_LANES) {
    const smelt_epilogue f = r->epilogue ? smelt_epilogue_at(r->epilogue, window, col + j) : (smelt_epilogue){0};
    smelt_lines_main[kind](a, r->side, r->segments, r->segment, r->taps, b + j, r->panel_stride, c + j, r->ldc,
                           r->epilogue ? &f : NULL, ahead, step);
  }
#endif
}

#ifdef SMELT_GEMM_HALF_MR
/* `run` windows times the first half of the panel at `col`. */
static __attribute__((unused)) void smelt_lines_half_tiles(const smelt_lines_run *r, int64_t run, int64_t col) {
  const float *b = r->b + col / SMELT_GEMM_PANEL * r->panel_stride;
  for (int64_t window = 0, high; window < run; window += high) {
    const int kind = smelt_lines_kind(smelt_lines_half_heights, run, run - window);
    high = smelt_lines_half_heights[kind];
    const int64_t at = smelt_min(window, run - high);
    const smelt_epilogue f = r->epilogue ? smelt_epilogue_at(r->epilogue, at, col) : (smelt_epilogue){0};
    smelt_lines_half[kind](r->lines + at * r->side, r->side, r->segments, r->segment, r->taps, b, r->panel_stride,
                           r->c + at * r->ldc + col, r->ldc, r->epilogue ? &f : NULL, (const char *)b, 0);
  }
}
#endif

/* `run` windows times `cols` columns, whole panels or, at the end, half of one. The last tile may begin before the one before
 * it ends. */
static __attribute__((unused)) void smelt_lines_tiles(const smelt_lines_run *r, int64_t run, int64_t cols) {
  int64_t tile = 0;
  for (int64_t col = 0, panels; col < cols; col += panels * SMELT_GEMM_PANEL) {
#ifdef SMELT_GEMM_HALF_MR
    if (cols - col < SMELT_GEMM_PANEL) {
      smelt_lines_half_tiles(r, run, col);
      return;
    }
#endif
    panels = smelt_min(SMELT_GEMM_NP, (cols - col) / SMELT_GEMM_PANEL);
    for (int64_t window = 0, high; window < run; window += high, tile++) {
      const int kind = smelt_lines_kind(smelt_lines_heights, run, run - window), brings = tile < r->ahead_count;
      high = smelt_lines_heights[kind];
      smelt_lines_block(r, kind, panels, smelt_min(window, run - high), col,
                        (const char *)(brings ? r->ahead + tile * r->ahead_line : r->lines), brings ? 64 : 0);
    }
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

/* As a window's lines are seen from the first of a run: for `channels` that are `channel` floats apart (all of an NCHW image; NHWC
 * has 1 of that kind), pixels of `pixel` floats in memory and `depth` in the copy: all, or those of a group. */
typedef struct {
  int64_t channels, channel, pixel, depth;
} smelt_line_form;

SMELT_GEMM_INLINE smelt_line_form smelt_line_form_of(const smelt_window *w, int64_t depth) {
  const int64_t pixels = w->in[0] * w->in[1] * w->in[2];
  return w->nchw ? (smelt_line_form){w->pixel, pixels, 1, 1} : (smelt_line_form){1, pixels * w->pixel, w->pixel, depth};
}

/* n zeros. Not by memset: they are few, and the empty asm keeps the compiler from calling it. */
SMELT_GEMM_INLINE void smelt_zeros_put(float *to, int64_t n) {
  for (; n >= SMELT_L; n -= SMELT_L, to += SMELT_L) {
    __asm__("" : "+r"(to));
    st_f32(to, bc_f32(0));
  }
  if (n > 0) st_f32_n(to, bc_f32(0), n);
}

/* `n` pixels of a line from x on; NULL: zeros. */
SMELT_GEMM_INLINE void smelt_pixels_put(float *to, const float *line, int64_t x, int64_t n, int64_t size, int64_t pixel,
                                        int64_t depth) {
  if (pixel == depth) {
    smelt_line_put(to, line, x * depth, n * depth, size * depth);
    return;
  }
  const int64_t before = line ? smelt_max(smelt_min(-x, n), 0) : n;
  const int64_t inside = line ? smelt_max(smelt_min(n - before, size - (x + before)), 0) : 0;
  const int64_t rest = depth % SMELT_L, whole = depth - rest;
  smelt_zeros_put(to, before * depth);
  to += before * depth;
  const float *from = inside ? line + (x + before) * pixel : NULL;
  for (int64_t i = 0; i < inside; i++, to += depth, from += pixel) {
    for (int64_t c = 0; c < whole; c += SMELT_L) st_f32(to + c, ld_f32(from + c));
    if (rest) st_f32_n(to + whole, ld_f32_n(from + whole, rest), rest);
  }
  smelt_zeros_put(to, (n - before - inside) * depth);
}

/* The lines that windows from p on see, n pixels of each: for each channel, each tap of the first axes. */
static __attribute__((unused)) void smelt_lines_fill(const smelt_window *w, const float *image, const smelt_place *p,
                                                     int64_t n, const smelt_line_form *f, float *to) {
  const int64_t x = p->at[2] * w->stride[2] - w->before[2];
  const float *from = image + p->image * f->channels * f->channel;
  for (int64_t c = 0; c < f->channels; c++, from += f->channel)
    for (int64_t ta = 0; ta < w->kernel[0]; ta++)
      for (int64_t tb = 0; tb < w->kernel[1]; tb++, to += n * f->depth) {
        const int64_t z = p->at[0] * w->stride[0] + ta * w->dilation[0] - w->before[0];
        const int64_t y = p->at[1] * w->stride[1] + tb * w->dilation[1] - w->before[1];
        const int inside = z >= 0 && z < w->in[0] && y >= 0 && y < w->in[1];
        const float *line = inside ? from + (z * w->in[1] + y) * w->in[2] * f->pixel : NULL;
        smelt_pixels_put(to, line, x, n, w->in[2], f->pixel, f->depth);
      }
}

/* Windows side by side whose lines fit, of `depth` channels; 0: not even one's, or they do not lie side by side. */
SMELT_GEMM_INLINE int64_t smelt_lines_fit(const smelt_window *w, int64_t depth) {
  const int64_t each = SMELT_LINES_FLOATS / smelt_max(w->kernel[0] * w->kernel[1] * depth, 1);
  return w->spread || w->dilation[2] != 1 || each < w->kernel[2] ? 0 : (each - w->kernel[2]) / w->stride[2] + 1;
}

/* What windows a line further down see for the first time, from the column on where those at p begin. */
SMELT_GEMM_INLINE void smelt_lines_ahead(const smelt_window *w, const float *image, const smelt_place *p, smelt_lines_run *r) {
  const int64_t y = p->at[1] * w->stride[1] - w->before[1] + (w->kernel[1] - 1) * w->dilation[1] + 1;
  const int64_t x = smelt_max(p->at[2] * w->stride[2] - w->before[2], 0), line = w->in[2] * w->pixel;
  const int plain = !w->nchw && w->in[0] == 1 && y >= 0;
  r->ahead_count = plain ? smelt_max(smelt_min(w->stride[1], w->in[1] - y), 0) : 0, r->ahead_line = line;
  r->ahead = r->ahead_count ? image + (p->image * w->in[1] + y) * line + x * w->pixel : r->lines;
}

/* `count` windows from `first` on, `cols` columns of the panels b on, of `depth` channels that the image begins with;
 * smelt_lines_fit(w, depth) is not 0. Tiles overlap, so what is added where it lies must not be: then, and where columns do not
 * fill their panels, windows are finished in a pass of their own. */
static __attribute__((unused)) void smelt_convolve_lines(const smelt_window *w, const float *image, int64_t depth,
                                                         const float *b, int64_t first, int64_t count, int64_t cols,
                                                         float *block, int64_t ld, const smelt_epilogue *epilogue) {
  float lines[SMELT_LINES_FLOATS] __attribute__((aligned(64)));
  const int direct = epilogue && !epilogue->added && epilogue->columns == cols;
  const smelt_line_form form = smelt_line_form_of(w, depth);
  const int64_t segments = form.channels * w->kernel[0] * w->kernel[1], taps = w->kernel[2] * form.depth;
  const int64_t fit = smelt_lines_fit(w, depth), high = smelt_lines_heights[0], most = fit < high ? fit : fit / high * high, side = w->stride[2] * form.depth;
  smelt_lines_run r = {lines, side, segments, 0, taps, b, segments * taps * SMELT_GEMM_PANEL, block, ld, NULL, lines, 0, 0};
  for (int64_t i = 0, run; i < count; i += run, r.c += run * ld) {
    const smelt_place p = smelt_place_of(w, first + i);
    const smelt_epilogue here = direct ? smelt_epilogue_at(epilogue, i, 0) : (smelt_epilogue){0};
    run = smelt_min(smelt_min(count - i, w->out[2] - p.at[2]), most);
    const int64_t pixels = (run - 1) * w->stride[2] + w->kernel[2];
    r.segment = pixels * form.depth, r.epilogue = direct ? &here : NULL;
    smelt_lines_fill(w, image, &p, pixels, &form, lines);
    smelt_lines_ahead(w, image, &p, &r);
    smelt_lines_tiles(&r, run, cols);
  }
  if (epilogue && !direct) smelt_epilogue_block(epilogue, block, ld, count);
}

/* The same for the `each` columns of a group: what fills up the last panel must not reach the next group's, nor the next row. */
enum { SMELT_LINES_EXACT = 96, SMELT_LINES_FEW = 56 };

static __attribute__((unused)) void smelt_convolve_exact(const smelt_window *w, const float *image, int64_t depth,
                                                          const float *b, int64_t first, int64_t count, int64_t each,
                                                          float *block, int64_t ld) {
  float sums[SMELT_LINES_FEW * SMELT_LINES_EXACT] __attribute__((aligned(64)));
  const int64_t cols = smelt_gemm_ceil_div(each, SMELT_GEMM_HALF) * SMELT_GEMM_HALF;
  if (cols == each) {
    smelt_convolve_lines(w, image, depth, b, first, count, cols, block, ld, NULL);
    return;
  }
  for (int64_t i = 0, n; i < count; i += n) {
    n = smelt_min(count - i, SMELT_LINES_FEW);
    smelt_convolve_lines(w, image, depth, b, first + i, n, cols, sums, cols, NULL);
    for (int64_t r = 0; r < n; r++) {
      const float *from = sums + r * cols;
      float *to = block + (i + r) * ld;
      int64_t c = 0;
      for (; c + SMELT_L <= each; c += SMELT_L) st_f32(to + c, ld_f32(from + c));
      if (c < each) st_f32_n(to + c, ld_f32_n(from + c, each - c), each - c);
    }
  }
}

#endif
