/* What a library that is built for profiling can do beside its work: trace a run task by task, and time an empty parallel loop.
 *
 * Input:     smelt_profile_trace(): a number of threads that work is to be cut for, and room for events; smelt_profile_barriers():
 *            how many loops are to be timed. Both are for the next runs of a session.
 * Output:    events as profile.h has them: tasks run one after the other, so that each has its own cost, on the calling thread or
 *            half of them on another, so that they find in the other core's cache what it has made; ticks of loops in which
 *            every thread takes part.
 * Invariant: results are those of any other number of threads. Included by ort_glue.h, in such a library alone.
 */
#ifndef SMELT_ORT_PROFILE_H
#define SMELT_ORT_PROFILE_H

#include <smelt/base/machine_load.h>
#include <smelt/base/profile.h>
#include <smelt/threads/threads.h>

#define SMELT_PROFILE_API __attribute__((visibility("default")))
#define SMELT_BARRIER_PATIENCE 4000000 /* ticks that a task waits for the other threads */

typedef struct {
  int64_t *ticks;
  int64_t loops, threads;
} smelt_barrier_state;

static smelt_barrier_state smelt_barriers;

SMELT_PROFILE_API int64_t smelt_profile_clock(void);
SMELT_PROFILE_API void smelt_profile_trace(int64_t threads, int64_t cores, smelt_event *events, int64_t room);
SMELT_PROFILE_API int64_t smelt_profile_traced(void);
SMELT_PROFILE_API void smelt_profile_barriers(int64_t threads, int64_t *ticks, int64_t loops);

int64_t smelt_profile_clock(void) { return smelt_ticks(); }

/* Runs from now on are cut for `threads` threads and traced; 0: as the machine says, and not traced. */
void smelt_profile_trace(int64_t threads, int64_t cores, smelt_event *events, int64_t room) {
  smelt_machine m = smelt_this_machine;
  smelt_trace = (smelt_trace_state){events, room, 0, threads, (int32_t)cores, 0};
  if (!threads) {
    smelt_machine_load();
    return;
  }
  m.threads = threads;
  smelt_machine_apply(&m);
}

/* Events of the runs since then. */
int64_t smelt_profile_traced(void) { return smelt_trace.used; }

/* The next call of a region times `loops` loops of `threads` tasks first. */
void smelt_profile_barriers(int64_t threads, int64_t *ticks, int64_t loops) {
  smelt_barriers = (smelt_barrier_state){ticks, loops, threads};
}

/* The tasks of a traced loop, of which the next one is `next`. */
typedef struct {
  smelt_body body;
  void *ctx;
  int64_t count, next;
  int32_t busy;
  const void *caller;
} smelt_profile_tasks;

/* A half of the tasks, one at a time: the caller's is the first one, as ONNX Runtime's pool shares them out. Where the other thread
 * does not come, all that are left. */
static void smelt_profile_half(void *ctx, int64_t index) {
  smelt_profile_tasks *t = (smelt_profile_tasks *)ctx;
  const int64_t who = smelt_thread() != t->caller;
  (void)index;
  for (int64_t waited = smelt_ticks();;) {
    const int64_t i = __atomic_load_n(&t->next, __ATOMIC_ACQUIRE);
    if (i >= t->count) return;
    if (i * smelt_trace.cores / t->count != who && smelt_ticks() - waited < SMELT_BARRIER_PATIENCE) continue;
    if (__atomic_exchange_n(&t->busy, 1, __ATOMIC_ACQUIRE)) continue;
    if (__atomic_load_n(&t->next, __ATOMIC_ACQUIRE) == i) {
      const int64_t before = smelt_ticks();
      t->body(t->ctx, i);
      smelt_mark(SMELT_TRACE_TASK, smelt_ticks() - before);
      __atomic_store_n(&t->next, i + 1, __ATOMIC_RELEASE);
      waited = smelt_ticks();
    }
    __atomic_store_n(&t->busy, 0, __ATOMIC_RELEASE);
  }
}

/* A loop of a traced run; all threads are taken to have helped. */
static void smelt_profile_loop(smelt_env *env, int64_t count, smelt_body body, void *ctx) {
  const int64_t threads = count < smelt_trace.threads ? count : smelt_trace.threads;
  smelt_profile_tasks tasks = {body, ctx, count, 0, 0, smelt_thread()};
  smelt_mark(SMELT_TRACE_FORK, smelt_ticks());
  smelt_trace.inside = 1;
  if (smelt_trace.cores > 1) env->parallel(env, smelt_trace.cores, smelt_profile_half, &tasks);
  else smelt_profile_half(&tasks, 0);
  smelt_trace.inside = 0;
  smelt_mark(SMELT_TRACE_JOIN, smelt_ticks());
  if (env->helpers < threads - 1) env->helpers = (int32_t)(threads - 1);
}

/* A task that waits for all others: no thread has two of them. */
static void smelt_profile_meet(void *ctx, int64_t index) {
  int64_t *const arrived = (int64_t *)ctx, started = smelt_ticks();
  (void)index;
  __atomic_fetch_add(arrived, 1, __ATOMIC_ACQ_REL);
  while (__atomic_load_n(arrived, __ATOMIC_ACQUIRE) < smelt_barriers.threads)
    if (smelt_ticks() - started > SMELT_BARRIER_PATIENCE) return;
}

static void smelt_profile_time_barriers(smelt_env *env) {
  for (int64_t i = 0; i < smelt_barriers.loops; i++) {
    int64_t arrived = 0;
    const int64_t before = smelt_ticks();
    env->parallel(env, smelt_barriers.threads, smelt_profile_meet, &arrived);
    smelt_barriers.ticks[i] = smelt_ticks() - before;
  }
  smelt_barriers.loops = 0;
}

#endif
