/* A small thread pool for the standalone host.
 *
 * Input:     a number of threads, the caller's own included.
 * Output:    smelt_host_pool_run(): body(ctx, 0..count-1), each index claimed by the next free thread.
 * Invariant: run returns only after every index was done; one thread means no other thread is ever started.
 */
#ifndef SMELT_HOST_POOL_H
#define SMELT_HOST_POOL_H

#include <pthread.h>
#include <smelt/base/kernel.h>
#include <stdlib.h>

typedef struct {
  pthread_mutex_t lock;
  pthread_cond_t work, idle;
  pthread_t *thread;
  int started, busy, ending;
  int64_t round; /* counts loops, so that a thread never serves one twice */
  int64_t count, next;
  smelt_body body;
  void *ctx;
} smelt_host_pool;

static void smelt_host_pool_claim(smelt_host_pool *pool) {
  int64_t i;
  while ((i = __atomic_fetch_add(&pool->next, 1, __ATOMIC_RELAXED)) < pool->count) pool->body(pool->ctx, i);
}

static void *smelt_host_pool_serve(void *arg) {
  smelt_host_pool *pool = arg;
  int64_t seen = 0;
  pthread_mutex_lock(&pool->lock);
  for (;;) {
    while (pool->round == seen && !pool->ending) pthread_cond_wait(&pool->work, &pool->lock);
    if (pool->ending) break;
    seen = pool->round;
    pthread_mutex_unlock(&pool->lock);
    smelt_host_pool_claim(pool);
    pthread_mutex_lock(&pool->lock);
    if (--pool->busy == 0) pthread_cond_signal(&pool->idle);
  }
  pthread_mutex_unlock(&pool->lock);
  return NULL;
}

static smelt_host_pool *smelt_host_pool_make(int threads) {
  smelt_host_pool *pool = calloc(1, sizeof *pool);
  if (!pool) return NULL;
  pthread_mutex_init(&pool->lock, NULL);
  pthread_cond_init(&pool->work, NULL);
  pthread_cond_init(&pool->idle, NULL);
  pool->thread = calloc((size_t)threads, sizeof *pool->thread);
  while (pool->thread && pool->started < threads - 1 &&
         pthread_create(&pool->thread[pool->started], NULL, smelt_host_pool_serve, pool) == 0)
    pool->started++;
  return pool;
}

static void smelt_host_pool_run(smelt_host_pool *pool, int64_t count, smelt_body body, void *ctx) {
  if (!pool->started || count <= 1) {
    for (int64_t i = 0; i < count; i++) body(ctx, i);
    return;
  }
  pthread_mutex_lock(&pool->lock);
  pool->count = count, pool->next = 0, pool->body = body, pool->ctx = ctx;
  pool->busy = pool->started;
  pool->round++;
  pthread_cond_broadcast(&pool->work);
  pthread_mutex_unlock(&pool->lock);
  smelt_host_pool_claim(pool);
  pthread_mutex_lock(&pool->lock);
  while (pool->busy) pthread_cond_wait(&pool->idle, &pool->lock);
  pthread_mutex_unlock(&pool->lock);
}

static void smelt_host_pool_end(smelt_host_pool *pool) {
  pthread_mutex_lock(&pool->lock);
  pool->ending = 1;
  pthread_cond_broadcast(&pool->work);
  pthread_mutex_unlock(&pool->lock);
  for (int i = 0; i < pool->started; i++) pthread_join(pool->thread[i], NULL);
}

#endif
