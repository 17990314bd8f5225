/* What generated loop nests share: the arguments of a kernel, index arithmetic, and how work is cut into tasks.
 *
 * Input:     smelt_env. Output: smelt_task, smelt_launch(), smelt_index() and integer functions.
 * Invariant: the number of tasks depends on sizes only, never on how many threads there are; a kernel's result does
 *            not depend on how its units are cut.
 */
#ifndef SMELT_LOOP_H
#define SMELT_LOOP_H

#include <smelt/kernel.h>

#define SMELT_INLINE static inline __attribute__((always_inline, unused))

typedef struct {
  smelt_env *env;
  void *const *b;      /* buffers, in the kernel's order */
  const int64_t *s;    /* sizes, in the kernel's order */
  int64_t units, step; /* units of work in all, and per task */
  char *rows;          /* row buffers, one slot per task; NULL: they fit the stack */
  int64_t row_bytes;   /* of one slot */
} smelt_task;

enum {
  SMELT_GRAIN = 12000,     /* simple vector-lane operations that make a task worth starting */
  SMELT_MOST_TASKS = 128,
  SMELT_STACK_ROW = 49152  /* bytes of row buffers that go on the stack */
};

SMELT_INLINE int64_t smelt_floordiv(int64_t a, int64_t b) {
  if (b == 0) return 0;
  if (b == -1) return (int64_t)(0 - (uint64_t)a);
  int64_t q = a / b;
  return q - ((a % b != 0) & ((a < 0) != (b < 0)));
}
SMELT_INLINE int64_t smelt_truncdiv(int64_t a, int64_t b) {
  if (b == 0) return 0;
  return b == -1 ? (int64_t)(0 - (uint64_t)a) : a / b;
}
SMELT_INLINE int64_t smelt_mod(int64_t a, int64_t b) {
  if (b == 0 || b == -1) return 0;
  int64_t r = a % b;
  return r + (((r != 0) & ((r < 0) != (b < 0))) ? b : 0);
}
SMELT_INLINE int64_t smelt_min(int64_t a, int64_t b) { return a < b ? a : b; }
SMELT_INLINE int64_t smelt_max(int64_t a, int64_t b) { return a > b ? a : b; }

/* An index read from data: negative ones count from the end; what is out of range fails the region and reads 0. */
SMELT_INLINE int64_t smelt_index(smelt_env *env, int64_t index, int64_t size) {
  int64_t at = index < 0 ? index + size : index;
  if (__builtin_expect((uint64_t)at < (uint64_t)size, 1)) return at;
  smelt_fail(env, SMELT_E_INDEX, -1, index, size, 0);
  return 0;
}

/* Products and sums of sizes that must fit 63 bits. *bad becomes 1 when one does not. */
SMELT_INLINE int64_t smelt_size_mul(int64_t a, int64_t b, int *bad) {
  int64_t out;
  if (__builtin_mul_overflow(a, b, &out)) *bad = 1, out = 0;
  return out;
}
SMELT_INLINE int64_t smelt_size_add(int64_t a, int64_t b, int *bad) {
  int64_t out;
  if (__builtin_add_overflow(a, b, &out)) *bad = 1, out = 0;
  return out;
}

/* Cuts `units` into tasks by their cost and runs them; small work runs on the calling thread. */
static inline __attribute__((unused)) int32_t smelt_launch(smelt_task *task, smelt_body body, int64_t units,
                                                          int64_t unit_cost, int64_t row_bytes) {
  if (units <= 0) return SMELT_OK;
  smelt_env *env = task->env;
  double total = (double)units * (double)unit_cost;
  int64_t tasks = total < 2.0 * SMELT_GRAIN ? 1 : (int64_t)smelt_min((int64_t)(total / SMELT_GRAIN), SMELT_MOST_TASKS);
  if (tasks > units) tasks = units;
  task->units = units;
  task->step = (units + tasks - 1) / tasks;
  tasks = (units + task->step - 1) / task->step;
  task->row_bytes = (row_bytes + 63) & ~(int64_t)63;
  task->rows = NULL;
  if (row_bytes > SMELT_STACK_ROW) {
    int bad = 0;
    int64_t bytes = smelt_size_mul(task->row_bytes, tasks, &bad);
    task->rows = bad ? NULL : (char *)env->scratch(env, bytes);
    if (!task->rows) return smelt_fail(env, SMELT_E_MEMORY, -1, bytes, 0, 0);
  }
  if (tasks == 1) body(task, 0);
  else env->parallel(env, tasks, body, task);
  return env->code;
}

#endif
