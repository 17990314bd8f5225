/* Convolution by the micro-kernels of gemm.h: direct, tap by tap over lines of the image in place, or over im2col rows, a few
 * at a time.
 *
 * Input:     smelt_window, an NHWC image, weights in panels (group, panel, tap * channel, 16); or an NCHW
 *            image of a few channels, panels (panel, channel * tap, 16), and a depth of at most SMELT_CONVOLVE_KC.
 * Output:    smelt_convolve(): a block of windows times a range of columns.
 * Invariant: an element is a sum over blocks of taps and channels that depend on the geometry alone, each one chain; so its
 *            bits do not depend on how windows and columns are shared among tasks. im2col rows stay in L2.
 */
#ifndef SMELT_CONVOLVE_H
#define SMELT_CONVOLVE_H

#include <smelt/conv/convolve_epilogue.h>
#include <smelt/conv/convolve_lines.h>

/* Largest depth of one block, and the leading dimension of im2col rows: off a power of two, so that rows do not share a
 * cache set. */
#define SMELT_CONVOLVE_KC 384
#define SMELT_CONVOLVE_LD (SMELT_CONVOLVE_KC + 16)

SMELT_GEMM_INLINE int64_t smelt_convolve_depth(int64_t K) {
  const int64_t blocks = smelt_gemm_ceil_div(K, SMELT_CONVOLVE_KC);
  return blocks <= 1 ? K : (smelt_gemm_ceil_div(K, blocks) + 3) & ~(int64_t)3;
}

/* A row being written: elements k0..k1-1 of a window. */
typedef struct {
  float *to;
  int64_t k0, k1;
} smelt_row;

/* n floats from memory, or zeros. In place of memcpy: runs are short. */
SMELT_GEMM_INLINE void smelt_floats_put(float *to, const float *from, int64_t n) {
  int64_t i = 0;
  for (; i + SMELT_L <= n; i += SMELT_L) st_f32(to + i, from ? ld_f32(from + i) : bc_f32(0));
  if (i < n) st_f32_n(to + i, from ? ld_f32_n(from + i, n - i) : bc_f32(0), n - i);
}

/* Elements k..k+n-1 of the window from memory, or zeros; what lies outside of the row is left out. */
SMELT_GEMM_INLINE void smelt_row_put(const smelt_row *r, int64_t k, int64_t n, const float *from) {
  const int64_t first = k > r->k0 ? k : r->k0, last = smelt_gemm_min(k + n, r->k1);
  if (last <= first) return;
  smelt_floats_put(r->to + (first - r->k0), from ? from + (first - k) : NULL, last - first);
}

/* The part of a window on one line of the image, its first element being the window's k-th; `s` are the taps that lie on
 * the line. */
SMELT_GEMM_INLINE void smelt_im2col_line(const smelt_window *w, const smelt_row *r, int64_t k, const float *line,
                                         smelt_span s, int64_t depth) {
  const int64_t taps = w->kernel[2], step = w->dilation[2] * w->pixel;
  if (s.lo > 0) smelt_row_put(r, k, s.lo * depth, NULL);
  const float *from = line + s.start * w->pixel;
  if (step == depth)
    smelt_row_put(r, k + s.lo * depth, (s.hi - s.lo) * depth, from + s.lo * step);
  else
    for (int64_t t = s.lo; t < s.hi; t++)
      smelt_row_put(r, k + t * depth, depth, from + t * step);
  if (s.hi < taps) smelt_row_put(r, k + s.hi * depth, (taps - s.hi) * depth, NULL);
}

/* Where tap t of the window at o looks along an axis; -1: nowhere. */
SMELT_GEMM_INLINE int64_t smelt_tap_place(const smelt_window *w, int axis, int64_t o, int64_t t) {
  int64_t at = o * w->stride[axis] + t * w->dilation[axis] - w->before[axis];
  if (w->spread) {
    at = o + w->before[axis] - t * w->dilation[axis];
    if (at % w->stride[axis]) return -1;
    at /= w->stride[axis];
  }
  return at >= 0 && at < w->in[axis] ? at : -1;
}

/* The same for a transposed convolution, tap by tap. */
SMELT_GEMM_INLINE void smelt_im2col_spread(const smelt_window *w, const smelt_row *r, int64_t k, const float *line,
                                           int64_t o, int64_t depth) {
  for (int64_t t = 0; t < w->kernel[2]; t++) {
    const int64_t at = smelt_tap_place(w, 2, o, t);
    smelt_row_put(r, k + t * depth, depth, at < 0 ? NULL : line + at * w->pixel);
  }
}

/* Elements r->k0..r->k1-1 of one window. `image` points at the group's first channel of the first image. */
static __attribute__((unused)) void smelt_im2col_window(const smelt_window *w, const float *image, const smelt_place *p,
                                                        int64_t depth, const smelt_row *r) {
  const int64_t line = w->kernel[2] * depth;
  const smelt_span s = smelt_span_of(w, 2, p->at[2], 0, w->in[2]);
  int64_t k = 0;
  for (int64_t ta = 0; ta < w->kernel[0]; ta++) {
    const int64_t a = smelt_tap_place(w, 0, p->at[0], ta);
    for (int64_t tb = 0; tb < w->kernel[1]; tb++, k += line) {
      if (k + line <= r->k0 || k >= r->k1) continue;
      const int64_t b = a < 0 ? -1 : smelt_tap_place(w, 1, p->at[1], tb);
      const float *from = image + ((p->image * w->in[0] + a) * w->in[1] + b) * w->in[2] * w->pixel;
      if (b < 0) smelt_row_put(r, k, line, NULL);
      else if (w->spread) smelt_im2col_spread(w, r, k, from, p->at[2], depth);
      else smelt_im2col_line(w, r, k, from, s, depth);
    }
  }
}

/* The same for a window that lies wholly inside, with its taps side by side and fewer than lanes. */
SMELT_GEMM_INLINE void smelt_im2col_inside(const smelt_window *w, const float *from, float *to) {
  const int64_t taps = w->kernel[2], line = w->dilation[1] * w->in[2], sheet = w->dilation[0] * w->in[1] * w->in[2];
  const int64_t plane = w->in[0] * w->in[1] * w->in[2], lines = w->kernel[1];
  for (int64_t c = 0; c < w->pixel; c++)
    for (int64_t ta = 0; ta < w->kernel[0]; ta++) {
      const float *at = from + c * plane + ta * sheet;
      for (int64_t tb = 0; tb < lines; tb++, to += taps, at += line) st_f32_n(to, ld_f32_n(at, taps), taps);
    }
}

/* One window of an NCHW image: depth runs over channels, then taps. */
static __attribute__((unused)) void smelt_im2col_nchw(const smelt_window *w, const float *image, const smelt_place *p,
                                                        float *to) {
  const smelt_span s = smelt_span_of(w, 2, p->at[2], 0, w->in[2]);
  const int64_t taps = w->kernel[2], plane = w->in[0] * w->in[1] * w->in[2], step = w->dilation[2];
  const float *from = image + p->image * w->pixel * plane;
  const smelt_span sa = smelt_span_of(w, 0, p->at[0], 0, w->in[0]), sb = smelt_span_of(w, 1, p->at[1], 0, w->in[1]);
  if (sa.hi - sa.lo == w->kernel[0] && sb.hi - sb.lo == w->kernel[1] && s.hi - s.lo == taps && step == 1 && taps < SMELT_L) {
    smelt_im2col_inside(w, from + (sa.start * w->in[1] + sb.start) * w->in[2] + s.start, to);
    return;
  }
  for (int64_t c = 0; c < w->pixel; c++, from += plane)
    for (int64_t ta = 0; ta < w->kernel[0]; ta++) {
      const int64_t a = smelt_tap_place(w, 0, p->at[0], ta);
      for (int64_t tb = 0; tb < w->kernel[1]; tb++, to += taps) {
        const int64_t b = a < 0 ? -1 : smelt_tap_place(w, 1, p->at[1], tb);
        const float *line = from + (a * w->in[1] + b) * w->in[2] + s.start;
        if (b < 0) {
          smelt_floats_put(to, NULL, taps);
          continue;
        }
        for (int64_t t = 0; t < s.lo; t++) to[t] = 0;
        if (step == 1) smelt_floats_put(to + s.lo, line + s.lo, s.hi - s.lo);
        else for (int64_t t = s.lo; t < s.hi; t++) to[t] = line[t * step];
        for (int64_t t = s.hi; t < taps; t++) to[t] = 0;
      }
    }
}

/* Elements k..k+s->kc-1 of s->m windows from `first` on, as rows that the slab reads. */
SMELT_GEMM_INLINE void smelt_im2col(const smelt_window *w, const float *image, int64_t depth, int64_t first, int64_t k,
                                    smelt_gemm_slab *s, float *rows) {
  if (smelt_pointwise(w)) {
    s->a = image + first * w->pixel + k, s->lda = w->pixel;
    return;
  }
  smelt_place p = smelt_place_of(w, first);
  for (int64_t row = 0; row < s->m; ++row, smelt_place_next(w, &p)) {
    const smelt_row r = {rows + row * SMELT_CONVOLVE_LD, k, k + s->kc};
    if (w->nchw) smelt_im2col_nchw(w, image, &p, r.to);
    else smelt_im2col_window(w, image, &p, depth, &r);
  }
}

/* All columns of some rows, a few panels at a time and block by block over k: a block of panels stays in L1 while the rows pass
 * by. After the last columns comes the next block of k where there is `more`, or else what follows them. */
static __attribute__((unused)) void smelt_convolve_rows(const smelt_gemm_slab *s, int more, const smelt_epilogue *epilogue) {
  const int64_t depth = smelt_gemm_depth(s->kc);
  for (int64_t col = 0, panels; col < s->cols; col += panels * SMELT_GEMM_PANEL) {
    panels = smelt_gemm_panels(s, col);
    const int64_t next = col / SMELT_GEMM_PANEL + panels;
    const float *following = more && next * SMELT_GEMM_PANEL >= s->cols ? s->b + s->kc * SMELT_GEMM_PANEL
                                                                        : s->b + next * s->panel_stride;
    smelt_epilogue_blocks(s, col, panels, depth, following, epilogue);
  }
}

/* The axis along which windows lie in memory as they are read, all taps and channels one after the other: no axis behind it has
 * more than one pixel, no other one more than one tap. -1: there is none, or windows are pixels, which all lie side by side, or
 * lines are so short that panels would pass by too often. */
SMELT_GEMM_INLINE int smelt_contiguous_axis(const smelt_window *w) {
  int axis = 2;
  if (w->nchw || w->spread || w->groups != 1 || smelt_pointwise(w)) return -1;
  while (axis > 0 && w->in[axis] == 1 && w->out[axis] == 1 && w->kernel[axis] == 1 && w->before[axis] == 0) axis--;
  for (int other = 0; other < 3; other++)
    if (other != axis && w->kernel[other] != 1) return -1;
  return w->dilation[axis] == 1 && w->out[axis] >= SMELT_WINDOW_ROWS ? axis : -1;
}

/* How many windows from a number on, `count` at most, lie inside of the image and side by side in it; where the first one
 * begins. 0: fewer than im2col takes at a time. */
static __attribute__((unused)) int64_t smelt_contiguous_run(const smelt_window *w, int axis, const float *image, int64_t number,
                                                            int64_t count, const float **at) {
  const smelt_place p = smelt_place_of(w, number);
  int64_t place = p.image;
  for (int other = 0; other < 3; other++) {
    const int64_t pixel = p.at[other] * w->stride[other] - w->before[other];
    if (pixel < 0 || pixel + w->kernel[other] > w->in[other]) return 0;
    place = place * w->in[other] + pixel;
  }
  const int64_t last = (w->in[axis] + w->before[axis] - w->kernel[axis]) / w->stride[axis];
  *at = image + place * w->pixel;
  const int64_t run = smelt_gemm_min(count, smelt_gemm_min(last, w->out[axis] - 1) - p.at[axis] + 1);
  return run >= smelt_gemm_min(count, SMELT_WINDOW_ROWS) ? run : 0;
}

/* One group of channels: `count` windows from `first` on, `cols` columns of the panels b on. */
static __attribute__((unused)) void smelt_convolve_group(const smelt_window *w, const float *image, int64_t depth,
                                                         const float *b, int64_t first, int64_t count, int64_t cols,
                                                         float *block, int64_t ld, const smelt_epilogue *epilogue) {
  float rows[SMELT_WINDOW_ROWS * SMELT_CONVOLVE_LD] __attribute__((aligned(64)));
  const int64_t K = w->kernel[0] * w->kernel[1] * w->kernel[2] * depth, step = smelt_convolve_depth(K);
  const int64_t chunks = smelt_gemm_ceil_div(count, SMELT_WINDOW_ROWS);
  smelt_gemm_slab s = {rows, SMELT_CONVOLVE_LD, b, K * SMELT_GEMM_PANEL, 0, block, ld, 0, cols, 0, 0, NULL, 0, 0};
  for (int64_t i = 0, t = 0; t < chunks; ++t, i += s.m) {
    s.m = count / chunks + (t < count % chunks), s.c = block + i * ld;
    for (int64_t k = 0; k < K; k += step) {
      s.kc = smelt_gemm_min(step, K - k), s.b = b + k * SMELT_GEMM_PANEL, s.add = k > 0;
      smelt_im2col(w, image, depth, first + i, k, &s, rows);
      const smelt_epilogue here = epilogue ? smelt_epilogue_at(epilogue, i, 0) : (smelt_epilogue){0};
      smelt_convolve_rows(&s, k + step < K, epilogue && k + step >= K ? &here : NULL);
    }
    if (K <= 0)
      for (int64_t row = 0; row < s.m; ++row)
        __builtin_memset(s.c + row * ld, 0, (size_t)cols * sizeof(float));
  }
  if (epilogue && K <= 0) smelt_epilogue_block(epilogue, block, ld, count);
}

/* The same where windows are contiguous along an axis: they are read where they lie, in the same blocks of k; those at the
 * borders are gathered. */
static __attribute__((noinline, unused)) void smelt_convolve_along(const smelt_window *w, int axis, const float *image,
                                                                   int64_t depth, const float *b, int64_t first, int64_t count,
                                                                   int64_t cols, float *block, int64_t ld,
                                                                   const smelt_epilogue *epilogue) {
  const int64_t K = w->kernel[axis] * depth, step = smelt_convolve_depth(K);
  smelt_gemm_slab s = {NULL, w->stride[axis] * w->pixel, b, K * SMELT_GEMM_PANEL, 0, block, ld, 0, cols, 0, 0, NULL, 0, 0};
  for (int64_t i = 0; i < count; i += s.m) {
    const float *at = NULL;
    const int64_t run = smelt_contiguous_run(w, axis, image, first + i, count - i, &at);
    const smelt_epilogue here = epilogue ? smelt_epilogue_at(epilogue, i, 0) : (smelt_epilogue){0};
    s.c = block + i * ld;
    if (run <= 0) {
      s.m = smelt_gemm_min(count - i, SMELT_WINDOW_ROWS);
      smelt_convolve_group(w, image, depth, b, first + i, s.m, cols, s.c, ld, epilogue ? &here : NULL);
      continue;
    }
    s.m = smelt_gemm_ceil_div(run, smelt_gemm_ceil_div(run, SMELT_GEMM_MC));
    for (int64_t k = 0; k < K; k += step) {
      s.kc = smelt_gemm_min(step, K - k), s.b = b + k * SMELT_GEMM_PANEL, s.add = k > 0, s.a = at + k;
      smelt_convolve_rows(&s, k + step < K, epilogue && k + step >= K ? &here : NULL);
    }
  }
}

/* Channels from which on a tap is worth a pass of its own; below, im2col. */
#define SMELT_TAP_DEPTH 24

/* Windows side by side on one line that see tap t of the last axis: lo..hi-1 of those from `o` on. */
SMELT_GEMM_INLINE smelt_span smelt_tap_range(const smelt_window *w, int64_t t, int64_t o, int64_t count) {
  const int64_t stride = w->stride[2], start = o * stride + t * w->dilation[2] - w->before[2];
  smelt_span s = {start, 0, count};
  if (start < 0) s.lo = smelt_gemm_min(smelt_gemm_ceil_div(-start, stride), count);
  const int64_t inside = start >= w->in[2] ? 0 : smelt_gemm_ceil_div(w->in[2] - start, stride);
  s.hi = smelt_gemm_min(inside, count);
  if (s.hi < s.lo) s.hi = s.lo;
  return s;
}

/* One tap of `count` windows side by side: adds its products to the rows of the block that see it. */
static __attribute__((unused)) void smelt_convolve_tap(const smelt_window *w, const float *line, int64_t t, int64_t o,
                                                       int64_t count, const smelt_gemm_slab *slab, float *c) {
  const smelt_span s = smelt_tap_range(w, t, o, count);
  if (s.hi <= s.lo) return;
  smelt_gemm_slab part = *slab;
  part.m = s.hi - s.lo, part.c = c + s.lo * slab->ldc;
  part.a = line + (s.start + s.lo * w->stride[2]) * w->pixel, part.lda = w->stride[2] * w->pixel;
  smelt_gemm_rows(&part, 0, slab->cols == SMELT_GEMM_NP * SMELT_GEMM_PANEL ? SMELT_GEMM_NP : 1, slab->cols,
                  slab->b + slab->kc * SMELT_GEMM_PANEL);
}

/* All windows times a few columns (those of a main tile, or fewer), tap by tap: a tap's panel stays in L1 while the lines
 * pass by. */
static __attribute__((unused)) void smelt_convolve_columns(const smelt_window *w, const float *image, int64_t first,
                                                           int64_t count, int64_t taps, smelt_gemm_slab s, float *block) {
  const float *b = s.b;
  for (int64_t n = 0; n < taps; n++) {
    const int64_t t = n % w->kernel[2], lines = n / w->kernel[2];
    smelt_place p = smelt_place_of(w, first);
    s.b = b + n * s.kc * SMELT_GEMM_PANEL;
    for (int64_t i = 0; i < count;) {
      const int64_t run = smelt_gemm_min(w->out[2] - p.at[2], count - i);
      const int64_t y = smelt_tap_place(w, 0, p.at[0], lines / w->kernel[1]);
      const int64_t x = smelt_tap_place(w, 1, p.at[1], lines % w->kernel[1]);
      if (x >= 0 && y >= 0) {
        const float *line = image + ((p.image * w->in[0] + y) * w->in[1] + x) * w->in[2] * w->pixel;
        smelt_convolve_tap(w, line, t, p.at[2], run, &s, block + i * s.ldc);
      }
      i += run, p.at[2] += run - 1;
      smelt_place_next(w, &p);
    }
  }
}

/* Whether the first tap of every window lies in the image. */
SMELT_GEMM_INLINE int smelt_tap_inside(const smelt_window *w) {
  int inside = 1;
  for (int axis = 0; axis < 3; axis++)
    inside &= w->before[axis] == 0 && (w->out[axis] - 1) * w->stride[axis] < w->in[axis];
  return inside;
}

/* One group of channels, tap by tap and in place: no im2col. Each tap's sum is one chain, added in their order. */
static __attribute__((unused)) void smelt_convolve_taps(const smelt_window *w, const float *image, int64_t depth,
                                                        const float *b, int64_t first, int64_t count, int64_t cols,
                                                        float *block, int64_t ld) {
  const int64_t taps = w->kernel[0] * w->kernel[1] * w->kernel[2], stride = taps * depth * SMELT_GEMM_PANEL;
  const int add = taps > 1 || !smelt_tap_inside(w);
  for (int64_t i = 0; add && i < count; i++) __builtin_memset(block + i * ld, 0, (size_t)cols * sizeof(float));
  smelt_gemm_slab s = {NULL, 0, NULL, stride, depth, NULL, ld, 0, 0, add, 0, NULL, 0, 0};
  for (int64_t col = 0; col < cols; col += s.cols) {
    s.cols = smelt_gemm_min(SMELT_GEMM_NP * SMELT_GEMM_PANEL, cols - col);
    if (s.cols < SMELT_GEMM_NP * SMELT_GEMM_PANEL) s.cols = smelt_gemm_min(SMELT_GEMM_PANEL, s.cols);
    s.b = b + col / SMELT_GEMM_PANEL * stride;
    smelt_convolve_columns(w, image, first, count, taps, s, block + col);
  }
}

/* Lines must be long enough for tall tiles, and windows a multiple of 4096 bytes apart share a cache set: a tall tile has more
 * of them than a set has ways. */
SMELT_GEMM_INLINE int smelt_by_taps(const smelt_window *w, int64_t depth) {
  if (SMELT_GEMM_MR > 8 && w->stride[2] * w->pixel % 1024 == 0) return 0;
  return depth >= SMELT_TAP_DEPTH && !w->nchw && !w->spread && !smelt_pointwise(w) && w->out[2] >= 12;
}

/* Where windows overlap along a line, copies of lines take the place of im2col rows. Windows of one tap never do. */
SMELT_GEMM_INLINE int smelt_by_lines(const smelt_window *w, int64_t depth) {
  if (w->kernel[0] * w->kernel[1] * w->kernel[2] == 1) return 0;
  return depth <= SMELT_LINES_DEPTH && w->out[2] >= SMELT_LINES_LEAST && smelt_lines_fit(w, depth) >= SMELT_LINES_WINDOWS;
}

/* Columns c0..c1-1 of several groups; c0 and c1 lie between groups. */
static __attribute__((unused)) void smelt_convolve_groups(const smelt_window *w, const float *image, const float *panels,
                                                          int64_t first, int64_t count, int64_t c0, int64_t c1, float *block,
                                                          int64_t ld) {
  const int64_t depth = w->pixel / w->groups, each = w->columns / w->groups;
  const int64_t K = w->kernel[0] * w->kernel[1] * w->kernel[2] * depth, floats = smelt_gemm_packed_floats(K, each);
  for (int64_t c = c0; c < c1; c += each) {
    const float *from = image + c / each * depth, *b = panels + c / each * floats;
    if (smelt_by_lines(w, depth) && each <= SMELT_LINES_EXACT)
      smelt_convolve_exact(w, from, depth, b, first, count, each, block + (c - c0), ld);
    else if (smelt_by_taps(w, depth)) smelt_convolve_taps(w, from, depth, b, first, count, each, block + (c - c0), ld);
    else smelt_convolve_group(w, from, depth, b, first, count, each, block + (c - c0), ld, NULL);
  }
}

/* Terms of a window from which on a panel and copies of lines do not fit L1 together. */
enum { SMELT_ALONG_DEPTH = 256 };

/* Columns c0..c1-1, which lie between panels or groups. The block has room for whole panels; of the last one a half may stay as
 * it is. */
static __attribute__((unused)) void smelt_convolve(const smelt_window *w, const float *image, const float *panels,
                                                   int64_t first, int64_t count, int64_t c0, int64_t c1, float *block,
                                                   int64_t ld, const smelt_epilogue *epilogue) {
  const int64_t depth = w->pixel, K = w->kernel[0] * w->kernel[1] * w->kernel[2] * depth;
  const int64_t cols = smelt_gemm_ceil_div(c1 - c0, SMELT_GEMM_HALF) * SMELT_GEMM_HALF;
  const float *b = panels + c0 * K;
  const int axis = K > 0 ? smelt_contiguous_axis(w) : -1;
  if (axis >= 0 && K >= SMELT_ALONG_DEPTH) {
    smelt_convolve_along(w, axis, image, depth, b, first, count, cols, block, ld, epilogue);
    return;
  }
  if (w->nchw ? smelt_lines_fit(w, depth) > 0 : w->groups == 1 && smelt_by_lines(w, depth)) {
    smelt_convolve_lines(w, image, depth, b, first, count, cols, block, ld, epilogue);
    return;
  }
  if (axis >= 0) {
    smelt_convolve_along(w, axis, image, depth, b, first, count, cols, block, ld, epilogue);
    return;
  }
  if (w->groups == 1 && !smelt_by_taps(w, depth)) {
    smelt_convolve_group(w, image, depth, b, first, count, cols, block, ld, epilogue);
    return;
  }
  if (w->groups > 1) smelt_convolve_groups(w, image, panels, first, count, c0, c1, block, ld);
  else smelt_convolve_taps(w, image, depth, b, first, count, cols, block, ld);
  if (epilogue) smelt_epilogue_block(epilogue, block, ld, count);
}

#endif
