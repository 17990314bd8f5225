/* The part of ONNX Runtime's C interface that the two examples call.
 *
 * The wheels of onnxruntime carry the shared library but no header, so the few functions needed are declared here. The
 * function table only ever grows at its end: a slot number is right for every release from the one that added it.
 * With the official onnxruntime_c_api.h or onnxruntime_cxx_api.h at hand, use that instead: the names are in comments.
 */
#ifndef ORT_PROVIDER_SLOTS_H
#define ORT_PROVIDER_SLOTS_H

#include <stddef.h>
#include <stdint.h>

#define ORT_VERSION_NEEDED 23

typedef struct OrtEnv OrtEnv;
typedef struct OrtStatus OrtStatus;
typedef struct OrtSession OrtSession;
typedef struct OrtSessionOptions OrtSessionOptions;
typedef struct OrtMemoryInfo OrtMemoryInfo;
typedef struct OrtValue OrtValue;
typedef struct OrtEpDevice OrtEpDevice;

typedef struct {
  const void *const *(*GetApi)(uint32_t version);
  const char *(*GetVersionString)(void);
} OrtApiBase;

typedef const char *(*ort_message)(const OrtStatus *);
typedef OrtStatus *(*ort_create_env)(int log_level, const char *name, OrtEnv **);
typedef OrtStatus *(*ort_create_session)(const OrtEnv *, const char *path, const OrtSessionOptions *, OrtSession **);
typedef OrtStatus *(*ort_run)(OrtSession *, const void *run_options, const char *const *input_names,
                              const OrtValue *const *inputs, size_t input_count, const char *const *output_names,
                              size_t output_count, OrtValue **outputs);
typedef OrtStatus *(*ort_create_options)(OrtSessionOptions **);
typedef OrtStatus *(*ort_create_tensor)(const OrtMemoryInfo *, void *data, size_t bytes, const int64_t *dims,
                                        size_t rank, int type, OrtValue **);
typedef OrtStatus *(*ort_tensor_data)(OrtValue *, void **);
typedef OrtStatus *(*ort_cpu_memory)(int allocator, int memory, OrtMemoryInfo **);
typedef OrtStatus *(*ort_register_provider)(OrtEnv *, const char *name, const char *path);
typedef OrtStatus *(*ort_unregister_provider)(OrtEnv *, const char *name);
typedef OrtStatus *(*ort_devices)(const OrtEnv *, const OrtEpDevice *const **devices, size_t *count);
typedef OrtStatus *(*ort_append_provider)(OrtSessionOptions *, OrtEnv *, const OrtEpDevice *const *devices,
                                          size_t count, const char *const *keys, const char *const *values,
                                          size_t option_count);
typedef const char *(*ort_device_provider)(const OrtEpDevice *);
typedef void (*ort_release)(void *);

enum {
  SLOT_message = 2,               /* GetErrorMessage */
  SLOT_create_env = 3,            /* CreateEnv */
  SLOT_create_session = 7,        /* CreateSession */
  SLOT_run = 9,                   /* Run */
  SLOT_create_options = 10,       /* CreateSessionOptions */
  SLOT_create_tensor = 49,        /* CreateTensorWithDataAsOrtValue */
  SLOT_tensor_data = 51,          /* GetTensorMutableData */
  SLOT_cpu_memory = 69,           /* CreateCpuMemoryInfo */
  SLOT_register_provider = 301,   /* RegisterExecutionProviderLibrary */
  SLOT_unregister_provider = 302, /* UnregisterExecutionProviderLibrary */
  SLOT_devices = 303,             /* GetEpDevices */
  SLOT_append_provider = 304,     /* SessionOptionsAppendExecutionProvider_V2 */
  SLOT_device_provider = 312,     /* EpDevice_EpName */
  RELEASE_env = 92,
  RELEASE_memory = 94,
  RELEASE_session = 95,
  RELEASE_value = 96,
  RELEASE_options = 100,
};

#define ORT(api, name) ((ort_##name)(uintptr_t)(api)[SLOT_##name])
#define ORT_RELEASE(api, kind, object) (((ort_release)(uintptr_t)(api)[RELEASE_##kind])(object))

#endif
