/* Weights of 2, 4 or 8 bits in blocks along K, packed for products.
 *
 * Input:     panels of 16 columns (nbits_panels.py): for each block of K its lines of 64 bytes, one 32-bit word a column. A word has
 *            32 / bits consecutive k; the one at 4 t + j has its bits at 8 j + bits * t. Scales and zero points are
 *            [panel][block][column]: scales float32, or float16 where that holds them all exactly, zero points bytes or float32.
 * Output:    a line widened to float32, q - zero point: small integers, so nothing is rounded.
 * Invariant: one format for every CPU level and for both arithmetics: bytes of equal t are four k side by side.
 */
#ifndef SMELT_NBITS_H
#define SMELT_NBITS_H

#include <smelt/gemm/micro_names.h>
#include <smelt/threads/loop.h>
#include <smelt/vec/vec.h>
#include <smelt/vec/vec_rounded.h>

/* Weights of a column that one word holds. */
#define SMELT_NB_PER_WORD_2 16
#define SMELT_NB_PER_WORD_4 8
#define SMELT_NB_PER_WORD_8 4

/* Vectors wider than the registers are only passed between inlined functions. */
#pragma GCC diagnostic ignored "-Wpsabi"

enum { SMELT_NB_PANEL = 16, SMELT_NB_LINE = 64, SMELT_NB_LANES = SMELT_VL / 4, SMELT_NB_VPP = SMELT_NB_PANEL / SMELT_NB_LANES };
/* Zero points: 2^(bits - 1), uint8, float32; or q is a number of a codebook: FP4, NF4 of bitsandbytes. */
enum { SMELT_NB_CENTERED, SMELT_NB_BYTES, SMELT_NB_FLOATS, SMELT_NB_FP4, SMELT_NB_NF4 };
static const float smelt_nb_codebooks[2][16] __attribute__((unused)) = {
    {0.0f, 5.208333333e-03f, 0.66666667f, 1.0f, 0.33333333f, 0.5f, 0.16666667f, 0.25f, -0.0f, -5.208333333e-03f, -0.66666667f, -1.0f,
     -0.33333333f, -0.5f, -0.16666667f, -0.25f},
    {-1.0f, -0.6961928009986877f, -0.5250730514526367f, -0.39491748809814453f, -0.28444138169288635f, -0.18477343022823334f,
     -0.09105003625154495f, 0.0f, 0.07958029955625534f, 0.16093020141124725f, 0.24611230194568634f, 0.33791524171829224f,
     0.44070982933044434f, 0.5626170039176941f, 0.7229568362236023f, 1.0f}};

/* Rows that pass by the weights together: their sums stay in registers. */
#if SMELT_VL == 64
enum { SMELT_NB_ROWS = 8 };
#elif SMELT_VL == 32
enum { SMELT_NB_ROWS = 4 };
#else
enum { SMELT_NB_ROWS = 2 };
#endif

typedef float smelt_nb_f __attribute__((vector_size(SMELT_VL), may_alias));
typedef float smelt_nb_fu __attribute__((vector_size(SMELT_VL), aligned(4), may_alias));
typedef int32_t smelt_nb_i __attribute__((vector_size(SMELT_VL), may_alias));
typedef int32_t smelt_nb_iu __attribute__((vector_size(SMELT_VL), aligned(4), may_alias));
typedef uint32_t smelt_nb_u __attribute__((vector_size(SMELT_VL), may_alias));
typedef uint32_t smelt_nb_uu __attribute__((vector_size(SMELT_VL), aligned(4), may_alias));
typedef uint8_t smelt_nb_b __attribute__((vector_size(SMELT_VL / 4), aligned(1), may_alias));

#define SMELT_NB_UNROLL _Pragma("GCC unroll 16")
/* The second `count` chains of sums are added to the first. */
#define SMELT_NB_FOLD(SUMS, COUNT) { SMELT_NB_UNROLL for (int i = 0; i < (COUNT); i++) (SUMS)[i] += (SUMS)[(COUNT) + i]; }

#if SMELT_VL == 64 && defined(__AVX512F__)
#define SMELT_NB_TABLE 1 /* a permutation looks up 16 floats by the low four bits of a lane */
#else
#define SMELT_NB_TABLE 0
#endif

/* A product as its tasks see it. */
typedef struct {
  const smelt_task *task;
  const char *panels;
  const float *bias;
  const void *scales, *zeros;
  const float *a; /* rows as they are given, lda apart */
  char *packed;   /* rows as the kernel reads them */
  float *y;
  int64_t rows, K, N, blocks, block, count; /* blocks along K, their size, panels */
  int64_t each;                             /* panels of a task */
  int bits, zero_kind, halves; /* halves: scales are float16 */
  int64_t row_step, row_tasks, group, depth; /* of a GEMM: rows of a task, such tasks, panels and K of a widened block */
} smelt_nbits;

SMELT_INLINE int64_t smelt_nb_block_bytes(const smelt_nbits *p) { return 2 * p->block * p->bits; } /* of one panel */

/* The scales of LANES columns of one block. */
SMELT_INLINE smelt_nb_f smelt_nb_scale(const smelt_nbits *p, int64_t at) {
  if (p->halves) return (smelt_nb_f)ld_f16((const uint16_t *)p->scales + at);
  return *(const smelt_nb_fu *)((const float *)p->scales + at);
}

/* The zero points of LANES columns of one block. */
SMELT_INLINE smelt_nb_f smelt_nb_zero(const smelt_nbits *p, const int kind, const int bits, int64_t at) {
  if (kind == SMELT_NB_CENTERED) return (float)(1 << (bits - 1)) - (smelt_nb_f){0};
  if (p->zero_kind == SMELT_NB_FLOATS) return *(const smelt_nb_fu *)((const float *)p->zeros + at);
  return __builtin_convertvector(__builtin_convertvector(*(const smelt_nb_b *)((const uint8_t *)p->zeros + at), smelt_nb_i), smelt_nb_f);
}

SMELT_INLINE int smelt_nb_has_codebook(const smelt_nbits *p) { return p->zero_kind >= SMELT_NB_FP4; }
/* Whether kernels take zero points from memory. */
SMELT_INLINE int smelt_nb_has_zeros(const smelt_nbits *p) { return p->zero_kind == SMELT_NB_BYTES || p->zero_kind == SMELT_NB_FLOATS; }

/* What smelt_nb_weight() looks up: q, q - 2^(bits - 1) where that is the zero point, or q's number in the codebook. */
SMELT_INLINE smelt_nb_f smelt_nb_table(const smelt_nbits *p, const int kind, const int bits) {
  smelt_nb_f table = {0};
#if SMELT_NB_TABLE
  if (smelt_nb_has_codebook(p)) return *(const smelt_nb_fu *)smelt_nb_codebooks[p->zero_kind - SMELT_NB_FP4];
#else
  (void)p;
#endif
  for (int i = 0; i < SMELT_NB_LANES; i++)
    table[i] = (float)((i & ((1 << bits) - 1)) - (kind == SMELT_NB_CENTERED ? 1 << (bits - 1) : 0));
  return table;
}

/* The weights at place i of each word, less their zero points. */
SMELT_INLINE smelt_nb_f smelt_nb_weight(smelt_nb_u words, const int bits, const int kind, const int i, smelt_nb_f table, smelt_nb_f zero) {
  const smelt_nb_u moved = words >> (8 * (i % 4) + bits * (i / 4));
#if SMELT_NB_TABLE
  if (bits < 8) {
    smelt_nb_f out;
    __asm__("vpermps %2, %1, %0" : "=v"(out) : "v"(moved), "v"(table));
    if (kind != SMELT_NB_CENTERED) out -= zero;
    return out;
  }
#else
  (void)kind, (void)table;
#endif
  return __builtin_convertvector((smelt_nb_i)(moved & ((1u << bits) - 1)), smelt_nb_f) - zero;
}

/* Stores `count` columns of a panel's row, with the bias. */
SMELT_INLINE void smelt_nb_store(const smelt_nbits *p, int64_t row, int64_t panel, float *sums) {
  const int64_t first = panel * SMELT_NB_PANEL, count = smelt_min(SMELT_NB_PANEL, p->N - first);
  float *y = p->y + row * p->N + first;
  if (p->bias)
    for (int64_t j = 0; j < count; j++) sums[j] += p->bias[first + j];
  if (count == SMELT_NB_PANEL) __builtin_memcpy(y, sums, SMELT_NB_PANEL * sizeof(float));
  else __builtin_memcpy(y, sums, (size_t)count * sizeof(float));
}

#endif
