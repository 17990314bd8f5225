/* Exact 8-bit micro-kernels of AArch64, and which ones packed rows reach: dot products of four bytes (dotprod), and of two rows and two columns of eight bytes (i8mm).
 *
 * Input:     as int8_tiles.h says; A is int8 (uint8 less 128) for dotprod, uint8 for i8mm.
 * Output:    R x (16 * P) sums of uint8 a times b, modulo 2^32: with dotprod the columns' sums times 128 come first.
 * Invariant: no step saturates. Tiles of 1 and 3 rows are dot products with i8mm, too: pairs of rows would be half empty.
 */
#ifndef SMELT_INT8_DOTS_ARM_H
#define SMELT_INT8_DOTS_ARM_H

#include <smelt/int8/int8_tiles.h>

#ifdef SMELT_INT8_ARM
typedef int64_t smelt_int8_d __attribute__((vector_size(16), may_alias));

SMELT_INT8_BYTES_STEP(smelt_int8_sdot_step, __asm__("sdot %0.4s, %1.16b, %2.16b" : "+w"(sums[i * row + j]) : "w"(all), "w"(four[j]));)
SMELT_INT8_BYTES_STEP(smelt_int8_usdot_step, __asm__("usdot %0.4s, %1.16b, %2.16b" : "+w"(sums[i * row + j]) : "w"(all), "w"(four[j]));)
SMELT_INT8_BLOCK(sdot, 4, ((const smelt_int8_vu *)header->sums)[j % SMELT_INT8_VPP] * 128)
SMELT_INT8_BLOCK(usdot, 4, (smelt_int8_v){0})

#define SMELT_INT8_ZIP(OP, TYPE, X, Y) ({ smelt_int8_v zipped; __asm__(OP " %0." TYPE ", %1." TYPE ", %2." TYPE : "=w"(zipped) : "w"(X), "w"(Y)); zipped; })

/* Two rows of one group, or one where the second is not there. */
SMELT_INLINE smelt_int8_v smelt_int8_two_rows(const char *a, int both) {
  int64_t word = 0;
  __builtin_memcpy(&word, a, both ? 8 : 4);
  return (smelt_int8_v)(smelt_int8_d){word, 0};
}

/* Two groups, or one where `two` is 0, of R rows times the columns of one panel: b and b + apart have the groups. */
SMELT_INLINE void smelt_int8_mmla_step(const int R, const int two, const char *a, const char *a_next, const char *b, const char *b_next,
                                       smelt_int8_v *sums) {
  const smelt_int8_v none = {0};
  smelt_int8_v pair[(SMELT_INT8_ROWS + 1) / 2];
  SMELT_INT8_UNROLL for (int i = 0; i < (R + 1) / 2; i++) {
    const int both = 2 * i + 1 < R;
    pair[i] = SMELT_INT8_ZIP("zip1", "4s", smelt_int8_two_rows(a + 8 * i, both), two ? smelt_int8_two_rows(a_next + 8 * i, both) : none);
  }
  SMELT_INT8_UNROLL for (int v = 0; v < SMELT_INT8_VPP; v++) {
    const smelt_int8_v x = *(const smelt_int8_vu *)(b + 16 * v), y = two ? *(const smelt_int8_vu *)(b_next + 16 * v) : none;
    const smelt_int8_v low = SMELT_INT8_ZIP("zip1", "4s", x, y), high = SMELT_INT8_ZIP("zip2", "4s", x, y);
    SMELT_INT8_UNROLL for (int i = 0; i < (R + 1) / 2; i++) {
      smelt_int8_v *at = sums + i * 2 * SMELT_INT8_VPP + 2 * v;
      __asm__("usmmla %0.4s, %1.16b, %2.16b" : "+w"(at[0]) : "w"(pair[i]), "w"(low));
      __asm__("usmmla %0.4s, %1.16b, %2.16b" : "+w"(at[1]) : "w"(pair[i]), "w"(high));
    }
  }
}

/* One panel: sums of two rows and two columns lie in a vector until they are stored, `row` vectors to a row. */
SMELT_INLINE void smelt_int8_mmla_panel(const int R, const int row, const char *a, const char *panel, int64_t groups, int32_t *out) {
  enum { PAIR = 2 * SMELT_INT8_VPP };
  smelt_int8_v sums[(SMELT_INT8_ROWS + 1) / 2 * PAIR];
  const char *b = panel + sizeof(smelt_int8_header), *spare = b + SMELT_INT8_STEP * groups;
  const int32_t *of = (const int32_t *)(spare + SMELT_INT8_STEP * smelt_int8_spare(groups));
  const int32_t spares = ((const smelt_int8_header *)panel)->spares;
  SMELT_INT8_UNROLL for (int i = 0; i < (R + 1) / 2 * PAIR; i++) sums[i] = (smelt_int8_v){0};
  int64_t g = 0;
  for (; g + 2 <= groups; g += 2) {
    const char *from = a + 4 * R * g, *with = b + SMELT_INT8_STEP * g;
    smelt_int8_mmla_step(R, 1, from, from + 4 * R, with, with + SMELT_INT8_STEP, sums);
  }
  if (g < groups) smelt_int8_mmla_step(R, 0, a + 4 * R * g, a, b + SMELT_INT8_STEP * g, b, sums);
  for (int32_t e = 0; e < spares; e++) smelt_int8_mmla_step(R, 0, a + 4 * R * (int64_t)of[e], a, spare + SMELT_INT8_STEP * e, b, sums);
  SMELT_INT8_UNROLL for (int i = 0; i < R; i++)
    SMELT_INT8_UNROLL for (int v = 0; v < SMELT_INT8_VPP; v++) {
      const smelt_int8_v *at = sums + i / 2 * PAIR + 2 * v;
      smelt_int8_vu *to = (smelt_int8_vu *)(out + (i * row + v) * SMELT_INT8_LANES);
      if (i % 2) *to = SMELT_INT8_ZIP("zip2", "2d", at[0], at[1]);
      else *to = SMELT_INT8_ZIP("zip1", "2d", at[0], at[1]);
    }
}

SMELT_INLINE void smelt_int8_mmla_block(const int R, const int P, const char *a, const char *panel, int64_t stride, int64_t groups,
                                        int32_t *out) {
  if (R == 1 || R == 3) {
    smelt_int8_usdot_block(R, P, a, panel, stride, groups, out);
    return;
  }
  for (int p = 0; p < P; p++)
    smelt_int8_mmla_panel(R, P * SMELT_INT8_VPP, a, panel + p * stride, groups, out + p * SMELT_INT8_PANEL);
}

SMELT_INT8_TABLE(smelt_int8_sdots, sdot, i8i8i32_gemm, dotprod, __attribute__((target("+dotprod"))))
SMELT_INT8_TABLE(smelt_int8_mmlas, mmla, u8i8i32_gemm, i8mm, __attribute__((target("+i8mm"))))
#endif

/* How rows that are packed reach the tiles: in the fastest form that is exact on this CPU for panels whose pairs are small or not. */
static __attribute__((unused)) int smelt_int8_packed_form(int small) {
#ifdef SMELT_INT8_ARM
  if (smelt_has(SMELT_CPU_i8mm)) return SMELT_INT8_QUADS;
  if (smelt_has(SMELT_CPU_dotprod)) return SMELT_INT8_SIGNED;
#endif
  return small ? SMELT_INT8_PAIRS : SMELT_INT8_WIDE;
}

static __attribute__((unused)) smelt_int8_tiles smelt_int8_packed_tiles(int form) {
#ifdef SMELT_INT8_ARM
  if (form == SMELT_INT8_QUADS) return smelt_int8_mmlas;
  if (form == SMELT_INT8_SIGNED) return smelt_int8_sdots;
#endif
  return form == SMELT_INT8_PAIRS ? smelt_int8_pairs_ : smelt_int8_wide;
}

#endif
