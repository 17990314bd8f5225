/* Loading modules and launching kernels. Included by one unit of a library, after driver_unit.h.
 *
 * Input:     smelt_device_kernel. Output: smelt_device_here(), smelt_device_launch().
 * Invariant: as in launch.h.
 */
#ifndef SMELT_DEVICE_LAUNCH_UNIT_H
#define SMELT_DEVICE_LAUNCH_UNIT_H

#include <smelt/device/driver_unit.h>
#include <smelt/device/launch.h>

enum { SMELT_CU_MAJOR = 75, SMELT_CU_MINOR = 76, SMELT_CU_DYNAMIC_SHARED = 8, SMELT_FREE_SHARED = 49152 };
enum { SMELT_MOST_GRID = 65535 }; /* along the second and third axis */
enum { SMELT_HIP_BAD_IMAGE = 200, SMELT_HIP_NO_BINARY = 209, SMELT_HIP_BAD_FILE = 218, SMELT_HIP_SHARED_OBJECT = 303 };
#define SMELT_NO_ARCHITECTURE "no kernel was built for its architecture, and none older"

static pthread_mutex_t smelt_module_lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
  const smelt_driver *driver;
  smelt_device_loaded *loaded;
} smelt_modules[4096]; /* those that are loaded, to be unloaded */
static int32_t smelt_module_count;

static int32_t smelt_device_said(smelt_env *env, const smelt_device *device, const char *what, const char *which,
                                 smelt_driver_code code) {
  return smelt_device_fail(env, what, which, smelt_driver_text(device->driver, code));
}

/* A thread without a context gets the first device's own, which is what the runtime would do. */
static int32_t smelt_device_context(smelt_env *env, smelt_device *device) {
  const smelt_driver *driver = device->driver;
  void *context = NULL;
  smelt_driver_code code = driver->context(&context);
  if (code) return smelt_device_said(env, device, "cuCtxGetCurrent", "", code);
  if (context) return SMELT_OK;
  if ((code = driver->retain(&context, 0))) return smelt_device_said(env, device, "cuDevicePrimaryCtxRetain", "", code);
  if ((code = driver->set_context(context))) return smelt_device_said(env, device, "cuCtxSetCurrent", "", code);
  return SMELT_OK;
}

int32_t smelt_device_here(smelt_env *env, smelt_device *device) {
  device->kind = env->device;
  device->driver = smelt_driver_for(env->device);
  if (device->driver->ready < 0) return smelt_device_fail(env, "the GPU", "", device->driver->said);
  if (device->driver->context && smelt_device_context(env, device)) return env->code;
  int ordinal = 0, major = 0, minor = 0;
  smelt_driver_code code = device->driver->device(&ordinal);
  if (code) return smelt_device_said(env, device, "the current device", "", code);
  if (ordinal < 0 || ordinal >= SMELT_MOST_DEVICES)
    return smelt_device_fail(env, "the current device", "", "its number is beyond what this library keeps modules for");
  if (device->kind == SMELT_DEVICE_CUDA) {
    code = device->driver->attribute(&major, SMELT_CU_MAJOR, ordinal);
    if (!code) code = device->driver->attribute(&minor, SMELT_CU_MINOR, ordinal);
    if (code) return smelt_device_said(env, device, "cuDeviceGetAttribute", "", code);
  }
  device->ordinal = ordinal, device->capability = major * 10 + minor;
  return SMELT_OK;
}

/* The best binary for a CUDA device: its own; else one of an earlier device of its family, which those from 9.0 on do not run;
 * else PTX, which the driver compiles. */
static const smelt_device_binary *smelt_device_binary_for(const smelt_device_config *config, int32_t capability) {
  const smelt_device_binary *best = NULL;
  for (int32_t i = 0; i < config->count; i++) {
    const smelt_device_binary *one = &config->binaries[i];
    if (one->kind == SMELT_CUBIN && one->arch == capability) return one;
    const int family = one->kind == SMELT_CUBIN && one->arch < 90 && one->arch / 10 == capability / 10;
    if (family && one->arch < capability && (!best || best->kind == SMELT_PTX || one->arch > best->arch)) best = one;
    if (one->kind == SMELT_PTX && one->arch <= capability && !best) best = one;
  }
  return best;
}

static smelt_driver_code smelt_device_try(const smelt_device *device, const smelt_device_config *config,
                                          const smelt_device_binary *binary, smelt_device_loaded *loaded, const char **what) {
  const smelt_driver *driver = device->driver;
  const int cuda = device->kind == SMELT_DEVICE_CUDA;
  *what = cuda ? "cuModuleLoadData" : "hipModuleLoadData";
  smelt_driver_code code = driver->load(&loaded->module, binary->bytes);
  if (code) return code;
  void *function = NULL;
  *what = cuda ? "cuModuleGetFunction" : "hipModuleGetFunction";
  code = driver->function(&function, loaded->module, config->function);
  if (!code && binary->shared > SMELT_FREE_SHARED && driver->set) {
    *what = "cuFuncSetAttribute";
    code = driver->set(function, SMELT_CU_DYNAMIC_SHARED, binary->shared);
  }
  if (!code && driver->context) {
    *what = "cuCtxGetCurrent";
    code = driver->context(&loaded->context);
  }
  if (code) {
    driver->unload(loaded->module);
    loaded->module = NULL;
    return code;
  }
  loaded->binary = binary;
  __atomic_store_n(&loaded->function, function, __ATOMIC_RELEASE);
  if (smelt_module_count < (int32_t)(sizeof smelt_modules / sizeof smelt_modules[0])) {
    smelt_modules[smelt_module_count].driver = driver;
    smelt_modules[smelt_module_count++].loaded = loaded;
  }
  return 0;
}

/* Whether a binary is of another architecture, as HIP's releases say it; any other failure is one. */
static int smelt_device_is_foreign(smelt_driver_code code) {
  return code == SMELT_HIP_NO_BINARY || code == SMELT_HIP_BAD_IMAGE || code == SMELT_HIP_BAD_FILE ||
         code == SMELT_HIP_SHARED_OBJECT;
}

/* HIP tells no architecture in a way that has stayed the same: each binary is offered, and the runtime takes its own. */
static int32_t smelt_device_load(smelt_env *env, const smelt_device *device, const smelt_device_config *config,
                                 smelt_device_loaded *loaded) {
  const char *what = "";
  smelt_driver_code code = 0;
  if (device->kind == SMELT_DEVICE_CUDA) {
    const smelt_device_binary *binary = smelt_device_binary_for(config, device->capability);
    if (!binary) return smelt_device_fail(env, "the GPU", config->function, SMELT_NO_ARCHITECTURE);
    code = smelt_device_try(device, config, binary, loaded, &what);
    return code ? smelt_device_said(env, device, what, config->function, code) : SMELT_OK;
  }
  for (int32_t i = 0; i < config->count; i++) {
    if (config->binaries[i].kind != SMELT_HSACO) continue;
    code = smelt_device_try(device, config, &config->binaries[i], loaded, &what);
    if (!code) return SMELT_OK;
    if (!smelt_device_is_foreign(code)) return smelt_device_said(env, device, what, config->function, code);
  }
  return smelt_device_fail(env, "the GPU", config->function, SMELT_NO_ARCHITECTURE);
}

static const smelt_device_config *smelt_device_config_for(const smelt_device *device, const smelt_device_kernel *kernel,
                                                          int64_t columns, const uint64_t *values) {
  for (int32_t i = 0; i + 1 < kernel->count; i++) {
    const smelt_device_config *config = &kernel->configs[i];
    if (device->kind == SMELT_DEVICE_CUDA && !smelt_device_binary_for(config, device->capability)) continue;
    if (config->most_columns && columns > config->most_columns) continue;
    uint64_t rest = 0;
    for (int32_t bit = 0; bit < kernel->pointers + kernel->sizes && bit < 64; bit++)
      if (config->divisible >> bit & 1) rest |= values[bit] & 15;
    if (!rest) return config;
  }
  return &kernel->configs[kernel->count - 1];
}

/* The function for this device, whose module is loaded now if it was not. NULL: it failed. */
static smelt_device_loaded *smelt_device_loaded_for(smelt_env *env, const smelt_device *device,
                                                    const smelt_device_config *config) {
  smelt_device_loaded *loaded =
      &config->loaded[(device->kind == SMELT_DEVICE_ROCM ? SMELT_MOST_DEVICES : 0) + device->ordinal];
  if (__atomic_load_n(&loaded->function, __ATOMIC_ACQUIRE)) return loaded;
  pthread_mutex_lock(&smelt_module_lock);
  const int32_t failed = loaded->function ? SMELT_OK : smelt_device_load(env, device, config, loaded);
  pthread_mutex_unlock(&smelt_module_lock);
  return failed ? NULL : loaded;
}

static int32_t smelt_device_start(smelt_env *env, const smelt_device *device, const smelt_device_kernel *kernel,
                                  const smelt_device_config *config, const int64_t *grid, void **arguments) {
  const int32_t given = kernel->pointers + kernel->sizes;
  const char *name = kernel->name;
  if (given + 2 > SMELT_DEVICE_ARGUMENTS) return smelt_device_fail(env, "a launch", name, "it has too many arguments");
  if (grid[0] > INT32_MAX) return smelt_device_fail(env, "a launch", name, "the grid has more than 2^31 - 1 programs");
  if (grid[1] > SMELT_MOST_GRID || grid[2] > SMELT_MOST_GRID)
    return smelt_device_fail(env, "a launch", name, "the grid has more than 65535 programs along its second or third axis");
  const smelt_device_loaded *loaded = smelt_device_loaded_for(env, device, config);
  if (!loaded) return env->code;
  const smelt_device_binary *binary = loaded->binary;
  void *nothing = NULL; /* scratch memory that Triton's calling convention has room for, and these kernels do not use */
  void *all[SMELT_DEVICE_ARGUMENTS];
  for (int32_t i = 0; i < given; i++) all[i] = arguments[i];
  all[given] = all[given + 1] = &nothing;
  const smelt_driver_code code =
      device->driver->launch(loaded->function, (unsigned)grid[0], (unsigned)grid[1], (unsigned)grid[2],
                             (unsigned)binary->threads, 1, 1, (unsigned)binary->shared, env->queue, all, NULL);
  if (!code) return SMELT_OK;
  const char *call = device->kind == SMELT_DEVICE_CUDA ? "cuLaunchKernel" : "hipModuleLaunchKernel";
  return smelt_device_said(env, device, call, name, code);
}

int32_t smelt_device_launch(smelt_env *env, const smelt_device *device, const smelt_device_kernel *kernel, int64_t rows,
                            int64_t columns, void **arguments, const uint64_t *values) {
  if (rows <= 0) return SMELT_OK;
  const smelt_device_config *config = smelt_device_config_for(device, kernel, columns, values);
  const int64_t grid[] = {(rows + config->rows - 1) / config->rows, 1, 1};
  return smelt_device_start(env, device, kernel, config, grid, arguments);
}

int32_t smelt_device_launch_grid(smelt_env *env, const smelt_device *device, const smelt_device_kernel *kernel,
                                 const int64_t *grid, void **arguments, const uint64_t *values) {
  if (grid[0] <= 0 || grid[1] <= 0 || grid[2] <= 0) return SMELT_OK;
  const smelt_device_config *config = smelt_device_config_for(device, kernel, 0, values);
  return smelt_device_start(env, device, kernel, config, grid, arguments);
}

/* When the library goes. A module is unloaded in its own context; the thread has its own again after that. A driver that is
 * gone already says so, and nothing is lost. */
static __attribute__((destructor)) void smelt_device_unload(void) {
  const smelt_driver *cuda = &smelt_drivers[0];
  void *held = NULL;
  const int has_held = smelt_module_count && cuda->ready > 0 && !cuda->context(&held);
  while (smelt_module_count) {
    const smelt_driver *driver = smelt_modules[--smelt_module_count].driver;
    smelt_device_loaded *loaded = smelt_modules[smelt_module_count].loaded;
    if (loaded->context && driver->set_context(loaded->context)) continue;
    driver->unload(loaded->module);
    loaded->module = loaded->function = NULL;
  }
  if (has_held) cuda->set_context(held);
}

#endif
