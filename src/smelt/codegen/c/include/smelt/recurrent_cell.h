/* One step of a recurrent layer for some rows and some units: the recurrent product, the gates, the new states.
 *
 * Input:     smelt_cell, a step, a range of rows and one of blocks of 16 units. Output: smelt_cell_step().
 * Invariant: an element is a product of gemm.h, whose bits depend on its row and column alone, then the input's product and the
 *            bias: they depend neither on how rows and units are grouped nor on threads. Gates never leave L1.
 */
#ifndef SMELT_RECURRENT_CELL_H
#define SMELT_RECURRENT_CELL_H

#include <smelt/recurrent_any.h>
#include <smelt/recurrent_row.h>

enum {
  SMELT_CELL_ROWS = 48,   /* that are taken through all units at a time */
  SMELT_CELL_SUMS = 4096 /* floats of their sums: they stay in L1, beside a panel */
};

/* The sums of some rows, block by block and gate by gate. Of a GRU that resets first a phase reads two gates of each block, then
 * the third. */
static void smelt_cell_sums(const smelt_cell *cell, const float *a, int64_t rows, int phase, int64_t block, int64_t blocks,
                            float *sums) {
  const int64_t gates = smelt_gates(cell->kind, smelt_cell_phases(cell), phase), ld = blocks * gates * SMELT_CELL_PANEL;
  const int64_t K = cell->hidden, panel = K * SMELT_CELL_PANEL, whole = cell->gates * panel;
  const float *b = cell->panels + block * whole + (phase ? 2 * panel : 0);
  if (rows == 1)
    smelt_row_product(a, b, gates == 1 ? whole : panel, gates == 2 ? whole : gates == 1 ? 2 * whole : 2 * panel, K, sums,
                      blocks * gates);
  else if (gates == cell->gates)
    smelt_gemm_f32(a, cell->padded, b, K, sums, ld, rows, 0, blocks * gates, ld, NULL);
  else if (gates == 1)
    smelt_gemm_f32_within(a, cell->padded, 1, b, cell->gates * K, K, sums, ld, rows, 0, blocks, ld, NULL);
  else
    for (int64_t i = 0; i < blocks; i++)
      smelt_gemm_f32(a, cell->padded, b + i * whole, K, sums + i * gates * SMELT_CELL_PANEL, ld, rows, 0, gates,
                     gates * SMELT_CELL_PANEL, NULL);
}

/* What the inputs give to the gates of a row lies far away: it is asked for before the products, in the order of memory. */
static void smelt_cell_prefetch(const smelt_cell *cell, const smelt_cell_row *row, int phase, int64_t block, int64_t blocks) {
  const int64_t first = phase ? 2 : 0, gates = smelt_gates(cell->kind, smelt_cell_phases(cell), phase);
  const float *x = row->x + first * cell->hidden + block * SMELT_CELL_PANEL;
  for (int64_t g = 0; g < gates; g++, x += cell->hidden)
    for (int64_t i = 0; i < blocks; i++) __builtin_prefetch(x + i * SMELT_CELL_PANEL);
}

/* The sums of some rows and blocks, then their gates. */
static void smelt_cell_group(const smelt_cell *cell, const smelt_cell_row *rows, int64_t count, const float *a, int phase,
                             int64_t block, int64_t blocks) {
  float sums[SMELT_CELL_SUMS] __attribute__((aligned(64)));
  const int64_t ld = blocks * smelt_gates(cell->kind, smelt_cell_phases(cell), phase) * SMELT_CELL_PANEL;
  const smelt_cell_finish_fn finish = smelt_cell_finish(cell, phase);
  int any = 0;
  for (int64_t r = 0; r < count; r++) any |= rows[r].active;
  if (any) smelt_cell_sums(cell, a, count, phase, block, blocks, sums);
  for (int64_t r = 0; r < count; r++) {
    (rows[r].active ? finish : smelt_keep_state)(cell, &rows[r], sums + r * ld, block * SMELT_CELL_PANEL,
                                                 (block + blocks) * SMELT_CELL_PANEL);
  }
}

/* Rows `row` to `end`, blocks of units `b0` to `b1`. */
static __attribute__((unused)) void smelt_cell_step(const smelt_cell *cell, int64_t step, int phase, int64_t row, int64_t end,
                                                    int64_t b0, int64_t b1) {
  smelt_cell_row rows[SMELT_CELL_ROWS];
  const int64_t gates = smelt_gates(cell->kind, smelt_cell_phases(cell), phase);
  for (int64_t chunks = (end - row + SMELT_CELL_ROWS - 1) / SMELT_CELL_ROWS; chunks; chunks--) {
    const int64_t count = (end - row) / chunks, most = smelt_max(1, SMELT_CELL_SUMS / (count * gates * SMELT_CELL_PANEL));
    for (int64_t r = 0; r < count; r++) rows[r] = smelt_row_at(cell, step, row + r);
    const float *a = phase ? cell->reset + row * cell->padded : rows[0].h;
    for (int64_t r = 0; r < count; r++) smelt_cell_prefetch(cell, &rows[r], phase, b0, b1 - b0);
    for (int64_t b = b0; b < b1; b += most) smelt_cell_group(cell, rows, count, a, phase, b, smelt_min(most, b1 - b));
    row += count;
  }
}

#endif
