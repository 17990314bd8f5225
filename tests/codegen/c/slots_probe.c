/* Runs kernels whose tasks hold memory of their own on a few threads, and prints what they did:
 * scratch blocks that are held, slots touched, tasks done, tasks that found their slot in use. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#define SMELT_LEVEL probe
#include <smelt/threads/loop.h>

enum { THREADS = 4, SLOT = 1 << 16 };

static int blocks, clashes, done, touched[SMELT_MOST_SLOTS];

typedef struct {
  int64_t count, next;
  smelt_body body;
  void *ctx;
} pool;

static void *work(void *arg) {
  pool *p = arg;
  for (int64_t i; (i = __atomic_fetch_add(&p->next, 1, __ATOMIC_RELAXED)) < p->count;) p->body(p->ctx, i);
  return NULL;
}

static void parallel(smelt_env *env, int64_t count, smelt_body body, void *ctx) {
  pthread_t threads[THREADS];
  pool p = {count, 0, body, ctx};
  (void)env;
  for (int i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, work, &p);
  for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
}

static void free_scratch(smelt_env *env, void *block) {
  (void)env, blocks--;
  free(block);
}

static void *scratch(smelt_env *env, int64_t bytes) {
  (void)env, blocks++;
  return calloc(1, (size_t)bytes);
}

static void body(void *ctx, int64_t task) {
  smelt_task *t = ctx;
  char *local = smelt_claim(t);
  if (__atomic_exchange_n(local, 1, __ATOMIC_ACQ_REL)) __atomic_fetch_add(&clashes, 1, __ATOMIC_RELAXED);
  touched[(local - t->work->bytes) / t->work->slot_bytes] = 1;
  for (volatile int spin = 0; spin < 2000 + (int)(task % 7) * 500; spin++) continue;
  __atomic_store_n(local, 0, __ATOMIC_RELEASE);
  __atomic_fetch_add(&done, 1, __ATOMIC_RELAXED);
  smelt_release(t, local);
}

int main(void) {
  smelt_env env = {.scratch = scratch, .free_scratch = free_scratch, .parallel = parallel};
  smelt_work lent = {.bytes = NULL};
  for (int kernel = 0; kernel < 20; kernel++) {
    smelt_task task = {.env = &env, .work = &lent};
    if (smelt_launch(&task, body, 400, SMELT_GRAIN, kernel < 2 ? SLOT << kernel : SLOT)) return 1;
  }
  int used = 0;
  for (int i = 0; i < SMELT_MOST_SLOTS; i++) used += touched[i];
  printf("%d %d %d %d\n", blocks, used, done, clashes);
  return 0;
}
