/* Matrices of 4-byte elements transposed: rows become columns.
 *
 * Input: from[r * from_stride + c]. Output: to[c * to_stride + r], bit for bit. Invariant: nothing is read or written
 * beyond rows x cols elements. Blocks of as many rows as a vector has lanes are transposed in registers, the rest by fours.
 */
#ifndef SMELT_TRANSPOSE_H
#define SMELT_TRANSPOSE_H

#include <stdint.h>

#define SMELT_TRANSPOSE_INLINE static inline __attribute__((always_inline, unused))

typedef float smelt_transpose_q __attribute__((vector_size(16), may_alias));
typedef float smelt_transpose_qu __attribute__((vector_size(16), aligned(4), may_alias));
typedef float smelt_transpose_word __attribute__((may_alias));

/* 4 x 4 elements. */
SMELT_TRANSPOSE_INLINE void smelt_transpose_four(const smelt_transpose_word *from, int64_t from_stride, smelt_transpose_word *to,
                                       int64_t to_stride) {
  const smelt_transpose_q a = *(const smelt_transpose_qu *)from;
  const smelt_transpose_q b = *(const smelt_transpose_qu *)(from + from_stride);
  const smelt_transpose_q c = *(const smelt_transpose_qu *)(from + 2 * from_stride);
  const smelt_transpose_q d = *(const smelt_transpose_qu *)(from + 3 * from_stride);
  const smelt_transpose_q ab0 = __builtin_shufflevector(a, b, 0, 4, 1, 5), ab1 = __builtin_shufflevector(a, b, 2, 6, 3, 7);
  const smelt_transpose_q cd0 = __builtin_shufflevector(c, d, 0, 4, 1, 5), cd1 = __builtin_shufflevector(c, d, 2, 6, 3, 7);
  *(smelt_transpose_qu *)to = __builtin_shufflevector(ab0, cd0, 0, 1, 4, 5);
  *(smelt_transpose_qu *)(to + to_stride) = __builtin_shufflevector(ab0, cd0, 2, 3, 6, 7);
  *(smelt_transpose_qu *)(to + 2 * to_stride) = __builtin_shufflevector(ab1, cd1, 0, 1, 4, 5);
  *(smelt_transpose_qu *)(to + 3 * to_stride) = __builtin_shufflevector(ab1, cd1, 2, 3, 6, 7);
}

/* Any number of rows and columns, by fours. */
static __attribute__((unused)) void smelt_transpose_any(const smelt_transpose_word *from, int64_t from_stride, int64_t rows,
                                                   int64_t cols, smelt_transpose_word *to, int64_t to_stride) {
  const int64_t rows4 = rows & ~(int64_t)3, cols4 = cols & ~(int64_t)3;
  for (int64_t c = 0; c < cols4; c += 4)
    for (int64_t r = 0; r < rows4; r += 4)
      smelt_transpose_four(from + r * from_stride + c, from_stride, to + c * to_stride + r, to_stride);
  for (int64_t c = 0; c < cols; ++c)
    for (int64_t r = c < cols4 ? rows4 : 0; r < rows; ++r)
      to[c * to_stride + r] = from[r * from_stride + c];
}

/* The lanes of vectors of four from rows 4 apart; two steps of shuffles within four lanes transpose four such vectors. */
#define SMELT_TRANSPOSE_PAIR(F, S, R)                                                                                       \
  __builtin_shufflevector(*(const smelt_transpose_qu *)((F) + (R) * (S)), *(const smelt_transpose_qu *)((F) + ((R) + 4) * (S)), 0, 1, \
                          2, 3, 4, 5, 6, 7)
#if defined(__AVX512F__)
enum { SMELT_TRANSPOSE_ROWS = 16 };
typedef float smelt_transpose_v __attribute__((vector_size(64), may_alias));
typedef float smelt_transpose_vu __attribute__((vector_size(64), aligned(4), may_alias));
#define SMELT_TRANSPOSE_LOAD(F, S)                                                                                          \
  __builtin_shufflevector(SMELT_TRANSPOSE_PAIR(F, S, 0), SMELT_TRANSPOSE_PAIR(F, S, 8), 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, \
                          14, 15)
#define SMELT_TRANSPOSE_LOW 0, 16, 1, 17, 4, 20, 5, 21, 8, 24, 9, 25, 12, 28, 13, 29
#define SMELT_TRANSPOSE_HIGH 2, 18, 3, 19, 6, 22, 7, 23, 10, 26, 11, 27, 14, 30, 15, 31
#define SMELT_TRANSPOSE_LOW2 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29
#define SMELT_TRANSPOSE_HIGH2 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31
#elif defined(__AVX2__)
enum { SMELT_TRANSPOSE_ROWS = 8 };
typedef float smelt_transpose_v __attribute__((vector_size(32), may_alias));
typedef float smelt_transpose_vu __attribute__((vector_size(32), aligned(4), may_alias));
#define SMELT_TRANSPOSE_LOAD(F, S) SMELT_TRANSPOSE_PAIR(F, S, 0)
#define SMELT_TRANSPOSE_LOW 0, 8, 1, 9, 4, 12, 5, 13
#define SMELT_TRANSPOSE_HIGH 2, 10, 3, 11, 6, 14, 7, 15
#define SMELT_TRANSPOSE_LOW2 0, 1, 8, 9, 4, 5, 12, 13
#define SMELT_TRANSPOSE_HIGH2 2, 3, 10, 11, 6, 7, 14, 15
#else
enum { SMELT_TRANSPOSE_ROWS = 4 };
#endif

/* SMELT_TRANSPOSE_ROWS rows of `cols` columns. */
static __attribute__((unused)) void smelt_transpose_rows(const smelt_transpose_word *from, int64_t from_stride, int64_t cols,
                                                     smelt_transpose_word *to, int64_t to_stride) {
  int64_t c = 0;
#ifdef SMELT_TRANSPOSE_LOAD
  for (; c + 4 <= cols; c += 4) {
    const smelt_transpose_word *at = from + c;
    smelt_transpose_word *there = to + c * to_stride;
    const smelt_transpose_v r0 = SMELT_TRANSPOSE_LOAD(at, from_stride), r1 = SMELT_TRANSPOSE_LOAD(at + from_stride, from_stride);
    const smelt_transpose_v r2 = SMELT_TRANSPOSE_LOAD(at + 2 * from_stride, from_stride);
    const smelt_transpose_v r3 = SMELT_TRANSPOSE_LOAD(at + 3 * from_stride, from_stride);
    const smelt_transpose_v low = __builtin_shufflevector(r0, r1, SMELT_TRANSPOSE_LOW);
    const smelt_transpose_v high = __builtin_shufflevector(r0, r1, SMELT_TRANSPOSE_HIGH);
    const smelt_transpose_v low2 = __builtin_shufflevector(r2, r3, SMELT_TRANSPOSE_LOW);
    const smelt_transpose_v high2 = __builtin_shufflevector(r2, r3, SMELT_TRANSPOSE_HIGH);
    *(smelt_transpose_vu *)there = __builtin_shufflevector(low, low2, SMELT_TRANSPOSE_LOW2);
    *(smelt_transpose_vu *)(there + to_stride) = __builtin_shufflevector(low, low2, SMELT_TRANSPOSE_HIGH2);
    *(smelt_transpose_vu *)(there + 2 * to_stride) = __builtin_shufflevector(high, high2, SMELT_TRANSPOSE_LOW2);
    *(smelt_transpose_vu *)(there + 3 * to_stride) = __builtin_shufflevector(high, high2, SMELT_TRANSPOSE_HIGH2);
  }
#endif
  smelt_transpose_any(from + c, from_stride, SMELT_TRANSPOSE_ROWS, cols - c, to + c * to_stride, to_stride);
}

/* Any number of rows and columns. */
static __attribute__((unused)) void smelt_transpose(const void *from, int64_t from_stride, int64_t rows, int64_t cols, void *to,
                                               int64_t to_stride) {
  const smelt_transpose_word *at = (const smelt_transpose_word *)from;
  smelt_transpose_word *there = (smelt_transpose_word *)to;
  for (; rows >= SMELT_TRANSPOSE_ROWS; rows -= SMELT_TRANSPOSE_ROWS) {
    smelt_transpose_rows(at, from_stride, cols, there, to_stride);
    at += SMELT_TRANSPOSE_ROWS * from_stride;
    there += SMELT_TRANSPOSE_ROWS;
  }
  smelt_transpose_any(at, from_stride, rows, cols, there, to_stride);
}

#endif
