/* Time by kernel, in a library that is built for profiling; nothing at all in any other.
 *
 * Input:     -DSMELT_PROFILE, and the marks that regions set: SMELT_CLOCKS before a region, SMELT_CLOCK_START at its
 *            beginning, SMELT_CLOCK after each group of kernels that run together.
 * Output:    an exported table of ticks for each region and level, and smelt_profile_clock() to tell how long a tick is.
 * Invariant: without -DSMELT_PROFILE the marks are empty, so that both libraries run the same code between them.
 */
#ifndef SMELT_PROFILE_H
#define SMELT_PROFILE_H

#include <stdint.h>

#ifdef SMELT_PROFILE

static inline __attribute__((unused)) int64_t smelt_ticks(void) {
#if defined(__aarch64__)
  int64_t now;
  __asm__ volatile("mrs %0, cntvct_el0" : "=r"(now));
  return now;
#else
  return (int64_t)__builtin_ia32_rdtsc();
#endif
}

#define SMELT_CLOCKS(region, count) \
  __attribute__((visibility("default"))) int64_t SMELT_NAME(region##_ticks)[(count) > 0 ? (count) : 1];
#define SMELT_CLOCK_START int64_t smelt_before = smelt_ticks();
#define SMELT_CLOCK(region, place)                                                                          \
  {                                                                                                         \
    const int64_t now = smelt_ticks();                                                                      \
    __atomic_fetch_add(&SMELT_NAME(region##_ticks)[place], now - smelt_before, __ATOMIC_RELAXED);           \
    smelt_before = now;                                                                                     \
  }

#else

#define SMELT_CLOCKS(region, count)
#define SMELT_CLOCK_START
#define SMELT_CLOCK(region, place)

#endif
#endif
