/* A graph as ONNX Runtime shows it -> an ONNX model, in protobuf's wire format.
 *
 * Input:     a main graph. Output: a ModelProto without the larger tensors, and where their bytes are.
 * Invariant: the same graph gives the same bytes in every process: what ONNX Runtime keeps in hash tables is sorted.
 *            What cannot be written so is refused with a reason. The graph's inputs are those that some node reads and
 *            that are not constant; its outputs are those that some node makes. So has it the fused node.
 */
#define _GNU_SOURCE /* qsort_r */
#include <stdlib.h>
#include <string.h>

#include "provider.h"

#define INLINE_BYTES 1024 /* tensors up to here lie in the model itself */
#define DATA_ALIGN 4096
#define MOST_NESTING 32
#define MOST_DIMS 64
#define MOST_SUBGRAPHS 16

enum { WIRE_VARINT = 0, WIRE_BYTES = 2, WIRE_FIXED32 = 5 };

typedef struct {
  const ort_host *host;
  const OrtApi *api;
  graph_proto *to;
  reason *why;
  buffer domains; /* those of the nodes, each with its final zero */
  int depth;
} writer;

static void put_varint(buffer *to, uint64_t value) {
  uint8_t bytes[10];
  int count = 0;
  for (; value > 127; value >>= 7) bytes[count++] = (uint8_t)(value | 128);
  bytes[count++] = (uint8_t)value;
  buffer_add(to, bytes, (size_t)count);
}

static void put_int(buffer *to, int field, int64_t value) {
  put_varint(to, (uint64_t)field << 3 | WIRE_VARINT);
  put_varint(to, (uint64_t)value);
}

static void put_bytes(buffer *to, int field, const void *data, size_t bytes) {
  put_varint(to, (uint64_t)field << 3 | WIRE_BYTES);
  put_varint(to, bytes);
  buffer_add(to, data, bytes);
}

static void put_text(buffer *to, int field, const char *text) { put_bytes(to, field, text, strlen(text)); }

static void put_float(buffer *to, int field, float value) {
  put_varint(to, (uint64_t)field << 3 | WIRE_FIXED32);
  buffer_add(to, &value, sizeof value);
}

/* Appends a message and frees it. */
static void put_message(buffer *to, int field, buffer *message) {
  to->failed |= message->failed;
  put_bytes(to, field, message->data, message->used);
  buffer_free(message);
}

static int ok(writer *w, OrtStatus *status) { return reason_ok(w->host, w->why, status); }

static int refuse(writer *w, const char *what, const char *which) {
  reason_set(w->why, "%s (%s)", what, which);
  return 0;
}

/* Types */

static void put_shape(writer *w, const OrtShape *shape, buffer *tensor_type) {
  size_t rank = 0;
  buffer message = {0};
  if (!ok(w, ORT_CALL(w->api, 61, rank)(shape, &rank)) || rank > MOST_DIMS) return;
  /* Before 1.24 a scalar and a tensor of unknown rank look the same. */
  if (w->host->minor < ORT_EP_VERSION_HAS_SHAPE ? !rank : !ORT_CALL(w->api, 390, has_shape)(shape)) return;
  int64_t dims[MOST_DIMS];
  const char *names[MOST_DIMS];
  if (rank && (!ok(w, ORT_CALL(w->api, 62, dims)(shape, dims, rank)) ||
               !ok(w, ORT_CALL(w->api, 63, dim_names)(shape, names, rank))))
    return;
  for (size_t i = 0; i < rank; i++) {
    buffer dim = {0};
    if (dims[i] >= 0) put_int(&dim, 1, dims[i]);
    else if (names[i] && *names[i]) put_text(&dim, 2, names[i]);
    put_message(&message, 1, &dim);
  }
  put_message(tensor_type, 2, &message);
}

/* A ValueInfoProto. Values of nested graphs may have other types than tensors, which are left out. */
static int put_value(writer *w, buffer *to, int field, const OrtValueInfo *value, int nested) {
  const OrtTypeInfo *type = NULL;
  const OrtShape *shape = NULL;
  int kind = 0, element = 0;
  buffer message = {0}, type_proto = {0}, tensor_type = {0};
  const char *name = value_name(w->host, value);
  if (!ok(w, ORT_CALL(w->api, 290, value_type)(value, &type))) return 0;
  if (type && !ok(w, ORT_CALL(w->api, 56, kind)(type, &kind))) return 0;
  put_text(&message, 1, name);
  if (kind == ORT_TYPE_TENSOR) {
    if (!ok(w, ORT_CALL(w->api, 55, tensor_info)(type, &shape)) || !shape ||
        !ok(w, ORT_CALL(w->api, 60, element_type)(shape, &element)))
      return buffer_free(&message), 0;
    put_int(&tensor_type, 1, element);
    put_shape(w, shape, &tensor_type);
    put_message(&type_proto, 1, &tensor_type);
    put_message(&message, 2, &type_proto);
  }
  put_message(to, field, &message);
  if (nested || (kind == ORT_TYPE_TENSOR && element != ORT_ELEMENT_STRING)) return 1;
  return refuse(w, "an input or output is no tensor of numbers", name);
}

/* Tensors */

static int put_strings(writer *w, buffer *to, const OrtValue *value, size_t count) {
  size_t bytes = 0;
  if (!ok(w, ORT_CALL(w->api, 53, string_bytes)(value, &bytes))) return 0;
  char *text = malloc(bytes + 1);
  size_t *offsets = malloc((count + 1) * sizeof *offsets);
  int fine = text && offsets && (!count || ok(w, ORT_CALL(w->api, 54, strings)(value, text, bytes, offsets, count)));
  if (fine) offsets[count] = bytes;
  for (size_t i = 0; fine && i < count; i++) put_bytes(to, 6, text + offsets[i], offsets[i + 1] - offsets[i]);
  free(text);
  free(offsets);
  return fine;
}

static void put_external(buffer *to, const char *key, uint64_t number, const char *text) {
  buffer entry = {0}, value = {0};
  if (text) buffer_text(&value, text);
  else buffer_format(&value, "%llu", (unsigned long long)number);
  put_text(&entry, 1, key);
  put_message(&entry, 2, &value);
  put_message(to, 13, &entry);
}

static int put_apart(writer *w, buffer *to, const void *data, size_t bytes) {
  graph_proto *all = w->to;
  if (all->n_weights == all->room) {
    const size_t room = all->room * 2 + 64;
    weight *grown = realloc(all->weights, room * sizeof *grown);
    if (!grown) return refuse(w, "out of memory", "weights");
    all->weights = grown, all->room = room;
  }
  all->weights[all->n_weights++] = (weight){data, bytes};
  put_external(to, "location", 0, "model.data");
  put_external(to, "offset", all->data_bytes, NULL);
  put_external(to, "length", bytes, NULL);
  put_int(to, 14, 1);
  all->data_bytes += (bytes + DATA_ALIGN - 1) / DATA_ALIGN * DATA_ALIGN;
  return 1;
}

static int put_content(writer *w, buffer *to, const OrtValue *value, int may_be_apart) {
  const void *data = NULL;
  size_t bytes = 0;
  if (!ok(w, ORT_CALL(w->api, 318, tensor_bytes)(value, &bytes)) ||
      !ok(w, ORT_CALL(w->api, 378, const_data)(value, &data)))
    return 0;
  if (bytes > INLINE_BYTES && may_be_apart) return put_apart(w, to, data, bytes);
  put_bytes(to, 9, data, bytes);
  return 1;
}

/* A TensorProto. The bytes of attributes live only while they are written: they lie in the model. */
static int put_tensor(writer *w, buffer *to, int field, const char *name, const OrtValue *value, int may_be_apart) {
  OrtShape *shape = NULL;
  size_t rank = 0, count = 0;
  int element = 0;
  buffer message = {0};
  if (!ok(w, ORT_CALL(w->api, 65, shape)(value, &shape))) return 0;
  int fine = ok(w, ORT_CALL(w->api, 61, rank)(shape, &rank)) &&
             ok(w, ORT_CALL(w->api, 60, element_type)(shape, &element)) &&
             ok(w, ORT_CALL(w->api, 64, element_count)(shape, &count));
  int64_t dims[MOST_DIMS];
  if (rank > MOST_DIMS) fine = refuse(w, "a tensor has too many dimensions", name ? name : "");
  fine = fine && (!rank || ok(w, ORT_CALL(w->api, 62, dims)(shape, dims, rank)));
  ORT_CALL(w->api, 99, release_shape)(shape);
  for (size_t i = 0; fine && i < rank; i++) put_int(&message, 1, dims[i]);
  if (fine) put_int(&message, 2, element);
  if (fine && name) put_text(&message, 8, name);
  if (fine)
    fine = element == ORT_ELEMENT_STRING ? put_strings(w, &message, value, count)
                                         : put_content(w, &message, value, may_be_apart);
  put_message(to, field, &message);
  return fine;
}

/* Attributes */

typedef struct {
  int ort, onnx, field;
  size_t element;
} attribute_kind;

static const attribute_kind kinds[] = {{ORT_ATTR_FLOAT, 1, 2, sizeof(float)},   {ORT_ATTR_INT, 2, 3, sizeof(int64_t)},
                                       {ORT_ATTR_STRING, 3, 4, 1},              {ORT_ATTR_FLOATS, 6, 7, sizeof(float)},
                                       {ORT_ATTR_INTS, 7, 8, sizeof(int64_t)},  {ORT_ATTR_STRINGS, 8, 9, 0}};

static void put_plain(buffer *to, const attribute_kind *kind, const char *data, size_t bytes) {
  if (kind->ort == ORT_ATTR_STRING) put_bytes(to, kind->field, data, bytes);
  for (const char *at = data; kind->ort == ORT_ATTR_STRINGS && at < data + bytes; at += strlen(at) + 1)
    put_text(to, kind->field, at);
  if (kind->element < sizeof(float)) return;
  for (size_t i = 0; i + kind->element <= bytes; i += kind->element) {
    if (kind->element == sizeof(float)) {
      float number;
      memcpy(&number, data + i, sizeof number);
      put_float(to, kind->field, number);
    } else {
      int64_t number;
      memcpy(&number, data + i, sizeof number);
      put_int(to, kind->field, number);
    }
  }
}

/* The first call tells the size by failing, unless there is nothing to read. */
static int read_plain(writer *w, buffer *to, const OrtOpAttr *attribute, const attribute_kind *kind) {
  size_t bytes = 0;
  int64_t nothing[2];
  OrtStatus *status = ORT_CALL(w->api, 272, read_attribute)(attribute, kind->ort, nothing, 0, &bytes);
  if (status) ORT_CALL(w->api, 93, release_status)(status);
  char *data = calloc(1, bytes + sizeof(int64_t));
  const int fine = data && ok(w, ORT_CALL(w->api, 272, read_attribute)(attribute, kind->ort, data, bytes, &bytes));
  if (fine) put_plain(to, kind, data, bytes);
  free(data);
  return fine;
}

static int put_tensor_attribute(writer *w, buffer *to, const OrtOpAttr *attribute) {
  OrtValue *value = NULL;
  if (!ok(w, ORT_CALL(w->api, 362, tensor_attribute)(attribute, &value)) || !value) return 0;
  const int fine = put_tensor(w, to, 5, NULL, value, 0);
  ORT_CALL(w->api, 96, release_value)(value);
  put_int(to, 20, 4);
  return fine;
}

static int put_attribute(writer *w, buffer *to, const OrtOpAttr *attribute, const char *op) {
  const char *name = NULL;
  int type = 0, fine = 0;
  buffer message = {0};
  if (!ok(w, ORT_CALL(w->api, 364, attribute_name)(attribute, &name)) ||
      !ok(w, ORT_CALL(w->api, 363, attribute_type)(attribute, &type)))
    return 0;
  if (type == ORT_ATTR_GRAPH) return 1; /* with the nested graphs */
  put_text(&message, 1, name);
  if (type == ORT_ATTR_TENSOR) fine = put_tensor_attribute(w, &message, attribute);
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
    if (kinds[i].ort != type) continue;
    fine = read_plain(w, &message, attribute, &kinds[i]);
    put_int(&message, 20, kinds[i].onnx);
  }
  put_message(to, 5, &message);
  if (!fine && !*w->why->text) refuse(w, "an attribute of this type cannot be handed on", op);
  return fine;
}

static const char *attribute_name(const OrtApi *api, const void *place) {
  const char *name = "";
  OrtStatus *status = ORT_CALL(api, 364, attribute_name)(*(const OrtOpAttr *const *)place, &name);
  if (status) ORT_CALL(api, 93, release_status)(status);
  return name;
}

static int by_attribute_name(const void *a, const void *b, void *api) {
  return strcmp(attribute_name((const OrtApi *)api, a), attribute_name((const OrtApi *)api, b));
}

/* Sorted by name: ONNX Runtime keeps attributes in a hash table. */
static int put_attributes(writer *w, buffer *to, const OrtNode *node, const char *op) {
  size_t count = 0;
  const void **list = graph_list(w->host, node, 359, 360, &count, w->why);
  int fine = list != NULL;
  if (fine) qsort_r(list, count, sizeof *list, by_attribute_name, (void *)w->api);
  for (size_t i = 0; fine && i < count; i++) fine = put_attribute(w, to, (const OrtOpAttr *)list[i], op);
  free(list);
  return fine;
}

/* Nodes and graphs */

static int put_graph(writer *w, buffer *to, const OrtGraph *graph);

static int put_subgraphs(writer *w, buffer *to, const OrtNode *node) {
  size_t count = 0;
  if (!ok(w, ((ort_count)w->api->slot[365])(node, &count))) return 0;
  if (!count) return 1;
  const OrtGraph *graphs[MOST_SUBGRAPHS];
  const char *names[MOST_SUBGRAPHS];
  if (count > MOST_SUBGRAPHS) return refuse(w, "a node has too many graphs", node_text(w->host, node, 350));
  if (!ok(w, ORT_CALL(w->api, 366, subgraphs)(node, graphs, count, names))) return 0;
  for (int pass = 0; pass < (int)count; pass++) { /* few: selection by name is sorting enough */
    size_t next = count;
    for (size_t i = 0; i < count; i++)
      if (names[i] && (next == count || strcmp(names[i], names[next]) < 0)) next = i;
    buffer message = {0}, graph = {0};
    put_text(&message, 1, names[next]);
    const int fine = put_graph(w, &graph, graphs[next]);
    put_message(&message, 6, &graph);
    put_int(&message, 20, 5);
    put_message(to, 5, &message);
    if (!fine) return 0;
    names[next] = NULL;
  }
  return 1;
}

static int put_names(writer *w, buffer *to, int field, const OrtNode *node, int count_slot) {
  size_t count = 0;
  const void **list = graph_list(w->host, node, count_slot, count_slot + 1, &count, w->why);
  for (size_t i = 0; list && i < count; i++) put_text(to, field, value_name(w->host, (const OrtValueInfo *)list[i]));
  const int fine = list != NULL;
  free(list);
  return fine;
}

static int known_domain(const char *domain) {
  return !*domain || !strcmp(domain, "ai.onnx") || !strcmp(domain, "ai.onnx.ml") || !strcmp(domain, "com.microsoft");
}

static void remember_domain(writer *w, const char *domain) {
  for (size_t at = 0; at < w->domains.used; at += strlen(w->domains.data + at) + 1)
    if (!strcmp(w->domains.data + at, domain)) return;
  buffer_add(&w->domains, domain, strlen(domain) + 1);
}

static int put_node(writer *w, buffer *to, const OrtNode *node) {
  buffer message = {0};
  const char *op = node_text(w->host, node, 350), *domain = node_text(w->host, node, 351);
  if (!known_domain(domain)) {
    w->why->passing = 1;
    return refuse(w, "an operator is of a domain that the compiler does not know", domain);
  }
  if (*node_text(w->host, node, 368)) return refuse(w, "another provider has a part of the graph", op);
  remember_domain(w, domain);
  int fine = put_names(w, &message, 1, node, 353) && put_names(w, &message, 2, node, 355);
  put_text(&message, 3, node_text(w->host, node, 349));
  put_text(&message, 4, op);
  fine = fine && put_attributes(w, &message, node, op) && put_subgraphs(w, &message, node);
  put_text(&message, 7, domain);
  put_message(to, 1, &message);
  return fine;
}

static int put_nodes(writer *w, buffer *to, const OrtGraph *graph) {
  size_t count = 0;
  const void **nodes = graph_list(w->host, graph, 344, 345, &count, w->why);
  int fine = nodes != NULL;
  for (size_t i = 0; fine && i < count; i++) fine = put_node(w, to, (const OrtNode *)nodes[i]);
  free(nodes);
  return fine;
}

static int by_value_name(const void *a, const void *b, void *host) {
  return strcmp(value_name((const ort_host *)host, *(const OrtValueInfo *const *)a),
                value_name((const ort_host *)host, *(const OrtValueInfo *const *)b));
}

static int is_constant(writer *w, const OrtValueInfo *value, int *fine) {
  bool constant = false;
  *fine = *fine && ok(w, ORT_CALL(w->api, 331, is_constant)(value, &constant));
  return constant;
}

/* An initializer that the caller may override is an input like any other: ONNX Runtime hands its value to the node. */
static int put_initializers(writer *w, buffer *to, const OrtGraph *graph) {
  size_t count = 0;
  const void **list = graph_list(w->host, graph, 342, 343, &count, w->why);
  int fine = list != NULL;
  if (fine) qsort_r(list, count, sizeof *list, by_value_name, (void *)w->host);
  for (size_t i = 0; fine && i < count; i++) {
    const OrtValueInfo *value = (const OrtValueInfo *)list[i];
    const OrtValue *tensor = NULL;
    if (!is_constant(w, value, &fine) || !fine) continue;
    fine = ok(w, ORT_CALL(w->api, 326, initializer)(value, &tensor));
    if (fine && !tensor) fine = refuse(w, "a weight could not be read", value_name(w->host, value));
    fine = fine && put_tensor(w, to, 5, value_name(w->host, value), tensor, 1);
  }
  free(list);
  return fine;
}

/* How many nodes read the value themselves, of `count` that read it at all. */
static size_t direct_readers(writer *w, const OrtValueInfo *value, size_t count) {
  const OrtNode **nodes = calloc(count, sizeof *nodes);
  int64_t *indices = calloc(count, sizeof *indices);
  size_t direct = 0;
  if (!nodes || !indices) refuse(w, "out of memory", "consumers");
  else if (ok(w, ORT_CALL(w->api, 325, consumers)(value, nodes, indices, count)))
    for (size_t i = 0; i < count; i++) direct += indices[i] >= 0;
  free(nodes);
  free(indices);
  return direct;
}

/* Whether some node reads the value; 0 with a reason where the fused node would not get it. */
static int is_read(writer *w, const OrtValueInfo *value) {
  size_t count = 0;
  if (!ok(w, ((ort_count)w->api->slot[324])(value, &count)) || !count) return 0;
  if (direct_readers(w, value, count) || w->host->minor >= ORT_EP_VERSION_IMPLICIT_INPUTS) return 1;
  return refuse(w, "only a nested graph reads an input, which needs ONNX Runtime 1.27", value_name(w->host, value));
}

static int put_inputs(writer *w, buffer *to, const OrtGraph *graph) {
  size_t count = 0;
  const void **list = graph_list(w->host, graph, 338, 339, &count, w->why);
  int fine = list != NULL;
  for (size_t i = 0; fine && i < count; i++) {
    const OrtValueInfo *value = (const OrtValueInfo *)list[i];
    const int nested = w->depth > 1;
    if (!nested && (is_constant(w, value, &fine) || !fine)) continue;
    if (!nested && !is_read(w, value)) fine = !*w->why->text;
    else fine = put_value(w, to, 11, value, nested);
  }
  free(list);
  return fine;
}

static int is_made(writer *w, const OrtValueInfo *value) {
  const OrtNode *producer = NULL;
  size_t index = 0;
  return ok(w, ORT_CALL(w->api, 323, producer)(value, &producer, &index)) && producer != NULL;
}

static int put_outputs(writer *w, buffer *to, const OrtGraph *graph) {
  size_t count = 0, made = 0;
  const void **list = graph_list(w->host, graph, 340, 341, &count, w->why);
  int fine = list != NULL;
  for (size_t i = 0; fine && i < count; i++) {
    const OrtValueInfo *value = (const OrtValueInfo *)list[i];
    int again = 0;
    for (size_t k = 0; k < i; k++) again |= list[k] == list[i];
    if (w->depth == 1 && (again || !is_made(w, value))) continue;
    fine = put_value(w, to, 12, value, w->depth > 1);
    made++;
  }
  free(list);
  return fine && (made || w->depth > 1 ? 1 : refuse(w, "no node makes an output", ""));
}

static int put_graph(writer *w, buffer *to, const OrtGraph *graph) {
  if (w->depth == MOST_NESTING) return refuse(w, "graphs are nested too deeply", "");
  w->depth++;
  const int fine = put_nodes(w, to, graph) && put_initializers(w, to, graph) && put_inputs(w, to, graph) &&
                   put_outputs(w, to, graph);
  put_text(to, 2, "graph");
  w->depth--;
  return fine;
}

static int put_opsets(writer *w, buffer *to, const OrtGraph *graph) {
  size_t count = 0;
  if (!ok(w, ((ort_count)w->api->slot[336])(graph, &count))) return 0;
  const char *domains[count + 1]; /* a handful: ONNX Runtime's own and those that the model imports */
  int64_t versions[count + 1];
  if (!ok(w, ORT_CALL(w->api, 337, opsets)(graph, domains, versions, count))) return 0;
  for (size_t at = 0; at < w->domains.used; at += strlen(w->domains.data + at) + 1) {
    const char *domain = w->domains.data + at;
    const char *meant = strcmp(domain, "ai.onnx") ? domain : "";
    size_t i = 0;
    while (i < count && strcmp(domains[i], meant)) i++;
    if (i == count) return refuse(w, "an operator's version is not known", domain);
    buffer message = {0};
    put_text(&message, 1, domain);
    put_int(&message, 2, versions[i]);
    put_message(to, 8, &message);
  }
  return 1;
}

int graph_to_proto(const ort_host *host, const OrtGraph *graph, graph_proto *to, reason *why) {
  writer w = {.host = host, .api = host->api, .to = to, .why = why};
  int64_t ir_version = 0;
  buffer main_graph = {0};
  *why->text = 0;
  int fine = put_graph(&w, &main_graph, graph) && ok(&w, ORT_CALL(w.api, 335, ir_version)(graph, &ir_version));
  put_int(&to->model, 1, ir_version);
  put_text(&to->model, 2, "onnxruntime-ep-smelt");
  fine = fine && put_opsets(&w, &to->model, graph);
  put_message(&to->model, 7, &main_graph);
  if (fine && (to->model.failed || w.domains.failed)) fine = refuse(&w, "out of memory", "graph");
  buffer_free(&w.domains);
  if (!fine && !*why->text) reason_set(why, "the graph could not be read");
  return fine;
}

void graph_proto_free(graph_proto *gone) {
  buffer_free(&gone->model);
  free(gone->weights);
  memset(gone, 0, sizeof *gone);
}
