/* Time by kernel, in a library that is built for profiling; nothing at all in any other.
 *
 * Input:     -DSMELT_PROFILE, and the marks that regions set: SMELT_CLOCKS before a region, SMELT_CLOCK_START at its
 *            beginning, SMELT_CLOCK after each group of kernels that run together.
 * Output:    an exported table of ticks for each region and level, and smelt_profile_clock() to tell how long a tick is; where a
 *            trace is asked for (ort_profile.h), the events of one run, task by task.
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

/* A trace: what happened, and when; of a task, how long it took. An event is one of these, or the end of a launch: the address of
 * its clock. */
enum { SMELT_TRACE_REGION = 1, SMELT_TRACE_FORK = 2, SMELT_TRACE_TASK = 3, SMELT_TRACE_JOIN = 4 };

typedef struct {
  int64_t what, tick;
} smelt_event;

typedef struct {
  smelt_event *events;
  int64_t room, used; /* events that fit; those that happened, which may be more */
  int64_t threads;    /* that work is cut for, while tasks run one after the other; 0: nothing is traced */
  int32_t cores;      /* that tasks are shared among: 1 or 2 */
  int32_t inside;     /* of a traced loop */
} smelt_trace_state;

/* One for the whole library, as smelt_sizes is. */
__attribute__((weak, visibility("hidden"))) smelt_trace_state smelt_trace;

static inline __attribute__((unused)) void smelt_mark(int64_t what, int64_t tick) {
  if (!smelt_trace.threads) return;
  if (smelt_trace.used < smelt_trace.room) smelt_trace.events[smelt_trace.used] = (smelt_event){what, tick};
  smelt_trace.used++;
}

#define SMELT_CLOCKS(region, count) \
  __attribute__((visibility("default"))) int64_t SMELT_NAME(region##_ticks)[(count) > 0 ? (count) : 1];
#define SMELT_CLOCK_START                \
  int64_t smelt_before = smelt_ticks(); \
  smelt_mark(SMELT_TRACE_REGION, smelt_before);
#define SMELT_CLOCK(region, place)                                                                          \
  {                                                                                                         \
    const int64_t now = smelt_ticks();                                                                      \
    __atomic_fetch_add(&SMELT_NAME(region##_ticks)[place], now - smelt_before, __ATOMIC_RELAXED);           \
    smelt_mark((int64_t)&SMELT_NAME(region##_ticks)[place], now);                                           \
    smelt_before = now;                                                                                     \
  }

#else

#define SMELT_CLOCKS(region, count)
#define SMELT_CLOCK_START
#define SMELT_CLOCK(region, place)

#endif
#endif
