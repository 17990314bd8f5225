/* The one place that opens the driver's library. Included by one unit of a library.
 *
 * Input:     dlopen and dlsym of the host process, SMELT_CUDA_LIBRARY and SMELT_ROCM_LIBRARY where another file is wanted.
 * Output:    smelt_driver_for().
 * Invariant: a driver whose functions were not all found is never used.
 */
#ifndef SMELT_DEVICE_DRIVER_UNIT_H
#define SMELT_DEVICE_DRIVER_UNIT_H

#include <dlfcn.h>
#include <pthread.h>
#include <smelt/device/driver.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SMELT_MOST_REASONS = 16, SMELT_REASON_BYTES = 256 };

static smelt_driver smelt_drivers[2]; /* written once, before it is told of in smelt_drivers_ready */
static int smelt_drivers_ready[2];
static char smelt_driver_reasons[SMELT_MOST_REASONS][SMELT_REASON_BYTES]; /* each is written once: callers hold them */
static int smelt_driver_reason_count;
static pthread_mutex_t smelt_driver_lock = PTHREAD_MUTEX_INITIALIZER;

/* A driver that is being opened, under the lock. */
typedef struct {
  smelt_driver driver;
  char said[SMELT_REASON_BYTES]; /* why it cannot be used; empty: it can */
} smelt_driver_opening;

static void smelt_driver_say(smelt_driver_opening *opening, const char *a, const char *b) {
  snprintf(opening->said, sizeof opening->said, "%s%s", a, b ? b : "");
}

/* The reason as callers hold it: the same text for the same reason, however often it is found. */
static const char *smelt_driver_reason(const char *said) {
  for (int i = 0; i < smelt_driver_reason_count; i++)
    if (!strcmp(smelt_driver_reasons[i], said)) return smelt_driver_reasons[i];
  if (smelt_driver_reason_count == SMELT_MOST_REASONS) return "the GPU driver cannot be used, for one more reason than are kept";
  return strcpy(smelt_driver_reasons[smelt_driver_reason_count++], said);
}

static void *smelt_driver_open(smelt_driver_opening *opening, const char *variable, const char *const *names) {
  const char *chosen = getenv(variable);
  const char *const given[] = {chosen, NULL};
  for (const char *const *name = chosen && *chosen ? given : names; *name; name++) {
    void *found = dlopen(*name, RTLD_NOW | RTLD_LOCAL);
    if (found) return opening->said[0] = 0, found;
    if (!opening->said[0]) smelt_driver_say(opening, "the GPU driver cannot be loaded: ", dlerror());
  }
  return NULL;
}

/* A function of the library, or NULL with the reason said. */
static void *smelt_driver_symbol(smelt_driver_opening *opening, void *library, const char *name) {
  void *found = dlsym(library, name);
  if (!found && !opening->said[0]) smelt_driver_say(opening, "the GPU driver is too old or not one: it has no ", name);
  return found;
}

#define SMELT_SYMBOL(field, name)                                  \
  {                                                                \
    void *found = smelt_driver_symbol(opening, library, name);     \
    memcpy(&opening->driver.field, &found, sizeof found);          \
  }

static void smelt_driver_cuda(smelt_driver_opening *opening) {
  static const char *const names[] = {"libcuda.so.1", "libcuda.so", NULL};
  void *library = smelt_driver_open(opening, "SMELT_CUDA_LIBRARY", names);
  if (!library) return;
  SMELT_SYMBOL(init, "cuInit")
  SMELT_SYMBOL(context, "cuCtxGetCurrent")
  SMELT_SYMBOL(set_context, "cuCtxSetCurrent")
  SMELT_SYMBOL(retain, "cuDevicePrimaryCtxRetain")
  SMELT_SYMBOL(release, "cuDevicePrimaryCtxRelease_v2")
  SMELT_SYMBOL(device, "cuCtxGetDevice")
  SMELT_SYMBOL(attribute, "cuDeviceGetAttribute")
  SMELT_SYMBOL(load, "cuModuleLoadData")
  SMELT_SYMBOL(unload, "cuModuleUnload")
  SMELT_SYMBOL(function, "cuModuleGetFunction")
  SMELT_SYMBOL(set, "cuFuncSetAttribute")
  SMELT_SYMBOL(launch, "cuLaunchKernel")
  SMELT_SYMBOL(error_out, "cuGetErrorString")
}

static void smelt_driver_rocm(smelt_driver_opening *opening) {
  static const char *const names[] = {"libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so", NULL};
  void *library = smelt_driver_open(opening, "SMELT_ROCM_LIBRARY", names);
  if (!library) return;
  SMELT_SYMBOL(init, "hipInit")
  SMELT_SYMBOL(device, "hipGetDevice")
  SMELT_SYMBOL(set_device, "hipSetDevice")
  SMELT_SYMBOL(attribute, "hipDeviceGetAttribute")
  SMELT_SYMBOL(load, "hipModuleLoadData")
  SMELT_SYMBOL(unload, "hipModuleUnload")
  SMELT_SYMBOL(function, "hipModuleGetFunction")
  SMELT_SYMBOL(launch, "hipModuleLaunchKernel")
  SMELT_SYMBOL(error, "hipGetErrorString")
}

/* Under the lock; the reason why it cannot be used, NULL: it can. */
static const char *smelt_driver_start(int rocm) {
  smelt_driver_opening opening;
  memset(&opening, 0, sizeof opening);
  if (rocm) smelt_driver_rocm(&opening);
  else smelt_driver_cuda(&opening);
  const smelt_driver_code code = opening.said[0] ? 0 : opening.driver.init(0);
  if (code) smelt_driver_say(&opening, "the GPU driver cannot start: ", smelt_driver_text(&opening.driver, code));
  if (opening.said[0]) return smelt_driver_reason(opening.said);
  smelt_drivers[rocm] = opening.driver;
  __atomic_store_n(&smelt_drivers_ready[rocm], 1, __ATOMIC_RELEASE);
  return NULL;
}

const smelt_driver *smelt_driver_for(int32_t device, const char **said) {
  const int rocm = device == SMELT_DEVICE_ROCM;
  if (__atomic_load_n(&smelt_drivers_ready[rocm], __ATOMIC_ACQUIRE)) return &smelt_drivers[rocm];
  pthread_mutex_lock(&smelt_driver_lock);
  /* a machine may get its driver while the process runs */
  const char *reason = smelt_drivers_ready[rocm] ? NULL : smelt_driver_start(rocm);
  pthread_mutex_unlock(&smelt_driver_lock);
  if (reason && said) *said = reason;
  return reason ? NULL : &smelt_drivers[rocm];
}

#endif
