/* A model through smelt's execution provider, in C.
 *
 *     cc provider.c -o provider -ldl
 *     ./provider LIBONNXRUNTIME LIBPROVIDER model.onnx INPUT OUTPUT ROWS COLUMNS [option=value ...]
 *
 * The model has one float input of ROWS x COLUMNS, which is filled with 0, 0.01, 0.02, ...; the first numbers of the
 * output are printed. The first run compiles the model, later ones find it in the cache.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ort_provider_slots.h"

#define MOST_OPTIONS 16
#define PROVIDER "SmeltExecutionProvider"

static const void *const *api;

static void fail(const char *what, const char *which) {
  fprintf(stderr, "%s: %s\n", what, which);
  exit(1);
}

static void must(OrtStatus *status) {
  if (status) fail("onnxruntime", ORT(api, message)(status));
}

static void load_runtime(const char *path) {
  void *library = dlopen(path, RTLD_NOW);
  if (!library) fail("cannot load ONNX Runtime", dlerror());
  const OrtApiBase *(*base)(void) = (const OrtApiBase *(*)(void))(uintptr_t)dlsym(library, "OrtGetApiBase");
  if (!base) fail("not ONNX Runtime", path);
  api = base()->GetApi(ORT_VERSION_NEEDED);
  if (!api) fail("ONNX Runtime 1.23 or newer is needed, this is", base()->GetVersionString());
}

/* The provider's devices, here one CPU, are what a session is given. */
static void use_provider(OrtEnv *env, OrtSessionOptions *options, const char *library, char **given, int count) {
  const OrtEpDevice *const *devices, *ours[8];
  const char *keys[MOST_OPTIONS], *values[MOST_OPTIONS];
  size_t all, n_ours = 0, n_options = 0;
  must(ORT(api, register_provider)(env, "smelt", library));
  must(ORT(api, devices)(env, &devices, &all));
  for (size_t i = 0; i < all && n_ours < 8; i++)
    if (!strcmp(ORT(api, device_provider)(devices[i]), PROVIDER)) ours[n_ours++] = devices[i];
  for (int i = 0; i < count && n_options < MOST_OPTIONS; i++) {
    char *equals = strchr(given[i], '=');
    if (!equals) fail("not option=value", given[i]);
    *equals = 0;
    keys[n_options] = given[i], values[n_options++] = equals + 1;
  }
  must(ORT(api, append_provider)(options, env, ours, n_ours, keys, values, n_options));
}

static void run(OrtSession *session, const char *input, const char *output, int64_t rows, int64_t columns) {
  const int64_t dims[2] = {rows, columns};
  const size_t count = (size_t)(rows * columns);
  float *numbers = malloc(count * sizeof *numbers), *answer;
  OrtMemoryInfo *memory;
  OrtValue *in, *out = NULL;
  if (!numbers) fail("no memory for", input);
  for (size_t i = 0; i < count; i++) numbers[i] = 0.01f * (float)i;
  must(ORT(api, cpu_memory)(0, 0, &memory));
  must(ORT(api, create_tensor)(memory, numbers, count * sizeof *numbers, dims, 2, 1, &in));
  must(ORT(api, run)(session, NULL, &input, (const OrtValue *const *)&in, 1, &output, 1, &out));
  must(ORT(api, tensor_data)(out, (void **)&answer));
  for (int i = 0; i < 4; i++) printf("%.6g%s", (double)answer[i], i < 3 ? " " : "\n");
  ORT_RELEASE(api, value, out);
  ORT_RELEASE(api, value, in);
  ORT_RELEASE(api, memory, memory);
  free(numbers);
}

int main(int argc, char **argv) {
  OrtEnv *env;
  OrtSessionOptions *options;
  OrtSession *session;
  if (argc < 8) fail("usage", "provider LIBONNXRUNTIME LIBPROVIDER MODEL INPUT OUTPUT ROWS COLUMNS [option=value ...]");
  load_runtime(argv[1]);
  must(ORT(api, create_env)(2, "provider", &env));
  must(ORT(api, create_options)(&options));
  use_provider(env, options, argv[2], argv + 8, argc - 8);
  must(ORT(api, create_session)(env, argv[3], options, &session));
  run(session, argv[4], argv[5], atoll(argv[6]), atoll(argv[7]));
  ORT_RELEASE(api, session, session);
  ORT_RELEASE(api, options, options);
  must(ORT(api, unregister_provider)(env, "smelt"));
  ORT_RELEASE(api, env, env);
  return 0;
}
