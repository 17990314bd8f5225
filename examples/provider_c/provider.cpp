// A model through smelt's execution provider, in C++.
//
//     c++ -std=c++17 provider.cpp -o provider -ldl
//     ./provider LIBONNXRUNTIME LIBPROVIDER model.onnx INPUT OUTPUT ROWS COLUMNS [option=value ...]
//
// The same as provider.c. With the official onnxruntime_cxx_api.h at hand:
//
//     Ort::Env env;
//     env.RegisterExecutionProviderLibrary("smelt", library);
//     std::vector<Ort::ConstEpDevice> ours;
//     for (auto device : env.GetEpDevices())
//       if (!std::strcmp(device.EpName(), "SmeltExecutionProvider")) ours.push_back(device);
//     Ort::SessionOptions options;
//     options.AppendExecutionProvider_V2(env, ours, {{"time_limit", "120"}});
//     Ort::Session session(env, "model.onnx", options);
#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "ort_provider_slots.h"

namespace {

const void *const *api = nullptr;

void must(OrtStatus *status) {
  if (status) throw std::runtime_error(std::string("onnxruntime: ") + ORT(api, message)(status));
}

template <int Slot>
struct Release {
  template <class T>
  void operator()(T *object) const {
    reinterpret_cast<ort_release>(reinterpret_cast<uintptr_t>(api[Slot]))(object);
  }
};
using Env = std::unique_ptr<OrtEnv, Release<RELEASE_env>>;
using Options = std::unique_ptr<OrtSessionOptions, Release<RELEASE_options>>;
using Session = std::unique_ptr<OrtSession, Release<RELEASE_session>>;
using Memory = std::unique_ptr<OrtMemoryInfo, Release<RELEASE_memory>>;
using Value = std::unique_ptr<OrtValue, Release<RELEASE_value>>;

void load_runtime(const char *path) {
  void *library = dlopen(path, RTLD_NOW);
  if (!library) throw std::runtime_error(dlerror());
  auto base = reinterpret_cast<const OrtApiBase *(*)()>(dlsym(library, "OrtGetApiBase"));
  api = base ? base()->GetApi(ORT_VERSION_NEEDED) : nullptr;
  if (!api) throw std::runtime_error("ONNX Runtime 1.23 or newer is needed");
}

void use_provider(OrtEnv *env, OrtSessionOptions *options, const char *library, std::vector<std::string> given) {
  const OrtEpDevice *const *devices = nullptr;
  std::size_t count = 0;
  std::vector<const OrtEpDevice *> ours;
  std::vector<const char *> keys, values;
  must(ORT(api, register_provider)(env, "smelt", library));
  must(ORT(api, devices)(env, &devices, &count));
  for (std::size_t i = 0; i < count; i++)
    if (!std::strcmp(ORT(api, device_provider)(devices[i]), "SmeltExecutionProvider")) ours.push_back(devices[i]);
  for (auto &option : given) {
    const auto equals = option.find('=');
    if (equals == std::string::npos) throw std::runtime_error("not option=value: " + option);
    option[equals] = 0;
    keys.push_back(option.c_str());
    values.push_back(option.c_str() + equals + 1);
  }
  must(ORT(api, append_provider)(options, env, ours.data(), ours.size(), keys.data(), values.data(), keys.size()));
}

std::vector<float> run(OrtSession *session, const char *input, const char *output, int64_t rows, int64_t columns) {
  std::vector<float> numbers(static_cast<std::size_t>(rows * columns));
  for (std::size_t i = 0; i < numbers.size(); i++) numbers[i] = 0.01f * static_cast<float>(i);
  const int64_t dims[] = {rows, columns};
  OrtMemoryInfo *memory = nullptr;
  OrtValue *in = nullptr, *out = nullptr;
  void *data = nullptr;
  must(ORT(api, cpu_memory)(0, 0, &memory));
  const Memory owned_memory(memory);
  must(ORT(api, create_tensor)(memory, numbers.data(), numbers.size() * sizeof(float), dims, 2, 1, &in));
  const Value owned_in(in);
  must(ORT(api, run)(session, nullptr, &input, &in, 1, &output, 1, &out));
  const Value owned_out(out);
  must(ORT(api, tensor_data)(out, &data));
  const auto *first = static_cast<const float *>(data);
  return {first, first + 4};
}

void program(int argc, char **argv) {
  if (argc < 8)
    throw std::runtime_error("provider LIBONNXRUNTIME LIBPROVIDER MODEL INPUT OUTPUT ROWS COLUMNS [option=value ...]");
  load_runtime(argv[1]);
  OrtEnv *env = nullptr;
  OrtSessionOptions *options = nullptr;
  OrtSession *session = nullptr;
  must(ORT(api, create_env)(2, "provider", &env));
  const Env owned_env(env);
  {
    must(ORT(api, create_options)(&options));
    const Options owned_options(options);
    use_provider(env, options, argv[2], std::vector<std::string>(argv + 8, argv + argc));
    must(ORT(api, create_session)(env, argv[3], options, &session));
    const Session owned_session(session);
    const auto answer = run(session, argv[4], argv[5], std::atoll(argv[6]), std::atoll(argv[7]));
    std::printf("%.6g %.6g %.6g %.6g\n", answer[0], answer[1], answer[2], answer[3]);
  }
  must(ORT(api, unregister_provider)(env, "smelt"));
}

}  // namespace

int main(int argc, char **argv) {
  try {
    program(argc, argv);
    return 0;
  } catch (const std::exception &error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
