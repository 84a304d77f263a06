// One random GroupQueryAttention problem in memory: fenced, poisoned, with its expected result.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

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

struct GqaCase {
  GqaOutline outline;
  std::array<test::Tensor, kInputs> in;
  std::array<test::Tensor, kOutputs> out;  // an output in place is unbound here
  reference::GroupQueryAttention problem;
  reference::GroupQueryResult expected;
  bool finite_padding = true;  // padded query rows and all that they see are finite
  // Batch rows x key heads whose other values may be NaN too, since V holds a NaN that some row
  // sees: the contract fixes only the channel.
  std::vector<bool> loose;
  bool through_binding = false;  // else through a plan
  bool own_workspace = false;    // the caller's scratch, poisoned
  bool describe_memory = false;  // byte_offset and data_bytes instead of a shifted pointer
  bool wide_range = false;       // prepared for more than is bound

  bool in_place(uint32_t output) const;
  // The tensor that holds output `output`: its own, or the past buffer in place.
  const test::Tensor& target(uint32_t output) const;
  test::Tensor& target(uint32_t output);

  test::Attributes attributes() const;
  test::Arguments inputs() const;
  test::Arguments outputs() const;
  // The alias pairs that queries without data must state.
  std::vector<attn_alias> aliases() const;

  // Brings every buffer back to what it held before the first run.
  void restore();
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
