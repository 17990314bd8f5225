/* The GPU's driver, found at run time: libcuda or libamdhip64.
 *
 * Input:     nothing but the two libraries' C interfaces, of which only what is called is declared here.
 * Output:    smelt_driver_for(), smelt_device_enter(), smelt_device_leave(), smelt_device_fail().
 * Invariant: a library is opened once per process, under a lock; a machine without one gets an error with the loader's own
 *            words, and no call fails without the driver's text. What a caller was given never changes.
 */
#ifndef SMELT_DEVICE_DRIVER_H
#define SMELT_DEVICE_DRIVER_H

#include <smelt/base/kernel.h>

enum { SMELT_DEVICE_CUDA = 1, SMELT_DEVICE_ROCM = 2 };
enum { SMELT_MOST_DEVICES = 64 };

/* What an entry has for a GPU, in step with smelt_entries. */
typedef struct {
  smelt_region run;       /* NULL: nothing */
  const uint8_t *on_host; /* n_in flags: the host reads the input's contents */
} smelt_device_entry;

typedef int smelt_driver_code; /* 0: it worked */

typedef struct {
  smelt_driver_code (*init)(unsigned flags);
  smelt_driver_code (*context)(void **out);        /* NULL for HIP, which has a current device */
  smelt_driver_code (*set_context)(void *context);
  smelt_driver_code (*retain)(void **out, int device);
  smelt_driver_code (*release)(int device);
  smelt_driver_code (*device)(int *out);
  smelt_driver_code (*set_device)(int device);      /* NULL for CUDA, which has a current context */
  smelt_driver_code (*attribute)(int *out, int what, int device);
  smelt_driver_code (*load)(void **module, const void *image);
  smelt_driver_code (*unload)(void *module);
  smelt_driver_code (*function)(void **out, void *module, const char *name);
  smelt_driver_code (*set)(void *function, int what, int value); /* NULL for HIP, which asks for nothing */
  smelt_driver_code (*launch)(void *function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned shared,
                              void *stream, void **parameters, void **extra);
  smelt_driver_code (*error_out)(smelt_driver_code code, const char **out); /* CUDA's form */
  const char *(*error)(smelt_driver_code code);                             /* HIP's form */
} smelt_driver;

/* NULL: it cannot be used, for the reason in `said`, a text that stays as it is. `said` may be NULL. */
const smelt_driver *smelt_driver_for(int32_t device, const char **said);

/* What a thread had before a call. */
typedef struct {
  const smelt_driver *driver; /* NULL: it is as it was */
  void *context;
  int device;
} smelt_device_held;

/* Makes a device current in the calling thread; -1: whichever is. Not 0: it failed. */
int32_t smelt_device_enter(smelt_env *env, int32_t ordinal, smelt_device_held *held);
void smelt_device_leave(const smelt_device_held *held);

/* Records the first failure of a call: what was called, for which kernel, and the driver's words. */
static __attribute__((unused, noinline, cold)) int32_t smelt_device_fail(smelt_env *env, const char *what, const char *which,
                                                                         const char *said) {
  const int32_t first = __atomic_load_n(&env->code, __ATOMIC_ACQUIRE) == SMELT_OK;
  const int32_t code = smelt_fail(env, SMELT_E_DEVICE, -1, 0, 0, 0);
  if (first) env->what = what, env->which = which, env->said = said ? said : "";
  return code;
}

static __attribute__((unused)) const char *smelt_driver_text(const smelt_driver *driver, smelt_driver_code code) {
  const char *text = NULL;
  if (driver->error) text = driver->error(code);
  else if (driver->error_out) driver->error_out(code, &text);
  return text ? text : "an error that the driver does not name";
}

#endif
