/* What was compiled, in the cache that the compiler keeps.
 *
 *     <cache>/session/<key>/artifact/sha256        "<digest>  <file>", as sha256sum writes it
 *     <cache>/session/<key>/artifact/smelt_*.so    the bundle
 *     <cache>/session/<key>/failed.json            why there is none
 *     <cache>/session/known/ep-<digest of a path>  the digest of a file, and the file's stamp when it was hashed
 *
 * Invariant: an entry appears whole or not at all (the compiler renames it into place). A file is not hashed again while
 *            its size, times and inode are as they were; the time of the last change cannot be set by a program.
 */
#define _GNU_SOURCE /* asprintf */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "provider.h"

#define FORGET_S (24 * 3600.0) /* as the compiler's own sessions do */
#define NOTE_BYTES 4096

char *store_path(const smelt_ep *ep, const char *format, ...) {
  char *rest = NULL, *path = NULL;
  va_list arguments;
  va_start(arguments, format);
  const int got = vasprintf(&rest, format, arguments);
  va_end(arguments);
  if (got < 0) return NULL;
  if (asprintf(&path, "%s/%s", ep->set.cache, rest) < 0) path = NULL;
  free(rest);
  return path;
}

/* Up to NOTE_BYTES - 1 of a small file, with a final zero. Returns whether it could be read. */
static int read_note(const char *path, char text[NOTE_BYTES]) {
  const int file = path ? open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW) : -1;
  if (file < 0) return 0;
  const ssize_t bytes = read(file, text, NOTE_BYTES - 1);
  close(file);
  text[bytes > 0 ? bytes : 0] = 0;
  return bytes > 0;
}

/* What decides how fast code runs here: what the kernel tells of the first CPU. */
static void add_cpu(sha256 *hash) {
  char line[8192];
  FILE *file = fopen("/proc/cpuinfo", "re");
  while (file && fgets(line, sizeof line, file) && *line != '\n')
    if (!strncmp(line, "flags", 5) || !strncmp(line, "Features", 8) || !strncmp(line, "model name", 10))
      sha256_add(hash, line, strlen(line));
  if (file) fclose(file);
}

void store_key(const smelt_ep *ep, const graph_proto *graph, char key[SHA256_HEX]) {
  sha256 hash;
  buffer facts = {0};
  sha256_start(&hash);
  buffer_format(&facts, "smelt-ep 1\n%s\n%s\n%d\n", SMELT_EP_RELEASE, ep->host->base->GetVersionString(),
                ep->set.threads);
  sha256_add(&hash, facts.data, facts.used);
  buffer_free(&facts);
  add_cpu(&hash);
  sha256_add(&hash, graph->model.data, graph->model.used);
  for (size_t i = 0; i < graph->n_weights; i++) sha256_add(&hash, graph->weights[i].data, graph->weights[i].bytes);
  sha256_hex(&hash, key);
}

static int is_hex(const char *text, size_t digits) {
  for (size_t i = 0; i < digits; i++)
    if (!strchr("0123456789abcdef", text[i]) || !text[i]) return 0;
  return 1;
}

/* "<digest>  <file>\n" with a file in the same folder. */
static int read_line(char *line, char digest[SHA256_HEX], char **file) {
  char *end = strchr(line, '\n');
  if (end) *end = 0;
  if (strlen(line) < 67 || !is_hex(line, 64) || strncmp(line + 64, "  ", 2)) return 0;
  memcpy(digest, line, 64);
  digest[64] = 0;
  *file = line + 66;
  return !strchr(*file, '/') && strcmp(*file, ".") && strcmp(*file, "..");
}

int store_find(const smelt_ep *ep, const char *key, char **path, char digest[SHA256_HEX]) {
  char text[NOTE_BYTES], *file;
  char *note = store_path(ep, "session/%s/artifact/sha256", key);
  const int found = read_note(note, text) && read_line(text, digest, &file);
  free(note);
  if (!found) return 0;
  *path = store_path(ep, "session/%s/artifact/%s", key, file);
  if (*path && !access(*path, R_OK)) {
    char *folder = store_path(ep, "session/%s/artifact", key);
    if (folder) utimensat(AT_FDCWD, folder, NULL, 0); /* a use, for who clears what is not used */
    free(folder);
    return 1;
  }
  free(*path);
  *path = NULL;
  return 0;
}

/* The compiler writes {"time": seconds, "reason": "text"}. */
int store_failure(const smelt_ep *ep, const char *key, reason *why) {
  char text[NOTE_BYTES];
  char *path = store_path(ep, "session/%s/failed.json", key);
  const int there = read_note(path, text);
  free(path);
  const char *when = there ? strstr(text, "\"time\": ") : NULL;
  char *what = there ? strstr(text, "\"reason\": \"") : NULL;
  if (!when || !what || (double)time(NULL) - strtod(when + 8, NULL) > FORGET_S) return 0;
  what += 11;
  char *to = what;
  for (char *from = what; *from && *from != '"'; from++) {
    if (*from == '\\' && from[1]) from++;
    *to++ = *from == 'n' && from[-1] == '\\' ? ' ' : *from;
  }
  *to = 0;
  double limit_s; /* an attempt that ran out of time says nothing of a longer one */
  if (sscanf(what, "it was not compiled within %lf s", &limit_s) == 1 && ep->set.limit_s > limit_s) return 0;
  reason_set(why, "%s", what);
  return 1;
}

/* Folders and files that may be trusted */

static int safe_mode(const char *path, const struct stat *facts, reason *why) {
  if (facts->st_uid != geteuid() && facts->st_uid != 0) reason_set(why, "%s belongs to another user", path);
  else if (facts->st_mode & (S_IWGRP | S_IWOTH)) reason_set(why, "others can write %s (chmod go-w mends it)", path);
  else return 1;
  return 0;
}

/* The folder is ours alone, and nobody can swap a folder above it for another. */
static int safe_folder(const char *folder, reason *why) {
  struct stat facts;
  char *path = realpath(folder, NULL);
  int fine = path && !stat(path, &facts);
  if (!fine) reason_set(why, "%s: %s", folder, strerror(errno));
  fine = fine && safe_mode(path, &facts, why);
  for (char *slash = path ? strrchr(path, '/') : NULL; fine && slash && path[1]; slash = strrchr(path, '/')) {
    slash[slash == path] = 0;
    fine = !stat(path, &facts) && (!(facts.st_mode & S_IWOTH) || (facts.st_mode & S_ISVTX));
    if (!fine) reason_set(why, "anyone can replace what lies in %s (chmod o-w mends it)", path);
  }
  free(path);
  return fine;
}

int store_folder(const char *path, reason *why) {
  char *all = strdup(path);
  int fine = all != NULL;
  for (char *slash = all; fine && slash; ) {
    slash = strchr(slash + 1, '/');
    if (slash) *slash = 0;
    fine = !mkdir(all, 0700) || errno == EEXIST || errno == EROFS || errno == EACCES;
    if (slash) *slash = '/';
  }
  free(all);
  if (access(path, W_OK | X_OK)) {
    reason_set(why, "the cache folder %s cannot be used: %s", path, strerror(errno));
    return 0;
  }
  return safe_folder(path, why);
}

static int hash_file(int file, char hex[SHA256_HEX]) {
  enum { PIECE = 1 << 20 };
  char *piece = malloc(PIECE);
  sha256 hash;
  ssize_t got = piece ? 1 : -1;
  sha256_start(&hash);
  while (got > 0 && (got = read(file, piece, PIECE)) > 0) sha256_add(&hash, piece, (size_t)got);
  free(piece);
  sha256_hex(&hash, hex);
  return got == 0;
}

static void stamp(const struct stat *facts, char text[256]) {
  snprintf(text, 256, "%lld %lld.%09ld %lld.%09ld %llu %llu ", (long long)facts->st_size,
           (long long)facts->st_mtim.tv_sec, facts->st_mtim.tv_nsec, (long long)facts->st_ctim.tv_sec,
           facts->st_ctim.tv_nsec, (unsigned long long)facts->st_ino, (unsigned long long)facts->st_dev);
}

static char *note_of(const smelt_ep *ep, const char *path) {
  sha256 hash;
  char hex[SHA256_HEX];
  sha256_start(&hash);
  sha256_add(&hash, path, strlen(path));
  sha256_hex(&hash, hex);
  return store_path(ep, "session/known/ep-%s", hex);
}

static void remember(const smelt_ep *ep, const char *note, const char *line, const char *digest) {
  char *folder = store_path(ep, "session/known");
  char *aside = NULL;
  reason ignored;
  if (folder && store_folder(folder, &ignored) && asprintf(&aside, "%s.%d", note, (int)getpid()) > 0) {
    FILE *file = fopen(aside, "we");
    int fine = file && fprintf(file, "%s%s\n", line, digest) > 0;
    fine = file && !fclose(file) && fine;
    if (!fine || rename(aside, note)) unlink(aside);
  }
  free(aside);
  free(folder);
}

/* The digest of an open file, from the note where the file is as it was. */
static int digest_of(const smelt_ep *ep, const char *path, int file, const struct stat *facts, char hex[SHA256_HEX]) {
  char line[256], known[NOTE_BYTES];
  char *folder = store_path(ep, "session/known"), *note = note_of(ep, path);
  reason ignored;
  stamp(facts, line);
  const size_t length = strlen(line);
  const int usable = folder && note && !access(folder, R_OK) && safe_folder(folder, &ignored);
  int fine = usable && read_note(note, known) && !strncmp(known, line, length) && is_hex(known + length, 64);
  if (fine) memcpy(hex, known + length, 64), hex[64] = 0;
  else if ((fine = hash_file(file, hex)) && note) remember(ep, note, line, hex);
  free(folder);
  free(note);
  return fine;
}

int store_trusted(const smelt_ep *ep, const char *path, const char *digest, reason *why) {
  char hex[SHA256_HEX], *folder = strdup(path);
  char *slash = folder ? strrchr(folder, '/') : NULL;
  struct stat facts;
  if (slash) *slash = 0;
  int fine = slash && safe_folder(*folder ? folder : "/", why);
  free(folder);
  if (!fine) return 0;
  const int file = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (file < 0 || fstat(file, &facts)) {
    reason_set(why, "the library %s cannot be opened: %s", path, strerror(errno));
    if (file >= 0) close(file);
    return 0;
  }
  fine = safe_mode(path, &facts, why);
  if (fine && !S_ISREG(facts.st_mode)) fine = 0, reason_set(why, "the library %s is not a plain file", path);
  if (fine && !(fine = digest_of(ep, path, file, &facts, hex))) reason_set(why, "%s cannot be read", path);
  if (fine && strcmp(hex, digest)) {
    fine = 0;
    reason_set(why, "the library %s was altered: its SHA-256 is %.16s..., not %.16s...", path, hex, digest);
  }
  close(file);
  return fine;
}
