/* The products of a recurrent layer: those of its inputs, which no step waits for, and those of its state.
 *
 * Input:     smelt_cell, rows and steps of a task. Output: smelt_cell_product(), smelt_cell_fill(), smelt_rows_inputs().
 * Invariant: the inputs' products never leave the core's caches. A few rows have those of as many steps at a time as
 *            SMELT_CELL_SPAN_FLOATS hold, since a product of more rows reads its panels less often; from SMELT_CELL_FUSED_ROWS
 *            rows on each step makes its own, in L1, right before the state's.
 */
#ifndef SMELT_RECURRENT_INPUTS_H
#define SMELT_RECURRENT_INPUTS_H

#include <smelt/recurrent/recurrent_any.h>
#include <smelt/recurrent/recurrent_row.h>

#define SMELT_CELL_SPAN_FLOATS smelt_sizes.cell_span_floats /* of an L2, where the recurrent weights are too */
enum {
  SMELT_CELL_FUSED_ROWS = 32,
  SMELT_CELL_COPIED = 8192       /* floats of rows that are copied, since each is at a step of its own */
};

/* Rows and steps of a task. */
typedef struct {
  int64_t row, end, from, to;
} smelt_cell_part;

/* Rows that run backwards from ends of their own. */
SMELT_FN int smelt_cell_ragged(const smelt_cell *cell) { return cell->reverse && cell->lengths; }

SMELT_FN int smelt_cell_fused(const smelt_cell *cell) { return cell->rows >= SMELT_CELL_FUSED_ROWS; }

/* Where the products of a row's inputs are: rows of a step follow each other. */
SMELT_FN float *smelt_sums_of(const smelt_cell *cell, const smelt_cell_part *part, int64_t step, int64_t row) {
  const int64_t rows = part->end - part->row, place = (step - part->from) % cell->span * rows + (row - part->row);
  return cell->sums + (part->row * cell->span + place) * cell->sums_row;
}

/* Where a block begins in such a row. Of a GRU with two phases the panels of the second lie behind all those of the first. */
SMELT_FN int64_t smelt_sums_block(const smelt_cell *cell, int phase, int64_t block) {
  const int phases = smelt_cell_phases(cell), gates = smelt_gates(cell->kind, phases, phase);
  return block * gates * SMELT_CELL_PANEL + (phase ? 2 * cell->padded : 0);
}

/* c = rows of a times the panels of a phase's gates: of a GRU that resets first two of each block, then the third. */
static void smelt_cell_product(const smelt_cell *cell, const float *a, int64_t lda, int64_t rows, const float *panels, int64_t K,
                               int phase, int64_t block, int64_t blocks, float *c, int64_t ldc) {
  const int64_t gates = smelt_gates(cell->kind, smelt_cell_phases(cell), phase), panel = K * SMELT_CELL_PANEL;
  const int64_t whole = cell->gates * panel, calls = gates == 2 ? blocks : 1, each = gates == 2 ? gates : blocks * gates;
  const float *b = panels + block * whole + (phase ? 2 * panel : 0);
  const int64_t deep = gates == cell->gates || gates == 2 ? K : cell->gates * K;
  if (rows == 1 && K > 0) {
    smelt_row_product(a, b, deep * SMELT_CELL_PANEL, gates == 2 ? whole : 2 * deep * SMELT_CELL_PANEL, K, c, blocks * gates);
    return;
  }
  for (int64_t i = 0; i < calls; i++, b += whole, c += each * SMELT_CELL_PANEL)
    smelt_gemm_f32_within(a, lda, 1, b, deep, K, c, ldc, rows, 0, each, each * SMELT_CELL_PANEL, NULL);
}

/* c = rows of inputs times their weights. */
static void smelt_input_product(const smelt_cell *cell, const float *x, int64_t ldx, int64_t rows, int phase, int64_t block,
                                int64_t blocks, float *c, int64_t ldc) {
  smelt_cell_product(cell, x, ldx, rows, cell->input_panels, cell->width, phase, block, blocks, c, ldc);
}

/* The inputs' products of steps `step` to `end`, of one phase and some blocks, row by row: these may have lengths of their own. */
static void smelt_fill_rows(const smelt_cell *cell, const smelt_cell_part *part, int64_t step, int64_t end, int phase,
                            int64_t block, int64_t blocks) {
  for (int64_t row = part->row; row < part->end; row++) {
    const int64_t length = cell->lengths ? cell->lengths[row] : cell->steps, count = smelt_min(end, length) - step;
    const float *x = smelt_row_at(cell, step, row).x;
    if (count <= 0) continue;
    smelt_input_product(cell, x, cell->reverse ? -cell->x_step : cell->x_step, count, phase, block, blocks,
                        smelt_sums_of(cell, part, step, row) + smelt_sums_block(cell, phase, block),
                        (part->end - part->row) * cell->sums_row);
  }
}

/* The same at once, where rows and steps lie as one matrix. */
static void smelt_fill_matrix(const smelt_cell *cell, const smelt_cell_part *part, int64_t step, int64_t end, int phase,
                              int64_t block, int64_t blocks) {
  smelt_input_product(cell, cell->x + step * cell->x_step, cell->x_row, (end - step) * cell->rows, phase, block, blocks,
                      smelt_sums_of(cell, part, step, 0) + smelt_sums_block(cell, phase, block), cell->sums_row);
}

/* The same step by step. */
static void smelt_fill_steps(const smelt_cell *cell, const smelt_cell_part *part, int64_t step, int64_t end, int phase,
                             int64_t block, int64_t blocks) {
  for (; step < end; step++) {
    const int64_t at = cell->reverse ? cell->steps - 1 - step : step;
    smelt_input_product(cell, cell->x + at * cell->x_step + part->row * cell->x_row, cell->x_row, part->end - part->row, phase,
                        block, blocks, smelt_sums_of(cell, part, step, part->row) + smelt_sums_block(cell, phase, block),
                        cell->sums_row);
  }
}

/* Whichever gives the tallest products. */
static __attribute__((unused)) void smelt_cell_fill(const smelt_cell *cell, const smelt_cell_part *part, int64_t step, int64_t end,
                                                    int64_t block, int64_t blocks) {
  const int64_t rows = part->end - part->row;
  const int matrix = !cell->reverse && rows == cell->rows && cell->x_step == rows * cell->x_row;
  const int by_row = smelt_cell_ragged(cell) || end - step >= rows;
  for (int phase = 0; phase < smelt_cell_phases(cell); phase++)
    (matrix ? smelt_fill_matrix : by_row ? smelt_fill_rows : smelt_fill_steps)(cell, part, step, end, phase, block, blocks);
}

/* The inputs' products of rows at one step, which may be at places of their own. */
static __attribute__((unused, noinline)) void smelt_copied_product(const smelt_cell *cell, const smelt_cell_row *rows,
                                                                     int64_t count, int phase, int64_t block, int64_t blocks,
                                                                     float *c, int64_t ldc) {
  float a[SMELT_CELL_COPIED] __attribute__((aligned(64)));
  const int64_t most = SMELT_CELL_COPIED / smelt_max(1, cell->width);
  for (int64_t r = 0, n; r < count; r += n) {
    n = most < 2 ? 1 : smelt_min(most, count - r);
    for (int64_t i = 0; most >= 2 && i < n; i++) __builtin_memcpy(a + i * cell->width, rows[r + i].x, (size_t)cell->width * 4);
    smelt_input_product(cell, most < 2 ? rows[r].x : a, cell->width, n, phase, block, blocks, c + r * ldc, ldc);
  }
}

/* The inputs' products of rows at one step, wherever they are. */
static __attribute__((unused)) void smelt_rows_inputs(const smelt_cell *cell, const smelt_cell_row *rows, int64_t count, int phase,
                                                      int64_t block, int64_t blocks, float *c, int64_t ldc) {
  if (smelt_cell_ragged(cell)) smelt_copied_product(cell, rows, count, phase, block, blocks, c, ldc);
  else smelt_input_product(cell, rows[0].x, cell->x_row, count, phase, block, blocks, c, ldc);
}

#endif
