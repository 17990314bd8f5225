/* Depthwise convolution with large filters, over patches of the image that stay in L1.
 *
 * Input:     smelt_window, an NHWC image; weights in panels (panel, tap, 16). Output: a block of windows.
 * Invariant: every element is one chain over all taps in rising order; what lies outside of the image is zero. Its bits do
 *            not depend on how windows are cut into patches.
 */
#ifndef SMELT_DEPTHWISE_PATCH_H
#define SMELT_DEPTHWISE_PATCH_H

#include <smelt/conv/depthwise_taps.h>

/* A patch of the image, 16 channels of it: `lines` lines of `across` pixels for each tap of the first axis, zeros outside of
 * the image. It stays in L1 while its windows are computed, and its pixels do not share cache sets as those of the image do. */
enum { SMELT_PATCH_PIXELS = 352, SMELT_PATCH_LANES = 16 };
typedef struct {
  int64_t high, wide;    /* windows */
  int64_t lines, across; /* pixels */
} smelt_patch;

/* The patch of high x wide windows. Lines that windows skip are left out, which goes for one line of windows at a time. */
SMELT_INLINE smelt_patch smelt_patch_of(const smelt_window *w, int64_t high, int64_t wide) {
  const int64_t lines = w->dilation[1] == 1 ? (high - 1) * w->stride[1] + w->kernel[1] : w->kernel[1];
  smelt_patch s = {high, wide, lines, (wide - 1) * w->stride[2] + (w->kernel[2] - 1) * w->dilation[2] + 1};
  return s;
}

SMELT_INLINE int64_t smelt_patch_pixels(const smelt_window *w, const smelt_patch *s) {
  return w->kernel[0] * s->lines * s->across;
}

/* The patch that reads the fewest pixels for each of high x wide windows among those that fit; none: high is 0. */
static __attribute__((unused)) smelt_patch smelt_best_patch(const smelt_window *w, int64_t high, int64_t wide) {
  smelt_patch best = {0, 0, 0, 0};
  double least = 0;
  for (int64_t cut = 1; cut <= 8; cut++) {
    smelt_patch s = smelt_patch_of(w, 1, (wide + cut - 1) / cut);
    if (smelt_patch_pixels(w, &s) > SMELT_PATCH_PIXELS) continue;
    for (int64_t n = high; n > 1 && s.high == 1 && w->dilation[1] == 1; n = (n + 1) / 2) {
      const smelt_patch more = smelt_patch_of(w, n, s.wide);
      if (smelt_patch_pixels(w, &more) <= SMELT_PATCH_PIXELS) s = more;
    }
    const double cost = (double)smelt_patch_pixels(w, &s) / (double)(s.high * s.wide);
    if (!best.high || cost < least * 0.95) best = s, least = cost;
  }
  return best;
}

/* `n` pixels of 16 channels, of which `lanes` exist; those beyond are zero. */
SMELT_INLINE void smelt_patch_put(float *to, const float *from, int64_t pixel, int64_t n, int64_t lanes) {
  for (; n > 0; n--, to += SMELT_PATCH_LANES, from += pixel)
    for (int64_t v = 0; v < SMELT_PATCH_LANES; v += SMELT_L)
      st_f32(to + v, v >= lanes ? bc_f32(0) : lanes - v < SMELT_L ? ld_f32_n(from + v, lanes - v) : ld_f32(from + v));
}

/* One line of the patch from column x of an image's line on (NULL: outside of the image). */
SMELT_INLINE void smelt_patch_line(const smelt_window *w, const float *line, int64_t x, int64_t across, int64_t lanes,
                                   float *to) {
  const int64_t before = line ? smelt_max(smelt_min(-x, across), 0) : across;
  const int64_t inside = smelt_max(smelt_min(across - before, w->in[2] - (x + before)), 0);
  smelt_patch_put(to, to, 0, before, 0);
  const float *from = line + (x + before) * w->pixel;
  if (!line) return;
  if (lanes == 16) smelt_patch_put(to + before * 16, from, w->pixel, inside, 16);
  else smelt_patch_put(to + before * 16, from, w->pixel, inside, lanes);
  smelt_patch_put(to + (before + inside) * 16, to, 0, across - before - inside, 0);
}

/* The patch whose first window is p; `image` points at its first channel. */
static __attribute__((unused)) void smelt_patch_fill(const smelt_window *w, const float *image, const smelt_place *p,
                                                     const smelt_patch *s, int64_t lanes, float *to) {
  const int64_t y = p->at[1] * w->stride[1] - w->before[1], x = p->at[2] * w->stride[2] - w->before[2];
  for (int64_t a = 0; a < w->kernel[0]; a++) {
    const int64_t z = p->at[0] * w->stride[0] + a * w->dilation[0] - w->before[0];
    for (int64_t i = 0; i < s->lines; i++, to += s->across * SMELT_PATCH_LANES) {
      const int64_t at = y + i * w->dilation[1];
      const int inside = z >= 0 && z < w->in[0] && at >= 0 && at < w->in[1];
      const float *line = image + ((p->image * w->in[0] + z) * w->in[1] + at) * w->in[2] * w->pixel;
      smelt_patch_line(w, inside ? line : NULL, x, s->across, lanes, to);
    }
  }
}

/* 16 channels of windows side by side; `x` is the first one's first tap in a patch, `f` the panel. One function for each of
 * the usual strides: with known steps no register holds one. */
typedef void (*smelt_patch_tile)(const smelt_window *w, const smelt_patch *s, const float *x, const float *f, float *to,
                                       int64_t ld);
#define SMELT_PATCH_WEIGHT(V) const v_f32 weight##V = ld_f32(row + (V)*SMELT_L);
#define SMELT_PATCH_STEP(R, V) acc##R##V += ld_f32(x + (R)*side + (V)*SMELT_L) * weight##V;
#define SMELT_PATCH_PUT(R, V) st_f32(to + (R)*ld + (V)*SMELT_L, acc##R##V);
#define SMELT_PATCH_TILE(NAME, TILE, VECTORS)                                                                    \
  SMELT_INLINE void NAME##_of(const smelt_window *w, const smelt_patch *s, const float *x, const float *row, float *to, \
                              int64_t ld, const int64_t side, const int64_t taps, const int64_t step) {                \
    const int64_t next = s->across * SMELT_PATCH_LANES - taps * step;                                                  \
    const int64_t over = (s->lines - w->kernel[1]) * s->across * SMELT_PATCH_LANES;                                    \
    (void)side, (void)ld;                                                                                              \
    TILE(SMELT_TILE_ZERO)                                                                                              \
    for (int64_t a = w->kernel[0]; a > 0; a--, x += over)                                                              \
      for (int64_t b = w->kernel[1]; b > 0; b--, x += next)                                                            \
        for (int64_t k = taps; k > 0; k--, x += step, row += SMELT_PATCH_LANES) {                                      \
          VECTORS(SMELT_PATCH_WEIGHT)                                                                                  \
          TILE(SMELT_PATCH_STEP)                                                                                       \
        }                                                                                                              \
    TILE(SMELT_PATCH_PUT)                                                                                              \
  }                                                                                                                    \
  SMELT_PATCH_BY(NAME, _any, w->stride[2] * SMELT_PATCH_LANES, w->kernel[2], w->dilation[2] * SMELT_PATCH_LANES) \
  SMELT_PATCH_BY(NAME, _near, SMELT_PATCH_LANES, w->kernel[2], SMELT_PATCH_LANES)                                \
  static const smelt_patch_tile NAME[] = {NAME##_any, NAME##_near};
#define SMELT_PATCH_BY(NAME, KIND, SIDE, TAPS, STEP)                                                             \
  static __attribute__((noinline)) void NAME##KIND(const smelt_window *w, const smelt_patch *s, const float *x,        \
                                                   const float *f, float *to, int64_t ld) {                            \
    NAME##_of(w, s, x, f, to, ld, SIDE, TAPS, STEP);                                                                               \
  }

/* Most windows at a time, and fewer: as many accumulators as there are registers for. */
#if SMELT_L == 16
SMELT_PATCH_TILE(smelt_patch_most, SMELT_TILE_14X1, SMELT_VECTORS_1)
SMELT_PATCH_TILE(smelt_patch_some, SMELT_TILE_7X1, SMELT_VECTORS_1)
SMELT_PATCH_TILE(smelt_patch_few, SMELT_TILE_2X1, SMELT_VECTORS_1)
SMELT_PATCH_TILE(smelt_patch_one, SMELT_TILE_1X1, SMELT_VECTORS_1)
enum { SMELT_WINDOWS_MOST = 14, SMELT_WINDOWS_SOME = 7 };
#elif SMELT_L == 8
SMELT_PATCH_TILE(smelt_patch_most, SMELT_TILE_6X2, SMELT_VECTORS_2)
SMELT_PATCH_TILE(smelt_patch_some, SMELT_TILE_4X2, SMELT_VECTORS_2)
SMELT_PATCH_TILE(smelt_patch_few, SMELT_TILE_2X2, SMELT_VECTORS_2)
SMELT_PATCH_TILE(smelt_patch_one, SMELT_TILE_1X2, SMELT_VECTORS_2)
enum { SMELT_WINDOWS_MOST = 6, SMELT_WINDOWS_SOME = 4 };
#else
SMELT_PATCH_TILE(smelt_patch_most, SMELT_TILE_4X4, SMELT_VECTORS_4)
SMELT_PATCH_TILE(smelt_patch_some, SMELT_TILE_2X4, SMELT_VECTORS_4)
SMELT_PATCH_TILE(smelt_patch_one, SMELT_TILE_1X4, SMELT_VECTORS_4)
#define smelt_patch_few smelt_patch_some
enum { SMELT_WINDOWS_MOST = 4, SMELT_WINDOWS_SOME = 2 };
#endif

/* 16 channels of `run` windows side by side. */
static __attribute__((unused)) void smelt_patch_run(const smelt_window *w, const smelt_patch *s, const float *x,
                                                          const float *f, int64_t run, float *to, int64_t ld) {
  const int64_t side = w->stride[2] * SMELT_PATCH_LANES;
  const int kind = w->stride[2] == 1 && w->dilation[2] == 1;
  for (int64_t n; run > 0; run -= n, x += n * side, to += n * ld) {
    const int most = run >= SMELT_WINDOWS_MOST && (SMELT_WINDOWS_MOST > 8 || run != 2 * SMELT_WINDOWS_SOME);
    n = most ? SMELT_WINDOWS_MOST : run >= SMELT_WINDOWS_SOME ? SMELT_WINDOWS_SOME : run >= 2 ? 2 : 1;
    if (most) smelt_patch_most[kind](w, s, x, f, to, ld);
    else if (n == SMELT_WINDOWS_SOME) smelt_patch_some[kind](w, s, x, f, to, ld);
    else if (n == 2) smelt_patch_few[kind](w, s, x, f, to, ld);
    else smelt_patch_one[kind](w, s, x, f, to, ld);
  }
}

/* high x wide windows from p on, in one image; results lie `line` floats from line to line. */
static __attribute__((unused)) void smelt_patch_box(const smelt_window *w, const float *image, const float *panels,
                                                          smelt_place p, const smelt_patch *best, int64_t high,
                                                          int64_t wide, int64_t c0, int64_t c1, float *block, int64_t ld) {
  float patch[SMELT_PATCH_PIXELS * SMELT_PATCH_LANES] __attribute__((aligned(64)));
  const int64_t taps = w->kernel[0] * w->kernel[1] * w->kernel[2], top = p.at[1], left = p.at[2];
  for (int64_t y = 0; y < high; y += best->high)
    for (int64_t x = 0; x < wide; x += best->wide) {
      const smelt_patch s = smelt_patch_of(w, smelt_min(best->high, high - y), smelt_min(best->wide, wide - x));
      p.at[1] = top + y, p.at[2] = left + x;
      for (int64_t c = c0; c < c1; c += SMELT_PATCH_LANES) {
        smelt_patch_fill(w, image + c, &p, &s, smelt_min(c1 - c, 16), patch);
        for (int64_t i = 0; i < s.high; i++)
          smelt_patch_run(w, &s, patch + i * w->stride[1] * s.across * SMELT_PATCH_LANES, panels + c * taps, s.wide,
                                block + ((y + i) * w->out[2] + x) * ld + (c - c0), ld);
      }
    }
}

/* Whether enough taps look at each pixel to make up for its copy, and a patch of some windows fits. */
SMELT_INLINE int smelt_patches_pay(const smelt_window *w) {
  const smelt_patch least = smelt_patch_of(w, 1, smelt_min(8, w->out[2]));
  return w->kernel[0] * w->kernel[1] * w->kernel[2] >= SMELT_PATCH_TAPS && smelt_patch_pixels(w, &least) <= SMELT_PATCH_PIXELS;
}

static __attribute__((unused)) void smelt_depthwise_patches(const smelt_window *w, const float *image,
                                                              const float *panels, int64_t first, int64_t count,
                                                              int64_t c0, int64_t c1, float *block, int64_t ld) {
  smelt_place p = smelt_place_of(w, first);
  for (int64_t i = 0; i < count;) {
    const int64_t left = count - i, whole = p.at[2] == 0 && left >= w->out[2];
    const int64_t high = whole ? smelt_min(left / w->out[2], w->out[1] - p.at[1]) : 1;
    const int64_t wide = whole ? w->out[2] : smelt_min(left, w->out[2] - p.at[2]);
    smelt_patch best = smelt_best_patch(w, high, wide);
    if (!best.high) best = smelt_patch_of(w, 1, smelt_min(8, wide));
    smelt_patch_box(w, image, panels, p, &best, high, wide, c0, c1, block + i * ld, ld);
    i += high * wide;
    p = smelt_place_of(w, first + i);
  }
}

#endif
