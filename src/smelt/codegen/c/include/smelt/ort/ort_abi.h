/* The part of ONNX Runtime's C ABI that the glue calls.
 *
 * Input:     nothing. ONNX Runtime's function table only grows: a slot number never moves, so the table is declared here
 *            as an array of slots, and each call names its slot and its function type.
 * Output:    ORT_CALL(), the function types, and the custom-op struct as ONNX Runtime 1.17 reads it.
 * Invariant: nothing here needs a release newer than 1.17, except slot 414 (1.24), which is called only after a check.
 */
#ifndef SMELT_ORT_ABI_H
#define SMELT_ORT_ABI_H

#include <stddef.h>
#include <stdint.h>

#define ORT_ABI_VERSION 17             /* first with slot 274, shape inference and op versions */
#define ORT_ABI_VERSION_SHAPE_BY_REF 24 /* first with slot 414 */

typedef struct OrtStatus OrtStatus;
typedef struct OrtValue OrtValue;
typedef struct OrtSessionOptions OrtSessionOptions;
typedef struct OrtCustomOpDomain OrtCustomOpDomain;
typedef struct OrtKernelInfo OrtKernelInfo;
typedef struct OrtKernelContext OrtKernelContext;
typedef struct OrtShapeInferContext OrtShapeInferContext;
typedef struct OrtShape OrtShape; /* the runtime's type-and-shape record */
typedef struct OrtMemoryInfo OrtMemoryInfo;
typedef struct OrtAllocator OrtAllocator;
typedef struct OrtCustomOp OrtCustomOp;

typedef void (*ort_slot)(void);
typedef struct {
  ort_slot slot[1];
} OrtApi; /* really 276 slots in 1.17, more in every release */

typedef struct {
  const OrtApi *(*GetApi)(uint32_t version);
  const char *(*GetVersionString)(void);
} OrtApiBase;

enum { ORT_CODE_FAIL = 1, ORT_CODE_INVALID_ARGUMENT = 2 };
enum { ORT_ARENA_ALLOCATOR = 1, ORT_MEM_DEFAULT = 0 };
enum { ORT_REQUIRED = 0, ORT_OPTIONAL = 1 };

typedef OrtStatus *(*ort_0_create_status)(int code, const char *text);
typedef OrtStatus *(*ort_26_create_domain)(const char *name, OrtCustomOpDomain **out);
typedef OrtStatus *(*ort_27_domain_add)(OrtCustomOpDomain *domain, const OrtCustomOp *op);
typedef OrtStatus *(*ort_28_add_domain)(OrtSessionOptions *options, OrtCustomOpDomain *domain);
typedef OrtStatus *(*ort_51_tensor_data)(OrtValue *value, void **out);
typedef OrtStatus *(*ort_61_rank)(const OrtShape *shape, size_t *out);
typedef OrtStatus *(*ort_62_dims)(const OrtShape *shape, int64_t *dims, size_t rank);
typedef OrtStatus *(*ort_65_shape)(const OrtValue *value, OrtShape **out);
typedef OrtStatus *(*ort_69_cpu_memory)(int allocator_type, int memory_type, OrtMemoryInfo **out);
typedef OrtStatus *(*ort_75_alloc)(OrtAllocator *allocator, size_t bytes, void **out);
typedef OrtStatus *(*ort_76_free)(OrtAllocator *allocator, void *block);
typedef OrtStatus *(*ort_90_input)(const OrtKernelContext *context, size_t index, const OrtValue **out);
typedef OrtStatus *(*ort_91_output)(OrtKernelContext *context, size_t index, const int64_t *dims, size_t rank,
                                    OrtValue **out);
typedef void (*ort_93_release_status)(OrtStatus *status);
typedef void (*ort_99_release_shape)(OrtShape *shape);
typedef void (*ort_132_release_allocator)(OrtAllocator *allocator);
typedef OrtStatus *(*ort_253_allocator)(const OrtKernelContext *context, const OrtMemoryInfo *memory,
                                        OrtAllocator **out);
typedef OrtStatus *(*ort_274_parallel)(const OrtKernelContext *context, void (*body)(void *, size_t), size_t total,
                                       size_t batches, void *ctx);
typedef OrtStatus *(*ort_414_shape_by_ref)(const OrtValue *value, int *type, const int64_t **dims, size_t *rank);

/* ORT_CALL(api, 51, tensor_data)(value, &data) */
#define ORT_CALL(api, number, name) ((ort_##number##_##name)(api)->slot[number])

/* What ONNX Runtime reads of a custom op whose version is 17. Later fields are read only from a later version. */
struct OrtCustomOp {
  uint32_t version;
  void *(*CreateKernel)(const OrtCustomOp *, const OrtApi *, const OrtKernelInfo *);
  const char *(*GetName)(const OrtCustomOp *);
  const char *(*GetExecutionProviderType)(const OrtCustomOp *);
  int (*GetInputType)(const OrtCustomOp *, size_t);
  size_t (*GetInputTypeCount)(const OrtCustomOp *);
  int (*GetOutputType)(const OrtCustomOp *, size_t);
  size_t (*GetOutputTypeCount)(const OrtCustomOp *);
  void (*KernelCompute)(void *, OrtKernelContext *);
  void (*KernelDestroy)(void *);
  int (*GetInputCharacteristic)(const OrtCustomOp *, size_t);
  int (*GetOutputCharacteristic)(const OrtCustomOp *, size_t);
  int (*GetInputMemoryType)(const OrtCustomOp *, size_t);
  int (*GetVariadicInputMinArity)(const OrtCustomOp *);
  int (*GetVariadicInputHomogeneity)(const OrtCustomOp *);
  int (*GetVariadicOutputMinArity)(const OrtCustomOp *);
  int (*GetVariadicOutputHomogeneity)(const OrtCustomOp *);
  OrtStatus *(*CreateKernelV2)(const OrtCustomOp *, const OrtApi *, const OrtKernelInfo *, void **);
  OrtStatus *(*KernelComputeV2)(void *, OrtKernelContext *);
  OrtStatus *(*InferOutputShapeFn)(const OrtCustomOp *, OrtShapeInferContext *);
  int (*GetStartVersion)(const OrtCustomOp *);
  int (*GetEndVersion)(const OrtCustomOp *);
  size_t (*GetMayInplace)(int **, int **);
  void (*ReleaseMayInplace)(int *, int *);
  size_t (*GetAliasMap)(int **, int **);
  void (*ReleaseAliasMap)(int *, int *);
};

#endif
