/* Copies by non-temporal stores: rows that nobody reads soon.
 *
 * Input:     rows of `width` floats, each set a fixed step apart; they do not overlap, or are the same place.
 * Output:    the same rows elsewhere, visible to other threads when it returns.
 * Invariant: nothing is read or written beyond the rows.
 *
 * An ordinary store reads the line first. A KV cache that is copied from call to call is megabytes long, and is read again
 * only after all weights were.
 */
#ifndef SMELT_NONTEMPORAL_H
#define SMELT_NONTEMPORAL_H

#include <stdint.h>

enum { SMELT_NT_LEAST = 32768 }; /* bytes below which caches are the better place */

/* Whether there are such stores. */
#if defined(__x86_64__)
#define SMELT_HAS_NT 1
#else
#define SMELT_HAS_NT 0
#endif

#if SMELT_HAS_NT
/* Built-in functions in place of immintrin.h, which wants the headers of a libc. */
#if defined(__AVX512F__)
#define SMELT_NT_BYTES 64
#define SMELT_NT_STORE __builtin_ia32_movntps512
#elif defined(__AVX__)
#define SMELT_NT_BYTES 32
#define SMELT_NT_STORE __builtin_ia32_movntps256
#else
#define SMELT_NT_BYTES 16
#define SMELT_NT_STORE __builtin_ia32_movntps
#endif
typedef float smelt_nt_v __attribute__((vector_size(SMELT_NT_BYTES)));
typedef float smelt_nt_u __attribute__((vector_size(SMELT_NT_BYTES), aligned(4), may_alias));

/* Sixteen floats, the first on a boundary of 64 bytes. */
static inline __attribute__((always_inline, unused)) void smelt_nt_line(float *to, const float *from) {
  for (int j = 0; j < 16; j += SMELT_NT_BYTES / 4) {
    const smelt_nt_v line = *(const smelt_nt_u *)(from + j);
#if defined(__clang__)
    __builtin_nontemporal_store(line, (smelt_nt_v *)(to + j));
#else
    SMELT_NT_STORE(to + j, line);
#endif
  }
}

/* What was stored is visible to other threads after this. */
static inline __attribute__((always_inline, unused)) void smelt_nt_end(void) { __builtin_ia32_sfence(); }

static __attribute__((unused)) void smelt_nt_copy(float *to, const float *from, int64_t count) {
  int64_t i = 0;
  for (; i < count && ((uintptr_t)(to + i) & 63); ++i)
    to[i] = from[i];
  for (; i + 16 <= count; i += 16)
    smelt_nt_line(to + i, from + i);
  for (; i < count; ++i)
    to[i] = from[i];
  smelt_nt_end();
}
#else
static inline __attribute__((always_inline, unused)) void smelt_nt_line(float *to, const float *from) {
  __builtin_memcpy(to, from, 64);
}
static inline __attribute__((always_inline, unused)) void smelt_nt_end(void) {}

static __attribute__((unused)) void smelt_nt_copy(float *to, const float *from, int64_t count) {
  __builtin_memcpy(to, from, (size_t)count * sizeof(float));
}
#endif

static __attribute__((unused)) void smelt_nt_rows(float *to, int64_t to_step, const float *from, int64_t from_step,
                                                      int64_t rows, int64_t width) {
  if (to == from && to_step == from_step)
    return;
  if (to_step == width && from_step == width && rows * width * (int64_t)sizeof(float) >= SMELT_NT_LEAST) {
    smelt_nt_copy(to, from, rows * width);
    return;
  }
  for (int64_t i = 0; i < rows; ++i)
    __builtin_memcpy(to + i * to_step, from + i * from_step, (size_t)width * sizeof(float));
}

#endif
