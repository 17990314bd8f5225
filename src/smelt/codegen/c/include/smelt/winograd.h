/* Convolution of 3 x 3 taps by Winograd's F(2 x 2, 3 x 3): 16 products where the plain form takes 36.
 *
 * Input:     smelt_window with stride and dilation 1, an image with channels last, transformed weights in panels
 *            (16, panel, channel, 16), or plain ones (panel, tap, channel, 16) that are transformed here, a block that stays
 *            in L2 at a time. Output: a block of windows that are whole lines, times a range of columns.
 * Invariant: results come in tiles of 2 x 2 that start at even lines and columns of their image, so an element's bits do not
 *            depend on how lines and columns are shared among tasks. What lies outside of the image is zero. Where the image
 *            is not finite, the plain form is computed: differences of infinities would reach too far.
 */
#ifndef SMELT_WINOGRAD_H
#define SMELT_WINOGRAD_H

#include <smelt/convolve.h>

/* A row of four becomes a row of four: the transform of inputs, once along each axis. */
#define SMELT_WINOGRAD_IN(X0, X1, X2, X3, Y0, Y1, Y2, Y3)                                                              \
  const v_f32 Y0 = X0 - X2, Y1 = X1 + X2, Y2 = X2 - X1, Y3 = X1 - X3;

/* SMELT_L channels of a 4 x 4 patch whose first pixel is `at`; rows and columns lo..hi-1 of it lie in the image. Element
 * (i, j) goes to to[(4 i + j) * step]. `live` is the number of lanes of a partial vector, 0 for whole ones. */
SMELT_INLINE void smelt_winograd_patch(const float *at, int64_t line, int64_t pixel, smelt_span y, smelt_span x,
                                       int64_t live, float *to, int64_t step) {
  v_f32 d[4][4];
  for (int i = 0; i < 4; i++)
    for (int j = 0; j < 4; j++) {
      const int inside = i >= y.lo && i < y.hi && j >= x.lo && j < x.hi;
      const float *from = at + i * line + j * pixel;
      d[i][j] = !inside ? bc_f32(0) : live ? ld_f32_n(from, live) : ld_f32(from);
    }
#define SMELT_WINOGRAD_ROW(I) SMELT_WINOGRAD_IN(d[I][0], d[I][1], d[I][2], d[I][3], r##I##0, r##I##1, r##I##2, r##I##3)
  SMELT_WINOGRAD_ROW(0)
  SMELT_WINOGRAD_ROW(1)
  SMELT_WINOGRAD_ROW(2)
  SMELT_WINOGRAD_ROW(3)
#undef SMELT_WINOGRAD_ROW
#define SMELT_WINOGRAD_COLUMN(J)                                                                                       \
  {                                                                                                                    \
    SMELT_WINOGRAD_IN(r0##J, r1##J, r2##J, r3##J, c0, c1, c2, c3)                                                      \
    if (live) {                                                                                                        \
      st_f32_n(to + (J)*step, c0, live), st_f32_n(to + (4 + J) * step, c1, live);                                      \
      st_f32_n(to + (8 + J) * step, c2, live), st_f32_n(to + (12 + J) * step, c3, live);                               \
    } else {                                                                                                           \
      st_f32(to + (J)*step, c0), st_f32(to + (4 + J) * step, c1);                                                      \
      st_f32(to + (8 + J) * step, c2), st_f32(to + (12 + J) * step, c3);                                               \
    }                                                                                                                  \
  }
  SMELT_WINOGRAD_COLUMN(0)
  SMELT_WINOGRAD_COLUMN(1)
  SMELT_WINOGRAD_COLUMN(2)
  SMELT_WINOGRAD_COLUMN(3)
#undef SMELT_WINOGRAD_COLUMN
}

/* Which rows of a patch that starts at `start` lie in an axis of `size` pixels. */
SMELT_INLINE smelt_span smelt_patch_span(int64_t start, int64_t size) {
  smelt_span s = {start, start < 0 ? smelt_min(-start, 4) : 0, smelt_min(4, smelt_max(size - start, 0))};
  if (s.hi < s.lo) s.hi = s.lo;
  return s;
}

/* Channels k..k+depth-1 of one tile's patch: output line oy, column ox of one image. */
static __attribute__((unused)) void smelt_winograd_tile(const smelt_window *w, const float *image, int64_t oy, int64_t ox,
                                                        int64_t k, int64_t depth, float *to, int64_t step) {
  const smelt_span y = smelt_patch_span(oy - w->before[1], w->in[1]), x = smelt_patch_span(ox - w->before[2], w->in[2]);
  const int64_t line = w->in[2] * w->pixel;
  const float *at = image + y.start * line + x.start * w->pixel + k;
  int64_t c = 0;
  if (y.hi - y.lo == 4 && x.hi - x.lo == 4)
    for (; c + SMELT_L <= depth; c += SMELT_L)
      smelt_winograd_patch(at + c, line, w->pixel, (smelt_span){0, 0, 4}, (smelt_span){0, 0, 4}, 0, to + c, step);
  for (; c + SMELT_L <= depth; c += SMELT_L) smelt_winograd_patch(at + c, line, w->pixel, y, x, 0, to + c, step);
  if (c < depth) smelt_winograd_patch(at + c, line, w->pixel, y, x, depth - c, to + c, step);
}

/* SMELT_L columns of one channel's filter: nine taps, `step` apart, become sixteen, `out` apart. */
SMELT_INLINE void smelt_winograd_filter(const float *from, int64_t step, float *to, int64_t out) {
  const v_f32 half = bc_f32(0.5f);
  v_f32 r[4][3];
  for (int j = 0; j < 3; j++) {
    const v_f32 a = ld_f32(from + j * step), b = ld_f32(from + (3 + j) * step), c = ld_f32(from + (6 + j) * step);
    const v_f32 outer = (a + c) * half, inner = b * half;
    r[0][j] = a, r[1][j] = outer + inner, r[2][j] = outer - inner, r[3][j] = c;
  }
  for (int i = 0; i < 4; i++) {
    const v_f32 outer = (r[i][0] + r[i][2]) * half, inner = r[i][1] * half;
    st_f32(to + (4 * i) * out, r[i][0]), st_f32(to + (4 * i + 1) * out, outer + inner);
    st_f32(to + (4 * i + 2) * out, outer - inner), st_f32(to + (4 * i + 3) * out, r[i][2]);
  }
}

/* Some channels of `count` panels of plain weights: `from` of (panel, tap, channels, 16) becomes (16, panel, depth, 16). */
static __attribute__((unused)) void smelt_winograd_filters(const float *from, int64_t channels, int64_t depth,
                                                           int64_t count, float *to) {
  for (int64_t p = 0; p < count; p++)
    for (int64_t k = 0; k < depth * 16; k += SMELT_L)
      smelt_winograd_filter(from + p * 9 * channels * 16 + k, channels * 16, to + p * depth * 16 + k,
                            SMELT_WINOGRAD_STEP(count * depth * 16));
}

/* Sixteen products, the slab being the first: rows (16, tiles, lda), sums (16, tiles, ldc), panels `step` apart. */
static __attribute__((unused)) void smelt_winograd_products(const smelt_gemm_slab *first, int64_t step) {
  const int64_t tiles = first->m, rows = SMELT_WINOGRAD_STEP(tiles * first->lda), sums = SMELT_WINOGRAD_STEP(tiles * first->ldc);
  smelt_gemm_slab s = *first;
  for (int64_t k = 0; k < 16; k++)
    for (int64_t row = 0; row < tiles; row += s.m) {
      s.m = smelt_min(SMELT_GEMM_MC, tiles - row);
      s.a = first->a + k * rows + row * s.lda, s.b = first->b + k * step, s.c = first->c + k * sums + row * s.ldc;
      smelt_gemm_columns(&s, 0);
    }
}

/* All sums of `tiles` tiles and `wide` columns: rows `in` of (block of channels, 16, tiles, deep). */
static __attribute__((unused)) void smelt_winograd_sums(const smelt_window *w, const float *panels, int64_t tiles,
                                                        int64_t deep, const float *in, float *sums, int64_t wide,
                                                        float *filters) {
  const int64_t C = w->pixel, most = SMELT_WINOGRAD_PANELS * 16;
  for (int64_t col = 0; col < wide; col += most)
    for (int64_t c = 0; c < C; c += deep) {
      const int64_t depth = smelt_min(deep, C - c), cols = smelt_min(most, wide - col);
      smelt_winograd_filters(panels + col * 9 * C + c * 16, C, depth, cols / 16, filters);
      const float *rows = in + 16 * SMELT_WINOGRAD_STEP(tiles * deep) * (c / deep);
      const smelt_gemm_slab s = {rows, deep, filters, depth * 16, depth, sums + col, wide, tiles, cols, c > 0, 0};
      smelt_winograd_products(&s, SMELT_WINOGRAD_STEP(depth * cols));
    }
}

/* Sums of products back to a tile of 2 x 2 results, SMELT_L columns of it; rows x cols of them exist. */
SMELT_INLINE void smelt_winograd_out(const float *from, int64_t step, int64_t live, float *to, int64_t line, int64_t ld,
                                     int rows, int cols) {
  v_f32 m[4][4];
  for (int i = 0; i < 4; i++)
    for (int j = 0; j < 4; j++) {
      const float *one = from + (4 * i + j) * step;
      m[i][j] = live ? ld_f32_n(one, live) : ld_f32(one);
    }
#define SMELT_WINOGRAD_SUM(J)                                                                                          \
  const v_f32 a##J = m[0][J] + m[1][J] + m[2][J], b##J = m[1][J] - m[2][J] - m[3][J];
  SMELT_WINOGRAD_SUM(0)
  SMELT_WINOGRAD_SUM(1)
  SMELT_WINOGRAD_SUM(2)
  SMELT_WINOGRAD_SUM(3)
#undef SMELT_WINOGRAD_SUM
  const v_f32 y[2][2] = {{a0 + a1 + a2, a1 - a2 - a3}, {b0 + b1 + b2, b1 - b2 - b3}};
  for (int i = 0; i < 2; i++)
    for (int j = 0; j < 2; j++)
      if (i < rows && j < cols) {
        float *one = to + i * line + j * ld;
        if (live) st_f32_n(one, y[i][j], live);
        else st_f32(one, y[i][j]);
      }
}

/* Lines of results oy..oy+lines-1 (oy even) of one image, columns c0..c1-1 (between panels), into `block`. */
static __attribute__((unused)) void smelt_winograd_lines(const smelt_window *w, const float *image, const float *panels,
                                                         int transformed, int64_t oy, int64_t lines, int64_t c0, int64_t c1,
                                                         float *block, int64_t ld, float *workspace) {
  const int64_t across = (w->out[2] + 1) / 2, tiles = (lines + 1) / 2 * across, C = w->pixel;
  const int64_t all = (w->columns + 15) / 16 * 16, cols = c1 - c0, wide = (cols + 15) / 16 * 16;
  const int64_t deep = transformed ? C : smelt_winograd_depth(C);
  const int64_t row_step = SMELT_WINOGRAD_STEP(tiles * deep), sum_step = SMELT_WINOGRAD_STEP(tiles * wide);
  float *sums = workspace, *in = sums + 16 * sum_step;
  for (int64_t c = 0; c < C; c += deep)
    for (int64_t t = 0; t < tiles; t++)
      smelt_winograd_tile(w, image, oy + t / across * 2, t % across * 2, c, smelt_min(deep, C - c),
                          in + 16 * row_step * (c / deep) + t * deep, row_step);
  if (transformed)
    for (int64_t k = 0; k < 16; k++)
      smelt_gemm_f32(in + k * row_step, C, panels + (k * all + c0) * C, C, sums + k * sum_step, wide, tiles, 0, wide / 16, wide,
                     NULL);
  else smelt_winograd_sums(w, panels + c0 * 9 * C, tiles, deep, in, sums, wide, in + 16 * row_step * ((C + deep - 1) / deep));
  for (int64_t t = 0; t < tiles; t++) {
    const int64_t y = t / across * 2, x = t % across * 2;
    float *to = block + (y * w->out[2] + x) * ld;
    const int rows = lines - y < 2 ? 1 : 2, columns = w->out[2] - x < 2 ? 1 : 2;
    int64_t c = 0;
    for (; c + SMELT_L <= cols; c += SMELT_L)
      smelt_winograd_out(sums + t * wide + c, sum_step, 0, to + c, w->out[2] * ld, ld, rows, columns);
    if (c < cols)
      smelt_winograd_out(sums + t * wide + c, sum_step, cols - c, to + c, w->out[2] * ld, ld, rows, columns);
  }
}

/* Whether n floats are all finite. */
SMELT_INLINE int smelt_all_finite(const float *x, int64_t n) {
  v_f32 a = bc_f32(0), b = a;
  int64_t i = 0;
  for (; i + 2 * SMELT_L <= n; i += 2 * SMELT_L) a += ld_f32(x + i) * bc_f32(0), b += ld_f32(x + i + SMELT_L) * bc_f32(0);
  for (; i < n; i++) a += bc_f32(x[i] * 0.0f);
  return hsum_f32(a + b) == 0;
}

/* Whether what the windows of whole lines see is finite. */
static __attribute__((unused)) int smelt_winograd_finite(const smelt_window *w, const float *image, int64_t line,
                                                         int64_t end) {
  const int64_t wide = w->in[2] * w->pixel;
  for (; line < end;) {
    const int64_t n = line / w->out[1], o = line % w->out[1], lines = smelt_min(w->out[1] - o, end - line);
    const int64_t from = smelt_max(o - w->before[1], 0), to = smelt_min(o - w->before[1] + lines + 2, w->in[1]);
    if (to > from && !smelt_all_finite(image + (n * w->in[1] + from) * wide, (to - from) * wide)) return 0;
    line += lines;
  }
  return 1;
}

/* The weights of one panel as they were: tap (i, j) is a sum of transformed ones. */
static __attribute__((unused)) void smelt_winograd_taps(const float *panel, int64_t step, int64_t n, float *to) {
  static const int8_t first[3] = {0, 1, 3};
  for (int i = 0; i < 3; i++)
    for (int j = 0; j < 3; j++)
      for (int64_t k = 0; k < n; k++) {
        const float *u = panel + k;
        const float a = u[(4 * first[i] + first[j]) * step] - (j == 1 ? u[(4 * first[i] + 2) * step] : 0);
        const float b = i != 1 ? 0 : u[(8 + first[j]) * step] - (j == 1 ? u[10 * step] : 0);
        to[(3 * i + j) * n + k] = a - b;
      }
}

/* The plain form, panel by panel: an infinity must not reach windows that do not see it. */
static __attribute__((unused)) void smelt_winograd_plain(const smelt_window *w, const float *image, const float *panels,
                                                         int transformed, int64_t first, int64_t count, int64_t c0,
                                                         int64_t c1, float *block, int64_t ld, float *workspace) {
  if (!transformed) {
    smelt_convolve(w, image, panels, first, count, c0, c1, block, ld, NULL);
    return;
  }
  const int64_t n = w->pixel * 16, step = (w->columns + 15) / 16 * n;
  for (int64_t c = c0; c < c1; c += 16) {
    smelt_winograd_taps(panels + c * w->pixel, step, n, workspace);
    smelt_convolve_group(w, image, w->pixel, workspace, first, count, smelt_min(16, c1 - c), block + (c - c0), ld, NULL);
  }
}

/* `count` windows from `first` on, both whole lines that start at even ones of their images. */
static __attribute__((unused)) void smelt_winograd(const smelt_window *w, const float *image, const float *panels,
                                                   int transformed, int64_t first, int64_t count, int64_t c0, int64_t c1,
                                                   float *block, int64_t ld, float *workspace) {
  const int64_t H = w->out[1];
  if (!smelt_winograd_finite(w, image, first / w->out[2], (first + count) / w->out[2])) {
    smelt_winograd_plain(w, image, panels, transformed, first, count, c0, c1, block, ld, workspace);
    return;
  }
  for (int64_t line = first / w->out[2], end = (first + count) / w->out[2]; line < end;) {
    const int64_t lines = smelt_min(H - line % H, end - line);
    smelt_winograd_lines(w, image + line / H * w->in[1] * w->in[2] * w->pixel, panels, transformed, line % H, lines, c0, c1,
                         block, ld, workspace);
    block += lines * w->out[2] * ld;
    line += lines;
  }
}

#endif
