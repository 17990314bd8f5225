/* Device kernels of a library's entries as operators of ONNX Runtime's GPU providers.
 *
 * Input:     `smelt_device_entries[]`, in step with smelt_entries. Included by ort_glue.h where SMELT_DEVICE_CODE is defined.
 * Output:    smelt_ort_add_device_ops(): beside each CPU operator one for CUDA and one for ROCm, of the same name.
 * Invariant: inputs that the host reads are asked for in host memory; outputs and scratch are the session's device memory,
 *            freed in the order of its stream. SMELT_DEVICE_STAND_IN=cuda|rocm, for tests without a GPU, gives the device's
 *            operator to the CPU provider in place of the CPU's own.
 */
#ifndef SMELT_ORT_DEVICE_H
#define SMELT_ORT_DEVICE_H

#include <smelt/device/driver.h>

enum { SMELT_MEM_CPU_INPUT = -2, SMELT_DEVICE_BLOCKS = 16, SMELT_ORT_SCRATCH = 18 /* the first with slot 277 */ };

typedef OrtStatus *(*ort_68_memory)(const char *name, int allocator_type, int id, int memory_type, OrtMemoryInfo **out);
typedef OrtStatus *(*ort_71_memory_name)(const OrtMemoryInfo *memory, const char **out);
typedef OrtStatus *(*ort_72_memory_id)(const OrtMemoryInfo *memory, int *out);
typedef void (*ort_94_release_memory)(OrtMemoryInfo *memory);
typedef OrtStatus *(*ort_193_stream)(const OrtKernelContext *context, void **out);
typedef OrtStatus *(*ort_194_memory_of)(const OrtValue *value, const OrtMemoryInfo **out);
typedef OrtStatus *(*ort_277_scratch)(const OrtKernelContext *context, const OrtMemoryInfo *memory, size_t bytes, void **out);

typedef struct {
  smelt_ort_call call; /* first: a region hands back a pointer to its smelt_env */
  const smelt_ort_op *op;
  const OrtMemoryInfo *memory; /* where the tensors of this call lie; NULL: no input tells */
  OrtMemoryInfo *made;
  smelt_device_held before;
  void *blocks[SMELT_DEVICE_BLOCKS];
  int32_t held;
} smelt_device_call;

static smelt_ort_op smelt_device_ops[SMELT_HOSTS][2][sizeof smelt_entries / sizeof smelt_entries[0]];

static const smelt_device_entry *smelt_device_entry_of(const OrtCustomOp *op) {
  return &smelt_device_entries[smelt_ort_entry(op) - smelt_entries];
}

/* Where the tensors of this call lie: where its first input on the device does. */
static int smelt_device_find(smelt_device_call *all) {
  smelt_ort_call *call = &all->call;
  const smelt_device_entry *entry = smelt_device_entry_of(&all->op->op);
  for (int32_t i = 0; i < all->op->entry->n_in; i++) {
    const OrtValue *value = NULL;
    if (entry->on_host[i]) continue;
    if (!smelt_ort_ok(call, ORT_CALL(call->api, 90, input)(call->context, (size_t)i, &value))) return 0;
    if (value) return smelt_ort_ok(call, ORT_CALL(call->api, 194, memory_of)(value, &all->memory));
  }
  return 1;
}

/* The number of the device that this call is for; -1: the current one, for memory of a CPU or where no input tells. */
static int32_t smelt_device_ordinal(smelt_device_call *all) {
  smelt_ort_call *call = &all->call;
  const char *name = NULL;
  int id = -1;
  if (!all->memory) return -1;
  if (!smelt_ort_ok(call, ORT_CALL(call->api, 71, memory_name)(all->memory, &name))) return -1;
  if (name && smelt_same_text(name, "Cpu")) return -1;
  return smelt_ort_ok(call, ORT_CALL(call->api, 72, memory_id)(all->memory, &id)) ? id : -1;
}

static const OrtMemoryInfo *smelt_device_memory(smelt_device_call *all) {
  smelt_ort_call *call = &all->call;
  if (all->memory) return all->memory;
  const char *name = call->env.device == SMELT_DEVICE_ROCM ? "Hip" : "Cuda";
  int id = 0;
  smelt_driver_for(call->env.device, NULL)->device(&id); /* smelt_device_here() has found the driver */
  if (!smelt_ort_ok(call, ORT_CALL(call->api, 68, memory)(name, 0, id, ORT_MEM_DEFAULT, &all->made))) return NULL;
  return all->memory = all->made;
}

/* Memory that is freed while kernels still use it: of the session's stream, so that another call gets it no earlier. An
 * allocator by itself knows of no stream; releases before 1.18 have nothing else. */
static int smelt_device_take(smelt_device_call *all, size_t bytes, void **out) {
  smelt_ort_call *call = &all->call;
  const OrtMemoryInfo *memory = smelt_device_memory(all);
  if (!memory) return 0;
  if (!call->allocator &&
      !smelt_ort_ok(call, ORT_CALL(call->api, 253, allocator)(call->context, memory, &call->allocator)))
    return 0;
  if (call->env.queue && call->host->minor >= SMELT_ORT_SCRATCH)
    return smelt_ort_ok(call, ORT_CALL(call->api, 277, scratch)(call->context, memory, bytes, out));
  return smelt_ort_ok(call, ORT_CALL(call->api, 75, alloc)(call->allocator, bytes, out));
}

static void *smelt_device_scratch(smelt_env *env, int64_t bytes) {
  smelt_device_call *all = (smelt_device_call *)env;
  void *block = NULL;
  if (bytes < 0 || all->held >= SMELT_DEVICE_BLOCKS) {
    smelt_fail(env, SMELT_E_OVERFLOW, -1, 0, 0, 0);
    return NULL;
  }
  if (!smelt_device_take(all, (size_t)(bytes ? bytes : 1), &block) || !block) {
    smelt_fail(env, SMELT_E_MEMORY, -1, bytes, 0, 0);
    return NULL;
  }
  return all->blocks[all->held++] = block;
}

static void smelt_device_release(smelt_device_call *all) {
  smelt_ort_call *call = &all->call;
  while (all->held) smelt_ort_ok(call, ORT_CALL(call->api, 76, free)(call->allocator, all->blocks[--all->held]));
  if (call->allocator) ORT_CALL(call->api, 132, release_allocator)(call->allocator);
  if (all->made) ORT_CALL(call->api, 94, release_memory)(all->made);
}

static int32_t smelt_device_run(smelt_device_call *all) {
  const int32_t ordinal = smelt_device_ordinal(all);
  int32_t code = smelt_device_enter(&all->call.env, ordinal, &all->before);
  if (!code) code = all->op->run(&all->call.env);
  smelt_device_leave(&all->before);
  return code;
}

static OrtStatus *smelt_device_compute(const smelt_ort_op *op, OrtKernelContext *context, int32_t device) {
  const int32_t count = op->entry->n_in, room = count ? count : 1;
  const void *in[room];
  const int64_t *in_dims[room];
  int32_t in_rank[room];
  smelt_ort_dims store;
  smelt_device_call all = {.op = op};
  smelt_ort_call *call = &all.call;
  store.used = 0;
  call->env.in = in, call->env.in_dims = in_dims, call->env.in_rank = in_rank;
  call->env.output = smelt_ort_output;
  call->env.scratch = smelt_device_scratch;
  call->env.detail_input = -1, call->env.device = device;
  call->api = op->host->api, call->host = op->host, call->context = context;
  int32_t code = SMELT_OK, i = 0;
  if (smelt_ort_ok(call, ORT_CALL(call->api, 193, stream)(context, &call->env.queue)))
    while (i < count && smelt_ort_input(call, &store, i, in, in_dims, in_rank)) i++;
  if (i == count && !call->status && smelt_device_find(&all)) code = smelt_device_run(&all);
  OrtStatus *status = smelt_ort_conclude(call, op->entry, code);
  call->status = status;
  smelt_device_release(&all);
  return call->status;
}

static OrtStatus *smelt_cuda_compute(void *kernel, OrtKernelContext *context) {
  return smelt_device_compute((const smelt_ort_op *)kernel, context, SMELT_DEVICE_CUDA);
}
static OrtStatus *smelt_rocm_compute(void *kernel, OrtKernelContext *context) {
  return smelt_device_compute((const smelt_ort_op *)kernel, context, SMELT_DEVICE_ROCM);
}
static const char *smelt_cuda_provider(const OrtCustomOp *op) { return (void)op, "CUDAExecutionProvider"; }
static const char *smelt_rocm_provider(const OrtCustomOp *op) { return (void)op, "ROCMExecutionProvider"; }
static int smelt_device_memory_type(const OrtCustomOp *op, size_t i) {
  return smelt_device_entry_of(op)->on_host[i] ? SMELT_MEM_CPU_INPUT : ORT_MEM_DEFAULT;
}

static OrtStatus *smelt_device_add(const smelt_ort_host *host, const OrtApi *api, int32_t place, int32_t device, int stand_in) {
  smelt_ort_op *slot = &smelt_device_ops[host - smelt_hosts][device == SMELT_DEVICE_ROCM][place];
  smelt_ort_describe(slot, &smelt_entries[place], host, smelt_device_entries[place].run);
  const int cuda = device == SMELT_DEVICE_CUDA;
  if (!stand_in) slot->op.GetExecutionProviderType = cuda ? smelt_cuda_provider : smelt_rocm_provider;
  slot->op.GetInputMemoryType = smelt_device_memory_type;
  slot->op.KernelComputeV2 = cuda ? smelt_cuda_compute : smelt_rocm_compute;
  return ORT_CALL(api, 27, domain_add)(host->domain, &slot->op);
}

/* Whether the device's operator stands in for the CPU's. */
static int32_t smelt_device_stand_in(int32_t place) {
  const char *chosen = getenv("SMELT_DEVICE_STAND_IN");
  if (!smelt_device_entries[place].run) return 0;
  if (!chosen) return 0;
  return smelt_same_text(chosen, "cuda") ? SMELT_DEVICE_CUDA : smelt_same_text(chosen, "rocm") ? SMELT_DEVICE_ROCM : 0;
}

static OrtStatus *smelt_ort_add_device_ops(const smelt_ort_host *host, const OrtApi *api, int32_t place) {
  OrtStatus *status = NULL;
  const int32_t stand_in = smelt_device_stand_in(place);
  if (!smelt_device_entries[place].run) return NULL;
  if (stand_in) return smelt_device_add(host, api, place, stand_in, 1);
  if (!(status = smelt_device_add(host, api, place, SMELT_DEVICE_CUDA, 0)))
    status = smelt_device_add(host, api, place, SMELT_DEVICE_ROCM, 0);
  return status;
}

#endif
