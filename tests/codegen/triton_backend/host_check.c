/* The host's code of device kernels against a mock driver, without ONNX Runtime, so that sanitizers and valgrind see all of it.
 *
 * Input:     argv: the mock library, then cuda or rocm. Output: exit code 0, or 1 with the line that does not hold.
 * Invariant: binaries are headers of ELF files alone, which is what a mock looks at.
 */
#include <smelt/device/launch_unit.h>
#include <stdio.h>
#include <time.h>

#define CHECK(what) \
  if (!(what)) return fprintf(stderr, "line %d: %s\n", __LINE__, #what), 1

enum { CONFIGS = 300 };
typedef const char *(*log_function)(void);
typedef int (*count_function)(void);
typedef void (*set_function)(int, int, int, int, int);
typedef void (*fail_function)(const char *, int);
typedef void (*launch_callback)(const char *, const unsigned *, unsigned, unsigned, void *, void **);
typedef void (*callback_function)(launch_callback);

static log_function mock_log;
static count_function mock_modules;
static void (*mock_reset)(void);
static set_function mock_set;
static fail_function mock_fail;
static void (*mock_resources)(int);
static callback_function mock_on_launch;
static int cuda;

static char images[3][64]; /* sm_80, sm_90; or gfx942, gfx1100 */
static const char ptx[] = ".version 8.4\n.target sm_80\n";
static smelt_device_binary binaries[3];
static smelt_device_loaded loaded[CONFIGS][2 * SMELT_MOST_DEVICES];
static smelt_device_config configs[CONFIGS];
static uint64_t seen[5];
static int launches, chosen;

static void elf(char *image, uint16_t machine, uint32_t flags) {
  memcpy(image, "\177ELF", 4), memcpy(image + 18, &machine, 2), memcpy(image + 48, &flags, 4);
}

static void tables(void) {
  elf(images[0], cuda ? 190 : 224, cuda ? 80 : 0x4c);
  elf(images[1], cuda ? 190 : 224, cuda ? 90 : 0x41);
  binaries[0] = (smelt_device_binary){images[0], 64, cuda ? SMELT_CUBIN : SMELT_HSACO, cuda ? 80 : 0, cuda ? 128 : 256, 1024, 32};
  binaries[1] = (smelt_device_binary){images[1], 64, cuda ? SMELT_CUBIN : SMELT_HSACO, cuda ? 90 : 0, 128, cuda ? 65536 : 2048, 32};
  binaries[2] = (smelt_device_binary){ptx, sizeof ptx, SMELT_PTX, 80, 128, 1024, 0};
  for (int i = 0; i < CONFIGS; i++)
    configs[i] = (smelt_device_config){"k_flat", 64, 0, 64, 1, 0, binaries, cuda ? 3 : 2, loaded[i]};
}

static void on_launch(const char *function, const unsigned *grid, unsigned threads, unsigned shared, void *stream,
                      void **parameters) {
  (void)function, (void)grid, (void)threads, (void)shared, (void)stream;
  launches++;
  seen[0] = (uint64_t)(uintptr_t) * (void **)parameters[0];
  seen[1] = (uint64_t)(uintptr_t) * (void **)parameters[1];
  seen[2] = (uint64_t) * (int32_t *)parameters[2];
  seen[3] = (uint64_t)(uintptr_t) * (void **)parameters[3]; /* hidden scratch pointers */
  seen[4] = (uint64_t)(uintptr_t) * (void **)parameters[4];
}

static smelt_env env_of(void) {
  smelt_env env;
  memset(&env, 0, sizeof env);
  env.detail_input = -1, env.device = cuda ? SMELT_DEVICE_CUDA : SMELT_DEVICE_ROCM, env.queue = (void *)0x5712;
  return env;
}

/* One launch of 130 rows by a kernel with the configurations [first, first + count). */
static int32_t run(smelt_env *env, int first, int count, int64_t rows, uint64_t pointer) {
  smelt_device_kernel kernel = {"k", configs + first, count, 2, 1, 0, chosen};
  const smelt_device_work work = {rows, 1, 8};
  smelt_device device;
  *env = env_of();
  if (smelt_device_here(env, &device)) return env->code;
  void *a = (void *)(uintptr_t)pointer, *b = (void *)0x2000;
  int32_t n = 77;
  void *arguments[] = {&a, &b, &n};
  const uint64_t values[] = {pointer, 0x2000, 77};
  return smelt_device_launch(env, &device, &kernel, &work, arguments, values);
}

static int said(const smelt_env *env, const char *what, const char *text) {
  if (env->code == SMELT_E_DEVICE && strstr(env->what, what) && strstr(env->said, text)) return 1;
  fprintf(stderr, "code %d what '%s' said '%s'\n", env->code, env->what ? env->what : "", env->said ? env->said : "");
  return 0;
}

static int logged(const char *text) {
  if (strstr(mock_log(), text)) return 1;
  fprintf(stderr, "not in the log: %s\n%s", text, mock_log());
  return 0;
}

static int occurrences(const char *text) {
  int count = 0;
  for (const char *at = mock_log(); (at = strstr(at, text)); at++) count++;
  return count;
}

/* Grid, block, shared bytes, stream, arguments and hidden pointers. */
static int check_launches(void) {
  smelt_env env;
  CHECK(!run(&env, 0, 1, 130, 0x1000));
  CHECK(logged("k_flat grid 3 threads ") && logged(cuda ? "threads 128 shared 1024 " : "threads 256 shared 1024 "));
  CHECK(logged("stream 0x5712"));
  CHECK(seen[0] == 0x1000 && seen[1] == 0x2000 && seen[2] == 77 && !seen[3] && !seen[4]);
  CHECK(!run(&env, 0, 1, 0, 0x1000) && launches == 1);
  CHECK(run(&env, 0, 1, (int64_t)1 << 40, 0x1000) && said(&env, "a launch", "2^31 - 1"));
  CHECK(mock_modules() == 1);
  return 0;
}

/* The second architecture gets its own binary, block and shared bytes. */
static int check_second(void) {
  smelt_env env;
  mock_set(cuda ? 90 : 1100, 1, 1, 0, 1);
  CHECK(!run(&env, 0, 1, 130, 0x1000));
  CHECK(logged(cuda ? "threads 128 shared 65536 " : "threads 128 shared 2048 "));
  CHECK(!cuda || logged("cuFuncSetAttribute k_flat 8 65536"));
  CHECK(!run(&env, 0, 1, 130, 0x1000) && occurrences("ModuleGetFunction") == 2);
  return 0;
}

/* A configuration for aligned arguments is not taken where one is not aligned. */
static int check_choice(void) {
  smelt_env env;
  mock_set(cuda ? 80 : 942, 1, 1, 0, 2);
  configs[1].divisible = 1, configs[1].rows = 32;
  CHECK(!run(&env, 1, 2, 130, 0x1000) && logged("grid 5 "));
  CHECK(!run(&env, 1, 2, 130, 0x1004) && occurrences("grid 3 ") >= 2);
  configs[1].divisible = 0, configs[1].rows = 64;
  return 0;
}

/* By cost: few elements go to small programs, many to large ones; a row in registers is read once, one in blocks each pass.
 * A tuned configuration comes first where its conditions hold. */
static int check_costs(void) {
  smelt_env env;
  if (!cuda) return 0;
  mock_set(80, 1, 1, 0, 0);
  mock_resources(1);
  configs[10] = configs[11] = configs[0];
  configs[10].rows = configs[10].block = 1024, configs[11].rows = configs[11].block = 256;
  CHECK(!run(&env, 10, 2, 16384, 0x1000) && logged("grid 64 "));
  CHECK(!run(&env, 10, 2, (int64_t)1 << 24, 0x1000) && logged("grid 16384 "));
  chosen = 1;
  CHECK(!run(&env, 10, 2, 16384, 0x1000) && logged("grid 16 "));
  configs[10].divisible = 1;
  CHECK(!run(&env, 10, 2, 16384, 0x1004) && occurrences("grid 64 ") == 2);
  chosen = 0, configs[10].divisible = 0;
  smelt_device device = {.processors = 108, .threads = 2048, .registers = 65536, .shared = 167936, .capability = 80};
  const smelt_device_work work = {100000, 768, 8};
  smelt_device_config whole = configs[0], looped = configs[0];
  whole.rows = 1, whole.block = 1024, looped.rows = 1, looped.block = 1024, looped.passes = 3;
  CHECK(smelt_device_cost(&device, &whole, &work) * 2 < smelt_device_cost(&device, &looped, &work));
  CHECK(smelt_device_resident(&device, &binaries[0]) == 16);
  mock_resources(0);
  return 0;
}

static int check_failures(void) {
  smelt_env env;
  const char *load = cuda ? "cuModuleLoadData" : "hipModuleLoadData", *launch = cuda ? "cuLaunchKernel" : "hipModuleLaunchKernel";
  const char *function = cuda ? "cuModuleGetFunction" : "hipModuleGetFunction";
  const int before = mock_modules();
  mock_set(cuda ? 90 : 1100, 1, 1, 0, 3);
  const int asked = occurrences("hipModuleLoadData");
  mock_fail(load, 2);
  CHECK(run(&env, 0, 1, 130, 0x1000) && said(&env, load, "out of memory"));
  CHECK(cuda || occurrences("hipModuleLoadData") == asked + 1); /* not hidden by what the next binary says */
  mock_fail(function, 500);
  CHECK(run(&env, 0, 1, 130, 0x1000) && said(&env, function, "named symbol not found"));
  CHECK(mock_modules() == before); /* nothing is kept of a load that failed */
  mock_fail(launch, 719);
  CHECK(run(&env, 0, 1, 130, 0x1000) && said(&env, launch, "unspecified launch failure"));
  mock_fail(launch, 2);
  CHECK(run(&env, 0, 1, 130, 0x1000) && said(&env, launch, "out of memory"));
  if (cuda) {
    mock_fail("cuFuncSetAttribute", 1);
    mock_set(90, 1, 1, 0, 4);
    CHECK(run(&env, 0, 1, 130, 0x1000) && said(&env, "cuFuncSetAttribute", "does not name"));
  }
  mock_fail("", 0);
  CHECK(!run(&env, 0, 1, 130, 0x1000));
  return 0;
}

static int check_architectures(void) {
  smelt_env env;
  mock_set(cuda ? 75 : 906, 1, 1, 0, 5);
  CHECK(run(&env, 0, 1, 130, 0x1000) && said(&env, "the GPU", "no kernel was built for its architecture"));
  mock_set(cuda ? 120 : 942, 1, 1, 0, 6);
  configs[3].count = 0;
  CHECK(run(&env, 3, 1, 130, 0x1000) && said(&env, "the GPU", "no kernel was built for its architecture"));
  configs[3].count = cuda ? 3 : 2;
  if (cuda) {
    CHECK(!run(&env, 0, 1, 130, 0x1000) && logged("cuModuleLoadData ptx"));
    mock_set(121, 1, 1, 1, 7);
    CHECK(run(&env, 0, 1, 130, 0x1000) && said(&env, "cuModuleLoadData", "unsupported toolchain"));
  }
  mock_set(cuda ? 80 : 942, 1, 1, 0, SMELT_MOST_DEVICES);
  CHECK(run(&env, 0, 1, 130, 0x1000) && said(&env, "the current device", "beyond"));
  mock_fail(cuda ? "cuCtxGetDevice" : "hipGetDevice", 100);
  CHECK(run(&env, 0, 1, 130, 0x1000) && said(&env, "the current device", cuda ? "no CUDA" : "no ROCm"));
  mock_fail("", 0);
  return 0;
}

/* Each device has modules of its own; a driver that has no room says so, and what it has goes on. */
static int check_many(void) {
  smelt_env env;
  mock_set(cuda ? 80 : 942, 1, 1, 0, 8);
  int i = 0;
  while (i < CONFIGS && !run(&env, i, 1, 130, 0x1000)) i++;
  CHECK(i < CONFIGS && said(&env, "ModuleLoadData", "out of memory"));
  CHECK(!run(&env, 0, 1, 130, 0x1000) && mock_modules() == 256);
  return 0;
}

/* A grid of three axes, for functions that users wrote. */
static int check_grids(void) {
  smelt_env env = env_of();
  smelt_device_kernel kernel = {"k", configs, 1, 2, 1, 0, 0};
  smelt_device device;
  mock_set(cuda ? 80 : 942, 1, 1, 0, 0);
  CHECK(!smelt_device_here(&env, &device));
  void *a = (void *)0x1000, *b = (void *)0x2000;
  int32_t n = 77;
  void *arguments[] = {&a, &b, &n};
  const uint64_t values[] = {0x1000, 0x2000, 77};
  const int64_t grid[] = {3, 4, 5}, none[] = {3, 0, 5}, wide[] = {3, 70000, 5}, deep[] = {3, 4, 70000};
  CHECK(!smelt_device_launch_grid(&env, &device, &kernel, grid, arguments, values) && logged("grid 3x4x5 threads "));
  const int before = launches;
  CHECK(!smelt_device_launch_grid(&env, &device, &kernel, none, arguments, values) && launches == before);
  CHECK(smelt_device_launch_grid(&env, &device, &kernel, wide, arguments, values) && said(&env, "a launch", "65535"));
  env = env_of();
  CHECK(smelt_device_launch_grid(&env, &device, &kernel, deep, arguments, values) && said(&env, "a launch", "65535"));
  return 0;
}

static void *many_calls(void *given) {
  smelt_env env;
  for (int i = 0; i < 200; i++)
    if (run(&env, 2, 1, 130, 0x1000)) *(int *)given = 1;
  return NULL;
}

static int check_threads(void) {
  pthread_t threads[4];
  int failed[4] = {0};
  mock_set(cuda ? 80 : 942, 1, 1, 0, 9);
  mock_on_launch(NULL);
  const int before = occurrences("ModuleGetFunction");
  for (int i = 0; i < 4; i++) pthread_create(&threads[i], NULL, many_calls, &failed[i]);
  for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
  mock_on_launch(on_launch);
  CHECK(!failed[0] && !failed[1] && !failed[2] && !failed[3] && occurrences("ModuleGetFunction") == before + 1);
  return 0;
}

/* Calls while there is no driver yet: each fails with the whole text, until the driver comes. */
enum { CALLERS = 8, MOST_CALLS = 2000 };
static const char *no_driver; /* what every failure says */
static int driver_comes;

static void *early_calls(void *given) {
  int *found = given;
  for (int i = 0; (i < MOST_CALLS || driver_comes) && !*found; i++) {
    smelt_env env = env_of();
    smelt_device_held held;
    smelt_device device;
    if (smelt_device_enter(&env, 0, &held)) *found = -1;
    else if (!smelt_device_here(&env, &device)) *found = 1;
    else if (strcmp(env.said, no_driver)) *found = -1;
    smelt_device_leave(&held);
  }
  return NULL;
}

/* What every caller found: 0 failures alone, 1 the driver; -1 a text that is not whole, or callers that differ. */
static int early_callers(int comes, const char *text) {
  pthread_t threads[CALLERS];
  int found[CALLERS] = {0}, alike = 1;
  no_driver = text, driver_comes = comes;
  for (int i = 0; i < CALLERS; i++) pthread_create(&threads[i], NULL, early_calls, &found[i]);
  if (comes) {
    const struct timespec while_they_fail = {0, 20000000};
    nanosleep(&while_they_fail, NULL);
    mock_set(cuda ? 80 : 942, 1, 1, 0, 0);
  }
  for (int i = 0; i < CALLERS; i++) pthread_join(threads[i], NULL), alike &= found[i] == found[0];
  return alike ? found[0] : -1;
}

static int check_no_driver(const char *variable, const char *mock) {
  smelt_env env;
  char first[256], second[256];
  setenv(variable, "/nowhere/libnothing.so", 1);
  CHECK(run(&env, 0, 1, 130, 0x1000) && said(&env, "the GPU", "cannot be loaded: /nowhere/libnothing.so"));
  const char *held = env.said;
  snprintf(first, sizeof first, "%s", held);
  CHECK(early_callers(0, first) == 0);
  setenv(variable, "libm.so.6", 1);
  CHECK(run(&env, 0, 1, 130, 0x1000) && said(&env, "the GPU", cuda ? "it has no cuInit" : "it has no hipInit"));
  CHECK(!strcmp(held, first)); /* a text that a caller holds stays as it is */
  setenv(variable, mock, 1);
  mock_set(cuda ? 80 : 942, 0, 1, 0, 0);
  CHECK(run(&env, 0, 1, 130, 0x1000) && said(&env, "the GPU", cuda ? "no CUDA-capable" : "no ROCm-capable"));
  snprintf(second, sizeof second, "%s", env.said);
  CHECK(early_callers(1, second) == 1);
  mock_reset(); /* its log has room for so many calls no more */
  return 0;
}

/* A call is for the device of its tensors, whichever the thread had; the thread has that again afterwards. */
static int check_devices(void) {
  smelt_env env = env_of();
  smelt_device_held held;
  smelt_device device;
  const char *switched = cuda ? "cuCtxSetCurrent" : "hipSetDevice 2";
  mock_set(cuda ? 80 : 942, 3, 1, 0, 0);
  CHECK(!smelt_device_enter(&env, 0, &held) && !held.driver && !occurrences(switched));
  CHECK(!smelt_device_enter(&env, -1, &held) && !held.driver && !occurrences(switched));
  for (int i = 0; i < 2; i++) {
    CHECK(!smelt_device_enter(&env, 2, &held) && !smelt_device_here(&env, &device) && device.ordinal == 2);
    smelt_device_leave(&held);
    CHECK(!smelt_device_here(&env, &device) && device.ordinal == 0);
  }
  CHECK(!cuda || occurrences("cuDevicePrimaryCtxRetain 2") == 1); /* once for all calls */
  CHECK(!smelt_device_enter(&env, 1000, &held) && !held.driver);
  mock_fail(cuda ? "cuCtxSetCurrent" : "hipSetDevice", 2);
  CHECK(smelt_device_enter(&env, 2, &held) && !held.driver && said(&env, cuda ? "cuCtxSetCurrent" : "hipSetDevice", "out of memory"));
  mock_fail("", 0);
  mock_set(cuda ? 80 : 942, 3, 1, 0, 0);
  env = env_of();
  if (!cuda) return 0;
  mock_fail("cuDevicePrimaryCtxRetain", 2);
  CHECK(smelt_device_enter(&env, 1, &held) && said(&env, "cuDevicePrimaryCtxRetain", "out of memory"));
  mock_fail("", 0);
  mock_set(80, 3, 0, 0, 0); /* a thread of ONNX Runtime's that no session has used */
  env = env_of();
  CHECK(!smelt_device_enter(&env, 1, &held) && !held.driver);
  CHECK(!smelt_device_here(&env, &device) && device.ordinal == 1 && logged("cuDevicePrimaryCtxRetain 1"));
  return 0;
}

/* HIP counts threads where CUDA counts programs. */
static int check_hip_grids(void) {
  smelt_env env;
  mock_set(cuda ? 80 : 942, 1, 1, 0, 0);
  const int failed = run(&env, 0, 1, (int64_t)1 << 30, 0x1000) != 0;
  CHECK(failed == !cuda && (cuda || said(&env, "a launch", "2^32 threads")));
  return 0;
}

/* The end of a slice that means "all" stays beyond every size. */
static int check_narrow(void) {
  CHECK(smelt_device_narrow(INT64_MAX) == SMELT_DEVICE_MOST && smelt_device_narrow(INT64_MIN) == -SMELT_DEVICE_MOST);
  CHECK(smelt_device_narrow(-7) == -7 && smelt_device_narrow(SMELT_DEVICE_MOST) == SMELT_DEVICE_MOST);
  return 0;
}

static int check_unload(void) {
  mock_set(cuda ? 80 : 942, 1, 0, 0, 0); /* a thread that ends a process has no context */
  smelt_device_gone();
  CHECK(mock_modules() == 0);
  CHECK(occurrences("cuDevicePrimaryCtxRelease") == occurrences("cuDevicePrimaryCtxRetain") - (cuda ? 1 : 0)); /* that failed */
  smelt_device_gone(); /* at the end of the process, and when the library goes after that */
  return 0;
}

int main(int count, char **given) {
  CHECK(count == 3);
  cuda = !strcmp(given[2], "cuda");
  void *mock = dlopen(given[1], RTLD_NOW);
  CHECK(mock != NULL);
  mock_log = (log_function)dlsym(mock, "mock_log"), mock_modules = (count_function)dlsym(mock, "mock_modules");
  mock_set = (set_function)dlsym(mock, "mock_set"), mock_fail = (fail_function)dlsym(mock, "mock_fail");
  mock_on_launch = (callback_function)dlsym(mock, "mock_on_launch");
  mock_reset = (void (*)(void))dlsym(mock, "mock_reset");
  mock_resources = (void (*)(int))dlsym(mock, "mock_resources");
  tables();
  const char *variable = cuda ? "SMELT_CUDA_LIBRARY" : "SMELT_ROCM_LIBRARY";
  if (check_no_driver(variable, given[1])) return 1;
  mock_set(cuda ? 80 : 942, 1, 1, 0, 0);
  mock_on_launch(on_launch);
  if (check_launches() || check_grids() || check_second() || check_choice() || check_costs() || check_failures() || check_architectures()) return 1;
  if (check_devices() || check_hip_grids() || check_narrow()) return 1;
  if (check_threads() || check_many() || check_unload()) return 1;
  return 0;
}
