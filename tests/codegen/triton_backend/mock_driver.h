/* What the mock drivers share: a log of calls, modules, failures that a test asks for.
 *
 * Input:     mock_*() from the tests. Output: mock_log(), records for mock_cuda.c and mock_hip.c, each a library of its own.
 * Invariant: a module is loaded once and unloaded once, and no module is used after that; more modules than there is room
 *            for are out of memory.
 */
#ifndef MOCK_DRIVER_H
#define MOCK_DRIVER_H

#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MODULES = 256, DEVICES = 128 };
typedef struct { int used, arch, device; char function[128]; } module_record;
typedef void (*launch_callback)(const char *function, const unsigned *grid, unsigned threads, unsigned shared, void *stream,
                                void **parameters);

static char text[1 << 20];
static size_t used;
static module_record modules[MODULES];
static int has_resources;
static int capability = 80, devices = 1, has_context = 1, old_driver, current_device;
static char failing[64];
static int failing_code;
static launch_callback on_launch;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static __attribute__((format(printf, 1, 2))) void note(const char *format, ...) {
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
  used = 0, text[0] = 0, failing[0] = 0, capability = 80, devices = 1, has_context = 1, old_driver = 0, current_device = 0, has_resources = 0, on_launch = NULL;
}
void mock_set(int new_capability, int new_devices, int context, int old, int device) {
  capability = new_capability, devices = new_devices, has_context = context, old_driver = old, current_device = device;
}
void mock_fail(const char *call, int code) { snprintf(failing, sizeof failing, "%s", call), failing_code = code; }
void mock_on_launch(launch_callback callback) { on_launch = callback; }
void mock_resources(int told) { has_resources = told; }
int mock_device(void) { return current_device; }
int mock_modules(void) {
  int count = 0;
  for (int place = 0; place < MODULES; place++) count += modules[place].used;
  return count;
}

/* A module for an image of this architecture; NULL: there is no room. */
static module_record *new_module(int arch) {
  module_record *found = NULL;
  pthread_mutex_lock(&lock);
  for (int place = 0; place < MODULES && !found; place++)
    if (!modules[place].used) found = &modules[place];
  if (found) found->used = 1, found->arch = arch, found->device = current_device;
  pthread_mutex_unlock(&lock);
  return found;
}

static int is_module(const void *module) {
  const module_record *one = module;
  return one >= modules && one < modules + MODULES && one->used;
}

static int free_module(void *module) {
  if (!is_module(module)) return 0;
  ((module_record *)module)->used = 0;
  return 1;
}

static int name_function(void *module, const char *name) {
  if (!is_module(module)) return 0;
  module_record *one = module;
  snprintf(one->function, sizeof one->function, "%s", name);
  return 1;
}

static int is_launch(const void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                     void **parameters, void **extra) {
  return is_module(function) && gx && gy && gy <= 65535 && gz && gz <= 65535 && bx && bx <= 1024 && by == 1 && bz == 1 && !extra && parameters;
}

static const char *grid_text(char *out, size_t room, const unsigned *grid) {
  if (grid[1] == 1 && grid[2] == 1) snprintf(out, room, "%u", grid[0]);
  else snprintf(out, room, "%ux%ux%u", grid[0], grid[1], grid[2]);
  return out;
}

#endif
