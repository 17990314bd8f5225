/* Window launches as a unit of its own: how convolutions and pools are cut into tasks.
 *
 * Input:     smelt_window_task, the sizes of a window. Output: smelt_launch_window(), smelt_launch_winograd(), smelt_launch_square() of
 *            the level it is compiled for.
 * Invariant: its text never depends on a model. A task owns a block of windows and some units of columns; it computes a part of them
 *            at a time.
 */
#ifndef SMELT_LAUNCH_WINDOW_UNIT_H
#define SMELT_LAUNCH_WINDOW_UNIT_H

#include <smelt/conv/window.h>

#define SMELT_WINDOW_TASKS smelt_sizes.window_tasks
#define SMELT_WINDOW_PANELS smelt_sizes.window_panels
#define SMELT_WINOGRAD_NEAR smelt_sizes.winograd_near
#define SMELT_WINOGRAD_TASKS smelt_sizes.winograd_tasks
enum {
  SMELT_WINDOW_GRAIN = 50000, /* multiply-adds below which a task costs more to hand out than it brings */
  SMELT_WINDOW_WIDE = 128,    /* columns below which im2col is not worth doing twice */
  SMELT_WINDOW_CUT = 84,      /* windows that a long line is cut into multiples of: whole tiles */
  SMELT_WINDOW_FEW = 4,       /* lines that are too few to be tasks */
  SMELT_WINOGRAD_FEW = 28,    /* tiles of a task where the weights stay in L2 */
  SMELT_WINOGRAD_MANY = 64,   /* and where they do not */
  SMELT_WINOGRAD_LEAST = 8    /* panels of a task that has not all */
};

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
int32_t smelt_launch_window(smelt_window_task *task, smelt_body body, int64_t rows, int64_t columns, int64_t unit, int64_t depth,
                            int64_t taps, int64_t line, int64_t extra, int form, int whole_rows) {
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
int32_t smelt_launch_winograd(smelt_window_task *task, smelt_body body, int64_t lines, int64_t height, int64_t line, int64_t
                              columns, int64_t channels, int64_t extra, int transformed, int whole_rows) {
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

/* Convolutions of 3 x 3 taps side by side with plain weights: by SMELT_WINOGRAD, or by SMELT_CONVOLVE where images are small.
 * `height` lines of `line` windows are one image's. */
int32_t smelt_launch_square(smelt_window_task *task, smelt_body body, int64_t rows, int64_t height, int64_t line, int64_t columns,
                            int64_t channels, int64_t extra, int whole_rows) {
  if (rows <= 0 || line <= 0) return SMELT_OK;
  task->winograd = height * line >= SMELT_WINOGRAD_PIXELS &&
                   smelt_min(channels, columns) >= SMELT_WINOGRAD_CHANNELS;
  if (task->winograd) return smelt_launch_winograd(task, body, rows / line, height, line, columns, channels, extra, 0, whole_rows);
  const int form = channels <= SMELT_LINES_DEPTH ? SMELT_BY_LINES : SMELT_BY_IM2COL;
  return smelt_launch_window(task, body, rows, columns, 16, 9 * channels, 9, line, extra, form, whole_rows);
}

#endif
