// One random GroupQueryAttention problem in memory: fenced, poisoned, with its expected result.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "matrix/case.h"
#include "matrix/gqa_outline.h"
#include "reference/group_query_attention.h"
#include "support/attn.hpp"
#include "support/tensor.h"

namespace attn::matrix {

// Slots of the operator.
enum Input : uint32_t {
  kQuery,
  kKey,
  kValue,
  kPastKey,
  kPastValue,
  kSeqlensK,
  kTotalSequenceLength,
  kCosCache,
  kSinCache,
  kPositionIds,
  kAttentionBias,
  kHeadSink,
  kKScale,
  kVScale,
  kQNormWeight,
  kKNormWeight,
  kInputs
};
enum Output : uint32_t { kOutput, kPresentKey, kPresentValue, kOutputQk, kLogSumExp, kOutputs };

struct GqaCase final : Case {
  GqaOutline outline;
  std::array<test::Tensor, kInputs> in;
  std::array<test::Tensor, kOutputs> out;  // an output in place is unbound here
  reference::GroupQueryAttention problem;
  reference::GroupQueryResult expected;
  bool finite_padding = true;  // padded query rows and all that they see are finite
  // Batch rows x key heads whose other values may be NaN too, since V holds a NaN that some row
  // sees: the contract fixes only the channel.
  std::vector<bool> loose;
  double log_sum_exp_room = 1;  // times the usual bound (docs/numerics.md)

  OperatorName name() const override { return {"com.microsoft", "GroupQueryAttention", 1}; }
  uint64_t seed() const override { return outline.seed; }
  Type type() const override { return outline.type; }
  std::set<std::string> features() const override { return features_of(outline); }
  std::string text() const override { return text_of(outline); }
  attn_prepare_desc wide_bounds() const override;
  uint32_t faults() const override { return expected.faults; }
  std::string check(CheckNumbers* numbers) const override;
  std::string untouched() const override;
  bool fixed_whatever_the_tiles() const override;
  std::vector<const test::Buffer*> results() const override;

  bool in_place(uint32_t output) const;
  // The tensor that holds output `output`: its own, or the past buffer in place.
  const test::Tensor& target(uint32_t output) const;
  test::Tensor& target(uint32_t output);

  test::Attributes attributes() const override;
  test::Arguments inputs() const override;
  test::Arguments outputs() const override;
  std::vector<attn_alias> aliases() const override;

  void restore() override;
  // Takes the present contents as the new beginning and works out what is expected of them.
  void renew();

  // The bits of everything that the contract fixes: outputs of rows that are no padding, and cache
  // rows below each length.
  std::vector<uint64_t> fixed_bits() const;
};

GqaCase draw_case(uint64_t seed, const DrawOptions& options = {});

// Copies the values of all inputs that both have with the same shape; the layouts may differ.
void transplant_inputs(const GqaCase& from, GqaCase& to);

// The memory of a given outline; `random` decides values and layouts. `felt_poison`: now and then
// NaN in keys and values that some rows see, or that a mask hides.
GqaCase build_case(const GqaOutline& outline, Random& random, bool felt_poison = true);

}  // namespace attn::matrix
