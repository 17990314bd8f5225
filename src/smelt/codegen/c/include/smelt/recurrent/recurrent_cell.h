/* One step of a recurrent layer for some rows and some units: both products, the gates, the new states.
 *
 * Input:     smelt_cell, a step, a range of rows and one of blocks of 16 units. Output: smelt_cell_step().
 * Invariant: an element is the inputs' product, plus the state's, plus the bias; both are products of gemm.h, whose bits depend
 *            on their row and column alone: they depend neither on how rows, units and steps are grouped nor on threads. Gates
 *            never leave L1.
 */
#ifndef SMELT_RECURRENT_CELL_H
#define SMELT_RECURRENT_CELL_H

#include <smelt/recurrent/recurrent_inputs.h>

enum {
  SMELT_CELL_ROWS = 48,   /* that are taken through all units at a time */
  SMELT_CELL_SUMS = 4096 /* floats of their sums: they stay in L1, beside a panel */
};

/* The sums of some rows and blocks, then their gates. */
static void smelt_cell_group(const smelt_cell *cell, const smelt_cell_row *rows, int64_t count, const float *a, int phase,
                             int64_t block, int64_t blocks) {
  float sums[SMELT_CELL_SUMS] __attribute__((aligned(64))), own[SMELT_CELL_SUMS] __attribute__((aligned(64)));
  const int64_t wide = blocks * smelt_gates(cell->kind, smelt_cell_phases(cell), phase) * SMELT_CELL_PANEL;
  const int made = rows[0].sums != NULL;
  float *x = made ? rows[0].sums + smelt_sums_block(cell, phase, block) : own;
  const int64_t ld = made ? cell->sums_row : wide;
  const smelt_cell_epilogue_fn epilogue = smelt_cell_epilogue(cell, phase);
  int any = 0;
  for (int64_t r = 0; r < count; r++) any |= rows[r].active;
  if (any && !made) smelt_rows_inputs(cell, rows, count, phase, block, blocks, x, ld);
  if (any) smelt_cell_product(cell, a, cell->padded, count, cell->panels, cell->hidden, phase, block, blocks, sums, wide);
  for (int64_t r = 0; r < count; r++)
    (rows[r].active ? epilogue : smelt_keep_state)(cell, &rows[r], sums + r * wide, x + r * ld, block * SMELT_CELL_PANEL,
                                                 (block + blocks) * SMELT_CELL_PANEL);
}

/* What many rows write at this step and read at the next one is not in L2: it is prefetched before the products. */
static void smelt_cell_prefetch(const smelt_cell *cell, const smelt_cell_row *row, int64_t b0, int64_t b1) {
  const float *x = row->x + (cell->reverse ? -cell->x_step : cell->x_step), *y = row->y ? row->y + b0 * SMELT_CELL_PANEL : NULL;
  for (int64_t k = 0; k < cell->width; k += SMELT_CELL_PANEL) __builtin_prefetch(x + k);
  for (int64_t b = b0; y && b < b1; b++, y += SMELT_CELL_PANEL) __builtin_prefetch(y, 1);
}

/* The rows of the part at a step, blocks of units `b0` to `b1`. The first phase of a span of steps makes the inputs' products. */
static __attribute__((unused)) void smelt_cell_step(const smelt_cell *cell, const smelt_cell_part *part, int64_t step, int phase,
                                                    int64_t b0, int64_t b1) {
  smelt_cell_row rows[SMELT_CELL_ROWS];
  const int64_t gates = smelt_gates(cell->kind, smelt_cell_phases(cell), phase);
  const int fused = smelt_cell_fused(cell);
  int64_t row = part->row;
  for (int64_t chunks = (part->end - row + SMELT_CELL_ROWS - 1) / SMELT_CELL_ROWS; chunks; chunks--) {
    const int64_t count = (part->end - row) / chunks, most = smelt_max(1, SMELT_CELL_SUMS / (count * gates * SMELT_CELL_PANEL));
    for (int64_t r = 0; r < count; r++) {
      rows[r] = smelt_row_at(cell, step, row + r);
      rows[r].sums = fused ? NULL : smelt_sums_of(cell, part, step, row + r);
    }
    for (int64_t r = 0; fused && !phase && r < count; r++) smelt_cell_prefetch(cell, &rows[r], b0, b1);
    const float *a = phase ? cell->reset + row * cell->padded : rows[0].h;
    for (int64_t b = b0; b < b1; b += most) smelt_cell_group(cell, rows, count, a, phase, b, smelt_min(most, b1 - b));
    row += count;
  }
}

/* Whether a task has to make the inputs' products of coming steps before this one. */
SMELT_FN int smelt_span_begins(const smelt_cell *cell, const smelt_cell_part *part, int64_t step, int phase) {
  return !phase && !smelt_cell_fused(cell) && (step - part->from) % cell->span == 0;
}

#endif
