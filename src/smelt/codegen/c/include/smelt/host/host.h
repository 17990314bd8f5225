/* Regions as a program of their own.
 *
 * Input:     `static const smelt_entry smelt_entries[]`, given by the unit that includes this file; at run time a file
 *            with the dumped tensors of one call (see call_file.h), named on the command line.
 * Output:    main(): runs one region on those inputs, serially or with threads, compares with the dumped outputs, times it
 *            and prints both. Exit code 0: as expected, 1: different, 2: could not run.
 * Invariant: what is timed is the region alone: outputs and scratch are allocated by the first call and reused.
 */
#ifndef SMELT_HOST_H
#define SMELT_HOST_H

#include <smelt/host/call_file.h>
#include <smelt/base/cpu.h>
#include <smelt/base/machine_load.h>
#include <smelt/host/host_pool.h>
#include <smelt/base/kernel.h>
#include <smelt/base/message.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SMELT_HOST_BLOCKS 64

typedef struct {
  const char *path, *region, *level;
  int threads, runs;
  double tolerance;
} smelt_host_options;

typedef struct {
  void *data;
  int64_t capacity;
} smelt_host_block;

typedef struct {
  smelt_env env; /* first: a region hands back a pointer to it */
  const smelt_entry *entry;
  smelt_host_pool *pool;
  smelt_call_tensor *out; /* what the region produced, n_out of them */
  smelt_host_block *out_block;
  smelt_host_block scratch[SMELT_HOST_BLOCKS];
  int32_t scratch_used;
} smelt_host_call;

static void *smelt_host_reserve(smelt_env *env, smelt_host_block *block, int64_t bytes) {
  if (bytes < 0 || bytes > INT64_MAX - 64) return smelt_fail(env, SMELT_E_OVERFLOW, -1, 0, 0, 0), NULL;
  int64_t rounded = (bytes + 63) / 64 * 64 + 64;
  if (block->capacity >= rounded) return block->data;
  free(block->data);
  block->data = aligned_alloc(64, (size_t)rounded);
  block->capacity = block->data ? rounded : 0;
  if (!block->data) smelt_fail(env, SMELT_E_MEMORY, -1, bytes, 0, 0);
  return block->data;
}

static void *smelt_host_output(smelt_env *env, int32_t index, int32_t rank, const int64_t *dims) {
  smelt_host_call *call = (smelt_host_call *)env;
  smelt_call_tensor *out = &call->out[index];
  if (rank < 0 || rank > SMELT_CALL_MAX_RANK) return smelt_fail(env, SMELT_E_RANK, -1, rank, 0, 0), NULL;
  out->type = call->entry->out_types[index];
  out->rank = rank;
  if (rank) memcpy(out->dims, dims, (size_t)rank * sizeof *dims);
  out->bytes = smelt_call_bytes(out);
  out->data = smelt_host_reserve(env, &call->out_block[index], out->bytes);
  return out->data;
}

static void *smelt_host_scratch(smelt_env *env, int64_t bytes) {
  smelt_host_call *call = (smelt_host_call *)env;
  if (call->scratch_used == SMELT_HOST_BLOCKS) return smelt_fail(env, SMELT_E_MEMORY, -1, bytes, 0, 0), NULL;
  return smelt_host_reserve(env, &call->scratch[call->scratch_used++], bytes);
}

static void smelt_host_parallel(smelt_env *env, int64_t count, smelt_body body, void *ctx) {
  smelt_host_pool_run(((smelt_host_call *)env)->pool, count, body, ctx);
}

static int32_t smelt_host_once(smelt_host_call *call, smelt_region run) {
  call->scratch_used = 0;
  call->env.code = 0, call->env.detail_input = -1;
  memset(call->env.detail, 0, sizeof call->env.detail);
  int32_t code = run(&call->env);
  return call->env.code ? call->env.code : code;
}

static double smelt_host_now_us(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

static int smelt_host_by_value(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static void smelt_host_time(smelt_host_call *call, smelt_region run, int runs) {
  double *us = malloc((size_t)runs * sizeof *us);
  if (!us) return;
  for (int i = 0; i < runs; i++) {
    double start = smelt_host_now_us();
    smelt_host_once(call, run);
    us[i] = smelt_host_now_us() - start;
  }
  qsort(us, (size_t)runs, sizeof *us, smelt_host_by_value);
  printf("time: min %.3f us, median %.3f us over %d runs\n", us[0], us[runs / 2], runs);
  free(us);
}

static int smelt_host_compare(const smelt_host_call *call, const smelt_call_file *file, double tolerance) {
  int wrong = 0;
  for (int32_t i = 0; i < file->n_out; i++) {
    const smelt_call_tensor *expected = &file->tensor[file->n_in + i];
    smelt_call_difference d = smelt_call_compare(&call->out[i], expected, tolerance);
    if (d.same_shape)
      printf("output %d: %lld of %lld elements differ, worst error %.3g of the allowed 1\n", (int)i,
             (long long)d.wrong, (long long)d.count, d.worst);
    else
      printf("output %d: shape or type differs\n", (int)i);
    wrong |= !d.same_shape || d.wrong > 0;
  }
  puts(wrong ? "result: DIFFERENT" : "result: as expected");
  return wrong;
}

static int smelt_host_usage(const char *program) {
  fprintf(stderr,
          "usage: %s CALL_FILE [--region NAME] [--level NAME] [--threads N] [--runs N] [--tolerance X]\n"
          "Runs a region on the dumped inputs of CALL_FILE, compares with its outputs and prints the time.\n",
          program);
  return 2;
}

static int smelt_host_parse(int argc, char **argv, smelt_host_options *o) {
  for (int i = 1; i < argc; i++) {
    const char *value = i + 1 < argc ? argv[i + 1] : NULL;
    if (argv[i][0] != '-') {
      o->path = argv[i];
      continue;
    }
    if (!value) return 0;
    if (!strcmp(argv[i], "--region")) o->region = value;
    else if (!strcmp(argv[i], "--level")) o->level = value;
    else if (!strcmp(argv[i], "--threads")) o->threads = atoi(value);
    else if (!strcmp(argv[i], "--runs")) o->runs = atoi(value);
    else if (!strcmp(argv[i], "--tolerance")) o->tolerance = atof(value);
    else return 0;
    i++;
  }
  return o->path && o->threads >= 1 && o->runs >= 0;
}

static const smelt_entry *smelt_host_find(const char *name) {
  int32_t count = (int32_t)(sizeof smelt_entries / sizeof smelt_entries[0]);
  for (int32_t i = 0; i < count; i++)
    if (!name || !strcmp(name, smelt_entries[i].name)) return &smelt_entries[i];
  return NULL;
}

static const char *smelt_host_mismatch(const smelt_entry *entry, const smelt_call_file *file) {
  if (file->n_in != entry->n_in || file->n_out != entry->n_out) return "the file has another number of tensors";
  for (int32_t i = 0; i < file->n_in; i++) {
    const smelt_call_tensor *t = &file->tensor[i];
    if (t->rank < 0 && !(entry->optional && entry->optional[i])) return "a required input is absent from the file";
    if (t->rank >= 0 && t->type != entry->in_types[i]) return "an input of the file has another type";
  }
  return NULL;
}

static int smelt_host_execute(smelt_host_call *call, const smelt_call_file *file, smelt_region run,
                              const smelt_host_options *o) {
  smelt_message message;
  int32_t code = smelt_host_once(call, run);
  if (code) {
    smelt_explain(&message, call->entry, &call->env, code);
    fprintf(stderr, "%s\n", message.text);
    return 2;
  }
  int wrong = smelt_host_compare(call, file, o->tolerance);
  if (o->runs) smelt_host_time(call, run, o->runs);
  return wrong;
}

static int smelt_host_run(const smelt_entry *entry, const smelt_call_file *file, const smelt_host_options *o,
                          int32_t level) {
  smelt_region run = smelt_pick(entry);
  smelt_host_call call = {.entry = entry};
  size_t n_in = (size_t)entry->n_in, n_out = (size_t)entry->n_out;
  const void **in = calloc(n_in + 1, sizeof *in);
  const int64_t **dims = calloc(n_in + 1, sizeof *dims);
  int32_t *rank = calloc(n_in + 1, sizeof *rank);
  call.out = calloc(n_out + 1, sizeof *call.out);
  call.out_block = calloc(n_out + 1, sizeof *call.out_block);
  call.pool = smelt_host_pool_make(o->threads);
  if (!run || !in || !dims || !rank || !call.out || !call.out_block || !call.pool) {
    fprintf(stderr, "%s\n", run ? "out of memory" : "nothing was compiled for this CPU");
    return 2;
  }
  for (size_t i = 0; i < n_in; i++) {
    const smelt_call_tensor *t = &file->tensor[i];
    in[i] = t->rank < 0 ? NULL : t->data, dims[i] = t->dims, rank[i] = t->rank < 0 ? 0 : t->rank;
  }
  call.env.in = in, call.env.in_dims = dims, call.env.in_rank = rank;
  call.env.output = smelt_host_output, call.env.scratch = smelt_host_scratch, call.env.free_scratch = NULL;
  call.env.parallel = smelt_host_parallel, call.env.helpers = o->threads - 1, call.env.processors = o->threads;
  printf("region %s, level %s, %d thread(s)\n", entry->name, smelt_level_name(level), o->threads);
  int result = smelt_host_execute(&call, file, run, o);
  smelt_host_pool_end(call.pool);
  return result;
}

/* Blocks and tasks for this machine and so many threads; the part of SMELT_MACHINE that is not understood, or NULL. */
static const char *smelt_host_machine(int threads) {
  const char *strange = smelt_machine_load();
  smelt_machine m = smelt_this_machine;
  m.threads = threads;
  smelt_machine_apply(&m);
  return strange;
}

int main(int argc, char **argv) {
  smelt_host_options o = {.threads = 1, .runs = 20, .tolerance = 1e-6};
  smelt_call_file file;
  const char *why;
  if (!smelt_host_parse(argc, argv, &o)) return smelt_host_usage(argv[0]);
  if (o.level) setenv("SMELT_LEVEL", o.level, 1);
  int32_t level = smelt_cpu_level();
  const smelt_entry *entry = smelt_host_find(o.region);
  if ((why = smelt_host_machine(o.threads)))
    return fprintf(stderr, "SMELT_MACHINE takes " SMELT_MACHINE_FIELDS "=number, with commas; not %s\n", why), 2;
  if (level < 0) return fprintf(stderr, "no level of this CPU: %s\n", o.level ? o.level : SMELT_BASELINE), 2;
  if (!entry) return fprintf(stderr, "no region %s\n", o.region), 2;
  if ((why = smelt_call_load(o.path, &file))) return fprintf(stderr, "%s: %s\n", o.path, why), 2;
  if ((why = smelt_host_mismatch(entry, &file))) return fprintf(stderr, "%s: %s\n", o.path, why), 2;
  return smelt_host_run(entry, &file, &o, level);
}

#endif
