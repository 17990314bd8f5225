/* Windows of windows as one launch: band by band, what lies between two of them stays in L2 and is never written out; or strip
 * by strip, what lies between two of them is read by the thread that wrote it.
 *
 * Input:     two or three kernels of windows, each of which reads what the one before it makes, and nobody else does.
 * Output:    smelt_launch_bands(), smelt_launch_strips(). Invariant: a task makes some lines of the last result, and of the others the lines that
 *            these need; lines at the borders of bands are made by two tasks, with the same bits. A kernel finds a line
 *            where it would lie in the whole image: the pointers that it is given are shifted to that effect. A strip is a
 *            range of channels of whole images, which the second kernel takes channel by channel: nothing is made twice.
 */
#ifndef SMELT_BANDS_H
#define SMELT_BANDS_H

#include <smelt/window.h>

enum {
  SMELT_MOST_STAGES = 3,
  SMELT_MOST_STAGE_BUFFERS = 16,
  SMELT_BAND_BYTES = 640 * 1024, /* of lines between the kernels of one task */
  SMELT_LEAST_BANDS = 6,         /* of one image, for threads to share */
  SMELT_LEAST_STRIPS = 6         /* the same */
};

typedef struct {
  smelt_task *task;
  smelt_body body;
  int32_t buffers, from, to;         /* their number; the place of the image, and of the result that is kept (last: unused) */
  int64_t in_lines, lines, line;     /* lines of the image and of the result, windows in one of these */
  int64_t line_bytes;                /* of the result */
  int64_t stride, before, extent;     /* down the image; a window reaches over so many lines */
  int64_t columns, unit, depth, taps;
  int form, whole_rows;
} smelt_stage;

typedef struct {
  smelt_task task; /* first: a body gets a pointer to it */
  smelt_stage *stages;
  int64_t count, bands, high; /* stages, bands or strips of an image, most lines of a band */
  int64_t kept[SMELT_MOST_STAGES]; /* bytes of a task, of what each stage but the last makes */
} smelt_bands;

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
  smelt_task t = *s->task;
  t.b = b, t.start = (n * s->lines + r.lo) * s->line, t.step = (r.hi - r.lo) * s->line;
  t.part = smelt_min(t.part, smelt_max(t.step, 1));
  s->body(&t, 0);
}

/* Where line 0 of image 0 would lie if line r.lo of image n lay at `at`. */
SMELT_INLINE void *smelt_shifted(char *at, int64_t lines, int64_t n, smelt_lines_of r, int64_t line_bytes) {
  return (void *)((uintptr_t)at - (uintptr_t)((n * lines + r.lo) * line_bytes));
}

static __attribute__((unused)) void smelt_band(void *p, int64_t index) {
  const smelt_bands *b = p;
  const int64_t n = index / b->bands, band = index % b->bands, last = b->count - 1, lines = b->stages[last].lines;
  smelt_lines_of r[SMELT_MOST_STAGES];
  r[last] = (smelt_lines_of){band * lines / b->bands, (band + 1) * lines / b->bands}; /* cut evenly */
  for (int64_t i = last; i > 0; i--) r[i - 1] = smelt_stage_needs(&b->stages[i], r[i]);
  char *local = smelt_claim(&b->task), *at = local;
  void *from = NULL;
  for (int64_t i = 0; i <= last; at += b->kept[i], i++) {
    const smelt_stage *s = &b->stages[i];
    void *to = i == last ? NULL : smelt_shifted(SMELT_FENCED(at, b->kept[i]), s->lines, n, r[i], s->line_bytes);
    if (r[i].hi > r[i].lo) smelt_stage_run(s, n, r[i], from, to);
    from = to;
  }
  smelt_release(&b->task, local);
}

/* Bytes that a task keeps for `high` lines of the last result. */
static inline __attribute__((unused)) int64_t smelt_band_bytes(smelt_bands *b, int64_t high) {
  int64_t total = 0, lines = high;
  for (int64_t i = b->count - 1; i > 0; i--) {
    const smelt_stage *s = &b->stages[i];
    lines = smelt_min((lines - 1) * s->stride + s->extent, s->in_lines);
    b->kept[i - 1] = (lines * b->stages[i - 1].line_bytes + 63) & ~(int64_t)63;
    total += b->kept[i - 1];
  }
  return total;
}

/* `images` images through `count` stages. */
static inline __attribute__((unused)) int32_t smelt_launch_bands(smelt_stage *stages, int64_t count, int64_t images) {
  smelt_bands b = {.task = *stages[0].task, .stages = stages, .count = count};
  const int64_t lines = stages[count - 1].lines;
  if (images <= 0 || lines <= 0) return SMELT_OK;
  b.high = (lines + SMELT_LEAST_BANDS - 1) / SMELT_LEAST_BANDS;
  while (b.high > 1 && smelt_band_bytes(&b, b.high) > SMELT_BAND_BYTES) b.high--;
  b.bands = (lines + b.high - 1) / b.high;
  b.high = (lines + b.bands - 1) / b.bands;
  const int64_t bytes = smelt_band_bytes(&b, b.high), tasks = images * b.bands;
  for (int64_t i = 0; i < count; i++) {
    smelt_stage *s = &stages[i];
    s->task->rows = NULL, s->task->units = 1;
    s->task->row_bytes = (s->columns + s->unit - 1) / s->unit;
    s->task->step = s->lines * s->line;
    smelt_window_parts(s->task, s->line, s->unit, s->depth, s->taps, s->form, s->whole_rows);
  }
  if (smelt_reserve(&b.task, tasks, bytes)) return b.task.env->code;
  return smelt_run_now(&b.task, smelt_band, tasks);
}

static __attribute__((unused)) void smelt_strip(void *p, int64_t index) {
  const smelt_bands *b = p;
  for (int64_t i = 0; i < b->count; i++) {
    const smelt_stage *s = &b->stages[i];
    smelt_task t = *s->task;
    t.start = index / b->bands * s->lines * s->line;
    s->body(&t, index % b->bands);
  }
}

/* Units of a strip: as many as the widest tiles take, and as leave enough strips. */
SMELT_INLINE int64_t smelt_strip_units(int64_t units) {
  int64_t wide = 6;
  while (wide > 2 && (units + wide - 1) / wide < SMELT_LEAST_STRIPS) wide -= 2;
  return wide;
}

/* `images` images through `count` stages that have the same columns, in units of the same size. */
static inline __attribute__((unused)) int32_t smelt_launch_strips(smelt_stage *stages, int64_t count, int64_t images) {
  smelt_bands b = {.task = *stages[0].task, .stages = stages, .count = count};
  const int64_t units = (stages[0].columns + stages[0].unit - 1) / stages[0].unit, wide = smelt_strip_units(units);
  if (images <= 0) return SMELT_OK;
  b.bands = (units + wide - 1) / wide;
  for (int64_t i = 0; i < count; i++) {
    smelt_stage *s = &stages[i];
    s->task->rows = NULL, s->task->units = 1, s->task->row_bytes = wide;
    s->task->step = s->lines * s->line;
    smelt_window_parts(s->task, s->line, s->unit, s->depth, s->taps, s->form, s->whole_rows);
  }
  return smelt_run_now(&b.task, smelt_strip, images * b.bands);
}

#endif
