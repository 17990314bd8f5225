/* Timed loops around gemm.h for bench/gemm.py: one shared library per CPU level.
 *
 * Input: operands made by the caller. Output: seconds. Invariant: the measured code is what generated kernels call.
 */
#define _GNU_SOURCE
#include "smelt/gemm/gemm_unpacked.h"

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

/* Multiply-adds per second (in flops) of registers alone: twelve independent chains. Short: what it is compared with runs right
 * before or after it, at the same clock. */
static double peak(int64_t steps) {
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

/* No-ops that the core issues in a cycle, by a chain of multiplications of three cycles each: four or more while it is alone,
 * about half of that while a neighbour runs on its other hardware thread. */
static double width(void) {
#if defined(__x86_64__)
  double start = cpu_now();
  for (int i = 0; i < 5000; ++i)
    __asm__ volatile("imul %%rax, %%rax\n\timul %%rax, %%rax\n\timul %%rax, %%rax\n\timul %%rax, %%rax" ::: "rax");
  const double cycles = 5000 * 12 / (cpu_now() - start);
  start = cpu_now();
  for (int i = 0; i < 8000; ++i)
    __asm__ volatile(".rept 50\n\tnop\n\t.endr");
  return 8000 * 52 / (cpu_now() - start) / cycles;
#else
  return 0;
#endif
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

/* Seconds of one product, over `repeats` of them; `copies` sets of weights are used in turn. */
EXPORT double bench_one(const float *A, const float *Bp, int64_t copies, float *C, int64_t M, int64_t N, int64_t K,
                        int64_t repeats) {
  const int64_t panels = (N + 15) / 16, stride = smelt_gemm_packed_floats(K, N);
  const double start = cpu_now();
  for (int64_t r = 0; r < repeats; ++r)
    smelt_gemm_f32(A, K, Bp + r % copies * stride, K, C, N, M, 0, panels, N, NULL);
  return (cpu_now() - start) / (double)repeats;
}

/* One run of a team: each thread measures its peak, all compute one product together, each measures its peak again. One thread
 * is timed by its own time; several by the clock, which means little unless the machine is idle otherwise. */
typedef struct {
  const float *A, *Bp;
  float *C;
  int64_t M, N, K, rounds, copies, threads;
  smelt_gemm_tasks plan;
  atomic_int_fast64_t next, arrived;
  double *out; /* per round: share of the peak, flops a second, peak, width of the narrowest core */
  double peaks[64], widths[64], starts[64], ends[64];
} team;

/* Member `place` stays on one CPU of those that the process may use: two members that wait for each other are put on one CPU
 * now and then, and a product of 50 us is over before the scheduler parts them. */
static void stay(int64_t place, const cpu_set_t *allowed) {
  const int64_t wanted = place % CPU_COUNT(allowed);
  cpu_set_t one;
  CPU_ZERO(&one);
  for (int cpu = 0, seen = 0; cpu < CPU_SETSIZE; ++cpu)
    if (CPU_ISSET(cpu, allowed) && seen++ == wanted) CPU_SET(cpu, &one);
  pthread_setaffinity_np(pthread_self(), sizeof one, &one);
}

static void wait_for_all(team *t, int64_t *meeting) {
  const int64_t all = ++*meeting * t->threads;
  atomic_fetch_add(&t->arrived, 1);
  while (atomic_load(&t->arrived) < all)
    sched_yield();
}

static void run_tasks(team *t, int64_t r) {
  const int64_t tasks = t->plan.row_tasks * t->plan.panel_tasks, tickets = tasks + t->threads;
  const float *Bp = t->Bp + r % t->copies * smelt_gemm_packed_floats(t->K, t->N);
  for (int64_t ticket; (ticket = atomic_fetch_add(&t->next, 1) - r * tickets) < tasks;) {
    const int64_t row = ticket % t->plan.row_tasks * t->plan.rows, p0 = ticket / t->plan.row_tasks * t->plan.panels;
    const int64_t p1 = smelt_gemm_min(p0 + t->plan.panels, (t->N + 15) / 16);
    smelt_gemm_f32(t->A + row * t->K, t->K, Bp, t->K, t->C + row * t->N + p0 * 16, t->N,
                   smelt_gemm_min(t->plan.rows, t->M - row), p0, p1, t->N, NULL);
  }
}

typedef struct {
  team *t;
  int64_t place;
  cpu_set_t allowed;
} member_of;

static void *member(void *argument) {
  const member_of *me = argument;
  team *t = me->t;
  int64_t meeting = 0;
  stay(me->place, &me->allowed);
  for (int64_t r = 0; r < t->rounds; ++r) {
    const double before = width(), peak_before = peak(40000);
    wait_for_all(t, &meeting);
    t->starts[me->place] = t->threads == 1 ? cpu_now() : now();
    run_tasks(t, r);
    t->ends[me->place] = t->threads == 1 ? cpu_now() : now();
    const double peak_after = peak(40000), after = width();
    t->peaks[me->place] = peak_before > peak_after ? peak_before : peak_after;
    t->widths[me->place] = before < after ? before : after;
    wait_for_all(t, &meeting);
    if (me->place == 0) {
      double limit = 0, least = t->widths[0], start = t->starts[0], end = t->ends[0];
      for (int64_t i = 0; i < t->threads; ++i) {
        limit += t->peaks[i], least = t->widths[i] < least ? t->widths[i] : least;
        start = t->starts[i] < start ? t->starts[i] : start, end = t->ends[i] > end ? t->ends[i] : end;
      }
      const double flops = 2.0 * (double)t->M * (double)t->N * (double)t->K / (end - start);
      t->out[4 * r] = flops / limit, t->out[4 * r + 1] = flops, t->out[4 * r + 2] = limit, t->out[4 * r + 3] = least;
    }
    wait_for_all(t, &meeting);
  }
  return 0;
}

/* `rounds` products by `threads` threads, each from the next of `copies` sets of weights; four figures of each in `out`. */
EXPORT void bench_team(const float *A, const float *Bp, int64_t copies, float *C, int64_t M, int64_t N, int64_t K,
                       int64_t rounds, int64_t threads, double *out) {
  team t = {.A = A, .Bp = Bp, .C = C, .M = M, .N = N, .K = K, .rounds = rounds, .copies = copies, .threads = threads};
  member_of members[64];
  pthread_t others[64];
  cpu_set_t allowed;
  pthread_getaffinity_np(pthread_self(), sizeof allowed, &allowed);
  t.out = out;
  /* As generated kernels plan it: for any number of threads. */
  t.plan = smelt_gemm_plan(M, N, K, 0, 0);
  for (int64_t i = threads - 1; i >= 0; --i) {
    members[i] = (member_of){&t, i, allowed};
    if (i > 0) pthread_create(&others[i], 0, member, &members[i]);
  }
  member(&members[0]);
  for (int64_t i = 1; i < threads; ++i)
    pthread_join(others[i], 0);
  pthread_setaffinity_np(pthread_self(), sizeof allowed, &allowed);
}

/* Products whose right operand is taken from where it lies: tasks from one counter, several products in a row. */
typedef struct {
  const float *A, *B;
  float *C;
  int64_t row_step, col_step, k_step, n_step, b_step, M, N, K, sets, products, threads;
  smelt_gemm_tasks plan;
  atomic_int_fast64_t next, arrived;
} unpacked_team;

static void unpacked_task(const unpacked_team *t, const float *B, float *C, int64_t task) {
  const int64_t row = task % t->plan.row_tasks * t->plan.rows, p0 = task / t->plan.row_tasks * t->plan.panels;
  const int64_t p1 = smelt_gemm_min(p0 + t->plan.panels, (t->N + 15) / 16);
  smelt_gemm_f32_unpacked(t->A + row * t->row_step, t->row_step, t->col_step, B, t->k_step, t->n_step, t->K,
                       C + row * t->N + p0 * 16, t->N, smelt_gemm_min(t->plan.rows, t->M - row), p0, p1, t->N);
}

static void *unpacked_member(void *argument) {
  unpacked_team *t = argument;
  const int64_t tasks = t->plan.row_tasks * t->plan.panel_tasks, tickets = tasks + t->threads;
  for (int64_t r = 0; r < t->products; ++r) {
    const int64_t set = r % t->sets;
    for (int64_t task; (task = atomic_fetch_add(&t->next, 1) - r * tickets) < tasks;)
      unpacked_task(t, t->B + set * t->b_step, t->C + set * t->M * t->N, task);
    atomic_fetch_add(&t->arrived, 1);
    while (atomic_load(&t->arrived) < (r + 1) * t->threads)
      __builtin_ia32_pause();
  }
  return 0;
}

/* Seconds of one of `products` products, each with the next of `sets` sets of B and C. */
EXPORT double bench_unpacked(const float *A, int64_t row_step, int64_t col_step, const float *B, int64_t k_step, int64_t n_step,
                          int64_t b_step, float *C, int64_t M, int64_t N, int64_t K, int64_t sets, int64_t products, int64_t threads) {
  unpacked_team t = {.A = A, .B = B, .C = C, .row_step = row_step, .col_step = col_step, .k_step = k_step, .n_step = n_step,
                  .b_step = b_step,
                  .M = M, .N = N, .K = K, .sets = sets, .products = products, .threads = threads};
  pthread_t others[64];
  t.plan = smelt_gemm_unpacked_plan(M, N, K);
  const double start = now();
  for (int64_t i = 1; i < threads; ++i)
    pthread_create(&others[i], 0, unpacked_member, &t);
  unpacked_member(&t);
  for (int64_t i = 1; i < threads; ++i)
    pthread_join(others[i], 0);
  return (now() - start) / (double)products;
}
