/* Small-M products with block-quantized weights in float32: weights are streamed once and widened in registers.
 *
 * Input:     up to SMELT_NB_ROWS rows, packed [k][row] and zero-padded to whole blocks; panels.
 * Output:    their columns of the result, with the bias.
 * Invariant: float32 activations; of each block the sum of a * (q - zero point) is a few chains over k in rising order, scaled once,
 *            and blocks are added in rising order. Bits depend on the number of rows, K and the block size.
 */
#ifndef SMELT_NBITS_GEMV_H
#define SMELT_NBITS_GEMV_H

#include <smelt/nbits/nbits.h>

/* Bytes of panels that are prefetched: they come from memory. */
#ifndef SMELT_NB_AHEAD
#define SMELT_NB_AHEAD 2048
#endif

/* Chains of multiply-adds that a row's sums have, to cover the latency of one. */
#define SMELT_NB_CHAINS(R) ((R) * SMELT_NB_VPP >= 8 ? 1 : (R) * SMELT_NB_VPP >= 4 ? 2 : 4)

/* The sums of one panel over all blocks, R rows. */
SMELT_INLINE void smelt_nb_gemv_panel(const int R, const int bits, const int kind, const smelt_nbits *p, const float *a, int64_t panel,
                                      float *out) {
  const int T = 32 / bits, S = SMELT_NB_CHAINS(R), V = SMELT_NB_VPP;
  const int64_t lines = p->block * bits / 32;
  const char *line = p->panels + panel * p->blocks * smelt_nb_block_bytes(p);
  const smelt_nb_f table = smelt_nb_table(p, kind, bits);
  smelt_nb_f total[SMELT_NB_ROWS * SMELT_NB_VPP];
  SMELT_NB_UNROLL for (int i = 0; i < R * V; i++) total[i] = (smelt_nb_f){0};
  for (int64_t b = 0, at = panel * p->blocks * SMELT_NB_PANEL; b < p->blocks; b++, at += SMELT_NB_PANEL) {
    smelt_nb_f sums[8 * SMELT_NB_VPP], zero[SMELT_NB_VPP];
    SMELT_NB_UNROLL for (int i = 0; i < S * R * V; i++) sums[i] = (smelt_nb_f){0};
    SMELT_NB_UNROLL for (int j = 0; j < V; j++) zero[j] = smelt_nb_zero(p, kind, bits, at + j * SMELT_NB_LANES);
    for (int64_t l = 0; l < lines; l++, line += SMELT_NB_LINE, a += T * R) {
      __builtin_prefetch(line + SMELT_NB_AHEAD);
      SMELT_NB_UNROLL for (int i = 0; i < T; i++)
        SMELT_NB_UNROLL for (int j = 0; j < V; j++) {
          const smelt_nb_f w = smelt_nb_weight(*(const smelt_nb_uu *)(line + j * SMELT_VL), bits, kind, i, table, zero[j]);
          SMELT_NB_UNROLL for (int r = 0; r < R; r++) sums[(i % S * R + r) * V + j] += a[i * R + r] * w;
        }
    }
    if (S > 2) SMELT_NB_FOLD(sums, 2 * R * V)
    if (S > 1) SMELT_NB_FOLD(sums, R * V)
    SMELT_NB_UNROLL for (int i = 0; i < R * V; i++)
      total[i] += sums[i] * smelt_nb_scale(p, at + i % V * SMELT_NB_LANES);
  }
  SMELT_NB_UNROLL for (int i = 0; i < R * V; i++) *(smelt_nb_fu *)(out + i * SMELT_NB_LANES) = total[i];
}

typedef void (*smelt_nb_gemv)(const smelt_nbits *p, const float *a, int64_t panel, float *out);

#define SMELT_NB_GEMV_2_0 f32u2f32_gemv
#define SMELT_NB_GEMV_2_1 f32u2f32_gemv_zeros
#define SMELT_NB_GEMV_4_0 f32u4f32_gemv
#define SMELT_NB_GEMV_4_1 f32u4f32_gemv_zeros
#define SMELT_NB_GEMV_8_0 f32u8f32_gemv
#define SMELT_NB_GEMV_8_1 f32u8f32_gemv_zeros
#define SMELT_NB_GEMV_NAME(R, BITS, KIND)                                                                                      \
  SMELT_MICRO_C(SMELT_NB_GEMV_##BITS##_##KIND, R, 16, SMELT_NB_PER_WORD_##BITS, SMELT_UNIT_FEATURE)
#define SMELT_NB_GEMV(R, BITS, KIND)                                                                                           \
  static __attribute__((noinline)) void SMELT_NB_GEMV_NAME(R, BITS, KIND)(const smelt_nbits *p, const float *a, int64_t panel, \
                                                                          float *out) {                                        \
    smelt_nb_gemv_panel(R, BITS, KIND, p, a, panel, out);                                                                       \
  }
#define SMELT_NB_EACH_ROWS(X, BITS, KIND) X(1, BITS, KIND) X(2, BITS, KIND) SMELT_NB_MORE_ROWS(X, BITS, KIND)
#if SMELT_VL == 64
#define SMELT_NB_MORE_ROWS(X, BITS, KIND) X(4, BITS, KIND) X(8, BITS, KIND)
#elif SMELT_VL == 32
#define SMELT_NB_MORE_ROWS(X, BITS, KIND) X(4, BITS, KIND)
#else
#define SMELT_NB_MORE_ROWS(X, BITS, KIND)
#endif
/* Kinds are written as the numbers of SMELT_NB_CENTERED and SMELT_NB_BYTES, which stands for floats too. */
#define SMELT_NB_EACH(X)                                                                                                       \
  SMELT_NB_EACH_ROWS(X, 2, 0) SMELT_NB_EACH_ROWS(X, 2, 1) SMELT_NB_EACH_ROWS(X, 4, 0) SMELT_NB_EACH_ROWS(X, 4, 1)              \
  SMELT_NB_EACH_ROWS(X, 8, 0) SMELT_NB_EACH_ROWS(X, 8, 1)
SMELT_NB_EACH(SMELT_NB_GEMV)

/* By the logarithm of rows (1, 2, 4, 8), that of bits (2, 4, 8) and whether zero points are given. */
#define SMELT_NB_GEMV_ENTRY(R, BITS, KIND) [R == 8 ? 3 : R / 2][BITS / 3][KIND] = SMELT_NB_GEMV_NAME(R, BITS, KIND),
static const smelt_nb_gemv smelt_nb_gemvs[4][3][2] = {SMELT_NB_EACH(SMELT_NB_GEMV_ENTRY)};

/* Rows of a tile that holds `rows`: a power of two. */
SMELT_INLINE int64_t smelt_nb_tile(int64_t rows) { return rows > 4 ? 8 : rows > 2 ? 4 : rows; }
SMELT_INLINE int smelt_nb_log(int64_t rows) { return rows == 8 ? 3 : (int)rows / 2; }

/* Rows [first, first + rows) as [k][row of the tile], the last one repeated; zeros beyond K. */
static void smelt_nb_pack_floats(const smelt_nbits *p, int64_t first, int64_t rows, float *to) {
  const int64_t tile = smelt_nb_tile(rows), depth = p->blocks * p->block;
  for (int64_t r = 0; r < tile; r++) {
    const float *from = p->a + (first + smelt_min(r, rows - 1)) * p->K;
    for (int64_t k = 0; k < p->K; k++) to[k * tile + r] = from[k];
    for (int64_t k = p->K; k < depth; k++) to[k * tile + r] = 0;
  }
}

static void smelt_nb_gemv_body(void *context, int64_t index) {
  const smelt_nbits *p = context;
  float sums[SMELT_NB_ROWS * SMELT_NB_PANEL] __attribute__((aligned(64)));
  const int64_t tile = smelt_nb_tile(p->rows), last = smelt_min((index + 1) * p->each, p->count);
  const smelt_nb_gemv compute = smelt_nb_gemvs[smelt_nb_log(tile)][p->bits / 3][smelt_nb_has_zeros(p)];
  for (int64_t panel = index * p->each; panel < last; panel++) {
    compute(p, (const float *)p->packed, panel, sums);
    for (int64_t r = 0; r < p->rows; r++) smelt_nb_store(p, r, panel, sums + r * SMELT_NB_PANEL);
  }
}

#endif
