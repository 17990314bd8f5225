/* The dumped tensors of one call, and how a result is compared with them.
 *
 * Input:     a file written by smelt.runtime.write_call: "SMELTIO1", int32 n_in, int32 n_out, then each input and each
 *            expected output: int32 type, int32 rank (-1 = absent), int64 dims[rank], int64 bytes, zeros up to the next
 *            multiple of 64 in the file, data. Little endian.
 * Output:    smelt_call_file, whose data pointers are 64-byte aligned, and smelt_call_compare().
 * Invariant: a file that is short, too long or inconsistent is refused; nothing is read past its end.
 */
#ifndef SMELT_CALL_FILE_H
#define SMELT_CALL_FILE_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SMELT_CALL_MAX_RANK 64
#define SMELT_CALL_MAX_TENSORS 4096

typedef struct {
  int32_t type, rank;
  int64_t dims[SMELT_CALL_MAX_RANK];
  int64_t bytes;
  void *data;
} smelt_call_tensor;

typedef struct {
  int32_t n_in, n_out;
  smelt_call_tensor *tensor;
  unsigned char *base;
  int64_t size, at;
} smelt_call_file;

typedef struct {
  int same_shape;
  int64_t count, wrong;
  double worst; /* largest error as a multiple of what is allowed */
} smelt_call_difference;

enum { SMELT_F32 = 1, SMELT_U8, SMELT_I8, SMELT_U16, SMELT_I16, SMELT_I32, SMELT_I64, SMELT_BOOL = 9, SMELT_F16,
       SMELT_F64, SMELT_U32, SMELT_U64, SMELT_BF16 = 16 };

static int64_t smelt_call_item_bytes(int32_t type) {
  switch (type) {
    case SMELT_U8: case SMELT_I8: case SMELT_BOOL: return 1;
    case SMELT_U16: case SMELT_I16: case SMELT_F16: case SMELT_BF16: return 2;
    case SMELT_F32: case SMELT_I32: case SMELT_U32: return 4;
    case SMELT_F64: case SMELT_I64: case SMELT_U64: return 8;
    default: return -1;
  }
}

/* Size in bytes by type and dims; -1 where it is negative, unknown or too large. */
static int64_t smelt_call_bytes(const smelt_call_tensor *t) {
  int64_t bytes = smelt_call_item_bytes(t->type);
  for (int32_t i = 0; i < t->rank; i++)
    if (bytes < 0 || t->dims[i] < 0 || __builtin_mul_overflow(bytes, t->dims[i], &bytes)) return -1;
  return bytes;
}

static int smelt_call_take(smelt_call_file *file, void *to, int64_t bytes) {
  if (bytes < 0 || bytes > file->size - file->at) return 0;
  memcpy(to, file->base + file->at, (size_t)bytes);
  file->at += bytes;
  return 1;
}

static const char *smelt_call_tensor_from(smelt_call_file *file, smelt_call_tensor *t) {
  if (!smelt_call_take(file, &t->type, 4) || !smelt_call_take(file, &t->rank, 4)) return "the file is cut short";
  if (t->rank < 0) return NULL;
  if (t->rank > SMELT_CALL_MAX_RANK) return "a tensor has too many dims";
  if (!smelt_call_take(file, t->dims, t->rank * 8) || !smelt_call_take(file, &t->bytes, 8))
    return "the file is cut short";
  if (t->bytes < 0 || t->bytes != smelt_call_bytes(t)) return "a tensor's size does not fit its shape";
  file->at = (file->at + 63) / 64 * 64;
  if (file->at > file->size || t->bytes > file->size - file->at) return "the file is cut short";
  t->data = file->base + file->at;
  file->at += t->bytes;
  return NULL;
}

static const char *smelt_call_parse(smelt_call_file *file) {
  char magic[8];
  if (!smelt_call_take(file, magic, 8) || memcmp(magic, "SMELTIO1", 8)) return "not a dumped call";
  if (!smelt_call_take(file, &file->n_in, 4) || !smelt_call_take(file, &file->n_out, 4)) return "the file is cut short";
  if (file->n_in < 0 || file->n_out < 0 || file->n_in > SMELT_CALL_MAX_TENSORS || file->n_out > SMELT_CALL_MAX_TENSORS)
    return "impossible number of tensors";
  file->tensor = calloc((size_t)(file->n_in + file->n_out) + 1, sizeof *file->tensor);
  if (!file->tensor) return "out of memory";
  for (int32_t i = 0; i < file->n_in + file->n_out; i++) {
    const char *why = smelt_call_tensor_from(file, &file->tensor[i]);
    if (why) return why;
  }
  return file->at == file->size ? NULL : "bytes after the last tensor";
}

static const char *smelt_call_load(const char *path, smelt_call_file *file) {
  FILE *stream = fopen(path, "rb");
  memset(file, 0, sizeof *file);
  if (!stream) return "cannot be opened";
  if (fseek(stream, 0, SEEK_END) == 0) file->size = ftell(stream);
  rewind(stream);
  if (file->size > 0) file->base = aligned_alloc(64, ((size_t)file->size + 127) / 64 * 64);
  size_t got = file->base ? fread(file->base, 1, (size_t)file->size, stream) : 0;
  fclose(stream);
  return file->base && got == (size_t)file->size ? smelt_call_parse(file) : "cannot be read";
}

static double smelt_call_item(const smelt_call_tensor *t, int64_t i) {
  return t->type == SMELT_F64 ? ((const double *)t->data)[i] : (double)((const float *)t->data)[i];
}

static double smelt_call_root(double x) { /* Newton; no libm */
  double y = x > 1 ? x : 1;
  if (!(x > 0)) return 0;
  for (int i = 0; i < 600; i++) {
    double next = 0.5 * (y + x / y);
    if (next >= y) break;
    y = next;
  }
  return y;
}

static double smelt_call_rms(const smelt_call_tensor *t, int64_t count) {
  double sum = 0;
  int64_t finite = 0;
  for (int64_t i = 0; i < count; i++) {
    double x = smelt_call_item(t, i);
    if (x - x == 0) sum += x * x, finite++;
  }
  return finite ? smelt_call_root(sum / (double)finite) : 0;
}

/* Error as a multiple of tolerance * (|expected| + rms); 0 for the same value, the same infinity, or NaN for NaN. */
static double smelt_call_error(double got, double expected, double rms, double tolerance) {
  if (got == expected || (got != got && expected != expected)) return 0;
  double error = got > expected ? got - expected : expected - got;
  double allowed = tolerance * ((expected < 0 ? -expected : expected) + rms);
  if (!(error - error == 0)) return 1e300;
  return allowed > 0 ? error / allowed : 1e300;
}

static void smelt_call_compare_floats(smelt_call_difference *d, const smelt_call_tensor *got,
                                      const smelt_call_tensor *expected, double tolerance) {
  double rms = smelt_call_rms(expected, d->count);
  for (int64_t i = 0; i < d->count; i++) {
    double error = smelt_call_error(smelt_call_item(got, i), smelt_call_item(expected, i), rms, tolerance);
    d->wrong += error > 1;
    if (error > d->worst) d->worst = error;
  }
}

/* Floats by tolerance * (|expected| + rms of all expected values); everything else bit by bit. */
static smelt_call_difference smelt_call_compare(const smelt_call_tensor *got, const smelt_call_tensor *expected,
                                                double tolerance) {
  smelt_call_difference d = {0, 0, 0, 0};
  size_t dims_bytes = expected->rank > 0 ? (size_t)expected->rank * sizeof expected->dims[0] : 0;
  d.same_shape = got->type == expected->type && got->rank == expected->rank &&
                 memcmp(got->dims, expected->dims, dims_bytes) == 0;
  if (!d.same_shape || expected->rank < 0) return d;
  int64_t item = smelt_call_item_bytes(expected->type);
  d.count = expected->bytes / item;
  if (expected->type == SMELT_F32 || expected->type == SMELT_F64) {
    smelt_call_compare_floats(&d, got, expected, tolerance);
    return d;
  }
  for (int64_t i = 0; i < d.count; i++)
    d.wrong += memcmp((char *)got->data + i * item, (char *)expected->data + i * item, (size_t)item) != 0;
  d.worst = d.wrong ? 1e300 : 0;
  return d;
}

#endif
