// Builds calls of Attention for the tests of its front end.
#pragma once

#include <memory>
#include <vector>

#include "ops/attention.h"
#include "ops_gqa_call.h"

namespace attn::ops_test {

// B, S, N, P, heads and sizes of the calls below.
inline constexpr int64_t kB = 2, kS = 3, kN = 5, kP = 4, kHq = 4, kHkv = 2, kD = 8, kDv = 6;

// A 4-D call without caches and without data.
struct AttentionCall {
  std::vector<Attribute> attributes;
  Arguments arguments;
  LowerMode mode = LowerMode::kPlan;
  int32_t version = 24;

  explicit AttentionCall(DType type = kFloat32) {
    using namespace attention;
    in(kQ) = make_tensor(type, {kB, kHq, kS, kD});
    in(kK) = make_tensor(type, {kB, kHkv, kN, kD});
    in(kV) = make_tensor(type, {kB, kHkv, kN, kDv});
    out(kY) = make_tensor(type, {kB, kHq, kS, kDv});
  }

  Tensor& in(int position) { return arguments.in[static_cast<size_t>(position)]; }
  Tensor& out(int position) { return arguments.out[static_cast<size_t>(position)]; }
  void set(Attribute attribute) { attributes.push_back(std::move(attribute)); }
  void set(const char* name, int64_t value) { set(make_int(name, value)); }

  void flatten() {
    using namespace attention;
    in(kQ) = make_tensor(kFloat32, {kB, kS, kHq * kD});
    in(kK) = make_tensor(kFloat32, {kB, kN, kHkv * kD});
    in(kV) = make_tensor(kFloat32, {kB, kN, kHkv * kDv});
    out(kY) = make_tensor(kFloat32, {kB, kS, kHq * kDv});
  }
  void add_past(int64_t rows = kP) {
    using namespace attention;
    in(kPastKey) = make_tensor(kFloat32, {kB, kHkv, rows, kD});
    in(kPastValue) = make_tensor(kFloat32, {kB, kHkv, rows, kDv});
  }
  void add_present(int64_t rows) { add_present(rows, rows); }
  void add_present(int64_t key_rows, int64_t value_rows) {
    using namespace attention;
    out(kPresentKey) = make_tensor(kFloat32, {kB, kHkv, key_rows, kD});
    out(kPresentValue) = make_tensor(kFloat32, {kB, kHkv, value_rows, kDv});
  }
  void share_caches() {
    using namespace attention;
    arguments.alias[kPresentKey] |= 1u << kPastKey;
    arguments.alias[kPresentValue] |= 1u << kPastValue;
  }

  std::unique_ptr<Operator> create() const {
    return create_attention(Attributes(kAttentionSchema, attributes), version);
  }
  Lowering lower() const {
    Lowering lowering;
    create()->lower(arguments, mode, lowering);
    return lowering;
  }
  std::string refused() const {
    return refusal([&] { lower(); });
  }
};

}  // namespace attn::ops_test
