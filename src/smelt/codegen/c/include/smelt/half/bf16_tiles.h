/* bfloat16 micro-kernels: R rows of A times P packed panels of 16 columns, summed in float32.
 *
 * Input:     rows of A in bfloat16 at one distance; panels of B, a line of 64 bytes for two k: [pair][column][two k].
 * Output:    R x (16 * P) sums, stored, or finished by a register epilogue (conv/epilogue.h).
 * Invariant: for CPUs with AVX512_BF16. An element is one chain over pairs of k in rising order, which may go on from what is in
 *            C: so bits do not depend on how k, rows and columns are cut. vdpbf16ps multiplies exactly, rounds sums to nearest,
 *            and takes and gives subnormal numbers as zero.
 */
#ifndef SMELT_BF16_TILES_H
#define SMELT_BF16_TILES_H

#include <smelt/conv/epilogue.h>
#include <smelt/gemm/micro_names.h>

enum { SMELT_HALF_PANEL = 16, SMELT_HALF_LINE = 64 }; /* columns of a panel; bytes of it for two k */

#if SMELT_ISA == 512
#define SMELT_BF16_DOTS

#define SMELT_BF16_UNROLL _Pragma("GCC unroll 32")
/* Rows of the tallest tile; lines that a tile of few rows, which waits for memory, prefetches ahead. */
enum { SMELT_BF16_ROWS = 12, SMELT_BF16_AHEAD = 16 };

/* A tile's operands; distances in bytes. With `f` the sums go where it says, else to c. `next` is prefetched, `next_step` bytes
 * for each pair of k. */
typedef struct {
  const char *a, *b, *next;
  int64_t lda, stride, next_step, pairs;
  float *c;
  int64_t ldc;
  const smelt_epilogue *f;
  int add; /* sums go on from c */
} smelt_bf16_tile;

/* Two numbers in all lanes, of the row that is PLACE (0, 1, 2) rows behind the one at BASE. Spelled out: gcc makes a pointer of
 * each. */
#define SMELT_BF16_ROW_AT(OUT, BASE, APART, PLACE)                                                                             \
  ((PLACE) == 0   ? ({ __asm__("vpbroadcastd (%1), %0" : "=v"(OUT) : "r"(BASE)); 0; })                                         \
   : (PLACE) == 1 ? ({ __asm__("vpbroadcastd (%1,%2), %0" : "=v"(OUT) : "r"(BASE), "r"(APART)); 0; })                          \
                  : ({ __asm__("vpbroadcastd (%1,%2,2), %0" : "=v"(OUT) : "r"(BASE), "r"(APART)); 0; }))

/* Sums that go on from C; the epilogue's own are not used. */
SMELT_FN void smelt_bf16_start(const int R, const int P, const smelt_bf16_tile *t, v_f32 *sums) {
  SMELT_BF16_UNROLL for (int i = 0; i < R * P; i++)
    sums[i] = t->add ? ld_f32(t->c + i / P * t->ldc + i % P * SMELT_HALF_PANEL) : (v_f32){0};
}

SMELT_FN void smelt_bf16_store(const int R, const int P, const smelt_bf16_tile *t, const v_f32 *sums) {
  SMELT_BF16_UNROLL for (int i = 0; i < R * P; i++) st_f32(t->c + i / P * t->ldc + i % P * SMELT_HALF_PANEL, sums[i]);
}

SMELT_FN void smelt_bf16_epilogue(const int R, const int P, const smelt_epilogue *f, const v_f32 *sums) {
  const v_f32 least = bc_f32(f->least), most = bc_f32(f->most);
  SMELT_BF16_UNROLL for (int j = 0; j < P; j++) {
    const v_f32 bias = ld_f32(f->bias + j * SMELT_HALF_PANEL);
    SMELT_BF16_UNROLL for (int i = 0; i < R; i++) {
      const int64_t at = i * f->ld + j * SMELT_HALF_PANEL;
      v_f32 x = sums[i * P + j] + bias;
      if (f->added) x += ld_f32(f->added + at);
      st_f32(f->to + at, smelt_limited(x, least, most));
    }
  }
}

SMELT_FN void smelt_bf16_block(const int R, const int P, const smelt_bf16_tile *t) {
  enum { BASES = (SMELT_BF16_ROWS + 2) / 3 };
  v_f32 sums[24], b[4];
  const char *a[BASES], *panel = t->b, *next = t->next;
  const int64_t apart = t->lda, stride = t->stride, next_step = t->next_step;
  SMELT_BF16_UNROLL for (int i = 0; i < BASES; i++) a[i] = t->a + 3 * i * apart;
  smelt_bf16_start(R, P, t, sums);
  for (int64_t left = t->pairs; left > 0; left--, panel += SMELT_HALF_LINE, next += next_step) {
    if (R > 3) __builtin_prefetch(next, 0, 2);
    SMELT_BF16_UNROLL for (int j = 0; j < P; j++) {
      const char *line = panel + j * stride;
      b[j] = ld_f32((const float *)line);
      if (R <= 3) __builtin_prefetch(line + SMELT_BF16_AHEAD * SMELT_HALF_LINE);
    }
    SMELT_BF16_UNROLL for (int i = 0; i < R; i++) {
      v_f32 all;
      (void)SMELT_BF16_ROW_AT(all, a[i / 3], apart, i % 3);
      SMELT_BF16_UNROLL for (int j = 0; j < P; j++)
        __asm__("vdpbf16ps %2, %1, %0" : "+v"(sums[i * P + j]) : "v"(all), "v"(b[j]));
    }
    SMELT_BF16_UNROLL for (int i = 0; i < (R + 2) / 3; i++) a[i] += 4;
    __asm__ volatile("" : "+r"(panel), "+r"(next)::"memory");
  }
  if (t->f) smelt_bf16_epilogue(R, P, t->f, sums);
  else smelt_bf16_store(R, P, t, sums);
}

/* Defines smelt_bf16bf16f32_gemm_<R>x<N>c2__avx512bf16. */
#define SMELT_BF16_NAME(R, N) SMELT_MICRO_C(bf16bf16f32_gemm, R, N, 2, avx512bf16)
#define SMELT_BF16_TILE(R, N)                                                                                                  \
  static __attribute__((noinline)) void SMELT_BF16_NAME(R, N)(const smelt_bf16_tile *t) {                                      \
    smelt_bf16_block(R, N / SMELT_HALF_PANEL, t);                                                                              \
  }
#define SMELT_BF16_UP_TO_6(X, N) X(1, N) X(2, N) X(3, N) X(4, N) X(5, N) X(6, N)
#define SMELT_BF16_UP_TO_12(X, N) SMELT_BF16_UP_TO_6(X, N) X(7, N) X(8, N) X(9, N) X(10, N) X(11, N) X(12, N)
#define SMELT_BF16_ENTRY(R, N) SMELT_BF16_NAME(R, N),

SMELT_BF16_UP_TO_12(SMELT_BF16_TILE, 16)
SMELT_BF16_UP_TO_12(SMELT_BF16_TILE, 32)
SMELT_BF16_UP_TO_6(SMELT_BF16_TILE, 64)

/* By rows - 1. */
typedef void (*smelt_bf16_tile_fn)(const smelt_bf16_tile *t);
static const smelt_bf16_tile_fn smelt_bf16_by_1[] = {SMELT_BF16_UP_TO_12(SMELT_BF16_ENTRY, 16)};
static const smelt_bf16_tile_fn smelt_bf16_by_2[] = {SMELT_BF16_UP_TO_12(SMELT_BF16_ENTRY, 32)};
static const smelt_bf16_tile_fn smelt_bf16_by_4[] = {SMELT_BF16_UP_TO_6(SMELT_BF16_ENTRY, 64)};

/* 32 floats, rounded to nearest even. */
SMELT_FN v_i32 smelt_bf16_of(v_f32 low, v_f32 high) {
  v_i32 made;
  __asm__("vcvtne2ps2bf16 %1, %2, %0" : "=v"(made) : "v"(low), "v"(high));
  return made;
}

/* k elements of m rows of floats as rows of `ld` bfloat16; an odd last one is followed by a zero. */
static void smelt_bf16_rows(const float *a, int64_t lda, int64_t m, int64_t k, uint16_t *to, int64_t ld) {
  for (int64_t i = 0; i < m; i++, a += lda, to += ld) {
    int64_t at = 0;
    for (; at + 32 <= k; at += 32) {
      const v_i32 made = smelt_bf16_of(ld_f32(a + at), ld_f32(a + at + 16));
      __builtin_memcpy(to + at, &made, sizeof made);
    }
    if (at == k) continue;
    const int64_t rest = k - at;
    const v_f32 low = rest >= 16 ? ld_f32(a + at) : ld_f32_n(a + at, rest);
    const v_i32 made = smelt_bf16_of(low, rest > 16 ? ld_f32_n(a + at + 16, rest - 16) : (v_f32){0});
    st_i32_n((int32_t *)(to + at), made, (rest + 1) / 2);
  }
}
#endif

#endif
