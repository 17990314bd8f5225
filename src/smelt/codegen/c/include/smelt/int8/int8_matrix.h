/* Rows of bytes times one packed matrix, on the thread that asks: an 8-bit layer within another function.
 *
 * Input:     smelt_int8_matrix: operands and numbers as those of int8_layer.h, rows of whole groups of four bytes.
 * Output:    what the layer gives.
 * Invariant: as int8_conv.h says. Memory is the caller's.
 */
#ifndef SMELT_INT8_MATRIX_H
#define SMELT_INT8_MATRIX_H

#include <smelt/int8/int8_conv.h>

typedef struct {
  void *b[SMELT_LB_SCRATCH + 1];
  int64_t s[SMELT_LS_SHIFTS + 1];
  smelt_task task;
} smelt_int8_matrix;

static const double smelt_int8_no_limits[4] = {-__builtin_inf(), __builtin_inf(), -__builtin_inf(), __builtin_inf()};

/* All numbers of M rows of `wide` bytes times N columns, unsigned ones with one scale and zero point. */
static void smelt_int8_numbers_of(const smelt_task *t, smelt_int8_matrix *m, int64_t M, int64_t wide, int64_t N, int64_t stride, int64_t result) {
  for (int64_t i = 0; i <= SMELT_LS_SHIFTS; i++) m->s[i] = i < SMELT_LS_TOP || i >= SMELT_LS_W_SCALES; /* sizes, strides and counts of 1 */
  m->s[SMELT_LS_W] = m->s[SMELT_LS_OW] = M, m->s[SMELT_LS_C] = wide;
  m->s[SMELT_LS_COLUMNS] = N, m->s[SMELT_LS_STEP] = stride, m->s[SMELT_LS_RESULT] = result, m->s[SMELT_LS_NCHW] = 0;
  m->task = *t, m->task.b = m->b, m->task.s = m->s, m->task.f = smelt_int8_no_limits;
}

static smelt_int8_conv smelt_int8_conv_of_rows(const smelt_int8_matrix *m) {
  smelt_int8_conv c = {.l = smelt_int8_layer_of(&m->task), .x = m->b[SMELT_LB_X], .panels = m->b[SMELT_LB_W], .stride = m->s[SMELT_LS_STEP]};
  c.rows = m->s[SMELT_LS_W], c.in_place = smelt_int8_in_place(), c.taps = 1;
  c.groups = m->s[SMELT_LS_C] / SMELT_INT8_GROUP;
  c.form = c.in_place ? SMELT_INT8_QUADS : smelt_int8_packed_form(0), c.bytes = smelt_int8_group_bytes(c.form);
  return c;
}

/* What columns need, and a tap of zeros. */
SMELT_INLINE int64_t smelt_int8_columns_bytes(int64_t panels, int64_t wide) {
  return (panels * SMELT_INT8_PANEL * 20 + wide + 2 * 64 + 63) & ~(int64_t)63;
}

/* In memory of smelt_int8_conv_bytes(). */
static void smelt_int8_rows_times(smelt_int8_conv *c, char *memory) {
  if (c->rows <= 0) return;
  smelt_int8_columns_of(&c->l, c->panels, c->stride, c->form != SMELT_INT8_WIDE);
  smelt_int8_conv_sizes(c), smelt_int8_conv_taps(c), smelt_int8_conv_cut(c, 1);
  for (int64_t i = 0; i < c->blocks; i++) smelt_int8_conv_block(c, i, memory);
}

#endif
