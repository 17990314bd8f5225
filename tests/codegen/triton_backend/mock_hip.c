/* libamdhip64 without a GPU: it writes down every call, checks what it is given, and fails where a test asks for it.
 *
 * Input:     mock_driver.h; the device's architecture is its number, 942 or 1100. Output: the functions of libamdhip64 that
 *            smelt's host code calls.
 * Invariant: a code object runs on the architecture that its ELF header names, and on no other.
 */
#include "mock_driver.h"

int hipInit(unsigned flags) {
  note("hipInit %u\n", flags);
  return devices ? fails("hipInit") : 100;
}
int hipGetDevice(int *out) { return *out = current_device, fails("hipGetDevice"); }
int hipSetDevice(int device) {
  note("hipSetDevice %d\n", device);
  const int code = fails("hipSetDevice");
  if (!code) current_device = device;
  return code;
}
int hipDeviceGetAttribute(int *out, int what, int device) { return (void)what, (void)device, *out = 0, 1; }

/* The processor that a code object is for, by the low byte of its ELF flags. */
static int arch_of(const unsigned char *image) {
  uint16_t machine;
  uint32_t flags;
  memcpy(&machine, image + 18, 2), memcpy(&flags, image + 48, 4);
  if (memcmp(image, "\177ELF", 4) || machine != 224) return -1;
  return (flags & 0xff) == 0x4c ? 942 : (flags & 0xff) == 0x41 ? 1100 : 0;
}
int hipModuleLoadData(void **module, const void *image) {
  const int arch = arch_of(image), code = fails("hipModuleLoadData");
  if (arch < 0) return 200;
  note("hipModuleLoadData gfx%d\n", arch);
  if (code) return code;
  if (arch != capability) return 209;
  return (*module = new_module(arch)) ? 0 : 2;
}
int hipModuleUnload(void *module) {
  if (!free_module(module)) return 400;
  return note("hipModuleUnload\n"), fails("hipModuleUnload");
}
int hipModuleGetFunction(void **out, void *module, const char *name) {
  if (!name_function(module, name)) return 400;
  note("hipModuleGetFunction %s\n", name);
  return *out = module, fails("hipModuleGetFunction");
}
int hipModuleLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                          unsigned shared, void *stream, void **parameters, void **extra) {
  if (!is_launch(function, gx, gy, gz, bx, by, bz, parameters, extra)) return 1;
  const module_record *one = function;
  const int code = fails("hipModuleLaunchKernel");
  const unsigned grid[] = {gx, gy, gz};
  char all[64];
  note("hipModuleLaunchKernel %s grid %s threads %u shared %u stream %p\n", one->function, grid_text(all, sizeof all, grid), bx, shared, stream);
  if (!code && on_launch) on_launch(one->function, grid, bx, shared, stream, parameters);
  return code;
}
const char *hipGetErrorString(int code) {
  switch (code) {
    case 2: return "out of memory";
    case 100: return "no ROCm-capable device is detected";
    case 200: return "device kernel image is invalid";
    case 209: return "no kernel image is available for execution on the device";
    case 400: return "invalid resource handle";
    case 500: return "named symbol not found";
    case 719: return "unspecified launch failure";
    default: return "unknown error";
  }
}
