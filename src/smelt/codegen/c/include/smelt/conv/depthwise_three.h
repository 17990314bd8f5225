/* Depthwise convolution with three taps side by side along its lines: 3 x 3, or 3.
 *
 * Input:     smelt_window, an NHWC image; weights in panels (panel, tap, 16). Output: a block of windows.
 * Invariant: every element is one chain over the taps that lie in the image, in rising order, whatever tile computes it.
 *            Windows side by side share the pixels that they see: each is loaded once for all of a tile.
 */
#ifndef SMELT_DEPTHWISE_THREE_H
#define SMELT_DEPTHWISE_THREE_H

#include <smelt/conv/depthwise_taps.h>
#include <smelt/conv/epilogue.h>

/* Most windows of a tile, and vectors of a tile of whole ones. */
enum { SMELT_THREE_MOST = 7, SMELT_THREE_VECTORS = SMELT_L == 16 ? 2 : 1 };

/* Some windows of one line. Steps are in floats. */
typedef struct {
  const float *at;            /* tap 0 of the first one on the first line that it sees */
  const float *row;           /* the row of the first panel that weighs it */
  int64_t down, line, pixel;  /* lines that it sees, from one to the next, from one pixel to the next */
  int64_t panel;              /* of the weights */
  int left, right;            /* the first one's first tap, or the last one's last, lies outside of the image */
  const smelt_epilogue *epilogue; /* of all windows and columns of the task, whose result lies at its `to`; NULL: sums are stored */
} smelt_three;

/* Sums of R windows from column `col` on become what is stored at `to`. */
SMELT_INLINE void smelt_three_epilogue(const smelt_epilogue *f, v_f32 *acc, const int R, int64_t col, int64_t live,
                                     const float *to, int64_t ld) {
  const v_f32 bias = live ? ld_f32_n(f->bias + col, live) : ld_f32(f->bias + col);
  const v_f32 least = bc_f32(f->least), most = bc_f32(f->most);
  const float *added = f->added ? f->added + (to - f->to) : NULL;
#pragma GCC unroll 8
  for (int r = 0; r < R; r++) {
    acc[r] += bias;
    if (added) acc[r] += live ? ld_f32_n(added + r * ld, live) : ld_f32(added + r * ld);
    acc[r] = smelt_limited(acc[r], least, most);
  }
}

/* V vectors of channels of R windows, `stride` pixels apart: two of them where there are registers, since the sums of one wait
 * for each other. `live` is the number of lanes of a partial vector, 0 for whole ones. */
SMELT_INLINE void smelt_three_tile(const smelt_three *t, const float *x, const float *row, int64_t col, int64_t live, float *to,
                                   int64_t ld, const int V, const int R, const int stride) {
  const int64_t pixel = t->pixel, line = t->line, panel = t->panel, end = (int64_t)((R - 1) * stride + 2) * pixel;
  const int left = t->left, right = t->right;
  v_f32 acc[SMELT_THREE_VECTORS][SMELT_THREE_MOST], w0[SMELT_THREE_VECTORS], w1[SMELT_THREE_VECTORS], w2[SMELT_THREE_VECTORS];
#pragma GCC unroll 16
  for (int i = 0; i < V * R; i++) acc[i / R][i % R] = bc_f32(0);
  for (int64_t j = t->down; j > 0; j--, x += line, row += 48) {
#pragma GCC unroll 2
    for (int v = 0; v < V; v++) {
      const float *f = row + v * panel;
      w0[v] = ld_f32(f), w1[v] = ld_f32(f + 16), w2[v] = ld_f32(f + 32);
      if (!left) acc[v][0] += (live ? ld_f32_n(x, live) : ld_f32(x + v * SMELT_L)) * w0[v];
    }
    const float *at = x;
#pragma GCC unroll 16
    for (int k = 1; k < (R - 1) * stride + 2; k++) {
      at += pixel;
#pragma GCC unroll 2
      for (int v = 0; v < V; v++) {
        v_f32 seen = live ? ld_f32_n(at, live) : ld_f32(at + v * SMELT_L);
        SMELT_HELD(seen);
#pragma GCC unroll 8
        for (int r = 0; r < R; r++) {
          if (k == r * stride) acc[v][r] += seen * w0[v];
          if (k == r * stride + 1) acc[v][r] += seen * w1[v];
          if (k == r * stride + 2) acc[v][r] += seen * w2[v];
        }
      }
    }
#pragma GCC unroll 2
    for (int v = 0; v < V; v++)
      if (!right) acc[v][R - 1] += (live ? ld_f32_n(x + end, live) : ld_f32(x + end + v * SMELT_L)) * w2[v];
  }
#pragma GCC unroll 2
  for (int v = 0; v < V; v++, to += SMELT_L) {
    if (t->epilogue) smelt_three_epilogue(t->epilogue, acc[v], R, col + v * SMELT_L, live, to, ld);
#pragma GCC unroll 8
    for (int r = 0; r < R; r++) {
      if (live) st_f32_n(to + r * ld, acc[v][r], live);
      else st_f32(to + r * ld, acc[v][r]);
    }
  }
}

/* Columns c0..c1-1 of R windows; c0 is at the start of a panel. */
typedef void (*smelt_three_tiles)(const smelt_three *t, int64_t c0, int64_t c1, float *to, int64_t ld);
#define SMELT_THREE_WINDOWS(R, STRIDE)                                                                                 \
  static __attribute__((noinline, unused)) void smelt_three_##R##_##STRIDE(const smelt_three *t, int64_t c0, int64_t c1, \
                                                                           float *to, int64_t ld) {                    \
    const float *x = t->at + c0, *f = t->row + (c0 >> 4) * t->panel;                                                   \
    int64_t col = 0, lane = 0;                                                                                         \
    if (SMELT_THREE_VECTORS > 1)                                                                                       \
      for (; col + 2 * SMELT_L <= c1 - c0; col += 2 * SMELT_L, f += 2 * t->panel)                                      \
        smelt_three_tile(t, x + col, f, col, 0, to + col, ld, SMELT_THREE_VECTORS, R, STRIDE);                         \
    for (; col + SMELT_L <= c1 - c0; col += SMELT_L) {                                                                 \
      smelt_three_tile(t, x + col, f + lane, col, 0, to + col, ld, 1, R, STRIDE);                                      \
      if ((lane += SMELT_L) == 16) lane = 0, f += t->panel;                                                            \
    }                                                                                                                  \
    if (col < c1 - c0) smelt_three_tile(t, x + col, f + lane, col, c1 - c0 - col, to + col, ld, 1, R, STRIDE);         \
  }
#define SMELT_THREE_SIZES(STRIDE)                                                                                      \
  SMELT_THREE_WINDOWS(1, STRIDE) SMELT_THREE_WINDOWS(2, STRIDE) SMELT_THREE_WINDOWS(4, STRIDE) SMELT_THREE_WINDOWS(7, STRIDE)
SMELT_THREE_SIZES(1)
SMELT_THREE_SIZES(2)

/* Windows of the next tile, of `left` that remain. */
SMELT_INLINE int64_t smelt_three_windows(int64_t left) { return left >= 7 ? 7 : left >= 4 ? 4 : left >= 2 ? 2 : 1; }

/* Whether windows see three taps side by side, of which at most the first one's first and the last one's last are outside. */
SMELT_INLINE int smelt_three_taps(const smelt_window *w) {
  const int64_t stride = w->stride[2], last = (w->out[2] - 1) * stride - w->before[2];
  return w->kernel[0] == 1 && w->kernel[2] == 3 && w->dilation[2] == 1 && (stride == 1 || stride == 2) && w->before[2] <= 1 && last + 2 <= w->in[2];
}

/* `count` windows from p on, all of one line. */
static __attribute__((unused)) void smelt_three_line(const smelt_window *w, const float *image, const smelt_place *p,
                                                     int64_t count, const float *panels, int64_t c0, int64_t c1, float *to,
                                                     int64_t ld, const smelt_epilogue *epilogue) {
  static const smelt_three_tiles tiles[2][SMELT_THREE_MOST + 1] = {
      {0, smelt_three_1_1, smelt_three_2_1, 0, smelt_three_4_1, 0, 0, smelt_three_7_1},
      {0, smelt_three_1_2, smelt_three_2_2, 0, smelt_three_4_2, 0, 0, smelt_three_7_2}};
  smelt_taps taps = smelt_taps_of(w, image, p);
  taps.s[2].lo = 0, taps.s[2].hi = 3;
  const smelt_tap_box b = smelt_box_of(w, &taps);
  smelt_three t = {b.at, panels + b.first_row, b.sheets > 0 ? b.down : 0, b.line_step, b.tap_step, w->kernel[1] * 48, 0, 0, epilogue};
  for (int64_t n, x = taps.s[2].start; count > 0; count -= n, x += n * w->stride[2], t.at += n * b.side, to += n * ld) {
    n = smelt_three_windows(count);
    t.left = x < 0, t.right = x + (n - 1) * w->stride[2] + 2 >= w->in[2];
    tiles[w->stride[2] - 1][n](&t, c0, c1, to, ld);
  }
}

static __attribute__((unused)) void smelt_depthwise_three(const smelt_window *w, const float *image, const float *panels,
                                                            int64_t first, int64_t count, int64_t c0, int64_t c1,
                                                            float *block, int64_t ld, const smelt_epilogue *epilogue) {
  float *const to = epilogue ? epilogue->to : block;
  const int64_t step = epilogue ? epilogue->ld : ld;
  smelt_place p = smelt_place_of(w, first);
  for (int64_t i = 0, run; i < count; i += run) {
    run = smelt_min(w->out[2] - p.at[2], count - i);
    smelt_three_line(w, image, &p, run, panels, c0, c1, to + i * step, step, epilogue);
    p.at[2] += run - 1;
    smelt_place_next(w, &p);
  }
}

#endif
