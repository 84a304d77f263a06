// One random problem of ai.onnx Attention in memory: fenced, poisoned, with its expected result.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "matrix/attention_outline.h"
#include "matrix/case.h"
#include "matrix/matrix.h"
#include "reference/onnx_attention.h"
#include "support/tensor.h"

namespace attn::matrix {

// Slots of the operator.
struct AttentionSlots {
  enum Input : uint32_t { kQ, kK, kV, kMask, kPastKey, kPastValue, kNonpad, kInputs };
  enum Output : uint32_t { kY, kPresentKey, kPresentValue, kScores, kLogSumExp, kOutputs };
};

struct AttentionCase final : Case, AttentionSlots {
  AttentionOutline outline;
  std::array<test::Tensor, kInputs> in;    // in place the past tensor is the whole buffer
  std::array<test::Tensor, kOutputs> out;  // an output in place is unbound here
  // What the caller binds: views of the tensors above.
  std::array<test::View, kInputs> given;
  std::array<test::View, kOutputs> wanted;
  reference::OnnxAttention problem;
  reference::OnnxAttentionResult expected;
  // Batch rows x key heads whose other values may be NaN too, since V holds a NaN that some row
  // sees: the contract fixes only the channel.
  std::vector<bool> loose;

  OperatorName name() const override { return {"ai.onnx", "Attention", outline.version}; }
  uint64_t seed() const override { return outline.seed; }
  Type type() const override { return outline.type; }
  std::set<std::string> features() const override { return features_of(outline); }
  std::string text() const override { return text_of(outline); }
  test::Attributes attributes() const override;
  test::Arguments inputs() const override;
  test::Arguments outputs() const override;
  std::vector<attn_alias> aliases() const override;
  attn_prepare_desc wide_bounds() const override;
  void restore() override;
  uint32_t faults() const override { return expected.faults; }
  std::string check(CheckNumbers* numbers) const override;
  std::string untouched() const override;
  bool fixed_whatever_the_tiles() const override;
  std::vector<const test::Buffer*> results() const override;

  bool aliased(uint32_t output) const {
    return (output == kPresentKey && outline.aliased_key) ||
           (output == kPresentValue && outline.aliased_value);
  }
  // The tensor that holds output `output`: its own, or the past buffer in place.
  const test::Tensor& target(uint32_t output) const {
    if (!aliased(output)) return out[output];
    return in[output == kPresentKey ? kPastKey : kPastValue];
  }
  // Takes the present contents as the beginning and works out what is expected of them.
  void renew();
};

// The memory of a given outline; `random` decides values and layouts. `felt_poison`: now and then
// NaN in keys and values that some rows see, or that a mask hides.
AttentionCase build_attention_case(const AttentionOutline& outline, Random& random,
                                   bool felt_poison = true);

// A view of three dimensions (B, rows, heads * channels) as (B, heads, rows, channels); others as
// they are.
test::View by_heads(const test::View& view, int64_t heads);

MatrixOptions attention_matrix_options(const AttentionDraw& draw = {});

}  // namespace attn::matrix
