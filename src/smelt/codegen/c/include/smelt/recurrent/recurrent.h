/* One direction of a recurrent layer (ONNX's RNN, GRU, LSTM): where its tensors lie, and its activations.
 *
 * Input:     activation codes, rows and steps. Output: smelt_cell, smelt_row_at(), smelt_activate().
 * Invariant: states lie padded to whole panels; lanes beyond the hidden size hold numbers that no product reads.
 */
#ifndef SMELT_RECURRENT_H
#define SMELT_RECURRENT_H

#include <smelt/threads/loop.h>
#include <smelt/vec/vec.h>
#include <smelt/math/math.h>

enum { SMELT_RNN = 0, SMELT_GRU = 1, SMELT_LSTM = 2 };
enum {
  SMELT_ACT_SIGMOID, SMELT_ACT_TANH, SMELT_ACT_RELU, SMELT_ACT_AFFINE, SMELT_ACT_LEAKY_RELU, SMELT_ACT_THRESHOLDED_RELU,
  SMELT_ACT_SCALED_TANH, SMELT_ACT_HARD_SIGMOID, SMELT_ACT_ELU, SMELT_ACT_SOFTSIGN, SMELT_ACT_SOFTPLUS
};
enum { SMELT_CELL_PANEL = 16, SMELT_CELL_ACTIVATIONS = 3, SMELT_CELL_GATES = 4 };

typedef struct {
  int64_t code;
  float alpha, beta;
} smelt_activation;

typedef struct {
  int kind, gates;
  int modified; /* LSTM: the forget gate is 1 - the input gate; GRU: linear before reset */
  int reverse, usual; /* usual: sigmoid and tanh, no clip, no peepholes */
  int64_t steps, rows, hidden, padded;
  int64_t width;                  /* of the inputs */
  const float *x;
  int64_t x_step, x_row;
  const float *input_panels;      /* input weights: block of 16 units, gate, k, 16 */
  const float *panels;            /* recurrent weights, likewise */
  float *sums;                    /* products of inputs, `span` steps of each row: see smelt_sums_of() */
  int64_t span, sums_row;
  float *bias;                    /* padded: one of each gate; of a GRU one more, the recurrent one of its last gate */
  float *peephole;                /* padded: input, output, forget; NULL: none */
  float *h[2], *c, *z, *reset;    /* states by row: step t reads h[t % 2] and writes the other */
  const int32_t *lengths;         /* NULL: all rows have all steps */
  float *y, *y_h, *y_c;           /* each may be NULL */
  int64_t y_step, y_row, last_row;
  smelt_activation act[SMELT_CELL_ACTIVATIONS];
  float clip;
} smelt_cell;

/* A row at one step: past its own length it keeps its state and gives zeros. */
typedef struct {
  const float *x, *h;
  float *sums; /* products of its inputs; NULL: not made yet */
  float *next, *c, *y, *y_h, *y_c;
  int active, empty;
} smelt_cell_row;

SMELT_FN smelt_cell_row smelt_row_at(const smelt_cell *cell, int64_t step, int64_t row) {
  const int64_t length = cell->lengths ? cell->lengths[row] : cell->steps;
  const int active = step < length, last = step == cell->steps - 1;
  const int64_t at = active && cell->reverse ? length - 1 - step : step;
  return (smelt_cell_row){
      .x = cell->x + at * cell->x_step + row * cell->x_row,
      .h = cell->h[step % 2] + row * cell->padded,
      .next = cell->h[(step + 1) % 2] + row * cell->padded,
      .c = cell->c + row * cell->padded,
      .y = cell->y ? cell->y + at * cell->y_step + row * cell->y_row : NULL,
      .y_h = last && cell->y_h ? cell->y_h + row * cell->last_row : NULL,
      .y_c = last && cell->y_c ? cell->y_c + row * cell->last_row : NULL,
      .active = active,
      .empty = length == 0,
  };
}

SMELT_FN v_f32 smelt_ld_upto(const float *p, int64_t n) { return n >= SMELT_L ? ld_f32(p) : ld_f32_n(p, n); }
SMELT_FN void smelt_st_upto(float *p, v_f32 v, int64_t n) {
  if (n >= SMELT_L) st_f32(p, v);
  else st_f32_n(p, v, n);
}

SMELT_FN v_f32 smelt_activate(smelt_activation a, v_f32 x) {
  const v_f32 zero = bc_f32(0), alpha = bc_f32(a.alpha), beta = bc_f32(a.beta);
  switch (a.code) {
  case SMELT_ACT_SIGMOID: return sigmoid_f32(x);
  case SMELT_ACT_TANH: return tanh_f32(x);
  case SMELT_ACT_RELU: return max_f32(x, zero);
  case SMELT_ACT_AFFINE: return alpha * x + beta;
  case SMELT_ACT_LEAKY_RELU: return sel_f32((v_i32)(x < zero), alpha * x, x);
  case SMELT_ACT_THRESHOLDED_RELU: return sel_f32((v_i32)(x <= alpha), zero, x);
  case SMELT_ACT_SCALED_TANH: return alpha * tanh_f32(beta * x);
  case SMELT_ACT_HARD_SIGMOID: return min_f32(max_f32(alpha * x + beta, zero), bc_f32(1));
  case SMELT_ACT_ELU: return sel_f32((v_i32)(x < zero), alpha * expm1_f32(x), x);
  case SMELT_ACT_SOFTSIGN: return x / (1.0f + abs_f32(x));
  default: return softplus_f32(x);
  }
}

#endif
