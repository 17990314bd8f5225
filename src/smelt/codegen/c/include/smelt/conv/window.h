/* Sliding windows over an NHWC image: their geometry, and how convolutions and pools are cut into tasks.
 *
 * Input:     smelt_window: sizes, strides, padding of three axes; smelt_task. Output: smelt_launch_window(), and the
 *            kernels as declared here: each fills a block of `count` windows from `first` on, columns c0..c1-1.
 * Invariant: windows are counted over (image, o0, o1, o2); a task owns t->step windows and t->row_bytes units of columns,
 *            t->units blocks of windows, and computes t->part windows and t->wide units at a time. Kernels are compiled
 *            apart, once per level (window_unit.h).
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
#define SMELT_DEPTHWISE_WIDE SMELT_NAME(smelt_depthwise_wide)
#define SMELT_POOL SMELT_NAME(smelt_pool)
#define SMELT_POOL_NCHW SMELT_NAME(smelt_pool_nchw)
#define SMELT_WINOGRAD SMELT_NAME(smelt_winograd_block)

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
/* Filters of five or seven taps along a line, or of SMELT_PATCH_TAPS taps and more; others are SMELT_DEPTHWISE's. */
void SMELT_DEPTHWISE_WIDE(const smelt_window *w, const float *image, const float *panels, int64_t first, int64_t count,
                       int64_t c0, int64_t c1, float *block, int64_t ld, const smelt_epilogue *epilogue);
/* SMELT_POOL_NCHW: images of one channel, lines first..first+count-1 of the result, of which columns c0..c1-1. */
void SMELT_POOL_NCHW(const smelt_window *w, const float *image, int kind, int64_t first, int64_t count, int64_t c0,
                       int64_t c1, float *block, int64_t ld);
void SMELT_POOL(const smelt_window *w, const float *image, int kind, int64_t first, int64_t count, int64_t c0, int64_t c1,
                float *block, int64_t ld);

#define SMELT_WINDOW_TASKS smelt_sizes.window_tasks
#define SMELT_WINDOW_PANELS smelt_sizes.window_panels
#define SMELT_WINDOW_PART smelt_sizes.window_part
#define SMELT_K_BLOCK_PANELS smelt_sizes.window_k_block
#define SMELT_WINOGRAD_NEAR smelt_sizes.winograd_near
#define SMELT_WINOGRAD_TASKS smelt_sizes.winograd_tasks
enum {
  SMELT_WINDOW_BLOCK = 20480,   /* floats of a block: it stays in L2, and on the stack */
  SMELT_WINDOW_GRAIN = 50000,   /* multiply-adds below which a task costs more to hand out than it brings */
  SMELT_WINDOW_WIDE = 128,      /* columns below which im2col is not worth doing twice */
  SMELT_WINDOW_ROWS = 56,       /* im2col rows at a time */
  SMELT_WINDOW_TILE = SMELT_VL == 64 ? 14 : 6, /* windows of a tile */
  SMELT_WINDOW_CUT = 84,        /* windows that a long line is cut into multiples of: whole tiles */
  SMELT_WINDOW_FEW = 4,         /* lines that are too few to be tasks */
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

/* Columns of one task, in units. All of them where their panels stay in L2: results are then written line by line. Else a
 * block is tall enough that panels are read as few times as the image, which costs one float where they cost `taps`. */
SMELT_INLINE int64_t smelt_window_units(int64_t rows, int64_t columns, int64_t unit, int64_t depth, int64_t taps,
                                        int whole_rows) {
  const int64_t units = (columns + unit - 1) / unit, blocks = (rows + SMELT_WINDOW_ROWS - 1) / SMELT_WINDOW_ROWS;
  if (whole_rows || (blocks >= smelt_sizes.window_blocks && (double)depth * (double)columns <= SMELT_WINDOW_PANELS)) return units;
  const int64_t least = blocks == 1 && taps == 1 && columns > SMELT_WINDOW_WIDE ? SMELT_WINDOW_WIDE / 2 : SMELT_WINDOW_WIDE;
  int64_t parts = smelt_min((smelt_sizes.window_blocks + blocks - 1) / blocks, smelt_max(columns / least, 1));
  if (blocks >= smelt_sizes.window_blocks) {
    int64_t tall = SMELT_WINDOW_ROWS;
    while (tall * tall < taps * SMELT_WINDOW_BLOCK && tall < rows) tall += SMELT_WINDOW_ROWS;
    parts = smelt_max(columns * tall / SMELT_WINDOW_BLOCK, 1);
  }
  const int64_t each = (units + parts - 1) / parts;
  return unit == 16 && each % 2 && each < units ? each + 1 : each;
}

/* Rows of one task: a multiple of what im2col takes at a time where there are enough; all of them where they are few and the
 * columns make enough tasks, a few of them for an even number of threads: panels come from afar then, and pass by once. */
SMELT_INLINE int64_t smelt_window_rows(int64_t rows, int64_t width, int64_t parts, double cost) {
  const int64_t most = smelt_max(SMELT_WINDOW_BLOCK / width, 1);
  const int64_t least = cost >= SMELT_WINDOW_GRAIN ? 1 : (int64_t)(SMELT_WINDOW_GRAIN / cost) + 1;
  const int64_t wanted = smelt_max(SMELT_WINDOW_TASKS / parts, 1);
  if (rows <= SMELT_WINDOW_ROWS && parts >= 4 && (parts % 2 == 0 || parts > 12) && rows <= most) return rows;
  int64_t step = smelt_max((rows + wanted - 1) / wanted, least);
  if (step < SMELT_WINDOW_ROWS && rows * cost < 64.0 * SMELT_WINDOW_GRAIN) step = smelt_max(step, 14);
  else if (step < SMELT_WINDOW_ROWS) step = smelt_max(step, 28);
  if (step > SMELT_WINDOW_ROWS) step = (step + SMELT_WINDOW_ROWS - 1) / SMELT_WINDOW_ROWS * SMELT_WINDOW_ROWS;
  if (step > most) step = most > SMELT_WINDOW_ROWS ? most / SMELT_WINDOW_ROWS * SMELT_WINDOW_ROWS : most;
  const int64_t tasks = (rows + step - 1) / step;
  return (rows + tasks - 1) / tasks;
}

/* Windows of one task where lines of them lie side by side: whole lines, so that no run is cut short; parts of long ones where
 * there are so few that threads would wait. */
SMELT_INLINE int64_t smelt_window_lines(int64_t rows, int64_t line, double cost) {
  const int64_t lines = (rows + line - 1) / line, least = (int64_t)(SMELT_WINDOW_GRAIN / (cost * (double)line)) + 1;
  if (lines < SMELT_WINDOW_FEW && line >= 4 * SMELT_WINDOW_CUT) {
    const int64_t some = smelt_max((2 * rows + SMELT_WINDOW_TASKS - 1) / SMELT_WINDOW_TASKS, (int64_t)(SMELT_WINDOW_GRAIN / cost) + 1);
    return smelt_min((some + SMELT_WINDOW_CUT - 1) / SMELT_WINDOW_CUT * SMELT_WINDOW_CUT, rows);
  }
  const int64_t step = smelt_max((lines + SMELT_WINDOW_TASKS - 1) / SMELT_WINDOW_TASKS, least);
  const int64_t tasks = (lines + step - 1) / step;
  return (lines + tasks - 1) / tasks * line;
}

/* Windows of one task where its only unit shares nothing with others: as many lines as possible, since each task reads the unit's
 * weights, and lines between two tasks are copied twice. */
SMELT_INLINE int64_t smelt_window_apart(int64_t rows, int64_t line, int64_t units, double cost) {
  const int64_t lines = (rows + line - 1) / line, least = (int64_t)(SMELT_WINDOW_GRAIN / (cost * (double)line)) + 1;
  const int64_t step = smelt_max(lines / smelt_max(SMELT_WINDOW_TASKS / units, 1), least);
  const int64_t tasks = (lines + step - 1) / step;
  return (lines + tasks - 1) / tasks * line;
}

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

/* A finer cut for more than two threads. Lines that lie side by side stay whole; windows are gathered again for each part of the
 * columns. */
SMELT_INLINE void smelt_window_evenly(smelt_window_task *task, int64_t rows, int64_t line, int64_t units, int64_t unit, int64_t depth,
                                      int form, int whole_rows) {
  if (task->env->processors <= 2) return;
  const int lines = form != SMELT_BY_PIXELS && form != SMELT_BY_IM2COL && task->block_rows % line == 0;
  const int64_t row = lines ? line : 1, least = whole_rows ? units : smelt_min(units, unit == 16 ? 2 : 1);
  const int products = form != SMELT_BY_CHANNELS;
  const smelt_overheads o = {products ? smelt_max(SMELT_GEMM_TILE_ROWS / row, 1) : 1,
                             form == SMELT_BY_IM2COL || form == SMELT_BY_LINES ? 0.4 : 0,
                             products ? smelt_max(2 * SMELT_GEMM_FETCH / row, 1) : 0,
                             SMELT_START / (double)(unit * smelt_max(depth, 1) * row)};
  const smelt_extent all = {(rows + row - 1) / row, units}, one = {task->block_rows / row, task->block_wide};
  const smelt_extent cut = smelt_cut_evenly(all, one, (smelt_extent){lines ? 1 : SMELT_GEMM_TILE_ROWS, least}, o, task->env->processors);
  task->block_rows = cut.rows * row, task->block_wide = cut.units;
}

/* `rows` windows, lines of `line`, of `columns` results, which take `depth` multiply-adds each, over `taps` pixels; columns
 * are cut in units. */
static inline __attribute__((unused)) int32_t smelt_launch_window(smelt_window_task *task, smelt_body body, int64_t rows,
                                                                 int64_t columns, int64_t unit, int64_t depth, int64_t taps,
                                                                 int64_t line, int64_t extra, int form, int whole_rows) {
  if (rows <= 0 || columns <= 0) return SMELT_OK;
  smelt_env *env = task->env;
  const int apart = form == SMELT_BY_GROUPS && !whole_rows;
  task->block_wide = apart ? 1 : smelt_window_units(rows, columns, unit, depth, taps, whole_rows);
  const int64_t width = task->block_wide * unit, all = (columns + unit - 1) / unit;
  int64_t parts = (all + task->block_wide - 1) / task->block_wide;
  const double cost = (double)width * (double)smelt_max(depth, 1);
  task->block_rows = apart ? smelt_window_apart(rows, line, all, cost)
                     : form == SMELT_BY_PIXELS || form == SMELT_BY_IM2COL ? smelt_window_rows(rows, width, parts, cost)
                                                                          : smelt_window_lines(rows, line, cost);
  smelt_window_evenly(task, rows, line, all, unit, depth, form, whole_rows);
  parts = (all + task->block_wide - 1) / task->block_wide;
  task->row_blocks = (rows + task->block_rows - 1) / task->block_rows;
  smelt_window_parts(task, line, unit, depth, taps, form, whole_rows);
  const int64_t tasks = task->row_blocks * parts;
  const int64_t slot = SMELT_SLOT(task->part_rows, (task->part_wide * unit + 15) / 16, extra);
  task->memory = NULL;
  if (slot > 2 * SMELT_STACK_ROW && smelt_reserve(task, tasks, slot)) return env->code;
  return smelt_run(task, body, tasks);
}

/* Plain weights are transformed in blocks of so many channels and panels: a block, its rows and its sums stay in L2. */
enum {
  SMELT_WINOGRAD_DEPTH = 64,
  SMELT_WINOGRAD_PANELS = 4,
  SMELT_WINOGRAD_FEW = 28,      /* tiles of a task where they do */
  SMELT_WINOGRAD_MANY = 64,     /* and where they do not */
  SMELT_WINOGRAD_LEAST = 8      /* panels of a task that has not all */
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

/* Lines of results that a task of SMELT_WINOGRAD takes, an even number: few where the weights stay in L2, else so many that
 * they are not read too often; about the same number in every task. */
SMELT_INLINE int64_t smelt_winograd_lines_of(int64_t lines, int64_t across, int64_t weights) {
  const int64_t wanted = weights <= SMELT_WINOGRAD_NEAR ? SMELT_WINOGRAD_FEW : SMELT_WINOGRAD_MANY;
  const int64_t pairs = (lines + 1) / 2, high = smelt_min((wanted + across - 1) / across, pairs);
  const int64_t tasks = (pairs + high - 1) / high;
  return (pairs + tasks - 1) / tasks * 2;
}

/* Parts that the panels are shared in: each costs the patches again, so they are wide, but all tasks together are to be enough
 * for some threads, and an even number. */
SMELT_INLINE int64_t smelt_winograd_parts(int64_t panels, int64_t units) {
  const int64_t enough = smelt_min((SMELT_WINOGRAD_TASKS + units - 1) / units, smelt_max(panels / SMELT_WINOGRAD_LEAST, 1));
  const int64_t parts = smelt_max((panels + 2 * SMELT_WINOGRAD_LEAST - 1) / (2 * SMELT_WINOGRAD_LEAST), enough);
  return parts > 1 && parts * units % 2 ? parts - 1 : parts;
}

/* Pairs of lines and panels of a task for more than two threads. Patches are transformed again for each part of the panels, which
 * costs about as much as a panel; so do weights for each block of lines, which come from L3 or from memory and may have to be
 * transformed. */
SMELT_INLINE smelt_extent smelt_winograd_evenly(int64_t pairs, int64_t across, int64_t panels, smelt_extent one, int64_t channels,
                                                int whole_rows, int64_t threads) {
  if (threads <= 2) return one;
  const smelt_overheads o = {smelt_max(SMELT_GEMM_TILE_ROWS / across, 1), 0.7, smelt_max(4 * SMELT_GEMM_FETCH / across, 1),
                             SMELT_START / (double)(SMELT_WINOGRAD_TERMS * 16 * channels * across)};
  const smelt_extent least = {1, whole_rows ? panels : 1};
  return smelt_cut_evenly((smelt_extent){pairs, panels}, one, least, o, threads);
}

/* Convolutions by SMELT_WINOGRAD: `lines` lines of `line` windows, `height` of them an image's, `columns` results of `channels`
 * each, with weights that are `transformed` ahead of time or not. A task begins at an even line of all, which may be an odd one
 * of its image where `height` is odd: then it has a pair of lines more. */
static inline __attribute__((unused)) int32_t smelt_launch_winograd(smelt_window_task *task, smelt_body body, int64_t lines,
                                                                   int64_t height, int64_t line, int64_t columns,
                                                                   int64_t channels, int64_t extra, int transformed,
                                                                   int whole_rows) {
  if (lines <= 0 || line <= 0 || columns <= 0) return SMELT_OK;
  smelt_env *env = task->env;
  const int64_t panels = (columns + 15) / 16, weights = SMELT_WINOGRAD_TERMS * channels * columns;
  const int64_t across = SMELT_WINOGRAD_ACROSS(line), tall = smelt_winograd_lines_of(lines, across, weights);
  const int64_t units = (lines + tall - 1) / tall;
  const int64_t parts = whole_rows || weights <= SMELT_WINOGRAD_NEAR ? 1 : smelt_winograd_parts(panels, units);
  const smelt_extent one = {tall / 2, (panels + parts - 1) / parts};
  const smelt_extent cut = smelt_winograd_evenly((lines + 1) / 2, across, panels, one, channels, whole_rows, env->processors);
  const int64_t high = 2 * cut.rows;
  task->row_blocks = (lines + high - 1) / high;
  task->block_wide = cut.units;
  task->block_rows = high * line;
  task->part_rows = task->block_rows, task->part_wide = task->block_wide;
  const int64_t tasks = task->row_blocks * ((panels + task->block_wide - 1) / task->block_wide);
  const int64_t slot = SMELT_SLOT(task->block_rows, task->block_wide, extra) +
                       4 * smelt_winograd_floats((high / 2 + height % 2) * across, channels, task->block_wide * 16, transformed);
  if (smelt_reserve(task, tasks, (slot + 63) & ~(int64_t)63)) return env->code;
  return smelt_run(task, body, tasks);
}

/* Pixels of a result, and channels on either side, from which on Winograd's form wins. */
enum { SMELT_WINOGRAD_PIXELS = 144, SMELT_WINOGRAD_CHANNELS = 16 };

/* Convolutions of 3 x 3 taps side by side with plain weights: by SMELT_WINOGRAD, or by SMELT_CONVOLVE where images are small.
 * `height` lines of `line` windows are one image's. */
static inline __attribute__((unused)) int32_t smelt_launch_square(smelt_window_task *task, smelt_body body, int64_t rows,
                                                                 int64_t height, int64_t line, int64_t columns,
                                                                 int64_t channels, int64_t extra, int whole_rows) {
  if (rows <= 0 || line <= 0) return SMELT_OK;
  task->winograd = height * line >= SMELT_WINOGRAD_PIXELS &&
                   smelt_min(channels, columns) >= SMELT_WINOGRAD_CHANNELS;
  if (task->winograd) return smelt_launch_winograd(task, body, rows / line, height, line, columns, channels, extra, 0, whole_rows);
  const int form = channels <= SMELT_LINES_DEPTH ? SMELT_BY_LINES : SMELT_BY_IM2COL;
  return smelt_launch_window(task, body, rows, columns, 16, 9 * channels, 9, line, extra, form, whole_rows);
}

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
