/* Names of micro-kernels, which tell all: smelt_<types>_<operation>_<MR>x<NR>[c<KR>]__<feature>.
 *
 * Input:     SMELT_VL and the compiler's own macros. Output: SMELT_UNIT_FEATURE, SMELT_MICRO(), SMELT_MICRO_C().
 * Invariant: each micro-kernel is in codegen/c/micro_kernels.py under its name without smelt_, and nothing else is.
 *
 * Types are those of A, B and the accumulator, one where all are the same. MR are rows of A, NR columns of B; KR is how many k a
 * column's elements are interleaved by, where that is not 1. The feature is the last one that it needs (base/feature_list.h).
 */
#ifndef SMELT_MICRO_NAMES_H
#define SMELT_MICRO_NAMES_H

#if SMELT_VL == 64 && defined(__AVX512F__)
#define SMELT_UNIT_FEATURE avx512
#elif SMELT_VL == 64
#define SMELT_UNIT_FEATURE vl64 /* AVX-512 source on a lesser machine, for tests */
#elif SMELT_VL == 32
#define SMELT_UNIT_FEATURE avx2
#elif !defined(__aarch64__)
#define SMELT_UNIT_FEATURE sse4
#elif defined(__ARM_FEATURE_FP16_VECTOR_ARITHMETIC)
#define SMELT_UNIT_FEATURE neonfp16
#else
#define SMELT_UNIT_FEATURE neon
#endif

/* Columns of W vectors of float32. */
#if SMELT_VL == 64
#define SMELT_F32_OF_1 16
#define SMELT_F32_OF_2 32
#define SMELT_F32_OF_4 64
#define SMELT_F32_OF_8 128
#elif SMELT_VL == 32
#define SMELT_F32_OF_1 8
#define SMELT_F32_OF_2 16
#define SMELT_F32_OF_4 32
#define SMELT_F32_OF_8 64
#else
#define SMELT_F32_OF_1 4
#define SMELT_F32_OF_2 8
#define SMELT_F32_OF_4 16
#define SMELT_F32_OF_8 32
#define SMELT_F32_OF_16 64
#endif

#define SMELT_MICRO__(KIND, MR, NR, FEATURE) smelt_##KIND##_##MR##x##NR##__##FEATURE
#define SMELT_MICRO_(KIND, MR, NR, FEATURE) SMELT_MICRO__(KIND, MR, NR, FEATURE)
#define SMELT_MICRO_C__(KIND, MR, NR, KR, FEATURE) smelt_##KIND##_##MR##x##NR##c##KR##__##FEATURE
#define SMELT_MICRO_C_(KIND, MR, NR, KR, FEATURE) SMELT_MICRO_C__(KIND, MR, NR, KR, FEATURE)
/* R rows times W vectors of float32, for the features of the unit's build. */
#define SMELT_MICRO(KIND, R, W) SMELT_MICRO_(KIND, R, SMELT_F32_OF_##W, SMELT_UNIT_FEATURE)
/* R rows times N columns whose elements are interleaved by KR. */
#define SMELT_MICRO_C(KIND, R, N, KR, FEATURE) SMELT_MICRO_C_(KIND, R, N, KR, FEATURE)

#endif
