/* Products with block-quantized weights over 8-bit activations: exact integer sums of each block, scaled in float32.
 *
 * Input:     rows in float32, panels.
 * Output:    their columns of the result, with the bias.
 * Invariant: an activation is round(a * 127 / max |a|) of its block of K, half to even; sums of a block are exact on every CPU (at most
 *            255 * 127 * 256, which float32 holds too), then sum * (row scale * column scale) is added block by block in float32. A
 *            block with NaN or infinities gives NaN. Three forms of a step: VNNI's product of four bytes; AVX2's product of bytes,
 *            which cannot saturate for weights of 4 bits and less; 16-bit products for 8 bits.
 */
#ifndef SMELT_NBITS_DOTS_H
#define SMELT_NBITS_DOTS_H

#include <smelt/nbits/nbits.h>

#if defined(SMELT_NB_NO_VNNI) /* by tests */
#elif SMELT_VL == 64 && SMELT_VEX
#define SMELT_NB_VNNI "avx512vnni"
#define SMELT_NB_VNNI_ISA avx512vnni
#define SMELT_NB_VNNI_CPU SMELT_CPU_avx512vnni
#elif SMELT_VL == 32 && SMELT_VEX && (defined(__clang__) || __GNUC__ >= 11)
#define SMELT_NB_VNNI "avxvnni"
#define SMELT_NB_VNNI_ISA avxvnni
#define SMELT_NB_VNNI_CPU SMELT_CPU_avxvnni
#endif

#ifndef SMELT_NB_DOTS_AHEAD
#define SMELT_NB_DOTS_AHEAD 2048
#endif

typedef int32_t smelt_nb_word __attribute__((aligned(1), may_alias));

/* A tile of R rows: for each block of K this header, then [four k][row][byte]. */
typedef struct {
  int32_t start[SMELT_NB_ROWS]; /* of a sum: what the default zero point takes away */
  float scale[SMELT_NB_ROWS], sum[SMELT_NB_ROWS];
} smelt_nb_header;

SMELT_INLINE int64_t smelt_nb_tile_bytes(const smelt_nbits *p) { return p->blocks * ((int64_t)sizeof(smelt_nb_header) + p->block * SMELT_NB_ROWS); }

/* Four bytes in all lanes. */
SMELT_INLINE smelt_nb_i smelt_nb_all(const int8_t *at) {
#if SMELT_VEX
  smelt_nb_i out;
  __asm__("vpbroadcastd %1, %0" : "=v"(out) : "m"(*(const smelt_nb_word *)at));
  return out;
#else
  return *(const smelt_nb_word *)at - (smelt_nb_i){0};
#endif
}

/* sums[j] += w0 * a0 + ... + w3 * a3 in each lane, w[j] of uint8 below 2^bits, a of int8. */
SMELT_INLINE void smelt_nb_plain_dots(smelt_nb_i *sums, const smelt_nb_u *w, const int8_t *at, const int bits) {
  const smelt_nb_i a = smelt_nb_all(at);
#if SMELT_VEX
  typedef int16_t halves __attribute__((vector_size(SMELT_VL)));
  const smelt_nb_i ones = 0x00010001 - (smelt_nb_i){0};
  SMELT_NB_UNROLL for (int j = 0; j < SMELT_NB_VPP; j++) {
    smelt_nb_i pairs, others = {0};
    if (bits < 8) {
      __asm__("vpmaddubsw %2, %1, %0" : "=v"(pairs) : "v"(w[j]), "v"(a));
      __asm__("vpmaddwd %1, %0, %0" : "+v"(pairs) : "v"(ones));
    } else {
      __asm__("vpmaddwd %2, %1, %0" : "=v"(pairs) : "v"(w[j] & 0x00ff00ffu), "v"((halves)a << 8 >> 8));
      __asm__("vpmaddwd %2, %1, %0" : "=v"(others) : "v"(w[j] >> 8 & 0x00ff00ffu), "v"((halves)a >> 8));
    }
    sums[j] += pairs + others;
  }
#else
  (void)bits;
  SMELT_NB_UNROLL for (int j = 0; j < SMELT_NB_VPP; j++)
    SMELT_NB_UNROLL for (int i = 0; i < 4; i++) sums[j] += (smelt_nb_i)(w[j] >> 8 * i & 255) * (a << (24 - 8 * i) >> 24);
#endif
}

#ifdef SMELT_NB_VNNI
SMELT_INLINE void smelt_nb_vnni_dots(smelt_nb_i *sums, const smelt_nb_u *w, const int8_t *at, const int bits) {
  (void)bits;
#if SMELT_VL == 64 /* the load is part of the instruction */
  __asm__("vpdpbusd %2%{1to16%}, %1, %0" : "+v"(sums[0]) : "v"(w[0]), "m"(*(const smelt_nb_word *)at));
#else
  const smelt_nb_i a = smelt_nb_all(at);
  SMELT_NB_UNROLL for (int j = 0; j < SMELT_NB_VPP; j++) __asm__("%{vex%} vpdpbusd %2, %1, %0" : "+x"(sums[j]) : "x"(w[j]), "x"(a));
#endif
}
#endif

/* One panel of a tile of R rows. One row has several chains of sums, which cover the latency of a step. */
#define SMELT_NB_DOTS_PANEL(FORM)                                                                                              \
  SMELT_INLINE void smelt_nb_##FORM##_panel(const int R, const int bits, const int kind, const smelt_nbits *p, const char *a,  \
                                            int64_t panel, float *out) {                                                       \
    const int T = 8 / bits, V = SMELT_NB_VPP, S = R == 1 ? 4 : R == 2 ? 2 : 1, U = S > T ? S / T : 1;                          \
    const uint32_t mask = 0x01010101u * ((1u << bits) - 1);                                                                   \
    const int64_t lines = p->block * bits / 32;                                                                                \
    const char *line = p->panels + panel * p->blocks * smelt_nb_block_bytes(p);                                                \
    smelt_nb_f total[SMELT_NB_ROWS * SMELT_NB_VPP];                                                                            \
    SMELT_NB_UNROLL for (int i = 0; i < R * V; i++) total[i] = (smelt_nb_f){0};                                                \
    for (int64_t b = 0, at = panel * p->blocks * SMELT_NB_PANEL; b < p->blocks; b++, at += SMELT_NB_PANEL) {                   \
      const smelt_nb_header *header = (const smelt_nb_header *)a;                                                              \
      const int8_t *bytes = (const int8_t *)(header + 1);                                                                      \
      smelt_nb_i sums[SMELT_NB_ROWS * SMELT_NB_VPP * 4];                                                                       \
      SMELT_NB_UNROLL for (int i = 0; i < S * R * V; i++)                                                                      \
        sums[i] = (kind == SMELT_NB_CENTERED && i < R * V ? header->start[i / V] : 0) - (smelt_nb_i){0};                       \
      for (int64_t l = 0; l < lines; l += U, line += U * SMELT_NB_LINE, bytes += U * T * 4 * R)                                \
        SMELT_NB_UNROLL for (int u = 0; u < U * T; u++) {                                                                      \
          smelt_nb_u w[SMELT_NB_VPP];                                                                                          \
          if (u % T == 0) __builtin_prefetch(line + u / T * SMELT_NB_LINE + SMELT_NB_DOTS_AHEAD);                              \
          SMELT_NB_UNROLL for (int j = 0; j < V; j++)                                                                          \
            w[j] = (*(const smelt_nb_uu *)(line + u / T * SMELT_NB_LINE + j * SMELT_VL) >> (bits * (u % T))) & mask;           \
          SMELT_NB_UNROLL for (int r = 0; r < R; r++)                                                                          \
            smelt_nb_##FORM##_dots(sums + (u % S * R + r) * V, w, bytes + 4 * (u * R + r), bits);                              \
        }                                                                                                                      \
      if (S > 2) SMELT_NB_FOLD(sums, 2 * R * V)                                                                                \
      if (S > 1) SMELT_NB_FOLD(sums, R * V)                                                                                    \
      SMELT_NB_UNROLL for (int j = 0; j < V; j++) {                                                                            \
        const smelt_nb_f scale = smelt_nb_scale(p, at + j * SMELT_NB_LANES);                                                   \
        const smelt_nb_f zero = smelt_nb_zero(p, kind, bits, at + j * SMELT_NB_LANES);                                         \
        SMELT_NB_UNROLL for (int r = 0; r < R; r++) {                                                                          \
          smelt_nb_f sum = __builtin_convertvector(sums[r * V + j], smelt_nb_f);                                               \
          if (kind != SMELT_NB_CENTERED) sum -= zero * header->sum[r];                                                         \
          total[r * V + j] += sum * (scale * header->scale[r]);                                                                \
        }                                                                                                                      \
      }                                                                                                                        \
      a += sizeof *header + p->block * R;                                                                                      \
    }                                                                                                                          \
    SMELT_NB_UNROLL for (int i = 0; i < R * V; i++) *(smelt_nb_fu *)(out + i * SMELT_NB_LANES) = total[i];                     \
  }
SMELT_NB_DOTS_PANEL(plain)

typedef void (*smelt_nb_dots)(const smelt_nbits *p, const char *a, int64_t panel, float *out);

#define SMELT_NB_DOTS_BITS(BITS, KIND) SMELT_NB_DOTS_ROWS(1, BITS, KIND) SMELT_NB_DOTS_ROWS(2, BITS, KIND) SMELT_NB_DOTS_MORE(BITS, KIND)
#if SMELT_VL == 64
#define SMELT_NB_DOTS_MORE(BITS, KIND) SMELT_NB_DOTS_ROWS(4, BITS, KIND) SMELT_NB_DOTS_ROWS(8, BITS, KIND)
#elif SMELT_VL == 32
#define SMELT_NB_DOTS_MORE(BITS, KIND) SMELT_NB_DOTS_ROWS(4, BITS, KIND)
#else
#define SMELT_NB_DOTS_MORE(BITS, KIND)
#endif
#define SMELT_NB_DOTS_ALL                                                                                                      \
  SMELT_NB_DOTS_BITS(2, 0) SMELT_NB_DOTS_BITS(2, 1) SMELT_NB_DOTS_BITS(4, 0) SMELT_NB_DOTS_BITS(4, 1) SMELT_NB_DOTS_BITS(8, 0) \
  SMELT_NB_DOTS_BITS(8, 1)

#define SMELT_NB_DOTS_2_0 i8u2i32_gemm
#define SMELT_NB_DOTS_2_1 i8u2i32_gemm_zeros
#define SMELT_NB_DOTS_4_0 i8u4i32_gemm
#define SMELT_NB_DOTS_4_1 i8u4i32_gemm_zeros
#define SMELT_NB_DOTS_8_0 i8u8i32_gemm
#define SMELT_NB_DOTS_8_1 i8u8i32_gemm_zeros
#define SMELT_NB_DOTS_FEATURE_plain SMELT_UNIT_FEATURE
#define SMELT_NB_DOTS_FEATURE_vnni SMELT_NB_VNNI_ISA
#define SMELT_NB_DOTS_NAME(FORM, R, BITS, KIND)                                                                                \
  SMELT_MICRO_C(SMELT_NB_DOTS_##BITS##_##KIND, R, 16, SMELT_NB_PER_WORD_##BITS, SMELT_NB_DOTS_FEATURE_##FORM)
#define SMELT_NB_DOTS_CODE(FORM, R, BITS, KIND, ...)                                                                           \
  __VA_ARGS__ static __attribute__((noinline)) void SMELT_NB_DOTS_NAME(FORM, R, BITS, KIND)(const smelt_nbits *p, const char *a, \
                                                                                           int64_t panel, float *out) {       \
    smelt_nb_##FORM##_panel(R, BITS, KIND, p, a, panel, out);                                                                  \
  }
#define SMELT_NB_DOTS_ENTRY(FORM, R, BITS, KIND) [R == 8 ? 3 : R / 2][BITS / 3][KIND] = SMELT_NB_DOTS_NAME(FORM, R, BITS, KIND),

#define SMELT_NB_DOTS_ROWS(R, BITS, KIND) SMELT_NB_DOTS_CODE(plain, R, BITS, KIND)
SMELT_NB_DOTS_ALL
#undef SMELT_NB_DOTS_ROWS
#define SMELT_NB_DOTS_ROWS(R, BITS, KIND) SMELT_NB_DOTS_ENTRY(plain, R, BITS, KIND)
static const smelt_nb_dots smelt_nb_plain[4][3][2] = {SMELT_NB_DOTS_ALL};
#undef SMELT_NB_DOTS_ROWS

#ifdef SMELT_NB_VNNI
SMELT_NB_DOTS_PANEL(vnni)
#define SMELT_NB_DOTS_ROWS(R, BITS, KIND) SMELT_NB_DOTS_CODE(vnni, R, BITS, KIND, __attribute__((target(SMELT_NB_VNNI))))
SMELT_NB_DOTS_ALL
#undef SMELT_NB_DOTS_ROWS
#define SMELT_NB_DOTS_ROWS(R, BITS, KIND) SMELT_NB_DOTS_ENTRY(vnni, R, BITS, KIND)
static const smelt_nb_dots smelt_nb_vnni[4][3][2] = {SMELT_NB_DOTS_ALL};
#undef SMELT_NB_DOTS_ROWS
#endif

/* One block of a row, `count` floats and zeros up to `block`: bytes, four of them `step` words apart, and their scale. Gives the sum
 * of the bytes. */
static int32_t smelt_nb_quantize(const float *from, int64_t count, int64_t block, int64_t step, int8_t *to, float *scale) {
  typedef int8_t narrow __attribute__((vector_size(SMELT_NB_LANES), may_alias));
  const float whole = 12582912; /* 1.5 * 2^23: adding it rounds half to even */
  float filled[256];
  if (count < block) {
    __builtin_memcpy(filled, from, (size_t)count * sizeof(float));
    __builtin_memset(filled + count, 0, (size_t)(block - count) * sizeof(float));
    from = filled;
  }
  smelt_nb_f odd = {0};
  smelt_nb_i most = {0}, sum = {0};
  for (int64_t k = 0; k < block; k += SMELT_NB_LANES) {
    const smelt_nb_f x = *(const smelt_nb_fu *)(from + k);
    const smelt_nb_i size = (smelt_nb_i)x & 0x7fffffff; /* floats without a sign are in the order of their bits */
    const smelt_nb_i more = size > most;
    most = (size & more) | (most & ~more);
    odd += x * 0; /* NaN where it is NaN or infinite */
  }
  float largest = 0, nothing = 0;
  for (int i = 0; i < SMELT_NB_LANES; i++) {
    const float each = ((const float *)&most)[i];
    largest = each > largest ? each : largest, nothing += odd[i];
  }
  const float inverse = nothing == 0 && largest > 1e-35f ? 127 / largest : 0;
  int8_t bytes[256] __attribute__((aligned(64)));
  for (int64_t k = 0; k < block; k += SMELT_NB_LANES) {
    smelt_nb_f x = {0};
    if (inverse) x = smelt_rounded(*(const smelt_nb_fu *)(from + k) * inverse);
    const smelt_nb_i q = __builtin_convertvector(smelt_rounded(x + whole) - whole, smelt_nb_i);
    sum += q;
    *(narrow *)(bytes + k) = __builtin_convertvector(q, narrow);
  }
  for (int64_t k = 0; k < block; k += 4) __builtin_memcpy(to + k * step, bytes + k, 4);
  *scale = nothing == 0 ? inverse ? largest / 127 : 0 : nothing;
  int32_t whole_sum = 0;
  for (int i = 0; i < SMELT_NB_LANES; i++) whole_sum += sum[i];
  return whole_sum;
}

/* A tile of rows in the order in which the dots read them, the last row repeated. */
static void smelt_nb_pack_body(void *context, int64_t tile) {
  const smelt_nbits *p = context;
  const int64_t first = tile * SMELT_NB_ROWS, rows = smelt_min(SMELT_NB_ROWS, p->rows - first);
  const int64_t tall = rows > 4 ? 8 : rows > 2 ? 4 : rows;
  char *to = p->packed + tile * smelt_nb_tile_bytes(p);
  for (int64_t b = 0; b < p->blocks; b++, to += sizeof(smelt_nb_header) + p->block * tall) {
    smelt_nb_header *header = (smelt_nb_header *)to;
    for (int64_t r = 0; r < tall; r++) {
      const float *from = p->a + (first + smelt_min(r, rows - 1)) * p->K + b * p->block;
      const int32_t sum = smelt_nb_quantize(from, smelt_min(p->block, p->K - b * p->block), p->block, tall, (int8_t *)(header + 1) + 4 * r,
                                            &header->scale[r]);
      header->sum[r] = (float)sum, header->start[r] = -(sum << (p->bits - 1));
    }
  }
}

/* Some panels for all tiles: a panel stays in L1 while the rows pass by. */
static void smelt_nb_dots_body(void *context, int64_t index) {
  const smelt_nbits *p = context;
  float sums[SMELT_NB_ROWS * SMELT_NB_PANEL] __attribute__((aligned(64)));
  const int64_t last = smelt_min((index + 1) * p->each, p->count);
  const smelt_nb_dots(*forms)[3][2] = smelt_nb_plain;
#ifdef SMELT_NB_VNNI
  if (smelt_has(SMELT_NB_VNNI_CPU)) forms = smelt_nb_vnni;
#endif
  for (int64_t panel = index * p->each; panel < last; panel++)
    for (int64_t first = 0; first < p->rows; first += SMELT_NB_ROWS) {
      const int64_t rows = smelt_min(SMELT_NB_ROWS, p->rows - first), tall = rows > 4 ? 8 : rows > 2 ? 4 : rows;
      const smelt_nb_dots compute = forms[tall == 8 ? 3 : tall / 2][p->bits / 3][p->zero_kind != SMELT_NB_CENTERED];
      compute(p, p->packed + first / SMELT_NB_ROWS * smelt_nb_tile_bytes(p), panel, sums);
      for (int64_t r = 0; r < rows; r++) smelt_nb_store(p, first + r, panel, sums + r * SMELT_NB_PANEL);
    }
}

static int32_t smelt_nb_fast(smelt_nbits *p, int64_t each) {
  smelt_env *env = p->task->env;
  const int64_t tiles = (p->rows + SMELT_NB_ROWS - 1) / SMELT_NB_ROWS, tasks = (p->count + each - 1) / each;
  p->each = each;
  if (tiles == 1) smelt_nb_pack_body(p, 0);
  else env->parallel(env, tiles, smelt_nb_pack_body, p);
  if (tasks == 1) smelt_nb_dots_body(p, 0);
  else env->parallel(env, tasks, smelt_nb_dots_body, p);
  return env->code;
}

#endif
