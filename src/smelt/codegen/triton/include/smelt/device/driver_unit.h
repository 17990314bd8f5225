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
#include <stdlib.h>
#include <string.h>

static smelt_driver smelt_drivers[2];
static pthread_mutex_t smelt_driver_lock = PTHREAD_MUTEX_INITIALIZER;

static void smelt_driver_say(smelt_driver *driver, const char *a, const char *b) {
  size_t used = 0;
  for (; *a && used + 1 < sizeof driver->said; a++) driver->said[used++] = *a;
  for (; b && *b && used + 1 < sizeof driver->said; b++) driver->said[used++] = *b;
  driver->said[used] = 0;
  driver->ready = -1;
}

static void *smelt_driver_open(smelt_driver *driver, const char *variable, const char *const *names) {
  const char *chosen = getenv(variable), *said = NULL;
  if (chosen && *chosen) {
    void *found = dlopen(chosen, RTLD_NOW | RTLD_LOCAL);
    if (!found) smelt_driver_say(driver, "the GPU driver cannot be loaded: ", dlerror());
    return found;
  }
  for (; *names; names++) {
    void *found = dlopen(*names, RTLD_NOW | RTLD_LOCAL);
    if (found) return found;
    if (!said) said = dlerror(), smelt_driver_say(driver, "the GPU driver cannot be loaded: ", said);
  }
  return NULL;
}

/* A function of the library, or NULL with the reason said. */
static void *smelt_driver_symbol(smelt_driver *driver, void *library, const char *name) {
  void *found = dlsym(library, name);
  if (!found && driver->ready >= 0) smelt_driver_say(driver, "the GPU driver is too old or not one: it has no ", name);
  return found;
}

#define SMELT_SYMBOL(field, name)                                  \
  {                                                                \
    void *found = smelt_driver_symbol(driver, library, name);      \
    memcpy(&driver->field, &found, sizeof found);                  \
  }

static void smelt_driver_cuda(smelt_driver *driver) {
  static const char *const names[] = {"libcuda.so.1", "libcuda.so", NULL};
  void *library = smelt_driver_open(driver, "SMELT_CUDA_LIBRARY", names);
  if (!library) return;
  driver->ready = 0;
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

static void smelt_driver_rocm(smelt_driver *driver) {
  static const char *const names[] = {"libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so", NULL};
  void *library = smelt_driver_open(driver, "SMELT_ROCM_LIBRARY", names);
  if (!library) return;
  driver->ready = 0;
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

const smelt_driver *smelt_driver_for(int32_t device) {
  smelt_driver *driver = &smelt_drivers[device == SMELT_DEVICE_ROCM];
  if (__atomic_load_n(&driver->ready, __ATOMIC_ACQUIRE) > 0) return driver;
  pthread_mutex_lock(&smelt_driver_lock);
  if (driver->ready <= 0) { /* a machine may get its driver while the process runs */
    smelt_driver made;
    memset(&made, 0, sizeof made);
    if (device == SMELT_DEVICE_ROCM) smelt_driver_rocm(&made);
    else smelt_driver_cuda(&made);
    if (made.ready == 0) {
      const smelt_driver_code code = made.init(0);
      if (code) smelt_driver_say(&made, "the GPU driver cannot start: ", smelt_driver_text(&made, code));
    }
    const int ready = made.ready == 0 ? 1 : -1;
    made.ready = 0;
    *driver = made;
    __atomic_store_n(&driver->ready, ready, __ATOMIC_RELEASE);
  }
  pthread_mutex_unlock(&smelt_driver_lock);
  return driver;
}

#endif
