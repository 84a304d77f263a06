#include "ops/attention.h"

#include <algorithm>

#include "core/error.h"
#include "ops/attention_settings.h"
#include "ops/shape_check.h"

namespace attn {
namespace attention {
namespace {

// A model of opset 25 or 26 may come from a time when its Attention was version 24's; one with a
// window cannot.
int32_t rules_of(const Attributes& attributes, int32_t version) {
  if (version <= 24) return version;
  if (version >= 27) return 25;
  return attributes.has("left_window_size") || attributes.has("right_window_size") ? 25 : 24;
}

void check_precision(const Attributes& attributes) {
  const int64_t precision = attributes.integer("softmax_precision", 1);
  for (const int64_t known : {1, 10, 11, 16}) {
    if (precision == known) return;
  }
  fail_argument(
      "attribute 'softmax_precision': expected 1 (float32), 10 (float16), 11 (float64) or 16 "
      "(bfloat16); got ",
      precision);
}

void read_windows(const Attributes& attributes, Settings& settings) {
  settings.left_window = window_of(attributes, "left_window_size");
  settings.right_window = window_of(attributes, "right_window_size");
  if (settings.rules >= 25) return;
  for (const char* name : {"left_window_size", "right_window_size"}) {
    const int64_t window = attributes.integer(name, -1);
    if (window == -1) continue;
    fail_argument("attribute '", name, "': expected -1 in version ", settings.rules,
                  " (windows are of version 25); got ", window);
  }
}

}  // namespace

Settings read_settings(const Attributes& attributes, int32_t version) {
  Settings settings;
  settings.rules = rules_of(attributes, version);
  settings.causal = flag_of(attributes, "is_causal");
  if (attributes.has("q_num_heads")) settings.q_heads = head_count_of(attributes, "q_num_heads");
  if (attributes.has("kv_num_heads")) {
    settings.kv_heads = head_count_of(attributes, "kv_num_heads");
  }
  settings.has_scale = attributes.has("scale");
  settings.scale = literal_scale_of(attributes);
  settings.softcap = softcap_of(attributes);
  check_precision(attributes);
  const int64_t mode = attributes.integer("qk_matmul_output_mode", 0);
  if (mode < 0 || mode > 3) {
    fail_argument(
        "attribute 'qk_matmul_output_mode': expected 0 (scaled products), 1 (after softcap), 2 "
        "(after the masks) or 3 (probabilities); got ",
        mode);
  }
  settings.score_mode = static_cast<int32_t>(mode);
  read_windows(attributes, settings);
  settings.length_from_mask = flag_of(attributes, "length_from_mask");
  return settings;
}

namespace {

void set_shape(Tensor& tensor, DType type, std::initializer_list<int64_t> sizes) {
  tensor.type = type;
  tensor.rank = static_cast<int32_t>(sizes.size());
  std::copy(sizes.begin(), sizes.end(), tensor.shape.begin());
}

class Attention final : public Operator {
 public:
  explicit Attention(const Settings& settings) : settings_(settings) {}

  const OperatorSchema& schema() const override { return kAttentionSchema; }

  void lower(const Arguments& arguments, LowerMode mode, Lowering& out) const override {
    // A query may leave the outputs open; everything else must say where the result goes.
    if (mode != LowerMode::kQuery) {
      check_present(kOutputNames[kY], arguments.out[kY], "(B, Hq, S, Dv) or (B, S, Hq*Dv)");
    }
    Sizes sizes = check_inputs(settings_, arguments);
    check_outputs(settings_, sizes, arguments);
    attention::lower(settings_, sizes, arguments, mode, out);
  }

  bool infer(const Arguments& arguments, int position, Tensor& out) const override {
    Sizes sizes = check_inputs(settings_, arguments);
    read_form(settings_, arguments, sizes);
    const Tensor& query = arguments.in[kQ];
    const bool open = sizes.past_rows == kAnyDim || sizes.new_rows == kAnyDim;
    const int64_t total = open ? kAnyDim : sizes.past_rows + sizes.new_rows;
    switch (position) {
      case kY:
        if (query.rank == 4) {
          set_shape(out, query.type,
                    {sizes.batch, sizes.q_heads, sizes.query_rows, sizes.v_head_size});
        } else {
          set_shape(out, query.type,
                    {sizes.batch, sizes.query_rows, product(sizes.q_heads, sizes.v_head_size)});
        }
        return false;
      case kPresentKey:
        set_shape(out, query.type, {sizes.batch, sizes.kv_heads, total, sizes.head_size});
        return false;
      case kPresentValue:
        set_shape(out, query.type, {sizes.batch, sizes.kv_heads, total, sizes.v_head_size});
        return false;
      case kScores:
        set_shape(out, query.type,
                  {sizes.batch, sizes.q_heads, sizes.query_rows, sizes.score_columns});
        return false;
      case kLogSumExp:
        set_shape(out, kFloat32, {sizes.batch, sizes.q_heads, sizes.query_rows});
        return false;
      default:
        throw_error(ATTN_INTERNAL, cat("Attention has no output position ", position));
    }
  }

 private:
  Settings settings_;
};

}  // namespace
}  // namespace attention

std::unique_ptr<Operator> create_attention(const Attributes& attributes, int32_t version) {
  return std::make_unique<attention::Attention>(attention::read_settings(attributes, version));
}

}  // namespace attn
