/* One step of a recurrent layer for some rows and some units: the recurrent product, the gates, the new states.
 *
 * Input:     smelt_cell, a step, a range of rows and one of vectors of units. Output: smelt_cell_step().
 * Invariant: an element is one chain of multiply-adds over the hidden units in rising order, then the input's product and
 *            the bias: its bits depend neither on how rows and units are grouped nor on threads. Gates never leave L1.
 */
#ifndef SMELT_RECURRENT_CELL_H
#define SMELT_RECURRENT_CELL_H

#include <smelt/recurrent.h>

/* Rows that share one pass over the panels: as many as there are registers for four gates of each. */
#if SMELT_ISA == 512 || SMELT_ISA == 64
#define SMELT_CELL_ROWS 6
#elif SMELT_ISA == 256
#define SMELT_CELL_ROWS 3
#else
#define SMELT_CELL_ROWS 2
#endif
#define SMELT_CELL_UNROLL _Pragma("GCC unroll 8")
#define SMELT_CELL_GATES 4

/* Gates that one product gives. */
SMELT_FN int smelt_gates(int kind, int phases, int phase) {
  if (phases == 2) return phase ? 1 : 2;
  return kind == SMELT_LSTM ? 4 : kind == SMELT_GRU ? 3 : 1;
}

/* sums[row][vector][gate] = sums over k of a[row][k] * panel[vector][gate][k]. `panel_step` is from gate to gate,
 * `vector_step` from vector to vector. */
SMELT_FN void smelt_cell_sums(const float *const *a, const float *panel, int64_t panel_step, int64_t vector_step, int64_t depth,
                              v_f32 *sums, int R, int V, int G) {
  v_f32 s[SMELT_CELL_ROWS][2][SMELT_CELL_GATES];
  SMELT_CELL_UNROLL
  for (int r = 0; r < R; r++)
    SMELT_CELL_UNROLL
    for (int v = 0; v < V; v++)
      SMELT_CELL_UNROLL
      for (int g = 0; g < G; g++) s[r][v][g] = bc_f32(0);
  for (int64_t k = 0; k < depth; k++, panel += SMELT_CELL_PANEL) {
    SMELT_CELL_UNROLL
    for (int v = 0; v < V; v++)
      SMELT_CELL_UNROLL
      for (int g = 0; g < G; g++) {
        const v_f32 b = ld_f32(panel + v * vector_step + g * panel_step);
        SMELT_CELL_UNROLL
        for (int r = 0; r < R; r++) s[r][v][g] += a[r][k] * b;
      }
  }
  SMELT_CELL_UNROLL
  for (int r = 0; r < R; r++)
    SMELT_CELL_UNROLL
    for (int v = 0; v < V; v++)
      SMELT_CELL_UNROLL
      for (int g = 0; g < G; g++) sums[(r * V + v) * G + g] = s[r][v][g];
}

typedef void (*smelt_cell_sums_fn)(const float *const *a, const float *panel, int64_t panel_step, int64_t vector_step,
                                   int64_t depth, v_f32 *sums);
#define SMELT_CELL_SUMS(R, V, G)                                                                                           \
  static __attribute__((noinline)) void smelt_cell_sums_##R##x##V##x##G(const float *const *a, const float *panel,         \
                                                                        int64_t panel_step, int64_t vector_step,           \
                                                                        int64_t depth, v_f32 *sums) {                      \
    smelt_cell_sums(a, panel, panel_step, vector_step, depth, sums, R, V, G);                                              \
  }
#define SMELT_CELL_SUMS_OF(R, V) SMELT_CELL_SUMS(R, V, 1) SMELT_CELL_SUMS(R, V, 2) SMELT_CELL_SUMS(R, V, 3) SMELT_CELL_SUMS(R, V, 4)
#define SMELT_CELL_LIST_OF(R, V)                                                                                           \
  { smelt_cell_sums_##R##x##V##x1, smelt_cell_sums_##R##x##V##x2, smelt_cell_sums_##R##x##V##x3, smelt_cell_sums_##R##x##V##x4 }
SMELT_CELL_SUMS_OF(1, 1)
SMELT_CELL_SUMS_OF(1, 2)
SMELT_CELL_SUMS_OF(2, 1)
#if SMELT_CELL_ROWS == 6
SMELT_CELL_SUMS_OF(2, 2)
SMELT_CELL_SUMS_OF(4, 1)
SMELT_CELL_SUMS_OF(6, 1)
static const smelt_cell_sums_fn smelt_cell_wide[][4] = {SMELT_CELL_LIST_OF(1, 2), SMELT_CELL_LIST_OF(2, 2)};
static const smelt_cell_sums_fn smelt_cell_narrow[][4] = {SMELT_CELL_LIST_OF(1, 1), SMELT_CELL_LIST_OF(2, 1),
                                                          SMELT_CELL_LIST_OF(4, 1), SMELT_CELL_LIST_OF(6, 1)};
static const int smelt_cell_tiles[] = {1, 2, 4, 6};
enum { SMELT_CELL_TILES = 4, SMELT_CELL_WIDE = 2 };
#elif SMELT_CELL_ROWS == 3
SMELT_CELL_SUMS_OF(3, 1)
static const smelt_cell_sums_fn smelt_cell_wide[][4] = {SMELT_CELL_LIST_OF(1, 2)};
static const smelt_cell_sums_fn smelt_cell_narrow[][4] = {SMELT_CELL_LIST_OF(1, 1), SMELT_CELL_LIST_OF(2, 1),
                                                          SMELT_CELL_LIST_OF(3, 1)};
static const int smelt_cell_tiles[] = {1, 2, 3};
enum { SMELT_CELL_TILES = 3, SMELT_CELL_WIDE = 1 };
#else
static const smelt_cell_sums_fn smelt_cell_wide[][4] = {SMELT_CELL_LIST_OF(1, 2)};
static const smelt_cell_sums_fn smelt_cell_narrow[][4] = {SMELT_CELL_LIST_OF(1, 1), SMELT_CELL_LIST_OF(2, 1)};
static const int smelt_cell_tiles[] = {1, 2};
enum { SMELT_CELL_TILES = 2, SMELT_CELL_WIDE = 1 };
#endif

/* What a gate's activation gets: clipped where the layer says so. */
SMELT_FN v_f32 smelt_gate_input(const smelt_cell *cell, v_f32 sum) {
  return max_f32(bc_f32(-cell->clip), min_f32(bc_f32(cell->clip), sum));
}

/* Whatever the layer states; out of line, since it is rare and long. */
static __attribute__((noinline)) void smelt_activate_any(const smelt_activation *act, v_f32 *x) { *x = smelt_activate(*act, *x); }

SMELT_FN v_f32 smelt_gate(const smelt_cell *cell, int which, v_f32 sum, int kind, int usual) {
  if (usual) return which || kind == SMELT_RNN ? tanh_f32(sum) : sigmoid_f32(sum);
  v_f32 x = smelt_gate_input(cell, sum);
  smelt_activate_any(&cell->act[which], &x);
  return x;
}

SMELT_FN v_f32 smelt_lstm_cell(const smelt_cell *cell, const smelt_cell_row *row, const v_f32 *in, int64_t u, v_f32 *c,
                               int usual) {
  const v_f32 before = ld_f32(row->c + u);
  const float *p = cell->peephole;
  v_f32 i = in[0], o = in[1], f = in[2];
  if (!usual && p) i += ld_f32(p + u) * before, f += ld_f32(p + 2 * cell->padded + u) * before;
  i = smelt_gate(cell, 0, i, SMELT_LSTM, usual);
  f = !usual && cell->modified ? 1.0f - i : smelt_gate(cell, 0, f, SMELT_LSTM, usual);
  *c = f * before + i * smelt_gate(cell, 1, in[3], SMELT_LSTM, usual);
  if (!usual && p) o += ld_f32(p + cell->padded + u) * *c;
  o = smelt_gate(cell, 0, o, SMELT_LSTM, usual);
  if (usual) return o * tanh_f32(*c);
  v_f32 out = *c;
  smelt_activate_any(&cell->act[2], &out);
  return o * out;
}

/* The new state of a row's units, or for the first of two phases of a GRU nothing: the reset state and z are stored. */
SMELT_FN v_f32 smelt_new_state(const smelt_cell *cell, const smelt_cell_row *row, const v_f32 *s, int64_t u, v_f32 *c,
                               int kind, int phases, int phase, int usual) {
  const int64_t n = cell->hidden - u;
  v_f32 in[SMELT_CELL_GATES];
  const int first = phase == 1 ? 2 : 0, count = smelt_gates(kind, phases, phase);
  SMELT_CELL_UNROLL
  for (int g = 0; g < count; g++) {
    const int gate = first + g;
    in[g] = smelt_ld_upto(row->x + gate * cell->hidden + u, n) + ld_f32(cell->bias + gate * cell->padded + u);
  }
  if (kind == SMELT_RNN) return smelt_gate(cell, 0, s[0] + in[0], kind, usual);
  if (kind == SMELT_LSTM) {
    SMELT_CELL_UNROLL
    for (int g = 0; g < SMELT_CELL_GATES; g++) in[g] += s[g];
    return smelt_lstm_cell(cell, row, in, u, c, usual);
  }
  const v_f32 before = ld_f32(row->h + u);
  v_f32 z, made;
  if (phases == 1) {
    z = smelt_gate(cell, 0, s[0] + in[0], kind, usual);
    const v_f32 r = smelt_gate(cell, 0, s[1] + in[1], kind, usual);
    made = smelt_gate(cell, 1, in[2] + r * (s[2] + ld_f32(cell->bias + 3 * cell->padded + u)), kind, usual);
  } else if (phase == 0) {
    const int64_t at = row->c - cell->c + u;
    st_f32(cell->z + at, smelt_gate(cell, 0, s[0] + in[0], kind, usual));
    st_f32(cell->reset + at, smelt_gate(cell, 0, s[1] + in[1], kind, usual) * before);
    return before;
  } else {
    z = ld_f32(cell->z + (row->c - cell->c) + u);
    made = smelt_gate(cell, 1, s[0] + in[0], kind, usual);
  }
  return (1.0f - z) * made + z * before;
}

SMELT_FN void smelt_store_state(const smelt_cell *cell, const smelt_cell_row *row, int64_t u, v_f32 h, v_f32 c) {
  const int64_t n = cell->hidden - u;
  const v_f32 zero = bc_f32(0);
  if (!row->active) h = ld_f32(row->h + u);
  st_f32(row->next + u, h);
  if (row->y) smelt_st_upto(row->y + u, row->active ? h : zero, n);
  if (row->y_h) smelt_st_upto(row->y_h + u, row->empty ? zero : h, n);
  if (cell->kind != SMELT_LSTM) return;
  if (row->active) st_f32(row->c + u, c);
  else c = ld_f32(row->c + u);
  if (row->y_c) smelt_st_upto(row->y_c + u, row->empty ? zero : c, n);
}

typedef void (*smelt_cell_finish_fn)(const smelt_cell *cell, const smelt_cell_row *row, const v_f32 *sums, int64_t u, int phase);
#define SMELT_CELL_FINISH(name, kind, phases, usual)                                                                       \
  static __attribute__((noinline)) void name(const smelt_cell *cell, const smelt_cell_row *row, const v_f32 *sums,         \
                                             int64_t u, int phase) {                                                       \
    v_f32 c = bc_f32(0);                                                                                                   \
    if (phases == 2 && !phase) {                                                                                           \
      smelt_new_state(cell, row, sums, u, &c, kind, phases, 0, usual);                                                     \
      return;                                                                                                              \
    }                                                                                                                      \
    const v_f32 h = smelt_new_state(cell, row, sums, u, &c, kind, phases, phases - 1, usual);                               \
    smelt_store_state(cell, row, u, h, c);                                                                                 \
  }
SMELT_CELL_FINISH(smelt_finish_lstm, SMELT_LSTM, 1, 1)
SMELT_CELL_FINISH(smelt_finish_lstm_any, SMELT_LSTM, 1, 0)
SMELT_CELL_FINISH(smelt_finish_gru, SMELT_GRU, 1, 1)
SMELT_CELL_FINISH(smelt_finish_gru_any, SMELT_GRU, 1, 0)
SMELT_CELL_FINISH(smelt_finish_gru_reset, SMELT_GRU, 2, 1)
SMELT_CELL_FINISH(smelt_finish_gru_reset_any, SMELT_GRU, 2, 0)
SMELT_CELL_FINISH(smelt_finish_rnn, SMELT_RNN, 1, 1)
SMELT_CELL_FINISH(smelt_finish_rnn_any, SMELT_RNN, 1, 0)

static smelt_cell_finish_fn smelt_cell_finish(const smelt_cell *cell) {
  if (cell->kind == SMELT_LSTM) return cell->usual ? smelt_finish_lstm : smelt_finish_lstm_any;
  if (cell->kind == SMELT_RNN) return cell->usual ? smelt_finish_rnn : smelt_finish_rnn_any;
  if (cell->modified) return cell->usual ? smelt_finish_gru : smelt_finish_gru_any;
  return cell->usual ? smelt_finish_gru_reset : smelt_finish_gru_reset_any;
}

/* Products that a step needs before the next can begin: where a GRU resets its state first, two. */
SMELT_FN int smelt_cell_phases(const smelt_cell *cell) { return cell->kind == SMELT_GRU && !cell->modified ? 2 : 1; }

/* A tile of rows through a range of vectors: two at a time where that gives enough independent sums. */
static void smelt_cell_tile(const smelt_cell *cell, int64_t step, int phase, int64_t row, int tile, int64_t v0, int64_t v1) {
  const smelt_cell_finish_fn finish = smelt_cell_finish(cell);
  const int R = smelt_cell_tiles[tile], gates = smelt_gates(cell->kind, smelt_cell_phases(cell), phase);
  const int64_t panel_step = cell->hidden * SMELT_CELL_PANEL;
  const int64_t vector_step = SMELT_L == SMELT_CELL_PANEL ? cell->gates * panel_step : SMELT_L;
  smelt_cell_row rows[SMELT_CELL_ROWS];
  const float *a[SMELT_CELL_ROWS];
  int any = 0;
  for (int r = 0; r < R; r++) {
    rows[r] = smelt_row_at(cell, step, row + r);
    a[r] = phase ? cell->reset + (row + r) * cell->padded : rows[r].h;
    any |= rows[r].active;
  }
  for (int64_t v = v0; !any && v < v1; v++)
    for (int r = 0; r < R; r++) smelt_store_state(cell, &rows[r], v * SMELT_L, bc_f32(0), bc_f32(0));
  for (int64_t v = v0; any && v < v1;) {
    v_f32 sums[SMELT_CELL_ROWS * 2 * SMELT_CELL_GATES];
    const int64_t u = v * SMELT_L;
    const float *panel = cell->panels + (u / SMELT_CELL_PANEL * cell->gates + (phase ? 2 : 0)) * panel_step + u % SMELT_CELL_PANEL;
    /* Two vectors of one panel lie side by side; two panels where a vector is one. */
    const int V = tile < SMELT_CELL_WIDE && v + 2 <= v1 && (SMELT_L == SMELT_CELL_PANEL || v % 2 == 0) ? 2 : 1;
    (V == 2 ? smelt_cell_wide : smelt_cell_narrow)[tile][gates - 1](a, panel, panel_step, vector_step, cell->hidden, sums);
    for (int r = 0; r < R; r++)
      for (int i = 0; i < V; i++) finish(cell, &rows[r], sums + (r * V + i) * gates, u + i * SMELT_L, phase);
    v += V;
  }
}

/* Rows `row` to `end`, vectors of units `v0` to `v1`. */
static __attribute__((unused)) void smelt_cell_step(const smelt_cell *cell, int64_t step, int phase, int64_t row, int64_t end,
                                                    int64_t v0, int64_t v1) {
  for (int tile = SMELT_CELL_TILES - 1; tile >= 0; tile--)
    for (; row + smelt_cell_tiles[tile] <= end; row += smelt_cell_tiles[tile])
      smelt_cell_tile(cell, step, phase, row, tile, v0, v1);
}

#endif
