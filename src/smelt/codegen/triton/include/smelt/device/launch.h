/* Kernels for a GPU, and how a region launches them.
 *
 * Input:     smelt_device_kernel, a table that the code generator writes: configurations, each with its binaries.
 * Output:    smelt_device_here(), smelt_device_launch().
 * Invariant: a module is loaded once per device, under a lock, and kept until the library goes. Of the configurations whose
 *            conditions hold a launch takes the one that is expected to be the fastest; the last one has no conditions. Nothing
 *            waits for the GPU: launches go to the session's stream, in order.
 */
#ifndef SMELT_DEVICE_LAUNCH_H
#define SMELT_DEVICE_LAUNCH_H

#include <smelt/device/driver.h>

enum { SMELT_CUBIN = 0, SMELT_PTX = 1, SMELT_HSACO = 2 };
enum { SMELT_DEVICE_ARGUMENTS = 120 };
#define SMELT_DEVICE_MOST ((int64_t)2147418111) /* elements that indices of 32 bits reach, a block's surplus included */

/* A size in 32 bits. What is beyond is no size of a tensor, which are checked, but the end of a slice, say, that means
 * "all": it stays beyond. */
static inline int32_t smelt_device_narrow(int64_t size) {
  return (int32_t)(size > SMELT_DEVICE_MOST ? SMELT_DEVICE_MOST : size < -SMELT_DEVICE_MOST ? -SMELT_DEVICE_MOST : size);
}

typedef struct {
  const char *bytes;
  int64_t size;
  int32_t kind, arch; /* arch: 80 for sm_80 */
  int32_t threads, shared;
  int32_t registers; /* of a thread; 0: not known */
} smelt_device_binary;

typedef struct {
  void *module, *function, *context; /* context: NULL for HIP */
  const smelt_device_binary *binary; /* the one that the driver took */
} smelt_device_loaded;

typedef struct {
  const char *function;
  int32_t rows;         /* rows, or elements, that a program takes */
  int32_t most_columns; /* 0: any number */
  int32_t block, passes; /* columns, or elements, at a time; how often a row is read */
  uint64_t divisible;   /* bits of the arguments, pointers first, that must be multiples of 16 */
  const smelt_device_binary *binaries;
  int32_t count;
  smelt_device_loaded *loaded; /* SMELT_MOST_DEVICES for CUDA, then as many for HIP */
} smelt_device_config;

typedef struct {
  const char *name;
  const smelt_device_config *configs;
  int32_t count, pointers, sizes, wide;
  int32_t chosen; /* the configuration that was tuned, counted from 1, where its conditions hold; 0: by cost */
} smelt_device_kernel;

typedef struct {
  int64_t rows, columns; /* what programs share out, the length of a row */
  int64_t element_bytes; /* of one element of each buffer */
} smelt_device_work;

typedef struct {
  const smelt_driver *driver;
  int32_t kind, ordinal, capability; /* capability: 86 for 8.6 */
  int32_t processors, threads, registers, shared; /* of a multiprocessor; no processors: not known */
} smelt_device;

/* The device of the calling thread, which the session has made current. Not 0: it failed. */
int32_t smelt_device_here(smelt_env *env, smelt_device *device);

/* `arguments` are the addresses of pointers, then of sizes, `values` the same as numbers. */
int32_t smelt_device_launch(smelt_env *env, const smelt_device *device, const smelt_device_kernel *kernel,
                            const smelt_device_work *work, void **arguments, const uint64_t *values);

/* The same by a grid of its own; values are those of the arguments, in their order. */
int32_t smelt_device_launch_grid(smelt_env *env, const smelt_device *device, const smelt_device_kernel *kernel,
                                 const int64_t *grid, void **arguments, const uint64_t *values);

#endif
