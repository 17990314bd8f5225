/* Vector types of SMELT_L lanes for every dtype, the ISA that serves them, and lane lists.
 *
 * Input: SMELT_VL, the register width in bytes (16, 32 or 64); chosen from the target when it is not given.
 * Output: v_f32 ... v_u64 and v_b, each of SMELT_L = SMELT_VL / 4 lanes, so that expressions of mixed dtypes stay aligned.
 * Invariant: a register holds one native width of 32-bit lanes.
 *   - i8, i16, u8, u16 live in 32-bit lanes, sign- or zero-extended: always a value of their range (SMELT wrap_D keeps it).
 *   - f64, i64, u64 are two native registers, lanes 0..H-1 in .lo and H..L-1 in .hi. A struct, because GCC turns
 *     comparisons of vectors wider than a register into scalar code.
 *   - f16, bf16 live in 32-bit lanes as floats that are values of their type (vec_half.h).
 *   - v_b is a mask: every lane 0 or -1. In memory a bool is one byte, 0 or 1.
 * Use the functions of vec.h, not operators: operators do not wrap small integers and do not exist for structs. */
#ifndef SMELT_VEC_TYPES_H
#define SMELT_VEC_TYPES_H

#include <stdint.h>

#ifndef SMELT_VL
#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__) && defined(__AVX512VL__)
#define SMELT_VL 64
#elif defined(__AVX2__)
#define SMELT_VL 32
#else
#define SMELT_VL 16
#endif
#endif

#if SMELT_VL != 16 && SMELT_VL != 32 && SMELT_VL != 64
#error "SMELT_VL must be 16, 32 or 64"
#endif

/* Vectors wider than the target's registers are only passed between inlined functions. */
#if defined(__GNUC__)
#pragma GCC diagnostic ignored "-Wpsabi"
#endif

/* SMELT_ISA: 128, 256, 512 = x86 intrinsics of exactly SMELT_VL; 64 = AArch64 NEON; 0 = portable vector code. */
#if SMELT_VL == 64 && defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__) && defined(__AVX512VL__)
#define SMELT_ISA 512
#elif SMELT_VL == 32 && defined(__AVX2__)
#define SMELT_ISA 256
#elif SMELT_VL == 16 && defined(__SSE4_1__)
#define SMELT_ISA 128
#elif SMELT_VL == 16 && defined(__aarch64__) && defined(__ARM_NEON)
#define SMELT_ISA 64
#else
#define SMELT_ISA 0
#endif

#if SMELT_ISA >= 128
/* The intrinsics' allocator wants libc's headers, which a cross build need not have: its guards, set, leave it out. */
#ifndef __MM_MALLOC_H
#define __MM_MALLOC_H
#endif
#ifndef _MM_MALLOC_H_INCLUDED
#define _MM_MALLOC_H_INCLUDED
#endif
#if defined(__AVX__) && !defined(__clang__) && __GNUC__ >= 11 && __GNUC__ <= 14 && !defined(_IMMINTRIN_H_INCLUDED)
/* gcc takes 0.3 s to read all of its intrinsics, and 0.03 (AVX2) to 0.1 (AVX-512) for these, which want the guard of the whole
 * to be set. Other versions may divide them otherwise. */
#define _IMMINTRIN_H_INCLUDED
#include <smmintrin.h>
#include <avxintrin.h>
#include <avx2intrin.h>
#include <fmaintrin.h>
#include <f16cintrin.h>
#ifdef __AVX512F__
#include <avx512fintrin.h>
#include <avx512vlintrin.h>
#include <avx512bwintrin.h>
#include <avx512dqintrin.h>
#include <avx512vlbwintrin.h>
#endif
#elif defined(__AVX__)
#include <immintrin.h>
#else
#include <smmintrin.h> /* what the baseline has, in a tenth of the time that all of them take */
#endif
#elif SMELT_ISA == 64
#include <arm_neon.h>
#endif

#if (SMELT_ISA >= 128 && defined(__FMA__)) || SMELT_ISA == 64
#define SMELT_HAS_FMA 1
#else
#define SMELT_HAS_FMA 0
#endif

#define SMELT_L (SMELT_VL / 4)
#define SMELT_H (SMELT_VL / 8)
#ifdef __OPTIMIZE__
#define SMELT_FN static inline __attribute__((always_inline, unused))
#else
#define SMELT_FN static inline __attribute__((unused)) /* without optimization, copies of them are most of the code */
#endif

typedef float v_f32 __attribute__((vector_size(SMELT_VL)));
typedef int32_t v_i32 __attribute__((vector_size(SMELT_VL)));
typedef uint32_t v_u32 __attribute__((vector_size(SMELT_VL)));
typedef v_i32 v_i8, v_i16, v_u8, v_u16, v_b;
typedef v_f32 v_f16, v_bf16;

typedef double h_f64 __attribute__((vector_size(SMELT_VL)));
typedef int64_t h_i64 __attribute__((vector_size(SMELT_VL)));
typedef uint64_t h_u64 __attribute__((vector_size(SMELT_VL)));
typedef struct { h_f64 lo, hi; } v_f64;
typedef struct { h_i64 lo, hi; } v_i64;
typedef struct { h_u64 lo, hi; } v_u64;

/* Keeps a value in a register, as it was rounded: left to itself, gcc loads it again for each of its uses, or makes a
 * product part of a fused multiply-add. */
#if defined(__aarch64__)
#define SMELT_HELD(V) __asm__("" : "+w"(V))
#elif SMELT_VL == 64 && defined(__AVX512F__)
#define SMELT_HELD(V) __asm__("" : "+v"(V))
#elif SMELT_VL < 64 && defined(__SSE2__)
#define SMELT_HELD(V) __asm__("" : "+x"(V))
#else
#define SMELT_HELD(V) (void)(V)
#endif

typedef float T_f32;
typedef double T_f64;
typedef uint16_t T_f16;
typedef uint16_t T_bf16;
typedef int8_t T_i8;
typedef int16_t T_i16;
typedef int32_t T_i32;
typedef int64_t T_i64;
typedef uint8_t T_u8;
typedef uint16_t T_u16;
typedef uint32_t T_u32;
typedef uint64_t T_u64;
typedef uint8_t T_b;

/* Dtype lists: SMALL share the 32-bit carrier and need wrapping; WORD are native 32-bit; WIDE are pairs;
 * HALF are in memory only, and computed in f32. */
#define SMELT_EACH_SMALL(X) X(i8) X(i16) X(u8) X(u16)
#define SMELT_EACH_WORD(X) X(f32) X(i32) X(u32)
#define SMELT_EACH_WIDE(X) X(f64) X(i64) X(u64)
#define SMELT_EACH_INT32(X) SMELT_EACH_SMALL(X) X(i32)
#define SMELT_EACH_INT(X) SMELT_EACH_SMALL(X) X(i32) X(u32) X(i64) X(u64)
#define SMELT_EACH_HALF(X) X(f16) X(bf16)
#define SMELT_EACH_DTYPE(X) SMELT_EACH_SMALL(X) SMELT_EACH_WORD(X) SMELT_EACH_WIDE(X) X(b)
#define SMELT_EACH_STORED(X) SMELT_EACH_DTYPE(X) SMELT_EACH_HALF(X)

/* Lane lists for initializers: LANES = all L lanes, LANES_LO and LANES_HI = the halves. */
#define SMELT_LIST2(E, s) E((s)), E((s) + 1)
#define SMELT_LIST4(E, s) SMELT_LIST2(E, s), SMELT_LIST2(E, (s) + 2)
#define SMELT_LIST8(E, s) SMELT_LIST4(E, s), SMELT_LIST4(E, (s) + 4)
#define SMELT_LIST16(E, s) SMELT_LIST8(E, s), SMELT_LIST8(E, (s) + 8)
#if SMELT_L == 4
#define SMELT_LANES(E) SMELT_LIST4(E, 0)
#define SMELT_LANES_LO(E) SMELT_LIST2(E, 0)
#define SMELT_LANES_HI(E) SMELT_LIST2(E, 2)
#elif SMELT_L == 8
#define SMELT_LANES(E) SMELT_LIST8(E, 0)
#define SMELT_LANES_LO(E) SMELT_LIST4(E, 0)
#define SMELT_LANES_HI(E) SMELT_LIST4(E, 4)
#else
#define SMELT_LANES(E) SMELT_LIST16(E, 0)
#define SMELT_LANES_LO(E) SMELT_LIST8(E, 0)
#define SMELT_LANES_HI(E) SMELT_LIST8(E, 8)
#endif
#define SMELT_LANE_NUMBER(i) (i)

/* Values of the small dtypes, brought back into their range after 32-bit arithmetic. */
SMELT_FN v_i32 wrap_i8(v_i32 v) { return (v_i32)((v_u32)v << 24) >> 24; }
SMELT_FN v_i32 wrap_i16(v_i32 v) { return (v_i32)((v_u32)v << 16) >> 16; }
SMELT_FN v_i32 wrap_u8(v_i32 v) { return v & 0xff; }
SMELT_FN v_i32 wrap_u16(v_i32 v) { return v & 0xffff; }
SMELT_FN v_i32 wrap_i32(v_i32 v) { return v; }

SMELT_FN h_f64 splat_f64(double x) { return x - (h_f64){0}; }
SMELT_FN h_i64 splat_i64(int64_t x) { return x + (h_i64){0}; }
SMELT_FN h_u64 splat_u64(uint64_t x) { return x + (h_u64){0}; }

SMELT_FN v_i8 bc_i8(int8_t x) { return x + (v_i32){0}; }
SMELT_FN v_i16 bc_i16(int16_t x) { return x + (v_i32){0}; }
SMELT_FN v_i32 bc_i32(int32_t x) { return x + (v_i32){0}; }
SMELT_FN v_u8 bc_u8(uint8_t x) { return (int32_t)x + (v_i32){0}; }
SMELT_FN v_u16 bc_u16(uint16_t x) { return (int32_t)x + (v_i32){0}; }
SMELT_FN v_u32 bc_u32(uint32_t x) { return x + (v_u32){0}; }
SMELT_FN v_f32 bc_f32(float x) { return x - (v_f32){0}; }
SMELT_FN v_f64 bc_f64(double x) { return (v_f64){splat_f64(x), splat_f64(x)}; }
SMELT_FN v_i64 bc_i64(int64_t x) { return (v_i64){splat_i64(x), splat_i64(x)}; }
SMELT_FN v_u64 bc_u64(uint64_t x) { return (v_u64){splat_u64(x), splat_u64(x)}; }
SMELT_FN v_b bc_b(uint8_t x) { return -(int32_t)(x != 0) + (v_i32){0}; }

SMELT_FN v_i64 iota_i64(void) {
  return (v_i64){(h_i64){SMELT_LANES_LO(SMELT_LANE_NUMBER)}, (h_i64){SMELT_LANES_HI(SMELT_LANE_NUMBER)}};
}
SMELT_FN v_i32 iota_i32(void) { return (v_i32){SMELT_LANES(SMELT_LANE_NUMBER)}; }

SMELT_FN v_b tail_mask(int64_t n) { return iota_i32() < bc_i32((int32_t)n); }

/* True if any, if all lanes are set. */
SMELT_FN int hor_b(v_b v) {
#if SMELT_ISA == 512
  return _mm512_movepi32_mask((__m512i)v) != 0;
#elif SMELT_ISA == 256
  return _mm256_movemask_ps((__m256)v) != 0;
#elif SMELT_ISA == 128
  return _mm_movemask_ps((__m128)v) != 0;
#elif SMELT_ISA == 64
  return vmaxvq_u32((uint32x4_t)v) != 0;
#else
  int32_t any = 0;
  for (int i = 0; i < SMELT_L; i++) any |= v[i];
  return any != 0;
#endif
}
SMELT_FN int hand_b(v_b v) { return !hor_b(~v); }

#endif
