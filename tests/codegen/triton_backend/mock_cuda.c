/* A driver that has no GPU: it writes down every call, checks what it is given, and fails where a test asks for it.
 *
 * Input:     mock_*() from the tests. Output: the functions of libcuda that smelt's host code calls, and mock_log().
 * Invariant: binaries are looked at as a driver would: a cubin runs on its own family, from 9.0 on only on its own device.
 *            Launches are handed to the tests, which run them.
 */
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MODULES = 256 };
typedef struct { int used, arch; char function[128]; } module_record;
typedef void (*launch_callback)(const char *function, unsigned grid, unsigned threads, unsigned shared, void *stream, void **parameters);

static char text[1 << 20];
static size_t used;
static module_record modules[MODULES];
static int capability = 80, devices = 1, has_context = 1, old_driver, current_device;
static char failing[64];
static int failing_code;
static launch_callback on_launch;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void note(const char *format, ...) {
  va_list args;
  pthread_mutex_lock(&lock);
  va_start(args, format);
  if (used < sizeof text - 512) used += (size_t)vsnprintf(text + used, 512, format, args);
  va_end(args);
  if (getenv("MOCK_LOG")) {
    FILE *file = fopen(getenv("MOCK_LOG"), "w");
    if (file) fputs(text, file), fclose(file);
  }
  pthread_mutex_unlock(&lock);
}
static int fails(const char *call) { return strcmp(failing, call) ? 0 : failing_code; }

const char *mock_log(void) { return text; }
void mock_reset(void) {
  used = 0, text[0] = 0, failing[0] = 0, capability = 80, devices = 1, has_context = 1, old_driver = 0, current_device = 0, on_launch = NULL;
}
void mock_set(int new_capability, int new_devices, int context, int old, int device) {
  capability = new_capability, devices = new_devices, has_context = context, old_driver = old, current_device = device;
}
void mock_fail(const char *call, int code) { snprintf(failing, sizeof failing, "%s", call), failing_code = code; }
void mock_on_launch(launch_callback callback) { on_launch = callback; }

int cuInit(unsigned flags) {
  note("cuInit %u\n", flags);
  return devices ? fails("cuInit") : 100;
}
int cuCtxGetCurrent(void **out) { return *out = has_context ? (void *)&capability : NULL, fails("cuCtxGetCurrent"); }
int cuCtxSetCurrent(void *context) { return note("cuCtxSetCurrent\n"), has_context = context != NULL, fails("cuCtxSetCurrent"); }
int cuDevicePrimaryCtxRetain(void **out, int device) {
  note("cuDevicePrimaryCtxRetain %d\n", device);
  return *out = (void *)&capability, fails("cuDevicePrimaryCtxRetain");
}
int cuCtxGetDevice(int *out) { return has_context ? (*out = current_device, fails("cuCtxGetDevice")) : 201; }
int cuDeviceGetAttribute(int *out, int what, int device) {
  if (device != current_device) return 101;
  if (what == 75) *out = capability / 10;
  else if (what == 76) *out = capability % 10;
  else return 1;
  return fails("cuDeviceGetAttribute");
}

/* The SM of a cubin, by its ELF header. */
static int arch_of(const unsigned char *image) {
  uint16_t machine;
  uint32_t flags;
  memcpy(&machine, image + 18, 2), memcpy(&flags, image + 48, 4);
  if (machine != 190) return -1;
  return flags >> 24 == 6 ? (int)(flags >> 8 & 0xff) : (int)(flags & 0xff);
}
int cuModuleLoadData(void **module, const void *image) {
  const int elf = !memcmp(image, "\177ELF", 4);
  const int arch = elf ? arch_of(image) : 0, code = fails("cuModuleLoadData");
  if (code) return code;
  if (elf && (arch < 0 || (arch >= 90 ? arch != capability : arch > capability || arch / 10 != capability / 10))) return 209;
  if (!elf && (!strstr(image, ".version") || !strstr(image, ".target sm_80"))) return 218;
  if (!elf && old_driver) return 222;
  pthread_mutex_lock(&lock);
  int place = 0;
  while (place < MODULES && modules[place].used) place++;
  modules[place].used = 1, modules[place].arch = arch;
  pthread_mutex_unlock(&lock);
  note("cuModuleLoadData %s %d\n", elf ? "cubin" : "ptx", arch);
  return *module = &modules[place], 0;
}
int cuModuleUnload(void *module) {
  module_record *one = module;
  if (!one->used) return 400;
  one->used = 0;
  return note("cuModuleUnload\n"), fails("cuModuleUnload");
}
int cuModuleGetFunction(void **out, void *module, const char *name) {
  module_record *one = module;
  snprintf(one->function, sizeof one->function, "%s", name);
  note("cuModuleGetFunction %s\n", name);
  return *out = module, fails("cuModuleGetFunction");
}
int cuFuncSetAttribute(void *function, int what, int value) {
  note("cuFuncSetAttribute %s %d %d\n", ((module_record *)function)->function, what, value);
  return fails("cuFuncSetAttribute");
}
int cuLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared,
                   void *stream, void **parameters, void **extra) {
  const module_record *one = function;
  if (!one->used || !gx || gy != 1 || gz != 1 || !bx || bx > 1024 || by != 1 || bz != 1 || extra || !parameters) return 1;
  const int code = fails("cuLaunchKernel");
  note("cuLaunchKernel %s grid %u threads %u shared %u stream %p\n", one->function, gx, bx, shared, stream);
  if (!code && on_launch) on_launch(one->function, gx, bx, shared, stream, parameters);
  return code;
}
int cuGetErrorString(int code, const char **out) {
  switch (code) {
    case 2: *out = "out of memory"; break;
    case 100: *out = "no CUDA-capable device is detected"; break;
    case 201: *out = "invalid device context"; break;
    case 209: *out = "no kernel image is available for execution on the device"; break;
    case 222: *out = "the provided PTX was compiled with an unsupported toolchain."; break;
    case 500: *out = "named symbol not found"; break;
    case 700: *out = "an illegal memory access was encountered"; break;
    case 719: *out = "unspecified launch failure"; break;
    default: return *out = NULL, 1;
  }
  return 0;
}
