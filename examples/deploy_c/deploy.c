/* Run a smelt artifact from C: ONNX Runtime's shared library, the artifact folder, and nothing else.
 *
 *   deploy LIBONNXRUNTIME ARTIFACT name:type:DIMxDIM:FILE ... name:FILE ...
 *
 * An argument with four fields is an input (raw little-endian data in FILE), one with two fields an output, written raw
 * to FILE; "-" writes nothing. Prints the type and shape of every output. Build: cc deploy.c -o deploy -ldl
 */
#define _POSIX_C_SOURCE 200809L
#include "ort_slots.h"
#include <dirent.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_TENSORS 64
#define MOST_DIMS 16
#define PATH_BYTES 4096

typedef struct {
  const char *name;
  int number; /* ONNX element type */
  size_t bytes;
} element;

static const element elements[] = {{"float", 1, 4},  {"uint8", 2, 1},  {"int8", 3, 1},    {"uint16", 4, 2},
                                   {"int16", 5, 2},  {"int32", 6, 4},  {"int64", 7, 8},   {"bool", 9, 1},
                                   {"double", 11, 8}, {"uint32", 12, 4}, {"uint64", 13, 8}};

typedef struct {
  const char *name, *file;
  const element *type;
  int64_t dims[MOST_DIMS];
  size_t rank, bytes;
  void *data;
} tensor;

static const void *const *api;

static void fail(const char *what, const char *which) {
  fprintf(stderr, "%s: %s\n", what, which);
  exit(1);
}

static void must(OrtStatus *status) {
  if (status) fail("onnxruntime", ORT(api, get_error_message)(status));
}

/* The next field of an argument; the fields are cut in place. */
static char *field(char **rest) {
  char *start = *rest, *end = start ? strchr(start, ':') : NULL;
  *rest = end ? end + 1 : NULL;
  if (end) *end = 0;
  return start;
}

static void read_shape(tensor *t, char *text) {
  t->bytes = t->type->bytes;
  while (*text) {
    char *end;
    long long size = strtoll(text, &end, 10);
    if (end == text || size < 0 || t->rank == MOST_DIMS) fail("not a shape", text);
    if (size && t->bytes > SIZE_MAX / (size_t)size) fail("too large", text);
    t->dims[t->rank++] = size;
    t->bytes *= (size_t)size;
    text = *end ? end + 1 : end;
  }
}

static void read_data(tensor *t) {
  FILE *file = fopen(t->file, "rb");
  if (!file) fail("cannot open", t->file);
  t->data = malloc(t->bytes + 1);
  if (!t->data || fread(t->data, 1, t->bytes, file) != t->bytes) fail("too short", t->file);
  fclose(file);
}

static int read_argument(char *argument, tensor *t) {
  memset(t, 0, sizeof *t);
  char *rest = argument, *second;
  t->name = field(&rest);
  second = field(&rest);
  if (!second) fail("neither input nor output", argument);
  t->file = second;
  if (!rest) return 0;
  for (size_t i = 0; i < sizeof elements / sizeof *elements; i++)
    if (!strcmp(second, elements[i].name)) t->type = &elements[i];
  if (!t->type) fail("unknown type", second);
  read_shape(t, field(&rest));
  t->file = rest ? rest : "";
  read_data(t);
  return 1;
}

/* The one library in the artifact's folder. Its manifest names it too, with its SHA-256. */
static void find_library(const char *folder, char *path) {
  char manifest[PATH_BYTES];
  snprintf(manifest, sizeof manifest, "%s/manifest.json", folder);
  FILE *file = fopen(manifest, "rb");
  DIR *listing = file ? opendir(folder) : NULL;
  if (!listing) fail("no manifest, so this is no artifact", folder);
  fclose(file);
  path[0] = 0;
  for (struct dirent *entry; (entry = readdir(listing));) {
    size_t length = strlen(entry->d_name);
    if (length > 3 && !strcmp(entry->d_name + length - 3, ".so"))
      snprintf(path, PATH_BYTES, "%s/%s", folder, entry->d_name);
  }
  closedir(listing);
}

static void write_output(OrtValue *value, const tensor *t) {
  OrtShape *shape;
  int number;
  size_t rank, count = 1, bytes = 0;
  int64_t dims[MOST_DIMS];
  void *data;
  must(ORT(api, shape_of)(value, &shape));
  must(ORT(api, element_type)(shape, &number));
  must(ORT(api, rank)(shape, &rank));
  if (rank > MOST_DIMS) fail("too many dimensions", t->name);
  must(ORT(api, dims)(shape, dims, rank));
  ORT_RELEASE(api, shape, shape);
  must(ORT(api, tensor_data)(value, &data));
  const char *type = "?";
  for (size_t i = 0; i < sizeof elements / sizeof *elements; i++)
    if (elements[i].number == number) type = elements[i].name, bytes = elements[i].bytes;
  printf("%s: %s ", t->name, type);
  for (size_t i = 0; i < rank; i++) printf("%s%lld", i ? "x" : "", (long long)dims[i]), count *= (size_t)dims[i];
  puts("");
  if (!strcmp(t->file, "-")) return;
  FILE *file = fopen(t->file, "wb");
  if (!file || fwrite(data, bytes, count, file) != count || fclose(file)) fail("cannot write", t->file);
}

static void run(const char *folder, tensor *in, size_t n_in, tensor *out, size_t n_out) {
  char model[PATH_BYTES], library[PATH_BYTES];
  const char *in_names[MOST_TENSORS], *out_names[MOST_TENSORS];
  OrtValue *inputs[MOST_TENSORS], *outputs[MOST_TENSORS] = {NULL};
  OrtEnv *env;
  OrtSessionOptions *options;
  OrtSession *session;
  OrtMemoryInfo *memory;
  find_library(folder, library);
  snprintf(model, sizeof model, "%s/model.onnx", folder);
  must(ORT(api, create_env)(3, "deploy", &env));
  must(ORT(api, create_session_options)(&options));
  if (library[0]) must(ORT(api, register_library)(options, library));
  must(ORT(api, create_session)(env, model, options, &session));
  must(ORT(api, cpu_memory)(0, 0, &memory));
  for (size_t i = 0; i < n_in; i++) {
    in_names[i] = in[i].name;
    must(ORT(api, create_tensor)(memory, in[i].data, in[i].bytes, in[i].dims, in[i].rank, in[i].type->number,
                                 &inputs[i]));
  }
  for (size_t i = 0; i < n_out; i++) out_names[i] = out[i].name;
  must(ORT(api, run)(session, NULL, in_names, (const OrtValue *const *)inputs, n_in, out_names, n_out, outputs));
  for (size_t i = 0; i < n_out; i++) {
    write_output(outputs[i], &out[i]);
    ORT_RELEASE(api, value, outputs[i]);
  }
  for (size_t i = 0; i < n_in; i++) {
    ORT_RELEASE(api, value, inputs[i]);
    free(in[i].data);
  }
  ORT_RELEASE(api, memory, memory);
  ORT_RELEASE(api, session, session);
  ORT_RELEASE(api, options, options);
  ORT_RELEASE(api, env, env);
}

int main(int argc, char **argv) {
  static tensor in[MOST_TENSORS], out[MOST_TENSORS];
  size_t n_in = 0, n_out = 0;
  if (argc < 4 || argc > MOST_TENSORS)
    fail("usage", "deploy LIBONNXRUNTIME ARTIFACT name:type:DIMxDIM:FILE ... name:FILE ...");
  for (int i = 3; i < argc; i++) {
    tensor t;
    if (read_argument(argv[i], &t)) in[n_in++] = t;
    else out[n_out++] = t;
  }
  void *library = dlopen(argv[1], RTLD_NOW);
  if (!library) fail("cannot load ONNX Runtime", dlerror());
  const OrtApiBase *(*base)(void) = (const OrtApiBase *(*)(void))(uintptr_t)dlsym(library, "OrtGetApiBase");
  if (!base) fail("not ONNX Runtime", argv[1]);
  api = base()->GetApi(ORT_VERSION_NEEDED);
  if (!api) fail("ONNX Runtime 1.17 or newer is needed, this is", base()->GetVersionString());
  run(argv[2], in, n_in, out, n_out);
  return 0;
}
