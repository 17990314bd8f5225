/* What a host tells regions of threads.
 *
 * Input:     the operating system. Output: smelt_thread(), smelt_processors(). Invariant: neither takes a lock or allocates.
 */
#ifndef SMELT_THREADS_H
#define SMELT_THREADS_H

#include <stddef.h>
#include <stdint.h>

#ifdef __linux__
int sched_getaffinity(int thread, size_t bytes, void *mask);
#endif

/* Something that differs from thread to thread. */
static inline __attribute__((unused)) const void *smelt_thread(void) {
  const void *self;
#if defined(__aarch64__)
  __asm__("mrs %0, tpidr_el0" : "=r"(self));
#else
  __asm__("mov %%fs:0, %0" : "=r"(self));
#endif
  return self;
}

/* Processors that the calling thread may use; 0: not known. */
static inline __attribute__((unused)) int32_t smelt_processors(void) {
  int32_t count = 0;
#ifdef __linux__
  uint64_t mask[128] = {0};
  if (sched_getaffinity(0, sizeof mask, mask)) return 0;
  for (int i = 0; i < 128; i++)
    for (uint64_t rest = mask[i]; rest; rest &= rest - 1) count++;
#endif
  return count;
}

#endif
