/* The fused node: runs a bundle's session over the node's own inputs and outputs.
 *
 * Input:     a bundle, and which of the session's inputs and outputs each of the node's is. Output: an OrtNodeComputeInfo.
 * Invariant: inputs are handed on, not copied. Where the shapes of outputs follow from those of inputs, a call with the
 *            input shapes of an earlier one writes its outputs in place; otherwise they are copied.
 */
#define _GNU_SOURCE /* strdup */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "provider.h"

#define REMEMBERED 8 /* calls whose shapes are kept */
#define MOST_SIZES 512 /* sizes of all inputs, and of all outputs, of such a call */

typedef struct {
  int n_in, n_out;
  int64_t in[MOST_SIZES], out[MOST_SIZES]; /* each tensor's rank, then its sizes */
} shapes;

struct node_run {
  OrtNodeComputeInfo info; /* first: ONNX Runtime hands back a pointer to it */
  smelt_ep *ep;
  char *path;
  bundle open;
  char **in_names, **out_names;
  size_t n_in, n_out;
  pthread_mutex_t lock;
  int next;
  shapes *seen[REMEMBERED];
};

static OrtStatus *fail(const node_run *run, const char *text) {
  reason why;
  reason_set(&why, "%s", text);
  return reason_status(run->ep->host, &why);
}

/* Shapes */

static OrtStatus *dims_of(const OrtApi *api, const OrtValue *value, int64_t *dims, size_t room, size_t *rank) {
  OrtShape *shape = NULL;
  OrtStatus *status = ORT_CALL(api, 65, shape)(value, &shape);
  if (status) return status;
  status = ORT_CALL(api, 61, rank)(shape, rank);
  if (!status && *rank && *rank <= room) status = ORT_CALL(api, 62, dims)(shape, dims, *rank);
  ORT_CALL(api, 99, release_shape)(shape);
  if (!status && *rank > room) status = ORT_CALL(api, 0, create_status)(ORT_CODE_FAIL, "smelt: too many dimensions");
  return status;
}

/* The shapes of all values, or -1 where they are too many to keep. */
static int shapes_of(const OrtApi *api, const OrtValue *const *values, size_t count, int64_t sizes[MOST_SIZES]) {
  int used = 0;
  for (size_t i = 0; i < count; i++) {
    size_t rank = 0;
    if (used + 1 >= MOST_SIZES) return -1;
    OrtStatus *status = dims_of(api, values[i], sizes + used + 1, (size_t)(MOST_SIZES - used - 1), &rank);
    if (status) return ORT_CALL(api, 93, release_status)(status), -1;
    sizes[used] = (int64_t)rank;
    used += 1 + (int)rank;
  }
  return used;
}

static int recall(node_run *run, const shapes *now, shapes *found) {
  int hit = 0;
  pthread_mutex_lock(&run->lock);
  for (int i = 0; !hit && i < REMEMBERED; i++) {
    const shapes *seen = run->seen[i];
    hit = seen && seen->n_in == now->n_in && !memcmp(seen->in, now->in, (size_t)now->n_in * sizeof *now->in);
    if (!hit) continue;
    found->n_out = seen->n_out;
    memcpy(found->out, seen->out, (size_t)seen->n_out * sizeof *seen->out);
  }
  pthread_mutex_unlock(&run->lock);
  return hit;
}

static void remember(node_run *run, const shapes *now) {
  shapes *copy = malloc(sizeof *copy);
  if (!copy) return;
  *copy = *now;
  pthread_mutex_lock(&run->lock);
  free(run->seen[run->next]);
  run->seen[run->next] = copy;
  run->next = (run->next + 1) % REMEMBERED;
  pthread_mutex_unlock(&run->lock);
}

/* Runs */

static OrtStatus *run_session(node_run *run, const OrtValue *const *inputs, OrtValue **outputs) {
  return ORT_CALL(run->ep->host->api, 9, run)(run->open.session, NULL, (const char *const *)run->in_names, inputs,
                                              run->n_in, (const char *const *)run->out_names, run->n_out, outputs);
}

/* Into the node's own outputs. */
static OrtStatus *run_in_place(node_run *run, OrtKernelContext *context, const OrtValue *const *inputs, const shapes *told) {
  const OrtApi *api = run->ep->host->api;
  OrtValue *outputs[run->n_out];
  OrtStatus *status = NULL;
  const int64_t *next = told->out;
  for (size_t i = 0; !status && i < run->n_out; i++, next += 1 + *next)
    status = ORT_CALL(api, 91, output)(context, i, next + 1, (size_t)*next, &outputs[i]);
  return status ? status : run_session(run, inputs, outputs);
}

static OrtStatus *copy_output(node_run *run, OrtKernelContext *context, size_t index, const OrtValue *from) {
  const OrtApi *api = run->ep->host->api;
  int64_t dims[64];
  size_t rank = 0, bytes = 0, room = 0;
  OrtValue *to = NULL;
  const void *source = NULL;
  void *target = NULL;
  OrtStatus *status = dims_of(api, from, dims, 64, &rank);
  if (!status) status = ORT_CALL(api, 91, output)(context, index, dims, rank, &to);
  if (!status && !to) return NULL; /* nobody reads it */
  if (!status) status = ORT_CALL(api, 318, tensor_bytes)(from, &bytes);
  if (!status) status = ORT_CALL(api, 318, tensor_bytes)(to, &room);
  if (!status) status = ORT_CALL(api, 378, const_data)(from, &source);
  if (!status) status = ORT_CALL(api, 51, tensor_data)(to, &target);
  if (status) return status;
  if (bytes != room) return fail(run, "an output has another type than it was compiled for");
  if (bytes) memcpy(target, source, bytes);
  return NULL;
}

static OrtStatus *run_and_copy(node_run *run, OrtKernelContext *context, const OrtValue *const *inputs, shapes *now) {
  const OrtApi *api = run->ep->host->api;
  OrtValue *outputs[run->n_out];
  memset(outputs, 0, sizeof outputs);
  OrtStatus *status = run_session(run, inputs, outputs);
  for (size_t i = 0; !status && i < run->n_out; i++) status = copy_output(run, context, i, outputs[i]);
  if (!status && run->open.shapes_follow && now->n_in >= 0) {
    now->n_out = shapes_of(api, (const OrtValue *const *)outputs, run->n_out, now->out);
    if (now->n_out >= 0) remember(run, now);
  }
  for (size_t i = 0; i < run->n_out; i++)
    if (outputs[i]) ORT_CALL(api, 96, release_value)(outputs[i]);
  return status;
}

static OrtStatus *compute(OrtNodeComputeInfo *info, void *state, OrtKernelContext *context) {
  node_run *run = (node_run *)info;
  const OrtApi *api = run->ep->host->api;
  const OrtValue *inputs[run->n_in + 1];
  shapes now, told;
  reason why = {"", 0};
  (void)state;
  if (!node_run_open(run, &why)) return reason_status(run->ep->host, &why);
  for (size_t i = 0; i < run->n_in; i++) {
    OrtStatus *status = ORT_CALL(api, 90, input)(context, i, &inputs[i]);
    if (status) return status;
    if (!inputs[i]) return fail(run, "an input is missing");
  }
  now.n_in = run->open.shapes_follow ? shapes_of(api, inputs, run->n_in, now.in) : -1;
  if (now.n_in >= 0 && recall(run, &now, &told)) return run_in_place(run, context, inputs, &told);
  return run_and_copy(run, context, inputs, &now);
}

static OrtStatus *create_state(OrtNodeComputeInfo *info, OrtNodeComputeContext *context, void **state) {
  (void)context;
  *state = info;
  return NULL;
}

static void release_state(OrtNodeComputeInfo *info, void *state) { (void)info, (void)state; }

/* Lives */

static char **copy_names(const char *const *names, size_t count) {
  char **copies = calloc(count + 1, sizeof *copies);
  for (size_t i = 0; copies && i < count; i++) copies[i] = strdup(names[i]);
  return copies;
}

node_run *node_run_create(smelt_ep *ep, const char *path, const char *const *inputs, size_t n_inputs,
                          const char *const *outputs, size_t n_outputs) {
  node_run *run = calloc(1, sizeof *run);
  if (!run) return NULL;
  run->info = (OrtNodeComputeInfo){ORT_EP_VERSION, create_state, compute, release_state};
  run->ep = ep, run->n_in = n_inputs, run->n_out = n_outputs;
  pthread_mutex_init(&run->lock, NULL);
  run->path = strdup(path);
  run->in_names = copy_names(inputs, n_inputs);
  run->out_names = copy_names(outputs, n_outputs);
  if (run->path && run->in_names && run->out_names) return run;
  return node_run_free(&run->info), NULL;
}

int node_run_open(node_run *run, reason *why) {
  if (__atomic_load_n(&run->open.session, __ATOMIC_ACQUIRE)) return 1;
  bundle made = {NULL, NULL, 0};
  pthread_mutex_lock(&run->lock);
  int fine = run->open.session || bundle_open(&made, run->ep, run->path, why);
  if (fine && made.session) {
    run->open.env = made.env, run->open.shapes_follow = made.shapes_follow;
    __atomic_store_n(&run->open.session, made.session, __ATOMIC_RELEASE);
  }
  pthread_mutex_unlock(&run->lock);
  return fine;
}

OrtNodeComputeInfo *node_run_info(node_run *run) { return &run->info; }

void node_run_free(OrtNodeComputeInfo *info) {
  node_run *run = (node_run *)info;
  if (!run) return;
  bundle_close(&run->open, run->ep->host);
  for (int i = 0; i < REMEMBERED; i++) free(run->seen[i]);
  for (size_t i = 0; run->in_names && i < run->n_in; i++) free(run->in_names[i]);
  for (size_t i = 0; run->out_names && i < run->n_out; i++) free(run->out_names[i]);
  free(run->in_names);
  free(run->out_names);
  free(run->path);
  pthread_mutex_destroy(&run->lock);
  free(run);
}
