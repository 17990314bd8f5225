/* Session options -> settings.
 *
 * Input:     the options of a session, the environment. Output: `settings`. Invariant: an option that is misspelled or
 *            has no meaning is an error that names those that there are, never a silent default.
 */
#define _GNU_SOURCE /* strdup, getpwuid */
#include <dlfcn.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "provider.h"

#define LIMIT_S 30.0          /* how long a session waits for its model to be compiled */
#define LIMIT_CONTEXT_S 600.0 /* who asks for a compiled model waits for it */

static const char *const known[] = {"cache_dir", "python", "time_limit", "compile", "threads", "precision"};

/* The value of a session's configuration entry; NULL where there is none. To be freed. */
static char *config(const ort_host *host, const OrtSessionOptions *options, const char *key, reason *why) {
  int has = 0;
  size_t bytes = 0;
  if (!reason_ok(host, why, ORT_CALL(host->api, 237, has_config)(options, key, &has)) || !has) return NULL;
  if (!reason_ok(host, why, ORT_CALL(host->api, 238, config)(options, key, NULL, &bytes))) return NULL;
  char *text = calloc(1, bytes + 1);
  if (text && !reason_ok(host, why, ORT_CALL(host->api, 238, config)(options, key, text, &bytes))) text[0] = 0;
  return text;
}

static int flag(const ort_host *host, const OrtSessionOptions *options, const char *key, reason *why) {
  char *text = config(host, options, key, why);
  const int set = text && !strcmp(text, "1");
  free(text);
  return set;
}

static char *option(const ort_host *host, const OrtSessionOptions *options, const char *name, reason *why) {
  char key[64];
  snprintf(key, sizeof key, SMELT_EP_PREFIX "%s", name);
  char *text = config(host, options, key, why);
  if (text && *text) return text;
  free(text);
  return NULL;
}

/* Configuration entries with the provider's prefix that mean nothing here. */
static int check_names(const ort_host *host, const OrtSessionOptions *options, reason *why) {
  OrtKeyValuePairs *pairs = NULL;
  const char *const *keys = NULL, *const *values = NULL;
  size_t count = 0;
  int fine = 1;
  if (!reason_ok(host, why, ORT_CALL(host->api, 379, all_config)(options, &pairs))) return 0;
  ORT_CALL(host->api, 298, pairs)(pairs, &keys, &values, &count);
  for (size_t i = 0; fine && i < count; i++) {
    if (strncmp(keys[i], SMELT_EP_PREFIX, strlen(SMELT_EP_PREFIX))) continue;
    const char *name = keys[i] + strlen(SMELT_EP_PREFIX);
    int there = 0;
    for (size_t k = 0; k < sizeof known / sizeof *known; k++) there |= !strcmp(name, known[k]);
    if (there) continue;
    fine = 0;
    reason_set(why, "there is no option '%s'; options are cache_dir, python, time_limit, compile, threads, precision",
               name);
  }
  ORT_CALL(host->api, 300, release_pairs)(pairs);
  return fine;
}

static char *joined(const char *folder, const char *rest) {
  char *path = NULL;
  return asprintf(&path, "%s/%s", folder, rest) < 0 ? NULL : path;
}

static char *absolute(const char *path) {
  char here[4096];
  const char *home = getenv("HOME");
  if (path[0] == '~' && path[1] == '/' && home) return joined(home, path + 2);
  if (path[0] == '/' || !getcwd(here, sizeof here)) return strdup(path);
  return joined(here, path);
}

/* Where the compiler's own cache is, so that `smelt cache` sees and clears both. */
static char *default_cache(void) {
  const char *named = getenv("SMELT_CACHE_DIR"), *xdg = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
  if (named && *named) return absolute(named);
  if (xdg && *xdg) return joined(xdg, "smelt");
  const struct passwd *user = home && *home ? NULL : getpwuid(geteuid());
  if (user) home = user->pw_dir;
  return home && *home ? joined(home, ".cache/smelt") : NULL;
}

/* The interpreter of the environment that the library is installed in: <prefix>/lib/pythonX.Y/site-packages/<here>/. */
static char *neighbour_python(void) {
  Dl_info found;
  char *library = dladdr((const void *)neighbour_python, &found) && found.dli_fname ? realpath(found.dli_fname, NULL) : NULL;
  char *python = NULL;
  for (int i = 0; library && i < 5; i++) {
    char *slash = strrchr(library, '/');
    if (!slash) break;
    *slash = 0;
  }
  if (library && *library) python = joined(library, "bin/python3");
  free(library);
  if (python && !access(python, X_OK)) return python;
  free(python);
  return NULL;
}

static char *default_python(void) {
  const char *named = getenv("SMELT_PYTHON");
  if (named && *named) return strdup(named);
  char *found = neighbour_python();
  return found ? found : strdup("python3");
}

static int read_number(char *text, double *to, const char *name, reason *why) {
  char *end = text;
  if (!text) return 1;
  const double number = strtod(text, &end);
  const int fine = end != text && !*end && number >= 0 && number < 1e9;
  if (fine) *to = number;
  else reason_set(why, "%s='%s' is not a number of 0 or more", name, text);
  free(text);
  return fine;
}

static int read_compile(char *text, compile_mode *to, reason *why) {
  static const char *const names[] = {"wait", "background", "never"};
  int found = -1;
  if (!text) return 1;
  for (int i = 0; i < 3; i++)
    if (!strcmp(text, names[i])) found = i;
  if (found < 0) reason_set(why, "compile='%s' is not one of wait, background, never", text);
  else *to = (compile_mode)found;
  free(text);
  return found >= 0;
}

static int read_precision(char *text, reason *why) {
  const int fine = !text || !strcmp(text, "model");
  if (!fine) reason_set(why, "precision='%s' is not 'model', the types that the model itself has", text);
  free(text);
  return fine;
}

int settings_read(settings *to, const ort_host *host, const OrtSessionOptions *options, reason *why) {
  double threads = 0;
  *why->text = 0;
  if (!check_names(host, options, why)) return 0;
  to->context_enable = flag(host, options, "ep.context_enable", why);
  to->context_embed = flag(host, options, "ep.context_embed_mode", why);
  to->never_compile = flag(host, options, "session.disable_model_compile", why);
  to->context_path = config(host, options, "ep.context_file_path", why);
  to->limit_s = to->context_enable ? LIMIT_CONTEXT_S : LIMIT_S;
  char *cache = option(host, options, "cache_dir", why), *python = option(host, options, "python", why);
  to->cache = cache ? absolute(cache) : default_cache();
  to->python = python ? python : default_python();
  free(cache);
  if (!read_number(option(host, options, "time_limit", why), &to->limit_s, "time_limit", why) ||
      !read_number(option(host, options, "threads", why), &threads, "threads", why) ||
      !read_compile(option(host, options, "compile", why), &to->compile, why) ||
      !read_precision(option(host, options, "precision", why), why))
    return 0;
  to->threads = (int)threads;
  if (!to->limit_s && to->compile == COMPILE_WAIT) to->compile = COMPILE_NEVER;
  if (!to->cache || !to->python) reason_set(why, "there is no home folder: set cache_dir");
  return !*why->text;
}

void settings_free(settings *gone) {
  free(gone->cache);
  free(gone->python);
  free(gone->context_path);
  memset(gone, 0, sizeof *gone);
}
