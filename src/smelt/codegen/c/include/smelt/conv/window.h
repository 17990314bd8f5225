/* Sliding windows over an NHWC image: what kernels and launches of convolutions and pools know.
 *
 * Input:     smelt_window: sizes, strides, padding of three axes; smelt_window_task. Output: declarations of the launchers and of the
 *            kernels: each fills a block of `count` windows from `first` on, columns c0..c1-1.
 * Invariant: windows are counted over (image, o0, o1, o2). Launchers and kernels are compiled apart, once per level
 *            (launch_window_unit.h, window_unit.h), so that no unit of a model pays for them.
 */
#ifndef SMELT_WINDOW_H
#define SMELT_WINDOW_H

#include <smelt/threads/loop.h>
#include <smelt/gemm/loop_gemm.h>

typedef struct {
  int64_t in[3], out[3], kernel[3], stride[3], dilation[3], before[3], after[3];
  int64_t pixel;   /* floats of a pixel of the image */
  int64_t groups;  /* of channels */
  int64_t columns; /* of the result */
  int spread;      /* a transposed convolution: pixel i reaches o = i * stride + t * dilation - before */
  int counted;     /* a mean counts padding */
  int nchw;      /* the image is NCHW: (N, channels, *sizes) */
  int packed;      /* how weights are: see below */
} smelt_window;

/* In panels of columns, or as convolve_dots.h and convolve_narrow.h say. */
enum { SMELT_PANELS, SMELT_DOTS, SMELT_NARROW };

#define SMELT_CONVOLVE SMELT_NAME(smelt_convolve)
#define SMELT_CONVOLVE_DOTS SMELT_NAME(smelt_convolve_dots)
#define SMELT_CONVOLVE_NARROW SMELT_NAME(smelt_convolve_narrow)
#define SMELT_DEPTHWISE SMELT_NAME(smelt_depthwise)
#define SMELT_DEPTHWISE_PATCH SMELT_NAME(smelt_depthwise_patch)
#define SMELT_DEPTHWISE_LINES_5_1 SMELT_NAME(smelt_depthwise_lines_5_1)
#define SMELT_DEPTHWISE_LINES_5_2 SMELT_NAME(smelt_depthwise_lines_5_2)
#define SMELT_DEPTHWISE_LINES_7_1 SMELT_NAME(smelt_depthwise_lines_7_1)
#define SMELT_DEPTHWISE_LINES_7_2 SMELT_NAME(smelt_depthwise_lines_7_2)
#define SMELT_POOL SMELT_NAME(smelt_pool)
#define SMELT_POOL_NCHW SMELT_NAME(smelt_pool_nchw)
#define SMELT_WINOGRAD SMELT_NAME(smelt_winograd_block)

#define smelt_launch_window SMELT_NAME(smelt_launch_window)
#define smelt_launch_winograd SMELT_NAME(smelt_launch_winograd)
#define smelt_launch_square SMELT_NAME(smelt_launch_square)

enum { SMELT_POOL_MAX, SMELT_POOL_MEAN, SMELT_POOL_SUM };

/* With `epilogue`, results go where it says, and the block is for what is not finished yet; NULL: sums are left in the block. */
void SMELT_CONVOLVE(const smelt_window *w, const float *image, const float *panels, int64_t first, int64_t count,
                    int64_t c0, int64_t c1, float *block, int64_t ld, const smelt_epilogue *epilogue);
void SMELT_CONVOLVE_DOTS(const smelt_window *w, const float *image, const float *panels, int64_t first, int64_t count,
                    int64_t c0, int64_t c1, float *block, int64_t ld, const smelt_epilogue *epilogue);
void SMELT_CONVOLVE_NARROW(const smelt_window *w, const float *image, const float *panels, int64_t first, int64_t count,
                    int64_t c0, int64_t c1, float *block, int64_t ld, const smelt_epilogue *epilogue);
void SMELT_WINOGRAD(const smelt_window *w, const float *image, const float *panels, int transformed, int64_t first,
                    int64_t count, int64_t c0, int64_t c1, float *block, int64_t ld, float *workspace);
void SMELT_DEPTHWISE(const smelt_window *w, const float *image, const float *panels, int64_t first, int64_t count,
                       int64_t c0, int64_t c1, float *block, int64_t ld, const smelt_epilogue *epilogue);
/* Filters of SMELT_PATCH_TAPS taps and more: by patches where these pay, else by SMELT_DEPTHWISE. */
void SMELT_DEPTHWISE_PATCH(const smelt_window *w, const float *image, const float *panels, int64_t first, int64_t count,
                           int64_t c0, int64_t c1, float *block, int64_t ld, const smelt_epilogue *epilogue);
/* Five or seven taps side by side along a line, of windows one or two pixels apart: each is a unit of its own. */
void SMELT_DEPTHWISE_LINES_5_1(const smelt_window *w, const float *image, const float *panels, int64_t first, int64_t count,
                               int64_t c0, int64_t c1, float *block, int64_t ld, const smelt_epilogue *epilogue);
void SMELT_DEPTHWISE_LINES_5_2(const smelt_window *w, const float *image, const float *panels, int64_t first, int64_t count,
                               int64_t c0, int64_t c1, float *block, int64_t ld, const smelt_epilogue *epilogue);
void SMELT_DEPTHWISE_LINES_7_1(const smelt_window *w, const float *image, const float *panels, int64_t first, int64_t count,
                               int64_t c0, int64_t c1, float *block, int64_t ld, const smelt_epilogue *epilogue);
void SMELT_DEPTHWISE_LINES_7_2(const smelt_window *w, const float *image, const float *panels, int64_t first, int64_t count,
                               int64_t c0, int64_t c1, float *block, int64_t ld, const smelt_epilogue *epilogue);
/* SMELT_POOL_NCHW: images of one channel, lines first..first+count-1 of the result, of which columns c0..c1-1. */
void SMELT_POOL_NCHW(const smelt_window *w, const float *image, int kind, int64_t first, int64_t count, int64_t c0,
                       int64_t c1, float *block, int64_t ld);
void SMELT_POOL(const smelt_window *w, const float *image, int kind, int64_t first, int64_t count, int64_t c0, int64_t c1,
                float *block, int64_t ld);

#define SMELT_WINDOW_PART smelt_sizes.window_part
#define SMELT_K_BLOCK_PANELS smelt_sizes.window_k_block
enum {
  SMELT_WINDOW_BLOCK = 20480,   /* floats of a block: it stays in L2, and on the stack */
  SMELT_WINDOW_ROWS = 56,       /* im2col rows at a time */
  SMELT_WINDOW_TILE = SMELT_VL == 64 ? 14 : 6, /* windows of a tile */
  SMELT_PATCH_TAPS = 16,        /* of one channel, from which on windows are computed patch by patch */
  SMELT_PATCH_COLUMNS = 64,     /* of a part that is computed so: many lines of windows share their pixels */
  SMELT_LINES_FLOATS = 8192,    /* of an image's lines that are copied side by side */
  SMELT_LINES_DEPTH = 80,       /* channels up to which windows are read from such copies */
  SMELT_LINES_WINDOWS = 14,     /* side by side that their lines must have room for */
  SMELT_LINES_LEAST = 8,        /* windows of a line */
  SMELT_LINES_COLUMNS = 96      /* of a part of several lines, where one line of all columns would leave L1 */
};

/* smelt_launch_window(), smelt_launch_winograd(), smelt_launch_square(), and stages of tile fusions. */
typedef struct {
  SMELT_TASK
  int64_t row_blocks;             /* blocks of windows */
  int64_t block_rows, block_wide; /* windows of a task, and its units of columns */
  int64_t start;                  /* the first window of all tasks */
  int64_t part_rows, part_wide;   /* of what a task computes before its epilogue */
  int32_t winograd;               /* computed by SMELT_WINOGRAD */
} smelt_window_task;

/* What a kernel reads: pixels as they lie, windows channel by channel, im2col rows, copies of lines, or copies of the lines of
 * the channels of one unit. */
enum { SMELT_BY_PIXELS, SMELT_BY_CHANNELS, SMELT_BY_IM2COL, SMELT_BY_LINES, SMELT_BY_GROUPS };

/* `rows` windows, lines of `line`, of `columns` results, which take `depth` multiply-adds each, over `taps` pixels; columns
 * are cut in units. See launch_window_unit.h. */
int32_t smelt_launch_window(smelt_window_task *task, smelt_body body, int64_t rows, int64_t columns, int64_t unit, int64_t depth,
                            int64_t taps, int64_t line, int64_t extra, int form, int whole_rows);
/* Convolutions by SMELT_WINOGRAD: `lines` lines of `line` windows, `height` of them an image's, `columns` results of `channels`
 * each, with weights that are `transformed` ahead of time or not. */
int32_t smelt_launch_winograd(smelt_window_task *task, smelt_body body, int64_t lines, int64_t height, int64_t line,
                              int64_t columns, int64_t channels, int64_t extra, int transformed, int whole_rows);
/* Convolutions of 3 x 3 taps side by side with plain weights: by SMELT_WINOGRAD, or by SMELT_CONVOLVE where images are small. */
int32_t smelt_launch_square(smelt_window_task *task, smelt_body body, int64_t rows, int64_t height, int64_t line, int64_t columns,
                            int64_t channels, int64_t extra, int whole_rows);

/* Windows that are computed at a time, of lines of `line`, where `fit` fit L1: whole lines or about equal parts of one, in
 * whole tiles. */
SMELT_INLINE int64_t smelt_window_part(int64_t line, int64_t fit) {
  if (line <= fit) return fit / line * line;
  const int64_t parts = (line + fit - 1) / fit, each = (line + parts - 1) / parts;
  return each > SMELT_WINDOW_TILE ? each / SMELT_WINDOW_TILE * SMELT_WINDOW_TILE : each;
}

/* What a task computes at a time before its epilogue: a part that stays in L1, or all of it where windows are gathered for
 * all columns, and panels pass by for all windows. */
SMELT_INLINE void smelt_window_parts(smelt_window_task *task, int64_t line, int64_t unit, int64_t depth, int64_t taps, int form,
                                     int whole_rows) {
  task->part_rows = task->block_rows, task->part_wide = task->block_wide;
  if (form == SMELT_BY_IM2COL) return;
  const int patches = form == SMELT_BY_CHANNELS && taps >= SMELT_PATCH_TAPS;
  if (patches && !whole_rows) task->part_wide = smelt_min(task->part_wide, smelt_max(SMELT_PATCH_COLUMNS / unit, 1));
  if (form == SMELT_BY_CHANNELS && !whole_rows && 2 * line * task->part_wide * unit > SMELT_WINDOW_PART &&
      2 * line * SMELT_LINES_COLUMNS <= SMELT_WINDOW_PART)
    task->part_wide = smelt_min(task->part_wide, smelt_max(SMELT_LINES_COLUMNS / unit, 1));
  const int64_t fit = smelt_max((patches ? SMELT_WINDOW_BLOCK : SMELT_WINDOW_PART) / (task->part_wide * unit), 14);
  const int64_t pixels = depth * task->part_wide * unit > SMELT_K_BLOCK_PANELS ? SMELT_WINDOW_ROWS : smelt_min(fit / 14 * 14, SMELT_WINDOW_ROWS);
  task->part_rows = form == SMELT_BY_PIXELS ? pixels : smelt_window_part(line, fit);
  task->part_rows = smelt_min(task->part_rows, task->block_rows);
}

/* Plain weights are transformed in blocks of so many channels and panels: a block, its rows and its sums stay in L2. */
enum {
  SMELT_WINOGRAD_DEPTH = 64,
  SMELT_WINOGRAD_PANELS = 4
};

/* A tile of 2 x 4 results takes so many products. */
enum { SMELT_WINOGRAD_TERMS = 24 };

/* Tiles side by side of a line. */
#define SMELT_WINOGRAD_ACROSS(line) (((line) + 3) / 4)

/* Floats from the matrix of one term to the next: off a power of two, so that they do not share cache sets. */
#define SMELT_WINOGRAD_STEP(floats) (((floats) + 15 & ~(int64_t)15) + 16)

/* Channels of a block: cut evenly, whole vectors of any level. */
SMELT_INLINE int64_t smelt_winograd_depth(int64_t channels) {
  const int64_t blocks = (channels + SMELT_WINOGRAD_DEPTH - 1) / SMELT_WINOGRAD_DEPTH;
  return ((channels + blocks - 1) / blocks + 15) / 16 * 16;
}

/* Floats of workspace that SMELT_WINOGRAD takes for `tiles` tiles of `channels` and `columns` (whole panels): transformed
 * inputs and their products, and a block of transformed weights or a panel of plain ones. */
SMELT_INLINE int64_t smelt_winograd_floats(int64_t tiles, int64_t channels, int64_t columns, int transformed) {
  const int64_t sums = SMELT_WINOGRAD_STEP(tiles * columns), deep = transformed ? channels : smelt_winograd_depth(channels);
  const int64_t rows = SMELT_WINOGRAD_STEP(tiles * deep);
  if (transformed) return smelt_max(SMELT_WINOGRAD_TERMS * (rows + sums), 144 * channels) + 32;
  const int64_t filters = SMELT_WINOGRAD_STEP(deep * smelt_min(columns, 16 * SMELT_WINOGRAD_PANELS));
  return SMELT_WINOGRAD_TERMS * (rows + sums + filters) + 32;
}

/* Pixels of a result, and channels on either side, from which on Winograd's form wins. */
enum { SMELT_WINOGRAD_PIXELS = 144, SMELT_WINOGRAD_CHANNELS = 16 };

/* Whether every window is one pixel and every pixel one window: rows are read where they lie. */
SMELT_INLINE int smelt_pointwise(const smelt_window *w) {
  int plain = !w->spread && !w->nchw;
  for (int axis = 0; axis < 3; axis++)
    plain &= w->kernel[axis] == 1 && w->stride[axis] == 1 && w->before[axis] == 0 && w->in[axis] == w->out[axis];
  return plain;
}

/* The window with a given number: its image, and its place along the three axes. */
typedef struct {
  int64_t image, at[3];
} smelt_place;

SMELT_INLINE smelt_place smelt_place_of(const smelt_window *w, int64_t number) {
  smelt_place p;
  for (int axis = 2; axis >= 0; axis--) {
    p.at[axis] = number % w->out[axis];
    number /= w->out[axis];
  }
  p.image = number;
  return p;
}

SMELT_INLINE void smelt_place_next(const smelt_window *w, smelt_place *p) {
  if (++p->at[2] < w->out[2]) return;
  p->at[2] = 0;
  if (++p->at[1] < w->out[1]) return;
  p->at[1] = 0;
  if (++p->at[0] < w->out[0]) return;
  p->at[0] = 0;
  p->image++;
}

/* Taps lo..hi-1 of the window at o lie in low..high-1 along an axis; pixel o * stride + t * dilation - before. */
typedef struct {
  int64_t start, lo, hi;
} smelt_span;

SMELT_INLINE smelt_span smelt_span_of(const smelt_window *w, int axis, int64_t o, int64_t low, int64_t high) {
  const int64_t d = w->dilation[axis], start = o * w->stride[axis] - w->before[axis];
  smelt_span s = {start, 0, w->kernel[axis]};
  if (start < low) s.lo = smelt_min((low - start + d - 1) / d, s.hi);
  if (start + (s.hi - 1) * d >= high) s.hi = smelt_max(start >= high ? 0 : (high - start + d - 1) / d, s.lo);
  return s;
}

#endif
