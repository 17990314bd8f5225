/* The part of ONNX Runtime's C interface that deploy.c calls.
 *
 * The wheels of onnxruntime carry the shared library but no header, so the few functions needed are declared here. The
 * function table only ever grows at its end: a slot number is right for every release from the one that added it.
 * With the official onnxruntime_c_api.h at hand, use that instead.
 */
#ifndef ORT_SLOTS_H
#define ORT_SLOTS_H

#include <stddef.h>
#include <stdint.h>

#define ORT_VERSION_NEEDED 17

typedef struct OrtEnv OrtEnv;
typedef struct OrtStatus OrtStatus;
typedef struct OrtSession OrtSession;
typedef struct OrtSessionOptions OrtSessionOptions;
typedef struct OrtMemoryInfo OrtMemoryInfo;
typedef struct OrtValue OrtValue;
typedef struct OrtShape OrtShape; /* OrtTensorTypeAndShapeInfo */

typedef struct {
  const void *const *(*GetApi)(uint32_t version);
  const char *(*GetVersionString)(void);
} OrtApiBase;

typedef const char *(*ort_get_error_message)(const OrtStatus *);
typedef OrtStatus *(*ort_create_env)(int log_level, const char *name, OrtEnv **);
typedef OrtStatus *(*ort_create_session)(const OrtEnv *, const char *path, const OrtSessionOptions *, OrtSession **);
typedef OrtStatus *(*ort_run)(OrtSession *, const void *run_options, const char *const *input_names,
                              const OrtValue *const *inputs, size_t input_count, const char *const *output_names,
                              size_t output_count, OrtValue **outputs);
typedef OrtStatus *(*ort_create_session_options)(OrtSessionOptions **);
typedef OrtStatus *(*ort_create_tensor)(const OrtMemoryInfo *, void *data, size_t bytes, const int64_t *dims,
                                        size_t rank, int type, OrtValue **);
typedef OrtStatus *(*ort_tensor_data)(OrtValue *, void **);
typedef OrtStatus *(*ort_element_type)(const OrtShape *, int *);
typedef OrtStatus *(*ort_rank)(const OrtShape *, size_t *);
typedef OrtStatus *(*ort_dims)(const OrtShape *, int64_t *, size_t rank);
typedef OrtStatus *(*ort_shape_of)(const OrtValue *, OrtShape **);
typedef OrtStatus *(*ort_cpu_memory)(int allocator, int memory, OrtMemoryInfo **);
typedef OrtStatus *(*ort_register_library)(OrtSessionOptions *, const char *path);
typedef void (*ort_release)(void *);

enum {
  SLOT_get_error_message = 2,
  SLOT_create_env = 3,
  SLOT_create_session = 7,
  SLOT_run = 9,
  SLOT_create_session_options = 10,
  SLOT_create_tensor = 49,
  SLOT_tensor_data = 51,
  SLOT_element_type = 60,
  SLOT_rank = 61,
  SLOT_dims = 62,
  SLOT_shape_of = 65,
  SLOT_cpu_memory = 69,
  SLOT_register_library = 228,
  RELEASE_env = 92,
  RELEASE_memory = 94,
  RELEASE_session = 95,
  RELEASE_value = 96,
  RELEASE_shape = 99,
  RELEASE_options = 100,
};

#define ORT(api, name) ((ort_##name)(uintptr_t)(api)[SLOT_##name])
#define ORT_RELEASE(api, kind, object) (((ort_release)(uintptr_t)(api)[RELEASE_##kind])(object))

#endif
