/* Timed loops around gemm.h for bench/gemm.py: one shared library per CPU level.
 *
 * Input: operands made by the caller. Output: seconds. Invariant: the measured code is what generated kernels call.
 */
#include "smelt/gemm.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <time.h>

#define EXPORT __attribute__((visibility("default")))

/* Time of this thread alone for single-thread loops: what other processes take does not count. */
static double cpu_now(void) {
  struct timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Multiply-adds per second (in flops) of registers alone: twelve independent chains. */
EXPORT double bench_peak(int64_t steps) {
  smelt_gemm_v c[12], a = {0}, b = {0};
  for (int i = 0; i < 12; ++i)
    c[i] = a;
  a += 0.999f, b += 1e-6f;
  const double start = cpu_now();
  smelt_gemm_v c0 = c[0], c1 = c[1], c2 = c[2], c3 = c[3], c4 = c[4], c5 = c[5], c6 = c[6], c7 = c[7], c8 = c[8],
               c9 = c[9], c10 = c[10], c11 = c[11];
#define ONE(X) X = X * a + b;
  for (int64_t s = 0; s < steps; ++s) {
    __asm__ volatile("" ::: "memory");
    ONE(c0) ONE(c1) ONE(c2) ONE(c3) ONE(c4) ONE(c5) ONE(c6) ONE(c7) ONE(c8) ONE(c9) ONE(c10) ONE(c11)
  }
  const smelt_gemm_v sum = c0 + c1 + c2 + c3 + c4 + c5 + c6 + c7 + c8 + c9 + c10 + c11;
  const double seconds = cpu_now() - start;
  volatile float sink = sum[0];
  (void)sink;
  return 12.0 * SMELT_GEMM_LANES * 2.0 * (double)steps / seconds;
}

/* Seconds to read `floats` floats once, as eight streams. */
EXPORT double bench_read(const float *data, int64_t floats) {
  const int64_t part = floats / 8;
  smelt_gemm_v sum[8] = {{0}};
  const double start = cpu_now();
  for (int64_t i = 0; i + SMELT_GEMM_LANES <= part; i += SMELT_GEMM_LANES)
    for (int s = 0; s < 8; ++s)
      sum[s] += *(const smelt_gemm_vu *)(data + s * part + i);
  const double seconds = cpu_now() - start;
  volatile float sink = 0;
  for (int s = 0; s < 8; ++s)
    sink = sink + sum[s][0];
  return seconds;
}

EXPORT int64_t bench_workspace(void) { return SMELT_GEMM_WORKSPACE(SMELT_GEMM_MC); }

/* Seconds of one product, over `repeats` of them; `copies` sets of weights are used in turn. */
EXPORT double bench_one(const float *A, const float *Bp, int64_t copies, float *C, int64_t M, int64_t N, int64_t K,
                        int64_t repeats, float *workspace) {
  const int64_t panels = (N + 15) / 16, stride = smelt_gemm_packed_floats(K, N);
  const double start = cpu_now();
  for (int64_t r = 0; r < repeats; ++r)
    smelt_gemm_f32(A, K, Bp + r % copies * stride, K, C, N, M, 0, panels, N, workspace);
  return (cpu_now() - start) / (double)repeats;
}

typedef struct {
  const float *A, *Bp;
  float *C;
  int64_t M, N, K, repeats;
  smelt_gemm_tasks plan;
  atomic_int_fast64_t next, arrived;
  int64_t threads;
  _Atomic double busy; /* CPU seconds spent in tasks, by all threads */
} team;

static void run_task(team *t, int64_t index) {
  float workspace[SMELT_GEMM_WORKSPACE(SMELT_GEMM_MC)] __attribute__((aligned(64)));
  const int64_t row = index % t->plan.row_tasks * t->plan.rows, p0 = index / t->plan.row_tasks * t->plan.panels;
  const int64_t m = smelt_gemm_min(t->plan.rows, t->M - row);
  const int64_t p1 = smelt_gemm_min(p0 + t->plan.panels, (t->N + 15) / 16);
  smelt_gemm_f32(t->A + row * t->K, t->K, t->Bp, t->K, t->C + row * t->N + p0 * 16, t->N, m, p0, p1, t->N, workspace);
}

/* Each repeat draws tickets of its own range, and begins when every thread has finished the one before. */
static void *member(void *argument) {
  team *t = argument;
  const int64_t tasks = t->plan.row_tasks * t->plan.panel_tasks, tickets = tasks + t->threads;
  double busy = 0;
  for (int64_t r = 0; r < t->repeats; ++r) {
    const double start = cpu_now();
    for (;;) {
      const int64_t ticket = atomic_fetch_add(&t->next, 1) - r * tickets;
      if (ticket >= tasks)
        break;
      run_task(t, ticket);
    }
    busy += cpu_now() - start;
    atomic_fetch_add(&t->arrived, 1);
    while (atomic_load(&t->arrived) < (r + 1) * t->threads)
      sched_yield();
  }
  for (double seen = t->busy; !atomic_compare_exchange_weak(&t->busy, &seen, seen + busy);)
    ;
  return 0;
}

/* Seconds of one product shared by `threads` threads by smelt_gemm_plan; *busy is the CPU time that all of them put in. */
EXPORT double bench_team(const float *A, const float *Bp, float *C, int64_t M, int64_t N, int64_t K, int64_t repeats,
                         int64_t threads, double *busy) {
  team t = {.A = A, .Bp = Bp, .C = C, .M = M, .N = N, .K = K, .repeats = repeats, .threads = threads};
  t.plan = smelt_gemm_plan(M, N, K, threads, 0);
  pthread_t others[64];
  const double start = now();
  for (int64_t i = 1; i < threads; ++i)
    pthread_create(&others[i], 0, member, &t);
  member(&t);
  for (int64_t i = 1; i < threads; ++i)
    pthread_join(others[i], 0);
  *busy = t.busy / (double)repeats;
  return (now() - start) / (double)repeats;
}
