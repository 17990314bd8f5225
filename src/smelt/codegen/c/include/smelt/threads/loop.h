/* What generated loop nests share: the arguments of a kernel, index arithmetic, and how work is cut into tasks.
 *
 * Input:     smelt_env. Output: smelt_head and the structs of loops and functions, smelt_launch(), smelt_run(), smelt_claim(),
 *            smelt_index() and integer functions.
 * Invariant: a kernel's result does not depend on how its units are cut. The cut depends on sizes and on the machine (caches and
 *            threads, base/machine.h); in a row-block fusion also on the threads that have helped so far (gemm/loop_gemm.h).
 *            Memory of a task is a slot that it claims while it runs: as many slots are touched as threads run, and the kernels
 *            of a region use the same ones after each other.
 */
#ifndef SMELT_LOOP_H
#define SMELT_LOOP_H

#include <smelt/base/bounds.h>
#include <smelt/base/kernel.h>
#include <smelt/base/machine.h>
#include <smelt/base/profile.h>

#define SMELT_INLINE static inline __attribute__((always_inline, unused))
/* A body that several kernels call with numbers of their own: neither inlined nor cloned for each. */
#ifdef __clang__
#define SMELT_SHARED static __attribute__((noinline))
#else
#define SMELT_SHARED static __attribute__((noinline, noclone))
#endif

#define SMELT_MOST_TASKS smelt_sizes.most_tasks

enum { SMELT_PRODUCT_ONLY = 1, SMELT_EPILOGUE_ONLY = 2 };

#ifndef SMELT_GRAIN
#define SMELT_GRAIN 12000 /* simple vector-lane operations that make a task worth starting */
#endif

/* Products whose panels stay in L2 with room to spare have blocks of rows, so many at most, that tasks keep to: see
 * loop_gemm.h. */
enum { SMELT_ROW_AFFINE_LEAST = 96, SMELT_ROW_AFFINE_MOST = 4096, SMELT_ROW_AFFINE_BLOCK = 96, SMELT_ROW_FUSED_LEAST = 24 };

enum {
  SMELT_MOST_SLOTS = 256,  /* tasks that hold memory of their own at the same time */
  SMELT_MOST_PARTS = 16,   /* kernels that run together */
  SMELT_STACK_ROW = 49152  /* bytes of row buffers that go on the stack */
};

/* How kernels run together: side by side, or one after the other on the same blocks of rows, which do not wait for each other. */
enum { SMELT_AT_ONCE = 1, SMELT_ROW_FUSED = 2 };

struct smelt_work;

/* The tasks of a block of rows. Batch indices have `local` blocks each, and each has `middle` more indices, every one of them
 * with `tasks` tasks. */
typedef struct {
  int64_t rows, count; /* rows of a block, 0: tasks are no blocks of rows; how many there are */
  int64_t local, middle, tasks;
} smelt_blocks;

/* Panels of a constant operand: the first, and the floats from one to the next. */
typedef struct {
  const float *at; /* NULL: not known */
  int64_t stride;
} smelt_panels;

/* How a kernel's work is cut, where tuning chose something for it; 0 is what the header that reads it says. */
typedef struct {
  int32_t loop_grain; /* operations that make a task of loops */
  int32_t task_rows;  /* rows of a task of a product with constant panels */
  int32_t epilogue;   /* of whole rows: SMELT_TOGETHER with its product, or SMELT_AFTERWARDS */
  int32_t attention_rows; /* rows of a task of two products */
  int32_t attention_span; /* columns of its rows that are made at a time */
} smelt_cut;

enum { SMELT_TOGETHER = 1, SMELT_AFTERWARDS = 2 };

/* What the tasks of every launcher have. */
#define SMELT_HEAD                                                                                                             \
  smelt_env *env;                                                                                                              \
  void *const *b;     /* buffers, in the kernel's order */                                                                     \
  const int64_t *s;   /* sizes, in the kernel's order */                                                                       \
  struct smelt_work *work;                                                                                                     \
  smelt_cut cut;                                                                                                               \
  smelt_blocks blocks; /* for kernels of a row-block fusion */                                                                 \
  int64_t across;      /* tasks of a block of rows that follow each other, one for each block of columns; 0: blocks of rows do */ \
  const char *memory;  /* NULL: what a task needs for itself fits the stack; else it claims a slot */                          \
  int64_t slot_bytes;  /* that it needs of a slot */
typedef struct {
  SMELT_HEAD
} smelt_head;
/* A launcher's own struct begins with it: as `head`, and field by field. A body gets a pointer to the whole. */
#define SMELT_TASK                                                                                                             \
  union {                                                                                                                      \
    smelt_head head;                                                                                                           \
    struct {                                                                                                                   \
      SMELT_HEAD                                                                                                               \
    };                                                                                                                         \
  };

/* Loops over `units` of work, `step` of them in a task, with row buffers of `row_bytes`. */
typedef struct {
  int64_t units, step, row_bytes;
} smelt_loop_cut;
#define SMELT_LOOPS                                                                                                            \
  union {                                                                                                                      \
    smelt_loop_cut loop;                                                                                                       \
    struct {                                                                                                                   \
      int64_t units, step, row_bytes;                                                                                          \
    };                                                                                                                         \
  };

/* smelt_launch(): loop nests and transpositions. */
typedef struct {
  SMELT_TASK
  SMELT_LOOPS
} smelt_loop_task;

/* A function written in C, and the loops that it launches. */
typedef struct {
  SMELT_TASK
  SMELT_LOOPS
  const double *f; /* factors */
} smelt_task;

typedef struct {
  smelt_head *task;
  smelt_body body;
  int64_t tasks;
} smelt_part;

/* What the kernels of a region use in turn: memory for tasks, and the kernels that are about to run together. */
typedef struct smelt_work {
  char *bytes;
  int64_t size, slots, slot_bytes;
  int32_t collecting, parts;
  int32_t ordered; /* blocks of rows have run */
  int32_t interleaved; /* all parts have as many tasks, row by row: the same rows of each follow each other */
  int32_t unusual; /* an operand of masked products is not SMELT_MODEST */
  float *whole; /* a product that is computed apart from its epilogue */
  int64_t whole_bytes;
  smelt_part part[SMELT_MOST_PARTS];
  uint64_t busy[SMELT_MOST_SLOTS / 64] __attribute__((aligned(64))); /* a bit per claimed slot */
} smelt_work;

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

/* Slots for `tasks` tasks more. Kernels that run together share theirs, so a slot fits the largest need. */
static inline __attribute__((unused)) int32_t smelt_reserve_slots(smelt_head *task, int64_t tasks, int64_t slot_bytes) {
  smelt_env *env = task->env;
  smelt_work *work = task->work;
  int bad = 0;
  const int64_t beside = work->collecting == SMELT_ROW_FUSED ? 0 : work->slots, more = smelt_min(tasks, SMELT_MOST_SLOTS);
  work->slots = smelt_max(work->slots, smelt_min(beside + more, SMELT_MOST_SLOTS));
  work->slot_bytes = smelt_max(work->slot_bytes, slot_bytes);
  const int64_t bytes = smelt_size_mul(work->slot_bytes, work->slots, &bad);
  if (bad || bytes > work->size) {
    if (work->bytes && env->free_scratch) env->free_scratch(env, work->bytes);
    work->bytes = bad ? NULL : (char *)env->scratch(env, bytes);
    if (!work->bytes) return smelt_fail(env, SMELT_E_MEMORY, -1, bytes, 0, 0);
    work->size = bytes;
  }
  task->memory = work->bytes, task->slot_bytes = slot_bytes;
  return SMELT_OK;
}

/* The lowest free slot, which is the likeliest to be in cache. Only when more threads run than there are slots does a
 * task wait, and then for one that is running. */
static inline __attribute__((unused)) char *smelt_claim_slot(const smelt_head *task) {
#ifdef __SANITIZE_ADDRESS__
  return smelt_fenced_block(task->slot_bytes);
#endif
  smelt_work *work = task->work;
  for (int64_t word = 0;; word = (word + 1) * 64 < work->slots ? word + 1 : 0) {
    uint64_t busy = __atomic_load_n(&work->busy[word], __ATOMIC_RELAXED);
    while (~busy) {
      const int64_t bit = __builtin_ctzll(~busy), slot = word * 64 + bit;
      if (slot >= work->slots) break;
      if (__atomic_compare_exchange_n(&work->busy[word], &busy, busy | (uint64_t)1 << bit, 1, __ATOMIC_ACQUIRE,
                                      __ATOMIC_RELAXED))
        return work->bytes + slot * work->slot_bytes;
    }
  }
}

static inline __attribute__((unused)) void smelt_release_slot(const smelt_head *task, const char *memory) {
#ifdef __SANITIZE_ADDRESS__
  __builtin_free((void *)memory);
  return;
#endif
  smelt_work *work = task->work;
  const int64_t slot = (memory - work->bytes) / work->slot_bytes;
  __atomic_fetch_and(&work->busy[slot / 64], ~((uint64_t)1 << slot % 64), __ATOMIC_RELEASE);
}

static inline __attribute__((unused)) void smelt_part_body(void *ctx, int64_t index) {
  const smelt_work *work = (const smelt_work *)ctx;
  const smelt_part *part = work->part;
  if (work->interleaved) {
    part += index % work->parts;
    index /= work->parts;
  }
  for (; index >= part->tasks; part++) index -= part->tasks;
  part->body(part->task, index);
}

/* Panels that come after those of a kernel, for the tasks that have the last of these. */
SMELT_INLINE smelt_panels smelt_next_after(smelt_panels next, int last) { return last ? next : (smelt_panels){NULL, 0}; }

/* One block of rows through all that was collected. */
static inline __attribute__((unused)) void smelt_block_body(void *ctx, int64_t block) {
  const smelt_work *work = (const smelt_work *)ctx;
  for (int32_t i = 0; i < work->parts; i++) {
    const smelt_part *part = &work->part[i];
    const smelt_blocks b = part->task->blocks;
    for (int64_t m = 0; m < b.middle; m++)
      for (int64_t c = 0; c < b.tasks; c++)
        part->body(part->task, ((block / b.local * b.middle + m) * b.local + block % b.local) * b.tasks + c);
  }
}

/* Runs what was collected in order, all of it cut into the same blocks of rows. */
static inline __attribute__((unused)) int32_t smelt_run_row_fused(smelt_env *env, smelt_work *work) {
  const int64_t blocks = work->parts ? work->part->task->blocks.count : 0;
  if (blocks == 1) smelt_block_body(work, 0);
  else if (blocks) env->parallel(env, blocks, smelt_block_body, work);
  work->ordered |= blocks > 1;
  work->parts = 0;
  return env->code;
}

/* Runs what was collected, with one barrier at the end. Parts of one task each are not worth waking a thread for. */
static inline __attribute__((unused)) int32_t smelt_run_collected(smelt_env *env, smelt_work *work) {
  int64_t tasks = 0;
  work->interleaved = 1;
  for (int32_t i = 0; i < work->parts; i++) {
    tasks += work->part[i].tasks;
    work->interleaved &= work->part[i].task->across && work->part[i].tasks == work->part->tasks;
  }
  if (work->collecting == SMELT_ROW_FUSED)
    smelt_run_row_fused(env, work);
  else if (tasks == work->parts)
    for (int64_t i = 0; i < tasks; i++) work->part[i].body(work->part[i].task, 0);
  else
    env->parallel(env, tasks, smelt_part_body, work);
  work->parts = work->collecting = 0;
  work->slots = work->slot_bytes = 0;
  return env->code;
}

/* Runs the tasks of a kernel. Others that were collected keep their share of the slots. */
static inline __attribute__((unused)) int32_t smelt_run_tasks_now(smelt_head *task, smelt_body body, int64_t tasks) {
  if (tasks == 1) body(task, 0);
  else task->env->parallel(task->env, tasks, body, task);
  if (!task->work->collecting) task->work->slots = task->work->slot_bytes = 0;
  return task->env->code;
}

/* The next `kernels` of those that may run in order on `rows` rows: all wait for the last one, or these run at once after
 * those before them. A thread that is alone would read all right operands again for each block of rows. */
static inline __attribute__((unused)) int32_t smelt_next_step(smelt_env *env, smelt_work *work, int64_t rows, int kernels) {
  if (work->collecting == SMELT_ROW_FUSED) return SMELT_OK;
  if (work->collecting && smelt_run_collected(env, work)) return env->code;
  const int blocks = rows >= SMELT_ROW_FUSED_LEAST && rows <= SMELT_ROW_AFFINE_MOST;
  work->collecting = blocks && __atomic_load_n(&env->helpers, __ATOMIC_RELAXED) ? SMELT_ROW_FUSED
                     : kernels > 1                                            ? SMELT_AT_ONCE
                                                                              : 0;
  return SMELT_OK;
}

/* Whether it goes through the blocks of rows that were collected. */
SMELT_INLINE int smelt_goes_on(const smelt_work *work, const smelt_head *task) {
  const smelt_blocks *mine = &task->blocks, *before = work->parts ? &work->part->task->blocks : mine;
  return mine->rows && mine->rows == before->rows && mine->count == before->count;
}

/* Runs the tasks of a kernel, or keeps them for smelt_run_collected(). One that comes in order and does not go on with the
 * blocks of rows of those before it runs after them. */
static inline __attribute__((unused)) int32_t smelt_run_tasks(smelt_head *task, smelt_body body, int64_t tasks) {
  smelt_env *env = task->env;
  smelt_work *work = task->work;
  if (!work->collecting) return smelt_run_tasks_now(task, body, tasks);
  if (work->collecting == SMELT_ROW_FUSED && !smelt_goes_on(work, task))
    return smelt_run_row_fused(env, work) ? env->code : smelt_run_tasks_now(task, body, tasks);
  work->part[work->parts++] = (smelt_part){task, body, tasks};
  return env->code;
}

/* The same of a launcher's own struct. */
#define smelt_reserve(t, tasks, slot_bytes) smelt_reserve_slots(&(t)->head, tasks, slot_bytes)
#define smelt_claim(t) smelt_claim_slot(&(t)->head)
#define smelt_release(t, memory) smelt_release_slot(&(t)->head, memory)
#define smelt_run(t, body, tasks) smelt_run_tasks(&(t)->head, body, tasks)
#define smelt_run_now(t, body, tasks) smelt_run_tasks_now(&(t)->head, body, tasks)

/* Cuts `units` into tasks by their cost and runs them; small work runs on the calling thread. */
static inline __attribute__((unused)) int32_t smelt_launch_loops(smelt_head *task, smelt_loop_cut *loop, smelt_body body,
                                                                int64_t units, int64_t unit_cost, int64_t row_bytes) {
  if (units <= 0) return SMELT_OK;
  smelt_env *env = task->env;
  const double total = (double)units * (double)unit_cost, grain = task->cut.loop_grain ? task->cut.loop_grain : SMELT_GRAIN;
  int64_t tasks = total < 2 * grain ? 1 : (int64_t)(total / grain < SMELT_MOST_TASKS ? total / grain : SMELT_MOST_TASKS);
  if (tasks > units) tasks = units;
  const int64_t threads = env->processors;
  if (threads > 2 && tasks > threads && tasks < 8 * threads) tasks -= tasks % threads; /* all threads take as many */
  loop->units = units;
  loop->step = (units + tasks - 1) / tasks;
  tasks = (units + loop->step - 1) / loop->step;
  loop->row_bytes = (row_bytes + 63) & ~(int64_t)63;
  task->memory = NULL;
  if (row_bytes > SMELT_STACK_ROW && smelt_reserve_slots(task, tasks, loop->row_bytes)) return env->code;
  return smelt_run_tasks(task, body, tasks);
}
#define smelt_launch(t, body, units, unit_cost, row_bytes)                                                                     \
  smelt_launch_loops(&(t)->head, &(t)->loop, body, units, unit_cost, row_bytes)

#endif
