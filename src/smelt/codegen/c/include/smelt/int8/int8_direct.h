/* Exact 8-bit micro-kernels over rows at one distance: R rows, each some taps of bytes, times P packed panels of 16 columns.
 *
 * Input:     smelt_int8_strided rows, panels of B (smelt_int8_header), what to prefetch.
 * Output:    R x (16 * P) sums of a * b, modulo 2^32.
 * Invariant: for CPUs with VNNI. Four bytes of a row are broadcast from where they are; rows are addressed by a pointer for three of
 *            them and their distance, since one for each would not fit the registers. Bytes beyond a tap meet weights of 0.
 *            Signed bytes are made unsigned (plus 128) in registers.
 */
#ifndef SMELT_INT8_DIRECT_H
#define SMELT_INT8_DIRECT_H

#include <smelt/int8/int8_tiles.h>

typedef struct {
  const uint8_t *a;       /* the first row */
  const int64_t *offsets; /* of the taps */
  int64_t apart, taps, groups; /* bytes from row to row; groups of four bytes of a tap */
} smelt_int8_strided;

#ifdef SMELT_INT8_VNNI

/* What is prefetched meanwhile, a line for each group: from `at` on; with a step of 0 nothing new. */
typedef struct {
  const char *at;
  int64_t step;
} smelt_int8_ahead;

SMELT_INLINE smelt_int8_v smelt_int8_unsigned(smelt_int8_v x) {
  const smelt_int8_v flip = (int32_t)0x80808080 - (smelt_int8_v){0};
  return x ^ flip;
}

/* Four bytes in all lanes, of the row that is PLACE (0, 1, 2) rows behind the one at BASE. Spelled out: gcc makes a pointer of each. */
#define SMELT_INT8_ROW_AT(OUT, BASE, APART, PLACE)                                                                             \
  ((PLACE) == 0   ? ({ __asm__("vpbroadcastd (%1), %0" : "=v"(OUT) : "r"(BASE)); 0; })                                         \
   : (PLACE) == 1 ? ({ __asm__("vpbroadcastd (%1,%2), %0" : "=v"(OUT) : "r"(BASE), "r"(APART)); 0; })                          \
                  : ({ __asm__("vpbroadcastd (%1,%2,2), %0" : "=v"(OUT) : "r"(BASE), "r"(APART)); 0; }))

SMELT_INLINE void smelt_int8_direct_block(const int R, const int P, const int flip, const smelt_int8_strided *rows, const char *panel,
                                          int64_t stride, const smelt_int8_ahead *ahead, int32_t *out) {
  enum { BASES = (SMELT_INT8_ROWS + 2) / 3 };
  const char *next = ahead->at;
  const int64_t next_step = ahead->step, apart = rows->apart, groups = rows->groups;
  smelt_int8_v sums[SMELT_INT8_SUMS];
  const int J = P * SMELT_INT8_VPP;
  const char *b = panel + sizeof(smelt_int8_header);
  SMELT_INT8_UNROLL for (int i = 0; i < R * J; i++) sums[i] = (smelt_int8_v){0};
  for (int64_t t = 0; t < rows->taps; t++) {
    const uint8_t *a[BASES];
    SMELT_INT8_UNROLL for (int i = 0; i < BASES; i++) a[i] = rows->a + rows->offsets[t] + 3 * i * apart;
    for (const char *end = b + groups * SMELT_INT8_STEP; b < end; b += SMELT_INT8_STEP, next += next_step) {
      __builtin_prefetch(next, 0, 2);
      smelt_int8_v four[SMELT_INT8_SUMS];
      SMELT_INT8_UNROLL for (int j = 0; j < J; j++) four[j] = smelt_int8_b(b, stride, j);
      SMELT_INT8_UNROLL for (int i = 0; i < R; i++) {
        smelt_int8_v all;
        (void)SMELT_INT8_ROW_AT(all, a[i / 3], apart, i % 3);
        if (flip) all = smelt_int8_unsigned(all);
        SMELT_INT8_UNROLL for (int j = 0; j < J; j++) __asm__(SMELT_INT8_DOT : "+v"(sums[i * J + j]) : "v"(all), "v"(four[j]));
      }
      SMELT_INT8_UNROLL for (int i = 0; i < BASES; i++) a[i] += SMELT_INT8_GROUP;
    }
  }
  SMELT_INT8_UNROLL for (int i = 0; i < R * J; i++) *(smelt_int8_vu *)(out + i * SMELT_INT8_LANES) = sums[i];
}

typedef void (*smelt_int8_direct_tile)(const smelt_int8_strided *rows, const char *panel, int64_t stride,
                                       const smelt_int8_ahead *ahead, int32_t *out);

/* Defines smelt_<KIND>_<R>x<N>c4__<feature>. */
#define SMELT_INT8_DIRECT(R, N, FLIP, KIND)                                                                                    \
  __attribute__((target(SMELT_INT8_VNNI))) static void SMELT_MICRO_C(KIND, R, N, 4, SMELT_INT8_VNNI_ISA)(                      \
      const smelt_int8_strided *rows, const char *panel, int64_t stride, const smelt_int8_ahead *ahead, int32_t *out) {        \
    smelt_int8_direct_block(R, N / SMELT_INT8_PANEL, FLIP, rows, panel, stride, ahead, out);                                   \
  }
#define SMELT_INT8_DIRECT_ENTRY(R, N, FLIP, KIND)                                                                              \
  {SMELT_MICRO_C(KIND, R, 16, 4, SMELT_INT8_VNNI_ISA), SMELT_MICRO_C(KIND, R, N, 4, SMELT_INT8_VNNI_ISA)},

/* By rows - 1: for one panel, and for SMELT_INT8_PANELS(rows) of them. */
typedef const smelt_int8_direct_tile (*smelt_int8_direct_tiles)[2];
#define SMELT_INT8_DIRECT_TABLE(NAME, ...)                                                                                     \
  SMELT_INT8_ONE(SMELT_INT8_DIRECT, __VA_ARGS__) SMELT_INT8_SEVERAL(SMELT_INT8_DIRECT, __VA_ARGS__)                            \
  static const smelt_int8_direct_tile NAME[][2] = {SMELT_INT8_WIDEST_OF(SMELT_INT8_DIRECT_ENTRY, __VA_ARGS__)};
SMELT_INT8_DIRECT_TABLE(smelt_int8_direct, 0, u8i8i32_igemm)
SMELT_INT8_DIRECT_TABLE(smelt_int8_flipped, 1, i8i8i32_igemm)

#endif
#endif
