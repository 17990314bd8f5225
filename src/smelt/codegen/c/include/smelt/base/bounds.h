/* Memory of its own for every buffer, in libraries that check bounds (SMELT_BOUNDS=1, which compiles with AddressSanitizer).
 *
 * Input:     a place inside of a larger block, and the bytes that are used there.
 * Output:    SMELT_FENCED() for buffers of a task, SMELT_FENCED_SLOT() for temporaries of a region, smelt_fenced_block() for what a
 *            task claims.
 * Invariant: elsewhere both are the place itself. Here they are memory with nothing on either side, so that the sanitizer sees
 *            every access beyond a buffer, and its bytes are those of a NaN, so that an element that is read before it is
 *            written shows.
 */
#ifndef SMELT_BOUNDS_H
#define SMELT_BOUNDS_H

#include <smelt/base/kernel.h>

#ifdef __SANITIZE_ADDRESS__
#define SMELT_FENCED(at, bytes)                                                     \
  ({                                                                             \
    const size_t fenced_bytes = (size_t)(bytes);                                    \
    (void)(at);                                                                  \
    __builtin_memset(__builtin_alloca_with_align(fenced_bytes, 512), 255, fenced_bytes); \
  })
#define SMELT_FENCED_SLOT(env, at, bytes) smelt_fenced_slot(env, at, bytes)

static inline __attribute__((unused)) void *smelt_fenced_slot(smelt_env *env, void *at, int64_t bytes) {
  void *own = env->scratch(env, bytes);
  return own ? own : at;
}

int posix_memalign(void **, size_t, size_t);
static inline __attribute__((unused)) char *smelt_fenced_block(int64_t bytes) {
  void *own = NULL;
  if (posix_memalign(&own, 64, (size_t)bytes)) __builtin_trap();
  return (char *)__builtin_memset(own, 255, (size_t)bytes);
}
#else
#define SMELT_FENCED(at, bytes) (at)
#define SMELT_FENCED_SLOT(env, at, bytes) (at)
#endif

#endif
