/* The product of nbits_unit.h on the calling thread, for numpy; `processors` decides how it is cut into tasks. */
#include <stdlib.h>

#define SMELT_LEVEL probe
#define SMELT_NBITS_ALONE
#include <smelt/base/cpu.h>
#include <smelt/nbits/nbits_unit.h>

/* With all features of this CPU, as a host reads them when a library is loaded. */
__attribute__((constructor)) static void features(void) { smelt_cpu_level(); }

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

int32_t probe_nbits(void *const *buffers, const int64_t *sizes, int64_t processors) {
  smelt_env env = {.scratch = scratch, .free_scratch = free_scratch, .parallel = parallel, .processors = (int32_t)processors};
  smelt_work work = {.bytes = NULL};
  smelt_task task = {.env = &env, .b = buffers, .s = sizes, .work = &work};
  const int32_t code = SMELT_NAME(smelt_nbits_product)(&task);
  free(work.bytes);
  return code;
}
