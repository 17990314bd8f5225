/* Convolution with few output channels: lanes run along the window instead of across columns, which would leave most of a panel
 * empty.
 *
 * Input:     smelt_window with taps side by side, NHWC; weights (group, block, column, 16): each line of taps is cut into
 *            blocks of 16 elements, with zeros behind the last one. Output: smelt_convolve_dots(): a block of windows.
 * Invariant: an element is, for each lane, one chain over the lines and their vectors in rising order, and then a fixed tree
 *            over lanes, whatever tile computes it. Nothing is read behind a line of taps: it must not meet a weight of zero.
 */
#ifndef SMELT_CONVOLVE_DOTS_H
#define SMELT_CONVOLVE_DOTS_H

#include <smelt/conv/convolve_lines.h>

enum {
  SMELT_DOTS_COLUMNS = 8, /* of a group, at most */
  SMELT_DOTS_WINDOWS = 16 /* whose sums are added up together */
};

/* What a tile reads: windows `side` floats apart; a window is `segments` runs of `taps` floats, `segment` floats apart. */
typedef struct {
  int64_t side, segments, segment, taps;
  const float *weights;
} smelt_dots;

#define SMELT_DOTS_BLOCKS(floats) (((floats) + 15) / 16)

#define SMELT_DOTS_STEP(R, M, LOAD)                                                                                    \
  {                                                                                                                    \
    const float *w = b + i / 16 * (16 * (M)) + i % 16;                                                                 \
    v_f32 x[R];                                                                                                        \
    _Pragma("GCC unroll 16") for (int r = 0; r < (R); r++) x[r] = LOAD(a + r * side + i);                              \
    _Pragma("GCC unroll 16") for (int m = 0; m < (M); m++) {                                                           \
      const v_f32 weight = ld_f32(w + 16 * m);                                                                         \
      _Pragma("GCC unroll 16") for (int r = 0; r < (R); r++) acc[r][m] += x[r] * weight;                               \
    }                                                                                                                  \
  }
#define SMELT_DOTS_REST(at) ld_f32_n(at, rest)

/* R windows times M columns: a vector of partial sums for each, by windows, then columns. */
#define SMELT_DOTS_MICRO(R, M) SMELT_MICRO_C(f32_igemm, R, M, SMELT_F32_OF_1, SMELT_UNIT_FEATURE)
#define SMELT_DOTS_TILE(R, M)                                                                                          \
  static __attribute__((noinline)) void SMELT_DOTS_MICRO(R, M)(const smelt_dots *d, const float *a, v_f32 *sums) {       \
    v_f32 acc[R][M];                                                                                                   \
    _Pragma("GCC unroll 16") for (int r = 0; r < (R); r++)                                                             \
      _Pragma("GCC unroll 16") for (int m = 0; m < (M); m++) acc[r][m] = bc_f32(0);                                    \
    const float *b = d->weights;                                                                                       \
    const int64_t side = d->side, rest = d->taps % SMELT_L, whole = d->taps - rest;                                    \
    const int64_t segment = d->segment, blocks = SMELT_DOTS_BLOCKS(d->taps) * (16 * (M));                              \
    for (int64_t s = d->segments; s > 0; s--, a += segment, b += blocks) {                                             \
      int64_t i = 0;                                                                                                   \
      for (; i < whole; i += SMELT_L) SMELT_DOTS_STEP(R, M, ld_f32)                                                    \
      if (rest) SMELT_DOTS_STEP(R, M, SMELT_DOTS_REST)                                                                 \
    }                                                                                                                  \
    _Pragma("GCC unroll 16") for (int r = 0; r < (R); r++)                                                             \
      _Pragma("GCC unroll 16") for (int m = 0; m < (M); m++) sums[r * (M) + m] = acc[r][m];                            \
  }

typedef void (*smelt_dots_tile)(const smelt_dots *d, const float *a, v_f32 *sums);

/* As many windows as registers have room for their sums; and one. */
#if SMELT_VL == 64 || defined(__aarch64__)
#define SMELT_DOTS_EACH(X) X(8, 1) X(8, 2) X(6, 3) X(5, 4) X(4, 5) X(4, 6) X(3, 7) X(3, 8)
static const int8_t smelt_dots_heights[] = {0, 8, 8, 6, 5, 4, 4, 3, 3};
#else
#define SMELT_DOTS_EACH(X) X(8, 1) X(5, 2) X(3, 3) X(3, 4) X(2, 5) X(2, 6) X(2, 7) X(2, 8)
static const int8_t smelt_dots_heights[] = {0, 8, 5, 3, 3, 2, 2, 2, 2};
#endif
#define SMELT_DOTS_NAME(R, M) SMELT_DOTS_MICRO(R, M),
SMELT_DOTS_EACH(SMELT_DOTS_TILE)
SMELT_DOTS_TILE(1, 1) SMELT_DOTS_TILE(1, 2) SMELT_DOTS_TILE(1, 3) SMELT_DOTS_TILE(1, 4)
SMELT_DOTS_TILE(1, 5) SMELT_DOTS_TILE(1, 6) SMELT_DOTS_TILE(1, 7) SMELT_DOTS_TILE(1, 8)
static const smelt_dots_tile smelt_dots_main[] = {0, SMELT_DOTS_EACH(SMELT_DOTS_NAME)};
static const smelt_dots_tile smelt_dots_one[] = {0,                SMELT_DOTS_MICRO(1, 1), SMELT_DOTS_MICRO(1, 2), SMELT_DOTS_MICRO(1, 3), SMELT_DOTS_MICRO(1, 4),
                                                 SMELT_DOTS_MICRO(1, 5), SMELT_DOTS_MICRO(1, 6), SMELT_DOTS_MICRO(1, 7), SMELT_DOTS_MICRO(1, 8)};

/* Groups of `wide` lanes of two vectors become one: their lower and upper halves, added, side by side. */
#define SMELT_DOTS_LOW(i) ((i) % wide < wide / 2 ? (i) : (i) - wide / 2 + SMELT_L)
#define SMELT_DOTS_HIGH(i) ((i) % wide < wide / 2 ? (i) + wide / 2 : (i) + SMELT_L)
#define SMELT_DOTS_FOLD(WIDE)                                                                                          \
  SMELT_INLINE v_f32 smelt_dots_fold##WIDE(v_f32 a, v_f32 b) {                                                         \
    enum { wide = WIDE };                                                                                              \
    return __builtin_shufflevector(a, b, SMELT_LANES(SMELT_DOTS_LOW)) + __builtin_shufflevector(a, b, SMELT_LANES(SMELT_DOTS_HIGH)); \
  }
#if SMELT_L >= 16
SMELT_DOTS_FOLD(16)
#endif
#if SMELT_L >= 8
SMELT_DOTS_FOLD(8)
#endif
SMELT_DOTS_FOLD(4) SMELT_DOTS_FOLD(2)

/* Lane i is the sum of the lanes of v[i]: lanes i and i + L/2 of each, then those L/4 apart, ... */
SMELT_INLINE v_f32 smelt_dots_added(const v_f32 *v) {
#if SMELT_L >= 16
  v_f32 half[8];
  _Pragma("GCC unroll 8") for (int j = 0; j < 8; j++) half[j] = smelt_dots_fold16(v[j], v[j + 8]);
#else
  const v_f32 *half = v;
#endif
#if SMELT_L >= 8
  v_f32 four[4];
  _Pragma("GCC unroll 4") for (int j = 0; j < 4; j++) four[j] = smelt_dots_fold8(half[j], half[j + 4]);
#else
  const v_f32 *four = half;
#endif
  return smelt_dots_fold2(smelt_dots_fold4(four[0], four[2]), smelt_dots_fold4(four[1], four[3]));
}

/* Up to SMELT_DOTS_WINDOWS windows: their results one after the other; `results` has room for whole vectors. */
static __attribute__((unused)) void smelt_dots_windows(const smelt_dots *d, const float *a, int64_t count, int64_t columns,
                                                       float *results) {
  v_f32 sums[SMELT_DOTS_WINDOWS * SMELT_DOTS_COLUMNS + SMELT_L];
  const int64_t high = smelt_dots_heights[columns], total = count * columns;
  if (count < high)
    for (int64_t r = 0; r < count; r++) smelt_dots_one[columns](d, a + r * d->side, sums + r * columns);
  else
    for (int64_t r = 0; r < count; r += high) {
      const int64_t row = smelt_min(r, count - high);
      smelt_dots_main[columns](d, a + row * d->side, sums + row * columns);
    }
  for (int64_t i = total; i % SMELT_L; i++) sums[i] = bc_f32(0);
  for (int64_t i = 0; i < total; i += SMELT_L) st_f32(results + i, smelt_dots_added(sums + i));
}

/* Results one after the other become rows of the block. */
SMELT_INLINE void smelt_dots_put(const float *results, int64_t count, int64_t columns, float *block, int64_t ld) {
  for (int64_t r = 0; r < count; r++)
    for (int64_t m = 0; m < columns; m++) block[r * ld + m] = results[r * columns + m];
}

/* Results one after the other, finished where they go, which lies alike. `bias` repeats itself. */
SMELT_INLINE void smelt_dots_epilogue(const smelt_epilogue *f, const float *bias, const float *results, int64_t total) {
  const v_f32 least = bc_f32(f->least), most = bc_f32(f->most);
  for (int64_t i = 0; i < total; i += SMELT_L) {
    const int64_t n = smelt_min(total - i, SMELT_L);
    v_f32 x = ld_f32(results + i) + ld_f32(bias + i);
    if (f->added) x += n == SMELT_L ? ld_f32(f->added + i) : ld_f32_n(f->added + i, n);
    x = smelt_limited(x, least, most);
    if (n == SMELT_L) st_f32(f->to + i, x);
    else st_f32_n(f->to + i, x, n);
  }
}

/* `run` windows side by side. With `bias`, the epilogue's repeated, results go where it says; else into the block. */
static __attribute__((unused)) void smelt_dots_run(const smelt_dots *d, const float *a, int64_t run, int64_t columns,
                                                   float *block, int64_t ld, const smelt_epilogue *epilogue, const float *bias) {
  float results[SMELT_DOTS_WINDOWS * SMELT_DOTS_COLUMNS] __attribute__((aligned(64)));
  for (int64_t i = 0; i < run; i += SMELT_DOTS_WINDOWS) {
    const int64_t count = smelt_min(run - i, SMELT_DOTS_WINDOWS);
    smelt_dots_windows(d, a + i * d->side, count, columns, results);
    if (!bias) {
      smelt_dots_put(results, count, columns, block + i * ld, ld);
      continue;
    }
    const smelt_epilogue here = smelt_epilogue_at(epilogue, i, 0);
    smelt_dots_epilogue(&here, bias, results, count * columns);
  }
}

/* One group: `count` windows from `first` on, `columns` columns, `depth` channels that the image begins with. Pixels are read
 * where they lie where a window is one, else their lines are copied; smelt_lines_fit(w, depth) is not 0. */
static __attribute__((unused)) void smelt_dots_group(const smelt_window *w, const float *image, int64_t depth,
                                                     const float *weights, int64_t first, int64_t count, int64_t columns,
                                                     float *block, int64_t ld, const smelt_epilogue *epilogue, const float *bias) {
  if (smelt_pointwise(w)) {
    const smelt_dots d = {w->pixel, 1, 0, depth, weights};
    smelt_dots_run(&d, image + first * w->pixel, count, columns, block, ld, epilogue, bias);
    return;
  }
  float lines[SMELT_LINES_FLOATS] __attribute__((aligned(64)));
  const smelt_line_form form = smelt_line_form_of(w, depth);
  const int64_t most = smelt_lines_fit(w, depth);
  smelt_dots d = {w->stride[2] * depth, w->kernel[0] * w->kernel[1], 0, w->kernel[2] * depth, weights};
  for (int64_t i = 0, run; i < count; i += run) {
    const smelt_place p = smelt_place_of(w, first + i);
    run = smelt_min(smelt_min(count - i, w->out[2] - p.at[2]), most);
    const int64_t pixels = (run - 1) * w->stride[2] + w->kernel[2];
    const smelt_epilogue here = bias ? smelt_epilogue_at(epilogue, i, 0) : (smelt_epilogue){0};
    d.segment = pixels * depth;
    smelt_lines_fill(w, image, &p, pixels, &form, lines);
    smelt_dots_run(&d, lines, run, columns, block + i * ld, ld, &here, bias);
  }
}

/* Columns c0..c1-1, which lie between groups. Where rows of the result are those of one group, they are finished at once. */
static __attribute__((unused)) void smelt_convolve_dots(const smelt_window *w, const float *image, const float *weights,
                                                        int64_t first, int64_t count, int64_t c0, int64_t c1, float *block,
                                                        int64_t ld, const smelt_epilogue *epilogue) {
  const int64_t depth = w->pixel / w->groups, each = w->columns / w->groups;
  const int64_t floats = w->kernel[0] * w->kernel[1] * SMELT_DOTS_BLOCKS(w->kernel[2] * depth) * 16 * each;
  float bias[SMELT_DOTS_WINDOWS * SMELT_DOTS_COLUMNS] __attribute__((aligned(64)));
  const int direct = epilogue && epilogue->ld == each;
  for (int64_t i = 0; direct && i < SMELT_DOTS_WINDOWS * each; i++) bias[i] = epilogue->bias[i % each];
  for (int64_t c = c0; c < c1; c += each)
    smelt_dots_group(w, image + c / each * depth, depth, weights + c / each * floats, first, count, each, block + (c - c0), ld,
                     epilogue, direct ? bias : NULL);
  if (epilogue && !direct) smelt_epilogue_block(epilogue, block, ld, count);
}

#endif
