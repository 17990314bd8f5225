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
