/* Copies past the caches: rows that nobody reads soon.
 *
 * Input:     rows of `width` floats, each set a fixed step apart; they do not overlap, or are the same place.
 * Output:    the same rows elsewhere, visible to other threads when it returns.
 * Invariant: nothing is read or written beyond the rows.
 *
 * A store through the caches reads the line first. A cache of keys that is copied from call to call is megabytes long,
 * and is read again only after all weights have passed by.
 */
#ifndef SMELT_STREAM_H
#define SMELT_STREAM_H

#include <stdint.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

enum { SMELT_STREAM_LEAST = 32768 }; /* bytes below which caches are the better place */

#if defined(__x86_64__)
static inline __attribute__((always_inline, unused)) void smelt_stream_line(float *to, const float *from) {
#if defined(__AVX512F__)
  _mm512_stream_ps(to, _mm512_loadu_ps(from));
#elif defined(__AVX__)
  _mm256_stream_ps(to, _mm256_loadu_ps(from));
  _mm256_stream_ps(to + 8, _mm256_loadu_ps(from + 8));
#else
  for (int j = 0; j < 16; j += 4)
    _mm_stream_ps(to + j, _mm_loadu_ps(from + j));
#endif
}

/* What was streamed is visible to other threads after this. */
static inline __attribute__((always_inline, unused)) void smelt_stream_end(void) { _mm_sfence(); }

static __attribute__((unused)) void smelt_stream(float *to, const float *from, int64_t count) {
  int64_t i = 0;
  for (; i < count && ((uintptr_t)(to + i) & 63); ++i)
    to[i] = from[i];
  for (; i + 16 <= count; i += 16)
    smelt_stream_line(to + i, from + i);
  for (; i < count; ++i)
    to[i] = from[i];
  smelt_stream_end();
}
#else
static inline __attribute__((always_inline, unused)) void smelt_stream_line(float *to, const float *from) {
  __builtin_memcpy(to, from, 64);
}
static inline __attribute__((always_inline, unused)) void smelt_stream_end(void) {}

static __attribute__((unused)) void smelt_stream(float *to, const float *from, int64_t count) {
  __builtin_memcpy(to, from, (size_t)count * sizeof(float));
}
#endif

static __attribute__((unused)) void smelt_stream_rows(float *to, int64_t to_step, const float *from, int64_t from_step,
                                                      int64_t rows, int64_t width) {
  if (to == from && to_step == from_step)
    return;
  if (to_step == width && from_step == width && rows * width * (int64_t)sizeof(float) >= SMELT_STREAM_LEAST) {
    smelt_stream(to, from, rows * width);
    return;
  }
  for (int64_t i = 0; i < rows; ++i)
    __builtin_memcpy(to + i * to_step, from + i * from_step, (size_t)width * sizeof(float));
}

#endif
