#include "ops/group_query_attention.h"

#include <algorithm>
#include <limits>

#include "core/error.h"
#include "ops/shape_check.h"

namespace attn {
namespace gqa {
namespace {

int32_t head_count(const Attributes& attributes, const char* name) {
  const int64_t count = attributes.integer(name, 0);
  if (count < 1 || count > std::numeric_limits<int32_t>::max()) {
    fail_argument("attribute '", name, "': expected 1 to ", std::numeric_limits<int32_t>::max(),
                  "; got ", count);
  }
  return static_cast<int32_t>(count);
}

bool zero_or_one(const Attributes& attributes, const char* name, bool otherwise) {
  const int64_t value = attributes.integer(name, otherwise ? 1 : 0);
  if (value != 0 && value != 1) {
    fail_argument("attribute '", name, "': expected 0 or 1; got ", value);
  }
  return value == 1;
}

float epsilon(const Attributes& attributes, const char* name, double otherwise) {
  const double value = attributes.real(name, otherwise);
  if (value < 0) fail_argument("attribute '", name, "': expected at least 0; got ", value);
  return static_cast<float>(value);
}

void read_window(const Attributes& attributes, Settings& settings) {
  settings.causal = zero_or_one(attributes, "causal", true);
  settings.window = attributes.integer("local_window_size", -1);
  if (settings.window == 0 || settings.window < -1) {
    fail_argument(
        "attribute 'local_window_size': expected -1 (no window) or at least 1 (the "
        "current token counts); got ",
        settings.window);
  }
  if (!settings.causal && settings.window != -1) {
    fail_argument("attribute 'local_window_size': expected -1 with causal 0; got ",
                  settings.window);
  }
}

void refuse_cache_forms(const Attributes& attributes) {
  for (const char* name : {"k_quant_type", "v_quant_type"}) {
    const std::string_view type = attributes.text(name, "NONE");
    if (type == "NONE") continue;
    if (type == "PER_TENSOR" || type == "PER_CHANNEL") {
      fail_unsupported("attribute '", name,
                       "': quantised caches are not built; expected NONE; "
                       "got ",
                       type);
    }
    fail_argument("attribute '", name, "': expected NONE, PER_TENSOR or PER_CHANNEL; got '", type,
                  "'");
  }
  const int64_t bits = attributes.integer("kv_cache_bit_width", 0);
  if (bits == 4 || bits == 8) {
    fail_unsupported(
        "attribute 'kv_cache_bit_width': quantised caches are not built; expected 0; "
        "got ",
        bits);
  }
  if (bits != 0) {
    fail_argument("attribute 'kv_cache_bit_width': expected 0, 4 or 8; got ", bits);
  }
  if (zero_or_one(attributes, "sliding_window_cache", false)) {
    fail_unsupported(
        "attribute 'sliding_window_cache': a rolling cache is not built; expected 0; "
        "got 1");
  }
}

// Attributes are float32 in ONNX. 0 has a meaning of its own, so nothing else may become it.
float float_of(const Attributes& attributes, const char* name) {
  const double value = attributes.real(name, 0);
  const auto rounded = static_cast<float>(value);
  if (rounded == 0 && value != 0) {
    fail_argument("attribute '", name, "': expected 0 or a number that float32 can hold; got ",
                  value);
  }
  return rounded;
}

}  // namespace

Settings read_settings(const Attributes& attributes) {
  Settings settings;
  settings.q_heads = head_count(attributes, "num_heads");
  settings.kv_heads = head_count(attributes, "kv_num_heads");
  if (settings.q_heads % settings.kv_heads != 0) {
    fail_argument("attribute 'num_heads': expected a multiple of kv_num_heads ", settings.kv_heads,
                  "; got ", settings.q_heads);
  }
  read_window(attributes, settings);
  settings.scale = float_of(attributes, "scale");
  settings.softcap = float_of(attributes, "softcap");
  if (settings.softcap < 0) {
    fail_argument("attribute 'softcap': expected 0 (off) or more; got ", settings.softcap);
  }
  settings.rotary = zero_or_one(attributes, "do_rotary", false);
  settings.interleaved = zero_or_one(attributes, "rotary_interleaved", false);
  const int64_t smooth = attributes.integer("smooth_softmax", -1);
  if (smooth < -1 || smooth > 1) {
    fail_argument("attribute 'smooth_softmax': expected 1 (on), 0 or -1 (off); got ", smooth);
  }
  settings.smooth_softmax = smooth == 1;
  const int64_t qk_output = attributes.integer("qk_output", 0);
  if (qk_output < 0 || qk_output > 2) {
    fail_argument(
        "attribute 'qk_output': expected 0 (none), 1 (scores before softmax) or 2 "
        "(probabilities); got ",
        qk_output);
  }
  settings.qk_output = static_cast<int32_t>(qk_output);
  settings.empty_slots = zero_or_one(attributes, "empty_slots", false);
  const double common = epsilon(attributes, "qk_norm_epsilon", 1e-6);
  settings.q_epsilon = epsilon(attributes, "q_norm_epsilon", common);
  settings.k_epsilon = epsilon(attributes, "k_norm_epsilon", common);
  refuse_cache_forms(attributes);
  return settings;
}

namespace {

void set_shape(Tensor& tensor, DType type, std::initializer_list<int64_t> sizes) {
  tensor.type = type;
  tensor.rank = static_cast<int32_t>(sizes.size());
  std::copy(sizes.begin(), sizes.end(), tensor.shape.begin());
}

class GroupQueryAttention final : public Operator {
 public:
  explicit GroupQueryAttention(const Settings& settings) : settings_(settings) {}

  const OperatorSchema& schema() const override { return kGroupQueryAttentionSchema; }

  void lower(const Arguments& arguments, LowerMode mode, Lowering& out) const override {
    // A query may leave the outputs open; everything else must say where the result goes.
    if (mode != LowerMode::kQuery) {
      check_present(kOutputNames[kOutput], arguments.out[kOutput], "(B, S, Hq*D)");
    }
    // Values may be others in the next call: only the call itself is held against them.
    const Sizes sizes = check_inputs(settings_, arguments, mode == LowerMode::kExecute);
    check_outputs(settings_, sizes, arguments);
    gqa::lower(settings_, sizes, arguments, mode, out);
  }

  bool infer(const Arguments& arguments, int position, Tensor& out) const override {
    const Sizes sizes = check_inputs(settings_, arguments, true);
    const DType type = arguments.in[kQuery].type;
    const int64_t q_heads = settings_.q_heads;
    const int64_t total = sizes.total ? *sizes.total : kAnyDim;
    switch (position) {
      case kOutput:
        set_shape(out, type, {sizes.batch, sizes.query_rows, product(q_heads, sizes.head_size)});
        return false;
      case kPresentKey:
        infer_present(sizes, type, sizes.past_key_rows, out);
        return !sizes.total;
      case kPresentValue:
        infer_present(sizes, type, sizes.past_value_rows, out);
        return !sizes.total;
      case kOutputQk:
        if (settings_.qk_output == 0) fail_no_scores();
        set_shape(out, type, {sizes.batch, q_heads, sizes.query_rows, total});
        return !sizes.total;
      case kLogSumExp:
        set_shape(out, kFloat32, {sizes.batch, q_heads, sizes.query_rows});
        return false;
      default:
        throw_error(ATTN_INTERNAL, cat("GroupQueryAttention has no output position ", position));
    }
  }

 private:
  // As long as the past buffer, or as total_sequence_length where that is more. Without that value
  // the length is open: the caller may have stated more than the past and new rows make.
  void infer_present(const Sizes& sizes, DType type, int64_t past_rows, Tensor& out) const {
    int64_t rows = kAnyDim;
    if (sizes.total && past_rows != kAnyDim) {
      rows = std::max<int64_t>(past_rows, *sizes.total);
    }
    set_shape(out, type, {sizes.batch, settings_.kv_heads, rows, sizes.head_size});
  }

  Settings settings_;
};

}  // namespace
}  // namespace gqa

std::unique_ptr<Operator> create_group_query_attention(const Attributes& attributes,
                                                       int32_t /*version: there is one*/) {
  return std::make_unique<gqa::GroupQueryAttention>(gqa::read_settings(attributes));
}

}  // namespace attn
