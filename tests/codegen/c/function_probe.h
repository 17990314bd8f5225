/* A function in C on the calling thread, for numpy; `processors` decides how it is cut into tasks, which run last first. */
#ifndef FUNCTION_PROBE_H
#define FUNCTION_PROBE_H

#include <stdlib.h>

#include <smelt/base/cpu.h>
#include <smelt/threads/loop.h>

static void parallel(smelt_env *env, int64_t count, smelt_body body, void *ctx) {
  (void)env;
  for (int64_t i = count - 1; i >= 0; i--) body(ctx, i);
}

static void *scratch(smelt_env *env, int64_t bytes) {
  (void)env;
  return aligned_alloc(64, (size_t)(bytes + 63) / 64 * 64);
}

static void free_scratch(smelt_env *env, void *block) {
  (void)env;
  free(block);
}

/* With all features of this CPU, or those of the build alone. */
void probe_features(int all) {
  if (all) smelt_cpu_level();
  else smelt_features = 0;
}

static int32_t probe_function(int32_t (*function)(smelt_task *), void *const *buffers, const int64_t *sizes, const double *factors,
                              int64_t processors) {
  smelt_env env = {.scratch = scratch, .free_scratch = free_scratch, .parallel = parallel, .processors = (int32_t)processors};
  smelt_work work = {.bytes = NULL};
  smelt_task task = {.env = &env, .b = buffers, .s = sizes, .f = factors, .work = &work};
  const int32_t code = function(&task);
  free(work.bytes);
  return code;
}

/* `name`(buffers, sizes, factors, processors) for Python. */
#define PROBE(name, function)                                                                                          \
  int32_t name(void *const *buffers, const int64_t *sizes, const double *factors, int64_t processors) {                \
    return probe_function(SMELT_NAME(function), buffers, sizes, factors, processors);                                   \
  }

#endif
