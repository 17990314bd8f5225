/* Hand-written regions that use every service of smelt_env, compiled once per CPU level. */
#include <smelt/base/features.h>
#include <smelt/base/kernel.h>
#include <string.h>

#define BLOCK 256

static int64_t count_of(const smelt_env *env, int32_t input) {
  int64_t count = 1;
  for (int32_t i = 0; i < env->in_rank[input]; i++) count *= env->in_dims[input][i];
  return count;
}

typedef struct {
  smelt_env *env;
  const float *a, *b;
  const int64_t *index;
  float *out;
  int64_t count, size;
} loop;

static void add_block(void *ctx, int64_t block) {
  const loop *l = ctx;
  int64_t end = (block + 1) * BLOCK < l->count ? (block + 1) * BLOCK : l->count;
  for (int64_t i = block * BLOCK; i < end; i++) l->out[i] = l->a[i] + (l->b ? l->b[i] : 0);
}

static int32_t same_shape(smelt_env *env) {
  int32_t rank = env->in_rank[0];
  if (env->in_rank[1] != rank) return smelt_fail(env, SMELT_E_RANK, 1, env->in_rank[1], rank, 0);
  for (int32_t i = 0; i < rank; i++)
    if (env->in_dims[0][i] != env->in_dims[1][i])
      return smelt_fail(env, SMELT_E_SHAPE, 1, i, env->in_dims[1][i], env->in_dims[0][i]);
  return SMELT_OK;
}

static int32_t add(smelt_env *env, const float *b) {
  loop l = {.env = env, .a = env->in[0], .b = b, .count = count_of(env, 0)};
  if (!l.a) return smelt_fail(env, SMELT_E_VALUE, 0, 0, 0, 0); /* a required input is there even when it is empty */
  l.out = env->output(env, 0, env->in_rank[0], env->in_dims[0]);
  if (!l.out) return SMELT_E_MEMORY;
  env->parallel(env, (l.count + BLOCK - 1) / BLOCK, add_block, &l);
  return SMELT_OK;
}

int32_t SMELT_NAME(toy_add)(smelt_env *env) {
  int32_t code = same_shape(env);
  return code ? code : add(env, env->in[1]);
}

/* The second input may be absent. */
int32_t SMELT_NAME(toy_optional)(smelt_env *env) {
  int32_t code = env->in[1] ? same_shape(env) : SMELT_OK;
  return code ? code : add(env, env->in[1]);
}

/* 100 inputs, 100 outputs, in reverse. */
int32_t SMELT_NAME(toy_many)(smelt_env *env) {
  for (int32_t i = 0; i < 100; i++) {
    int32_t from = 99 - i;
    float *out = env->output(env, i, env->in_rank[from], env->in_dims[from]);
    if (!out) return SMELT_E_MEMORY;
    memcpy(out, env->in[from], (size_t)count_of(env, from) * sizeof *out);
  }
  return SMELT_OK;
}

static void take(void *ctx, int64_t i) {
  const loop *l = ctx;
  int64_t index = l->index[i];
  if (index < 0 || index >= l->size) {
    smelt_fail(l->env, SMELT_E_INDEX, 1, index, l->size, 0);
    return;
  }
  l->out[i] = l->a[index];
}

/* Fails inside a body, on any thread, and returns OK itself. */
int32_t SMELT_NAME(toy_gather)(smelt_env *env) {
  loop l = {.env = env, .a = env->in[0], .index = env->in[1], .size = count_of(env, 0), .count = count_of(env, 1)};
  l.out = env->output(env, 0, env->in_rank[1], env->in_dims[1]);
  if (!l.out) return SMELT_E_MEMORY;
  env->parallel(env, l.count, take, &l);
  return SMELT_OK;
}

/* Asks for blocks of the sizes in input 0, fills them, and returns how many were aligned and kept their content. */
int32_t SMELT_NAME(toy_scratch)(smelt_env *env) {
  const int64_t *bytes = env->in[0];
  int64_t count = count_of(env, 0), good = 0;
  unsigned char *block[128];
  int64_t *out = env->output(env, 0, 0, NULL);
  if (!out) return SMELT_E_MEMORY;
  if (count > 128) return smelt_fail(env, SMELT_E_VALUE, 0, count, 0, 0);
  for (int64_t i = 0; i < count; i++) {
    block[i] = env->scratch(env, bytes[i]);
    if (!block[i]) return SMELT_E_MEMORY;
    memset(block[i], (int)i, (size_t)bytes[i]);
  }
  for (int64_t i = 0; i < count; i++) {
    int same = (uintptr_t)block[i] % 64 == 0;
    for (int64_t j = 0; j < bytes[i]; j++) same &= block[i][j] == (unsigned char)i;
    good += same;
  }
  *out = good;
  return SMELT_OK;
}

#define LEVEL_NUMBER SMELT_PASTE_TWICE(SMELT_LEVEL_, SMELT_LEVEL)
#define SMELT_PASTE_TWICE(a, b) SMELT_PASTE_ONCE(a, b)
#define SMELT_PASTE_ONCE(a, b) a##b

/* No inputs: which level runs. */
int32_t SMELT_NAME(toy_level)(smelt_env *env) {
  int32_t *out = env->output(env, 0, 0, NULL);
  if (!out) return SMELT_E_MEMORY;
  *out = LEVEL_NUMBER;
  return SMELT_OK;
}

/* Zeros of the shape that input 0 holds: the host is asked for whatever the caller wrote. */
int32_t SMELT_NAME(toy_zeros)(smelt_env *env) {
  const int64_t *dims = env->in[0];
  int64_t rank = count_of(env, 0), bytes = 1;
  uint8_t *out = env->output(env, 0, (int32_t)rank, dims);
  if (!out) return SMELT_E_MEMORY;
  for (int64_t i = 0; i < rank; i++) bytes *= dims[i];
  memset(out, 0, (size_t)bytes);
  return SMELT_OK;
}
