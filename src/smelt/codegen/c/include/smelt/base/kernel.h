/* The contract between a generated region and whatever hosts it.
 *
 * Input:     nothing but the compiler's own <stdint.h> and <stddef.h>.
 * Output:    smelt_env (what a region may ask of its host), smelt_entry (how a region is announced), smelt_fail().
 * Invariant: a region knows its inputs only through smelt_env, calls no libc but memcpy, memset and memmove, and keeps
 *            no state between calls, so the same function runs behind ONNX Runtime, a main() or anything else, and
 *            from several threads at once.
 */
#ifndef SMELT_KERNEL_H
#define SMELT_KERNEL_H

#include <stddef.h>
#include <stdint.h>

/* Entries of smelt_entry.by_level: builds that have regions of their own, numbered by base/feature_list.h. */
#define SMELT_LEVELS 3

/* SMELT_AT(r0, v3) is the name that region r0 has when compiled for level v3; the glue unit declares regions by it.
 * Inside a unit compiled with -DSMELT_LEVEL=v3, SMELT_NAME(r0) is that same name. */
#define SMELT_PASTE_(base, level) base##_##level
#define SMELT_AT(base, level) SMELT_PASTE_(base, level)
#define SMELT_NAME(base) SMELT_AT(base, SMELT_LEVEL)

/* What a region returns. The meaning of env->detail is given per code; detail_input is -1 when no input is to blame. */
enum {
  SMELT_OK = 0,
  SMELT_E_SHAPE = 1,    /* detail = axis, size found, size expected; axis -1: the shapes do not fit each other */
  SMELT_E_RANK = 2,     /* detail = rank found, rank expected */
  SMELT_E_INDEX = 3,    /* detail = index, size of the axis */
  SMELT_E_OVERFLOW = 4, /* a size computed from shapes does not fit 63 bits */
  SMELT_E_MEMORY = 5,   /* detail = bytes asked for, 0 if unknown */
  SMELT_E_VALUE = 6,    /* detail = the value that is not allowed */
  SMELT_E_DIVISION = 7, /* an integer is divided by 0 */
  SMELT_E_DEVICE = 8    /* a GPU's driver failed: what, which and said tell */
};

typedef struct smelt_env smelt_env;
typedef void (*smelt_body)(void *ctx, int64_t index);

struct smelt_env {
  const void *const *in;         /* input data; NULL = absent optional input (a zero-size input is never NULL) */
  const int64_t *const *in_dims; /* dims of each input; never NULL, not even for a scalar or an absent input */
  const int32_t *in_rank;
  /* Called once per output, from the region itself, never from a body. NULL on failure; zero-size is not a failure. */
  void *(*output)(smelt_env *, int32_t index, int32_t rank, const int64_t *dims);
  /* 64-byte aligned, uninitialized, released by the host when the region returns. NULL on failure. Not from a body. */
  void *(*scratch)(smelt_env *, int64_t bytes);
  /* Releases a block of scratch before the region returns; NULL where the host cannot. Not from a body. */
  void (*free_scratch)(smelt_env *, void *block);
  /* Runs body(ctx, 0) .. body(ctx, count-1) in any order on any threads; returns when all are done. Not from a body. */
  void (*parallel)(smelt_env *, int64_t count, smelt_body body, void *ctx);
  int32_t code, detail_input;
  int64_t detail[3];
  /* Results depend on neither of these. */
  int32_t helpers;    /* threads beside the caller's that have run bodies of this call, as far as they are counted */
  int32_t processors; /* that threads may find, 0: not known */
  /* Of regions for a GPU, whose inputs, outputs and scratch are device memory; others neither set nor read these. */
  int32_t device;     /* which driver: device/driver.h */
  void *queue;        /* the session's stream, NULL: the driver's own */
  const char *what, *which, *said; /* of SMELT_E_DEVICE: the call that failed, the kernel, the driver's text */
};

typedef int32_t (*smelt_region)(smelt_env *);

typedef struct {
  const char *name; /* generated identifier, e.g. "r0": the custom op's name */
  int32_t n_in, n_out;
  const int32_t *in_types, *out_types;  /* ONNX TensorProto element types */
  smelt_region by_level[SMELT_LEVELS];  /* NULL where a level was not built */
  const uint8_t *optional;              /* n_in flags, 1 = the input may be absent; NULL = none may */
} smelt_entry;

/* Records the first failure of a call and returns its code. Bodies may call it from several threads: the first one
 * wins, and the host reads env->code after the region returned even when the region itself returned SMELT_OK. */
static __attribute__((unused, noinline, cold)) int32_t smelt_fail(smelt_env *env, int32_t code, int32_t input, int64_t d0,
                                                         int64_t d1, int64_t d2) {
  int32_t none = SMELT_OK;
  if (__atomic_compare_exchange_n(&env->code, &none, code, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
    env->detail_input = input;
    env->detail[0] = d0;
    env->detail[1] = d1;
    env->detail[2] = d2;
  }
  return code;
}

/* Inputs of known shapes: `known` has an input's place, its rank and its sizes, then those of the next one. The entry of the
 * first input that has another shape, or NULL. */
static __attribute__((unused)) const int64_t *smelt_unlike(const smelt_env *env, const int64_t *known, int64_t inputs) {
  for (; inputs > 0; --inputs, known += 2 + known[1]) {
    if (env->in_rank[known[0]] != known[1]) return known;
    for (int64_t axis = 0; axis < known[1]; ++axis)
      if (env->in_dims[known[0]][axis] != known[2 + axis]) return known;
  }
  return NULL;
}

static __attribute__((unused, cold)) int32_t smelt_fail_unlike(smelt_env *env, const int64_t *known) {
  const int32_t input = (int32_t)known[0];
  const int64_t *dims = env->in_dims[input];
  if (env->in_rank[input] != known[1]) return smelt_fail(env, SMELT_E_RANK, input, env->in_rank[input], known[1], 0);
  int64_t axis = 0;
  while (dims[axis] == known[2 + axis]) ++axis;
  return smelt_fail(env, SMELT_E_SHAPE, input, axis, dims[axis], known[2 + axis]);
}

#endif
