// The front end that docs/adding-an-operator.md shows, and what holds for every front end.
#include <gtest/gtest.h>

#include <cmath>
#include <iterator>
#include <limits>
#include <vector>

#include "core/error.h"
#include "cpu/cpu_backend.h"
#include "ops/operator.h"
#include "ops/shape_check.h"
#include "ops/views.h"
#include "ops_gqa_call.h"

namespace attn {
namespace {

// com.example PlainAttention, version 1: softmax(Q K^T / sqrt(D)) V for each head.
// Letters: B batch, S query rows, T keys, H heads, D head size.

enum Input : int { kQuery, kKey, kValue, kInputCount };  // positions in the schema
enum Output : int { kOutput, kOutputCount };

constexpr char kFloats[] = "float32,float16,bfloat16";
constexpr SlotSchema kInputs[] = {
    {0, "query", false, ATTN_MEMORY_DEVICE, -1, kFloats, "(B, S, H*D)"},
    {1, "key", false, ATTN_MEMORY_DEVICE, -1, kFloats, "(B, T, H*D)"},
    {2, "value", false, ATTN_MEMORY_DEVICE, -1, kFloats, "(B, T, H*D)"},
};
constexpr SlotSchema kOutputs[] = {
    {0, "output", false, ATTN_MEMORY_DEVICE, -1, kFloats, "(B, S, H*D)"},
};
constexpr AttributeSchema kAttributes[] = {
    {"num_heads", ATTN_ATTRIBUTE_INT, true, "", "heads of query, key and value"},
};
static_assert(std::size(kInputs) == kInputCount && std::size(kOutputs) == kOutputCount);

constexpr OperatorSchema kPlainAttentionSchema = {
    "com.example", "PlainAttention", 1,          1, "attention without a mask",
    kInputs,       kOutputs,         kAttributes};

class PlainAttention final : public Operator {
 public:
  explicit PlainAttention(int32_t heads) : heads_(heads) {}

  const OperatorSchema& schema() const override { return kPlainAttentionSchema; }

  void lower(const Arguments& arguments, LowerMode mode, Lowering& out) const override {
    const Sizes sizes = check_inputs(arguments);
    const Tensor& output = arguments.out[kOutput];
    if (mode != LowerMode::kQuery) check_present("output", output, "(B, S, H*D)");
    if (output.present) check_output(output, arguments.in[kQuery].type, sizes);

    // No lengths in tensors: every batch row has S queries and T keys.
    out.batch = sizes.batch;
    out.lengths.batch = sizes.batch;
    out.lengths.query_rows = sizes.rows;
    out.lengths.new_rows = sizes.keys;
    out.lengths.past_capacity = out.lengths.present_capacity = sizes.keys;

    AttentionProblem& problem = out.attention.emplace();
    AttentionSpec& spec = problem.spec;
    spec.type = arguments.in[kQuery].type;
    spec.q_heads = spec.kv_heads = heads_;
    spec.head_size = spec.v_head_size = static_cast<int32_t>(sizes.head_size);
    if (sizes.head_size != kAnyDim)
      spec.scale = 1 / std::sqrt(static_cast<double>(sizes.head_size));
    problem.batch = sizes.batch;
    problem.query_rows = sizes.rows;
    problem.max_total = sizes.keys;
    problem.query = heads_view(arguments.in[kQuery], "query", sizes.head_size, 0);
    problem.key = heads_view(arguments.in[kKey], "key", sizes.head_size, 0);
    problem.value = heads_view(arguments.in[kValue], "value", sizes.head_size, 0);
    spec.unit_channel =
        problem.query.channel == 1 && problem.key.channel == 1 && problem.value.channel == 1;
    if (!output.present) return;
    problem.output = heads_view(output, "output", sizes.head_size, 0);
    spec.unit_channel &= problem.output.channel == 1;
  }

  bool infer(const Arguments& arguments, int /*position: there is one*/,
             Tensor& out) const override {
    const Sizes sizes = check_inputs(arguments);
    out.type = arguments.in[kQuery].type;
    out.rank = 3;
    out.shape = {sizes.batch, sizes.rows, product(heads_, sizes.head_size)};
    return false;  // no size depends on a value
  }

 private:
  struct Sizes {
    int64_t batch, rows, keys, head_size;  // kAnyDim where a query leaves them open
  };

  // Presence, types, shared sizes, shapes: the first message is the most telling one.
  Sizes check_inputs(const Arguments& arguments) const {
    const auto& in = arguments.in;
    for (const SlotSchema& slot : kInputs) check_present(slot.name, in[slot.slot], slot.shape);
    const Tensor& query = in[kQuery];
    if (query.type != kFloat32 && query.type != kFloat16 && query.type != kBfloat16) {
      fail_type("query", query, "float32, float16 or bfloat16");
    }
    check_type_of("key", in[kKey], query.type, "query");
    check_type_of("value", in[kValue], query.type, "query");

    check_shape("query", query, "(B, S, H*D)", {kAnyDim, kAnyDim, kAnyDim});
    check_shape("key", in[kKey], "(B, T, H*D)", {query.shape[0], kAnyDim, query.shape[2]});
    const Sizes sizes = {known_of(query.shape[0], in[kKey].shape[0]), query.shape[1],
                         known_of(in[kKey].shape[1], in[kValue].shape[1]),
                         head_size_of(known_of(query.shape[2], in[kKey].shape[2]))};
    check_shape("value", in[kValue], "(B, T, H*D)",
                {sizes.batch, sizes.keys, product(heads_, sizes.head_size)});
    return sizes;
  }

  int64_t head_size_of(int64_t channels) const {
    if (channels == kAnyDim) return kAnyDim;
    if (channels == 0 || channels % heads_ != 0) {
      fail_argument("query: expected a last dimension that is a multiple of ", heads_,
                    " (num_heads); got ", channels);
    }
    if (channels / heads_ > std::numeric_limits<int32_t>::max()) {
      fail_unsupported("query: head sizes beyond 2147483647 are not built; got ",
                       channels / heads_);
    }
    return channels / heads_;
  }

  void check_output(const Tensor& output, DType type, const Sizes& sizes) const {
    check_type_of("output", output, type, "query");
    check_shape("output", output, "(B, S, H*D)",
                {sizes.batch, sizes.rows, product(heads_, sizes.head_size)});
  }

  int32_t heads_;
};

std::unique_ptr<Operator> create_plain_attention(const Attributes& attributes,
                                                 int32_t /*version: there is one*/) {
  const int64_t heads = attributes.integer("num_heads", 0);
  if (heads < 1 || heads > std::numeric_limits<int32_t>::max()) {
    fail_argument("attribute 'num_heads': expected 1 to 2147483647; got ", heads);
  }
  return std::make_unique<PlainAttention>(static_cast<int32_t>(heads));
}

// ---- what the page does not show ----------------------------------------------------------------

using ops_test::make_int;
using ops_test::make_tensor;

std::unique_ptr<Operator> make(int64_t heads) {
  return create_plain_attention({kPlainAttentionSchema, {make_int("num_heads", heads)}}, 1);
}

Arguments call(std::initializer_list<int64_t> query, std::initializer_list<int64_t> key,
               std::initializer_list<int64_t> value) {
  Arguments arguments;
  arguments.in[kQuery] = make_tensor(kFloat32, query);
  arguments.in[kKey] = make_tensor(kFloat32, key);
  arguments.in[kValue] = make_tensor(kFloat32, value);
  return arguments;
}

std::string refusal(const Operator& op, const Arguments& arguments) {
  Lowering out;
  try {
    op.lower(arguments, LowerMode::kQuery, out);
  } catch (const Error& error) {
    return error.message();
  }
  return "";
}

TEST(OpsSkeleton, Refusals) {
  const auto op = make(2);
  EXPECT_EQ(refusal(*op, call({1, 3, 8}, {1, 5, 8}, {1, 5, 8})), "");
  EXPECT_EQ(refusal(*op, call({-1, 3, -1}, {1, -1, 8}, {-1, 5, 8})), "");
  EXPECT_EQ(refusal(*op, call({1, 3, 7}, {1, 5, 7}, {1, 5, 7})),
            "query: expected a last dimension that is a multiple of 2 (num_heads); got 7");
  EXPECT_EQ(refusal(*op, call({1, 3, 8}, {1, 5, 8}, {1, 4, 8})),
            "value: expected shape (B, T, H*D) = (1, 5, 8); got (1, 4, 8)");
  EXPECT_EQ(refusal(*op, call({-1, 3, 8}, {2, 5, 8}, {3, 5, 8})),
            "value: expected shape (B, T, H*D) = (2, 5, 8); got (3, 5, 8)");
  Arguments mixed = call({1, 3, 8}, {1, 5, 8}, {1, 5, 8});
  mixed.in[kKey].type = kFloat16;
  EXPECT_EQ(refusal(*op, mixed), "key: expected float32, the type of query; got float16");
  EXPECT_THROW(make(0), Error);
}

TEST(OpsSkeleton, Inference) {
  Tensor out;
  EXPECT_FALSE(make(2)->infer(call({1, -1, 8}, {1, 5, 8}, {1, 5, 8}), kOutput, out));
  EXPECT_EQ(shape_text(out), "(1, ?, 8)");
}

// The CPU solves what the page's front end states: no engine had to learn of the operator.
TEST(OpsSkeleton, RunsOnTheCpu) {
  std::vector<float> query(2 * 3 * 8, 0.0f), key(2 * 5 * 8, 1.0f), value(2 * 5 * 8), output(48, -1);
  for (size_t i = 0; i < value.size(); ++i) value[i] = static_cast<float>(i / 8 % 5);
  Arguments arguments = call({2, 3, 8}, {2, 5, 8}, {2, 5, 8});
  arguments.in[kQuery].data = query.data();
  arguments.in[kKey].data = key.data();
  arguments.in[kValue].data = value.data();
  arguments.out[kOutput] = make_tensor(kFloat32, {2, 3, 8}, output.data());
  Lowering lowering;
  make(2)->lower(arguments, LowerMode::kExecute, lowering);
  const auto backend = cpu::make_cpu_backend({});
  const auto session = backend->create_session();
  const auto plan = backend->plan(lowering, {2, 3, 5}, {});
  backend->execute(*plan, lowering, *session, {});
  for (const float mean : output) EXPECT_EQ(mean, 2.0f);  // of 0 to 4
}

}  // namespace
}  // namespace attn
