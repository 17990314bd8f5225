/* The gates of a recurrent layer: from the sums of a row's products to its new states, for the activations that layers have.
 *
 * Input:     smelt_cell, a row at a step, its products by block of 16 units and gate: those of the state (`sums`), in whose
 *            place intermediate values go, and of the inputs (`x`). Output: the functions smelt_epilogue_...
 * Invariant: an element is the same expression whatever is computed beside it. Gates are kept as what divides them, so that
 *            sigmoid(x) tanh(y) is one division. Nothing cancels: each is within a few ULP, down to sigmoid(-87); below that
 *            it stays there.
 */
#ifndef SMELT_RECURRENT_GATES_H
#define SMELT_RECURRENT_GATES_H

#include <smelt/recurrent/recurrent.h>

/* Gates that one product gives. */
SMELT_FN int smelt_gates(int kind, int phases, int phase) {
  if (phases == 2) return phase ? 1 : 2;
  return kind == SMELT_LSTM ? 4 : kind == SMELT_GRU ? 3 : 1;
}

/* Products that a step needs before the next can begin: where a GRU resets its state first, two. */
SMELT_FN int smelt_cell_phases(const smelt_cell *cell) { return cell->kind == SMELT_GRU && !cell->modified ? 2 : 1; }

/* 1 + e^-x for x in [-87, 87]: 2^n (1 + f q(f)) with n + f = -x log2 e; adding the large constant rounds to n and leaves
 * n + 127 in the low bits. */
SMELT_FN v_f32 smelt_sigmoid_under(v_f32 x) {
  x = second_min_f32(bc_f32(87.0f), second_max_f32(bc_f32(-87.0f), x));
  const v_f32 shifted = x * -SMELT_LOG2E_F32 + 12583039.0f, n = shifted - 12583039.0f, f = x * -SMELT_LOG2E_F32 - n;
  v_f32 q = 0x1.5bb924p-10f * f + 0x1.3ceb6cp-7f;
  q = q * f + 0x1.c6b75ap-5f;
  q = q * f + 0x1.ebf9bap-3f;
  q = q * f + 0x1.62e42ap-1f;
  q = q * f + 1.0f;
  return q * (v_f32)((v_u32)shifted << 23) + 1.0f;
}

/* t = expm1(2 x), so that tanh(x) is t / (t + 2): its relative error is small near 0 too. From 9.02 on it rounds to 1. */
SMELT_FN v_f32 smelt_tanh_over(v_f32 x) {
  x = second_min_f32(bc_f32(9.02f), second_max_f32(bc_f32(-9.02f), x));
  const v_f32 shifted = x * (2.0f * SMELT_LOG2E_F32) + 12583039.0f, n = shifted - 12583039.0f;
  const v_f32 f = x * (2.0f * SMELT_LOG2E_F32) - n, scale = (v_f32)((v_u32)shifted << 23);
  v_f32 q = 0x1.4308f4p-13f * f + 0x1.5f0878p-10f;
  q = q * f + 0x1.3b2ba0p-7f;
  q = q * f + 0x1.c6af6ep-5f;
  q = q * f + 0x1.ebfbdep-3f;
  q = q * f + 0x1.62e430p-1f;
  return scale * (f * q) + (scale - 1.0f);
}

/* Gate `gate` of the units from u on, panel g of the products: those of the state, plus those of the inputs and both biases. */
SMELT_FN v_f32 smelt_gate_sum(const smelt_cell *cell, const float *sums, const float *x, int g, int gate, int64_t u) {
  return ld_f32(sums + g * SMELT_CELL_PANEL) + (ld_f32(x + g * SMELT_CELL_PANEL) + ld_f32(cell->bias + gate * cell->padded + u));
}

SMELT_FN void smelt_store_state(const smelt_cell_row *row, int64_t u, int64_t n, v_f32 h) {
  st_f32(row->next + u, h);
  if (row->y) smelt_st_upto(row->y + u, h, n);
  if (row->y_h) smelt_st_upto(row->y_h + u, h, n);
}

/* In place of the sums what gates are made of. Several passes over a row, since short chains of instructions overlap better
 * than a long one. */
SMELT_FN void smelt_lstm_gates(const smelt_cell *cell, const smelt_cell_row *row, float *sums, const float *x, int64_t u,
                               int64_t n) {
  (void)row, (void)n;
  for (int g = 0; g < 3; g++) st_f32(sums + g * SMELT_CELL_PANEL, smelt_sigmoid_under(smelt_gate_sum(cell, sums, x, g, g, u)));
  st_f32(sums + 3 * SMELT_CELL_PANEL, smelt_tanh_over(smelt_gate_sum(cell, sums, x, 3, 3, u)));
}
SMELT_FN void smelt_lstm_state(const smelt_cell *cell, const smelt_cell_row *row, float *sums, const float *x, int64_t u,
                               int64_t n) {
  (void)cell, (void)x, (void)n;
  const v_f32 in = ld_f32(sums), forget = ld_f32(sums + 2 * SMELT_CELL_PANEL), made = ld_f32(sums + 3 * SMELT_CELL_PANEL);
  st_f32(row->c + u, ld_f32(row->c + u) / forget + made / (in * (made + 2.0f)));
}
SMELT_FN void smelt_lstm_output(const smelt_cell *cell, const smelt_cell_row *row, float *sums, const float *x, int64_t u,
                                int64_t n) {
  (void)cell, (void)x;
  const v_f32 c = ld_f32(row->c + u), t = smelt_tanh_over(c);
  smelt_store_state(row, u, n, t / (ld_f32(sums + SMELT_CELL_PANEL) * (t + 2.0f)));
  if (row->y_c) smelt_st_upto(row->y_c + u, c, n);
}

/* (1 - z) tanh(x) + z before, where z is 1 / under. A smaller z than 2^-100 stays there: under times over, up to 2^27, is
 * finite then, and so is the quotient. */
SMELT_FN v_f32 smelt_gru_mix(v_f32 under, v_f32 x, v_f32 before) {
  under = second_min_f32(bc_f32(0x1p100f), under);
  const v_f32 t = smelt_tanh_over(x), over = t + 2.0f;
  return ((under - 1.0f) * t + before * over) / (under * over);
}
SMELT_FN void smelt_gru_gates(const smelt_cell *cell, const smelt_cell_row *row, float *sums, const float *x, int64_t u,
                              int64_t n) {
  (void)row, (void)n;
  for (int g = 0; g < 2; g++)
    st_f32(sums + g * SMELT_CELL_PANEL, smelt_sigmoid_under(smelt_gate_sum(cell, sums, x, g, g, u)));
}
SMELT_FN void smelt_gru_output(const smelt_cell *cell, const smelt_cell_row *row, float *sums, const float *x, int64_t u,
                               int64_t n) {
  const v_f32 state = ld_f32(sums + 2 * SMELT_CELL_PANEL) + ld_f32(cell->bias + 3 * cell->padded + u);
  const v_f32 input = ld_f32(x + 2 * SMELT_CELL_PANEL) + ld_f32(cell->bias + 2 * cell->padded + u);
  const v_f32 made = input + state / ld_f32(sums + SMELT_CELL_PANEL);
  smelt_store_state(row, u, n, smelt_gru_mix(ld_f32(sums), made, ld_f32(row->h + u)));
}
/* A GRU that resets its state before the last product: what divides z, and the reset state. */
SMELT_FN void smelt_gru_reset(const smelt_cell *cell, const smelt_cell_row *row, float *sums, const float *x, int64_t u,
                              int64_t n) {
  (void)n;
  const int64_t at = row->c - cell->c + u;
  st_f32(cell->z + at, smelt_sigmoid_under(smelt_gate_sum(cell, sums, x, 0, 0, u)));
  const v_f32 reset = smelt_sigmoid_under(smelt_gate_sum(cell, sums, x, 1, 1, u));
  st_f32(cell->reset + at, ld_f32(row->h + u) / reset);
}
SMELT_FN void smelt_gru_after_reset(const smelt_cell *cell, const smelt_cell_row *row, float *sums, const float *x, int64_t u,
                                    int64_t n) {
  const v_f32 z = ld_f32(cell->z + (row->c - cell->c) + u), made = smelt_gate_sum(cell, sums, x, 0, 2, u);
  smelt_store_state(row, u, n, smelt_gru_mix(z, made, ld_f32(row->h + u)));
}

SMELT_FN void smelt_rnn_output(const smelt_cell *cell, const smelt_cell_row *row, float *sums, const float *x, int64_t u,
                               int64_t n) {
  const v_f32 t = smelt_tanh_over(smelt_gate_sum(cell, sums, x, 0, 0, u));
  smelt_store_state(row, u, n, t / (t + 2.0f));
}

/* All units from `u` to `end` of a row; `sums` and `x` have `gates` panels for each block. */
#define SMELT_CELL_EACH(body, gates)                                                                                       \
  {                                                                                                                        \
    int64_t v = u;                                                                                                         \
    for (; v + SMELT_L <= smelt_min(end, cell->hidden); v += SMELT_L) body(cell, row, SMELT_CELL_AT(gates), v, SMELT_L);   \
    if (v < smelt_min(end, cell->hidden)) body(cell, row, SMELT_CELL_AT(gates), v, cell->hidden - v);                      \
  }
#define SMELT_CELL_AT(gates) sums + SMELT_CELL_PLACE(gates), x + SMELT_CELL_PLACE(gates)
#define SMELT_CELL_PLACE(gates) ((v - u) / SMELT_CELL_PANEL * (gates) * SMELT_CELL_PANEL + v % SMELT_CELL_PANEL)
#define SMELT_CELL_EPILOGUE(name, ...)                                                                                       \
  static __attribute__((noinline)) void name(const smelt_cell *cell_, const smelt_cell_row *row_, float *sums,             \
                                             const float *x, int64_t u, int64_t end) {                                 \
    const smelt_cell own = *cell_, *cell = &own; /* copies, which no store can change */                                   \
    const smelt_cell_row its = *row_, *row = &its;                                                                         \
    __VA_ARGS__                                                                                                            \
  }
typedef void (*smelt_cell_epilogue_fn)(const smelt_cell *cell, const smelt_cell_row *row, float *sums, const float *x,
                                     int64_t u, int64_t end);
SMELT_CELL_EPILOGUE(smelt_epilogue_lstm, SMELT_CELL_EACH(smelt_lstm_gates, 4) SMELT_CELL_EACH(smelt_lstm_state, 4)
                                         SMELT_CELL_EACH(smelt_lstm_output, 4))
SMELT_CELL_EPILOGUE(smelt_epilogue_gru, SMELT_CELL_EACH(smelt_gru_gates, 3) SMELT_CELL_EACH(smelt_gru_output, 3))
SMELT_CELL_EPILOGUE(smelt_epilogue_gru_reset, SMELT_CELL_EACH(smelt_gru_reset, 2))
SMELT_CELL_EPILOGUE(smelt_epilogue_gru_after_reset, SMELT_CELL_EACH(smelt_gru_after_reset, 1))
SMELT_CELL_EPILOGUE(smelt_epilogue_rnn, SMELT_CELL_EACH(smelt_rnn_output, 1))

#endif
