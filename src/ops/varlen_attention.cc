#include "ops/varlen_attention.h"

#include <algorithm>
#include <iterator>
#include <limits>

#include "core/error.h"
#include "ops/attention_views.h"
#include "ops/shape_check.h"
#include "ops/slot_schema.h"

namespace attn {
namespace varlen {
namespace {

enum Input : int { kQuery, kKey, kValue, kNonpad, kInputCount };
enum Output : int { kOutput, kLogSumExp, kOutputCount };

using namespace schema;

constexpr SlotSchema kInputs[] = {
    {kQuery, "query", false, kDevice, -1, kFloats, "(B, S, Hq, D) or (B, S, Hq*D)"},
    {kKey, "key", false, kDevice, -1, kFloats, "(B, L, Hkv, D) or (B, L, Hkv*D)"},
    {kValue, "value", false, kDevice, -1, kFloats, "(B, L, Hkv, Dv) or (B, L, Hkv*Dv)"},
    {kNonpad, "nonpad_kv_seqlen", false, kAnywhere, -1, "int64", "(B)"},
};
static_assert(std::size(kInputs) == kInputCount && kInputCount <= kMaxInputs);

constexpr SlotSchema kOutputs[] = {
    {0, "output", false, kDevice, -1, kFloats, "(B, S, Hq, Dv) or (B, S, Hq*Dv), as query"},
    {ATTN_SLOT_LOG_SUM_EXP, "log_sum_exp", true, kDevice, -1, "float32", "(B, Hq, S)"},
};
static_assert(std::size(kOutputs) == kOutputCount && kOutputCount <= kMaxOutputs);

constexpr AttributeSchema kAttributes[] = {
    {"num_heads", ATTN_ATTRIBUTE_INT, true, "", "query heads, a multiple of kv_num_heads"},
    {"kv_num_heads", ATTN_ATTRIBUTE_INT, false, "num_heads", "key and value heads"},
    {"scale", ATTN_ATTRIBUTE_FLOAT, false, "1/sqrt(D)", "factor of the scores, 0 or more"},
    {"is_causal", ATTN_ATTRIBUTE_INT, false, "0",
     "1: the last query sees all valid keys, each one before it one less"},
    {"softcap", ATTN_ATTRIBUTE_FLOAT, false, "0", "c of c*tanh(x/c) on the scores; 0: off"},
};

// A (B, rows, heads, channels) or (B, rows, heads * channels) tensor by heads.
View4 token_view(const Tensor& tensor, const char* name, int64_t channels) {
  if (tensor.rank == 3) return heads_view(tensor, name, channels, 0);
  View4 view;
  view.data = tensor.data;
  view.batch = tensor.strides[0];
  view.row = tensor.strides[1];
  view.head = tensor.strides[2];
  view.channel = inner_stride(tensor.strides[3], tensor.shape[3]);
  view.rows = tensor.shape[1];
  return view;
}

struct Sizes {
  int64_t batch = 0, rows = 0, keys = 0, head_size = 0, v_head_size = 0;
};

int64_t channels_of(const char* name, const Tensor& tensor, int64_t heads) {
  if (tensor.rank == 4) return tensor.shape[3];
  const int64_t channels = tensor.shape[2];
  if (channels == kAnyDim) return kAnyDim;
  if (channels % heads != 0) {
    fail_argument(name, ": expected a last dimension that is a multiple of its ", heads,
                  " heads; got ", shape_text(tensor));
  }
  return channels / heads;
}

void check_rank(const char* name, const Tensor& tensor) {
  if (tensor.rank == 3 || tensor.rank == 4) return;
  fail_argument(name,
                ": expected 4 dimensions (B, rows, heads, channels) or 3 (B, rows, "
                "heads*channels); got ",
                tensor.rank == 0 ? "a scalar" : shape_text(tensor));
}

void check_tokens(const char* name, const Tensor& tensor, int64_t batch, int64_t rows,
                  int64_t heads, int64_t channels, const char* letters4, const char* letters3) {
  if (tensor.rank == 3) {
    check_shape(name, tensor, letters3, {batch, rows, product(heads, channels)});
  } else {
    check_shape(name, tensor, letters4, {batch, rows, heads, channels});
  }
}

class VarlenAttention final : public Operator {
 public:
  explicit VarlenAttention(const VarlenSettings& settings) : settings_(settings) {}

  const OperatorSchema& schema() const override { return kVarlenAttentionSchema; }

  void lower(const Arguments& arguments, LowerMode mode, Lowering& out) const override {
    if (mode != LowerMode::kQuery) {
      check_present("output", arguments.out[kOutput], "(B, S, Hq, Dv) or (B, S, Hq*Dv)");
    }
    const Sizes sizes = check(arguments);
    check_outputs(arguments, sizes);
    out.batch = sizes.batch;
    set_lengths(arguments.in[kNonpad], sizes, out.lengths);
    set_attention(arguments, sizes, out.attention.emplace());
  }

  bool infer(const Arguments& arguments, int position, Tensor& out) const override {
    const Sizes sizes = check(arguments);
    const Tensor& query = arguments.in[kQuery];
    out.type = position == kOutput ? query.type : kFloat32;
    if (position == kLogSumExp) {
      out.rank = 3;
      out.shape = {sizes.batch, settings_.q_heads, sizes.rows};
    } else if (query.rank == 4) {
      out.rank = 4;
      out.shape = {sizes.batch, sizes.rows, settings_.q_heads, sizes.v_head_size};
    } else {
      out.rank = 3;
      out.shape = {sizes.batch, sizes.rows, product(settings_.q_heads, sizes.v_head_size)};
    }
    return false;
  }

 private:
  Sizes check(const Arguments& arguments) const {
    const auto& in = arguments.in;
    for (int i = 0; i < kInputCount; ++i) {
      const size_t at = static_cast<size_t>(i);
      check_present(kInputs[at].name, in[at], kInputs[at].shape);
      if (i != kNonpad) check_rank(kInputs[at].name, in[at]);
    }
    check_varlen_types(in[kQuery], in[kKey], in[kValue]);
    if (in[kNonpad].type != kInt64) fail_type("nonpad_kv_seqlen", in[kNonpad], "int64");

    Sizes sizes;
    sizes.batch = kAnyDim;
    for (const Input input : {kQuery, kKey, kValue}) {
      sizes.batch = known_of(sizes.batch, in[input].shape[0]);
    }
    sizes.rows = in[kQuery].shape[1];
    sizes.keys = known_of(in[kKey].shape[1], in[kValue].shape[1]);
    sizes.head_size = known_of(channels_of("query", in[kQuery], settings_.q_heads),
                               channels_of("key", in[kKey], settings_.kv_heads));
    sizes.v_head_size = channels_of("value", in[kValue], settings_.kv_heads);
    check_head_size("query", in[kQuery], sizes.head_size);
    check_head_size("value", in[kValue], sizes.v_head_size);
    check_tokens("query", in[kQuery], sizes.batch, sizes.rows, settings_.q_heads, sizes.head_size,
                 "(B, S, Hq, D)", "(B, S, Hq*D)");
    check_tokens("key", in[kKey], sizes.batch, sizes.keys, settings_.kv_heads, sizes.head_size,
                 "(B, L, Hkv, D)", "(B, L, Hkv*D)");
    check_tokens("value", in[kValue], sizes.batch, sizes.keys, settings_.kv_heads,
                 sizes.v_head_size, "(B, L, Hkv, Dv)", "(B, L, Hkv*Dv)");
    check_shape("nonpad_kv_seqlen", in[kNonpad], "(B)", {sizes.batch});
    return sizes;
  }

  void check_outputs(const Arguments& arguments, const Sizes& sizes) const {
    const Tensor& query = arguments.in[kQuery];
    const Tensor& output = arguments.out[kOutput];
    if (output.present) {
      check_type_of("output", output, query.type, "query");
      if (query.rank == 4) {
        check_shape("output", output, "(B, S, Hq, Dv)",
                    {sizes.batch, sizes.rows, settings_.q_heads, sizes.v_head_size});
      } else {
        check_shape("output", output, "(B, S, Hq*Dv)",
                    {sizes.batch, sizes.rows, product(settings_.q_heads, sizes.v_head_size)});
      }
    }
    const Tensor& log_sum_exp = arguments.out[kLogSumExp];
    if (!log_sum_exp.present) return;
    if (log_sum_exp.type != kFloat32) fail_type("log_sum_exp", log_sum_exp, "float32");
    check_shape("log_sum_exp", log_sum_exp, "(B, Hq, S)",
                {sizes.batch, settings_.q_heads, sizes.rows});
  }

  static void set_lengths(const Tensor& nonpad, const Sizes& sizes, Lengths& lengths) {
    lengths.spec.rule = LengthRule::kValid;
    lengths.spec.values = nonpad.placement;
    lengths.batch = sizes.batch;
    lengths.query_rows = sizes.rows;
    lengths.most_keys = sizes.keys;
    lengths.valid = static_cast<const int64_t*>(nonpad.data);
    lengths.valid_stride = nonpad.strides[0];
  }

  void set_attention(const Arguments& arguments, const Sizes& sizes,
                     AttentionProblem& problem) const {
    const auto& in = arguments.in;
    const Tensor& output = arguments.out[kOutput];
    set_varlen_spec(settings_, in[kQuery].type, sizes.head_size, sizes.v_head_size, problem.spec);
    problem.batch = sizes.batch;
    problem.query_rows = sizes.rows;
    problem.max_total = std::min<int64_t>(sizes.keys, std::numeric_limits<int32_t>::max());
    View4 to;
    if (output.present) to = token_view(output, "output", sizes.v_head_size);
    set_varlen_views(token_view(in[kQuery], "query", sizes.head_size),
                     token_view(in[kKey], "key", sizes.head_size),
                     token_view(in[kValue], "value", sizes.v_head_size),
                     output.present ? &to : nullptr, problem);
    set_log_sum_exp(arguments.out[kLogSumExp], problem);
  }

  VarlenSettings settings_;
};

}  // namespace
}  // namespace varlen

const OperatorSchema kVarlenAttentionSchema = {
    "pkg.nxrt",
    "VarlenAttention",
    1,
    1,
    "attention over a padded batch whose cost follows the valid keys",
    varlen::kInputs,
    varlen::kOutputs,
    varlen::kAttributes};

std::unique_ptr<Operator> create_varlen_attention(const Attributes& attributes,
                                                  int32_t /*version: there is one*/) {
  return std::make_unique<varlen::VarlenAttention>(read_varlen_settings(attributes));
}

}  // namespace attn
