/* The library's two exported functions, the factory and the life of a provider.
 *
 * Input:     ONNX Runtime's function tables. Output: one factory, for CPU devices. Invariant: built for API 23; a
 *            release without it is refused by name.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "provider.h"

#if defined(__x86_64__)
#define ARCHITECTURE "x86_64"
#elif defined(__aarch64__)
#define ARCHITECTURE "aarch64"
#else
#define ARCHITECTURE "other"
#endif
#define COMPATIBILITY "smelt 1 " ARCHITECTURE " linux"

typedef struct {
  OrtEpFactory factory; /* first: ONNX Runtime hands back a pointer to it */
  ort_host host;
} smelt_factory;

/* Sessions that the provider makes itself are stock's, also where their options name the provider. */
static __thread int nested;

int ep_is_nested(void) { return nested; }
void ep_nested(int more) { nested += more; }

void ep_log(const smelt_ep *ep, int level, const char *format, ...) {
  char text[700] = "smelt: ";
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text + 7, sizeof text - 7, format, arguments);
  va_end(arguments);
  OrtStatus *status = ORT_CALL(ep->host->api, 247, log)(ep->logger, level, text, "smelt", 0, SMELT_EP_NAME);
  if (status) ORT_CALL(ep->host->api, 93, release_status)(status);
}

/* The provider */

static const char *ep_name(const OrtEp *ep) { return (void)ep, SMELT_EP_NAME; }

static const char *ep_compatibility(OrtEp *ep, const OrtGraph *graph) { return (void)ep, (void)graph, COMPATIBILITY; }

static OrtStatus *create_ep(OrtEpFactory *factory, const OrtHardwareDevice *const *devices,
                            const OrtKeyValuePairs *const *metadata, size_t count, const OrtSessionOptions *options,
                            const OrtLogger *logger, OrtEp **out) {
  const ort_host *host = &((smelt_factory *)factory)->host;
  reason why = {"", 0};
  (void)devices, (void)metadata, (void)count;
  smelt_ep *ep = calloc(1, sizeof *ep);
  if (!ep) return ORT_CALL(host->api, 0, create_status)(ORT_CODE_FAIL, "smelt: out of memory");
  ep->ep = (OrtEp){.ort_version_supported = ORT_EP_VERSION,
                   .GetName = ep_name,
                   .GetCapability = ep_capability,
                   .Compile = ep_compile,
                   .ReleaseNodeComputeInfos = ep_release_infos,
                   .GetCompiledModelCompatibilityInfo = ep_compatibility};
  ep->host = host, ep->logger = logger;
  *out = &ep->ep;
  if (ep_is_nested()) return NULL;
  if (settings_read(&ep->set, host, options, &why) &&
      reason_ok(host, &why, ORT_CALL(host->api, 12, clone_options)(options, &ep->options)))
    return NULL;
  settings_free(&ep->set);
  free(ep);
  *out = NULL;
  return reason_status(host, &why);
}

static void release_ep(OrtEpFactory *factory, OrtEp *self) {
  smelt_ep *ep = (smelt_ep *)self;
  (void)factory;
  if (!ep) return;
  if (ep->options) ORT_CALL(ep->host->api, 100, release_options)(ep->options);
  settings_free(&ep->set);
  free(ep->path);
  free(ep);
}

/* The factory */

static const char *factory_name(const OrtEpFactory *factory) { return (void)factory, SMELT_EP_NAME; }
static const char *factory_vendor(const OrtEpFactory *factory) { return (void)factory, "smelt"; }
static uint32_t factory_vendor_id(const OrtEpFactory *factory) { return (void)factory, 0; }
static const char *factory_version(const OrtEpFactory *factory) { return (void)factory, SMELT_EP_RELEASE; }
static bool factory_streams(const OrtEpFactory *factory) { return (void)factory, false; }

static OrtStatus *supported_devices(OrtEpFactory *factory, const OrtHardwareDevice *const *devices, size_t count,
                                    OrtEpDevice **out, size_t room, size_t *used) {
  const ort_host *host = &((smelt_factory *)factory)->host;
  *used = 0;
  for (size_t i = 0; i < count && *used < room; i++) {
    if (ORT_CALL(host->api, 307, device_type)(devices[i]) != ORT_DEVICE_CPU) continue;
    OrtStatus *status = ORT_EP_CALL(host->ep_api, 0, create_device)(factory, devices[i], NULL, NULL, &out[*used]);
    if (status) return status;
    *used += 1;
  }
  return NULL;
}

static OrtStatus *validate(OrtEpFactory *factory, const OrtHardwareDevice *const *devices, size_t count,
                           const char *text, int *out) {
  (void)factory, (void)devices, (void)count;
  if (!text || strncmp(text, "smelt ", 6)) *out = ORT_COMPATIBLE_NOT_APPLICABLE;
  else *out = strcmp(text, COMPATIBILITY) ? ORT_COMPATIBLE_UNSUPPORTED : ORT_COMPATIBLE_OPTIMAL;
  return NULL;
}

/* The provider works in the CPU's own memory: it needs none of these, but ONNX Runtime calls them unasked. */
static OrtStatus *no_allocator(OrtEpFactory *factory, const OrtMemoryInfo *memory, const OrtKeyValuePairs *options,
                               OrtAllocator **out) {
  (void)factory, (void)memory, (void)options;
  *out = NULL;
  return NULL;
}

static void release_nothing(OrtEpFactory *factory, OrtAllocator *allocator) { (void)factory, (void)allocator; }

static OrtStatus *no_transfer(OrtEpFactory *factory, OrtDataTransferImpl **out) {
  (void)factory;
  *out = NULL;
  return NULL;
}

static OrtStatus *no_stream(OrtEpFactory *factory, const OrtMemoryDevice *device, const OrtKeyValuePairs *options,
                            OrtSyncStreamImpl **out) {
  (void)factory, (void)device, (void)options;
  *out = NULL;
  return NULL;
}

static const OrtEpFactory functions = {.ort_version_supported = ORT_EP_VERSION,
                                       .GetName = factory_name,
                                       .GetVendor = factory_vendor,
                                       .GetSupportedDevices = supported_devices,
                                       .CreateEp = create_ep,
                                       .ReleaseEp = release_ep,
                                       .GetVendorId = factory_vendor_id,
                                       .GetVersion = factory_version,
                                       .ValidateCompiledModelCompatibilityInfo = validate,
                                       .CreateAllocator = no_allocator,
                                       .ReleaseAllocator = release_nothing,
                                       .CreateDataTransfer = no_transfer,
                                       .IsStreamAware = factory_streams,
                                       .CreateSyncStreamForDevice = no_stream};

/* Minor number of "1.24.1"; a later major release counts as newer than all. */
static int minor_of(const char *version) {
  int major = 0, minor = 0;
  if (sscanf(version, "%d.%d", &major, &minor) != 2 || major > 1) return 1000;
  return minor;
}

#define EXPORTED __attribute__((visibility("default")))
EXPORTED OrtStatus *CreateEpFactories(const char *name, const OrtApiBase *base, const OrtLogger *logger,
                                      OrtEpFactory **factories, size_t room, size_t *count);
EXPORTED OrtStatus *ReleaseEpFactory(OrtEpFactory *factory);

OrtStatus *CreateEpFactories(const char *name, const OrtApiBase *base, const OrtLogger *logger,
                             OrtEpFactory **factories, size_t room, size_t *count) {
  const int minor = minor_of(base->GetVersionString());
  const OrtApi *api = base->GetApi(minor < ORT_EP_VERSION ? 1 : ORT_EP_VERSION);
  char text[128];
  (void)name, (void)logger;
  *count = 0;
  snprintf(text, sizeof text, "smelt: this provider needs ONNX Runtime 1.%d or newer, this is %s", ORT_EP_VERSION,
           base->GetVersionString());
  if (minor < ORT_EP_VERSION || !api)
    return ORT_CALL(api ? api : base->GetApi(1), 0, create_status)(ORT_CODE_FAIL, text);
  if (!room) return ORT_CALL(api, 0, create_status)(ORT_CODE_INVALID_ARGUMENT, "smelt: no room for a factory");
  smelt_factory *made = calloc(1, sizeof *made);
  if (!made) return ORT_CALL(api, 0, create_status)(ORT_CODE_FAIL, "smelt: out of memory");
  made->factory = functions;
  made->host = (ort_host){base, api, ORT_CALL(api, 317, ep_api)(), minor};
  factories[0] = &made->factory;
  *count = 1;
  return NULL;
}

OrtStatus *ReleaseEpFactory(OrtEpFactory *factory) {
  free(factory);
  return NULL;
}
