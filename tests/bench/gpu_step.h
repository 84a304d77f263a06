// A decode step of GroupQueryAttention on a CUDA device through the public API, with as little
// around the library as can be, for measuring what it costs the host.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "attn_c.h"
#include "bench/gpu_driver.h"

namespace attn::bench {

using Clock = std::chrono::steady_clock;

// The table of the library at `path`, opened at run time as its users do.
inline const attn_api& open_library(const std::string& path) {
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) fail(dlerror());
  using GetApi = attn_status (*)(uint32_t, const attn_api**, attn_error*);
  const auto get_api = reinterpret_cast<GetApi>(dlsym(library, "attn_get_api"));
  const attn_api* api = nullptr;
  attn_error error = ATTN_ERROR_INIT;
  if (get_api == nullptr || get_api(ATTN_ABI_VERSION, &api, &error) != ATTN_OK) fail(error.message);
  return *api;
}

inline void check(attn_status status, const attn_error& error) {
  if (status != ATTN_OK) fail(error.message);
}

// What the step is made of. One sequence; 32 query heads over 8 key heads.
struct StepOptions {
  std::string type = "bfloat16";  // float16, float32
  int64_t head_size = 128;
  bool rotary = true;
  int64_t capacity = 1024;
  int32_t total = 512;
};

// Device memory of the step, made before anything is timed; every tensor lies in it.
class Step {
 public:
  Step(const Driver& driver, const StepOptions& options) : driver_(driver), options_(options) {
    const int64_t d = options.head_size, rows = options.capacity;
    query = make({1, 1, kHeads * d});
    key = make({1, 1, kKvHeads * d});
    value = make({1, 1, kKvHeads * d});
    output = make({1, 1, kHeads * d});
    key_cache = make({1, kKvHeads, rows, d});
    value_cache = make({1, kKvHeads, rows, d});
    cos = make({rows, d / 2});
    sin = make({rows, d / 2});
    lengths = make_length({1}, options.total - 1);
    total = make_length({1}, options.total);
    inputs = {{0, 0, &query},       {1, 0, &key},     {2, 0, &value}, {3, 0, &key_cache},
              {4, 0, &value_cache}, {5, 0, &lengths}, {6, 0, &total}};
    if (options.rotary) {
      inputs.push_back({7, 0, &cos});
      inputs.push_back({8, 0, &sin});
    }
    outputs = {{0, 0, &output}, {1, 0, &key_cache}, {2, 0, &value_cache}};
    must("cuMemsetD8", driver.MemsetD8(address(output), 0xff, bytes(output)));  // NaN
  }
  Step(const Step&) = delete;
  Step& operator=(const Step&) = delete;

  // Whether the output holds what attention over zeros gives, which is zeros.
  bool is_written() const {
    std::vector<unsigned char> host(bytes(output), 1);
    must("cuMemcpyDtoH", driver_.MemcpyDtoH(host.data(), address(output), host.size()));
    for (const unsigned char byte : host) {
      if (byte != 0) return false;
    }
    return true;
  }

  std::vector<attn_arg> inputs, outputs;
  attn_tensor query, key, value, output, key_cache, value_cache, cos, sin, lengths, total;

  static constexpr int64_t kHeads = 32, kKvHeads = 8;

 private:
  static uint64_t address(const attn_tensor& t) { return reinterpret_cast<uint64_t>(t.data); }
  static size_t bytes(const attn_tensor& t) {
    size_t count = t.dtype.bits / 8;
    for (int axis = 0; axis < t.ndim; ++axis) count *= static_cast<size_t>(t.shape[axis]);
    return count;
  }
  attn_tensor make(const std::vector<int64_t>& shape, attn_dtype dtype) const {
    attn_tensor t = ATTN_TENSOR_INIT;
    t.device_type = ATTN_DEVICE_CUDA;
    t.dtype = dtype;
    t.ndim = static_cast<int32_t>(shape.size());
    int64_t stride = 1;
    for (size_t axis = shape.size(); axis-- > 0; stride *= shape[axis]) {
      t.shape[axis] = shape[axis];
      t.strides[axis] = stride;
    }
    uint64_t memory = 0;
    must("cuMemAlloc", driver_.MemAlloc(&memory, bytes(t)));
    must("cuMemsetD8", driver_.MemsetD8(memory, 0, bytes(t)));
    t.data = reinterpret_cast<void*>(memory);
    return t;
  }
  attn_tensor make(const std::vector<int64_t>& shape) const {
    const uint8_t code = options_.type == "bfloat16" ? ATTN_DTYPE_BFLOAT : ATTN_DTYPE_FLOAT;
    return make(shape, {code, static_cast<uint8_t>(options_.type == "float32" ? 32 : 16), 1});
  }
  attn_tensor make_length(const std::vector<int64_t>& shape, int32_t number) const {
    const attn_tensor t = make(shape, {ATTN_DTYPE_INT, 32, 1});
    must("cuMemcpyHtoD", driver_.MemcpyHtoD(address(t), &number, sizeof(number)));
    return t;
  }

  const Driver& driver_;
  const StepOptions options_;
};

// The library's objects for a step, ready to execute.
class Prepared {
 public:
  Prepared(const attn_api& api, Step& step, const StepOptions& options, uint32_t context_flags)
      : api_(api), step_(step) {
    attn_error error = ATTN_ERROR_INIT;
    attn_context_desc context_desc = ATTN_CONTEXT_DESC_INIT;
    context_desc.device_type = ATTN_DEVICE_CUDA;
    context_desc.flags = context_flags;
    check(api.context_create(&context_desc, &context, &error), error);
    const attn_attribute attributes[] = {
        {"num_heads", ATTN_ATTRIBUTE_INT, 0, Step::kHeads, 0.0, nullptr},
        {"kv_num_heads", ATTN_ATTRIBUTE_INT, 0, Step::kKvHeads, 0.0, nullptr},
        {"do_rotary", ATTN_ATTRIBUTE_INT, 0, options.rotary ? 1 : 0, 0.0, nullptr}};
    attn_op_desc op_desc = ATTN_OP_DESC_INIT;
    op_desc.domain = "com.microsoft";
    op_desc.type = "GroupQueryAttention";
    op_desc.version = 1;
    op_desc.attributes = attributes;
    op_desc.attribute_count = 3;
    check(api.op_create(context, &op_desc, &op, &error), error);
    opened = Clock::now();
    check(api.session_create(context, nullptr, &session, &error), error);
    ordered = Clock::now();
    check(api.binding_create(op, session, &binding, &error), error);
    check(api.binding_set_tensors(binding, step.inputs.data(), size(step.inputs),
                                  step.outputs.data(), size(step.outputs), &error),
          error);
    check(api.binding_prepare(binding, nullptr, &error), error);
  }
  ~Prepared() {
    api_.plan_release(plan);
    api_.binding_release(binding);
    api_.session_release(session);
    api_.op_release(op);
    api_.context_release(context);
  }
  Prepared(const Prepared&) = delete;
  Prepared& operator=(const Prepared&) = delete;

  // The same plan by itself, for plan_execute.
  void make_plan() {
    attn_error error = ATTN_ERROR_INIT;
    attn_prepare_desc desc = ATTN_PREPARE_DESC_INIT;
    desc.inputs = step_.inputs.data();
    desc.input_count = size(step_.inputs);
    desc.outputs = step_.outputs.data();
    desc.output_count = size(step_.outputs);
    check(api_.op_prepare(op, &desc, &plan, &error), error);
  }
  void execute_binding(const attn_execute_desc& desc) {
    attn_error error = ATTN_ERROR_INIT;
    check(api_.binding_execute(binding, &desc, &error), error);
  }
  void execute_plan(const attn_execute_desc& desc) {
    attn_error error = ATTN_ERROR_INIT;
    check(api_.plan_execute(plan, session, step_.inputs.data(), size(step_.inputs),
                            step_.outputs.data(), size(step_.outputs), &desc, &error),
          error);
  }

  attn_context* context = nullptr;
  attn_op* op = nullptr;
  attn_session* session = nullptr;
  attn_binding* binding = nullptr;
  attn_plan* plan = nullptr;
  Clock::time_point opened, ordered;  // once the op was there, and once the session was

 private:
  static uint32_t size(const std::vector<attn_arg>& list) {
    return static_cast<uint32_t>(list.size());
  }
  const attn_api& api_;
  Step& step_;
};

}  // namespace attn::bench
