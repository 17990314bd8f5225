/* The gates of a recurrent layer with any of ONNX's activations, clipping, peepholes and coupled gates.
 *
 * Input:     smelt_cell, a row at a step, its products as in recurrent_gates.h. Output: smelt_cell_epilogue().
 * Invariant: as in recurrent_gates.h; activations are those of math.h. It is rare, and written to be short.
 */
#ifndef SMELT_RECURRENT_ANY_H
#define SMELT_RECURRENT_ANY_H

#include <smelt/recurrent/recurrent_gates.h>

/* Clipped where the layer says so, then activation `which`. */
static __attribute__((noinline)) v_f32 smelt_gate_any(const smelt_cell *cell, int which, v_f32 sum) {
  return smelt_activate(cell->act[which], max_f32(bc_f32(-cell->clip), min_f32(bc_f32(cell->clip), sum)));
}

SMELT_FN void smelt_lstm_any(const smelt_cell *cell, const smelt_cell_row *row, float *sums, const float *x, int64_t u,
                             int64_t n) {
  const v_f32 before = ld_f32(row->c + u);
  const float *p = cell->peephole;
  v_f32 in[4];
  for (int g = 0; g < 4; g++) in[g] = smelt_gate_sum(cell, sums, x, g, g, u);
  if (p) in[0] += ld_f32(p + u) * before, in[2] += ld_f32(p + 2 * cell->padded + u) * before;
  const v_f32 i = smelt_gate_any(cell, 0, in[0]), f = cell->modified ? 1.0f - i : smelt_gate_any(cell, 0, in[2]);
  const v_f32 c = f * before + i * smelt_gate_any(cell, 1, in[3]);
  if (p) in[1] += ld_f32(p + cell->padded + u) * c;
  const v_f32 o = smelt_gate_any(cell, 0, in[1]);
  st_f32(row->c + u, c);
  smelt_store_state(row, u, n, o * smelt_activate(cell->act[2], c));
  if (row->y_c) smelt_st_upto(row->y_c + u, c, n);
}

SMELT_FN void smelt_gru_any(const smelt_cell *cell, const smelt_cell_row *row, float *sums, const float *x, int64_t u,
                            int64_t n) {
  const v_f32 z = smelt_gate_any(cell, 0, smelt_gate_sum(cell, sums, x, 0, 0, u));
  const v_f32 reset = smelt_gate_any(cell, 0, smelt_gate_sum(cell, sums, x, 1, 1, u));
  const v_f32 state = ld_f32(sums + 2 * SMELT_CELL_PANEL) + ld_f32(cell->bias + 3 * cell->padded + u);
  const v_f32 input = ld_f32(x + 2 * SMELT_CELL_PANEL) + ld_f32(cell->bias + 2 * cell->padded + u);
  const v_f32 made = smelt_gate_any(cell, 1, input + reset * state);
  smelt_store_state(row, u, n, (1.0f - z) * made + z * ld_f32(row->h + u));
}
SMELT_FN void smelt_gru_reset_any(const smelt_cell *cell, const smelt_cell_row *row, float *sums, const float *x, int64_t u,
                                  int64_t n) {
  (void)n;
  const int64_t at = row->c - cell->c + u;
  st_f32(cell->z + at, smelt_gate_any(cell, 0, smelt_gate_sum(cell, sums, x, 0, 0, u)));
  st_f32(cell->reset + at, smelt_gate_any(cell, 0, smelt_gate_sum(cell, sums, x, 1, 1, u)) * ld_f32(row->h + u));
}
SMELT_FN void smelt_gru_after_reset_any(const smelt_cell *cell, const smelt_cell_row *row, float *sums, const float *x, int64_t u,
                                        int64_t n) {
  const v_f32 z = ld_f32(cell->z + (row->c - cell->c) + u);
  const v_f32 made = smelt_gate_any(cell, 1, smelt_gate_sum(cell, sums, x, 0, 2, u));
  smelt_store_state(row, u, n, (1.0f - z) * made + z * ld_f32(row->h + u));
}

SMELT_FN void smelt_rnn_any(const smelt_cell *cell, const smelt_cell_row *row, float *sums, const float *x, int64_t u,
                            int64_t n) {
  smelt_store_state(row, u, n, smelt_gate_any(cell, 0, smelt_gate_sum(cell, sums, x, 0, 0, u)));
}

SMELT_CELL_EPILOGUE(smelt_epilogue_lstm_any, SMELT_CELL_EACH(smelt_lstm_any, 4))
SMELT_CELL_EPILOGUE(smelt_epilogue_gru_any, SMELT_CELL_EACH(smelt_gru_any, 3))
SMELT_CELL_EPILOGUE(smelt_epilogue_gru_reset_any, SMELT_CELL_EACH(smelt_gru_reset_any, 2))
SMELT_CELL_EPILOGUE(smelt_epilogue_gru_after_reset_any, SMELT_CELL_EACH(smelt_gru_after_reset_any, 1))
SMELT_CELL_EPILOGUE(smelt_epilogue_rnn_any, SMELT_CELL_EACH(smelt_rnn_any, 1))

static smelt_cell_epilogue_fn smelt_cell_epilogue(const smelt_cell *cell, int phase) {
  if (cell->kind == SMELT_LSTM) return cell->usual ? smelt_epilogue_lstm : smelt_epilogue_lstm_any;
  if (cell->kind == SMELT_RNN) return cell->usual ? smelt_epilogue_rnn : smelt_epilogue_rnn_any;
  if (cell->modified) return cell->usual ? smelt_epilogue_gru : smelt_epilogue_gru_any;
  if (phase) return cell->usual ? smelt_epilogue_gru_after_reset : smelt_epilogue_gru_after_reset_any;
  return cell->usual ? smelt_epilogue_gru_reset : smelt_epilogue_gru_reset_any;
}

/* A row past its own length keeps its state and gives zeros. */
static void smelt_keep_state(const smelt_cell *cell, const smelt_cell_row *row, float *sums, const float *x, int64_t u,
                             int64_t end) {
  const v_f32 zero = bc_f32(0);
  (void)sums, (void)x;
  for (; u < smelt_min(end, cell->hidden); u += SMELT_L) {
    const int64_t n = cell->hidden - u;
    const v_f32 h = ld_f32(row->h + u);
    st_f32(row->next + u, h);
    if (row->y) smelt_st_upto(row->y + u, zero, n);
    if (row->y_h) smelt_st_upto(row->y_h + u, row->empty ? zero : h, n);
    if (row->y_c && cell->kind == SMELT_LSTM) smelt_st_upto(row->y_c + u, row->empty ? zero : ld_f32(row->c + u), n);
  }
}

#endif
