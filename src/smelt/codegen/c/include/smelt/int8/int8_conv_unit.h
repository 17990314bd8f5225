/* An 8-bit convolution, or a product of rows and a constant matrix, as a unit of its own.
 *
 * Input:     a task as int8_layer.h says.
 * Output:    [batch, OH, OW, groups * columns].
 * Invariant: as int8_conv.h says.
 */
#ifndef SMELT_INT8_CONV_UNIT_H
#define SMELT_INT8_CONV_UNIT_H

#include <smelt/int8/int8_conv.h>

int32_t SMELT_NAME(smelt_int8_conv)(smelt_task *t) {
  const int64_t *s = t->s;
  smelt_int8_conv c = {.l = smelt_int8_layer_of(t), .x = t->b[SMELT_LB_X], .panels = t->b[SMELT_LB_W], .stride = s[SMELT_LS_STEP]};
  c.rows = s[SMELT_LS_BATCH] * s[SMELT_LS_OH] * s[SMELT_LS_OW];
  if (c.rows <= 0 || s[SMELT_LS_COLUMNS] <= 0) return SMELT_OK;
  smelt_int8_conv_form(&c);
  smelt_int8_columns_of(&c.l, c.panels, c.stride, c.form != SMELT_INT8_WIDE);
  smelt_int8_with_table(&c.l.stage, t->b[SMELT_LB_TABLE]);
  smelt_int8_conv_sizes(&c);
  if (s[SMELT_LS_LINES]) smelt_int8_pad(&c);
  c.groups = smelt_int8_groups(c.tap);
  smelt_int8_conv_taps(&c);
  smelt_int8_conv_cut(&c, t->env->processors);
  const int64_t tasks = s[SMELT_LS_GROUPS] * c.blocks * c.across;
  if (smelt_reserve(t, tasks, smelt_int8_conv_bytes(&c))) return t->env->code;
  if (tasks == 1) smelt_int8_conv_body(&c, 0);
  else t->env->parallel(t->env, tasks, smelt_int8_conv_body, &c);
  if (!t->work->collecting) t->work->slots = t->work->slot_bytes = 0;
  return t->env->code;
}

#endif
