/* The tensors of a call in memory of their own, in libraries that check bounds.
 *
 * Input:     the env of a call, complete but for its functions; ONNX Runtime's own tensors.
 * Output:    smelt_bounds_enter() and smelt_bounds_leave() around a region: inputs are copies, outputs are copied back, and
 *            scratch is allocated by itself.
 * Invariant: ONNX Runtime's arena rounds sizes up, so an overrun there stays unseen; here every block ends where its tensor
 *            does. Used from ort_glue.h only, and compiled only with AddressSanitizer.
 */
#ifndef SMELT_ORT_BOUNDS_H
#define SMELT_ORT_BOUNDS_H

#include <smelt/base/kernel.h>
#include <stdlib.h>
#include <string.h>

typedef struct smelt_bounds_block {
  struct smelt_bounds_block *next;
  void *own, *home; /* where it is copied to at the end; NULL: nowhere */
  size_t bytes;
} smelt_bounds_block;

typedef struct {
  smelt_env env; /* first: a region hands back a pointer to it */
  smelt_env *host;
  const smelt_entry *entry;
  smelt_bounds_block *blocks;
} smelt_bounds_call;

static inline size_t smelt_bounds_bytes(int32_t type, int32_t rank, const int64_t *dims) {
  static const uint8_t size[] = {0, 4, 1, 1, 2, 2, 4, 8, 0, 1, 2, 8, 4, 8, 8, 16, 2}; /* by TensorProto.DataType */
  size_t bytes = size[type];
  for (int32_t i = 0; i < rank; i++) bytes *= (size_t)dims[i];
  return bytes;
}

static void *smelt_bounds_own(smelt_bounds_call *call, size_t bytes, void *home) {
  smelt_bounds_block *block = malloc(sizeof *block);
  *block = (smelt_bounds_block){call->blocks, NULL, home, bytes};
  if (posix_memalign(&block->own, 64, bytes)) return free(block), NULL;
  memset(block->own, 255, bytes);
  call->blocks = block;
  return block->own;
}

static void *smelt_bounds_output(smelt_env *env, int32_t index, int32_t rank, const int64_t *dims) {
  smelt_bounds_call *call = (smelt_bounds_call *)env;
  void *home = call->host->output(call->host, index, rank, dims);
  return home ? smelt_bounds_own(call, smelt_bounds_bytes(call->entry->out_types[index], rank, dims), home) : NULL;
}

static void *smelt_bounds_scratch(smelt_env *env, int64_t bytes) {
  return bytes < 0 ? NULL : smelt_bounds_own((smelt_bounds_call *)env, (size_t)bytes, NULL);
}

static void smelt_bounds_free_scratch(smelt_env *env, void *own) {
  for (smelt_bounds_block **at = &((smelt_bounds_call *)env)->blocks; *at; at = &(*at)->next) {
    smelt_bounds_block *block = *at;
    if (block->own != own) continue;
    *at = block->next;
    free(own), free(block);
    return;
  }
}

static void smelt_bounds_parallel(smelt_env *env, int64_t count, smelt_body body, void *ctx) {
  smelt_env *host = ((smelt_bounds_call *)env)->host;
  host->parallel(host, count, body, ctx);
  env->helpers = host->helpers;
}

/* Runs a region on copies of its inputs; what it reports is put into the host's env. */
static int32_t smelt_bounds_run(smelt_env *host, const smelt_entry *entry, smelt_region run) {
  smelt_bounds_call call = {.env = *host, .host = host, .entry = entry, .blocks = NULL};
  const void *in[entry->n_in + 1];
  for (int32_t i = 0; i < entry->n_in; i++) {
    const size_t bytes = smelt_bounds_bytes(entry->in_types[i], host->in_rank[i], host->in_dims[i]);
    in[i] = host->in[i] ? smelt_bounds_own(&call, bytes, NULL) : NULL;
    if (in[i]) memcpy((void *)in[i], host->in[i], bytes);
  }
  call.env.in = in, call.env.output = smelt_bounds_output, call.env.scratch = smelt_bounds_scratch;
  call.env.free_scratch = smelt_bounds_free_scratch, call.env.parallel = smelt_bounds_parallel;
  const int32_t code = run(&call.env);
  host->code = call.env.code, host->detail_input = call.env.detail_input;
  memcpy(host->detail, call.env.detail, sizeof host->detail);
  while (call.blocks) {
    smelt_bounds_block *block = call.blocks;
    call.blocks = block->next;
    if (block->home) memcpy(block->home, block->own, block->bytes);
    free(block->own), free(block);
  }
  return code;
}

#endif
