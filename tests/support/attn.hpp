// The C API for tests in C++: handles that release themselves, failures as values.
#pragma once

#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "attn_c.h"
#include "support/tensor.h"

namespace attn::test {

// What a call returned.
struct Outcome {
  attn_status status = ATTN_OK;
  std::string message;
  int64_t native_code = 0;
  uint32_t native_domain = ATTN_DOMAIN_NONE, flags = 0;
  bool ok() const { return status == ATTN_OK; }
};

// Runs `call(attn_error*)` and keeps status and message together.
template <class Call>
Outcome outcome_of(Call&& call) {
  attn_error error = ATTN_ERROR_INIT;
  Outcome outcome;
  outcome.status = call(&error);
  if (outcome.status == ATTN_OK) return outcome;
  outcome.message = error.message;
  outcome.native_code = error.native_code;
  outcome.native_domain = error.native_domain;
  outcome.flags = error.flags;
  return outcome;
}

// A text that is fetched by the two-call rule.
template <class Call>
std::string text_of(Call&& call) {
  size_t needed = 0;
  if (call(nullptr, size_t{0}, &needed) != ATTN_OK || needed == 0) return {};
  std::string text(needed, '\0');
  if (call(text.data(), text.size(), &needed) != ATTN_OK) return {};
  text.resize(std::strlen(text.c_str()));
  return text;
}

namespace detail {
struct Release {
  void operator()(attn_context* handle) const { attn_context_release(handle); }
  void operator()(attn_session* handle) const { attn_session_release(handle); }
  void operator()(attn_op* handle) const { attn_op_release(handle); }
  void operator()(attn_plan* handle) const { attn_plan_release(handle); }
  void operator()(attn_binding* handle) const { attn_binding_release(handle); }
};
}  // namespace detail

template <class T>
using Handle = std::unique_ptr<T, detail::Release>;

// Creates one object; `call(T**, attn_error*)` is the C function with its other arguments bound.
template <class T, class Call>
Outcome create(Handle<T>& handle, Call&& call) {
  T* raw = nullptr;
  const Outcome outcome = outcome_of([&](attn_error* error) { return call(&raw, error); });
  handle.reset(raw);
  return outcome;
}

// Options of a test's context: the CPU, undisturbed by the environment.
struct ContextOptions {
  int threads = 0;
  std::string level;   // empty: the best
  std::string engine;  // empty: chosen
  const attn_executor* executor = nullptr;
};

inline Outcome create_context(Handle<attn_context>& context, const ContextOptions& options = {}) {
  attn_context_desc desc = ATTN_CONTEXT_DESC_INIT;
  desc.flags = ATTN_CONTEXT_IGNORE_ENVIRONMENT;
  desc.thread_count = options.threads;
  desc.simd_level = options.level.empty() ? nullptr : options.level.c_str();
  desc.engine = options.engine.empty() ? nullptr : options.engine.c_str();
  desc.executor = options.executor;
  return create(context, [&](attn_context** out, attn_error* error) {
    return attn_context_create(&desc, out, error);
  });
}

inline std::vector<std::string> split_names(std::string_view joined) {
  std::vector<std::string> names;
  while (!joined.empty()) {
    const size_t comma = joined.find(',');
    names.emplace_back(joined.substr(0, comma));
    joined = comma == std::string_view::npos ? std::string_view() : joined.substr(comma + 1);
  }
  return names;
}

inline attn_context_info info_of(attn_context* context) {
  attn_context_info info = ATTN_CONTEXT_INFO_INIT;
  attn_context_get_info(context, &info, nullptr);
  return info;
}

inline std::vector<std::string> simd_levels() {
  Handle<attn_context> context;
  if (!create_context(context).ok()) return {};
  return split_names(info_of(context.get()).simd_levels);
}

// Attributes by name; the names must be literals.
class Attributes {
 public:
  Attributes& set_int(const char* name, int64_t value) {
    return add({name, ATTN_ATTRIBUTE_INT, 0, value, 0, nullptr});
  }
  Attributes& set_float(const char* name, double value) {
    return add({name, ATTN_ATTRIBUTE_FLOAT, 0, 0, value, nullptr});
  }
  Attributes& set_text(const char* name, const char* value) {
    return add({name, ATTN_ATTRIBUTE_STRING, 0, 0, 0, value});
  }
  const std::vector<attn_attribute>& list() const { return list_; }

 private:
  Attributes& add(attn_attribute attribute) {
    list_.push_back(attribute);
    return *this;
  }
  std::vector<attn_attribute> list_;
};

inline Outcome create_op(Handle<attn_op>& op, attn_context* context, const char* domain,
                         const char* type, int32_t version, const Attributes& attributes,
                         const char* label = nullptr) {
  attn_op_desc desc = ATTN_OP_DESC_INIT;
  desc.domain = domain;
  desc.type = type;
  desc.version = version;
  desc.label = label;
  desc.attributes = attributes.list().data();
  desc.attribute_count = static_cast<uint32_t>(attributes.list().size());
  return create(op, [&](attn_op** out, attn_error* error) {
    return attn_op_create(context, &desc, out, error);
  });
}

inline Outcome create_session(Handle<attn_session>& session, attn_context* context) {
  return create(session, [&](attn_session** out, attn_error* error) {
    return attn_session_create(context, nullptr, out, error);
  });
}

inline attn_dtype dtype_of(Type type) {
  switch (type) {
    case Type::kFloat32:
      return {ATTN_DTYPE_FLOAT, 32, 1};
    case Type::kFloat16:
      return {ATTN_DTYPE_FLOAT, 16, 1};
    case Type::kBfloat16:
      return {ATTN_DTYPE_BFLOAT, 16, 1};
    case Type::kFloat64:
      return {ATTN_DTYPE_FLOAT, 64, 1};
    case Type::kInt32:
      return {ATTN_DTYPE_INT, 32, 1};
    case Type::kInt64:
      return {ATTN_DTYPE_INT, 64, 1};
    case Type::kBool:
      return {ATTN_DTYPE_BOOL, 8, 1};
  }
  return {};
}

// Describes a view; data is the address of its first element.
inline attn_tensor describe(const View& view) {
  attn_tensor tensor = ATTN_TENSOR_INIT;
  tensor.flags = ATTN_TENSOR_BROADCAST;  // strides are always stated
  tensor.device_type = ATTN_DEVICE_CPU;
  tensor.dtype = dtype_of(view.type);
  tensor.ndim = static_cast<int32_t>(view.shape.size());
  for (size_t axis = 0; axis < view.shape.size(); ++axis) {
    tensor.shape[axis] = view.shape[axis];
    tensor.strides[axis] = view.strides[axis];
  }
  tensor.data = view.data;
  return tensor;
}

// Describes a tensor through the begin of its memory, a byte offset and the number of bytes.
inline attn_tensor describe(const Tensor& owner) {
  attn_tensor tensor = describe(owner.view());
  tensor.data = owner.buffer().data();
  tensor.byte_offset = static_cast<uint64_t>(owner.byte_offset());
  tensor.data_bytes = static_cast<uint64_t>(owner.buffer().size());
  return tensor;
}

// The arguments of a call: owns the descriptors that its attn_arg list points to.
class Arguments {
 public:
  void add(uint32_t slot, const attn_tensor& tensor) {
    tensors_.push_back(std::make_unique<attn_tensor>(tensor));
    list_.push_back({slot, 0, tensors_.back().get()});
  }
  const attn_arg* data() const { return list_.data(); }
  uint32_t size() const { return static_cast<uint32_t>(list_.size()); }
  // The same arguments without memory, as queries take them.
  Arguments shapes() const {
    Arguments copy;
    for (const attn_arg& arg : list_) {
      attn_tensor tensor = *arg.tensor;
      tensor.data = nullptr;
      tensor.byte_offset = tensor.data_bytes = 0;
      copy.add(arg.slot, tensor);
    }
    return copy;
  }

 private:
  std::vector<std::unique_ptr<attn_tensor>> tensors_;
  std::vector<attn_arg> list_;
};

}  // namespace attn::test
