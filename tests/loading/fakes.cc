#include "loading/fakes.h"

#include <dlfcn.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "attn_c_host.h"

namespace attn::test {
namespace {

void* open_or_die(const char* path) {
  void* library = dlopen(path, RTLD_NOW);
  if (library == nullptr) {
    std::fprintf(stderr, "%s\n", dlerror());
    std::abort();
  }
  return library;
}

void* driver_library() {
  static void* library = open_or_die(ATTN_FAKE_DRIVER);
  return library;
}

// A folder of this process; its links may stay when it ends.
std::string link_folder() {
  static const std::string folder = [] {
    std::string name =
        std::string(ATTN_TEST_BINARY_DIR) + "/tests/loading/links/" + std::to_string(getpid());
    std::filesystem::remove_all(name);
    std::filesystem::create_directories(name);
    return name;
  }();
  return folder;
}

// A function of the fake driver, as a host with CUDA code of its own has it.
template <class Function>
Function driver_function(const char* name) {
  static auto get = reinterpret_cast<int (*)(const char*, void**, int, uint64_t, int*)>(
      dlsym(driver_library(), "cuGetProcAddress_v2"));
  void* address = nullptr;
  get(name, &address, 12000, 0, nullptr);
  return reinterpret_cast<Function>(address);
}

}  // namespace

FakeDriver& driver() {
  static auto get = reinterpret_cast<FakeDriver* (*)()>(dlsym(driver_library(), "fake_driver"));
  return *get();
}

FakeNvrtc& nvrtc() {
  static auto get =
      reinterpret_cast<FakeNvrtc* (*)()>(dlsym(open_or_die(ATTN_FAKE_NVRTC), "fake_nvrtc"));
  return *get();
}

void reset_fakes() {
  FakeDriver& d = driver();
  d.version = 12040;
  d.devices = 2;
  d.major = 8;
  d.minor = 6;
  d.missing = d.fail_call = nullptr;
  d.fail_at = 1;
  d.fail_code = 999;
  d.forget_calls();
  FakeNvrtc& n = nvrtc();
  n.major = 13;
  n.minor = 5;
  n.fail_call = nullptr;
  n.fail_code = 6;
  n.empty_cubin = n.bad_cubin = n.needs_builtins = false;
  n.compiles = 0;
}

std::string new_path_to(const std::string& library) {
  static int number = 0;
  const std::string path = link_folder() + "/" + std::to_string(number++) + ".so";
  std::filesystem::create_symlink(library, path);
  return path;
}

CurrentContext::CurrentContext(int device) : device_(device) {
  driver_function<int (*)(void**, int)>("cuDevicePrimaryCtxRetain")(&context_, device);
  driver_function<int (*)(void*)>("cuCtxPushCurrent")(context_);
}

CurrentContext::~CurrentContext() {
  void* popped = nullptr;
  driver_function<int (*)(void**)>("cuCtxPopCurrent")(&popped);
  driver_function<int (*)(int)>("cuDevicePrimaryCtxRelease")(device_);
}

void* current_context() {
  void* context = nullptr;
  driver_function<int (*)(void**)>("cuCtxGetCurrent")(&context);
  return context;
}

int capture_mode() {
  return reinterpret_cast<int (*)()>(dlsym(driver_library(), "fake_driver_capture_mode"))();
}

Outcome create_cuda_context(Handle<attn_context>& context, const CudaOptions& options) {
  attn_context_desc desc = ATTN_CONTEXT_DESC_INIT;
  desc.flags = ATTN_CONTEXT_IGNORE_ENVIRONMENT;
  if (options.cache_folder.empty()) desc.flags |= ATTN_CONTEXT_NO_DISK_CACHE;
  desc.device_type = ATTN_DEVICE_CUDA;
  desc.device_id = options.device;
  desc.native_context = options.native_context;
  desc.driver_path = options.driver_path.empty() ? nullptr : options.driver_path.c_str();
  desc.nvrtc_path = options.nvrtc_path.empty() ? nullptr : options.nvrtc_path.c_str();
  desc.allocator = options.allocator;
  desc.cache_folder = options.cache_folder.empty() ? nullptr : options.cache_folder.c_str();
  return create(context, [&](attn_context** out, attn_error* error) {
    return attn_context_create(&desc, out, error);
  });
}

bool Step::go(const std::function<attn_status(attn_error*)>& call) {
  if (outcome.ok()) outcome = outcome_of(call);
  return outcome.ok();
}

attn_tensor Step::device_tensor(attn_dtype type, std::vector<int64_t> shape) {
  attn_tensor tensor = ATTN_TENSOR_INIT;
  tensor.device_type = ATTN_DEVICE_CUDA;
  tensor.device_id = device_;
  tensor.dtype = type;
  tensor.ndim = static_cast<int32_t>(shape.size());
  int64_t elements = 1;
  for (size_t axis = shape.size(); axis-- > 0;) {
    tensor.shape[axis] = shape[axis];
    tensor.strides[axis] = elements;
    elements *= shape[axis];
  }
  go([&](attn_error* error) {
    return attn_host_memory_alloc(context_.get(), ATTN_MEMORY_DEVICE,
                                  static_cast<uint64_t>(elements) * type.bits / 8, &tensor.data,
                                  error);
  });
  memory_.push_back(tensor.data);
  return tensor;
}

void Step::bind() {
  constexpr attn_dtype kHalf = {ATTN_DTYPE_FLOAT, 16, 1}, kInt = {ATTN_DTYPE_INT, 32, 1};
  const attn_tensor query = device_tensor(kHalf, {1, 1, 4 * 64});
  const attn_tensor key = device_tensor(kHalf, {1, 1, 2 * 64});
  const attn_tensor value = device_tensor(kHalf, {1, 1, 2 * 64});
  const attn_tensor key_cache = device_tensor(kHalf, {1, 2, 128, 64});
  const attn_tensor value_cache = device_tensor(kHalf, {1, 2, 128, 64});
  const attn_tensor lengths = device_tensor(kInt, {1});
  const attn_tensor output = device_tensor(kHalf, {1, 1, 4 * 64});
  attn_tensor total = ATTN_TENSOR_INIT;
  total.device_type = ATTN_DEVICE_CPU;
  total.dtype = kInt;
  total.data = &total_;
  inputs_.add(0, query);
  inputs_.add(1, key);
  inputs_.add(2, value);
  inputs_.add(3, key_cache);
  inputs_.add(4, value_cache);
  inputs_.add(5, lengths);
  inputs_.add(6, total);
  outputs_.add(0, output);
  outputs_.add(1, key_cache);
  outputs_.add(2, value_cache);
}

Step::Step(const CudaOptions& options) : device_(options.device) {
  outcome = create_cuda_context(context_, options);
  if (!outcome.ok()) return;
  outcome = create_op(op_, context_.get(), "com.microsoft", "GroupQueryAttention", 1,
                      Attributes().set_int("num_heads", 4).set_int("kv_num_heads", 2));
  if (outcome.ok()) outcome = create_session(session_, context_.get());
  go([&](attn_error* error) { return attn_host_stream_create(context_.get(), &stream_, error); });
  bind();
  if (!outcome.ok()) return;
  attn_prepare_desc desc = ATTN_PREPARE_DESC_INIT;
  desc.inputs = inputs_.data();
  desc.input_count = inputs_.size();
  desc.outputs = outputs_.data();
  desc.output_count = outputs_.size();
  outcome = create(plan_, [&](attn_plan** out, attn_error* error) {
    return attn_op_prepare(op_.get(), &desc, out, error);
  });
}

Step::~Step() {
  for (void* memory : memory_) {
    attn_host_memory_free(context_.get(), ATTN_MEMORY_DEVICE, memory, nullptr);
  }
  if (context_) attn_host_stream_release(context_.get(), stream_, nullptr);
}

Outcome Step::execute(uint32_t flags) {
  attn_execute_desc desc = ATTN_EXECUTE_DESC_INIT;
  desc.stream = stream_;
  desc.flags = flags;
  return outcome_of([&](attn_error* error) {
    return attn_plan_execute(plan_.get(), session_.get(), inputs_.data(), inputs_.size(),
                             outputs_.data(), outputs_.size(), &desc, error);
  });
}

Outcome Step::capture(const std::function<Outcome()>& call, int* held) {
  Outcome first = outcome_of([&](attn_error* error) {
    return attn_host_graph_begin_capture(context_.get(), stream_, error);
  });
  if (!first.ok()) return first;
  first = call();
  attn_host_graph* graph = nullptr;
  const Outcome ended = outcome_of([&](attn_error* error) {
    return attn_host_graph_end_capture(context_.get(), stream_, &graph, error);
  });
  if (first.ok()) first = ended;
  if (first.ok()) {
    first = outcome_of(
        [&](attn_error* error) { return attn_host_graph_launch(graph, stream_, error); });
  }
  if (held != nullptr) *held = driver().user_objects;
  attn_host_graph_release(graph);
  return first;
}

Outcome Step::clear() {
  return outcome_of(
      [&](attn_error* error) { return attn_session_clear_faults(session_.get(), stream_, error); });
}

Outcome Step::trim() {
  return outcome_of([&](attn_error* error) { return attn_context_trim(context_.get(), error); });
}

std::string Step::describe() const {
  return text_of([&](char* buffer, size_t capacity, size_t* needed) {
    return attn_plan_describe(plan_.get(), buffer, capacity, needed, nullptr);
  });
}

}  // namespace attn::test
