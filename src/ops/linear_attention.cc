#include "ops/linear_attention.h"

#include <algorithm>
#include <limits>

#include "core/error.h"
#include "ops/shape_check.h"

namespace attn {
namespace linear {
namespace {

struct Rule {
  const char* name;
  bool gated, delta;
};
constexpr Rule kRules[] = {{"linear", false, false},
                           {"gated", true, false},
                           {"delta", false, true},
                           {"gated_delta", true, true}};

int32_t head_count(const Attributes& attributes, const char* name) {
  const int64_t count = attributes.integer(name, 0);
  if (count < 1 || count > std::numeric_limits<int32_t>::max()) {
    fail_argument("attribute '", name, "': expected 1 to ", std::numeric_limits<int32_t>::max(),
                  "; got ", count);
  }
  return static_cast<int32_t>(count);
}

void read_rule(const Attributes& attributes, Settings& settings) {
  const std::string_view name = attributes.text("update_rule", "gated_delta");
  for (const Rule& rule : kRules) {
    if (name != rule.name) continue;
    settings.rule = rule.name;
    settings.gated = rule.gated;
    settings.delta = rule.delta;
    return;
  }
  fail_argument("attribute 'update_rule': expected linear, gated, delta or gated_delta; got '",
                name, "'");
}

void check_heads(const Settings& settings) {
  if (settings.q_heads % settings.kv_heads == 0) return;
  if (settings.standard) {
    fail_argument("attribute 'q_num_heads': expected a multiple of kv_num_heads ",
                  settings.kv_heads, "; got ", settings.q_heads);
  }
  if (settings.kv_heads % settings.q_heads != 0) {
    fail_argument("attribute 'q_num_heads': expected a multiple or a divisor of kv_num_heads ",
                  settings.kv_heads, "; got ", settings.q_heads);
  }
}

// Attributes are float32 in ONNX. 0 has a meaning of its own, so nothing else may become it.
double read_scale(const Attributes& attributes) {
  const double value = attributes.real("scale", 0);
  const auto rounded = static_cast<float>(value);
  if (rounded == 0 && value != 0) {
    fail_argument("attribute 'scale': expected 0 or a number that float32 can hold; got ", value);
  }
  return rounded;
}

bool folds(const Attributes& attributes, const FoldName& name) {
  return attributes.integer(name.plain, 0) != 0 || attributes.integer(name.prefixed, 0) != 0;
}

void refuse_state_window(const Attributes& attributes) {
  constexpr int64_t kMost = 8;  // of the operator's contract
  const int64_t window = attributes.integer("state_window", 0);
  if (window == 0) return;
  if (window < 0 || window > kMost) {
    fail_argument("attribute 'state_window': expected 0 to ", kMost, "; got ", window);
  }
  fail_unsupported("attribute 'state_window': states of earlier tokens are not built; expected 0; ",
                   "got ", window);
}

}  // namespace

Settings read_settings(const Attributes& attributes, bool standard) {
  Settings settings;
  settings.standard = standard;
  settings.q_heads = head_count(attributes, "q_num_heads");
  settings.kv_heads = head_count(attributes, "kv_num_heads");
  check_heads(settings);
  read_rule(attributes, settings);
  settings.scale = read_scale(attributes);
  settings.fold_beta = settings.delta && folds(attributes, kFoldBeta);
  settings.fold_decay = settings.gated && folds(attributes, kFoldDecay);
  settings.fold_exp = settings.fold_decay && folds(attributes, kFoldExp);
  if (!standard) refuse_state_window(attributes);
  return settings;
}

namespace {

void set_shape(Tensor& tensor, DType type, std::initializer_list<int64_t> sizes) {
  tensor.type = type;
  tensor.rank = static_cast<int32_t>(sizes.size());
  std::copy(sizes.begin(), sizes.end(), tensor.shape.begin());
}

class LinearAttention final : public Operator {
 public:
  explicit LinearAttention(const Settings& settings) : settings_(settings) {}

  const OperatorSchema& schema() const override {
    return settings_.standard ? kStandardLinearAttentionSchema : kLinearAttentionSchema;
  }

  void lower(const Arguments& arguments, LowerMode mode, Lowering& out) const override {
    // A query may leave the output open; everything else must say where the result goes.
    if (mode != LowerMode::kQuery) {
      check_present(kOutputNames[kOutput], arguments.out[kOutput], "(B, T, max(Hq, Hkv)*dv)");
    }
    const Sizes sizes = check_inputs(settings_, arguments);
    check_outputs(settings_, sizes, arguments);
    linear::lower(settings_, sizes, arguments, out);
  }

  bool infer(const Arguments& arguments, int position, Tensor& out) const override {
    const Sizes sizes = check_inputs(settings_, arguments);
    switch (position) {
      case kOutput:
        set_shape(
            out, arguments.in[kQuery].type,
            {sizes.batch, sizes.tokens, product(settings_.output_heads(), sizes.v_head_size)});
        return false;
      case kPresentState:
        set_shape(out, sizes.state_type,
                  {sizes.batch, settings_.kv_heads, sizes.head_size, sizes.v_head_size});
        return false;
      default:
        throw_error(ATTN_INTERNAL, cat("LinearAttention has no output position ", position));
    }
  }

 private:
  Settings settings_;
};

}  // namespace
}  // namespace linear

std::unique_ptr<Operator> create_linear_attention(const Attributes& attributes,
                                                  int32_t /*version: there is one*/) {
  return std::make_unique<linear::LinearAttention>(linear::read_settings(attributes, false));
}

std::unique_ptr<Operator> create_standard_linear_attention(const Attributes& attributes,
                                                           int32_t /*version: there is one*/) {
  return std::make_unique<linear::LinearAttention>(linear::read_settings(attributes, true));
}

}  // namespace attn
