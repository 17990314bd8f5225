/* The part of ONNX Runtime's C ABI that a plugin execution provider calls, as of API 23 (ONNX Runtime 1.23).
 *
 * Input:     nothing. ONNX Runtime's function tables only grow at their ends: a slot number never moves, so a table is
 *            declared as an array of slots, and each call names its slot and its function type.
 * Output:    ORT_CALL(), the function types, and the structs that the provider fills in, as API 23 reads them.
 * Invariant: nothing here needs a release newer than 1.23, except slot 390 (1.24), which is called only after a check.
 *            ONNX Runtime reads no field of OrtEp and OrtEpFactory beyond those of `ort_version_supported`.
 */
#ifndef ORT_EP_ABI_H
#define ORT_EP_ABI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ORT_EP_VERSION 23
#define ORT_EP_VERSION_HAS_SHAPE 24       /* first with slot 390 */
#define ORT_EP_VERSION_IMPLICIT_INPUTS 27 /* first whose fused nodes take what only a nested graph reads */

typedef struct OrtStatus OrtStatus;
typedef struct OrtValue OrtValue;
typedef struct OrtEnv OrtEnv;
typedef struct OrtSession OrtSession;
typedef struct OrtSessionOptions OrtSessionOptions;
typedef struct OrtRunOptions OrtRunOptions;
typedef struct OrtKernelContext OrtKernelContext;
typedef struct OrtLogger OrtLogger;
typedef struct OrtGraph OrtGraph;
typedef struct OrtNode OrtNode;
typedef struct OrtValueInfo OrtValueInfo;
typedef struct OrtTypeInfo OrtTypeInfo;
typedef struct OrtShape OrtShape; /* the runtime's type-and-shape record */
typedef struct OrtOpAttr OrtOpAttr;
typedef struct OrtAllocator OrtAllocator;
typedef struct OrtMemoryInfo OrtMemoryInfo;
typedef struct OrtMemoryDevice OrtMemoryDevice;
typedef struct OrtKeyValuePairs OrtKeyValuePairs;
typedef struct OrtHardwareDevice OrtHardwareDevice;
typedef struct OrtEpDevice OrtEpDevice;
typedef struct OrtEpGraphSupportInfo OrtEpGraphSupportInfo;
typedef struct OrtNodeComputeContext OrtNodeComputeContext;
typedef struct OrtDataTransferImpl OrtDataTransferImpl;
typedef struct OrtSyncStreamImpl OrtSyncStreamImpl;
typedef struct OrtEp OrtEp;
typedef struct OrtEpFactory OrtEpFactory;
typedef struct OrtNodeComputeInfo OrtNodeComputeInfo;

typedef void (*ort_slot)(void);
typedef struct {
  ort_slot slot[1];
} OrtApi; /* really 390 slots in 1.23, more in every release; likewise the two below */
typedef struct {
  ort_slot slot[1];
} OrtEpApi;
typedef struct {
  ort_slot slot[1];
} OrtModelEditorApi;

typedef struct {
  const OrtApi *(*GetApi)(uint32_t version);
  const char *(*GetVersionString)(void);
} OrtApiBase;

enum { ORT_CODE_FAIL = 1, ORT_CODE_INVALID_ARGUMENT = 2 };
enum { ORT_LOG_INFO = 1, ORT_LOG_WARNING = 2 };
enum { ORT_TYPE_TENSOR = 1 };
enum { ORT_ELEMENT_STRING = 8 };
enum { ORT_ATTR_INT = 1, ORT_ATTR_INTS, ORT_ATTR_FLOAT, ORT_ATTR_FLOATS, ORT_ATTR_STRING, ORT_ATTR_STRINGS,
       ORT_ATTR_GRAPH, ORT_ATTR_TENSOR };
enum { ORT_DEVICE_CPU = 0 };
enum { ORT_COMPATIBLE_NOT_APPLICABLE = 0, ORT_COMPATIBLE_OPTIMAL = 1, ORT_COMPATIBLE_UNSUPPORTED = 3 };

/* OrtApi */
typedef OrtStatus *(*ort_0_create_status)(int code, const char *text);
typedef const char *(*ort_2_message)(const OrtStatus *status);
typedef OrtStatus *(*ort_3_create_env)(int level, const char *name, OrtEnv **out);
typedef OrtStatus *(*ort_8_session_from_array)(const OrtEnv *env, const void *model, size_t bytes,
                                               const OrtSessionOptions *options, OrtSession **out);
typedef OrtStatus *(*ort_9_run)(OrtSession *session, const OrtRunOptions *options, const char *const *input_names,
                                const OrtValue *const *inputs, size_t n_inputs, const char *const *output_names,
                                size_t n_outputs, OrtValue **outputs);
typedef OrtStatus *(*ort_11_optimized_path)(OrtSessionOptions *options, const char *path);
typedef OrtStatus *(*ort_12_clone_options)(const OrtSessionOptions *options, OrtSessionOptions **out);
typedef OrtStatus *(*ort_15_no_profiling)(OrtSessionOptions *options);
typedef OrtStatus *(*ort_24_intra_threads)(OrtSessionOptions *options, int threads);
typedef OrtStatus *(*ort_30_input_count)(const OrtSession *session, size_t *out);
typedef OrtStatus *(*ort_31_output_count)(const OrtSession *session, size_t *out);
typedef OrtStatus *(*ort_36_input_name)(const OrtSession *session, size_t index, OrtAllocator *allocator, char **out);
typedef OrtStatus *(*ort_37_output_name)(const OrtSession *session, size_t index, OrtAllocator *allocator, char **out);
typedef OrtStatus *(*ort_51_tensor_data)(OrtValue *value, void **out);
typedef OrtStatus *(*ort_53_string_bytes)(const OrtValue *value, size_t *out);
typedef OrtStatus *(*ort_54_strings)(const OrtValue *value, void *text, size_t bytes, size_t *offsets, size_t count);
typedef OrtStatus *(*ort_55_tensor_info)(const OrtTypeInfo *type, const OrtShape **out);
typedef OrtStatus *(*ort_56_kind)(const OrtTypeInfo *type, int *out);
typedef OrtStatus *(*ort_60_element_type)(const OrtShape *shape, int *out);
typedef OrtStatus *(*ort_61_rank)(const OrtShape *shape, size_t *out);
typedef OrtStatus *(*ort_62_dims)(const OrtShape *shape, int64_t *dims, size_t rank);
typedef OrtStatus *(*ort_63_dim_names)(const OrtShape *shape, const char **names, size_t rank);
typedef OrtStatus *(*ort_64_element_count)(const OrtShape *shape, size_t *out);
typedef OrtStatus *(*ort_65_shape)(const OrtValue *value, OrtShape **out);
typedef OrtStatus *(*ort_76_free)(OrtAllocator *allocator, void *block);
typedef OrtStatus *(*ort_78_default_allocator)(OrtAllocator **out);
typedef OrtStatus *(*ort_90_input)(const OrtKernelContext *context, size_t index, const OrtValue **out);
typedef OrtStatus *(*ort_91_output)(OrtKernelContext *context, size_t index, const int64_t *dims, size_t rank,
                                    OrtValue **out);
typedef void (*ort_92_release_env)(OrtEnv *env);
typedef void (*ort_93_release_status)(OrtStatus *status);
typedef void (*ort_95_release_session)(OrtSession *session);
typedef void (*ort_96_release_value)(OrtValue *value);
typedef void (*ort_99_release_shape)(OrtShape *shape);
typedef void (*ort_100_release_options)(OrtSessionOptions *options);
typedef OrtStatus *(*ort_130_set_config)(OrtSessionOptions *options, const char *key, const char *value);
typedef OrtStatus *(*ort_211_create_attribute)(const char *name, const void *data, int length, int type,
                                               OrtOpAttr **out);
typedef void (*ort_212_release_attribute)(OrtOpAttr *attribute);
typedef OrtStatus *(*ort_228_register_library)(OrtSessionOptions *options, const char *path);
typedef OrtStatus *(*ort_237_has_config)(const OrtSessionOptions *options, const char *key, int *out);
typedef OrtStatus *(*ort_238_config)(const OrtSessionOptions *options, const char *key, char *value, size_t *bytes);
typedef OrtStatus *(*ort_247_log)(const OrtLogger *logger, int level, const char *text, const char *file, int line,
                                  const char *function);
typedef OrtStatus *(*ort_272_read_attribute)(const OrtOpAttr *attribute, int type, void *data, size_t bytes,
                                             size_t *out);
typedef OrtStatus *(*ort_289_value_name)(const OrtValueInfo *value, const char **out);
typedef OrtStatus *(*ort_290_value_type)(const OrtValueInfo *value, const OrtTypeInfo **out);
typedef const OrtModelEditorApi *(*ort_291_editor_api)(void);
typedef void (*ort_298_pairs)(const OrtKeyValuePairs *pairs, const char *const **keys, const char *const **values,
                              size_t *count);
typedef void (*ort_300_release_pairs)(OrtKeyValuePairs *pairs);
typedef int (*ort_307_device_type)(const OrtHardwareDevice *device);
typedef const OrtEpApi *(*ort_317_ep_api)(void);
typedef OrtStatus *(*ort_318_tensor_bytes)(const OrtValue *value, size_t *out);
typedef OrtStatus *(*ort_323_producer)(const OrtValueInfo *value, const OrtNode **out, size_t *index);
typedef OrtStatus *(*ort_325_consumers)(const OrtValueInfo *value, const OrtNode **nodes, int64_t *indices,
                                        size_t count);
typedef OrtStatus *(*ort_326_initializer)(const OrtValueInfo *value, const OrtValue **out);
typedef OrtStatus *(*ort_331_is_constant)(const OrtValueInfo *value, bool *out);
typedef OrtStatus *(*ort_332_from_outer_scope)(const OrtValueInfo *value, bool *out);
typedef OrtStatus *(*ort_334_model_path)(const OrtGraph *graph, const char **out);
typedef OrtStatus *(*ort_335_ir_version)(const OrtGraph *graph, int64_t *out);
/* Slots 324 to 366 that count things, and their partners that list them, have one form each. */
typedef OrtStatus *(*ort_count)(const void *owner, size_t *out);
typedef OrtStatus *(*ort_list)(const void *owner, const void **out, size_t count);
typedef OrtStatus *(*ort_337_opsets)(const OrtGraph *graph, const char **domains, int64_t *versions, size_t count);
typedef OrtStatus *(*ort_346_parent)(const OrtGraph *graph, const OrtNode **out);
typedef OrtStatus *(*ort_349_node_name)(const OrtNode *node, const char **out);
typedef OrtStatus *(*ort_350_op_type)(const OrtNode *node, const char **out);
typedef OrtStatus *(*ort_351_domain)(const OrtNode *node, const char **out);
typedef OrtStatus *(*ort_361_attribute)(const OrtNode *node, const char *name, const OrtOpAttr **out);
typedef OrtStatus *(*ort_362_tensor_attribute)(const OrtOpAttr *attribute, OrtValue **out);
typedef OrtStatus *(*ort_363_attribute_type)(const OrtOpAttr *attribute, int *out);
typedef OrtStatus *(*ort_364_attribute_name)(const OrtOpAttr *attribute, const char **out);
typedef OrtStatus *(*ort_366_subgraphs)(const OrtNode *node, const OrtGraph **graphs, size_t count,
                                        const char **attributes);
typedef OrtStatus *(*ort_368_provider)(const OrtNode *node, const char **out);
typedef OrtStatus *(*ort_378_const_data)(const OrtValue *value, const void **out);
typedef OrtStatus *(*ort_379_all_config)(const OrtSessionOptions *options, OrtKeyValuePairs **out);
typedef bool (*ort_390_has_shape)(const OrtShape *shape);

/* OrtEpApi */
typedef OrtStatus *(*ort_ep_0_create_device)(OrtEpFactory *factory, const OrtHardwareDevice *device,
                                             const OrtKeyValuePairs *metadata, const OrtKeyValuePairs *options,
                                             OrtEpDevice **out);
typedef OrtStatus *(*ort_ep_2_fuse)(OrtEpGraphSupportInfo *info, const OrtNode *const *nodes, size_t count,
                                    const void *options);

/* OrtModelEditorApi */
typedef OrtStatus *(*ort_editor_6_create_node)(const char *op, const char *domain, const char *name,
                                               const char *const *inputs, size_t n_inputs, const char *const *outputs,
                                               size_t n_outputs, OrtOpAttr **attributes, size_t n_attributes,
                                               OrtNode **out);

/* ORT_CALL(api, 51, tensor_data)(value, &data) */
#define ORT_CALL(api, number, name) ((ort_##number##_##name)(api)->slot[number])
#define ORT_EP_CALL(api, number, name) ((ort_ep_##number##_##name)(api)->slot[number])
#define ORT_EDITOR_CALL(api, number, name) ((ort_editor_##number##_##name)(api)->slot[number])

typedef struct {
  uint32_t ort_version_supported;
  bool drop_constant_initializers;
} OrtNodeFusionOptions;

struct OrtNodeComputeInfo {
  uint32_t ort_version_supported;
  OrtStatus *(*CreateState)(OrtNodeComputeInfo *, OrtNodeComputeContext *, void **);
  OrtStatus *(*Compute)(OrtNodeComputeInfo *, void *, OrtKernelContext *);
  void (*ReleaseState)(OrtNodeComputeInfo *, void *);
};

struct OrtEp {
  uint32_t ort_version_supported;
  const char *(*GetName)(const OrtEp *);
  OrtStatus *(*GetCapability)(OrtEp *, const OrtGraph *, OrtEpGraphSupportInfo *);
  OrtStatus *(*Compile)(OrtEp *, const OrtGraph **, const OrtNode **, size_t, OrtNodeComputeInfo **, OrtNode **);
  void (*ReleaseNodeComputeInfos)(OrtEp *, OrtNodeComputeInfo **, size_t);
  OrtStatus *(*GetPreferredDataLayout)(OrtEp *, int *);
  OrtStatus *(*ShouldConvertDataLayoutForOp)(OrtEp *, const char *, const char *, int, int *);
  OrtStatus *(*SetDynamicOptions)(OrtEp *, const char *const *, const char *const *, size_t);
  OrtStatus *(*OnRunStart)(OrtEp *, const OrtRunOptions *);
  OrtStatus *(*OnRunEnd)(OrtEp *, const OrtRunOptions *, bool);
  OrtStatus *(*CreateAllocator)(OrtEp *, const OrtMemoryInfo *, OrtAllocator **);
  OrtStatus *(*CreateSyncStreamForDevice)(OrtEp *, const OrtMemoryDevice *, OrtSyncStreamImpl **);
  const char *(*GetCompiledModelCompatibilityInfo)(OrtEp *, const OrtGraph *);
};

struct OrtEpFactory {
  uint32_t ort_version_supported;
  const char *(*GetName)(const OrtEpFactory *);
  const char *(*GetVendor)(const OrtEpFactory *);
  OrtStatus *(*GetSupportedDevices)(OrtEpFactory *, const OrtHardwareDevice *const *, size_t, OrtEpDevice **, size_t,
                                    size_t *);
  OrtStatus *(*CreateEp)(OrtEpFactory *, const OrtHardwareDevice *const *, const OrtKeyValuePairs *const *, size_t,
                         const OrtSessionOptions *, const OrtLogger *, OrtEp **);
  void (*ReleaseEp)(OrtEpFactory *, OrtEp *);
  uint32_t (*GetVendorId)(const OrtEpFactory *);
  const char *(*GetVersion)(const OrtEpFactory *);
  OrtStatus *(*ValidateCompiledModelCompatibilityInfo)(OrtEpFactory *, const OrtHardwareDevice *const *, size_t,
                                                       const char *, int *);
  OrtStatus *(*CreateAllocator)(OrtEpFactory *, const OrtMemoryInfo *, const OrtKeyValuePairs *, OrtAllocator **);
  void (*ReleaseAllocator)(OrtEpFactory *, OrtAllocator *);
  OrtStatus *(*CreateDataTransfer)(OrtEpFactory *, OrtDataTransferImpl **);
  bool (*IsStreamAware)(const OrtEpFactory *);
  OrtStatus *(*CreateSyncStreamForDevice)(OrtEpFactory *, const OrtMemoryDevice *, const OrtKeyValuePairs *,
                                          OrtSyncStreamImpl **);
};

#endif
