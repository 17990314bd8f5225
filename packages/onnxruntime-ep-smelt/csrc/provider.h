/* What the parts of the provider share.
 *
 * The way of a model: ONNX Runtime shows its graph (capability.c), which is written as an ONNX model without its weights
 * and hashed (graph_proto.c); the key is looked up in the cache (store.c); on a miss the compiler runs in a process of
 * its own (compiler.c). What is found is a bundle: one shared library that ends with the compiled model and its packed
 * weights. The graph becomes one fused node, which runs a session over the bundle (bundle.c, compute.c). Compiled models
 * are written and read as EPContext nodes (context.c).
 *
 * Invariant: nothing here raises or ends the host's session for want of a compiler; where there is nothing to load, the
 *            provider claims nothing and says why, once. A library is loaded only after its owner, its mode and its
 *            digest were checked.
 */
#ifndef SMELT_PROVIDER_H
#define SMELT_PROVIDER_H

#include "ort_ep_abi.h"
#include "sha256.h"

#define SMELT_EP_NAME "SmeltExecutionProvider"
#define SMELT_EP_PREFIX "ep.smeltexecutionprovider."
#ifndef SMELT_EP_RELEASE
#define SMELT_EP_RELEASE "0.0.0"
#endif

/* The function tables of one copy of ONNX Runtime. */
typedef struct {
  const OrtApiBase *base;
  const OrtApi *api;
  const OrtEpApi *ep_api;
  int minor; /* 24 for 1.24 */
} ort_host;

/* A growing block of bytes. `failed` stays set once memory ran out; nothing is added then. */
typedef struct {
  char *data;
  size_t used, room;
  int failed;
} buffer;

void buffer_add(buffer *to, const void *data, size_t bytes);
void buffer_text(buffer *to, const char *text);
void buffer_format(buffer *to, const char *format, ...) __attribute__((format(printf, 2, 3)));
const char *buffer_string(buffer *from); /* NULL when memory ran out */
void buffer_free(buffer *gone);

/* Why something was not done, for the log or a status. Empty: it was. `passing`: it may not hold of the next graph that
 * is shown: ONNX Runtime shows a model with functions before and after it has inlined them. */
typedef struct {
  char text[512];
  int passing;
} reason;

void reason_set(reason *why, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Takes over a status: sets the reason and releases it. Returns whether it was a success. */
int reason_ok(const ort_host *host, reason *why, OrtStatus *status);
OrtStatus *reason_status(const ort_host *host, const reason *why);

typedef enum { COMPILE_WAIT, COMPILE_BACKGROUND, COMPILE_NEVER } compile_mode;

/* The options of one session. Strings are owned. */
typedef struct {
  char *cache, *python, *context_path;
  double limit_s;
  compile_mode compile;
  int threads;
  int context_enable, context_embed, never_compile;
} settings;

int settings_read(settings *to, const ort_host *host, const OrtSessionOptions *options, reason *why);
void settings_free(settings *gone);

typedef struct {
  OrtEp ep; /* first: ONNX Runtime hands back a pointer to it */
  const ort_host *host;
  const OrtLogger *logger;
  OrtSessionOptions *options; /* a copy of the session's */
  settings set;
  char key[SHA256_HEX];       /* of the graph that was claimed last */
  char *path;                 /* its bundle */
  char digest[SHA256_HEX];    /* the bundle's */
} smelt_ep;

void ep_log(const smelt_ep *ep, int level, const char *format, ...) __attribute__((format(printf, 3, 4)));
int ep_is_nested(void); /* whether the session under construction is the provider's own */
void ep_nested(int more);

/* capability.c, context.c: functions of OrtEp */
OrtStatus *ep_capability(OrtEp *ep, const OrtGraph *graph, OrtEpGraphSupportInfo *info);
OrtStatus *ep_compile(OrtEp *ep, const OrtGraph **graphs, const OrtNode **fused, size_t count,
                      OrtNodeComputeInfo **infos, OrtNode **context_nodes);
void ep_release_infos(OrtEp *ep, OrtNodeComputeInfo **infos, size_t count);

/* graph_view.c: lists of a graph. A list that could not be had is NULL with its count set to 0; free() it. */
const void **graph_list(const ort_host *host, const void *owner, int count_slot, int list_slot, size_t *count,
                        reason *why);
const char *value_name(const ort_host *host, const OrtValueInfo *value);
const char *node_text(const ort_host *host, const OrtNode *node, int slot);
int graph_is_nested(const ort_host *host, const OrtGraph *graph, reason *why);

/* graph_proto.c */
typedef struct {
  const void *data;
  size_t bytes;
} weight;

typedef struct {
  buffer model;    /* a ModelProto whose larger tensors lie in model.data, each at a multiple of 4096 */
  weight *weights; /* in the order of model.data */
  size_t n_weights, room;
  uint64_t data_bytes;
} graph_proto;

int graph_to_proto(const ort_host *host, const OrtGraph *graph, graph_proto *to, reason *why);
void graph_proto_free(graph_proto *gone);

/* store.c: <cache>/session/<key>/artifact/{sha256, smelt_<digest>.so} */
void store_key(const smelt_ep *ep, const graph_proto *graph, char key[SHA256_HEX]);
int store_find(const smelt_ep *ep, const char *key, char **path, char digest[SHA256_HEX]);
int store_failure(const smelt_ep *ep, const char *key, reason *why);
int store_folder(const char *path, reason *why); /* makes it and its parents; ours alone */
char *store_path(const smelt_ep *ep, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Whether the file may be loaded: a plain file of ours that nobody else can write, with that digest. */
int store_trusted(const smelt_ep *ep, const char *path, const char *digest, reason *why);

/* compiler.c */
int compiler_run(const smelt_ep *ep, const char *key, const graph_proto *graph, reason *why);

/* bundle.c: a session over a bundle */
typedef struct {
  OrtEnv *env;
  OrtSession *session;
  int shapes_follow; /* the shapes of outputs depend on nothing but those of inputs */
} bundle;

int bundle_open(bundle *to, const smelt_ep *ep, const char *path, reason *why);
void bundle_close(bundle *gone, const ort_host *host);

/* compute.c */
typedef struct node_run node_run;
node_run *node_run_create(smelt_ep *ep, const char *path, const char *const *inputs, size_t n_inputs,
                          const char *const *outputs, size_t n_outputs);
int node_run_open(node_run *run, reason *why);
OrtNodeComputeInfo *node_run_info(node_run *run);
void node_run_free(OrtNodeComputeInfo *info);

/* context.c */
int context_is_ours(const smelt_ep *ep, const OrtNode *node);
OrtStatus *context_write(smelt_ep *ep, const OrtGraph *graph, const OrtNode *fused, OrtNode **out);
node_run *context_read(smelt_ep *ep, const OrtGraph *graph, reason *why);

#endif
