/* libcuda without a GPU: it writes down every call, checks what it is given, and fails where a test asks for it.
 *
 * Input:     mock_driver.h. Output: the functions of libcuda that smelt's host code calls.
 * Invariant: binaries are looked at as a driver would: a cubin runs on its own family, from 9.0 on only on its own device.
 *            Launches are handed to the tests, which run them.
 */
#include "mock_driver.h"

int cuInit(unsigned flags) {
  note("cuInit %u\n", flags);
  return devices ? fails("cuInit") : 100;
}
static char contexts[DEVICES]; /* their addresses are the devices' primary contexts */

int cuCtxGetCurrent(void **out) { return *out = has_context ? contexts + current_device : NULL, fails("cuCtxGetCurrent"); }
int cuCtxSetCurrent(void *context) {
  note("cuCtxSetCurrent\n");
  has_context = context != NULL;
  if (context) current_device = (int)((char *)context - contexts);
  return fails("cuCtxSetCurrent");
}
int cuDevicePrimaryCtxRetain(void **out, int device) {
  note("cuDevicePrimaryCtxRetain %d\n", device);
  return *out = contexts + device, fails("cuDevicePrimaryCtxRetain");
}
int cuDevicePrimaryCtxRelease_v2(int device) { return note("cuDevicePrimaryCtxRelease %d\n", device), 0; }
int cuCtxGetDevice(int *out) { return has_context ? (*out = current_device, fails("cuCtxGetDevice")) : 201; }
int cuDeviceGetAttribute(int *out, int what, int device) {
  if (device != current_device) return 101;
  if (what == 75) *out = capability / 10;
  else if (what == 76) *out = capability % 10;
  else if (has_resources && (what == 16 || what == 39 || what == 81 || what == 82))
    *out = what == 16 ? 108 : what == 39 ? 2048 : what == 81 ? 167936 : 65536; /* an A100's multiprocessors */
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
  note("cuModuleLoadData %s %d\n", elf ? "cubin" : "ptx", arch);
  return (*module = new_module(arch)) ? 0 : 2;
}
int cuModuleUnload(void *module) {
  if (!has_context || (is_module(module) && ((module_record *)module)->device != current_device)) return 201;
  if (!free_module(module)) return 400;
  return note("cuModuleUnload\n"), fails("cuModuleUnload");
}
int cuModuleGetFunction(void **out, void *module, const char *name) {
  if (!name_function(module, name)) return 400;
  note("cuModuleGetFunction %s\n", name);
  return *out = module, fails("cuModuleGetFunction");
}
int cuFuncSetAttribute(void *function, int what, int value) {
  note("cuFuncSetAttribute %s %d %d\n", ((module_record *)function)->function, what, value);
  return fails("cuFuncSetAttribute");
}
int cuLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared,
                   void *stream, void **parameters, void **extra) {
  if (!is_launch(function, gx, gy, gz, bx, by, bz, parameters, extra)) return 1;
  const module_record *one = function;
  const int code = fails("cuLaunchKernel");
  const unsigned grid[] = {gx, gy, gz};
  char all[64];
  note("cuLaunchKernel %s grid %s threads %u shared %u stream %p\n", one->function, grid_text(all, sizeof all, grid), bx, shared, stream);
  if (!code && on_launch) on_launch(one->function, grid, bx, shared, stream, parameters);
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
