/* Tile fusion of convolutions as one launch. Spatial tiles: the image between two kernels stays in L2 and is never written out.
 * Channel tiles: it is read by the thread that wrote it.
 *
 * Input:     two or three kernels of windows, each of which reads what the one before it makes, and nobody else does.
 * Output:    smelt_launch_spatial_tiles(), smelt_launch_channel_tiles(). Invariant: a task makes some lines of the last result,
 *            and of the others the lines that these need; lines at the borders of tiles are made by two tasks, with the same
 *            bits. A kernel finds a line where it would lie in the whole image: the pointers that it is given are shifted to
 *            that effect. A channel tile is a range of channels of whole images, which the second kernel takes channel by
 *            channel: nothing is made twice.
 */
#ifndef SMELT_TILE_FUSION_H
#define SMELT_TILE_FUSION_H

#include <smelt/conv/window.h>

enum {
  SMELT_MOST_STAGES = 3,
  SMELT_MOST_STAGE_BUFFERS = 16
};
#define SMELT_SPATIAL_TILE_BYTES smelt_sizes.tile_bytes
#define SMELT_LEAST_SPATIAL_TILES 6 /* of an image; see smelt_even_tiles() for more than two threads */
#define SMELT_LEAST_CHANNEL_TILES smelt_sizes.least_tiles

typedef struct {
  smelt_window_task *task;
  smelt_body body;
  int32_t buffers, from, to;         /* their number; the place of the image, and of the result that is kept (last: unused) */
  int64_t in_lines, lines, line;     /* lines of the image and of the result, windows in one of these */
  int64_t line_bytes;                /* of the result */
  int64_t stride, before, extent;     /* down the image; a window reaches over so many lines */
  int64_t columns, unit, depth, taps;
  int form, whole_rows;
} smelt_stage;

typedef struct {
  smelt_head head; /* first: a body gets a pointer to it */
  smelt_stage *stages;
  int64_t count, tiles, high; /* stages, tiles of an image, most lines of a tile */
  int64_t kept[SMELT_MOST_STAGES]; /* bytes of a task, of what each stage but the last makes */
} smelt_tile_fusion;

typedef struct {
  int64_t lo, hi;
} smelt_lines_of;

/* Lines of the image that lines r of the result see. */
SMELT_INLINE smelt_lines_of smelt_stage_needs(const smelt_stage *s, smelt_lines_of r) {
  smelt_lines_of n = {smelt_max(r.lo * s->stride - s->before, 0),
                      smelt_min((r.hi - 1) * s->stride - s->before + s->extent, s->in_lines)};
  n.lo = smelt_min(n.lo, s->in_lines);
  if (n.hi < n.lo || r.hi <= r.lo) n.hi = n.lo;
  return n;
}

/* Runs one stage on its lines r of image n; `kept` are the lines of the stage before it and its own. */
static __attribute__((unused)) void smelt_stage_run(const smelt_stage *s, int64_t n, smelt_lines_of r, void *from, void *to) {
  void *b[SMELT_MOST_STAGE_BUFFERS];
  for (int32_t i = 0; i < s->buffers; i++) b[i] = s->task->b[i];
  if (from) b[s->from] = from;
  if (to) b[s->to] = to;
  smelt_window_task t = *s->task;
  t.b = b, t.start = (n * s->lines + r.lo) * s->line, t.block_rows = (r.hi - r.lo) * s->line;
  t.part_rows = smelt_min(t.part_rows, smelt_max(t.block_rows, 1));
  s->body(&t, 0);
}

/* Where line 0 of image 0 would lie if line r.lo of image n lay at `at`. */
SMELT_INLINE void *smelt_shifted(char *at, int64_t lines, int64_t n, smelt_lines_of r, int64_t line_bytes) {
  return (void *)((uintptr_t)at - (uintptr_t)((n * lines + r.lo) * line_bytes));
}

static __attribute__((unused)) void smelt_spatial_tile(void *p, int64_t index) {
  const smelt_tile_fusion *b = p;
  const int64_t n = index / b->tiles, tile = index % b->tiles, last = b->count - 1, lines = b->stages[last].lines;
  smelt_lines_of r[SMELT_MOST_STAGES];
  r[last] = (smelt_lines_of){tile * lines / b->tiles, (tile + 1) * lines / b->tiles}; /* cut evenly */
  for (int64_t i = last; i > 0; i--) r[i - 1] = smelt_stage_needs(&b->stages[i], r[i]);
  char *local = smelt_claim(b), *at = local;
  void *from = NULL;
  for (int64_t i = 0; i <= last; at += b->kept[i], i++) {
    const smelt_stage *s = &b->stages[i];
    void *to = i == last ? NULL : smelt_shifted(SMELT_FENCED(at, b->kept[i]), s->lines, n, r[i], s->line_bytes);
    if (r[i].hi > r[i].lo) smelt_stage_run(s, n, r[i], from, to);
    from = to;
  }
  smelt_release(b, local);
}

/* Bytes that a task keeps for `high` lines of the last result. */
static inline __attribute__((unused)) int64_t smelt_spatial_tile_bytes(smelt_tile_fusion *b, int64_t high) {
  int64_t total = 0, lines = high;
  for (int64_t i = b->count - 1; i > 0; i--) {
    const smelt_stage *s = &b->stages[i];
    lines = smelt_min((lines - 1) * s->stride + s->extent, s->in_lines);
    b->kept[i - 1] = (lines * b->stages[i - 1].line_bytes + 63) & ~(int64_t)63;
    total += b->kept[i - 1];
  }
  return total;
}

/* Work of a tile of `high` lines of the last result, in multiply-adds. */
static inline __attribute__((unused)) double smelt_spatial_tile_cost(const smelt_tile_fusion *b, int64_t high) {
  double total = 0;
  int64_t lines = high;
  for (int64_t i = b->count - 1; i >= 0; i--) {
    const smelt_stage *s = &b->stages[i];
    total += (double)(lines * s->line) * (double)(s->columns * smelt_max(s->depth, 1));
    lines = smelt_min((lines - 1) * s->stride + s->extent, s->in_lines);
  }
  return total + SMELT_START;
}

/* Lines of a tile, at most `high`: what takes least time with more than two threads. */
static inline __attribute__((unused)) int64_t smelt_even_tiles(const smelt_tile_fusion *b, int64_t images, int64_t lines, int64_t high) {
  const int64_t threads = b->head.env->processors;
  int64_t best = high;
  double time = 0;
  for (int64_t tried = high; threads > 2 && tried > 0; tried--) {
    const int64_t tasks = images * smelt_ceil_div(lines, tried);
    const double found = (double)smelt_ceil_div(tasks, threads) * smelt_spatial_tile_cost(b, tried);
    if (tried == high || found < 0.97 * time) best = tried, time = found;
    if (tasks > 4 * threads) break;
  }
  return best;
}

/* `images` images through `count` stages. */
static inline __attribute__((unused)) int32_t smelt_launch_spatial_tiles(smelt_stage *stages, int64_t count, int64_t images) {
  smelt_tile_fusion b = {.head = stages[0].task->head, .stages = stages, .count = count};
  const int64_t lines = stages[count - 1].lines;
  if (images <= 0 || lines <= 0) return SMELT_OK;
  b.high = (lines + SMELT_LEAST_SPATIAL_TILES - 1) / SMELT_LEAST_SPATIAL_TILES;
  while (b.high > 1 && smelt_spatial_tile_bytes(&b, b.high) > SMELT_SPATIAL_TILE_BYTES) b.high--;
  b.high = smelt_even_tiles(&b, images, lines, b.high);
  b.tiles = (lines + b.high - 1) / b.high;
  b.high = (lines + b.tiles - 1) / b.tiles;
  const int64_t bytes = smelt_spatial_tile_bytes(&b, b.high), tasks = images * b.tiles;
  for (int64_t i = 0; i < count; i++) {
    smelt_stage *s = &stages[i];
    s->task->memory = NULL, s->task->row_blocks = 1;
    s->task->block_wide = (s->columns + s->unit - 1) / s->unit;
    s->task->block_rows = s->lines * s->line;
    smelt_window_parts(s->task, s->line, s->unit, s->depth, s->taps, s->form, s->whole_rows);
  }
  if (smelt_reserve(&b, tasks, bytes)) return b.head.env->code;
  return smelt_run_now(&b, smelt_spatial_tile, tasks);
}

static __attribute__((unused)) void smelt_channel_tile(void *p, int64_t index) {
  const smelt_tile_fusion *b = p;
  for (int64_t i = 0; i < b->count; i++) {
    const smelt_stage *s = &b->stages[i];
    smelt_window_task t = *s->task;
    t.start = index / b->tiles * s->lines * s->line;
    s->body(&t, index % b->tiles);
  }
}

/* Units of a channel tile: as many as the widest micro-tiles take, and as leave enough of them. */
SMELT_INLINE int64_t smelt_channel_tile_units(int64_t units) {
  int64_t wide = 6;
  while (wide > 2 && (units + wide - 1) / wide < SMELT_LEAST_CHANNEL_TILES) wide -= 2;
  return wide;
}

/* `images` images through `count` stages that have the same columns, in units of the same size. */
static inline __attribute__((unused)) int32_t smelt_launch_channel_tiles(smelt_stage *stages, int64_t count, int64_t images) {
  smelt_tile_fusion b = {.head = stages[0].task->head, .stages = stages, .count = count};
  const int64_t units = (stages[0].columns + stages[0].unit - 1) / stages[0].unit, wide = smelt_channel_tile_units(units);
  if (images <= 0) return SMELT_OK;
  b.tiles = (units + wide - 1) / wide;
  for (int64_t i = 0; i < count; i++) {
    smelt_stage *s = &stages[i];
    s->task->memory = NULL, s->task->row_blocks = 1, s->task->block_wide = wide;
    s->task->block_rows = s->lines * s->line;
    smelt_window_parts(s->task, s->line, s->unit, s->depth, s->taps, s->form, s->whole_rows);
  }
  return smelt_run_now(&b, smelt_channel_tile, images * b.tiles);
}

#endif
