/* An LSTM whose products multiply bytes (DynamicQuantizeLSTM), as a unit of its own.
 *
 * Input:     smelt_task: b and s as the enums below count them. X [steps, rows, width] float32; weights of each direction are panels
 *            (`int8:stack`) of [width, 4 * hidden] and [hidden, 4 * hidden], gates in the order input, output, forget, cell; scales and
 *            zero points of each direction, one or one for each column.
 * Output:    Y [steps, directions, rows, hidden], Y_h and Y_c [directions, rows, hidden], each of which may be absent.
 * Invariant: X is quantized as a whole, the state of all rows at each step, both as DynamicQuantizeLinear does; sums are exact. Without
 *            a step the last states are 0, as in stock.
 */
#ifndef SMELT_INT8_LSTM_UNIT_H
#define SMELT_INT8_LSTM_UNIT_H

#include <smelt/int8/int8_matrix.h>
#include <smelt/math/math.h>
#include <smelt/vec/vec.h>

enum { SMELT_QB_X, SMELT_QB_W, SMELT_QB_R, SMELT_QB_BIAS, SMELT_QB_H, SMELT_QB_C, SMELT_QB_PEEPHOLE, SMELT_QB_W_SCALE, SMELT_QB_W_ZERO,
       SMELT_QB_R_SCALE, SMELT_QB_R_ZERO, SMELT_QB_Y, SMELT_QB_Y_H, SMELT_QB_Y_C, SMELT_QB_SCRATCH };
enum { SMELT_QS_STEPS, SMELT_QS_ROWS, SMELT_QS_WIDTH, SMELT_QS_HIDDEN, SMELT_QS_DIRECTIONS, SMELT_QS_REVERSE, SMELT_QS_W_SIGNED,
       SMELT_QS_R_SIGNED, SMELT_QS_W_STEP, SMELT_QS_R_STEP, SMELT_QS_W_SCALES, SMELT_QS_W_ZEROS, SMELT_QS_R_SCALES, SMELT_QS_R_ZEROS };

/* How numbers were quantized. */
typedef struct {
  float scale;
  uint8_t zero;
} smelt_int8_steps;

typedef struct {
  const smelt_task *task;
  const uint8_t *x; /* quantized, in whole groups */
  smelt_int8_steps steps;
  int64_t wide_x, wide_h, panels, gates; /* bytes of a row; panels of a direction; columns */
} smelt_int8_lstm;

SMELT_INLINE int64_t smelt_int8_whole(int64_t bytes) { return (bytes + 63) & ~(int64_t)63; }

static smelt_int8_steps smelt_int8_steps_of(const float *x, int64_t count) {
  v_f32 low = bc_f32(0), high = bc_f32(0);
  for (int64_t i = 0; i < count; i += SMELT_L) {
    const v_f32 v = count - i >= SMELT_L ? ld_f32(x + i) : ld_f32_n(x + i, count - i);
    low = min_f32(low, v), high = max_f32(high, v);
  }
  const float least = hmin_f32(low), most = hmax_f32(high);
  smelt_int8_steps out = {most == least ? 1 : (most - least) / 255, 0};
  const float middle = 0 - least / out.scale;
  out.zero = (uint8_t)(middle <= 0 ? 0 : middle >= 255 ? 255 : (int32_t)__builtin_rintf(middle));
  return out;
}

/* Rows in whole groups; what is missing counts as the zero point. */
static void smelt_int8_quantize_rows(const float *x, int64_t rows, int64_t columns, int64_t wide, smelt_int8_steps steps, uint8_t *to) {
  const v_f32 scale = bc_f32(steps.scale), zero = bc_f32((float)steps.zero), top = bc_f32(255), none = bc_f32(0);
  for (int64_t r = 0; r < rows; r++, x += columns, to += wide) {
    for (int64_t i = 0; i < columns; i += SMELT_L) {
      const int64_t left = columns - i;
      const v_f32 v = left >= SMELT_L ? ld_f32(x + i) : ld_f32_n(x + i, left);
      const v_f32 q = second_min_f32(top, second_max_f32(none, add_f32(round_f32(div_f32(v, scale)), zero)));
      if (left >= SMELT_L) st_u8(to + i, cvt_f32_u8(q));
      else st_u8_n(to + i, cvt_f32_u8(q), left);
    }
    for (int64_t i = columns; i < wide; i++) to[i] = steps.zero;
  }
}

/* Rows of bytes times the weights of a direction, as float32. */
static void smelt_int8_gate_sums(const smelt_int8_lstm *l, int again, int64_t direction, const uint8_t *x, const smelt_int8_steps *steps,
                                 int64_t rows, const float *bias, float *y, char *memory) {
  const int64_t *s = l->task->s, wide = again ? l->wide_h : l->wide_x, stride = s[again ? SMELT_QS_R_STEP : SMELT_QS_W_STEP];
  const int64_t scales = s[again ? SMELT_QS_R_SCALES : SMELT_QS_W_SCALES], zeros = s[again ? SMELT_QS_R_ZEROS : SMELT_QS_W_ZEROS];
  void *const *b = l->task->b;
  const float *scale = b[again ? SMELT_QB_R_SCALE : SMELT_QB_W_SCALE];
  const uint8_t *zero = b[again ? SMELT_QB_R_ZERO : SMELT_QB_W_ZERO];
  const char *panels = b[again ? SMELT_QB_R : SMELT_QB_W];
  smelt_int8_matrix m = {.b = {[SMELT_LB_X] = (void *)x, [SMELT_LB_W] = (void *)(panels + direction * l->panels * stride),
                               [SMELT_LB_X_SCALE] = (void *)&steps->scale, [SMELT_LB_X_ZERO] = (void *)&steps->zero,
                               [SMELT_LB_W_SCALE] = (void *)(scale + direction * scales), [SMELT_LB_W_ZERO] = (void *)(zero ? zero + direction * zeros : NULL),
                               [SMELT_LB_BIAS] = (void *)bias, [SMELT_LB_Y] = y, [SMELT_LB_SCRATCH] = memory}};
  smelt_int8_numbers_of(l->task, &m, rows, wide, l->gates, stride, SMELT_Q_FLOAT);
  m.s[SMELT_LS_X_SIGNED] = 0, m.s[SMELT_LS_W_SIGNED] = s[again ? SMELT_QS_R_SIGNED : SMELT_QS_W_SIGNED];
  m.s[SMELT_LS_W_SCALES] = scales, m.s[SMELT_LS_W_ZEROS] = zeros, m.s[SMELT_LS_BIASES] = bias ? l->gates : 1;
  smelt_int8_conv c = smelt_int8_conv_of_rows(&m);
  smelt_int8_rows_times(&c, memory + smelt_int8_columns_bytes(l->panels, wide));
}

SMELT_INLINE v_f32 smelt_int8_floats_at(const float *x, int64_t j, int64_t left) {
  return !x ? bc_f32(0) : left >= SMELT_L ? ld_f32(x + j) : ld_f32_n(x + j, left);
}
SMELT_INLINE void smelt_int8_put_floats(float *x, int64_t j, int64_t left, v_f32 v) {
  if (left >= SMELT_L) st_f32(x + j, v);
  else st_f32_n(x + j, v, left);
}

/* A row's new states from the sums of both products, gate after gate; `p` are its direction's peepholes. */
static void smelt_int8_new_states(const float *of_x, const float *of_h, const float *p, int64_t hidden, float *h, float *c) {
  for (int64_t j = 0; j < hidden; j += SMELT_L) {
    const int64_t left = hidden - j;
    v_f32 z[4];
    for (int64_t g = 0; g < 4; g++) z[g] = smelt_int8_floats_at(of_x + g * hidden, j, left) + smelt_int8_floats_at(of_h + g * hidden, j, left);
    const v_f32 before = smelt_int8_floats_at(c, j, left);
    if (p) z[0] += smelt_int8_floats_at(p, j, left) * before, z[2] += smelt_int8_floats_at(p + 2 * hidden, j, left) * before;
    const v_f32 now = sigmoid_f32(z[2]) * before + sigmoid_f32(z[0]) * tanh_f32(z[3]);
    if (p) z[1] += smelt_int8_floats_at(p + hidden, j, left) * now;
    smelt_int8_put_floats(c, j, left, now);
    smelt_int8_put_floats(h, j, left, sigmoid_f32(z[1]) * tanh_f32(now));
  }
}

/* Bytes of a direction's memory: states, their bytes, the sums of a step and of all inputs, the bias, and what the products use. */
static int64_t smelt_int8_lstm_bytes(const smelt_int8_lstm *l, int64_t *at) {
  const int64_t *s = l->task->s, rows = s[SMELT_QS_ROWS], hidden = s[SMELT_QS_HIDDEN], all = s[SMELT_QS_STEPS] * rows;
  const int64_t wide = smelt_max(l->wide_x, l->wide_h);
  const int64_t sizes[7] = {rows * hidden * 4, rows * hidden * 4, rows * l->wide_h + 64, rows * l->gates * 4, all * l->gates * 4, l->gates * 4,
                            smelt_int8_columns_bytes(l->panels, wide)};
  int64_t total = 0;
  for (int64_t i = 0; i < 7; i++) at[i] = total, total += smelt_int8_whole(sizes[i]);
  smelt_int8_matrix m = {.b = {NULL}};
  smelt_int8_numbers_of(l->task, &m, smelt_max(all, 1), wide, l->gates, 0, SMELT_Q_FLOAT);
  smelt_int8_conv c = smelt_int8_conv_of_rows(&m);
  c.pixel = wide, c.block = c.rows, smelt_int8_conv_taps(&c); /* no cut has larger blocks */
  return total + smelt_int8_conv_bytes(&c);
}

static void smelt_int8_lstm_body(void *context, int64_t d) {
  const smelt_int8_lstm *l = context;
  const int64_t *s = l->task->s, steps = s[SMELT_QS_STEPS], rows = s[SMELT_QS_ROWS], hidden = s[SMELT_QS_HIDDEN];
  void *const *b = l->task->b;
  const int64_t state = rows * hidden, directions = s[SMELT_QS_DIRECTIONS], backwards = d == 1 || s[SMELT_QS_REVERSE];
  int64_t at[7];
  char *memory = smelt_claim(l->task);
  smelt_int8_lstm_bytes(l, at);
  float *h = (float *)(memory + at[0]), *c = (float *)(memory + at[1]), *of_h = (float *)(memory + at[3]);
  float *of_x = (float *)(memory + at[4]), *bias = (float *)(memory + at[5]);
  uint8_t *bytes = (uint8_t *)(memory + at[2]);
  const float *given = b[SMELT_QB_BIAS], *h0 = steps ? b[SMELT_QB_H] : NULL, *c0 = steps ? b[SMELT_QB_C] : NULL, *p = b[SMELT_QB_PEEPHOLE];
  for (int64_t i = 0; i < state; i++) h[i] = h0 ? h0[d * state + i] : 0, c[i] = c0 ? c0[d * state + i] : 0;
  for (int64_t i = 0; i < l->gates; i++) bias[i] = given ? given[2 * d * l->gates + i] + given[(2 * d + 1) * l->gates + i] : 0;
  smelt_int8_gate_sums(l, 0, d, l->x, &l->steps, steps * rows, bias, of_x, memory + at[6]);
  for (int64_t i = 0; i < steps; i++) {
    const int64_t step = backwards ? steps - 1 - i : i;
    const smelt_int8_steps of = smelt_int8_steps_of(h, state);
    smelt_int8_quantize_rows(h, rows, hidden, l->wide_h, of, bytes);
    smelt_int8_gate_sums(l, 1, d, bytes, &of, rows, NULL, of_h, memory + at[6]);
    for (int64_t r = 0; r < rows; r++)
      smelt_int8_new_states(of_x + (step * rows + r) * l->gates, of_h + r * l->gates, p ? p + d * 3 * hidden : NULL, hidden, h + r * hidden,
                            c + r * hidden);
    if (b[SMELT_QB_Y]) __builtin_memcpy((float *)b[SMELT_QB_Y] + (step * directions + d) * state, h, (size_t)state * 4);
  }
  if (b[SMELT_QB_Y_H]) __builtin_memcpy((float *)b[SMELT_QB_Y_H] + d * state, h, (size_t)state * 4);
  if (b[SMELT_QB_Y_C]) __builtin_memcpy((float *)b[SMELT_QB_Y_C] + d * state, c, (size_t)state * 4);
  smelt_release(l->task, memory);
}

int32_t SMELT_NAME(smelt_int8_lstm)(smelt_task *t) {
  const int64_t *s = t->s, all = s[SMELT_QS_STEPS] * s[SMELT_QS_ROWS];
  smelt_int8_lstm l = {.task = t, .gates = 4 * s[SMELT_QS_HIDDEN], .x = t->b[SMELT_QB_SCRATCH]};
  if (s[SMELT_QS_ROWS] <= 0 || s[SMELT_QS_HIDDEN] <= 0) return SMELT_OK;
  l.wide_x = smelt_int8_groups(s[SMELT_QS_WIDTH]) * SMELT_INT8_GROUP, l.wide_h = smelt_int8_groups(s[SMELT_QS_HIDDEN]) * SMELT_INT8_GROUP;
  l.panels = (l.gates + SMELT_INT8_PANEL - 1) / SMELT_INT8_PANEL;
  l.steps = smelt_int8_steps_of(t->b[SMELT_QB_X], all * s[SMELT_QS_WIDTH]);
  smelt_int8_quantize_rows(t->b[SMELT_QB_X], all, s[SMELT_QS_WIDTH], l.wide_x, l.steps, t->b[SMELT_QB_SCRATCH]);
  int64_t at[7];
  if (smelt_reserve(t, s[SMELT_QS_DIRECTIONS], smelt_int8_lstm_bytes(&l, at))) return t->env->code;
  if (s[SMELT_QS_DIRECTIONS] == 1) smelt_int8_lstm_body(&l, 0);
  else t->env->parallel(t->env, s[SMELT_QS_DIRECTIONS], smelt_int8_lstm_body, &l);
  if (!t->work->collecting) t->work->slots = t->work->slot_bytes = 0;
  return t->env->code;
}

#endif
