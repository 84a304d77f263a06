// One random LinearAttention problem in memory: fenced, poisoned, with its expected result.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "matrix/case.h"
#include "matrix/matrix.h"
#include "reference/linear_attention.h"
#include "support/random.h"
#include "support/tensor.h"

namespace attn::matrix {

// Slots of the operator.
namespace linear {
enum Input : uint32_t {
  kQuery,
  kKey,
  kValue,
  kPastState,
  kDecay,
  kBeta,
  kDtBias,
  kDecayScale,
  kInputs
};
enum Output : uint32_t { kOutput, kPresentState, kOutputs };
}  // namespace linear

enum class DecayKind : uint8_t { kOrdinary, kSteady, kWeak, kStrong, kMixed };
enum class KeyKind : uint8_t { kOrdinary, kEqual, kTiny };

// Everything about a problem but its numbers.
struct LinearOutline {
  uint64_t seed = 0;
  Type type = Type::kFloat32;
  Type state_type = Type::kFloat32;
  bool standard = false;  // ai.onnx 27
  bool gated = true, delta = true;
  int64_t batch = 1, tokens = 1;
  int64_t q_heads = 1, key_heads = 1, kv_heads = 1;
  int64_t head_size = 1, v_head_size = 1;
  double scale = 0;
  bool decay_per_key = false;
  bool beta_shared = false;
  bool fold_beta = false, fold_decay = false, fold_exp = false;
  bool prefixed = false;      // attribute names with com.microsoft in front
  bool unused_gates = false;  // com.microsoft: gates that the rule ignores are bound
  bool past = false, in_place = false, present = true;
  DecayKind decays = DecayKind::kOrdinary;
  KeyKind keys = KeyKind::kOrdinary;
  double beta = -1;  // of every token; negative: drawn
  bool odd_layouts = false;
};

struct LinearCase final : Case {
  LinearOutline outline;
  std::array<test::Tensor, linear::kInputs> in;
  std::array<test::Tensor, linear::kOutputs> out;  // an output in place is unbound here
  reference::LinearAttention problem;
  reference::LinearAttentionResult expected;

  OperatorName name() const override {
    if (outline.standard) return {"ai.onnx", "LinearAttention", 27};
    return {"com.microsoft", "LinearAttention", 1};
  }
  uint64_t seed() const override { return outline.seed; }
  Type type() const override { return outline.type; }
  std::set<std::string> features() const override;
  std::string text() const override;
  test::Attributes attributes() const override;
  test::Arguments inputs() const override;
  test::Arguments outputs() const override;
  std::vector<attn_alias> aliases() const override;
  attn_prepare_desc wide_bounds() const override;
  void restore() override;
  uint32_t faults() const override { return 0; }
  std::string check(CheckNumbers* numbers) const override;
  std::string untouched() const override;
  bool fixed_whatever_the_tiles() const override { return true; }
  std::vector<const test::Buffer*> results() const override;

  // The tensor that holds output `output`: its own, or the past state in place.
  const test::Tensor& target(uint32_t output) const;
  // Takes the present contents as the new beginning and works out what is expected of them.
  void renew();
};

LinearOutline draw_linear_outline(uint64_t seed);
LinearCase build_linear_case(const LinearOutline& outline, test::Random& random);
LinearCase draw_linear_case(uint64_t seed);

const char* rule_of(const LinearOutline& outline);

inline MatrixOptions linear_matrix_options() {
  MatrixOptions options;
  options.tool = "linear_matrix";
  options.engines = {"chunked", "recurrent", "recurrent-serial"};
  options.draw = [](uint64_t seed) { return std::make_unique<LinearCase>(draw_linear_case(seed)); };
  return options;
}

}  // namespace attn::matrix
