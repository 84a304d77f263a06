// Builds calls of GroupQueryAttention for the tests of its front end.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/error.h"
#include "ops/group_query_attention.h"
#include "ops/operator.h"

namespace attn::ops_test {

// A row-major tensor; unknown sizes leave the strides outside them 0.
inline Tensor make_tensor(DType type, std::initializer_list<int64_t> shape, void* data = nullptr,
                          Placement placement = Placement::kHost) {
  Tensor tensor;
  tensor.present = true;
  tensor.placement = placement;
  tensor.type = type;
  tensor.data = data;
  for (const int64_t size : shape) tensor.shape[static_cast<size_t>(tensor.rank++)] = size;
  int64_t stride = 1;
  for (int32_t axis = tensor.rank - 1; axis >= 0; --axis) {
    const size_t i = static_cast<size_t>(axis);
    tensor.strides[i] = stride;
    stride = tensor.shape[i] == kAnyDim ? 0 : stride * tensor.shape[i];
  }
  return tensor;
}

inline Attribute make_int(std::string name, int64_t value) {
  Attribute attribute;
  attribute.name = std::move(name);
  attribute.type = ATTN_ATTRIBUTE_INT;
  attribute.i = value;
  return attribute;
}

inline Attribute make_float(std::string name, double value) {
  Attribute attribute;
  attribute.name = std::move(name);
  attribute.type = ATTN_ATTRIBUTE_FLOAT;
  attribute.f = value;
  return attribute;
}

inline Attribute make_string(std::string name, std::string value) {
  Attribute attribute;
  attribute.name = std::move(name);
  attribute.type = ATTN_ATTRIBUTE_STRING;
  attribute.s = std::move(value);
  return attribute;
}

// Sizes of the calls below.
inline constexpr int64_t kBatch = 2, kRows = 3, kHeads = 4, kKvHeads = 2, kChannels = 8;
inline constexpr int64_t kPast = 5, kCapacity = 9, kWidth = 6, kPositions = 64;

// A call without data. It starts as a chunk of kRows tokens with a past and separate presents.
struct GqaCall {
  std::vector<Attribute> attributes = {make_int("num_heads", kHeads),
                                       make_int("kv_num_heads", kKvHeads)};
  Arguments arguments;
  LowerMode mode = LowerMode::kPlan;

  explicit GqaCall(DType type = kFloat32) {
    using namespace gqa;
    in(kQuery) = make_tensor(type, {kBatch, kRows, kHeads * kChannels});
    in(kKey) = make_tensor(type, {kBatch, kRows, kKvHeads * kChannels});
    in(kValue) = make_tensor(type, {kBatch, kRows, kKvHeads * kChannels});
    in(kPastKey) = make_tensor(type, {kBatch, kKvHeads, kPast, kChannels});
    in(kPastValue) = make_tensor(type, {kBatch, kKvHeads, kPast, kChannels});
    in(kSeqlensK) = make_tensor(kInt32, {kBatch});
    in(kTotalLength) = make_tensor(kInt32, {});
    out(kOutput) = make_tensor(type, {kBatch, kRows, kHeads * kChannels});
    out(kPresentKey) = make_tensor(type, {kBatch, kKvHeads, kCapacity, kChannels});
    out(kPresentValue) = make_tensor(type, {kBatch, kKvHeads, kCapacity, kChannels});
  }

  Tensor& in(int position) { return arguments.in[static_cast<size_t>(position)]; }
  Tensor& out(int position) { return arguments.out[static_cast<size_t>(position)]; }
  void set(Attribute attribute) { attributes.push_back(std::move(attribute)); }
  void set(const char* name, int64_t value) { set(make_int(name, value)); }

  // do_rotary with tables of this type.
  void rotate(DType table) {
    using namespace gqa;
    set("do_rotary", 1);
    in(kCosCache) = make_tensor(table, {kPositions, kWidth / 2});
    in(kSinCache) = make_tensor(table, {kPositions, kWidth / 2});
  }
  void norm() {
    using namespace gqa;
    in(kQNormWeight) = make_tensor(in(kQuery).type, {kChannels});
    in(kKNormWeight) = make_tensor(in(kQuery).type, {kChannels});
  }
  void pack() {
    using namespace gqa;
    in(kQuery) = make_tensor(in(kQuery).type, {kBatch, kRows, (kHeads + 2 * kKvHeads) * kChannels});
    in(kKey) = in(kValue) = Tensor{};
  }
  void drop_past() { in(gqa::kPastKey) = in(gqa::kPastValue) = Tensor{}; }
  void drop_present() { out(gqa::kPresentKey) = out(gqa::kPresentValue) = Tensor{}; }
  void share(int input, int output) { arguments.alias[static_cast<size_t>(output)] |= 1u << input; }

  std::unique_ptr<Operator> create() const {
    const OperatorDefinition& definition = find_operator("com.microsoft", "GroupQueryAttention", 1);
    return definition.create(Attributes(*definition.schema, attributes), 1);
  }
  Lowering lower() const {
    Lowering lowering;
    create()->lower(arguments, mode, lowering);
    return lowering;
  }
  Tensor infer(int position, bool* depends = nullptr) const {
    Tensor tensor;
    const bool missing = create()->infer(arguments, position, tensor);
    if (depends != nullptr) *depends = missing;
    return tensor;
  }
};

// What `action` throws as "status: message", empty when it does not throw.
template <class Action>
std::string refusal(const Action& action) {
  try {
    action();
  } catch (const Error& error) {
    return cat(error.status(), ": ", error.message());
  }
  return "";
}

}  // namespace attn::ops_test
