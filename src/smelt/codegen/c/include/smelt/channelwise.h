/* Windows channel by channel: convolution with one filter for each channel, and pools.
 *
 * Input:     smelt_window, an image with channels last; weights in panels (panel, tap, 16). Output: a block of windows.
 * Invariant: lanes are channels; every element is one chain over the taps that lie in the image, in rising order, so its
 *            bits do not depend on how windows and channels are grouped. Padding takes no part.
 */
#ifndef SMELT_CHANNELWISE_H
#define SMELT_CHANNELWISE_H

#include <smelt/vec.h>
#include <smelt/window.h>

/* The taps of one window that lie in the image. */
typedef struct {
  smelt_span s[3];
  const float *image;
} smelt_taps;

SMELT_INLINE smelt_taps smelt_taps_of(const smelt_window *w, const float *image, const smelt_place *p) {
  smelt_taps t;
  for (int axis = 0; axis < 3; axis++)
    t.s[axis] = smelt_span_of(w, axis, p->at[axis], 0, w->in[axis]);
  t.image = image + p->image * w->in[0] * w->in[1] * w->in[2] * w->pixel;
  return t;
}

/* The line of the image that taps (a, b) see, at tap 0 of the last axis (which may lie outside of it). */
SMELT_INLINE const float *smelt_taps_line(const smelt_window *w, const smelt_taps *t, int64_t a, int64_t b) {
  const int64_t y = t->s[0].start + a * w->dilation[0], x = t->s[1].start + b * w->dilation[1];
  return t->image + ((y * w->in[1] + x) * w->in[2] + t->s[2].start) * w->pixel;
}

/* V vectors of channels from c on of R windows side by side, whose taps are those of `t`. `live` is the number of lanes of
 * a partial vector, 0 for whole ones. */
#define SMELT_CHANNELWISE_TILE(NAME, R, V)                                                                             \
  SMELT_INLINE void NAME(const smelt_window *w, const smelt_taps *t, const float *panels, int64_t c, int64_t live,     \
                         float *to, int64_t ld) {                                                                      \
    v_f32 acc[R][V];                                                                                                   \
    for (int r = 0; r < R; r++)                                                                                        \
      for (int v = 0; v < V; v++) acc[r][v] = bc_f32(0);                                                               \
    const int64_t taps = w->kernel[0] * w->kernel[1] * w->kernel[2], step = w->dilation[2] * w->pixel;                 \
    const int64_t side = w->stride[2] * w->pixel;                                                                      \
    for (int64_t a = t->s[0].lo; a < t->s[0].hi; a++)                                                                  \
      for (int64_t b = t->s[1].lo; b < t->s[1].hi; b++) {                                                              \
        const float *x = smelt_taps_line(w, t, a, b) + t->s[2].lo * step + c;                                          \
        const int64_t tap = (a * w->kernel[1] + b) * w->kernel[2];                                                     \
        for (int64_t e = t->s[2].lo; e < t->s[2].hi; e++, x += step)                                                   \
          for (int v = 0; v < V; v++) {                                                                                \
            const int64_t at = c + v * SMELT_L;                                                                        \
            const v_f32 f = ld_f32(panels + (at / 16 * taps + tap + e) * 16 + at % 16);                                \
            for (int r = 0; r < R; r++) {                                                                              \
              const float *from = x + r * side + v * SMELT_L;                                                          \
              acc[r][v] += (live ? ld_f32_n(from, live) : ld_f32(from)) * f;                                           \
            }                                                                                                          \
          }                                                                                                            \
      }                                                                                                                \
    for (int r = 0; r < R; r++)                                                                                        \
      for (int v = 0; v < V; v++) {                                                                                    \
        if (live) st_f32_n(to + r * ld + v * SMELT_L, acc[r][v], live);                                                \
        else st_f32(to + r * ld + v * SMELT_L, acc[r][v]);                                                             \
      }                                                                                                                \
  }

SMELT_CHANNELWISE_TILE(smelt_channelwise_6x1, 6, 1)
SMELT_CHANNELWISE_TILE(smelt_channelwise_4x1, 4, 1)
SMELT_CHANNELWISE_TILE(smelt_channelwise_1x4, 1, 4)
SMELT_CHANNELWISE_TILE(smelt_channelwise_1x1, 1, 1)

/* All channels of one window. */
static __attribute__((unused)) void smelt_channelwise_one(const smelt_window *w, const smelt_taps *t, const float *panels,
                                                          int64_t c0, int64_t c1, float *to, int64_t ld) {
  int64_t c = c0;
  for (; c + 4 * SMELT_L <= c1; c += 4 * SMELT_L) smelt_channelwise_1x4(w, t, panels, c, 0, to + (c - c0), ld);
  for (; c + SMELT_L <= c1; c += SMELT_L) smelt_channelwise_1x1(w, t, panels, c, 0, to + (c - c0), ld);
  if (c < c1) smelt_channelwise_1x1(w, t, panels, c, c1 - c, to + (c - c0), ld);
}

/* All channels of `n` (4 or 6) windows side by side whose taps all lie in the image. */
static __attribute__((unused)) void smelt_channelwise_some(const smelt_window *w, const smelt_taps *t, const float *panels,
                                                           int64_t c0, int64_t c1, float *to, int64_t ld, int n) {
  int64_t c = c0;
  for (; c + SMELT_L <= c1; c += SMELT_L) {
    if (n == 6) smelt_channelwise_6x1(w, t, panels, c, 0, to + (c - c0), ld);
    else smelt_channelwise_4x1(w, t, panels, c, 0, to + (c - c0), ld);
  }
  if (c < c1) {
    if (n == 6) smelt_channelwise_6x1(w, t, panels, c, c1 - c, to + (c - c0), ld);
    else smelt_channelwise_4x1(w, t, panels, c, c1 - c, to + (c - c0), ld);
  }
}

/* Windows from p on that lie side by side in one line with all their taps along it in the image; at most `left`. */
SMELT_INLINE int64_t smelt_side_by_side(const smelt_window *w, const smelt_place *p, int64_t left) {
  const int64_t reach = (w->kernel[2] - 1) * w->dilation[2], start = p->at[2] * w->stride[2] - w->before[2];
  if (start < 0 || start + reach >= w->in[2]) return 1;
  const int64_t run = (w->in[2] - 1 - reach - start) / w->stride[2] + 1;
  return smelt_min(smelt_min(run, w->out[2] - p->at[2]), left);
}

static __attribute__((unused)) void smelt_channelwise(const smelt_window *w, const float *image, const float *panels,
                                                      int64_t first, int64_t count, int64_t c0, int64_t c1, float *block,
                                                      int64_t ld) {
  smelt_place p = smelt_place_of(w, first);
  for (int64_t i = 0; i < count;) {
    const smelt_taps t = smelt_taps_of(w, image, &p);
    const int64_t run = smelt_side_by_side(w, &p, count - i);
    const int n = run >= 6 ? 6 : run >= 4 ? 4 : 1;
    float *to = block + i * ld;
    if (n > 1) smelt_channelwise_some(w, &t, panels, c0, c1, to, ld, n);
    else smelt_channelwise_one(w, &t, panels, c0, c1, to, ld);
    for (int k = 0; k < n; k++, i++) smelt_place_next(w, &p);
  }
}

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

/* V vectors of channels of one window. */
#define SMELT_POOL_TILE(NAME, V)                                                                                       \
  SMELT_INLINE void NAME(const smelt_window *w, const smelt_taps *t, int kind, float count, int64_t c, int64_t live,   \
                         float *to) {                                                                                  \
    v_f32 acc[V];                                                                                                      \
    for (int v = 0; v < V; v++) acc[v] = bc_f32(kind == SMELT_POOL_MAX ? -__builtin_inff() : 0);                       \
    const int64_t step = w->dilation[2] * w->pixel;                                                                    \
    for (int64_t a = t->s[0].lo; a < t->s[0].hi; a++)                                                                  \
      for (int64_t b = t->s[1].lo; b < t->s[1].hi; b++) {                                                              \
        const float *x = smelt_taps_line(w, t, a, b) + t->s[2].lo * step + c;                                          \
        for (int64_t e = t->s[2].lo; e < t->s[2].hi; e++, x += step)                                                   \
          for (int v = 0; v < V; v++) {                                                                                \
            const v_f32 f = live ? ld_f32_n(x + v * SMELT_L, live) : ld_f32(x + v * SMELT_L);                          \
            acc[v] = kind == SMELT_POOL_MAX ? max_f32(acc[v], f) : acc[v] + f;                                         \
          }                                                                                                            \
      }                                                                                                                \
    for (int v = 0; v < V; v++) {                                                                                      \
      if (kind == SMELT_POOL_MEAN) acc[v] = acc[v] / bc_f32(count);                                                    \
      if (live) st_f32_n(to + v * SMELT_L, acc[v], live);                                                              \
      else st_f32(to + v * SMELT_L, acc[v]);                                                                           \
    }                                                                                                                  \
  }

SMELT_POOL_TILE(smelt_pool_4, 4)
SMELT_POOL_TILE(smelt_pool_1, 1)

SMELT_INLINE void smelt_pool_kind(const smelt_window *w, const float *image, int kind, int64_t first, int64_t count,
                                  int64_t c0, int64_t c1, float *block, int64_t ld) {
  smelt_place p = smelt_place_of(w, first);
  for (int64_t i = 0; i < count; i++, smelt_place_next(w, &p)) {
    const smelt_taps t = smelt_taps_of(w, image, &p);
    const float taps = kind == SMELT_POOL_MEAN ? smelt_pool_count(w, &t, &p) : 1;
    float *to = block + i * ld;
    int64_t c = c0;
    for (; c + 4 * SMELT_L <= c1; c += 4 * SMELT_L) smelt_pool_4(w, &t, kind, taps, c, 0, to + (c - c0));
    for (; c + SMELT_L <= c1; c += SMELT_L) smelt_pool_1(w, &t, kind, taps, c, 0, to + (c - c0));
    if (c < c1) smelt_pool_1(w, &t, kind, taps, c, c1 - c, to + (c - c0));
  }
}

static __attribute__((unused)) void smelt_pool(const smelt_window *w, const float *image, int kind, int64_t first,
                                               int64_t count, int64_t c0, int64_t c1, float *block, int64_t ld) {
  if (kind == SMELT_POOL_MAX) smelt_pool_kind(w, image, SMELT_POOL_MAX, first, count, c0, c1, block, ld);
  else if (kind == SMELT_POOL_MEAN) smelt_pool_kind(w, image, SMELT_POOL_MEAN, first, count, c0, c1, block, ld);
  else smelt_pool_kind(w, image, SMELT_POOL_SUM, first, count, c0, c1, block, ld);
}

#endif
