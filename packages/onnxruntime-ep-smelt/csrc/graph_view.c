#include <stdlib.h>

#include "provider.h"

const void **graph_list(const ort_host *host, const void *owner, int count_slot, int list_slot, size_t *count,
                        reason *why) {
  *count = 0;
  if (!reason_ok(host, why, ((ort_count)host->api->slot[count_slot])(owner, count))) return NULL;
  const void **list = calloc(*count + 1, sizeof *list);
  if (!list) reason_set(why, "out of memory");
  if (list && (!*count || reason_ok(host, why, ((ort_list)host->api->slot[list_slot])(owner, list, *count))))
    return list;
  free(list);
  *count = 0;
  return NULL;
}

const char *value_name(const ort_host *host, const OrtValueInfo *value) {
  const char *name = "";
  OrtStatus *status = value ? ORT_CALL(host->api, 289, value_name)(value, &name) : NULL;
  if (status) ORT_CALL(host->api, 93, release_status)(status);
  return name ? name : "";
}

/* A node's name, op or domain: slots 349 to 351 have one form; also 368, the provider that has the node. */
const char *node_text(const ort_host *host, const OrtNode *node, int slot) {
  const char *text = "";
  OrtStatus *status = ((ort_349_node_name)host->api->slot[slot])(node, &text);
  if (status) ORT_CALL(host->api, 93, release_status)(status);
  return text ? text : "";
}

static int is_captured(const ort_host *host, const OrtValueInfo *value) {
  bool outer = false;
  OrtStatus *status = value ? ORT_CALL(host->api, 332, from_outer_scope)(value, &outer) : NULL;
  if (status) ORT_CALL(host->api, 93, release_status)(status);
  return outer;
}

static int captures(const ort_host *host, const OrtNode *node, reason *why) {
  int found = 0;
  for (int slot = 353; slot <= 357 && !found; slot += 4) { /* inputs, and those of nested graphs */
    size_t count = 0;
    const void **values = graph_list(host, node, slot, slot + 1, &count, why);
    for (size_t i = 0; values && !found && i < count; i++) found = is_captured(host, (const OrtValueInfo *)values[i]);
    free(values);
  }
  return found;
}

/* Whether the graph is the body of a node. Releases before 1.24 do not tell the node, so a value of an outer graph tells
 * it; a body that reads none is as good as a graph of its own. */
int graph_is_nested(const ort_host *host, const OrtGraph *graph, reason *why) {
  const OrtNode *parent = NULL;
  size_t count = 0;
  if (!reason_ok(host, why, ORT_CALL(host->api, 346, parent)(graph, &parent)) || parent) return 1;
  const void **nodes = graph_list(host, graph, 344, 345, &count, why);
  int nested = 0;
  for (size_t i = 0; nodes && !nested && i < count; i++) nested = captures(host, (const OrtNode *)nodes[i], why);
  free(nodes);
  return nested;
}
