/* Regions as custom operators of ONNX Runtime.
 *
 * Input:     `static const smelt_entry smelt_entries[]` and SMELT_DOMAIN, both given by the unit that includes this file.
 * Output:    the exported function RegisterCustomOps: one operator per entry, in domain SMELT_DOMAIN.
 * Invariant: no allocation but ONNX Runtime's own and no state per node: an operator is its own kernel. Every status
 *            that ONNX Runtime hands out is returned or released, and every scratch block is freed before compute ends.
 */
#ifndef SMELT_ORT_GLUE_H
#define SMELT_ORT_GLUE_H

#include <smelt/base/cpu.h>
#include <smelt/base/kernel.h>
#include <smelt/base/machine_load.h>
#include <smelt/base/message.h>
#include <smelt/ort/ort_abi.h>
#include <smelt/base/profile.h>
#include <smelt/threads/threads.h>

#ifdef __SANITIZE_ADDRESS__
#include <smelt/ort/ort_bounds.h>
#define SMELT_RUN(op, env) smelt_bounds_run(env, (op)->entry, (op)->run)
#else
#define SMELT_RUN(op, env) (op)->run(env)
#endif

#ifdef SMELT_PROFILE
#include <smelt/ort/ort_profile.h>
#endif

#ifndef SMELT_DOMAIN
#error "define SMELT_DOMAIN and smelt_entries before including <smelt/ort/ort_glue.h>"
#endif

#define SMELT_ENTRIES ((int32_t)(sizeof smelt_entries / sizeof smelt_entries[0]))
#define SMELT_HOSTS 4        /* copies of ONNX Runtime in one process */
#define SMELT_POOLED_DIMS 256 /* dims kept on the stack where shapes must be copied; more go to scratch */
#define SMELT_COUNTED SMELT_MOST_THREADS /* threads that are told from each other */
#define SMELT_STACK_SCRATCH 8192 /* scratch of one call that needs no allocator, which costs as much as a small node */

typedef struct {
  const OrtApi *api;
  OrtMemoryInfo *memory;
  OrtCustomOpDomain *domain;
  int shape_by_ref, minor; /* minor: of the release of ONNX Runtime */
  int32_t processors;
} smelt_ort_host;

typedef struct {
  OrtCustomOp op; /* first: ONNX Runtime hands back a pointer to it */
  const smelt_entry *entry;
  const smelt_ort_host *host;
  smelt_region run;
} smelt_ort_op;

typedef struct smelt_ort_block {
  struct smelt_ort_block *next;
} smelt_ort_block;

typedef struct {
  smelt_env env; /* first: a region hands back a pointer to it */
  const OrtApi *api;
  const smelt_ort_host *host;
  OrtKernelContext *context;
  OrtStatus *status; /* the first failure of ONNX Runtime itself */
  OrtAllocator *allocator;
  smelt_ort_block *blocks;
  int64_t stack_used;
  const void *seen[SMELT_COUNTED]; /* threads that have run bodies */
  char stack[SMELT_STACK_SCRATCH] __attribute__((aligned(64)));
} smelt_ort_call;

static smelt_ort_host smelt_hosts[SMELT_HOSTS];
static smelt_ort_op smelt_ops[SMELT_HOSTS][sizeof smelt_entries / sizeof smelt_entries[0]];
static char smelt_register_lock;
static const int64_t smelt_nothing[8] = {0}; /* stands for data or dims where there are none but NULL means something */

/* Keeps the first failure and drops later ones. Returns whether the call succeeded. */
static inline int smelt_ort_ok(smelt_ort_call *call, OrtStatus *status) {
  if (__builtin_expect(!status, 1)) return 1;
  if (call->status)
    ORT_CALL(call->api, 93, release_status)(status);
  else
    call->status = status;
  return 0;
}

static void *smelt_ort_output(smelt_env *env, int32_t index, int32_t rank, const int64_t *dims) {
  smelt_ort_call *call = (smelt_ort_call *)env;
  OrtValue *value = NULL;
  void *data = NULL;
  if (!smelt_ort_ok(call, ORT_CALL(call->api, 91, output)(call->context, (size_t)index, dims, (size_t)rank, &value)))
    return NULL;
  if (!value) return NULL;
  if (!smelt_ort_ok(call, ORT_CALL(call->api, 51, tensor_data)(value, &data))) return NULL;
  return data ? data : (void *)smelt_nothing;
}

static inline void *smelt_ort_place(smelt_ort_block *block) {
  return (void *)(((uintptr_t)(block + 1) + 63) & ~(uintptr_t)63);
}

static void *smelt_ort_scratch(smelt_env *env, int64_t bytes) {
  smelt_ort_call *call = (smelt_ort_call *)env;
  if (bytes >= 0 && bytes <= SMELT_STACK_SCRATCH - call->stack_used) {
    void *block = call->stack + call->stack_used;
    call->stack_used += (bytes + 63) & ~(int64_t)63;
    return block;
  }
  const uint64_t extra = sizeof(smelt_ort_block) + 63;
  void *raw = NULL;
  if (bytes < 0 || (uint64_t)bytes > (uint64_t)PTRDIFF_MAX - extra) {
    smelt_fail(env, SMELT_E_OVERFLOW, -1, 0, 0, 0);
    return NULL;
  }
  if (!call->allocator &&
      !smelt_ort_ok(call, ORT_CALL(call->api, 253, allocator)(call->context, call->host->memory, &call->allocator)))
    return NULL;
  if (!smelt_ort_ok(call, ORT_CALL(call->api, 75, alloc)(call->allocator, (size_t)bytes + extra, &raw)) || !raw) {
    smelt_fail(env, SMELT_E_MEMORY, -1, bytes, 0, 0);
    return NULL;
  }
  smelt_ort_block *block = (smelt_ort_block *)raw;
  block->next = call->blocks;
  call->blocks = block;
  return smelt_ort_place(block);
}

/* What lies on the stack stays there. */
static void smelt_ort_free_scratch(smelt_env *env, void *memory) {
  smelt_ort_call *call = (smelt_ort_call *)env;
  for (smelt_ort_block **at = &call->blocks; *at; at = &(*at)->next) {
    smelt_ort_block *block = *at;
    if (smelt_ort_place(block) != memory) continue;
    *at = block->next;
    smelt_ort_ok(call, ORT_CALL(call->api, 76, free)(call->allocator, block));
    return;
  }
}

static void smelt_ort_release(smelt_ort_call *call) {
  while (call->blocks) {
    smelt_ort_block *block = call->blocks;
    call->blocks = block->next;
    smelt_ort_ok(call, ORT_CALL(call->api, 76, free)(call->allocator, block));
  }
  if (call->allocator) ORT_CALL(call->api, 132, release_allocator)(call->allocator);
}

typedef struct {
  smelt_body body;
  void *ctx;
  smelt_ort_call *call;
  const void *caller;
} smelt_ort_loop;

/* A thread enters itself, once. */
static void smelt_ort_count(smelt_ort_call *call, const void *self) {
  const int32_t known = __atomic_load_n(&call->env.helpers, __ATOMIC_RELAXED);
  if (known >= SMELT_COUNTED) return;
  for (int32_t i = 0; i < known; i++)
    if (__atomic_load_n(&call->seen[i], __ATOMIC_RELAXED) == self) return;
  const int32_t place = __atomic_fetch_add(&call->env.helpers, 1, __ATOMIC_RELAXED);
  if (place < SMELT_COUNTED) __atomic_store_n(&call->seen[place], self, __ATOMIC_RELAXED);
}

static void smelt_ort_step(void *p, size_t index) {
  const smelt_ort_loop *loop = (const smelt_ort_loop *)p;
  const void *self = smelt_thread();
  if (loop->caller != self) smelt_ort_count(loop->call, self);
  loop->body(loop->ctx, (int64_t)index);
}

static void smelt_ort_parallel(smelt_env *env, int64_t count, smelt_body body, void *ctx) {
  smelt_ort_call *call = (smelt_ort_call *)env;
  smelt_ort_loop loop = {body, ctx, call, smelt_thread()};
  if (count == 1) body(ctx, 0);
  if (count <= 1) return;
#ifdef SMELT_PROFILE
  if (smelt_trace.threads && !smelt_trace.inside) {
    smelt_profile_loop(env, count, body, ctx);
    return;
  }
#endif
  smelt_ort_ok(call, ORT_CALL(call->api, 274, parallel)(call->context, smelt_ort_step, (size_t)count, 0, &loop));
}

typedef struct {
  int64_t pool[SMELT_POOLED_DIMS];
  int64_t used;
} smelt_ort_dims;

/* For releases without slot 414: copies the dims, which costs an allocation inside ONNX Runtime. */
static int smelt_ort_copy_dims(smelt_ort_call *call, smelt_ort_dims *store, const OrtValue *value, const int64_t **dims,
                               size_t *rank) {
  OrtShape *shape = NULL;
  int64_t *room = store->pool + store->used;
  if (!smelt_ort_ok(call, ORT_CALL(call->api, 65, shape)(value, &shape))) return 0;
  int ok = smelt_ort_ok(call, ORT_CALL(call->api, 61, rank)(shape, rank));
  if (ok && *rank > (size_t)(SMELT_POOLED_DIMS - store->used))
    room = (int64_t *)smelt_ort_scratch(&call->env, (int64_t)(*rank * sizeof(int64_t)));
  else if (ok)
    store->used += (int64_t)*rank;
  ok = ok && room && smelt_ort_ok(call, ORT_CALL(call->api, 62, dims)(shape, room, *rank));
  ORT_CALL(call->api, 99, release_shape)(shape);
  *dims = room;
  return ok;
}

static inline int smelt_ort_input(smelt_ort_call *call, smelt_ort_dims *store, int32_t index, const void **in,
                                  const int64_t **in_dims, int32_t *in_rank) {
  const OrtValue *value = NULL;
  const int64_t *dims = NULL;
  void *data = NULL;
  size_t rank = 0;
  int type;
  in[index] = NULL, in_dims[index] = smelt_nothing, in_rank[index] = 0;
  if (!smelt_ort_ok(call, ORT_CALL(call->api, 90, input)(call->context, (size_t)index, &value))) return 0;
  if (!value) return 1;
  if (!smelt_ort_ok(call, ORT_CALL(call->api, 51, tensor_data)((OrtValue *)value, &data))) return 0;
  int ok = call->host->shape_by_ref
               ? smelt_ort_ok(call, ORT_CALL(call->api, 414, shape_by_ref)(value, &type, &dims, &rank))
               : smelt_ort_copy_dims(call, store, value, &dims, &rank);
  in[index] = data ? data : (const void *)smelt_nothing;
  if (dims) in_dims[index] = dims;
  in_rank[index] = (int32_t)rank;
  return ok;
}

/* The runtime's own report is the cause when there is one; else the region's is. */
static OrtStatus *smelt_ort_conclude(smelt_ort_call *call, const smelt_entry *entry, int32_t code) {
  smelt_message message;
  if (__builtin_expect(!code && !call->env.code && !call->status, 1)) return NULL;
  if (call->status) return call->status;
  smelt_explain(&message, entry, &call->env, call->env.code ? call->env.code : code);
  return ORT_CALL(call->api, 0, create_status)(ORT_CODE_INVALID_ARGUMENT, message.text);
}

static OrtStatus *smelt_ort_compute(void *kernel, OrtKernelContext *context) {
  const smelt_ort_op *op = (const smelt_ort_op *)kernel;
  const int32_t count = op->entry->n_in, room = count ? count : 1;
  const void *in[room];
  const int64_t *in_dims[room];
  int32_t in_rank[room];
  smelt_ort_dims store;
  smelt_ort_call call;
  store.used = 0;
  call.env.in = in, call.env.in_dims = in_dims, call.env.in_rank = in_rank;
  call.env.output = smelt_ort_output;
  call.env.scratch = smelt_ort_scratch, call.env.free_scratch = smelt_ort_free_scratch;
  call.env.parallel = smelt_ort_parallel;
  call.env.code = 0, call.env.detail_input = -1, call.env.helpers = 0, call.env.processors = op->host->processors;
  call.env.detail[0] = call.env.detail[1] = call.env.detail[2] = 0;
  call.api = op->host->api, call.host = op->host, call.context = context;
  for (int32_t i = 0; i < SMELT_COUNTED; i++) call.seen[i] = NULL;
  call.status = NULL, call.allocator = NULL, call.blocks = NULL, call.stack_used = 0;
#ifdef SMELT_PROFILE
  if (smelt_trace.threads) call.env.processors = (int32_t)smelt_trace.threads;
  smelt_profile_time_barriers(&call.env);
  call.env.helpers = 0;
#endif
  int32_t code = SMELT_OK, i = 0;
  while (i < count && smelt_ort_input(&call, &store, i, in, in_dims, in_rank)) i++;
  if (i == count) code = SMELT_RUN(op, &call.env);
  OrtStatus *status = smelt_ort_conclude(&call, op->entry, code);
  call.status = status; /* so that a failure to free is released, not lost, and never hides the first one */
  smelt_ort_release(&call);
  return call.status;
}

static const smelt_entry *smelt_ort_entry(const OrtCustomOp *op) { return ((const smelt_ort_op *)op)->entry; }

static const char *smelt_ort_name(const OrtCustomOp *op) { return smelt_ort_entry(op)->name; }
static const char *smelt_ort_provider(const OrtCustomOp *op) { return (void)op, "CPUExecutionProvider"; }
static size_t smelt_ort_n_in(const OrtCustomOp *op) { return (size_t)smelt_ort_entry(op)->n_in; }
static size_t smelt_ort_n_out(const OrtCustomOp *op) { return (size_t)smelt_ort_entry(op)->n_out; }
static int smelt_ort_in_type(const OrtCustomOp *op, size_t i) { return smelt_ort_entry(op)->in_types[i]; }
static int smelt_ort_out_type(const OrtCustomOp *op, size_t i) { return smelt_ort_entry(op)->out_types[i]; }
static int smelt_ort_required(const OrtCustomOp *op, size_t i) { return (void)op, (void)i, ORT_REQUIRED; }
static int smelt_ort_memory(const OrtCustomOp *op, size_t i) { return (void)op, (void)i, ORT_MEM_DEFAULT; }
static int smelt_ort_one(const OrtCustomOp *op) { return (void)op, 1; }
static int smelt_ort_in_kind(const OrtCustomOp *op, size_t i) {
  const uint8_t *optional = smelt_ort_entry(op)->optional;
  return optional && optional[i] ? ORT_OPTIONAL : ORT_REQUIRED;
}

static OrtStatus *smelt_ort_create(const OrtCustomOp *op, const OrtApi *api, const OrtKernelInfo *info, void **kernel) {
  (void)api, (void)info;
  *kernel = (void *)op;
  return NULL;
}
static void smelt_ort_destroy(void *kernel) { (void)kernel; }

static void smelt_ort_describe(smelt_ort_op *slot, const smelt_entry *entry, const smelt_ort_host *host,
                               smelt_region run) {
  slot->entry = entry, slot->host = host, slot->run = run;
  slot->op = (OrtCustomOp){
      .version = ORT_ABI_VERSION,
      .GetName = smelt_ort_name,
      .GetExecutionProviderType = smelt_ort_provider,
      .GetInputType = smelt_ort_in_type,
      .GetInputTypeCount = smelt_ort_n_in,
      .GetOutputType = smelt_ort_out_type,
      .GetOutputTypeCount = smelt_ort_n_out,
      .KernelDestroy = smelt_ort_destroy,
      .GetInputCharacteristic = smelt_ort_in_kind,
      .GetOutputCharacteristic = smelt_ort_required,
      .GetInputMemoryType = smelt_ort_memory,
      .GetVariadicInputMinArity = smelt_ort_one,
      .GetVariadicInputHomogeneity = smelt_ort_one,
      .GetVariadicOutputMinArity = smelt_ort_one,
      .GetVariadicOutputHomogeneity = smelt_ort_one,
      .CreateKernelV2 = smelt_ort_create,
      .KernelComputeV2 = smelt_ort_compute,
  };
}

#ifdef SMELT_DEVICE_CODE
#include <smelt/device/ort_device.h>
#else
#define smelt_device_stand_in(place) 0
#define smelt_ort_add_device_ops(host, api, place) NULL
#endif

static OrtStatus *smelt_ort_refuse(const OrtApi *api, const char *why, const char *what) {
  smelt_message message = {.used = 0};
  smelt_say(&message, "smelt: "), smelt_say(&message, why), smelt_say(&message, what);
  return ORT_CALL(api, 0, create_status)(ORT_CODE_FAIL, message.text);
}

/* Minor number of "1.24.1"; a later major release counts as newer than all. */
static int smelt_ort_minor(const char *version) {
  int minor = 0;
  if (version[0] != '1' || version[1] != '.') return 1000;
  for (version += 2; *version >= '0' && *version <= '9' && minor < 1000; version++) minor = minor * 10 + *version - '0';
  return minor;
}

static OrtStatus *smelt_ort_fill(smelt_ort_host *host, smelt_ort_op *ops, const OrtApi *api, const OrtApiBase *base) {
  int32_t level = smelt_cpu_level();
  OrtStatus *status;
  if (level == SMELT_CPU_BAD_NAME)
    return smelt_ort_refuse(api, "the environment variable SMELT_LEVEL names no level of this CPU family: ",
                            getenv("SMELT_LEVEL"));
  if (level < 0) return smelt_ort_refuse(api, "this CPU lacks instructions of the lowest level, ", SMELT_BASELINE);
  const char *strange = smelt_machine_load();
  if (strange)
    return smelt_ort_refuse(api, "the environment variable SMELT_MACHINE takes " SMELT_MACHINE_FIELDS "=number, with commas; not ",
                            strange);
  host->processors = (int32_t)smelt_this_machine.threads;
  host->minor = smelt_ort_minor(base->GetVersionString());
  host->shape_by_ref = host->minor >= ORT_ABI_VERSION_SHAPE_BY_REF;
  if (!host->memory &&
      (status = ORT_CALL(api, 69, cpu_memory)(ORT_ARENA_ALLOCATOR, ORT_MEM_DEFAULT, &host->memory)))
    return status;
  if ((status = ORT_CALL(api, 26, create_domain)(SMELT_DOMAIN, &host->domain))) return status;
  for (int32_t i = 0; i < SMELT_ENTRIES; i++) {
    smelt_region run = smelt_pick(&smelt_entries[i]);
    if (!run) return smelt_ort_refuse(api, "nothing was compiled for this CPU: region ", smelt_entries[i].name);
    smelt_ort_describe(&ops[i], &smelt_entries[i], host, run);
    if (!smelt_device_stand_in(i) && (status = ORT_CALL(api, 27, domain_add)(host->domain, &ops[i].op))) return status;
    if ((status = smelt_ort_add_device_ops(host, api, i))) return status;
  }
  host->api = api; /* last: marks the host as complete */
  return NULL;
}

/* One host per copy of ONNX Runtime, made on first use and kept: sessions share the operators and their domain. */
static OrtStatus *smelt_ort_host_for(const OrtApi *api, const OrtApiBase *base, smelt_ort_host **out) {
  for (int32_t i = 0; i < SMELT_HOSTS; i++) {
    *out = &smelt_hosts[i];
    if (smelt_hosts[i].api == api) return NULL;
    if (!smelt_hosts[i].api) return smelt_ort_fill(&smelt_hosts[i], smelt_ops[i], api, base);
  }
  return smelt_ort_refuse(api, "too many copies of ONNX Runtime in one process", "");
}

__attribute__((visibility("default"))) OrtStatus *RegisterCustomOps(OrtSessionOptions *options, const OrtApiBase *base);

OrtStatus *RegisterCustomOps(OrtSessionOptions *options, const OrtApiBase *base) {
  const OrtApi *api = base->GetApi(ORT_ABI_VERSION);
  smelt_ort_host *host = NULL;
  if (!api) /* older than 1.17: slot 0 is the same in every release */
    return smelt_ort_refuse(base->GetApi(1), "needs ONNX Runtime 1.17 or newer, this is ", base->GetVersionString());
  while (__atomic_test_and_set(&smelt_register_lock, __ATOMIC_ACQUIRE)) __asm__ volatile("");
  OrtStatus *status = smelt_ort_host_for(api, base, &host);
  __atomic_clear(&smelt_register_lock, __ATOMIC_RELEASE);
  return status ? status : ORT_CALL(api, 28, add_domain)(options, host->domain);
}

#endif
