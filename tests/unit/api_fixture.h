// A context, an op and a small GroupQueryAttention call, through the C API alone.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <span>
#include <string>
#include <vector>

#include "attn_c.h"

namespace attn::test {

// An error that can be asked what it says.
struct ApiError : attn_error {
  ApiError() : attn_error(ATTN_ERROR_INIT) {}
  std::string text() const { return message; }
};

// Fails unless the call gave this status and its message holds the words.
#define EXPECT_REFUSED(call, wanted, words)                                                \
  do {                                                                                     \
    attn::test::ApiError error;                                                            \
    EXPECT_EQ((call), (wanted)) << error.text();                                           \
    EXPECT_EQ(error.status, (wanted));                                                     \
    EXPECT_NE(error.text().find(words), std::string::npos) << "message: " << error.text(); \
  } while (false)

#define ASSERT_OK(call)                         \
  do {                                          \
    attn::test::ApiError error;                 \
    ASSERT_EQ((call), ATTN_OK) << error.text(); \
  } while (false)

constexpr attn_dtype kApiFloat = {ATTN_DTYPE_FLOAT, 32, 1};
constexpr attn_dtype kApiInt32 = {ATTN_DTYPE_INT, 32, 1};
constexpr attn_dtype kApiInt64 = {ATTN_DTYPE_INT, 64, 1};

// A row-major tensor on the host.
inline attn_tensor api_tensor(attn_dtype type, std::initializer_list<int64_t> shape,
                              void* data = nullptr) {
  attn_tensor tensor = ATTN_TENSOR_INIT;
  tensor.device_type = ATTN_DEVICE_CPU;
  tensor.dtype = type;
  tensor.data = data;
  for (const int64_t size : shape) tensor.shape[tensor.ndim++] = size;
  int64_t stride = 1;
  for (int32_t axis = tensor.ndim - 1; axis >= 0; --axis) {
    tensor.strides[axis] = stride;
    stride *= tensor.shape[axis] > 0 ? tensor.shape[axis] : 1;
  }
  return tensor;
}

inline attn_attribute api_int(const char* name, int64_t value) {
  attn_attribute attribute{};
  attribute.name = name;
  attribute.type = ATTN_ATTRIBUTE_INT;
  attribute.i = value;
  return attribute;
}

inline attn_context* make_api_context(const attn_context_desc* desc = nullptr) {
  ApiError error;
  attn_context* context = nullptr;
  EXPECT_EQ(attn_context_create(desc, &context, &error), ATTN_OK) << error.text();
  return context;
}

inline attn_context_desc api_context_desc() {
  attn_context_desc desc = ATTN_CONTEXT_DESC_INIT;
  desc.flags = ATTN_CONTEXT_IGNORE_ENVIRONMENT;
  return desc;
}

inline attn_status create_gqa(attn_context* context, std::span<const attn_attribute> attributes,
                              const char* label, attn_op** op, attn_error* error) {
  attn_op_desc desc = ATTN_OP_DESC_INIT;
  desc.domain = "com.microsoft";
  desc.type = "GroupQueryAttention";
  desc.version = 1;
  desc.label = label;
  desc.attributes = attributes.data();
  desc.attribute_count = static_cast<uint32_t>(attributes.size());
  return attn_op_create(context, &desc, op, error);
}

inline attn_op* make_gqa(attn_context* context, const char* label = nullptr, int64_t heads = 2,
                         int64_t kv_heads = 1, int64_t window = -1) {
  const attn_attribute attributes[] = {api_int("num_heads", heads),
                                       api_int("kv_num_heads", kv_heads),
                                       api_int("local_window_size", window)};
  ApiError error;
  attn_op* op = nullptr;
  EXPECT_EQ(create_gqa(context, attributes, label, &op, &error), ATTN_OK) << error.text();
  return op;
}

inline attn_session* make_api_session(attn_context* context) {
  ApiError error;
  attn_session* session = nullptr;
  EXPECT_EQ(attn_session_create(context, nullptr, &session, &error), ATTN_OK) << error.text();
  return session;
}

inline attn_context_stats api_stats(attn_context* context) {
  attn_context_stats stats = ATTN_CONTEXT_STATS_INIT;
  EXPECT_EQ(attn_context_get_stats(context, &stats, nullptr), ATTN_OK);
  return stats;
}

// One decode step of a GroupQueryAttention with caches in place: `total` keys exist afterwards.
// With total 1 every head's output is the value row.
struct DecodeStep {
  static constexpr int64_t kHeadSize = 8;

  explicit DecodeStep(int64_t batch = 1, int64_t total = 1, int64_t capacity = 4, int64_t heads = 2,
                      int64_t kv_heads = 1)
      : batch_(batch), capacity_(capacity), heads_(heads), kv_heads_(kv_heads) {
    q.assign(static_cast<size_t>(batch * heads * kHeadSize), 0.5f);
    k.assign(static_cast<size_t>(batch * kv_heads * kHeadSize), 0.25f);
    v.resize(k.size());
    for (size_t i = 0; i < v.size(); ++i) v[i] = static_cast<float>(i) + 1;
    key_cache.assign(static_cast<size_t>(batch * kv_heads * capacity * kHeadSize), 0.0f);
    value_cache.assign(key_cache.size(), 0.0f);
    y.assign(q.size(), -7.0f);
    seqlens.assign(static_cast<size_t>(batch), static_cast<int32_t>(total - 1));
    total_length = static_cast<int32_t>(total);
    describe();
  }

  // Tensors and lists anew, after a buffer was changed.
  void describe() {
    t_q = api_tensor(kApiFloat, {batch_, 1, heads_ * kHeadSize}, q.data());
    t_k = api_tensor(kApiFloat, {batch_, 1, kv_heads_ * kHeadSize}, k.data());
    t_v = api_tensor(kApiFloat, {batch_, 1, kv_heads_ * kHeadSize}, v.data());
    t_kc = api_tensor(kApiFloat, {batch_, kv_heads_, capacity_, kHeadSize}, key_cache.data());
    t_vc = api_tensor(kApiFloat, {batch_, kv_heads_, capacity_, kHeadSize}, value_cache.data());
    t_seqlens = api_tensor(kApiInt32, {batch_}, seqlens.data());
    t_total = api_tensor(kApiInt32, {}, &total_length);
    t_y = api_tensor(kApiFloat, {batch_, 1, heads_ * kHeadSize}, y.data());
    inputs = {{{0, 0, &t_q},
               {1, 0, &t_k},
               {2, 0, &t_v},
               {3, 0, &t_kc},
               {4, 0, &t_vc},
               {5, 0, &t_seqlens},
               {6, 0, &t_total}}};
    outputs = {{{0, 0, &t_y}, {1, 0, &t_kc}, {2, 0, &t_vc}}};
  }

  void drop_data() {
    for (attn_tensor* tensor : {&t_q, &t_k, &t_v, &t_kc, &t_vc, &t_seqlens, &t_total, &t_y}) {
      tensor->data = nullptr;
    }
  }

  attn_prepare_desc prepare_desc() const {
    attn_prepare_desc desc = ATTN_PREPARE_DESC_INIT;
    desc.inputs = inputs.data();
    desc.input_count = 7;
    desc.outputs = outputs.data();
    desc.output_count = 3;
    return desc;
  }

  attn_query_desc query_desc() const {
    attn_query_desc desc = ATTN_QUERY_DESC_INIT;
    desc.inputs = inputs.data();
    desc.input_count = 7;
    desc.outputs = outputs.data();
    desc.output_count = 3;
    return desc;
  }

  attn_status prepare(attn_op* op, attn_plan** plan, attn_error* error) const {
    const attn_prepare_desc desc = prepare_desc();
    return attn_op_prepare(op, &desc, plan, error);
  }

  attn_status execute(attn_plan* plan, attn_session* session, attn_error* error,
                      const attn_execute_desc* desc = nullptr) const {
    return attn_plan_execute(plan, session, inputs.data(), 7, outputs.data(), 3, desc, error);
  }

  attn_status set(attn_binding* binding, attn_error* error) const {
    return attn_binding_set_tensors(binding, inputs.data(), 7, outputs.data(), 3, error);
  }

  // Every head's output is the one value row (total 1).
  void expect_value_rows() const {
    for (int64_t b = 0; b < batch_; ++b) {
      for (int64_t h = 0; h < heads_; ++h) {
        for (int64_t c = 0; c < kHeadSize; ++c) {
          const int64_t kv = h / (heads_ / kv_heads_);
          EXPECT_EQ(y[static_cast<size_t>((b * heads_ + h) * kHeadSize + c)],
                    v[static_cast<size_t>((b * kv_heads_ + kv) * kHeadSize + c)])
              << "batch " << b << " head " << h << " channel " << c;
        }
      }
    }
  }

  int64_t batch_, capacity_, heads_, kv_heads_;
  std::vector<float> q, k, v, key_cache, value_cache, y;
  std::vector<int32_t> seqlens;
  int32_t total_length = 0;
  attn_tensor t_q, t_k, t_v, t_kc, t_vc, t_seqlens, t_total, t_y;
  std::array<attn_arg, 7> inputs;
  std::array<attn_arg, 3> outputs;
};

// A context with an op and a session, released in the end.
class ApiTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const attn_context_desc desc = api_context_desc();
    context = make_api_context(&desc);
    ASSERT_NE(context, nullptr);
    op = make_gqa(context, "layer3");
    session = make_api_session(context);
    ASSERT_NE(op, nullptr);
    ASSERT_NE(session, nullptr);
  }
  void TearDown() override {
    attn_session_release(session);
    attn_op_release(op);
    attn_context_release(context);
  }

  attn_plan* prepare(const DecodeStep& step) {
    ApiError error;
    attn_plan* plan = nullptr;
    EXPECT_EQ(step.prepare(op, &plan, &error), ATTN_OK) << error.text();
    return plan;
  }

  attn_binding* bind() {
    ApiError error;
    attn_binding* binding = nullptr;
    EXPECT_EQ(attn_binding_create(op, session, &binding, &error), ATTN_OK) << error.text();
    return binding;
  }

  attn_context* context = nullptr;
  attn_op* op = nullptr;
  attn_session* session = nullptr;
};

}  // namespace attn::test
