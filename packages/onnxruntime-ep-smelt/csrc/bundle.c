/* A bundle -> a session.
 *
 * Input:     a shared library that was checked. It ends with the packed weights, the compiled model and a footer:
 *            "SMELTEP1", the model's offset, its size, and flags (1: output shapes follow from input shapes), each 64
 *            bits, little endian.
 * Output:    a session of the same ONNX Runtime over that model, with the library's operators registered.
 * Invariant: the session has the options of the session that it serves, its number of threads among them, but writes no
 *            file. The weights are mapped from the library's file by ONNX Runtime, not read.
 */
#define _GNU_SOURCE /* strdup */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "provider.h"

#define FOOTER_BYTES 32
#define FLAG_SHAPES_FOLLOW 1
#define MOST_MODEL_BYTES ((uint64_t)1 << 31)

/* The compiled model at the end of the file; to be freed. */
static void *read_model(const char *path, size_t *bytes, int *shapes_follow, reason *why) {
  uint64_t footer[4] = {0, 0, 0, 0};
  struct stat facts;
  void *model = NULL;
  const int file = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
  if (file >= 0 && !fstat(file, &facts) && facts.st_size > FOOTER_BYTES &&
      pread(file, footer, FOOTER_BYTES, facts.st_size - FOOTER_BYTES) == FOOTER_BYTES &&
      !memcmp(footer, "SMELTEP1", 8) && footer[2] < MOST_MODEL_BYTES && footer[1] < (uint64_t)facts.st_size &&
      footer[1] + footer[2] <= (uint64_t)facts.st_size && (model = malloc(footer[2] + 1)))
    for (*bytes = 0; *bytes < footer[2];) {
      const ssize_t got = pread(file, (char *)model + *bytes, footer[2] - *bytes, (off_t)(footer[1] + *bytes));
      if (got <= 0) break;
      *bytes += (size_t)got;
    }
  if (file >= 0) close(file);
  *shapes_follow = (footer[3] & FLAG_SHAPES_FOLLOW) != 0;
  if (model && *bytes == footer[2]) return model;
  reason_set(why, "%s is no compiled model of this release", path);
  return free(model), NULL;
}

static int set_config(const ort_host *host, OrtSessionOptions *options, const char *key, const char *value,
                      reason *why) {
  return reason_ok(host, why, ORT_CALL(host->api, 130, set_config)(options, key, value));
}

/* Switches a flag off where it is on: ONNX Runtime warns of every entry that is replaced. */
static int switch_off(const ort_host *host, OrtSessionOptions *options, const char *key, reason *why) {
  char value[8] = "";
  size_t bytes = sizeof value;
  int has = 0;
  if (!reason_ok(host, why, ORT_CALL(host->api, 237, has_config)(options, key, &has))) return 0;
  OrtStatus *status = has ? ORT_CALL(host->api, 238, config)(options, key, value, &bytes) : NULL;
  if (status) ORT_CALL(host->api, 93, release_status)(status);
  return strcmp(value, "1") || set_config(host, options, key, "0", why);
}

static OrtSessionOptions *own_options(const smelt_ep *ep, const char *path, reason *why) {
  const ort_host *host = ep->host;
  OrtSessionOptions *options = NULL;
  char *folder = strdup(path);
  char *slash = folder ? strrchr(folder, '/') : NULL;
  if (slash) *slash = 0;
  int fine = slash && reason_ok(host, why, ORT_CALL(host->api, 12, clone_options)(ep->options, &options));
  fine = fine && reason_ok(host, why, ORT_CALL(host->api, 11, optimized_path)(options, "")) &&
         reason_ok(host, why, ORT_CALL(host->api, 15, no_profiling)(options)) &&
         set_config(host, options, "session.model_external_initializers_file_folder_path", folder, why) &&
         switch_off(host, options, "session.disable_cpu_ep_fallback", why) &&
         switch_off(host, options, "ep.context_enable", why) &&
         (!ep->set.threads ||
          reason_ok(host, why, ORT_CALL(host->api, 24, intra_threads)(options, ep->set.threads))) &&
         reason_ok(host, why, ORT_CALL(host->api, 228, register_library)(options, path));
  free(folder);
  if (fine) return options;
  if (options) ORT_CALL(host->api, 100, release_options)(options);
  return NULL;
}

int bundle_open(bundle *to, const smelt_ep *ep, const char *path, reason *why) {
  const ort_host *host = ep->host;
  size_t bytes = 0;
  void *model = read_model(path, &bytes, &to->shapes_follow, why);
  OrtSessionOptions *options = model ? own_options(ep, path, why) : NULL;
  int fine = options && reason_ok(host, why, ORT_CALL(host->api, 3, create_env)(ORT_LOG_WARNING, "smelt", &to->env));
  ep_nested(1);
  fine = fine && reason_ok(host, why, ORT_CALL(host->api, 8, session_from_array)(to->env, model, bytes, options,
                                                                                 &to->session));
  ep_nested(-1);
  if (options) ORT_CALL(host->api, 100, release_options)(options);
  free(model);
  if (!fine) bundle_close(to, host);
  return fine;
}

void bundle_close(bundle *gone, const ort_host *host) {
  if (gone->session) ORT_CALL(host->api, 95, release_session)(gone->session);
  if (gone->env) ORT_CALL(host->api, 92, release_env)(gone->env);
  gone->session = NULL, gone->env = NULL;
}
