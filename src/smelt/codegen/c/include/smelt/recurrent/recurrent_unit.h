/* A recurrent layer (ONNX's RNN, GRU, LSTM), as a unit of its own.
 *
 * Input:     smelt_task: b = inputs, their weights, recurrent weights, bias, lengths, initial h, initial c, peepholes, Y, Y_h, Y_c,
 *            scratch; s and f as the enums below count them. Output: smelt_recurrent() for the level it is compiled for.
 * Invariant: results do not depend on threads. Directions and blocks of rows never wait for each other. Where there are too few of
 *            them, workers share the units of a step: each takes units that nobody has taken and waits only for units that
 *            another worker is computing, so one worker alone is enough.
 */
#ifndef SMELT_RECURRENT_UNIT_H
#define SMELT_RECURRENT_UNIT_H

#define SMELT_TILES_LINKED
#include <smelt/recurrent/recurrent_cell.h>

#ifdef __linux__
int sched_yield(void);
#endif

enum { SMELT_RB_X, SMELT_RB_W, SMELT_RB_R, SMELT_RB_BIAS, SMELT_RB_LENGTHS, SMELT_RB_H, SMELT_RB_C, SMELT_RB_PEEPHOLE, SMELT_RB_Y,
       SMELT_RB_Y_H, SMELT_RB_Y_C, SMELT_RB_SCRATCH };
enum { SMELT_RS_KIND, SMELT_RS_STEPS, SMELT_RS_ROWS, SMELT_RS_HIDDEN, SMELT_RS_DIRECTIONS, SMELT_RS_REVERSE, SMELT_RS_MODIFIED,
       SMELT_RS_PACKED, SMELT_RS_BATCH_FIRST, SMELT_RS_WIDTH, SMELT_RS_INPUTS_PACKED, SMELT_RS_ACTIVATIONS };
enum { SMELT_RF_CLIP, SMELT_RF_FACTORS };

enum {
  SMELT_CELL_WORKERS = 8,       /* that share a step at most */
  SMELT_CELL_ALONE = 60000,     /* multiply-adds of a whole call that are not worth waking a thread for */
  SMELT_CELL_SHARE = 100000,    /* those of a step that are worth one worker more: one that has lost its core holds up all */
  SMELT_CELL_LEAD = 1000000,    /* those of steps after which it is known whether another thread helps */
  SMELT_CELL_BLOCK_ROWS = 4,    /* rows that a task takes at least */
  SMELT_CELL_PATIENCE = 2000,   /* pauses of a worker that waits before it offers its processor to others */
  SMELT_CELL_LINE = 64
};

/* What workers that share steps agree on: each on a cache line of its own. */
typedef struct {
  int64_t done __attribute__((aligned(SMELT_CELL_LINE)));
  struct { int64_t phase __attribute__((aligned(SMELT_CELL_LINE))); } taken[SMELT_CELL_WORKERS];
} smelt_cell_share;

typedef struct {
  smelt_cell cell[2];
  int64_t directions, blocks, workers;
  int64_t from, to; /* steps */
  smelt_cell_share *share; /* one of each direction and block, where there is more than one worker */
} smelt_layer;

/* The worker that is waited for may have lost its processor to the one that waits. */
static inline void smelt_cell_pause(int64_t pauses) {
#if defined(__linux__)
  if (pauses % SMELT_CELL_PATIENCE == SMELT_CELL_PATIENCE - 1) sched_yield();
#endif
  (void)pauses;
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

SMELT_FN int64_t smelt_cell_edge(const smelt_cell *cell, int64_t worker, int64_t workers) {
  const int64_t pair = 2 * SMELT_CELL_PANEL, pairs = (cell->hidden + pair - 1) / pair;
  return smelt_min(worker * pairs / workers * 2, cell->padded / SMELT_CELL_PANEL);
}

/* Phase `p` of a part, counted from its first step: some blocks of units. */
static void smelt_cell_phase(const smelt_cell *cell, const smelt_cell_part *part, int64_t p, int64_t b0, int64_t b1) {
  const int64_t phases = smelt_cell_phases(cell), step = part->from + p / phases;
  const int phase = (int)(p % phases);
  if (smelt_span_begins(cell, part, step, phase))
    smelt_cell_fill(cell, part, step, smelt_min(step + cell->span, part->to), b0, b1 - b0);
  smelt_cell_step(cell, part, step, phase, b0, b1);
}

/* All steps of a block of rows, on this thread alone. */
static void smelt_cell_alone(const smelt_cell *cell, const smelt_cell_part *part) {
  const int64_t phases = smelt_cell_phases(cell), blocks = cell->padded / SMELT_CELL_PANEL;
  for (int64_t p = 0; p < (part->to - part->from) * phases; p++) smelt_cell_phase(cell, part, p, 0, blocks);
}

static void smelt_cell_shared(const smelt_cell *cell, const smelt_cell_part *rows, smelt_cell_share *share, int64_t worker,
                              int64_t workers) {
  const int64_t phases = (rows->to - rows->from) * smelt_cell_phases(cell);
  for (int64_t p = __atomic_load_n(&share->done, __ATOMIC_ACQUIRE) / workers; p < phases; p++) {
    for (int64_t i = 0; i < workers; i++) {
      const int64_t part = (worker + i) % workers;
      int64_t free = p;
      if (!__atomic_compare_exchange_n(&share->taken[part].phase, &free, p + 1, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) continue;
      smelt_cell_phase(cell, rows, p, smelt_cell_edge(cell, part, workers), smelt_cell_edge(cell, part + 1, workers));
      __atomic_fetch_add(&share->done, 1, __ATOMIC_RELEASE);
    }
    for (int64_t i = 0; __atomic_load_n(&share->done, __ATOMIC_ACQUIRE) < (p + 1) * workers; i++) smelt_cell_pause(i);
  }
}

/* Index = worker, then direction and block: the first workers of all come first. */
static void smelt_layer_body(void *ctx, int64_t index) {
  const smelt_layer *layer = (const smelt_layer *)ctx;
  const int64_t parts = layer->directions * layer->blocks, part = index % parts, worker = index / parts;
  const smelt_cell *cell = &layer->cell[part / layer->blocks];
  const int64_t block = part % layer->blocks;
  const smelt_cell_part rows = {block * cell->rows / layer->blocks, (block + 1) * cell->rows / layer->blocks, layer->from,
                                layer->to};
  if (layer->workers == 1) smelt_cell_alone(cell, &rows);
  else smelt_cell_shared(cell, &rows, &layer->share[part], worker, layer->workers);
}

/* The inputs' products of a share of the coming steps. */
static void smelt_layer_fill(void *ctx, int64_t index) {
  const smelt_layer *layer = (const smelt_layer *)ctx;
  const smelt_cell *cell = &layer->cell[0];
  const smelt_cell_part rows = {0, cell->rows, layer->from, layer->to};
  const int64_t steps = layer->to - layer->from, from = layer->from + index * steps / layer->workers;
  const int64_t to = layer->from + (index + 1) * steps / layer->workers;
  if (from < to) smelt_cell_fill(cell, &rows, from, to, 0, cell->padded / SMELT_CELL_PANEL);
}

/* Steps that are not worth sharing, while other threads have nothing to do: they share the products of the inputs. */
static void smelt_layer_ahead(smelt_env *env, smelt_layer *layer) {
  const smelt_cell *cell = &layer->cell[0];
  const int64_t blocks = cell->padded / SMELT_CELL_PANEL;
  layer->workers = smelt_min(env->processors, SMELT_CELL_WORKERS);
  for (layer->from = 0; layer->from < cell->steps; layer->from = layer->to) {
    layer->to = smelt_min(layer->from + cell->span, cell->steps);
    env->parallel(env, layer->workers, smelt_layer_fill, layer);
    const smelt_cell_part rows = {0, cell->rows, layer->from, layer->to};
    for (int64_t t = layer->from; t < layer->to; t++)
      for (int phase = 0; phase < smelt_cell_phases(cell); phase++) smelt_cell_step(cell, &rows, t, phase, 0, blocks);
  }
}

SMELT_FN double smelt_cell_work(const smelt_cell *cell, int64_t steps, int64_t depth) {
  return (double)steps * (double)cell->rows * (double)cell->hidden * (double)depth * cell->gates;
}

/* How many tasks: directions first, then rows where there are several and another thread has helped (one alone would read all
 * weights for each block of them), then units of each step, which one thread alone computes as if they were not shared. Gives 0
 * where that may change once a thread has helped. */
static int smelt_layer_cut(smelt_layer *layer, int64_t processors, int helped) {
  const smelt_cell *cell = &layer->cell[0];
  const int64_t each = (smelt_max(1, processors) + layer->directions - 1) / layer->directions;
  const double step = smelt_cell_work(cell, 1, cell->hidden);
  const int64_t shares = (int64_t)smelt_min((int64_t)(step / SMELT_CELL_SHARE), SMELT_CELL_WORKERS);
  const int64_t workers = smelt_min(smelt_min(each, shares), (cell->hidden + 31) / 32);
  layer->blocks = layer->workers = 1;
  if (each == 1) return 1;
  if (cell->rows >= SMELT_CELL_BLOCK_ROWS * each && helped) layer->blocks = each;
  else if (workers > 1) layer->workers = workers;
  else layer->blocks = smelt_min(each, cell->rows);
  return layer->workers == 1 || cell->rows < SMELT_CELL_BLOCK_ROWS * each;
}

static void smelt_layer_tasks(smelt_env *env, smelt_layer *layer, int alone) {
  const int64_t tasks = layer->directions * layer->blocks * layer->workers;
  __builtin_memset(layer->share, 0, sizeof *layer->share * (size_t)layer->directions); /* steps are shared where blocks are one */
  if (alone || tasks == 1)
    for (int64_t i = 0; i < tasks; i++) smelt_layer_body(layer, i);
  else
    env->parallel(env, tasks, smelt_layer_body, layer);
}

static int32_t smelt_layer_run(smelt_env *env, smelt_layer *layer) {
  const smelt_cell *cell = &layer->cell[0];
  const int alone = smelt_cell_work(cell, cell->steps, cell->hidden + cell->width) * (double)layer->directions < SMELT_CELL_ALONE;
  const int64_t processors = alone ? 1 : env->processors;
  int64_t lead = 1 + (int64_t)(SMELT_CELL_LEAD / smelt_cell_work(cell, 1, cell->hidden + cell->width));
  for (layer->from = 0; layer->from < cell->steps; layer->from = layer->to, lead *= 2) {
    const int decided = smelt_layer_cut(layer, processors, __atomic_load_n(&env->helpers, __ATOMIC_RELAXED) > 0);
    layer->to = decided ? cell->steps : smelt_min(layer->from + lead, cell->steps);
    const int idle = processors > layer->directions * layer->blocks * layer->workers && layer->directions == 1;
    if (idle && !smelt_cell_fused(cell) && smelt_cell_work(cell, cell->span, cell->width) >= 2.0 * SMELT_CELL_ALONE)
      smelt_layer_ahead(env, layer);
    else
      smelt_layer_tasks(env, layer, alone);
  }
  return env->code;
}

/* Takes memory from the scratch block. */
static float *smelt_cell_take(char **at, int64_t floats) {
  float *taken = (float *)*at;
  *at += (floats * 4 + SMELT_CELL_LINE - 1) / SMELT_CELL_LINE * SMELT_CELL_LINE;
  return taken;
}

/* Rows of `hidden` floats into rows of `padded`; zeros where there are none to copy. */
static void smelt_cell_pad(float *to, int64_t padded, const float *from, int64_t from_row, int64_t rows, int64_t hidden) {
  for (int64_t r = 0; r < rows; r++, to += padded) {
    __builtin_memset(to, 0, (size_t)padded * 4);
    if (from) __builtin_memcpy(to, from + r * from_row, (size_t)hidden * 4);
  }
}

/* Both biases of a gate in one, but for the last gate of a GRU that is linear before its reset. */
static void smelt_cell_bias(const smelt_cell *cell, const float *bias) {
  const int64_t H = cell->hidden, W = cell->gates * H;
  __builtin_memset(cell->bias, 0, (size_t)(SMELT_CELL_GATES * cell->padded) * 4);
  if (!bias) return;
  const int apart = cell->kind == SMELT_GRU && cell->modified;
  for (int64_t g = 0; g < cell->gates; g++)
    for (int64_t u = 0; u < H; u++) {
      const int last = apart && g == 2;
      cell->bias[g * cell->padded + u] = bias[g * H + u] + (last ? 0 : bias[W + g * H + u]);
      if (last) cell->bias[3 * cell->padded + u] = bias[W + g * H + u];
    }
}

/* Weights that come at run time (gates * hidden rows of K) into panels. */
static void smelt_cell_pack(const smelt_cell *cell, const float *weights, int64_t K, float *panels) {
  const int64_t H = cell->hidden;
  for (int64_t block = 0; block < cell->padded / SMELT_CELL_PANEL; block++)
    for (int64_t g = 0; g < cell->gates; g++)
      for (int64_t k = 0; k < K; k++)
        for (int64_t j = 0; j < SMELT_CELL_PANEL; j++) {
          const int64_t u = block * SMELT_CELL_PANEL + j;
          *panels++ = u < H ? weights[(g * H + u) * K + k] : 0;
        }
}

static void smelt_cell_activations(smelt_cell *cell, const smelt_task *task, int64_t direction) {
  const int64_t first = direction * SMELT_CELL_ACTIVATIONS;
  for (int64_t i = 0; i < SMELT_CELL_ACTIVATIONS; i++)
    cell->act[i] = (smelt_activation){task->s[SMELT_RS_ACTIVATIONS + first + i],
                                      (float)task->f[SMELT_RF_FACTORS + 2 * (first + i)],
                                      (float)task->f[SMELT_RF_FACTORS + 2 * (first + i) + 1]};
  const int lstm = cell->kind == SMELT_LSTM, rnn = cell->kind == SMELT_RNN;
  const int fits = cell->act[0].code == (rnn ? SMELT_ACT_TANH : SMELT_ACT_SIGMOID) &&
                   (rnn || cell->act[1].code == SMELT_ACT_TANH) && (!lstm || cell->act[2].code == SMELT_ACT_TANH);
  cell->clip = (float)task->f[SMELT_RF_CLIP];
  cell->usual = fits && cell->clip == __builtin_inff() && !cell->peephole && !(lstm && cell->modified);
}

static void smelt_cell_states(smelt_cell *cell, const smelt_task *task, int64_t direction, char **at) {
  const int64_t states = cell->rows * cell->padded, from = direction * (task->s[SMELT_RS_BATCH_FIRST] ? 1 : cell->rows);
  const float *h = (const float *)task->b[SMELT_RB_H], *c = (const float *)task->b[SMELT_RB_C];
  for (int i = 0; i < 2; i++) cell->h[i] = smelt_cell_take(at, states);
  cell->c = smelt_cell_take(at, states);
  cell->z = smelt_cell_take(at, states);
  cell->reset = smelt_cell_take(at, states);
  smelt_cell_pad(cell->h[0], cell->padded, h ? h + from * cell->hidden : NULL, cell->last_row, cell->rows, cell->hidden);
  smelt_cell_pad(cell->c, cell->padded, c ? c + from * cell->hidden : NULL, cell->last_row, cell->rows, cell->hidden);
}

/* The panels of one direction's weights. */
static const float *smelt_cell_panels(const smelt_cell *cell, const void *weights, int64_t K, int64_t direction, int64_t packed,
                                      char **at) {
  const float *all = (const float *)weights;
  const int64_t size = cell->padded * cell->gates * K;
  if (packed) return all + direction * size;
  float *panels = smelt_cell_take(at, size);
  smelt_cell_pack(cell, all + direction * cell->gates * cell->hidden * K, K, panels);
  return panels;
}

static void smelt_cell_weights(smelt_cell *cell, const smelt_task *task, int64_t direction, char **at) {
  const int64_t H = cell->hidden;
  const float *bias = (const float *)task->b[SMELT_RB_BIAS], *peephole = (const float *)task->b[SMELT_RB_PEEPHOLE];
  cell->bias = smelt_cell_take(at, SMELT_CELL_GATES * cell->padded);
  smelt_cell_bias(cell, bias ? bias + direction * 2 * cell->gates * H : NULL);
  float *padded = smelt_cell_take(at, 3 * cell->padded);
  cell->peephole = peephole ? padded : NULL;
  if (peephole) smelt_cell_pad(padded, cell->padded, peephole + direction * 3 * H, H, 3, H);
  cell->input_panels = smelt_cell_panels(cell, task->b[SMELT_RB_W], cell->width, direction, task->s[SMELT_RS_INPUTS_PACKED], at);
  cell->panels = smelt_cell_panels(cell, task->b[SMELT_RB_R], H, direction, task->s[SMELT_RS_PACKED], at);
}

/* Room for the inputs' products of as many steps as fit, where each step does not make its own. */
static void smelt_cell_span(smelt_cell *cell, char **at) {
  cell->sums_row = cell->gates * cell->padded;
  cell->span = smelt_max(1, smelt_min(cell->steps, SMELT_CELL_SPAN_FLOATS / (cell->rows * cell->sums_row)));
  if (!smelt_cell_fused(cell)) cell->sums = smelt_cell_take(at, cell->rows * cell->span * cell->sums_row);
}

/* One direction, as many steps of it as the longest row has; the scratch memory that it needs is what ops/recurrent.py reserves. */
static smelt_cell smelt_cell_of(const smelt_task *task, int64_t direction, int64_t longest, char **at) {
  const int64_t *s = task->s, D = s[SMELT_RS_DIRECTIONS], T = s[SMELT_RS_STEPS], B = s[SMELT_RS_ROWS], H = s[SMELT_RS_HIDDEN];
  const int64_t first = s[SMELT_RS_BATCH_FIRST], kind = s[SMELT_RS_KIND], gates = smelt_gates((int)kind, 1, 0);
  smelt_cell cell = {.kind = (int)kind, .gates = (int)gates, .modified = (int)s[SMELT_RS_MODIFIED],
                     .reverse = s[SMELT_RS_REVERSE] || direction, .steps = longest, .rows = B, .hidden = H,
                     .padded = (H + SMELT_CELL_PANEL - 1) / SMELT_CELL_PANEL * SMELT_CELL_PANEL};
  const int64_t wide = s[SMELT_RS_WIDTH];
  cell.width = wide;
  cell.x = (const float *)task->b[SMELT_RB_X];
  cell.x_step = first ? wide : B * wide;
  cell.x_row = first ? T * wide : wide;
  cell.y_step = D * H * (first ? 1 : B);
  cell.y_row = H * (first ? T * D : 1);
  cell.last_row = H * (first ? D : 1);
  const int64_t y_direction = direction * H * (first ? 1 : B);
  cell.y = (float *)task->b[SMELT_RB_Y];
  cell.y_h = (float *)task->b[SMELT_RB_Y_H];
  cell.y_c = (float *)task->b[SMELT_RB_Y_C];
  if (cell.y) cell.y += y_direction;
  if (cell.y_h) cell.y_h += y_direction;
  if (cell.y_c) cell.y_c += y_direction;
  cell.lengths = (const int32_t *)task->b[SMELT_RB_LENGTHS];
  smelt_cell_states(&cell, task, direction, at);
  smelt_cell_weights(&cell, task, direction, at);
  smelt_cell_span(&cell, at);
  smelt_cell_activations(&cell, task, direction);
  return cell;
}

/* Steps that no row has give zeros. */
static void smelt_cell_clear(const smelt_task *task, int64_t longest) {
  const int64_t *s = task->s, T = s[SMELT_RS_STEPS], B = s[SMELT_RS_ROWS], step = s[SMELT_RS_DIRECTIONS] * s[SMELT_RS_HIDDEN];
  const int64_t parts = s[SMELT_RS_BATCH_FIRST] ? B : 1, wide = step * (B / parts);
  float *y = (float *)task->b[SMELT_RB_Y];
  for (int64_t part = 0; y && longest < T && part < parts; part++)
    __builtin_memset(y + (part * T + longest) * wide, 0, (size_t)((T - longest) * wide) * 4);
}

int32_t SMELT_NAME(smelt_recurrent)(smelt_task *task);
int32_t SMELT_NAME(smelt_recurrent)(smelt_task *task) {
  const int64_t *s = task->s, states = s[SMELT_RS_DIRECTIONS] * s[SMELT_RS_ROWS] * s[SMELT_RS_HIDDEN];
  const int32_t *lengths = (const int32_t *)task->b[SMELT_RB_LENGTHS];
  int64_t longest = lengths ? 0 : s[SMELT_RS_STEPS];
  for (int64_t row = 0; lengths && row < s[SMELT_RS_ROWS]; longest = smelt_max(longest, lengths[row]), row++)
    if (lengths[row] < 0 || lengths[row] > s[SMELT_RS_STEPS])
      return smelt_fail(task->env, SMELT_E_VALUE, -1, lengths[row], 0, 0);
  if (!states) return SMELT_OK;
  smelt_cell_clear(task, longest);
  if (!longest) {
    if (task->b[SMELT_RB_Y_H]) __builtin_memset(task->b[SMELT_RB_Y_H], 0, (size_t)states * 4);
    if (task->b[SMELT_RB_Y_C]) __builtin_memset(task->b[SMELT_RB_Y_C], 0, (size_t)states * 4);
    return SMELT_OK;
  }
  char *at = (char *)task->b[SMELT_RB_SCRATCH];
  smelt_layer layer = {.directions = s[SMELT_RS_DIRECTIONS], .share = (smelt_cell_share *)at};
  at += sizeof(smelt_cell_share) * (size_t)layer.directions;
  for (int64_t d = 0; d < layer.directions; d++) layer.cell[d] = smelt_cell_of(task, d, longest, &at);
  return smelt_layer_run(task->env, &layer);
}

#endif
