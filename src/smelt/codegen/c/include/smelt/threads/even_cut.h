/* Work for many threads: how rows and columns are cut so that none waits long for the others.
 *
 * Input:     a cut that suits the caches (rows and units of columns of one task), and the number of threads. Output:
 *            smelt_cut_evenly(): the same cut or a finer one.
 * Invariant: up to two threads keep the cut that they have; tasks only become smaller, so that what fits a cache still does.
 */
#ifndef SMELT_EVEN_CUT_H
#define SMELT_EVEN_CUT_H

#include <smelt/threads/loop.h>

/* Rows and units of columns: of all work, of one task, or of what makes a task worth starting. */
typedef struct {
  int64_t rows, units;
} smelt_extent;

/* What a row and a unit cost beside their product. */
typedef struct {
  int64_t tile;   /* rows that a micro-kernel takes at a time */
  double gather;  /* of a row, in units of columns: what each task does again for its rows */
  int64_t fetch;  /* of a unit, in rows: panels that come from afar */
  double start;   /* of a task, in units of rows: it has to be handed out */
} smelt_overheads;

/* Multiply-adds that could be done while a task is handed out. */
#define SMELT_START 16000.0

/* Tasks that are enough for any number of threads to share without much waiting at the end. */
enum { SMELT_ROUNDS = 8 };

SMELT_INLINE int64_t smelt_ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

/* Turns that each thread takes, times the cost of a task. Half of what a tile of rows lacks is lost. */
SMELT_INLINE double smelt_cut_time(smelt_extent all, smelt_extent task, smelt_overheads o, int64_t threads) {
  const int64_t tasks = smelt_ceil_div(all.rows, task.rows) * smelt_ceil_div(all.units, task.units);
  const int64_t tiles = smelt_ceil_div(task.rows, o.tile) * o.tile, turns = smelt_ceil_div(tasks, threads);
  const double product = (double)(task.rows + tiles) / 2 * ((double)task.units + o.gather);
  return (double)turns * (product + (double)(o.fetch * task.units) + o.start);
}

/* The cut of least time among finer ones: rows in equal blocks, columns halved. */
static __attribute__((unused)) smelt_extent smelt_cut_evenly(smelt_extent all, smelt_extent task, smelt_extent least, smelt_overheads o,
                                                            int64_t threads) {
  const int64_t most = 4 * threads;
  smelt_extent best = task;
  if (threads <= 2 || smelt_ceil_div(all.rows, task.rows) * smelt_ceil_div(all.units, task.units) >= SMELT_ROUNDS * threads) return task;
  double time = smelt_cut_time(all, task, o, threads);
  for (int64_t parts = smelt_ceil_div(all.units, task.units); parts <= most; parts *= 2) {
    const int64_t units = smelt_min(task.units, smelt_ceil_div(smelt_ceil_div(all.units, parts), least.units) * least.units);
    for (int64_t blocks = smelt_ceil_div(all.rows, task.rows); blocks * parts <= most; blocks++) {
      const int64_t even = smelt_ceil_div(all.rows, blocks);
      const smelt_extent tried = {even, units};
      const double found = smelt_cut_time(all, tried, o, threads);
      if (even < least.rows) break;
      if (found < 0.97 * time) best = tried, time = found;
    }
    if (units <= least.units) break;
  }
  return best;
}

#endif
