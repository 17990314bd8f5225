/* What the provider claims of a graph: all of it, or nothing.
 *
 * Input:     the main graph of a session, as its basic optimizations left it. Output: one fused node for the whole graph
 *            when a compiled form of it is there or could be made in time, or one for each EPContext node of the provider.
 * Invariant: a reason in the log for each model that is left to stock ONNX Runtime; no failure here fails the session.
 */
#define _GNU_SOURCE /* strdup */
#include <stdlib.h>
#include <string.h>

#include "provider.h"

static OrtStatus *fuse(const smelt_ep *ep, OrtEpGraphSupportInfo *info, const OrtNode *const *nodes, size_t count) {
  const OrtNodeFusionOptions options = {ORT_EP_VERSION, true};
  return ORT_EP_CALL(ep->host->ep_api, 2, fuse)(info, nodes, count, &options);
}

/* Claims each EPContext node of ours; gives how many there are. */
static OrtStatus *claim_contexts(smelt_ep *ep, OrtEpGraphSupportInfo *info, const OrtNode *const *nodes, size_t count,
                                 size_t *claimed) {
  OrtStatus *status = NULL;
  *claimed = 0;
  for (size_t i = 0; !status && i < count; i++) {
    if (!context_is_ours(ep, nodes[i])) continue;
    status = fuse(ep, info, &nodes[i], 1);
    *claimed += 1;
  }
  return status;
}

static int trusted(smelt_ep *ep, reason *why) {
  if (store_trusted(ep, ep->path, ep->digest, why)) return 1;
  free(ep->path);
  ep->path = NULL;
  return 0;
}

/* Sets the path of the bundle of this graph, from the cache or by compiling. */
static int find_or_compile(smelt_ep *ep, const graph_proto *graph, reason *why) {
  free(ep->path);
  ep->path = NULL;
  store_key(ep, graph, ep->key);
  if (store_find(ep, ep->key, &ep->path, ep->digest)) return trusted(ep, why);
  if (store_failure(ep, ep->key, why)) return 0;
  if (ep->set.compile == COMPILE_NEVER) {
    reason_set(why, "it is not in the cache %s, and compiling is switched off", ep->set.cache);
    return 0;
  }
  ep_log(ep, ORT_LOG_INFO, "compiling %zu bytes of weights as %.12s", (size_t)graph->data_bytes, ep->key);
  if (!compiler_run(ep, ep->key, graph, why)) return 0;
  return store_find(ep, ep->key, &ep->path, ep->digest) && trusted(ep, why);
}

static OrtStatus *claim_all(smelt_ep *ep, const OrtGraph *graph, OrtEpGraphSupportInfo *info,
                            const OrtNode *const *nodes, size_t count) {
  graph_proto proto = {0};
  reason why = {"", 0};
  int fine = graph_to_proto(ep->host, graph, &proto, &why);
  /* Who forbids compiling is told by ONNX Runtime that the model needs it. */
  if (fine && !ep->set.never_compile) fine = find_or_compile(ep, &proto, &why);
  graph_proto_free(&proto);
  if (fine) return fuse(ep, info, nodes, count);
  if (why.passing) ep_log(ep, ORT_LOG_INFO, "this graph is left to stock ONNX Runtime: %s", why.text);
  else ep_log(ep, ORT_LOG_WARNING, "this model runs on stock ONNX Runtime: %s", why.text);
  return NULL;
}

OrtStatus *ep_capability(OrtEp *self, const OrtGraph *graph, OrtEpGraphSupportInfo *info) {
  smelt_ep *ep = (smelt_ep *)self;
  reason why = {"", 0};
  size_t count = 0, contexts = 0;
  OrtStatus *status = NULL;
  if (ep_is_nested() || graph_is_nested(ep->host, graph, &why)) return NULL; /* a nested graph goes with its node */
  const OrtNode **nodes = (const OrtNode **)graph_list(ep->host, graph, 344, 345, &count, &why);
  if (!nodes) return reason_status(ep->host, &why);
  if (count) status = claim_contexts(ep, info, nodes, count, &contexts);
  if (count && !status && !contexts) status = claim_all(ep, graph, info, nodes, count);
  free(nodes);
  return status;
}

/* Compile */

static const char **names_of(const ort_host *host, const OrtNode *node, int count_slot, size_t *count, reason *why) {
  const void **values = graph_list(host, node, count_slot, count_slot + 1, count, why);
  for (size_t i = 0; values && i < *count; i++) values[i] = value_name(host, (const OrtValueInfo *)values[i]);
  return (const char **)values;
}

static node_run *fused_run(smelt_ep *ep, const OrtNode *fused, reason *why) {
  size_t n_in = 0, n_out = 0;
  const char **inputs = names_of(ep->host, fused, 353, &n_in, why);
  const char **outputs = names_of(ep->host, fused, 355, &n_out, why);
  node_run *run = NULL;
  if (!ep->path) reason_set(why, "the graph to compile is not the one that was claimed");
  else if (inputs && outputs) run = node_run_create(ep, ep->path, inputs, n_in, outputs, n_out);
  free(inputs);
  free(outputs);
  return run;
}

static int is_context(smelt_ep *ep, const OrtGraph *graph) {
  size_t count = 0;
  reason why;
  const void **nodes = graph_list(ep->host, graph, 344, 345, &count, &why);
  const int ours = nodes && count == 1 && context_is_ours(ep, (const OrtNode *)nodes[0]);
  free(nodes);
  return ours;
}

static OrtStatus *compile_one(smelt_ep *ep, const OrtGraph *graph, const OrtNode *fused, OrtNodeComputeInfo **info,
                              OrtNode **context_node) {
  reason why = {"", 0};
  const int context = is_context(ep, graph);
  node_run *run = context ? context_read(ep, graph, &why) : fused_run(ep, fused, &why);
  if (!run) return reason_status(ep->host, &why);
  *info = node_run_info(run);
  /* What only writes a compiled model never runs it: its session is opened when somebody does. */
  if (ep->set.context_enable && !context) return context_write(ep, graph, fused, context_node);
  return node_run_open(run, &why) ? NULL : reason_status(ep->host, &why);
}

OrtStatus *ep_compile(OrtEp *self, const OrtGraph **graphs, const OrtNode **fused, size_t count,
                      OrtNodeComputeInfo **infos, OrtNode **context_nodes) {
  OrtStatus *status = NULL;
  for (size_t i = 0; !status && i < count; i++)
    status = compile_one((smelt_ep *)self, graphs[i], fused[i], &infos[i], &context_nodes[i]);
  return status;
}

void ep_release_infos(OrtEp *self, OrtNodeComputeInfo **infos, size_t count) {
  (void)self;
  for (size_t i = 0; i < count; i++) node_run_free(infos[i]);
}
