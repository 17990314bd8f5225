/* What quantized numbers become by a function of one variable, quantized again: each byte by a table of 256.
 *
 * Input:     a stage, a table, a tile of bytes and its place.
 * Output:    the tile, each byte replaced; where registers hold the table, its stores replace them instead.
 * Invariant: a byte is its own place in the table, whether it is signed or not.
 */
#ifndef SMELT_INT8_TABLE_H
#define SMELT_INT8_TABLE_H

#include <smelt/int8/int8_epilogue.h>

/* Lets the stores of tiles use the table, where they can. */
SMELT_INLINE void smelt_int8_with_table(smelt_int8_stage *s, const uint8_t *table) {
#if SMELT_VL == 64 && SMELT_VEX
  if (s->fits && smelt_has(SMELT_CPU_avx512vbmi)) s->table = table;
#else
  (void)s, (void)table;
#endif
}

/* All bytes of a tile that was stored. */
static __attribute__((unused)) void smelt_int8_look_up(const smelt_int8_stage *s, const uint8_t *table, const smelt_int8_place *p,
                                                       uint8_t *y) {
  if (s->table || !table) return;
  const int64_t count = smelt_min(p->panels * SMELT_INT8_PANEL, p->columns - p->first);
  uint8_t *at = y + p->row * p->stride + p->group * p->columns + p->first;
  for (int64_t r = 0; r < p->rows; r++, at += p->stride)
    for (int64_t i = 0; i < count; i++) at[i] = table[at[i]];
}

#endif
