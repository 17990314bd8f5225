/* Compiled models: one .onnx with an EPContext node, and the bundle beside it or in it.
 *
 * Input:     a claimed graph and its bundle, or an EPContext node. Output: an EPContext node, or what runs it.
 * Invariant: the node has the SHA-256 of the library. A library beside the model lies in the model's folder or below it,
 *            and is checked as one of the cache is; one that lies in the model is written to the cache first. The node's
 *            inputs and outputs are those of the compiled model by position: renaming values changes nothing.
 *
 * Attributes: source is the provider's name, embed_mode and ep_cache_context as the operator defines them (0: a path, 1:
 * the library's bytes), notes is lines of text: "smelt 1", "sha256 <digest>", "file <name>", "in <name>" and "out <name>"
 * for each input and output.
 */
#define _GNU_SOURCE /* asprintf */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "provider.h"

#define MOST_EMBEDDED ((off_t)2000 << 20) /* protobuf's limit is 2 GB for the whole model */

/* Attributes */

static char *text_attribute(const smelt_ep *ep, const OrtNode *node, const char *name, size_t *bytes) {
  const OrtApi *api = ep->host->api;
  const OrtOpAttr *attribute = NULL;
  char nothing[1];
  OrtStatus *status = ORT_CALL(api, 361, attribute)(node, name, &attribute);
  *bytes = 0;
  if (status) return ORT_CALL(api, 93, release_status)(status), NULL;
  if (!attribute) return NULL;
  status = ORT_CALL(api, 272, read_attribute)(attribute, ORT_ATTR_STRING, nothing, 0, bytes);
  if (status) ORT_CALL(api, 93, release_status)(status); /* told the size */
  char *text = calloc(1, *bytes + 1);
  status = text ? ORT_CALL(api, 272, read_attribute)(attribute, ORT_ATTR_STRING, text, *bytes, bytes) : NULL;
  if (!status) return text;
  ORT_CALL(api, 93, release_status)(status);
  return free(text), NULL;
}

static int64_t int_attribute(const smelt_ep *ep, const OrtNode *node, const char *name, int64_t otherwise) {
  const OrtApi *api = ep->host->api;
  const OrtOpAttr *attribute = NULL;
  int64_t number = otherwise;
  size_t bytes = 0;
  OrtStatus *status = ORT_CALL(api, 361, attribute)(node, name, &attribute);
  if (!status && attribute)
    status = ORT_CALL(api, 272, read_attribute)(attribute, ORT_ATTR_INT, &number, sizeof number, &bytes);
  if (status) ORT_CALL(api, 93, release_status)(status);
  return number;
}

int context_is_ours(const smelt_ep *ep, const OrtNode *node) {
  size_t bytes;
  if (strcmp(node_text(ep->host, node, 350), "EPContext")) return 0;
  char *source = text_attribute(ep, node, "source", &bytes);
  const int ours = source && !strcmp(source, SMELT_EP_NAME);
  free(source);
  return ours;
}

/* Notes */

/* A name on a line of its own: control characters and % as %XX. */
static void add_name(buffer *to, const char *what, const char *name) {
  buffer_format(to, "%s ", what);
  for (const char *at = name; *at; at++) {
    if ((unsigned char)*at < 32 || *at == '%') buffer_format(to, "%%%02X", (unsigned char)*at);
    else buffer_add(to, at, 1);
  }
  buffer_text(to, "\n");
}

static void unescape(char *text) {
  char *to = text;
  for (const char *from = text; *from; from++) {
    unsigned code;
    if (*from == '%' && sscanf(from + 1, "%2X", &code) == 1) *to++ = (char)code, from += 2;
    else *to++ = *from;
  }
  *to = 0;
}

/* The lines of `text` that begin with `what`, cut in place; how many there are. */
static size_t lines(char *text, const char *what, char **found, size_t room) {
  size_t count = 0;
  const size_t length = strlen(what);
  for (char *line = text; line && *line;) {
    char *end = strchr(line, '\n');
    if (!strncmp(line, what, length) && line[length] == ' ') {
      if (count < room) found[count] = line + length + 1;
      count++;
    }
    line = end ? end + 1 : NULL;
  }
  return count;
}

/* Writing */

/* Where the compiled model will lie: ep.context_file_path, or beside the model. To be freed. */
static char *model_path(const smelt_ep *ep, const OrtGraph *graph, int writing) {
  const char *path = NULL;
  OrtStatus *status = ORT_CALL(ep->host->api, 334, model_path)(graph, &path);
  if (status) ORT_CALL(ep->host->api, 93, release_status)(status), path = NULL;
  const char *named = ep->set.context_path && *ep->set.context_path ? ep->set.context_path : NULL;
  const char *chosen = writing || !path || !*path ? (named ? named : path) : path;
  return chosen && *chosen ? strdup(chosen) : NULL;
}

static char *beside(const char *model, const char *file) {
  const char *slash = strrchr(model, '/');
  char *path = NULL;
  const int folder = slash ? (int)(slash - model) + 1 : 0;
  return asprintf(&path, "%.*s%s", folder, model, file) < 0 ? NULL : path;
}

static int copy_all(int from, int to) {
  enum { PIECE = 1 << 20 };
  char *piece = malloc(PIECE);
  ssize_t got = piece ? 1 : -1;
  while (got > 0 && (got = read(from, piece, PIECE)) > 0)
    for (ssize_t done = 0, wrote; done < got; done += wrote)
      if ((wrote = write(to, piece + done, (size_t)(got - done))) <= 0) return free(piece), 0;
  free(piece);
  return got == 0;
}

/* Copies beside the target, then renames: what is there is whole. */
static int copy_file(const char *from, const char *to, reason *why) {
  char *aside = NULL;
  if (asprintf(&aside, "%s.%d", to, (int)getpid()) < 0) return 0;
  const int source = open(from, O_RDONLY | O_CLOEXEC);
  const int target = source < 0 ? -1 : open(aside, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  int fine = target >= 0 && copy_all(source, target);
  fine = (target < 0 || !close(target)) && fine && !rename(aside, to);
  if (!fine) {
    reason_set(why, "the library %s cannot be written: %s", to, strerror(errno));
    unlink(aside);
  }
  if (source >= 0) close(source);
  free(aside);
  return fine;
}

static char *read_whole(const char *path, size_t *bytes, reason *why) {
  struct stat facts;
  const int file = open(path, O_RDONLY | O_CLOEXEC);
  char *data = NULL;
  if (file >= 0 && !fstat(file, &facts) && facts.st_size <= MOST_EMBEDDED && (data = malloc((size_t)facts.st_size + 1))) {
    for (*bytes = 0; *bytes < (size_t)facts.st_size;) {
      const ssize_t got = read(file, data + *bytes, (size_t)facts.st_size - *bytes);
      if (got <= 0) break;
      *bytes += (size_t)got;
    }
  }
  if (file >= 0) close(file);
  if (data && *bytes == (size_t)facts.st_size) return data;
  reason_set(why, "%s is too large to lie in a model; use ep.context_embed_mode=0", path);
  return free(data), NULL;
}

/* What ep_cache_context holds. To be freed. */
static char *context_content(smelt_ep *ep, const OrtGraph *graph, size_t *bytes, reason *why) {
  const char *file = strrchr(ep->path, '/') + 1;
  if (ep->set.context_embed) return read_whole(ep->path, bytes, why);
  char *model = model_path(ep, graph, 1), *target = model ? beside(model, file) : NULL;
  int fine = target != NULL;
  if (!fine) reason_set(why, "the compiled model has no path: set ep.context_file_path, or ep.context_embed_mode=1");
  fine = fine && copy_file(ep->path, target, why);
  free(model);
  free(target);
  *bytes = strlen(file);
  return fine ? strdup(file) : NULL;
}

static OrtStatus *attribute(const OrtApi *api, const char *name, int type, const void *data, size_t bytes,
                            OrtOpAttr **out) {
  return ORT_CALL(api, 211, create_attribute)(name, data, (int)bytes, type, out);
}

static OrtStatus *create_attributes(const smelt_ep *ep, const char *content, size_t bytes, const buffer *notes,
                                    OrtOpAttr *out[6]) {
  const OrtApi *api = ep->host->api;
  const int64_t one = 1, embed = ep->set.context_embed;
  OrtStatus *status = attribute(api, "ep_cache_context", ORT_ATTR_STRING, content, bytes, &out[0]);
  if (!status) status = attribute(api, "embed_mode", ORT_ATTR_INT, &embed, 1, &out[1]);
  if (!status) status = attribute(api, "main_context", ORT_ATTR_INT, &one, 1, &out[2]);
  if (!status) status = attribute(api, "source", ORT_ATTR_STRING, SMELT_EP_NAME, strlen(SMELT_EP_NAME), &out[3]);
  if (!status) status = attribute(api, "notes", ORT_ATTR_STRING, notes->data, notes->used, &out[4]);
  if (!status)
    status = attribute(api, "ep_sdk_version", ORT_ATTR_STRING, SMELT_EP_RELEASE, strlen(SMELT_EP_RELEASE), &out[5]);
  return status;
}

static OrtStatus *create_node(smelt_ep *ep, const OrtNode *fused, const char *content, size_t bytes, reason *why,
                              OrtNode **out) {
  const ort_host *host = ep->host;
  size_t n_in = 0, n_out = 0;
  const void **inputs = graph_list(host, fused, 353, 354, &n_in, why);
  const void **outputs = graph_list(host, fused, 355, 356, &n_out, why);
  OrtOpAttr *attributes[6] = {NULL};
  buffer notes = {0};
  const char *file = strrchr(ep->path, '/') + 1;
  buffer_format(&notes, "smelt 1\nsha256 %s\nfile %s\n", ep->digest, file);
  for (size_t i = 0; inputs && i < n_in; i++)
    add_name(&notes, "in", inputs[i] = value_name(host, (const OrtValueInfo *)inputs[i]));
  for (size_t i = 0; outputs && i < n_out; i++)
    add_name(&notes, "out", outputs[i] = value_name(host, (const OrtValueInfo *)outputs[i]));
  OrtStatus *status = inputs && outputs ? create_attributes(ep, content, bytes, &notes, attributes)
                                        : reason_status(host, why);
  const OrtModelEditorApi *editor = ORT_CALL(host->api, 291, editor_api)();
  if (!status) /* takes the attributes over */
    status = ORT_EDITOR_CALL(editor, 6, create_node)("EPContext", "com.microsoft", node_text(host, fused, 349),
                                                    (const char *const *)inputs, n_in, (const char *const *)outputs,
                                                    n_out, attributes, 6, out);
  for (int i = 0; i < 6; i++)
    if (attributes[i]) ORT_CALL(host->api, 212, release_attribute)(attributes[i]);
  free(inputs);
  free(outputs);
  buffer_free(&notes);
  return status;
}

OrtStatus *context_write(smelt_ep *ep, const OrtGraph *graph, const OrtNode *fused, OrtNode **out) {
  reason why = {"", 0};
  size_t bytes = 0;
  char *content = context_content(ep, graph, &bytes, &why);
  if (!content) return reason_status(ep->host, &why);
  OrtStatus *status = create_node(ep, fused, content, bytes, &why, out);
  free(content);
  return status;
}

/* Reading */

static int is_below(const char *path) {
  if (!*path || *path == '/') return 0;
  for (const char *part = path; part; part = strchr(part, '/') ? strchr(part, '/') + 1 : NULL)
    if (!strncmp(part, "..", 2) && (!part[2] || part[2] == '/')) return 0;
  return 1;
}

static char *beside_model(const smelt_ep *ep, const OrtGraph *graph, const char *content, reason *why) {
  char *model = model_path(ep, graph, 0), *path = NULL, *found = NULL;
  if (!model) reason_set(why, "the model comes from memory: ep.context_file_path must say where its library lies");
  else if (!is_below(content)) reason_set(why, "the library '%s' does not lie in the model's folder", content);
  else if ((path = beside(model, content)) && !(found = realpath(path, NULL)))
    reason_set(why, "the library of this compiled model is missing: %s", path);
  free(model);
  free(path);
  return found;
}

static int write_embedded(const char *path, const char *content, size_t bytes, reason *why) {
  char *aside = NULL;
  if (asprintf(&aside, "%s.%d", path, (int)getpid()) < 0) return 0;
  const int file = open(aside, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  int fine = file >= 0;
  for (size_t done = 0; fine && done < bytes;) {
    const ssize_t wrote = write(file, content + done, bytes - done);
    fine = wrote > 0;
    done += fine ? (size_t)wrote : 0;
  }
  fine = file >= 0 && !close(file) && fine && !rename(aside, path);
  if (!fine) reason_set(why, "the library cannot be written to %s: %s", path, strerror(errno)), unlink(aside);
  free(aside);
  return fine;
}

/* A library that lies in the model: code is loaded from a file, so it goes to the cache, by its digest. */
static char *in_cache(const smelt_ep *ep, const char *digest, const char *file, const char *content, size_t bytes,
                      reason *why) {
  char hex[SHA256_HEX];
  sha256 hash;
  sha256_start(&hash);
  sha256_add(&hash, content, bytes);
  sha256_hex(&hash, hex);
  if (strcmp(hex, digest)) return reason_set(why, "the library in this compiled model was altered"), NULL;
  char *folder = store_path(ep, "session/%s/embedded", hex), *path = store_path(ep, "session/%s/embedded/%s", hex, file);
  int fine = folder && path && store_folder(folder, why);
  if (fine && access(path, R_OK)) fine = write_embedded(path, content, bytes, why);
  free(folder);
  if (fine) return path;
  return free(path), NULL;
}

static node_run *run_of_notes(smelt_ep *ep, const OrtNode *node, char *notes, const char *path, reason *why) {
  size_t n_in = 0, n_out = 0, told_in = lines(notes, "in", NULL, 0), told_out = lines(notes, "out", NULL, 0);
  char **names = calloc(told_in + told_out + 1, sizeof *names);
  node_run *run = NULL;
  if (!names || !reason_ok(ep->host, why, ((ort_count)ep->host->api->slot[353])(node, &n_in)) ||
      !reason_ok(ep->host, why, ((ort_count)ep->host->api->slot[355])(node, &n_out)))
    return free(names), NULL;
  lines(notes, "in", names, told_in);
  lines(notes, "out", names + told_in, told_out);
  for (char *end = notes; (end = strchr(end, '\n'));) *end++ = 0;
  for (size_t i = 0; i < told_in + told_out; i++) unescape(names[i]);
  if (n_in != told_in || n_out != told_out)
    reason_set(why, "the EPContext node has %zu inputs and %zu outputs, not %zu and %zu", n_in, n_out, told_in, told_out);
  else
    run = node_run_create(ep, path, (const char *const *)names, n_in, (const char *const *)names + n_in, n_out);
  free(names);
  return run;
}

/* The digest and the file name that the notes tell. */
static int read_notes(char *notes, char digest[SHA256_HEX], char file[128], reason *why) {
  char *found = NULL;
  if (notes && !strncmp(notes, "smelt 1\n", 8) && lines(notes, "sha256", &found, 1) == 1 && strlen(found) > 64) {
    memcpy(digest, found, 64);
    digest[64] = 0;
    if (lines(notes, "file", &found, 1) == 1 && strcspn(found, "\n") < 128) {
      snprintf(file, 128, "%.*s", (int)strcspn(found, "\n"), found);
      if (!strchr(file, '/') && is_below(file)) return 1;
    }
  }
  reason_set(why, "the EPContext node was not written by this provider");
  return 0;
}

node_run *context_read(smelt_ep *ep, const OrtGraph *graph, reason *why) {
  size_t count = 0, bytes = 0, note_bytes = 0;
  char digest[SHA256_HEX], file[128], *path = NULL;
  const void **nodes = graph_list(ep->host, graph, 344, 345, &count, why);
  if (!nodes) return NULL;
  const OrtNode *node = (const OrtNode *)nodes[0];
  free(nodes);
  char *content = text_attribute(ep, node, "ep_cache_context", &bytes);
  char *notes = text_attribute(ep, node, "notes", &note_bytes);
  node_run *run = NULL;
  if (content && read_notes(notes, digest, file, why)) {
    path = int_attribute(ep, node, "embed_mode", 1) ? in_cache(ep, digest, file, content, bytes, why)
                                                    : beside_model(ep, graph, content, why);
    if (path && store_trusted(ep, path, digest, why)) run = run_of_notes(ep, node, notes, path, why);
  }
  if (!run && !*why->text) reason_set(why, "the EPContext node cannot be read");
  free(content);
  free(notes);
  free(path);
  return run;
}
