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

typedef int32_t (*probe)(void *const *, const int64_t *, const double *, int64_t);

#ifdef PROBE_MAIN
#include <stdio.h>
#include <string.h>

/* Calls from standard input: name, 64 bytes; counts of buffers, sizes and factors, processors, whether all features are used; bytes of
 * each buffer (-1: NULL); sizes; factors; buffers. The answer is the code and all buffers. */
static struct {
  const char *name;
  probe function;
} probes[8];
static int probe_count;

static void take(void *to, int64_t bytes) {
  if (bytes > 0 && fread(to, 1, (size_t)bytes, stdin) != (size_t)bytes) exit(3);
}

int main(void) {
  char name[64];
  int64_t counts[5], bytes[64], sizes[64];
  double factors[16];
  void *buffers[64];
  while (fread(name, 1, sizeof name, stdin) == sizeof name) {
    take(counts, sizeof counts), take(bytes, counts[0] * 8), take(sizes, counts[1] * 8), take(factors, counts[2] * 8);
    for (int64_t i = 0; i < counts[0]; i++) {
      buffers[i] = bytes[i] < 0 ? NULL : aligned_alloc(64, (size_t)(bytes[i] + 127) / 64 * 64);
      take(buffers[i], bytes[i]);
    }
    probe_features(counts[4] != 0);
    int64_t code = 4;
    for (int i = 0; i < probe_count; i++)
      if (!strcmp(name, probes[i].name)) code = probes[i].function(buffers, sizes, factors, counts[3]);
    fwrite(&code, 1, 8, stdout);
    for (int64_t i = 0; i < counts[0]; i++) {
      if (bytes[i] > 0) fwrite(buffers[i], 1, (size_t)bytes[i], stdout);
      free(buffers[i]);
    }
    fflush(stdout);
  }
  return 0;
}
#define PROBE_KNOWN(function_name)                                                                                     \
  __attribute__((constructor)) static void function_name##_known(void) {                                               \
    probes[probe_count].name = #function_name, probes[probe_count++].function = function_name;                         \
  }
#else
#define PROBE_KNOWN(name)
#endif

/* `name`(buffers, sizes, factors, processors) for Python. */
#define PROBE(name, function)                                                                                          \
  int32_t name(void *const *buffers, const int64_t *sizes, const double *factors, int64_t processors) {                \
    return probe_function(SMELT_NAME(function), buffers, sizes, factors, processors);                                   \
  }                                                                                                                    \
  PROBE_KNOWN(name)

#endif
