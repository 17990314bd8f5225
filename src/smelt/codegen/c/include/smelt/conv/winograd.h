/* Convolution of 3 x 3 taps by Winograd's F(2 x 4, 3 x 3): 24 products where the plain form takes 72.
 *
 * Input:     smelt_window with stride and dilation 1, an NHWC image, transformed weights in panels
 *            (24, panel, channel, 16), or plain ones (panel, tap, channel, 16) that are transformed here, a block that stays
 *            in L2 at a time. Output: a block of windows that are whole lines, times a range of columns.
 * Invariant: results come in tiles of two lines and four columns that start at even lines and at every fourth column of
 *            their image, so an element's bits do not depend on how lines and columns are shared among tasks. What lies
 *            outside of the image is zero. Where the image is not finite, the plain form is computed: differences of
 *            infinities would reach too far.
 *
 * Down a column the points are 0, 1, -1 and infinity. Along a line they are 0, a, -a, b, -b and infinity with a = 5/8 and
 * b = 11/8: of the pairs of small fractions these gave the smallest errors, half of those of 1 and 2. All factors of images
 * and of sums are exact in float32. ir/kernel/winograd.py has the same numbers.
 */
#ifndef SMELT_WINOGRAD_H
#define SMELT_WINOGRAD_H

#include <smelt/gemm/gemm.h>
#include <smelt/vec/vec.h>
#include <smelt/conv/window.h>

#define SMELT_POINT_A 0.625f
#define SMELT_POINT_B 1.375f
#define SMELT_POINT_AA (SMELT_POINT_A * SMELT_POINT_A)
#define SMELT_POINT_BB (SMELT_POINT_B * SMELT_POINT_B)
#define SMELT_POINT_SUM (SMELT_POINT_AA + SMELT_POINT_BB)
#define SMELT_POINT_PRODUCT (SMELT_POINT_AA * SMELT_POINT_BB)
/* What the filter's rows of a and of b are divided by. */
#define SMELT_SCALE_A (2.0f * SMELT_POINT_AA * (SMELT_POINT_AA - SMELT_POINT_BB))
#define SMELT_SCALE_B (2.0f * SMELT_POINT_BB * (SMELT_POINT_BB - SMELT_POINT_AA))

/* Six pixels of a line become six terms, `step` apart. */
SMELT_INLINE void smelt_winograd_line(const v_f32 *d, int64_t live, float *to, int64_t step) {
  const v_f32 aa = bc_f32(SMELT_POINT_AA), bb = bc_f32(SMELT_POINT_BB), sum = bc_f32(SMELT_POINT_SUM);
  const v_f32 a = bc_f32(SMELT_POINT_A), b = bc_f32(SMELT_POINT_B), both = bc_f32(SMELT_POINT_PRODUCT);
  const v_f32 even_a = d[4] - bb * d[2], odd_a = a * (d[3] - bb * d[1]);
  const v_f32 even_b = d[4] - aa * d[2], odd_b = b * (d[3] - aa * d[1]);
  const v_f32 y[6] = {d[4] - sum * d[2] + both * d[0], even_a + odd_a, even_a - odd_a,
                      even_b + odd_b,                  even_b - odd_b, d[5] - sum * d[3] + both * d[1]};
  for (int j = 0; j < 6; j++)
    if (live) st_f32_n(to + j * step, y[j], live);
    else st_f32(to + j * step, y[j]);
}

/* A pixel of a patch, or what lies outside of the image. */
SMELT_INLINE v_f32 smelt_winograd_pixel(const float *at, int64_t line, int64_t pixel, smelt_span y, smelt_span x,
                                        int64_t live, int i, int j) {
  const float *from = at + i * line + j * pixel;
  if (i < y.lo || i >= y.hi || j < x.lo || j >= x.hi) return bc_f32(0);
  return live ? ld_f32_n(from, live) : ld_f32(from);
}

/* SMELT_L channels of a patch of 4 x 6 pixels whose first one is `at`; rows and columns lo..hi-1 of it lie in the image. Term
 * (i, j) goes to to[(6 i + j) * step]. `live` is the number of lanes of a partial vector, 0 for whole ones. */
SMELT_INLINE void smelt_winograd_patch(const float *at, int64_t line, int64_t pixel, smelt_span y, smelt_span x,
                                       int64_t live, float *to, int64_t step) {
#define SMELT_PIXEL(I, J) smelt_winograd_pixel(at, line, pixel, y, x, live, I, J)
  v_f32 one[6], other[6];
  for (int j = 0; j < 6; j++) one[j] = SMELT_PIXEL(0, j) - SMELT_PIXEL(2, j);
  smelt_winograd_line(one, live, to, step);
  for (int j = 0; j < 6; j++) {
    const v_f32 upper = SMELT_PIXEL(1, j), lower = SMELT_PIXEL(2, j);
    one[j] = upper + lower, other[j] = lower - upper;
  }
  smelt_winograd_line(one, live, to + 6 * step, step);
  smelt_winograd_line(other, live, to + 12 * step, step);
  for (int j = 0; j < 6; j++) one[j] = SMELT_PIXEL(1, j) - SMELT_PIXEL(3, j);
  smelt_winograd_line(one, live, to + 18 * step, step);
#undef SMELT_PIXEL
}

/* Which of the `wide` pixels of a patch that starts at `start` lie in an axis of `size` pixels. */
SMELT_INLINE smelt_span smelt_patch_span(int64_t start, int64_t wide, int64_t size) {
  smelt_span s = {start, start < 0 ? smelt_min(-start, wide) : 0, smelt_min(wide, smelt_max(size - start, 0))};
  if (s.hi < s.lo) s.hi = s.lo;
  return s;
}

/* Channels k..k+depth-1 of one tile's patch: output line oy, column ox of one image. */
static __attribute__((unused)) void smelt_winograd_tile(const smelt_window *w, const float *image, int64_t oy, int64_t ox,
                                                        int64_t k, int64_t depth, float *to, int64_t step) {
  const smelt_span y = smelt_patch_span(oy - w->before[1], 4, w->in[1]), x = smelt_patch_span(ox - w->before[2], 6, w->in[2]);
  const int64_t line = w->in[2] * w->pixel;
  const float *at = image + y.start * line + x.start * w->pixel + k;
  int64_t c = 0;
  if (y.hi - y.lo == 4 && x.hi - x.lo == 6)
    for (; c + SMELT_L <= depth; c += SMELT_L)
      smelt_winograd_patch(at + c, line, w->pixel, (smelt_span){0, 0, 4}, (smelt_span){0, 0, 6}, 0, to + c, step);
  for (; c + SMELT_L <= depth; c += SMELT_L) smelt_winograd_patch(at + c, line, w->pixel, y, x, 0, to + c, step);
  if (c < depth) smelt_winograd_patch(at + c, line, w->pixel, y, x, depth - c, to + c, step);
}

/* Three taps of a line, SMELT_L columns of each, become six terms, `out` apart. */
SMELT_INLINE void smelt_winograd_filter_line(v_f32 first, v_f32 middle, v_f32 last, float *to, int64_t out) {
  const v_f32 even_a = (first + bc_f32(SMELT_POINT_AA) * last) * bc_f32(1.0f / SMELT_SCALE_A);
  const v_f32 even_b = (first + bc_f32(SMELT_POINT_BB) * last) * bc_f32(1.0f / SMELT_SCALE_B);
  const v_f32 odd_a = middle * bc_f32(SMELT_POINT_A / SMELT_SCALE_A), odd_b = middle * bc_f32(SMELT_POINT_B / SMELT_SCALE_B);
  st_f32(to, first * bc_f32(1.0f / SMELT_POINT_PRODUCT)), st_f32(to + 5 * out, last);
  st_f32(to + out, even_a + odd_a), st_f32(to + 2 * out, even_a - odd_a);
  st_f32(to + 3 * out, even_b + odd_b), st_f32(to + 4 * out, even_b - odd_b);
}

/* SMELT_L columns of one channel's filter: nine taps, `step` apart, become the terms, `out` apart. */
SMELT_INLINE void smelt_winograd_filter(const float *from, int64_t step, float *to, int64_t out) {
  const v_f32 half = bc_f32(0.5f);
  v_f32 r[4][3];
  for (int j = 0; j < 3; j++) {
    const v_f32 a = ld_f32(from + j * step), b = ld_f32(from + (3 + j) * step), c = ld_f32(from + (6 + j) * step);
    const v_f32 outer = (a + c) * half, inner = b * half;
    r[0][j] = a, r[1][j] = outer + inner, r[2][j] = outer - inner, r[3][j] = c;
  }
  for (int i = 0; i < 4; i++) smelt_winograd_filter_line(r[i][0], r[i][1], r[i][2], to + 6 * i * out, out);
}

/* Some channels of `count` panels of plain weights: `from` of (panel, tap, channels, 16) becomes (24, panel, depth, 16). */
static __attribute__((unused)) void smelt_winograd_filters(const float *from, int64_t channels, int64_t depth,
                                                           int64_t count, float *to) {
  for (int64_t p = 0; p < count; p++)
    for (int64_t k = 0; k < depth * 16; k += SMELT_L)
      smelt_winograd_filter(from + p * 9 * channels * 16 + k, channels * 16, to + p * depth * 16 + k,
                            SMELT_WINOGRAD_STEP(count * depth * 16));
}

/* The products of all terms, the slab being the first: rows (24, tiles, lda), sums (24, tiles, ldc), panels `step` apart. */
static __attribute__((unused)) void smelt_winograd_products(const smelt_gemm_slab *first, int64_t step) {
  const int64_t tiles = first->m, rows = SMELT_WINOGRAD_STEP(tiles * first->lda), sums = SMELT_WINOGRAD_STEP(tiles * first->ldc);
  smelt_gemm_slab s = *first;
  for (int64_t k = 0; k < SMELT_WINOGRAD_TERMS; k++)
    for (int64_t row = 0; row < tiles; row += s.m) {
      s.m = smelt_min(SMELT_GEMM_MC, tiles - row);
      s.a = first->a + k * rows + row * s.lda, s.b = first->b + k * step, s.c = first->c + k * sums + row * s.ldc;
      smelt_gemm_columns(&s, 0);
    }
}

/* The patches of `tiles` tiles from line oy on, some channels of each: rows (24, tiles, ld). */
static __attribute__((unused)) void smelt_winograd_rows(const smelt_window *w, const float *image, int64_t oy, int64_t tiles,
                                                        int64_t channel, int64_t depth, float *rows, int64_t ld) {
  const int64_t across = SMELT_WINOGRAD_ACROSS(w->out[2]), step = SMELT_WINOGRAD_STEP(tiles * ld);
  for (int64_t t = 0; t < tiles; t++)
    smelt_winograd_tile(w, image, oy + t / across * 2, t % across * 4, channel, depth, rows + t * ld, step);
}

/* All sums of `tiles` tiles and `wide` columns with plain weights: a block of channels at a time, whose patches stay in L2 for
 * all columns. `workspace` holds the patches of a block and then its filters. */
static __attribute__((unused)) void smelt_winograd_sums(const smelt_window *w, const float *image, const float *panels,
                                                        int64_t oy, int64_t tiles, float *sums, int64_t wide,
                                                        float *workspace) {
  const int64_t C = w->pixel, most = SMELT_WINOGRAD_PANELS * 16, deep = smelt_winograd_depth(C);
  float *rows = workspace, *filters = rows + SMELT_WINOGRAD_TERMS * SMELT_WINOGRAD_STEP(tiles * deep);
  for (int64_t c = 0; c < C; c += deep) {
    const int64_t depth = smelt_min(deep, C - c);
    smelt_winograd_rows(w, image, oy, tiles, c, depth, rows, deep);
    for (int64_t col = 0; col < wide; col += most) {
      const int64_t cols = smelt_min(most, wide - col);
      smelt_winograd_filters(panels + col * 9 * C + c * 16, C, depth, cols / 16, filters);
      const smelt_gemm_slab s = {rows, deep, filters, depth * 16, depth, sums + col, wide, tiles, cols, c > 0, 0, NULL, 0, 0};
      smelt_winograd_products(&s, SMELT_WINOGRAD_STEP(depth * cols));
    }
  }
}

/* Six sums of a line back to four results. */
SMELT_INLINE void smelt_winograd_out_line(const v_f32 *m, v_f32 *y) {
  const v_f32 a = bc_f32(SMELT_POINT_A), b = bc_f32(SMELT_POINT_B), aa = bc_f32(SMELT_POINT_AA), bb = bc_f32(SMELT_POINT_BB);
  const v_f32 even_a = m[1] + m[2], odd_a = (m[1] - m[2]) * a, even_b = m[3] + m[4], odd_b = (m[3] - m[4]) * b;
  y[0] = m[0] + even_a + even_b, y[1] = odd_a + odd_b;
  y[2] = even_a * aa + even_b * bb, y[3] = odd_a * aa + odd_b * bb + m[5];
}

/* Sums of products back to a tile of 2 x 4 results, SMELT_L columns of it; rows top..rows-1 and cols of them are wanted. */
SMELT_INLINE void smelt_winograd_out(const float *from, int64_t step, int64_t live, float *to, int64_t line, int64_t ld,
                                     int top, int rows, int cols) {
  v_f32 upper[6], lower[6], y[2][4];
  for (int j = 0; j < 6; j++) {
    v_f32 m[4];
    for (int i = 0; i < 4; i++) {
      const float *one = from + (6 * i + j) * step;
      m[i] = live ? ld_f32_n(one, live) : ld_f32(one);
    }
    upper[j] = m[0] + m[1] + m[2], lower[j] = m[1] - m[2] - m[3];
  }
  smelt_winograd_out_line(upper, y[0]), smelt_winograd_out_line(lower, y[1]);
  for (int i = 0; i < 2; i++)
    for (int j = 0; j < 4; j++)
      if (i >= top && i < rows && j < cols) {
        float *one = to + i * line + j * ld;
        if (live) st_f32_n(one, y[i][j], live);
        else st_f32(one, y[i][j]);
      }
}

/* The results of all tiles of some lines, from their sums (24, tiles, wide) into `block`. With `odd` the first line of the
 * first tiles is not wanted: `block` begins with their second. */
static __attribute__((unused)) void smelt_winograd_results(const smelt_window *w, const float *sums, int odd, int64_t lines,
                                                           int64_t tiles, int64_t cols, int64_t wide, float *block, int64_t ld) {
  const int64_t across = SMELT_WINOGRAD_ACROSS(w->out[2]), step = SMELT_WINOGRAD_STEP(tiles * wide), line = w->out[2] * ld;
  for (int64_t t = 0; t < tiles; t++) {
    const int64_t y = t / across * 2, x = t % across * 4;
    const int top = y < odd, rows = (int)smelt_min(lines + odd - y, 2), columns = (int)smelt_min(w->out[2] - x, 4);
    float *to = block + (y - odd) * line + x * ld;
    const float *from = sums + t * wide;
    int64_t c = 0;
    if (!top && rows == 2 && columns == 4)
      for (; c + SMELT_L <= cols; c += SMELT_L) smelt_winograd_out(from + c, step, 0, to + c, line, ld, 0, 2, 4);
    for (; c + SMELT_L <= cols; c += SMELT_L) smelt_winograd_out(from + c, step, 0, to + c, line, ld, top, rows, columns);
    if (c < cols) smelt_winograd_out(from + c, step, cols - c, to + c, line, ld, top, rows, columns);
  }
}

/* Lines of results oy..oy+lines-1 of one image, columns c0..c1-1 (between panels), into `block`. Where oy is odd, its tile is
 * computed as a whole: half of it belongs to another task. */
static __attribute__((unused)) void smelt_winograd_lines(const smelt_window *w, const float *image, const float *panels,
                                                         int transformed, int64_t oy, int64_t lines, int64_t c0, int64_t c1,
                                                         float *block, int64_t ld, float *workspace) {
  const int odd = (int)(oy % 2);
  const int64_t tiles = (odd + lines + 1) / 2 * SMELT_WINOGRAD_ACROSS(w->out[2]), C = w->pixel;
  const int64_t all = (w->columns + 15) / 16 * 16, cols = c1 - c0, wide = (cols + 15) / 16 * 16;
  const int64_t row_step = SMELT_WINOGRAD_STEP(tiles * C), sum_step = SMELT_WINOGRAD_STEP(tiles * wide);
  float *sums = workspace, *rest = sums + SMELT_WINOGRAD_TERMS * sum_step;
  if (transformed) {
    smelt_winograd_rows(w, image, oy - odd, tiles, 0, C, rest, C);
    for (int64_t k = 0; k < SMELT_WINOGRAD_TERMS; k++)
      smelt_gemm_f32(rest + k * row_step, C, panels + (k * all + c0) * C, C, sums + k * sum_step, wide, tiles, 0, wide / 16,
                     wide, NULL);
  } else smelt_winograd_sums(w, image, panels + c0 * 9 * C, oy - odd, tiles, sums, wide, rest);
  smelt_winograd_results(w, sums, odd, lines, tiles, cols, wide, block, ld);
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

/* The weights of one panel as they were: tap (i, j) from its transformed ones, first down the columns, then along a line. */
static __attribute__((unused)) void smelt_winograd_taps(const float *panel, int64_t step, int64_t n, float *to) {
  for (int64_t k = 0; k < n; k++)
    for (int i = 0; i < 3; i++) {
      float line[6];
      for (int j = 0; j < 6; j++) {
        const float *u = panel + j * step + k;
        line[j] = i == 0 ? u[0] : i == 1 ? u[6 * step] - u[12 * step] : u[18 * step];
      }
      to[(3 * i) * n + k] = line[0] * SMELT_POINT_PRODUCT;
      to[(3 * i + 1) * n + k] = (line[1] - line[2]) * (SMELT_SCALE_A / (2.0f * SMELT_POINT_A));
      to[(3 * i + 2) * n + k] = line[5];
    }
}

/* The plain form, panel by panel: an infinity must not reach windows that do not see it. */
static __attribute__((unused)) void smelt_winograd_plain(const smelt_window *w, const float *image, const float *panels,
                                                         int transformed, int64_t first, int64_t count, int64_t c0,
                                                         int64_t c1, float *block, int64_t ld, float *workspace) {
  if (!transformed) {
    SMELT_CONVOLVE(w, image, panels, first, count, c0, c1, block, ld, NULL);
    return;
  }
  const int64_t n = w->pixel * 16, step = (w->columns + 15) / 16 * n;
  smelt_window one = *w;
  one.columns = 16;
  for (int64_t c = c0; c < c1; c += 16) {
    smelt_winograd_taps(panels + c * w->pixel, step, n, workspace);
    SMELT_CONVOLVE(&one, image, workspace, first, count, 0, smelt_min(16, c1 - c), block + (c - c0), ld, NULL);
  }
}

/* `count` windows from `first` on, both whole lines. */
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
