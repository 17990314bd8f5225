/* Exact 8-bit micro-kernels: R rows of A times P packed panels of 16 columns, summed in int32.
 *
 * Input:     a block of R packed rows, panels of B (smelt_int8_header), the number of groups of four k.
 * Output:    R x (16 * P) sums, modulo 2^32.
 * Invariant: no step saturates, so every CPU level gives the same integers. Forms of a step, which differ in A:
 *            wide    int16 a - zero point, {k0, k2, k1, k3}; bytes of B are widened in registers: two multiply-adds of pairs
 *            pairs   uint8 a; AVX2's product of bytes, whose sums of pairs fit int16 where |b0| + |b1| <= 128 for all pairs of B;
 *                    weights of a few larger pairs are stored as two that add up, the second of them in a spare group
 *            quads   uint8 a; VNNI's product of four bytes, i8mm's of eight (int8_dots_arm.h)
 *            signed  int8 a (uint8 less 128); dotprod's product of four bytes
 */
#ifndef SMELT_INT8_TILES_H
#define SMELT_INT8_TILES_H

#include <smelt/gemm/micro_names.h>
#include <smelt/threads/loop.h>
#include <smelt/vec/vec_rounded.h>

/* Vectors wider than the registers are only passed between inlined functions. */
#pragma GCC diagnostic ignored "-Wpsabi"

enum { SMELT_INT8_PANEL = 16, SMELT_INT8_GROUP = 4, SMELT_INT8_STEP = SMELT_INT8_PANEL * SMELT_INT8_GROUP };
enum { SMELT_INT8_WIDE, SMELT_INT8_PAIRS, SMELT_INT8_QUADS, SMELT_INT8_SIGNED };
enum { SMELT_INT8_LANES = SMELT_VL / 4, SMELT_INT8_VPP = SMELT_INT8_PANEL / SMELT_INT8_LANES };

/* Rows of the tallest tile, and accumulators of a tile: what is left of the registers holds B and a step of A. */
#if SMELT_VL == 64
enum { SMELT_INT8_ROWS = 12, SMELT_INT8_SUMS = 24 };
#elif SMELT_VL == 32
enum { SMELT_INT8_ROWS = 6, SMELT_INT8_SUMS = 12 };
#elif defined(__aarch64__)
enum { SMELT_INT8_ROWS = 6, SMELT_INT8_SUMS = 24 };
#else
enum { SMELT_INT8_ROWS = 2, SMELT_INT8_SUMS = 8 };
#endif

/* A panel is this header, then groups [group][column][four k], then smelt_int8_spare(groups) groups more, of which `spares` are
 * used, then the number of the group that each of these belongs to. */
typedef struct {
  int32_t sums[SMELT_INT8_PANEL]; /* of each column */
  int32_t small_pairs;            /* whether all pairs have |b0| + |b1| <= 128 */
  int32_t spares, unused[14];
} smelt_int8_header;

SMELT_INLINE int64_t smelt_int8_spare(int64_t groups) { return groups / 8 + 1; }

typedef int32_t smelt_int8_v __attribute__((vector_size(SMELT_VL), may_alias));
typedef int32_t smelt_int8_vu __attribute__((vector_size(SMELT_VL), aligned(4), may_alias));
typedef int32_t smelt_int8_word __attribute__((aligned(1), may_alias));
typedef int16_t smelt_int8_h __attribute__((vector_size(SMELT_VL), may_alias));

#define SMELT_INT8_UNROLL _Pragma("GCC unroll 32")

/* Four bytes in all lanes. Spelled out: gcc gathers broadcasts of all rows before their first use, and spills sums. */
SMELT_INLINE smelt_int8_v smelt_int8_all(const char *at) {
#if SMELT_VEX
  smelt_int8_v out;
  __asm__("vpbroadcastd %1, %0" : "=v"(out) : "m"(*(const smelt_int8_word *)at));
  return out;
#else
  int32_t word;
  __builtin_memcpy(&word, at, 4);
  return word - (smelt_int8_v){0};
#endif
}

/* sum += a0 * b0 + a1 * b1 in each lane, of int16. */
SMELT_INLINE smelt_int8_v smelt_int8_madd(smelt_int8_v sum, smelt_int8_v a, smelt_int8_v b) {
#if SMELT_VEX
  smelt_int8_v pairs;
  __asm__("vpmaddwd %3, %2, %1\n\tvpaddd %1, %0, %0" : "+v"(sum), "=&v"(pairs) : "v"(a), "v"(b));
  return sum;
#elif SMELT_VL == 16 && defined(__SSE2__)
  __asm__("pmaddwd %1, %0" : "+x"(a) : "x"(b));
  return sum + a;
#elif SMELT_VL == 16 && defined(__aarch64__)
  smelt_int8_v low, high;
  __asm__("smull %0.4s, %2.4h, %3.4h\n\tsmull2 %1.4s, %2.8h, %3.8h\n\taddp %0.4s, %0.4s, %1.4s" : "=&w"(low), "=&w"(high) : "w"(a), "w"(b));
  return sum + low;
#else
  return sum + (a << 16 >> 16) * (b << 16 >> 16) + (a >> 16) * (b >> 16);
#endif
}

/* sum += a0 * b0 + ... + a3 * b3 in each lane, a of uint8, b of int8; `ones` are int16. */
SMELT_INLINE smelt_int8_v smelt_int8_pairs(smelt_int8_v sum, smelt_int8_v a, smelt_int8_v b, smelt_int8_v ones) {
#if SMELT_VEX
  smelt_int8_v pairs;
  __asm__("vpmaddubsw %3, %2, %1\n\tvpmaddwd %4, %1, %1\n\tvpaddd %1, %0, %0"
          : "+v"(sum), "=&v"(pairs)
          : "v"(a), "v"(b), "v"(ones));
  return sum;
#else
  (void)ones;
  for (int i = 0; i < 4; i++) sum += (a >> 8 * i & 255) * (b << (24 - 8 * i) >> 24);
  return sum;
#endif
}

#if SMELT_VL == 64 && SMELT_VEX
#define SMELT_INT8_VNNI "avx512vnni"
#define SMELT_INT8_VNNI_ISA avx512vnni
#define SMELT_INT8_VNNI_CPU SMELT_CPU_avx512vnni
#define SMELT_INT8_DOT "vpdpbusd %2, %1, %0"
#elif SMELT_VL == 32 && SMELT_VEX && (defined(__clang__) || __GNUC__ >= 11)
#define SMELT_INT8_VNNI "avxvnni"
#define SMELT_INT8_VNNI_ISA avxvnni
#define SMELT_INT8_VNNI_CPU SMELT_CPU_avxvnni
#define SMELT_INT8_DOT "%{vex%} vpdpbusd %2, %1, %0"
#endif

/* Vector J of a group of the panels, which lie `stride` bytes apart. */
SMELT_INLINE smelt_int8_v smelt_int8_b(const char *b, int64_t stride, int j) {
  return *(const smelt_int8_vu *)(b + j / SMELT_INT8_VPP * stride + j % SMELT_INT8_VPP * SMELT_VL);
}

/* Bytes 0 and 2 (1 and 3) of each lane as int16. */
SMELT_INLINE smelt_int8_v smelt_int8_even(smelt_int8_v b) { return (smelt_int8_v)((smelt_int8_h)b << 8 >> 8); }
SMELT_INLINE smelt_int8_v smelt_int8_odd(smelt_int8_v b) { return (smelt_int8_v)((smelt_int8_h)b >> 8); }

/* A step: one group of R rows times J vectors; the sums of a row lie `row` apart. */
SMELT_INLINE void smelt_int8_wide_step(const int R, const int J, const int row, const char *a, const char *b, int64_t stride,
                                       smelt_int8_v *sums) {
  if (R == 1) { /* each vector of B is widened for itself */
    const smelt_int8_v even = smelt_int8_all(a), odd = smelt_int8_all(a + 4);
    SMELT_INT8_UNROLL for (int j = 0; j < J; j++) {
      const smelt_int8_v four = smelt_int8_b(b, stride, j);
      sums[j] = smelt_int8_madd(smelt_int8_madd(sums[j], even, smelt_int8_even(four)), odd, smelt_int8_odd(four));
    }
    return;
  }
  SMELT_INT8_UNROLL for (int half = 0; half < 2; half++) {
    smelt_int8_v wide[SMELT_INT8_SUMS];
    SMELT_INT8_UNROLL for (int j = 0; j < J; j++) {
      const smelt_int8_v four = smelt_int8_b(b, stride, j);
      wide[j] = half ? smelt_int8_odd(four) : smelt_int8_even(four);
    }
    SMELT_INT8_UNROLL for (int i = 0; i < R; i++) {
      const smelt_int8_v all = smelt_int8_all(a + 8 * i + 4 * half);
      SMELT_INT8_UNROLL for (int j = 0; j < J; j++) sums[i * row + j] = smelt_int8_madd(sums[i * row + j], all, wide[j]);
    }
    __asm__ volatile("" ::: "memory"); /* B is read again rather than kept */
  }
}

#define SMELT_INT8_BYTES_STEP(NAME, ...)                                                                                       \
  SMELT_INLINE void NAME(const int R, const int J, const int row, const char *a, const char *b, int64_t stride,                \
                         smelt_int8_v *sums) {                                                                                 \
    const smelt_int8_v ones __attribute__((unused)) = 0x00010001 - (smelt_int8_v){0};                                          \
    smelt_int8_v four[SMELT_INT8_SUMS];                                                                                        \
    SMELT_INT8_UNROLL for (int j = 0; j < J; j++) four[j] = smelt_int8_b(b, stride, j);                                        \
    SMELT_INT8_UNROLL for (int i = 0; i < R; i++) {                                                                            \
      const smelt_int8_v all = smelt_int8_all(a + 4 * i);                                                                      \
      SMELT_INT8_UNROLL for (int j = 0; j < J; j++) { __VA_ARGS__ }                                                            \
    }                                                                                                                          \
  }
SMELT_INT8_BYTES_STEP(smelt_int8_pairs_step, sums[i * row + j] = smelt_int8_pairs(sums[i * row + j], all, four[j], ones);)

/* START is what the sums of vector j begin with, of a panel with this `header`. */
#define SMELT_INT8_BLOCK(FORM, BYTES, START)                                                                                   \
  SMELT_INLINE void smelt_int8_##FORM##_block(const int R, const int P, const char *a, const char *panel, int64_t stride,      \
                                              int64_t groups, int32_t *out) {                                                  \
    smelt_int8_v sums[SMELT_INT8_SUMS];                                                                                        \
    const int J = P * SMELT_INT8_VPP;                                                                                          \
    const char *b = panel + sizeof(smelt_int8_header);                                                                         \
    SMELT_INT8_UNROLL for (int j = 0; j < J; j++) {                                                                            \
      const smelt_int8_header *header __attribute__((unused)) = (const void *)(panel + j / SMELT_INT8_VPP * stride);           \
      const smelt_int8_v start = START;                                                                                        \
      SMELT_INT8_UNROLL for (int i = 0; i < R; i++) sums[i * J + j] = start;                                                   \
    }                                                                                                                          \
    for (int64_t g = 0; g < groups; g++)                                                                                       \
      smelt_int8_##FORM##_step(R, J, J, a + BYTES * R * g, b + SMELT_INT8_STEP * g, stride, sums);                             \
    SMELT_INT8_UNROLL for (int p = 0; p < P; p++) {                                                                            \
      const char *spare = b + p * stride + SMELT_INT8_STEP * groups;                                                           \
      const int32_t *of = (const int32_t *)(spare + SMELT_INT8_STEP * smelt_int8_spare(groups));                               \
      const int32_t spares = ((const smelt_int8_header *)(panel + p * stride))->spares;                                        \
      for (int32_t e = 0; e < spares; e++)                                                                                     \
        smelt_int8_##FORM##_step(R, SMELT_INT8_VPP, J, a + BYTES * R * (int64_t)of[e], spare + SMELT_INT8_STEP * e, stride,    \
                                 sums + p * SMELT_INT8_VPP);                                                                   \
    }                                                                                                                          \
    SMELT_INT8_UNROLL for (int i = 0; i < R * J; i++) *(smelt_int8_vu *)(out + i * SMELT_INT8_LANES) = sums[i];                \
  }
SMELT_INT8_BLOCK(wide, 8, (smelt_int8_v){0})
SMELT_INT8_BLOCK(pairs, 4, (smelt_int8_v){0})

typedef void (*smelt_int8_tile)(const char *a, const char *panel, int64_t stride, int64_t groups, int32_t *out);

/* Panels that a tile of R rows takes at a time: as many as its sums have registers for, a power of two. */
#define SMELT_INT8_FIT(R, P) ((R) * (P) * SMELT_INT8_VPP <= SMELT_INT8_SUMS)
#define SMELT_INT8_PANELS(R) (SMELT_INT8_FIT(R, 8) ? 8 : SMELT_INT8_FIT(R, 4) ? 4 : SMELT_INT8_FIT(R, 2) ? 2 : 1)

/* Defines smelt_<KIND>_<R>x<N>c4__<FEATURE>; ATTRIBUTE has what the unit's own build lacks. */
#define SMELT_INT8_TILE(R, N, FORM, KIND, FEATURE, ATTRIBUTE)                                                                  \
  ATTRIBUTE static void SMELT_MICRO_C(KIND, R, N, 4, FEATURE)(const char *a, const char *b, int64_t s, int64_t g, int32_t *out) { \
    _Static_assert(N == SMELT_INT8_PANEL || N == SMELT_INT8_PANEL * SMELT_INT8_PANELS(R), "columns of a tile");                \
    smelt_int8_##FORM##_block(R, N / SMELT_INT8_PANEL, a, b, s, g, out);                                                       \
  }
#define SMELT_INT8_ENTRY(R, N, FORM, KIND, FEATURE, ATTRIBUTE)                                                                 \
  {SMELT_MICRO_C(KIND, R, 16, 4, FEATURE), SMELT_MICRO_C(KIND, R, N, 4, FEATURE)},
#define SMELT_INT8_NO_ATTRIBUTE

/* X(rows, columns, ...) of all tiles: of one panel, of several, and the widest of each number of rows. */
#if SMELT_VL == 64
#define SMELT_INT8_ONE(X, ...)                                                                                                 \
  X(1, 16, __VA_ARGS__) X(2, 16, __VA_ARGS__) X(3, 16, __VA_ARGS__) X(4, 16, __VA_ARGS__) X(5, 16, __VA_ARGS__)                \
  X(6, 16, __VA_ARGS__) X(7, 16, __VA_ARGS__) X(8, 16, __VA_ARGS__) X(9, 16, __VA_ARGS__) X(10, 16, __VA_ARGS__)               \
  X(11, 16, __VA_ARGS__) X(12, 16, __VA_ARGS__)
#define SMELT_INT8_SEVERAL(X, ...)                                                                                             \
  X(1, 128, __VA_ARGS__) X(2, 128, __VA_ARGS__) X(3, 128, __VA_ARGS__) X(4, 64, __VA_ARGS__) X(5, 64, __VA_ARGS__)             \
  X(6, 64, __VA_ARGS__) X(7, 32, __VA_ARGS__) X(8, 32, __VA_ARGS__) X(9, 32, __VA_ARGS__) X(10, 32, __VA_ARGS__)               \
  X(11, 32, __VA_ARGS__) X(12, 32, __VA_ARGS__)
#define SMELT_INT8_WIDEST_OF(X, ...) SMELT_INT8_SEVERAL(X, __VA_ARGS__)
#elif SMELT_VL == 32 || defined(__aarch64__) /* where six rows and a panel fit the registers */
#define SMELT_INT8_TALL(X, ...) X(4, 16, __VA_ARGS__) X(5, 16, __VA_ARGS__) X(6, 16, __VA_ARGS__)
#define SMELT_INT8_ONE(X, ...)                                                                                                 \
  X(1, 16, __VA_ARGS__) X(2, 16, __VA_ARGS__) X(3, 16, __VA_ARGS__) SMELT_INT8_TALL(X, __VA_ARGS__)
#define SMELT_INT8_SEVERAL(X, ...) X(1, 64, __VA_ARGS__) X(2, 32, __VA_ARGS__) X(3, 32, __VA_ARGS__)
#define SMELT_INT8_WIDEST_OF(X, ...) SMELT_INT8_SEVERAL(X, __VA_ARGS__) SMELT_INT8_TALL(X, __VA_ARGS__)
#else
#define SMELT_INT8_ONE(X, ...) X(1, 16, __VA_ARGS__) X(2, 16, __VA_ARGS__)
#define SMELT_INT8_SEVERAL(X, ...) X(1, 32, __VA_ARGS__)
#define SMELT_INT8_WIDEST_OF(X, ...) SMELT_INT8_SEVERAL(X, __VA_ARGS__) X(2, 16, __VA_ARGS__)
#endif

/* Tables by rows - 1: for one panel, and for SMELT_INT8_PANELS(rows) of them. */
typedef const smelt_int8_tile (*smelt_int8_tiles)[2];
#define SMELT_INT8_TABLE(NAME, ...)                                                                                            \
  SMELT_INT8_ONE(SMELT_INT8_TILE, __VA_ARGS__) SMELT_INT8_SEVERAL(SMELT_INT8_TILE, __VA_ARGS__)                                \
  static const smelt_int8_tile NAME[][2] = {SMELT_INT8_WIDEST_OF(SMELT_INT8_ENTRY, __VA_ARGS__)};
SMELT_INT8_TABLE(smelt_int8_wide, wide, i16i8i32_gemm, SMELT_UNIT_FEATURE, SMELT_INT8_NO_ATTRIBUTE)
SMELT_INT8_TABLE(smelt_int8_pairs_, pairs, u8i8i32_gemm, SMELT_UNIT_FEATURE, SMELT_INT8_NO_ATTRIBUTE)

#ifdef SMELT_INT8_VNNI
SMELT_INT8_BYTES_STEP(smelt_int8_quads_step, __asm__(SMELT_INT8_DOT : "+v"(sums[i * row + j]) : "v"(all), "v"(four[j]));)
SMELT_INT8_BLOCK(quads, 4, (smelt_int8_v){0})
SMELT_INT8_TABLE(smelt_int8_quads, quads, u8i8i32_gemm, SMELT_INT8_VNNI_ISA, __attribute__((target(SMELT_INT8_VNNI))))
#endif

#if SMELT_VL == 16 && defined(__aarch64__) && defined(__ARM_FEATURE_FP16_VECTOR_ARITHMETIC)
#define SMELT_INT8_ARM
#endif

#endif
