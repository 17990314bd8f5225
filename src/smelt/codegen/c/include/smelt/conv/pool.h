/* Pools: the largest, mean or sum of what windows see.
 *
 * Input:     smelt_window, an NHWC image. Output: a block of windows.
 * Invariant: padding takes no part. Every element is one chain over the taps of its window: in rising order, or line by line, of
 *            each column first and then along the line. Which of both depends on the geometry alone.
 */
#ifndef SMELT_POOL_H
#define SMELT_POOL_H

#include <smelt/conv/depthwise.h>

/* What a mean divides by: taps in the image, or in the image and its padding. */
SMELT_INLINE float smelt_pool_count(const smelt_window *w, const smelt_taps *t, const smelt_place *p) {
  int64_t count = 1;
  for (int axis = 0; axis < 3; axis++) {
    smelt_span s = t->s[axis];
    if (w->counted) s = smelt_span_of(w, axis, p->at[axis], -w->before[axis], w->in[axis] + w->after[axis]);
    count *= s.hi - s.lo;
  }
  return (float)count;
}

#define SMELT_POOL_START(R, V) v_f32 acc##R##V = bc_f32(kind == SMELT_POOL_MAX ? -__builtin_inff() : 0);
#define SMELT_POOL_STEP(R, V)                                                                                          \
  {                                                                                                                    \
    const v_f32 seen = SMELT_LANES_OF(at + (V)*SMELT_L);                                                               \
    acc##R##V = kind == SMELT_POOL_MAX ? max_f32(acc##R##V, seen) : acc##R##V + seen;                                  \
  }
#define SMELT_POOL_END(R, V)                                                                                           \
  if (kind == SMELT_POOL_MEAN) acc##R##V = acc##R##V / bc_f32(count);                                                  \
  SMELT_TILE_STORE(R, V)

/* Vectors of channels of one window. */
#define SMELT_POOL_TILE(NAME, TILE)                                                                                    \
  SMELT_INLINE void NAME(const smelt_tap_list *list, int kind, float count, int64_t c, int64_t live, float *to) {      \
    const int64_t ld = 0;                                                                                              \
    TILE(SMELT_POOL_START)                                                                                             \
    for (int64_t k = 0; k < list->count; k++) {                                                                        \
      const float *at = list->base + list->from[k] + c;                                                                \
      TILE(SMELT_POOL_STEP)                                                                                            \
    }                                                                                                                  \
    TILE(SMELT_POOL_END)                                                                                               \
  }

SMELT_POOL_TILE(smelt_pool_4, SMELT_TILE_1X4)
SMELT_POOL_TILE(smelt_pool_2, SMELT_TILE_1X2)
SMELT_POOL_TILE(smelt_pool_1, SMELT_TILE_1X1)

/* All channels of one window. */
SMELT_INLINE void smelt_pool_window(const smelt_tap_list *list, int kind, float taps, int64_t c0, int64_t c1, float *to) {
  int64_t c = c0;
  for (; c + 4 * SMELT_L <= c1; c += 4 * SMELT_L) smelt_pool_4(list, kind, taps, c, 0, to + (c - c0));
  for (; c + 2 * SMELT_L <= c1; c += 2 * SMELT_L) smelt_pool_2(list, kind, taps, c, 0, to + (c - c0));
  for (; c + SMELT_L <= c1; c += SMELT_L) smelt_pool_1(list, kind, taps, c, 0, to + (c - c0));
  if (c < c1) smelt_pool_1(list, kind, taps, c, c1 - c, to + (c - c0));
}

/* Windows one by one; those side by side that are neighbours in memory on both sides are one row of lanes. */
SMELT_INLINE void smelt_pool_windows(const smelt_window *w, const float *image, int kind, int64_t first, int64_t count,
                                     int64_t c0, int64_t c1, float *block, int64_t ld) {
  const int dense = w->stride[2] == 1 && c1 - c0 == w->pixel && ld == w->pixel;
  smelt_place p = smelt_place_of(w, first);
  smelt_tap_list list;
  for (int64_t i = 0, run; i < count; i += run) {
    const smelt_taps t = smelt_taps_of(w, image, &p);
    const float taps = kind == SMELT_POOL_MEAN ? smelt_pool_count(w, &t, &p) : 1;
    run = smelt_side_by_side(w, &p, count - i);
    smelt_list_taps(w, &t, &list);
    if (dense) smelt_pool_window(&list, kind, taps, 0, run * w->pixel, block + i * ld);
    else
      for (int64_t r = 0; r < run; r++, list.base += w->stride[2] * w->pixel)
        smelt_pool_window(&list, kind, taps, c0, c1, block + (i + r) * ld);
    p.at[2] += run - 1;
    smelt_place_next(w, &p);
  }
}

/* Floats of a line's columns, each reduced by itself, and windows that they are to be enough for. */
enum { SMELT_POOL_LINE = 4096, SMELT_POOL_LEAST = 8 };

SMELT_INLINE int64_t smelt_pool_extent(const smelt_window *w) { return (w->kernel[2] - 1) * w->dilation[2] + 1; }

/* Channels that go through a line together: all, or whole vectors. */
SMELT_INLINE int64_t smelt_pool_lanes(const smelt_window *w) {
  const int64_t columns = smelt_pool_extent(w) + (SMELT_POOL_LEAST - 1) * w->stride[2], most = SMELT_POOL_LINE / columns;
  return w->pixel <= most ? w->pixel : most & ~(int64_t)15;
}

/* Whether pools take clearly fewer steps line by line: counted in vectors, for as many windows as a vector has lanes. */
SMELT_INLINE int smelt_pool_by_lines(const smelt_window *w) {
  const int64_t down = w->kernel[0] * w->kernel[1], across = w->kernel[2], lanes = smelt_pool_lanes(w);
  if (lanes == 0) return 0;
  if (down * across > SMELT_LISTED_TAPS) return 1;
  const int64_t one = (w->pixel + SMELT_L - 1) / SMELT_L * SMELT_L;
  const int64_t near = w->stride[2] == 1 ? w->pixel : w->pixel == 1 && w->stride[2] == 2 ? 1 : one;
  const int64_t columns = w->stride[2] * (lanes == w->pixel ? w->pixel : one);
  return 2 * down * across * one > 3 * (down * columns + (across + 2) * near);
}

/* Reduces each column lo..hi-1 of the lines that the window at p sees, channels c0..c1-1; `none` beside the image. */
SMELT_INLINE void smelt_pool_columns(const smelt_window *w, const smelt_taps *t, int kind, int64_t lo, int64_t hi, int64_t c0,
                                     int64_t c1, float *to) {
  const int64_t lanes = c1 - c0, from = smelt_min(smelt_max(lo, 0), hi), until = smelt_max(smelt_min(hi, w->in[2]), from);
  const float none = kind == SMELT_POOL_MAX ? -__builtin_inff() : 0;
  for (int64_t e = 0; e < (from - lo) * lanes; e++) to[e] = none;
  for (int64_t e = (until - lo) * lanes; e < (hi - lo) * lanes; e++) to[e] = none;
  if (until == from) return;
  smelt_tap_list list;
  list.count = 0;
  list.base = smelt_taps_line(w, t, t->s[0].lo, t->s[1].lo);
  for (int64_t a = t->s[0].lo; a < t->s[0].hi; a++)
    for (int64_t b = t->s[1].lo; b < t->s[1].hi; b++) list.from[list.count++] = smelt_taps_line(w, t, a, b) - list.base;
  list.base += (from - t->s[2].start) * w->pixel;
  to += (from - lo) * lanes;
  if (lanes == w->pixel) smelt_pool_window(&list, kind, 1, 0, (until - from) * lanes, to);
  else
    for (int64_t x = from; x < until; x++, list.base += w->pixel, to += lanes)
      smelt_pool_window(&list, kind, 1, c0, c1, to);
}

typedef float smelt_pool_q __attribute__((vector_size(16)));
typedef float smelt_pool_qu __attribute__((vector_size(16), aligned(4), may_alias));

/* Sorts a line's columns: even ones to the front, odd ones behind SMELT_POOL_LINE. */
SMELT_INLINE void smelt_pool_sort(float *line, int64_t columns) {
  float *odd = line + SMELT_POOL_LINE;
  int64_t c = 0;
  for (; c + 8 <= columns; c += 8) {
    const smelt_pool_q a = *(const smelt_pool_qu *)(line + c), b = *(const smelt_pool_qu *)(line + c + 4);
    *(smelt_pool_qu *)(line + c / 2) = __builtin_shufflevector(a, b, 0, 2, 4, 6);
    *(smelt_pool_qu *)(odd + c / 2) = __builtin_shufflevector(a, b, 1, 3, 5, 7);
  }
  for (; c < columns; c++) (c % 2 ? odd : line)[c / 2] = line[c];
}

/* Of one channel, windows two pixels apart are side by side among the even and the odd columns. */
SMELT_INLINE void smelt_pool_pairs(const smelt_window *w, int kind, float *line, int64_t run, float *to) {
  smelt_tap_list list;
  smelt_pool_sort(line, (run - 1) * 2 + smelt_pool_extent(w));
  list.base = line;
  for (list.count = 0; list.count < w->kernel[2]; list.count++) {
    const int64_t column = list.count * w->dilation[2];
    list.from[list.count] = column / 2 + column % 2 * SMELT_POOL_LINE;
  }
  smelt_pool_window(&list, kind, 1, 0, run, to);
}

/* Reduces each window of `run` side by side along the line of their columns, which are lost. */
SMELT_INLINE void smelt_pool_along(const smelt_window *w, int kind, float *line, int64_t run, int64_t lanes, float *to,
                                   int64_t ld) {
  const int64_t stride = w->stride[2];
  if (stride == 2 && lanes == 1 && ld == 1) {
    smelt_pool_pairs(w, kind, line, run, to);
    return;
  }
  smelt_tap_list list;
  list.base = line;
  for (list.count = 0; list.count < w->kernel[2]; list.count++) list.from[list.count] = list.count * w->dilation[2] * lanes;
  if (stride != 1 || (lanes % SMELT_L == 0 && ld != lanes)) {
    for (int64_t r = 0; r < run; r++, list.base += stride * lanes) smelt_pool_window(&list, kind, 1, 0, lanes, to + r * ld);
    return;
  }
  smelt_pool_window(&list, kind, 1, 0, run * lanes, ld == lanes ? to : line);
  if (ld == lanes) return;
  for (int64_t r = 0; r < run; r++)
    for (int64_t c = 0; c < lanes; c++) to[r * ld + c] = line[r * lanes + c];
}

/* Sums of `run` windows from p on, of one channel, over what each divides by. */
SMELT_INLINE void smelt_pool_divide(const smelt_window *w, const smelt_taps *t, smelt_place p, int64_t run, float *to) {
  for (int64_t r = 0, same; r < run; r += same) {
    smelt_taps own = *t;
    own.s[2] = smelt_span_of(w, 2, p.at[2], 0, w->in[2]);
    const float taps = smelt_pool_count(w, &own, &p);
    same = smelt_side_by_side(w, &p, run - r);
    for (int64_t e = r; e < r + same; e++) to[e] /= taps;
    p.at[2] += same;
  }
}

/* A block of windows, line by line: what windows side by side share is looked at once. Means are of one channel. */
SMELT_INLINE void smelt_pool_lines(const smelt_window *w, const float *image, int kind, int64_t first, int64_t count, int64_t c0,
                                   int64_t c1, float *block, int64_t ld) {
  const int64_t extent = smelt_pool_extent(w), stride = w->stride[2], most = smelt_pool_lanes(w);
  const int64_t windows = (SMELT_POOL_LINE / most - extent) / stride + 1;
  const int sum = kind == SMELT_POOL_MEAN ? SMELT_POOL_SUM : kind;
  float line[SMELT_POOL_LINE + SMELT_POOL_LINE / 2] __attribute__((aligned(64)));
  smelt_place p = smelt_place_of(w, first);
  for (int64_t i = 0, run; i < count; i += run) {
    const smelt_taps t = smelt_taps_of(w, image, &p);
    run = smelt_min(smelt_min(count - i, w->out[2] - p.at[2]), windows);
    const int64_t lo = p.at[2] * stride - w->before[2], hi = lo + (run - 1) * stride + extent;
    for (int64_t c = c0; c < c1; c += most) {
      const int64_t end = smelt_min(c + most, c1);
      smelt_pool_columns(w, &t, sum, lo, hi, c, end, line);
      smelt_pool_along(w, sum, line, run, end - c, block + i * ld + (c - c0), ld);
    }
    if (kind == SMELT_POOL_MEAN) smelt_pool_divide(w, &t, p, run, block + i * ld);
    p.at[2] += run - 1;
    smelt_place_next(w, &p);
  }
}

SMELT_INLINE void smelt_pool_kind(const smelt_window *w, const float *image, int kind, int64_t first, int64_t count,
                                  int64_t c0, int64_t c1, float *block, int64_t ld) {
  if ((kind == SMELT_POOL_MAX || (w->pixel == 1 && ld == 1)) && smelt_pool_by_lines(w))
    smelt_pool_lines(w, image, kind, first, count, c0, c1, block, ld);
  else smelt_pool_windows(w, image, kind, first, count, c0, c1, block, ld);
}

static __attribute__((unused)) void smelt_pool(const smelt_window *w, const float *image, int kind, int64_t first,
                                               int64_t count, int64_t c0, int64_t c1, float *block, int64_t ld) {
  if (kind == SMELT_POOL_MAX) smelt_pool_kind(w, image, SMELT_POOL_MAX, first, count, c0, c1, block, ld);
  else if (kind == SMELT_POOL_MEAN) smelt_pool_kind(w, image, SMELT_POOL_MEAN, first, count, c0, c1, block, ld);
  else smelt_pool_kind(w, image, SMELT_POOL_SUM, first, count, c0, c1, block, ld);
}

#endif
