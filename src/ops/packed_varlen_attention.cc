#include <algorithm>
#include <iterator>
#include <limits>

#include "core/error.h"
#include "ops/attention_settings.h"
#include "ops/shape_check.h"
#include "ops/slot_schema.h"
#include "ops/varlen_attention.h"
#include "ops/views.h"

namespace attn {
namespace packed {
namespace {

enum Input : int { kQuery, kKey, kValue, kQueryEnds, kKeyEnds, kInputCount };
enum Output : int { kOutput, kLogSumExp, kOutputCount };

using namespace schema;

constexpr SlotSchema kInputs[] = {
    {kQuery, "query", false, kDevice, -1, kFloats, "(Nq, Hq, D)"},
    {kKey, "key", false, kDevice, -1, kFloats, "(Nk, Hkv, D)"},
    {kValue, "value", false, kDevice, -1, kFloats, "(Nk, Hkv, Dv)"},
    {kQueryEnds, "cu_seqlens_q", false, kAnywhere, -1, "int32", "(B + 1)"},
    {kKeyEnds, "cu_seqlens_k", true, kAnywhere, -1, "int32", "(B + 1); without it cu_seqlens_q"},
};
static_assert(std::size(kInputs) == kInputCount && kInputCount <= kMaxInputs);

constexpr SlotSchema kOutputs[] = {
    {0, "output", false, kDevice, -1, kFloats, "(Nq, Hq, Dv)"},
    {ATTN_SLOT_LOG_SUM_EXP, "log_sum_exp", true, kDevice, -1, "float32", "(Hq, Nq)"},
};
static_assert(std::size(kOutputs) == kOutputCount && kOutputCount <= kMaxOutputs);

constexpr AttributeSchema kAttributes[] = {
    {"num_heads", ATTN_ATTRIBUTE_INT, true, "", "query heads, a multiple of kv_num_heads"},
    {"kv_num_heads", ATTN_ATTRIBUTE_INT, false, "num_heads", "key and value heads"},
    {"scale", ATTN_ATTRIBUTE_FLOAT, false, "1/sqrt(D)", "factor of the scores, 0 or more"},
    {"is_causal", ATTN_ATTRIBUTE_INT, false, "0",
     "1: the last query of a sequence sees all its keys, each one before it one less"},
    {"softcap", ATTN_ATTRIBUTE_FLOAT, false, "0", "c of c*tanh(x/c) on the scores; 0: off"},
    {"left_window_size", ATTN_ATTRIBUTE_INT, false, "-1",
     "keys before its own position that a query sees; -1: all"},
    {"right_window_size", ATTN_ATTRIBUTE_INT, false, "-1",
     "keys behind its own position that a query sees; -1: all"},
    {"max_seqlen_q", ATTN_ATTRIBUTE_INT, false, "0",
     "queries that no sequence has more of; 0 or less: not given"},
    {"max_seqlen_k", ATTN_ATTRIBUTE_INT, false, "0",
     "keys that no sequence has more of; 0 or less: not given"},
};

struct Sizes {
  int64_t batch = 0, queries = 0, keys = 0, head_size = 0, v_head_size = 0;
};

// A (tokens, heads, channels) tensor by heads.
View4 token_view(const Tensor& tensor) {
  View4 view;
  view.data = tensor.data;
  view.row = tensor.strides[0];
  view.head = tensor.strides[1];
  view.channel = inner_stride(tensor.strides[2], tensor.shape[2]);
  view.rows = tensor.shape[0];
  return view;
}

class PackedVarlenAttention final : public Operator {
 public:
  PackedVarlenAttention(const VarlenSettings& settings, const Attributes& attributes)
      : settings_(settings),
        left_window_(window_of(attributes, "left_window_size")),
        right_window_(window_of(attributes, "right_window_size")),
        most_queries_(attributes.integer("max_seqlen_q", 0)),
        most_keys_(attributes.integer("max_seqlen_k", 0)) {}

  const OperatorSchema& schema() const override { return kPackedVarlenAttentionSchema; }

  void lower(const Arguments& arguments, LowerMode mode, Lowering& out) const override {
    if (mode != LowerMode::kQuery) {
      check_present("output", arguments.out[kOutput], "(Nq, Hq, Dv)");
    }
    const Sizes sizes = check(arguments);
    check_outputs(arguments, sizes);
    AttentionProblem& problem = out.attention.emplace();
    set_attention(arguments, sizes, problem);
    out.batch = sizes.batch;
    set_lengths(arguments, sizes, problem, out.lengths);
  }

  bool infer(const Arguments& arguments, int position, Tensor& out) const override {
    const Sizes sizes = check(arguments);
    out.type = position == kOutput ? arguments.in[kQuery].type : kFloat32;
    if (position == kOutput) {
      out.rank = 3;
      out.shape = {sizes.queries, settings_.q_heads, sizes.v_head_size};
    } else {
      out.rank = 2;
      out.shape = {settings_.q_heads, sizes.queries};
    }
    return false;
  }

 private:
  Sizes check(const Arguments& arguments) const {
    const auto& in = arguments.in;
    for (int i = 0; i < kKeyEnds; ++i) {
      const size_t at = static_cast<size_t>(i);
      check_present(kInputs[at].name, in[at], kInputs[at].shape);
    }
    check_varlen_types(in[kQuery], in[kKey], in[kValue]);
    check_shape("query", in[kQuery], "(Nq, Hq, D)", {kAnyDim, settings_.q_heads, kAnyDim});
    Sizes sizes;
    sizes.queries = in[kQuery].shape[0];
    sizes.head_size = known_of(in[kQuery].shape[2], in[kKey].shape[2]);
    check_shape("key", in[kKey], "(Nk, Hkv, D)", {kAnyDim, settings_.kv_heads, sizes.head_size});
    sizes.keys = known_of(in[kKey].shape[0], in[kValue].shape[0]);
    check_shape("value", in[kValue], "(Nk, Hkv, Dv)", {sizes.keys, settings_.kv_heads, kAnyDim});
    sizes.v_head_size = in[kValue].shape[2];
    check_head_size("query", in[kQuery], sizes.head_size);
    check_head_size("value", in[kValue], sizes.v_head_size);
    sizes.batch = check_ends(arguments);
    return sizes;
  }

  // The number of sequences.
  static int64_t check_ends(const Arguments& arguments) {
    int64_t ends = kAnyDim;
    for (const Input input : {kQueryEnds, kKeyEnds}) {
      const Tensor& tensor = arguments.in[input];
      if (!tensor.present) continue;
      const char* name = kInputs[input].name;
      if (tensor.type != kInt32) fail_type(name, tensor, "int32");
      check_shape(name, tensor, "(B + 1)", {ends});
      if (tensor.shape[0] == 0) {
        fail_argument(name, ": expected at least one element, the begin of the first sequence; ",
                      "got (0)");
      }
      ends = known_of(ends, tensor.shape[0]);
    }
    return ends == kAnyDim ? kAnyDim : ends - 1;
  }

  void check_outputs(const Arguments& arguments, const Sizes& sizes) const {
    const Tensor& output = arguments.out[kOutput];
    if (output.present) {
      check_type_of("output", output, arguments.in[kQuery].type, "query");
      check_shape("output", output, "(Nq, Hq, Dv)",
                  {sizes.queries, settings_.q_heads, sizes.v_head_size});
    }
    const Tensor& log_sum_exp = arguments.out[kLogSumExp];
    if (!log_sum_exp.present) return;
    if (log_sum_exp.type != kFloat32) fail_type("log_sum_exp", log_sum_exp, "float32");
    check_shape("log_sum_exp", log_sum_exp, "(Hq, Nq)", {settings_.q_heads, sizes.queries});
  }

  static int64_t bounded(int64_t tokens, int64_t most) {
    const int64_t bound = std::min<int64_t>(tokens, std::numeric_limits<int32_t>::max());
    return most > 0 && bound != kAnyDim ? std::min(bound, most) : bound;
  }

  void set_attention(const Arguments& arguments, const Sizes& sizes,
                     AttentionProblem& problem) const {
    const auto& in = arguments.in;
    const Tensor& output = arguments.out[kOutput];
    const Tensor& log_sum_exp = arguments.out[kLogSumExp];
    AttentionSpec& spec = problem.spec;
    set_varlen_spec(settings_, in[kQuery].type, sizes.head_size, sizes.v_head_size, spec);
    spec.left_window = left_window_;
    spec.right_window = right_window_;
    spec.packed = true;
    problem.batch = sizes.batch;
    problem.query_rows = bounded(sizes.queries, most_queries_);
    problem.max_total = bounded(sizes.keys, most_keys_);
    View4 to;
    if (output.present) to = token_view(output);
    set_varlen_views(token_view(in[kQuery]), token_view(in[kKey]), token_view(in[kValue]),
                     output.present ? &to : nullptr, problem);
    if (!log_sum_exp.present) return;
    spec.log_sum_exp = true;
    problem.log_sum_exp.data = log_sum_exp.data;
    problem.log_sum_exp.head = log_sum_exp.strides[0];
    problem.log_sum_exp.row = log_sum_exp.strides[1];
    problem.log_sum_exp.rows = sizes.queries;
  }

  static void set_lengths(const Arguments& arguments, const Sizes& sizes,
                          const AttentionProblem& problem, Lengths& lengths) {
    const Tensor& queries = arguments.in[kQueryEnds];
    const Tensor& own = arguments.in[kKeyEnds];
    const Tensor& keys = own.present ? own : queries;
    lengths.spec.rule = LengthRule::kCumulative;
    lengths.spec.values = queries.placement;
    lengths.spec.bound = keys.placement;
    lengths.batch = sizes.batch;
    lengths.query_rows = problem.query_rows;
    lengths.most_keys = problem.max_total;
    lengths.values = static_cast<const int32_t*>(queries.data);
    lengths.value_stride = queries.strides[0];
    lengths.key_values = static_cast<const int32_t*>(keys.data);
    lengths.key_value_stride = keys.strides[0];
    lengths.query_tokens = sizes.queries;
    lengths.key_tokens = sizes.keys;
  }

  VarlenSettings settings_;
  int64_t left_window_, right_window_;
  int64_t most_queries_, most_keys_;  // 0 or less: not given
};

}  // namespace
}  // namespace packed

const OperatorSchema kPackedVarlenAttentionSchema = {
    "pkg.nxrt",
    "PackedVarlenAttention",
    1,
    1,
    "attention over packed sequences of different lengths",
    packed::kInputs,
    packed::kOutputs,
    packed::kAttributes};

std::unique_ptr<Operator> create_packed_varlen_attention(const Attributes& attributes,
                                                         int32_t /*version: there is one*/) {
  return std::make_unique<packed::PackedVarlenAttention>(read_varlen_settings(attributes),
                                                         attributes);
}

}  // namespace attn
