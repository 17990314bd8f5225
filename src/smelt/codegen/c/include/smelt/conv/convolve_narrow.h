/* Convolution in narrow groups: 2, 4, 8 or 16 channels and as many columns each. Lanes are columns of several groups.
 *
 * Input:     smelt_window with taps side by side, NHWC; weights (panel, tap, channel of a group, 16): lane l weighs a channel
 *            of the group that column l belongs to. Output: smelt_convolve_narrow(): a block of windows.
 * Invariant: an element is one chain over lines, then taps and channels in rising order, whatever tile computes it; channels go
 *            first where windows side by side share pixels. The lines of 16 channels are copied into L1 with zeros around them.
 */
#ifndef SMELT_CONVOLVE_NARROW_H
#define SMELT_CONVOLVE_NARROW_H

#include <smelt/conv/convolve_lines.h>

/* Channel j of the one group that all lanes belong to; or of each of several groups, to all lanes of it: `lanes` has their
 * places. */
#define SMELT_NARROW_ONE(AT) bc_f32((AT)[j])
#if SMELT_ISA == 512
#define SMELT_NARROW_SEVERAL(AT) (v_f32)_mm512_permutexvar_ps((__m512i)lanes, (__m512)ld_f32(AT))
#elif SMELT_ISA == 256
#define SMELT_NARROW_SEVERAL(AT) (v_f32)_mm256_permutevar8x32_ps((__m256)ld_f32(AT), (__m256i)lanes)
#else
#define SMELT_NARROW_SEVERAL(AT) smelt_narrow_lanes(AT, lanes)
SMELT_INLINE v_f32 smelt_narrow_lanes(const float *at, v_i32 lanes) {
  v_f32 x = bc_f32(0);
  for (int l = 0; l < SMELT_L; l++) x[l] = at[lanes[l]];
  return x;
}
#endif

/* What a tile reads: lines of pixels of 16 floats, windows `side` pixels apart. */
typedef struct {
  const float *lines;
  int64_t side, segments, segment, taps, wide;
  const float *weights;
} smelt_narrow;

/* Finishes the last columns, which do not fill a vector. */
static __attribute__((noinline, unused)) void smelt_narrow_end(const smelt_epilogue *f, int64_t at, int64_t lane, v_f32 x) {
  const int64_t n = f->columns - lane;
  x += ld_f32_n(f->bias + lane, n);
  if (f->added) x += ld_f32_n(f->added + at, n);
  st_f32_n(f->to + at, smelt_limited(x, bc_f32(f->least), bc_f32(f->most)), n);
}

/* R windows times SMELT_L columns from lane `lane` of 16 on; LINE adds up what one line of the image gives. */
#define SMELT_NARROW_TILE(NAME, R, LINE, OF_GROUP)                                                                     \
  static __attribute__((noinline)) void NAME(const smelt_narrow *n, const float *a, int64_t lane, float *to, int64_t ld, \
                                             const smelt_epilogue *f) {                                                 \
    v_f32 acc[R];                                                                                                      \
    v_i32 first = bc_i32(0);                                                                                           \
    const int64_t wide = n->wide, side = n->side * 16, taps = n->taps;                                                 \
    for (int l = 0; l < SMELT_L; l++) first[l] = (int32_t)(l / wide * wide);                                           \
    const float *b = n->weights + lane;                                                                                \
    a += lane / wide * wide;                                                                                           \
    (void)side, (void)taps;                                                                                            \
    _Pragma("GCC unroll 16") for (int r = 0; r < (R); r++) acc[r] = bc_f32(0);                                         \
    for (int64_t s = n->segments; s > 0; s--, a += n->segment, b += taps * wide * 16) LINE(R, OF_GROUP)                \
    if (!f) {                                                                                                          \
      _Pragma("GCC unroll 16") for (int r = 0; r < (R); r++) st_f32(to + r * ld + lane, acc[r]);                       \
      return;                                                                                                          \
    }                                                                                                                  \
    const v_f32 least = bc_f32(f->least), most = bc_f32(f->most);                                                      \
    if (f->columns - lane < SMELT_L) {                                                                                 \
      for (int r = 0; r < (R); r++) smelt_narrow_end(f, r * f->ld + lane, lane, acc[r]);                               \
      return;                                                                                                          \
    }                                                                                                                  \
    const v_f32 bias = ld_f32(f->bias + lane);                                                                         \
    _Pragma("GCC unroll 16") for (int r = 0; r < (R); r++) {                                                           \
      v_f32 x = acc[r] + bias;                                                                                         \
      if (f->added) x += ld_f32(f->added + r * f->ld + lane);                                                          \
      st_f32(f->to + r * f->ld + lane, smelt_limited(x, least, most));                                                 \
    }                                                                                                                  \
  }

/* Any taps: each window sees pixels of its own. */
#define SMELT_NARROW_ANY(R, OF_GROUP)                                                                                  \
  for (int64_t t = 0; t < taps; t++)                                                                                   \
    for (int64_t j = 0; j < wide; j++) {                                                                               \
      const v_f32 weight = ld_f32(b + (t * wide + j) * 16);                                                            \
      const v_i32 lanes = first + bc_i32((int32_t)j);                                                                  \
      const float *at = a + t * 16;                                                                                    \
      (void)lanes;                                                                                                     \
      _Pragma("GCC unroll 16") for (int r = 0; r < (R); r++) acc[r] += OF_GROUP(at + r * side) * weight;               \
    }

/* Three taps and a window at each pixel: a pixel is seen by three windows. */
#define SMELT_NARROW_THREE(R, OF_GROUP)                                                                                \
  for (int64_t j = 0; j < wide; j++) {                                                                                 \
    const v_f32 w0 = ld_f32(b + j * 16), w1 = ld_f32(b + (wide + j) * 16), w2 = ld_f32(b + (2 * wide + j) * 16);       \
    const v_i32 lanes = first + bc_i32((int32_t)j);                                                                    \
    (void)lanes;                                                                                                       \
    _Pragma("GCC unroll 16") for (int p = 0; p < (R) + 2; p++) {                                                       \
      const v_f32 x = OF_GROUP(a + p * 16);                                                                            \
      if (p >= 2) acc[p - 2] += x * w2;                                                                                \
      if (p >= 1 && p <= (R)) acc[p - 1] += x * w1;                                                                    \
      if (p < (R)) acc[p] += x * w0;                                                                                   \
    }                                                                                                                  \
  }

typedef void (*smelt_narrow_tile)(const smelt_narrow *n, const float *a, int64_t lane, float *to, int64_t ld,
                                  const smelt_epilogue *f);
/* Most windows at a time, and heights that cut a run evenly: fewer than eight sums wait for each other. */
#if SMELT_VL == 64 || defined(__aarch64__)
enum { SMELT_NARROW_HIGH = 14 };
#define SMELT_NARROW_MOST(NAME, LINE, OF_GROUP) SMELT_NARROW_TILE(NAME, 14, LINE, OF_GROUP)
#else
enum { SMELT_NARROW_HIGH = 8 };
#define SMELT_NARROW_MOST(NAME, LINE, OF_GROUP) SMELT_NARROW_TILE(NAME, 8, LINE, OF_GROUP)
#endif
static const int8_t smelt_narrow_heights[] = {SMELT_NARROW_HIGH, 7, 6, 5, 4, 1};
#define SMELT_NARROW_TILES(NAME, LINE, OF_GROUP)                                                                       \
  SMELT_NARROW_MOST(NAME##_most, LINE, OF_GROUP)                                                                       \
  SMELT_NARROW_TILE(NAME##_7, 7, LINE, OF_GROUP)                                                                       \
  SMELT_NARROW_TILE(NAME##_6, 6, LINE, OF_GROUP)                                                                       \
  SMELT_NARROW_TILE(NAME##_5, 5, LINE, OF_GROUP)                                                                       \
  SMELT_NARROW_TILE(NAME##_4, 4, LINE, OF_GROUP)                                                                       \
  SMELT_NARROW_TILE(NAME##_1, 1, LINE, OF_GROUP)                                                                       \
  static const smelt_narrow_tile NAME[] = {NAME##_most, NAME##_7, NAME##_6, NAME##_5, NAME##_4, NAME##_1};
SMELT_NARROW_TILES(smelt_narrow_any, SMELT_NARROW_ANY, SMELT_NARROW_SEVERAL)
SMELT_NARROW_TILES(smelt_narrow_any_one, SMELT_NARROW_ANY, SMELT_NARROW_ONE)
SMELT_NARROW_TILES(smelt_narrow_three, SMELT_NARROW_THREE, SMELT_NARROW_SEVERAL)
SMELT_NARROW_TILES(smelt_narrow_three_one, SMELT_NARROW_THREE, SMELT_NARROW_ONE)

SMELT_INLINE const smelt_narrow_tile *smelt_narrow_tiles_of(const smelt_narrow *n) {
  if (n->taps == 3 && n->side == 1) return n->wide >= SMELT_L ? smelt_narrow_three_one : smelt_narrow_three;
  return n->wide >= SMELT_L ? smelt_narrow_any_one : smelt_narrow_any;
}

/* The tile that comes next: as high as `left` windows are in as few tiles as they take. */
SMELT_INLINE int smelt_narrow_kind(int64_t left) {
  const int64_t tiles = (left + SMELT_NARROW_HIGH - 1) / SMELT_NARROW_HIGH, high = (left + tiles - 1) / tiles;
  int kind = 0;
  while (smelt_narrow_heights[kind] > high) kind++;
  return kind;
}

/* `run` windows side by side, `cols` columns of a panel. */
static __attribute__((unused)) void smelt_narrow_run(const smelt_narrow *n, int64_t run, int64_t cols, float *block, int64_t ld,
                                                     const smelt_epilogue *epilogue) {
  const smelt_narrow_tile *tiles = smelt_narrow_tiles_of(n);
  for (int64_t i = 0, high; i < run; i += high) {
    const int kind = smelt_narrow_kind(run - i);
    high = smelt_narrow_heights[kind];
    const smelt_epilogue f = epilogue ? smelt_epilogue_at(epilogue, i, 0) : (smelt_epilogue){0};
    for (int64_t lane = 0; lane < cols; lane += SMELT_L)
      tiles[kind](n, n->lines + i * n->side * 16, lane, block + i * ld, ld, epilogue ? &f : NULL);
  }
}

/* As smelt_lines_fill(), of the last `cols` channels, which are fewer than the 16 that they take in the copy. */
static __attribute__((unused)) void smelt_narrow_fill(const smelt_window *w, const float *image, const smelt_place *p, int64_t n,
                                                      int64_t cols, float *to) {
  const int64_t x = p->at[2] * w->stride[2] - w->before[2], plane = w->in[1] * w->in[2] * w->pixel;
  const float *from = image + p->image * w->in[0] * plane;
  __builtin_memset(to, 0, (size_t)(w->kernel[0] * w->kernel[1] * n * 16) * sizeof(float));
  for (int64_t ta = 0; ta < w->kernel[0]; ta++)
    for (int64_t tb = 0; tb < w->kernel[1]; tb++, to += n * 16) {
      const int64_t z = p->at[0] * w->stride[0] + ta * w->dilation[0] - w->before[0];
      const int64_t y = p->at[1] * w->stride[1] + tb * w->dilation[1] - w->before[1];
      if (z < 0 || z >= w->in[0] || y < 0 || y >= w->in[1]) continue;
      const float *line = from + z * plane + y * w->in[2] * w->pixel;
      for (int64_t i = smelt_max(-x, 0); i < smelt_min(n, w->in[2] - x); i++) {
        const float *pixel = line + (x + i) * w->pixel;
        for (int64_t c = 0; c < cols; c += SMELT_L) {
          const int64_t some = smelt_min(cols - c, SMELT_L);
          st_f32_n(to + i * 16 + c, ld_f32_n(pixel + c, some), some);
        }
      }
    }
}

/* Whole lines of windows from p on, at most `left` windows, whose copies fit L1 beside the weights: they share lines of the
 * image. 0: not even one. */
SMELT_INLINE int64_t smelt_narrow_lines(const smelt_window *w, const smelt_place *p, int64_t left) {
  const int64_t line = ((w->out[2] - 1) * w->stride[2] + w->kernel[2]) * 16, lines = SMELT_LINES_FLOATS / 2 / line - w->kernel[1];
  if (w->kernel[0] > 1 || w->dilation[1] > 1 || p->at[2] || lines < 0) return 0;
  return smelt_min(smelt_min(lines / w->stride[1] + 1, w->out[1] - p->at[1]), left / w->out[2]);
}

/* Columns c0..c1-1, whole panels or the last ones; smelt_lines_fit(w, 16) is not 0. */
static __attribute__((unused)) void smelt_convolve_narrow(const smelt_window *w, const float *image, const float *weights,
                                                          int64_t first, int64_t count, int64_t c0, int64_t c1, float *block,
                                                          int64_t ld, const smelt_epilogue *epilogue) {
  float lines[SMELT_LINES_FLOATS] __attribute__((aligned(64)));
  const smelt_line_form form = smelt_line_form_of(w, 16);
  const int64_t wide = w->pixel / w->groups, most = smelt_lines_fit(w, 16);
  smelt_narrow n = {lines, w->stride[2], w->kernel[0] * w->kernel[1], 0, w->kernel[2], wide, NULL};
  smelt_window seen = *w; /* all lines of a copy as taps of one window */
  for (int64_t c = c0; c < c1; c += 16) {
    const int64_t cols = smelt_min(c1 - c, 16);
    n.weights = weights + c * n.segments * n.taps * wide;
    for (int64_t i = 0, run; i < count;) {
      const smelt_place p = smelt_place_of(w, first + i);
      const int64_t high = smelt_narrow_lines(w, &p, count - i);
      run = high ? w->out[2] : smelt_min(smelt_min(count - i, w->out[2] - p.at[2]), most);
      const int64_t pixels = (run - 1) * w->stride[2] + w->kernel[2];
      n.segment = pixels * 16;
      seen.kernel[1] = high ? (high - 1) * w->stride[1] + w->kernel[1] : w->kernel[1];
      if (cols == 16) smelt_lines_fill(&seen, image + c, &p, pixels, &form, lines);
      else smelt_narrow_fill(&seen, image + c, &p, pixels, cols, lines);
      n.lines = lines;
      for (int64_t y = 0; y < smelt_max(high, 1); y++, i += run, n.lines += w->stride[1] * n.segment) {
        const smelt_epilogue here = epilogue ? smelt_epilogue_at(epilogue, i, c - c0) : (smelt_epilogue){0};
        smelt_narrow_run(&n, run, cols, block + i * ld + (c - c0), ld, epilogue ? &here : NULL);
      }
    }
  }
}

#endif
