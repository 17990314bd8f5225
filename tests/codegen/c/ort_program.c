/* A C program that runs an artifact's model with ONNX Runtime's shared library: argv = library, model, custom-op library.
 * The model adds two float vectors of three elements; prints their sum. */
#include <dlfcn.h>
#include <smelt/ort/ort_abi.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct OrtEnv OrtEnv;
typedef struct OrtSession OrtSession;
typedef const char *(*ort_2_message)(const OrtStatus *);
typedef OrtStatus *(*ort_3_env)(int severity, const char *name, OrtEnv **);
typedef OrtStatus *(*ort_7_session)(const OrtEnv *, const char *path, const OrtSessionOptions *, OrtSession **);
typedef OrtStatus *(*ort_9_run)(OrtSession *, const void *, const char *const *, const OrtValue *const *, size_t,
                                const char *const *, size_t, OrtValue **);
typedef OrtStatus *(*ort_10_options)(OrtSessionOptions **);
typedef OrtStatus *(*ort_49_tensor)(const OrtMemoryInfo *, void *, size_t, const int64_t *, size_t, int, OrtValue **);
typedef OrtStatus *(*ort_228_register)(OrtSessionOptions *, const char *);

static const OrtApi *api;

static void must(OrtStatus *status) {
  if (!status) return;
  fprintf(stderr, "%s\n", ORT_CALL(api, 2, message)(status));
  exit(1);
}

int main(int argc, char **argv) {
  void *library = argc == 4 ? dlopen(argv[1], RTLD_NOW) : NULL;
  if (!library) return fprintf(stderr, "%s\n", dlerror()), 1;
  const OrtApiBase *(*get)(void) = (const OrtApiBase *(*)(void))dlsym(library, "OrtGetApiBase");
  api = get()->GetApi(ORT_ABI_VERSION);
  OrtEnv *env;
  OrtSessionOptions *options;
  OrtSession *session;
  OrtMemoryInfo *memory;
  OrtValue *in[2], *out = NULL;
  float a[3] = {1, 2, 3}, b[3] = {10, 20, 30}, *sum;
  int64_t dims[1] = {3};
  const char *const in_names[] = {"a", "b"}, *const out_names[] = {"y"};
  must(ORT_CALL(api, 3, env)(3, "program", &env));
  must(ORT_CALL(api, 10, options)(&options));
  must(ORT_CALL(api, 228, register)(options, argv[3]));
  must(ORT_CALL(api, 7, session)(env, argv[2], options, &session));
  must(ORT_CALL(api, 69, cpu_memory)(ORT_ARENA_ALLOCATOR, ORT_MEM_DEFAULT, &memory));
  must(ORT_CALL(api, 49, tensor)(memory, a, sizeof a, dims, 1, 1, &in[0]));
  must(ORT_CALL(api, 49, tensor)(memory, b, sizeof b, dims, 1, 1, &in[1]));
  must(ORT_CALL(api, 9, run)(session, NULL, in_names, (const OrtValue *const *)in, 2, out_names, 1, &out));
  must(ORT_CALL(api, 51, tensor_data)(out, (void **)&sum));
  printf("%g %g %g on %s\n", sum[0], sum[1], sum[2], get()->GetVersionString());
  return 0;
}
