/* Rows of a table that is packed as block-quantized weights: one memory for the embedding and the product of the logits.
 *
 * Input:     smelt_task: b and s as the enums below count them. Indices of 32 or 64 bits; the table as nbits.h reads it, where a row
 *            is a column of a panel.
 * Output:    [count, K]: scale * (q - zero point) of the chosen rows.
 * Invariant: negative indices count from the end; any other outside of the table is an error, before a row is written.
 */
#ifndef SMELT_GATHER_BLOCKS_UNIT_H
#define SMELT_GATHER_BLOCKS_UNIT_H

#include <smelt/nbits/nbits.h>

enum { SMELT_GB_INDICES, SMELT_GB_TABLE, SMELT_GB_SCALES, SMELT_GB_ZEROS, SMELT_GB_Y };
enum { SMELT_GBS_COUNT, SMELT_GBS_K, SMELT_GBS_N, SMELT_GBS_BITS, SMELT_GBS_BLOCK, SMELT_GBS_ZERO_KIND, SMELT_GBS_WIDE, SMELT_GBS_HALVES };
enum { SMELT_GB_EACH = 16 }; /* rows of a task */

SMELT_INLINE int64_t smelt_gb_index(const smelt_task *t, int64_t i) {
  const void *at = t->b[SMELT_GB_INDICES];
  const int64_t index = t->s[SMELT_GBS_WIDE] ? ((const int64_t *)at)[i] : ((const int32_t *)at)[i];
  return index < 0 ? index + t->s[SMELT_GBS_N] : index;
}

/* One block of a row: its words are a line apart. */
SMELT_INLINE void smelt_gb_block(const uint32_t *words, int64_t count, int bits, float scale, float zero, float *to) {
  const uint32_t mask = (1u << bits) - 1;
  for (int64_t i = 0; i < count; i++, words += SMELT_NB_PANEL)
    for (int t = 0; t < 8 / bits; t++)
      for (int j = 0; j < 4; j++) *to++ = ((float)(*words >> (8 * j + bits * t) & mask) - zero) * scale;
}

SMELT_INLINE float smelt_gb_scale(const smelt_task *t, int64_t at) {
  const void *scales = t->b[SMELT_GB_SCALES];
  if (!t->s[SMELT_GBS_HALVES]) return ((const float *)scales)[at];
  return ld_f16((const uint16_t *)scales + at / SMELT_L * SMELT_L)[at % SMELT_L];
}

static void smelt_gb_row(const smelt_task *t, int64_t index, float *to) {
  const int bits = (int)t->s[SMELT_GBS_BITS];
  const int64_t block = t->s[SMELT_GBS_BLOCK], blocks = t->s[SMELT_GBS_K] / block, lines = block * bits / 32;
  const int64_t panel = index / SMELT_NB_PANEL, column = index % SMELT_NB_PANEL;
  const uint8_t *zeros = (const uint8_t *)t->b[SMELT_GB_ZEROS];
  for (int64_t b = 0; b < blocks; b++, to += block) {
    const int64_t at = (panel * blocks + b) * SMELT_NB_PANEL + column;
    const uint32_t *words = (const uint32_t *)t->b[SMELT_GB_TABLE] + (panel * blocks + b) * lines * SMELT_NB_PANEL + column;
    const float zero = t->s[SMELT_GBS_ZERO_KIND] == SMELT_NB_CENTERED ? (float)(1 << (bits - 1)) : (float)zeros[at];
    smelt_gb_block(words, lines, bits, smelt_gb_scale(t, at), zero, to);
  }
}

static void smelt_gb_body(void *context, int64_t index) {
  const smelt_task *t = context;
  const int64_t last = smelt_min((index + 1) * SMELT_GB_EACH, t->s[SMELT_GBS_COUNT]), depth = t->s[SMELT_GBS_K];
  for (int64_t i = index * SMELT_GB_EACH; i < last; i++) smelt_gb_row(t, smelt_gb_index(t, i), (float *)t->b[SMELT_GB_Y] + i * depth);
}

int32_t SMELT_NAME(smelt_gather_blocks)(smelt_task *t);
int32_t SMELT_NAME(smelt_gather_blocks)(smelt_task *t) {
  const int64_t count = t->s[SMELT_GBS_COUNT], rows = t->s[SMELT_GBS_N];
  for (int64_t i = 0; i < count; i++) {
    const int64_t index = smelt_gb_index(t, i);
    if (index < 0 || index >= rows) return smelt_fail(t->env, SMELT_E_INDEX, -1, index, rows, 0);
  }
  const int64_t tasks = (count + SMELT_GB_EACH - 1) / SMELT_GB_EACH;
  if (tasks == 1) smelt_gb_body(t, 0);
  else if (tasks) t->env->parallel(t->env, tasks, smelt_gb_body, t);
  return t->env->code;
}

#endif
