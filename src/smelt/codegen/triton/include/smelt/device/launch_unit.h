/* Loading modules and launching kernels. Included by one unit of a library, after driver_unit.h.
 *
 * Input:     smelt_device_kernel. Output: smelt_device_enter(), smelt_device_here(), smelt_device_launch().
 * Invariant: as in launch.h.
 */
#ifndef SMELT_DEVICE_LAUNCH_UNIT_H
#define SMELT_DEVICE_LAUNCH_UNIT_H

#include <smelt/device/driver_unit.h>
#include <smelt/device/launch.h>

enum { SMELT_CU_MAJOR = 75, SMELT_CU_MINOR = 76, SMELT_CU_DYNAMIC_SHARED = 8, SMELT_FREE_SHARED = 49152 };
enum { SMELT_CU_PROCESSORS = 16, SMELT_CU_THREADS = 39, SMELT_CU_SHARED = 81, SMELT_CU_REGISTERS = 82 };
enum { SMELT_MOST_GRID = 65535 };   /* along the second and third axis */
enum { SMELT_MOST_RESIDENT = 32 };  /* programs of a multiprocessor */
enum { SMELT_WAVE_CLOCKS = 800 };    /* until the first loads of a program are there */
enum { SMELT_PROGRAM_CLOCKS = 60 };  /* of a program beside its bytes */
enum { SMELT_CLOCK_BYTES = 12 };    /* of memory for each multiprocessor and clock */
enum { SMELT_HIP_BAD_IMAGE = 200, SMELT_HIP_NO_BINARY = 209, SMELT_HIP_BAD_FILE = 218, SMELT_HIP_SHARED_OBJECT = 303 };
#define SMELT_NO_ARCHITECTURE "no kernel was built for its architecture, and none older"

static int64_t smelt_lesser(int64_t a, int64_t b) { return a < b ? a : b; }

static pthread_mutex_t smelt_module_lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
  const smelt_driver *driver;
  smelt_device_loaded *loaded;
} smelt_modules[4096]; /* those that are loaded, to be unloaded */
static int32_t smelt_module_count;
static void *smelt_primaries[SMELT_MOST_DEVICES]; /* contexts that CUDA's runtime has, too; held until the library goes */
static int smelt_unload_at_exit; /* its address names this library's handlers */
static void smelt_device_unload(void *nothing);
extern int __cxa_atexit(void (*handler)(void *), void *given, void *library);
extern void __cxa_finalize(void *library);

static int32_t smelt_device_said(smelt_env *env, const smelt_device *device, const char *what, const char *which,
                                 smelt_driver_code code) {
  return smelt_device_fail(env, what, which, smelt_driver_text(device->driver, code));
}

/* The context that CUDA's runtime has on a device, and with it every stream of ONNX Runtime's. */
static int32_t smelt_device_use_primary(smelt_env *env, const smelt_driver *driver, int32_t ordinal) {
  smelt_driver_code code = 0;
  pthread_mutex_lock(&smelt_module_lock);
  if (!smelt_primaries[ordinal]) code = driver->retain(&smelt_primaries[ordinal], ordinal);
  if (code) smelt_primaries[ordinal] = NULL;
  void *context = smelt_primaries[ordinal];
  pthread_mutex_unlock(&smelt_module_lock);
  if (code) return smelt_device_fail(env, "cuDevicePrimaryCtxRetain", "", smelt_driver_text(driver, code));
  if ((code = driver->set_context(context)))
    return smelt_device_fail(env, "cuCtxSetCurrent", "", smelt_driver_text(driver, code));
  return SMELT_OK;
}

/* The calling thread's context, NULL: none, and its device, -1: none. */
static int32_t smelt_device_of_thread(smelt_env *env, const smelt_driver *driver, void **context, int *ordinal) {
  smelt_driver_code code = 0;
  *context = NULL, *ordinal = -1;
  if (driver->context && (code = driver->context(context)))
    return smelt_device_fail(env, "cuCtxGetCurrent", "", smelt_driver_text(driver, code));
  if (driver->context && !*context) return SMELT_OK;
  if ((code = driver->device(ordinal)))
    return smelt_device_fail(env, "the current device", "", smelt_driver_text(driver, code));
  return SMELT_OK;
}

/* A session may run on threads that have another device current, or none. A thread that had none keeps the new one, as it
 * does with CUDA's runtime. A driver that is not there is told of by smelt_device_here(). */
int32_t smelt_device_enter(smelt_env *env, int32_t ordinal, smelt_device_held *held) {
  const smelt_driver *driver = smelt_driver_for(env->device, NULL);
  void *context = NULL;
  int current = -1;
  memset(held, 0, sizeof *held);
  if (ordinal < 0 || ordinal >= SMELT_MOST_DEVICES || !driver) return SMELT_OK;
  if (smelt_device_of_thread(env, driver, &context, &current)) return env->code;
  if (current == ordinal) return SMELT_OK;
  if (driver->context) {
    if (smelt_device_use_primary(env, driver, ordinal)) return env->code;
  } else {
    const smelt_driver_code code = driver->set_device(ordinal);
    if (code) return smelt_device_fail(env, "hipSetDevice", "", smelt_driver_text(driver, code));
  }
  if (current >= 0) held->driver = driver, held->context = context, held->device = current;
  return SMELT_OK;
}

void smelt_device_leave(const smelt_device_held *held) {
  if (!held->driver) return;
  if (held->driver->context) held->driver->set_context(held->context);
  else held->driver->set_device(held->device);
}

static int32_t smelt_device_number(const smelt_device *device, int what) {
  int found = 0;
  return device->driver->attribute(&found, what, device->ordinal) || found < 0 ? 0 : found;
}

/* What the cost model knows of a device; nothing where the driver does not tell. HIP's numbers of attributes differ between
 * its releases. */
static void smelt_device_resources(smelt_device *device) {
  device->processors = smelt_device_number(device, SMELT_CU_PROCESSORS);
  device->threads = smelt_device_number(device, SMELT_CU_THREADS);
  device->registers = smelt_device_number(device, SMELT_CU_REGISTERS);
  device->shared = smelt_device_number(device, SMELT_CU_SHARED);
  if (!device->threads || !device->registers || !device->shared) device->processors = 0;
}

int32_t smelt_device_here(smelt_env *env, smelt_device *device) {
  memset(device, 0, sizeof *device);
  device->kind = env->device;
  const char *said = NULL;
  device->driver = smelt_driver_for(env->device, &said);
  if (!device->driver) return smelt_device_fail(env, "the GPU", "", said);
  void *context = NULL;
  int ordinal = 0, major = 0, minor = 0;
  smelt_driver_code code = 0;
  if (smelt_device_of_thread(env, device->driver, &context, &ordinal)) return env->code;
  if (ordinal < 0 && smelt_device_use_primary(env, device->driver, 0)) return env->code;
  ordinal = device->driver->context && !context ? 0 : ordinal;
  if (ordinal < 0 || ordinal >= SMELT_MOST_DEVICES)
    return smelt_device_fail(env, "the current device", "", "its number is beyond what this library keeps modules for");
  if (device->kind == SMELT_DEVICE_CUDA) {
    code = device->driver->attribute(&major, SMELT_CU_MAJOR, ordinal);
    if (!code) code = device->driver->attribute(&minor, SMELT_CU_MINOR, ordinal);
    if (code) return smelt_device_said(env, device, "cuDeviceGetAttribute", "", code);
  }
  device->ordinal = ordinal, device->capability = major * 10 + minor;
  if (device->kind == SMELT_DEVICE_CUDA) smelt_device_resources(device);
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
  /* Handlers run in the reverse order: ours comes before the driver's, which registered its own when it was loaded. */
  if (!smelt_unload_at_exit) smelt_unload_at_exit = !__cxa_atexit(smelt_device_unload, NULL, &smelt_unload_at_exit);
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

static int smelt_device_fits(const smelt_device *device, const smelt_device_kernel *kernel, int32_t place, int64_t columns,
                             const uint64_t *values) {
  const smelt_device_config *config = &kernel->configs[place];
  if (device->kind == SMELT_DEVICE_CUDA && !smelt_device_binary_for(config, device->capability)) return 0;
  if (config->most_columns && columns > config->most_columns) return 0;
  uint64_t rest = 0;
  for (int32_t bit = 0; bit < kernel->pointers + kernel->sizes && bit < 64; bit++)
    if (config->divisible >> bit & 1) rest |= values[bit] & 15;
  return !rest;
}

/* Programs that a multiprocessor holds at once, by threads, registers and shared memory. */
static int64_t smelt_device_resident(const smelt_device *device, const smelt_device_binary *binary) {
  int64_t most = smelt_lesser(SMELT_MOST_RESIDENT, device->threads / (binary->threads ? binary->threads : 1));
  if (binary->registers) most = smelt_lesser(most, device->registers / ((int64_t)binary->registers * binary->threads));
  if (binary->shared) most = smelt_lesser(most, device->shared / binary->shared);
  return most > 0 ? most : 1;
}

/* Clocks that a launch is expected to take: programs run in waves of what the device holds, each of which
 * waits for its first loads; a multiprocessor takes the time of its programs' bytes. */
static int64_t smelt_device_cost(const smelt_device *device, const smelt_device_config *config, const smelt_device_work *work) {
  const smelt_device_binary *binary = smelt_device_binary_for(config, device->capability);
  if (!binary) return INT64_MAX;
  const int64_t padded = (work->columns + config->block - 1) / config->block * config->block;
  const int64_t bytes = config->rows * (work->columns > 1 ? padded : 1) * config->passes * work->element_bytes;
  const int64_t programs = (work->rows + config->rows - 1) / config->rows;
  const int64_t room = smelt_device_resident(device, binary) * device->processors;
  const int64_t waves = (programs + room - 1) / room, each = (programs + device->processors - 1) / device->processors;
  const int64_t moved = each * (SMELT_PROGRAM_CLOCKS + bytes / SMELT_CLOCK_BYTES);
  return waves * SMELT_WAVE_CLOCKS + moved;
}

/* The one that was tuned; else the cheapest of those that fit, the first of equals; the last one always fits. */
static const smelt_device_config *smelt_device_config_for(const smelt_device *device, const smelt_device_kernel *kernel,
                                                          const smelt_device_work *work, const uint64_t *values) {
  const int32_t tuned = kernel->chosen - 1, last = kernel->count - 1;
  if (tuned >= 0 && tuned <= last && smelt_device_fits(device, kernel, tuned, work->columns, values))
    return &kernel->configs[tuned];
  const smelt_device_config *best = NULL;
  int64_t least = INT64_MAX;
  for (int32_t i = 0; i <= last; i++) {
    if (i < last && !smelt_device_fits(device, kernel, i, work->columns, values)) continue;
    if (!device->processors) return &kernel->configs[i];
    const int64_t cost = smelt_device_cost(device, &kernel->configs[i], work);
    if (!best || cost < least) best = &kernel->configs[i], least = cost;
  }
  return best;
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

static const char *smelt_device_too_large(const smelt_device *device, const int64_t *grid, int64_t threads) {
  if (grid[0] > INT32_MAX) return "the grid has more than 2^31 - 1 programs";
  if (grid[1] > SMELT_MOST_GRID || grid[2] > SMELT_MOST_GRID)
    return "the grid has more than 65535 programs along its second or third axis";
  if (device->kind == SMELT_DEVICE_ROCM && grid[0] * threads > UINT32_MAX) return "the grid has 2^32 threads or more";
  return NULL;
}

static int32_t smelt_device_start(smelt_env *env, const smelt_device *device, const smelt_device_kernel *kernel,
                                  const smelt_device_config *config, const int64_t *grid, void **arguments) {
  const int32_t given = kernel->pointers + kernel->sizes;
  const char *name = kernel->name;
  if (given + 2 > SMELT_DEVICE_ARGUMENTS) return smelt_device_fail(env, "a launch", name, "it has too many arguments");
  const char *large = smelt_device_too_large(device, grid, 1);
  if (large) return smelt_device_fail(env, "a launch", name, large);
  const smelt_device_loaded *loaded = smelt_device_loaded_for(env, device, config);
  if (!loaded) return env->code;
  const smelt_device_binary *binary = loaded->binary;
  if ((large = smelt_device_too_large(device, grid, binary->threads))) return smelt_device_fail(env, "a launch", name, large);
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

int32_t smelt_device_launch(smelt_env *env, const smelt_device *device, const smelt_device_kernel *kernel,
                            const smelt_device_work *work, void **arguments, const uint64_t *values) {
  if (work->rows <= 0) return SMELT_OK;
  const smelt_device_config *config = smelt_device_config_for(device, kernel, work, values);
  const int64_t grid[] = {(work->rows + config->rows - 1) / config->rows, 1, 1};
  return smelt_device_start(env, device, kernel, config, grid, arguments);
}

int32_t smelt_device_launch_grid(smelt_env *env, const smelt_device *device, const smelt_device_kernel *kernel,
                                 const int64_t *grid, void **arguments, const uint64_t *values) {
  if (grid[0] <= 0 || grid[1] <= 0 || grid[2] <= 0) return SMELT_OK;
  const char *large = smelt_device_too_large(device, grid, 1); /* before their product, which is less than 2^63 then */
  if (large) return smelt_device_fail(env, "a launch", kernel->name, large);
  const smelt_device_work work = {grid[0] * grid[1] * grid[2], 1, 1};
  const smelt_device_config *config = smelt_device_config_for(device, kernel, &work, values);
  return smelt_device_start(env, device, kernel, config, grid, arguments);
}

/* When the process ends, or the library goes. A module is unloaded in its own context; the thread has its own again after
 * that. */
static void smelt_device_unload(void *nothing) {
  (void)nothing;
  const smelt_driver *cuda = &smelt_drivers[0];
  void *held = NULL;
  const int has_held = smelt_module_count && smelt_drivers_ready[0] && !cuda->context(&held);
  while (smelt_module_count) {
    const smelt_driver *driver = smelt_modules[--smelt_module_count].driver;
    smelt_device_loaded *loaded = smelt_modules[smelt_module_count].loaded;
    if (loaded->context && driver->set_context(loaded->context)) continue;
    driver->unload(loaded->module);
    loaded->module = loaded->function = NULL;
  }
  if (has_held) cuda->set_context(held);
  for (int i = 0; i < SMELT_MOST_DEVICES; i++) {
    if (smelt_primaries[i]) cuda->release(i);
    smelt_primaries[i] = NULL;
  }
}

/* The library goes: the handler runs now, unless the process is ending and it has run. */
static __attribute__((destructor)) void smelt_device_gone(void) { __cxa_finalize(&smelt_unload_at_exit); }

#endif
