/* The compiler, in a process of its own.
 *
 * Input:     a graph and its key. Output: an entry in the cache, or a reason. Invariant: no shell; one process compiles a
 *            key at a time (the compiler locks it); after the time limit the process and its children are gone, and the
 *            job's folder with them.
 */
#define _GNU_SOURCE /* POSIX_SPAWN_SETSID, mkdtemp, nftw */
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "provider.h"

#define GRACE_S 5.0 /* after the limit that the compiler keeps itself */
#define TERM_S 2.0  /* between the polite signal and the other */

extern char **environ;

/* The job: model.onnx, model.data, job.json in a folder of its own */

static int write_all(int file, const void *data, size_t bytes) {
  for (const char *next = (const char *)data; bytes;) {
    const ssize_t wrote = write(file, next, bytes);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote <= 0) return 0;
    next += wrote, bytes -= (size_t)wrote;
  }
  return 1;
}

static int create(const char *folder, const char *name) {
  char *path = NULL;
  if (asprintf(&path, "%s/%s", folder, name) < 0) return -1;
  const int file = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  free(path);
  return file;
}

static int write_file(const char *folder, const char *name, const void *data, size_t bytes) {
  const int file = create(folder, name);
  const int fine = file >= 0 && write_all(file, data, bytes);
  return file >= 0 && !close(file) && fine;
}

static int write_weights(const char *folder, const graph_proto *graph) {
  static const char zeros[4096];
  const int file = create(folder, "model.data");
  int fine = file >= 0;
  for (size_t i = 0; fine && i < graph->n_weights; i++) {
    const weight *w = &graph->weights[i];
    fine = write_all(file, w->data, w->bytes) &&
           write_all(file, zeros, (sizeof zeros - w->bytes % sizeof zeros) % sizeof zeros);
  }
  return file >= 0 && !close(file) && fine;
}

static int write_job(const smelt_ep *ep, const char *folder, const char *key, const graph_proto *graph) {
  buffer job = {0};
  buffer_format(&job, "{\"key\": \"%s\", \"release\": \"%s\", \"limit_s\": %.3f, \"background\": %s, \"threads\": %d}\n",
                key, SMELT_EP_RELEASE, ep->set.limit_s, ep->set.compile == COMPILE_BACKGROUND ? "true" : "false",
                ep->set.threads);
  const int fine = !job.failed && write_file(folder, "model.onnx", graph->model.data, graph->model.used) &&
                   (!graph->n_weights || write_weights(folder, graph)) &&
                   write_file(folder, "job.json", job.data, job.used);
  buffer_free(&job);
  return fine;
}

static char *make_job(const smelt_ep *ep, const char *key, const graph_proto *graph, reason *why) {
  char *tmp = store_path(ep, "tmp"), *folder = store_path(ep, "tmp/ep-XXXXXX");
  int fine = tmp && folder && store_folder(ep->set.cache, why) && store_folder(tmp, why);
  free(tmp);
  if (fine && !mkdtemp(folder)) fine = 0, reason_set(why, "%s: %s", folder, strerror(errno));
  if (fine && write_job(ep, folder, key, graph)) return folder;
  if (fine) reason_set(why, "the model could not be written to %s: %s", folder, strerror(errno));
  return free(folder), NULL;
}

static int remove_one(const char *path, const struct stat *facts, int kind, struct FTW *place) {
  (void)facts, (void)kind, (void)place;
  remove(path);
  return 0;
}

static void remove_tree(const char *folder) { nftw(folder, remove_one, 8, FTW_DEPTH | FTW_PHYS); }

/* The process */

static int is_ours(const char *entry) {
  return !strncmp(entry, "SMELT_CACHE_DIR=", 16) || !strncmp(entry, "SMELT_HOOK=", 11);
}

static char **environment(const char *cache) {
  size_t count = 0, kept = 0;
  while (environ[count]) count++;
  char **all = calloc(count + 3, sizeof *all);
  char *variable = NULL;
  if (!all || asprintf(&variable, "SMELT_CACHE_DIR=%s", cache) < 0) return free(all), NULL;
  all[kept++] = variable; /* first: who frees the list frees it */
  all[kept++] = "SMELT_HOOK=off";
  for (size_t i = 0; i < count; i++)
    if (!is_ours(environ[i])) all[kept++] = environ[i];
  return all;
}

static int prepare(posix_spawnattr_t *how, posix_spawn_file_actions_t *files, const char *errors) {
  sigset_t none, usual;
  sigemptyset(&none);
  sigfillset(&usual);
  return !posix_spawnattr_setflags(how, POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF) &&
         !posix_spawnattr_setsigmask(how, &none) && !posix_spawnattr_setsigdefault(how, &usual) &&
         !posix_spawn_file_actions_addopen(files, 0, "/dev/null", O_RDONLY, 0) &&
         !posix_spawn_file_actions_addopen(files, 1, "/dev/null", O_WRONLY, 0) &&
         !posix_spawn_file_actions_addopen(files, 2, errors, O_WRONLY | O_CREAT | O_TRUNC, 0600);
}

/* In a session of its own, so that a signal to its group reaches whatever it starts in it. */
static pid_t start(const smelt_ep *ep, char *folder, reason *why) {
  char *arguments[] = {ep->set.python, "-P", "-m", "smelt.frontends.session.provider", folder, NULL};
  char **variables = environment(ep->set.cache), *errors = NULL;
  posix_spawnattr_t how;
  posix_spawn_file_actions_t files;
  pid_t process = -1;
  int code = ENOMEM;
  if (!variables || asprintf(&errors, "%s/stderr", folder) < 0) return -1;
  posix_spawnattr_init(&how);
  posix_spawn_file_actions_init(&files);
  if (prepare(&how, &files, errors)) code = posix_spawnp(&process, ep->set.python, &files, &how, arguments, variables);
  if (code) reason_set(why, "the interpreter %s could not be started: %s", ep->set.python, strerror(code));
  posix_spawn_file_actions_destroy(&files);
  posix_spawnattr_destroy(&how);
  free(variables[0]);
  free(variables);
  free(errors);
  return code ? -1 : process;
}

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

/* Whether the process has ended within the time. Where the host ignores SIGCHLD there is nothing to wait for: ECHILD. */
static int ended(pid_t process, double seconds, int *code) {
  const double until = now() + seconds;
  for (long pause_ns = 1000000; now() < until; pause_ns = pause_ns < 20000000 ? pause_ns * 2 : pause_ns) {
    const pid_t got = waitpid(process, code, WNOHANG);
    if (got == process || (got < 0 && errno == ECHILD && kill(process, 0))) return 1;
    const struct timespec time = {0, pause_ns};
    nanosleep(&time, NULL);
  }
  return 0;
}

/* Returns whether it ended by itself, and well. */
static int finish(pid_t process, double limit_s) {
  int code = 0;
  if (ended(process, limit_s, &code)) return WIFEXITED(code) && !WEXITSTATUS(code);
  kill(-process, SIGTERM);
  if (!ended(process, TERM_S, &code)) {
    kill(-process, SIGKILL);
    ended(process, TERM_S, &code);
  }
  return 0;
}

/* The last line that the process wrote to stderr: what a failed import says. */
static void last_words(const char *folder, const char *python, reason *why) {
  char *path = NULL, line[300], last[300] = "it ended without a word";
  if (asprintf(&path, "%s/stderr", folder) < 0) return;
  FILE *file = fopen(path, "re");
  while (file && fgets(line, sizeof line, file))
    if (*line != '\n') line[strcspn(line, "\n")] = 0, strcpy(last, line);
  if (file) fclose(file);
  free(path);
  reason_set(why, "the compiler (%s -m smelt) did not run: %s", python, last);
}

int compiler_run(const smelt_ep *ep, const char *key, const graph_proto *graph, reason *why) {
  char *folder = make_job(ep, key, graph, why), *path = NULL, digest[SHA256_HEX];
  const int background = ep->set.compile == COMPILE_BACKGROUND;
  if (!folder) return 0;
  const pid_t process = start(ep, folder, why);
  const int well = process > 0 && finish(process, GRACE_S + (background ? GRACE_S : ep->set.limit_s));
  const int found = process > 0 && store_find(ep, key, &path, digest);
  free(path);
  if (process > 0 && !found) {
    if (background && well) reason_set(why, "it is being compiled in the background; later sessions will use it");
    else if (!store_failure(ep, key, why)) last_words(folder, ep->set.python, why);
  }
  if (!background || !well) remove_tree(folder); /* otherwise the process that goes on does it */
  free(folder);
  return found;
}
