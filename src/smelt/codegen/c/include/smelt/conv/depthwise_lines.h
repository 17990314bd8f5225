/* Depthwise convolution with 5 or 7 taps side by side along a line.
 *
 * Input:     SMELT_LINE_TAPS and SMELT_LINE_STRIDE: taps along a line, and pixels from one window to the next; smelt_window, an NHWC
 *            image; weights in panels (panel, tap, 16). Output: a block of windows.
 * Invariant: every element is one chain over the taps that lie in the image, in rising order, whatever tile computes it.
 *            A line of taps stays in registers while the pixels of a tile stream past: each is loaded once for all of it.
 */
#ifndef SMELT_DEPTHWISE_LINES_H
#define SMELT_DEPTHWISE_LINES_H

#include <smelt/conv/depthwise_taps.h>

/* Windows of the largest tile: its sums, a line of taps and a pixel have registers, and its pixels a bit of smelt_line's `inside`
 * each. */
#if SMELT_LINE_STRIDE == 1 && (SMELT_VL == 64 || defined(__aarch64__))
#define SMELT_LINE_MOST 14
#else
#define SMELT_LINE_MOST 7
#endif

/* Some windows of one line. Steps are in floats. */
typedef struct {
  const float *at;           /* tap 0 of the first one on the first line that it sees; it may lie outside of the image */
  const float *row;          /* the row of the first panel that weighs it */
  int64_t down, line, pixel; /* lines that it sees, from one to the next, from one pixel to the next */
  uint32_t inside;           /* which pixels of such a line, from tap 0 of the first on, are in the image: bit by bit */
} smelt_line;

/* A vector of channels of R windows, S pixels apart, that see K taps along a line. `live` is the number of lanes of a partial
 * vector, 0 for a whole one. The next vector's pixels are prefetched: they may come from another core. */
SMELT_INLINE void smelt_line_tile(const smelt_line *t, const float *x, const float *row, int64_t live, float *to, int64_t ld,
                                  const int R, const int K, const int S) {
  const int64_t pixel = t->pixel, line = t->line;
  uint32_t inside = t->inside;
  v_f32 acc[SMELT_LINE_MOST], taps[7];
#pragma GCC unroll 16
  for (int r = 0; r < R; r++) acc[r] = bc_f32(0);
  for (int64_t j = t->down; j > 0; j--, x += line, row += K * 16) {
#pragma GCC unroll 8
    for (int k = 0; k < K; k++) taps[k] = ld_f32(row + k * 16);
    const float *at = x;
    SMELT_NOT_AHEAD(inside);
#pragma GCC unroll 32
    for (int p = 0; p < (R - 1) * S + K; p++, at += pixel) {
      SMELT_NOT_AHEAD(at);
      if (!(inside >> p & 1)) continue;
      v_f32 seen = live ? ld_f32_n(at, live) : ld_f32(at);
      SMELT_HELD(seen);
      __builtin_prefetch(at + SMELT_L);
#pragma GCC unroll 16
      for (int r = 0; r < R; r++)
        if (p >= r * S && p < r * S + K) acc[r] += seen * taps[p - r * S];
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < R; r++) {
    if (live) st_f32_n(to + r * ld, acc[r], live);
    else st_f32(to + r * ld, acc[r]);
  }
}

typedef void (*smelt_line_tiles)(const smelt_line *t, const float *x, const float *row, int64_t live, float *to, int64_t ld);
#define SMELT_LINE_TILE(R)                                                                                              \
  static __attribute__((noinline, unused)) void smelt_line_##R(const smelt_line *t, const float *x, const float *row,  \
                                                               int64_t live, float *to, int64_t ld) {                  \
    if (live) smelt_line_tile(t, x, row, live, to, ld, R, SMELT_LINE_TAPS, SMELT_LINE_STRIDE);                         \
    else smelt_line_tile(t, x, row, 0, to, ld, R, SMELT_LINE_TAPS, SMELT_LINE_STRIDE);                                 \
  }
SMELT_LINE_TILE(1) SMELT_LINE_TILE(2) SMELT_LINE_TILE(4) SMELT_LINE_TILE(7)
#if SMELT_LINE_MOST == 14
SMELT_LINE_TILE(14)
#endif
static const smelt_line_tiles smelt_line_tiles_of[SMELT_LINE_MOST + 1] __attribute__((unused)) = {
    [1] = smelt_line_1, [2] = smelt_line_2, [4] = smelt_line_4, [7] = smelt_line_7,
#if SMELT_LINE_MOST == 14
    [14] = smelt_line_14
#endif
};

/* Windows of the next tile, of `left` that remain. */
SMELT_INLINE int64_t smelt_line_windows(int64_t left) {
  return left >= SMELT_LINE_MOST ? SMELT_LINE_MOST : left >= 7 ? 7 : left >= 4 ? 4 : left >= 2 ? 2 : 1;
}

/* `n` windows from p on, all of one line. */
SMELT_INLINE smelt_line smelt_line_of(const smelt_window *w, const float *image, const smelt_place *p, int64_t n,
                                      const float *panels) {
  smelt_taps taps = smelt_taps_of(w, image, p);
  const int64_t x = taps.s[2].start, pixels = (n - 1) * SMELT_LINE_STRIDE + SMELT_LINE_TAPS;
  taps.s[2].lo = 0, taps.s[2].hi = SMELT_LINE_TAPS;
  const smelt_tap_box b = smelt_box_of(w, &taps);
  const int64_t lo = smelt_min(smelt_max(-x, 0), pixels), hi = smelt_max(smelt_min(w->in[2] - x, pixels), lo);
  smelt_line t = {b.at, panels + b.first_row, b.sheets > 0 ? b.down : 0, b.line_step, b.tap_step,
                  ((uint32_t)1 << hi) - ((uint32_t)1 << lo)};
  return t;
}

/* Tiles that are computed for a vector of channels before the next: they share its weights, and pixels. */
enum { SMELT_LINE_TILES = 16 };
typedef struct {
  int64_t count;
  smelt_line tile[SMELT_LINE_TILES];
  int64_t windows[SMELT_LINE_TILES], to[SMELT_LINE_TILES];
} smelt_line_list;

/* Channels c0..c1-1 of all tiles of a list, which is empty then. */
static __attribute__((unused)) void smelt_line_run(const smelt_window *w, smelt_line_list *list, int64_t c0, int64_t c1,
                                                   float *block, int64_t ld) {
  const int64_t panel = w->kernel[1] * SMELT_LINE_TAPS * 16;
  for (int64_t c = c0; c < c1; c += SMELT_L) {
    const int64_t live = c1 - c < SMELT_L ? c1 - c : 0, row = (c >> 4) * panel + (c & 15);
    for (int64_t i = 0; i < list->count; i++) {
      const smelt_line *t = &list->tile[i];
      smelt_line_tiles_of[list->windows[i]](t, t->at + c, t->row + row, live, block + list->to[i] * ld + (c - c0), ld);
    }
  }
  list->count = 0;
}

/* Channels c0..c1-1 of high x wide windows from p on, in one image. */
static __attribute__((unused)) void smelt_line_box(const smelt_window *w, const float *image, const float *panels,
                                                   smelt_place p, int64_t high, int64_t wide, int64_t c0, int64_t c1,
                                                   float *block, int64_t ld) {
  smelt_line_list list = {.count = 0};
  const int64_t top = p.at[1], left = p.at[2];
  for (int64_t x = 0, n; x < wide; x += n) {
    n = smelt_line_windows(wide - x);
    for (int64_t y = 0; y < high; y++) {
      p.at[1] = top + y, p.at[2] = left + x;
      if (list.count == SMELT_LINE_TILES) smelt_line_run(w, &list, c0, c1, block, ld);
      list.tile[list.count] = smelt_line_of(w, image, &p, n, panels);
      list.windows[list.count] = n, list.to[list.count++] = y * w->out[2] + x;
    }
  }
  smelt_line_run(w, &list, c0, c1, block, ld);
}

static __attribute__((unused)) void smelt_depthwise_lines(const smelt_window *w, const float *image, const float *panels,
                                                            int64_t first, int64_t count, int64_t c0, int64_t c1,
                                                            float *block, int64_t ld) {
  smelt_place p = smelt_place_of(w, first);
  for (int64_t i = 0; i < count;) {
    const int64_t left = count - i, whole = p.at[2] == 0 && left >= w->out[2];
    const int64_t high = whole ? smelt_min(left / w->out[2], w->out[1] - p.at[1]) : 1;
    const int64_t wide = whole ? w->out[2] : smelt_min(left, w->out[2] - p.at[2]);
    smelt_line_box(w, image, panels, p, high, wide, c0, c1, block + i * ld, ld);
    i += high * wide;
    p = smelt_place_of(w, first + i);
  }
}

#endif
