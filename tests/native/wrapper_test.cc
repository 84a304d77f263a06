// attn_c.hpp: exceptions, lifetimes, and every function of the C interface behind it.
#include <attn_c_host.hpp>
#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "native/resident.h"

// GoogleTest comes last: what the wrapper needs it must include itself.
#include <gtest/gtest.h>

namespace {

using attn_c::Arguments;
using attn_c::Attributes;
using attn_c::Binding;
using attn_c::Context;
using attn_c::ContextOptions;
using attn_c::Op;
using attn_c::Session;
using attn_c::Tensor;

Context quiet_context() {
  ContextOptions options;
  options.flags = ATTN_CONTEXT_IGNORE_ENVIRONMENT;
  return Context(options);
}

Attributes heads() { return std::move(Attributes().set("num_heads", 2).set("kv_num_heads", 1)); }

Op attention(const Context& context) {
  return Op(context, "com.microsoft", "GroupQueryAttention", 1, heads(), "layer 7");
}

// Three tokens, two query heads, one key head of four channels, packed.
struct Step {
  std::vector<float> qkv = std::vector<float>(3 * 16, 0.0f);
  std::vector<float> out = std::vector<float>(3 * 8, -1.0f);
  int32_t last = 2, total = 3;

  Step() {
    for (size_t row = 0; row < 3; ++row) {
      for (size_t d = 0; d < 4; ++d) qkv[row * 16 + 12 + d] = static_cast<float>(2 * row + d + 1);
    }
  }
  Arguments inputs() {
    return {{0, Tensor(qkv.data(), {1, 3, 16})}, {5, Tensor(&last, {1})}, {6, Tensor(&total)}};
  }
  Arguments outputs() { return {{0, Tensor(out.data(), {1, 3, 8})}}; }
  bool right() const { return out[0] == 1 && out[8] == 2 && out[16] == 3 && out[23] == 6; }
};

TEST(WrapperTest, BindingRuns) {
  const Context context = quiet_context();
  const Op op = attention(context);
  const Session session(context, "a stream");
  const Binding binding(op, session);
  Step step;
  binding.set_tensors(step.inputs(), step.outputs());
  EXPECT_NE(binding.capture_support().capture_flags & ATTN_CAPTURE_NEEDS_PREPARE, 0u);
  binding.prepare();
  binding.execute();
  EXPECT_TRUE(step.right());
  EXPECT_NE(binding.describe().find("GroupQueryAttention"), std::string::npos);
  EXPECT_EQ(session.poll_faults().bits, 0u);
  session.clear_faults();
}

TEST(WrapperTest, TensorsOneByOne) {
  const Context context = quiet_context();
  const Binding binding(attention(context), Session(context));  // handles may go, objects stay
  Step step;
  binding.set_input(0, Tensor(step.qkv.data(), {1, 3, 16}));
  binding.set_input(5, Tensor(&step.last, {1}));
  binding.set_input(6, Tensor(&step.total));
  binding.set_output(0, Tensor(step.out.data(), {1, 3, 8}));
  binding.unset_input(5);
  EXPECT_THROW(binding.prepare(), attn_c::InvalidArgument);
  binding.set_input(5, Tensor(&step.last, {1}));
  attn_c::ExecuteOptions options;
  options.flags = ATTN_EXECUTE_PREPARE;
  binding.execute(options);
  EXPECT_TRUE(step.right());
  binding.unset_output(0);
  EXPECT_THROW(binding.execute(options), attn_c::InvalidArgument);
}

TEST(WrapperTest, PlanRuns) {
  const Context context = quiet_context();
  const Op op = attention(context);
  const Session session(context);
  Step step;
  attn_c::PrepareOptions range;
  range.max_total_length = 64;
  const attn_c::Plan plan = op.prepare(step.inputs(), step.outputs(), range);
  EXPECT_EQ(plan.info().max_total_length, 64);
  std::vector<unsigned char> scratch(plan.info().workspace_bytes + 64);
  attn_c::ExecuteOptions options;
  const auto at = reinterpret_cast<uintptr_t>(scratch.data());
  options.workspace = scratch.data() + (64 - at % 64) % 64;
  options.workspace_bytes = plan.info().workspace_bytes;
  plan.execute(session, step.inputs(), step.outputs(), options);
  EXPECT_TRUE(step.right());
  EXPECT_EQ(plan.describe().front(), '{');
}

TEST(WrapperTest, ClaimGateAndInference) {
  const Context context = quiet_context();
  const Op op = attention(context);
  const Arguments inputs = {{0, Tensor(attn_c::kFloat16, {-1, -1, 16})},
                            {5, Tensor(attn_c::kInt32, {-1})},
                            {6, Tensor(attn_c::kInt32, {})}};
  EXPECT_TRUE(op.query(inputs));
  const Arguments wrong = {{0, Tensor(attn_c::kFloat64, {-1, -1, 16})},
                           {5, Tensor(attn_c::kInt32, {-1})},
                           {6, Tensor(attn_c::kInt32, {})}};
  Arguments wanted;
  wanted.want(0);
  const attn_c::Support refused = op.query(wrong, wanted);
  EXPECT_FALSE(refused);
  EXPECT_EQ(refused.status, ATTN_INVALID_ARGUMENT);
  EXPECT_NE(refused.reason.find("query"), std::string::npos);
  Step step;
  const attn_c::Inferred output = op.infer_output(step.inputs(), 0);
  EXPECT_FALSE(output.depends_on_value);
  EXPECT_EQ(output.tensor.shape[2], 8);
}

TEST(WrapperTest, FailuresAreExceptions) {
  const Context context = quiet_context();
  EXPECT_THROW(Op(context, "com.microsoft", "NoSuchOperator", 1), attn_c::Unsupported);
  try {
    const Op op(context, "com.microsoft", "GroupQueryAttention", 1, {}, "layer 7");
    FAIL() << "a required attribute is absent";
  } catch (const attn_c::InvalidArgument& error) {
    EXPECT_EQ(error.status(), ATTN_INVALID_ARGUMENT);
    EXPECT_NE(std::string(error.what()).find("'layer 7'"), std::string::npos);
    EXPECT_FALSE(error.sticky());
    EXPECT_EQ(error.native_code(), 0);
    EXPECT_EQ(error.native_domain(), ATTN_DOMAIN_NONE);
  }
  const Binding binding(attention(context), Session(context));
  Step step;
  binding.set_tensors(step.inputs(), step.outputs());
  EXPECT_THROW(binding.execute(), attn_c::NotPrepared);
  EXPECT_THROW(attn_c::api(ATTN_ABI_VERSION + 1), attn_c::VersionMismatch);
  ContextOptions nowhere;
  nowhere.device_type = ATTN_DEVICE_CUDA;
  nowhere.device_id = 4096;
  EXPECT_THROW(Context{nowhere}, attn_c::Error);
  EXPECT_THROW(Tensor(attn_c::kInt32, std::vector<int64_t>(9, 1)), std::length_error);
  EXPECT_THROW(Tensor(&step.last, {1}).with_strides({1, 1}), std::length_error);
}

TEST(WrapperTest, HandlesMove) {
  static_assert(!std::is_copy_constructible_v<Context>);
  static_assert(std::is_nothrow_move_constructible_v<Binding>);
  Context first = quiet_context();
  attn_context* raw = first.get();
  Context second = std::move(first);
  EXPECT_FALSE(first);  // NOLINT(bugprone-use-after-move): it says that it is empty
  EXPECT_EQ(second.get(), raw);
  Context third;
  EXPECT_FALSE(third);
  third = std::move(second);
  EXPECT_EQ(third.stats().ops_live, 0u);
  attn_context_release(third.release());
  third.reset();
}

TEST(WrapperTest, Introspection) {
  EXPECT_EQ(attn_c::version(), ATTN_VERSION_STRING);
  EXPECT_EQ(attn_c::abi_version(), ATTN_ABI_VERSION);
  EXPECT_EQ(attn_c::api().abi_version, ATTN_ABI_VERSION);
  EXPECT_EQ(attn_c::devices().at(0).device_type, ATTN_DEVICE_CPU);
  bool found = false;
  for (const attn_c::OperatorInfo& one : attn_c::operators()) {
    if (std::string(one.info.type) != "GroupQueryAttention") continue;
    found = true;
    EXPECT_STREQ(one.inputs.at(0).name, "query");
    EXPECT_STREQ(one.outputs.at(1).name, "present_key");
    EXPECT_EQ(one.attributes.size(), one.info.attribute_count);
  }
  EXPECT_TRUE(found);
  EXPECT_EQ(attn_c::fault_text(0), "");
  EXPECT_NE(attn_c::fault_text(ATTN_FAULT_POSITION).find("rotary table"), std::string::npos);
  // Longer than the room of the first try.
  EXPECT_GT(attn_c::fault_text(0x7ff).size(), 256u);
  EXPECT_EQ(attn_c::host_api().abi_version, ATTN_HOST_ABI_VERSION);
}

TEST(WrapperTest, AttributesOfEveryKind) {
  const Context context = quiet_context();
  Attributes list = heads();
  list.set("scale", 0.5).set("k_quant_type", "NONE").set("none", std::vector<int64_t>{1, 2});
  try {
    const Op op(context, "com.microsoft", "GroupQueryAttention", 1, list);
    FAIL() << "an unknown attribute";
  } catch (const attn_c::InvalidArgument& error) {
    EXPECT_NE(std::string(error.what()).find("none"), std::string::npos);
  }
  EXPECT_EQ(list.data()[4].type, ATTN_ATTRIBUTE_INTS);
  EXPECT_EQ(static_cast<const int64_t*>(list.data()[4].data)[1], 2);
  list.set("numbers", std::vector<float>{1.5f});
  EXPECT_EQ(list.data()[5].count, 1u);
}

TEST(WrapperTest, LogReachesTheFunction) {
  std::vector<std::string> lines;
  ContextOptions options;
  options.flags = ATTN_CONTEXT_IGNORE_ENVIRONMENT;
  options.minimum_severity = ATTN_LOG_DEBUG;
  options.log = [&lines](int32_t, std::string_view text) { lines.emplace_back(text); };
  {
    const Context context(options);
    const Op op = attention(context);
    Step step;
    op.prepare(step.inputs(), step.outputs());
    context.trim();
  }
  EXPECT_FALSE(lines.empty());
  options.simd_level = "no such level";
  EXPECT_THROW(Context{options}, attn_c::Error);
}

TEST(WrapperTest, HostHelp) {
  const Context context = quiet_context();
  EXPECT_GT(std::strlen(context.info().device_name), 0u);
  attn_c::Memory memory(context, 64), other(context, 32);
  const char text[] = "thirty-two bytes of some text  ";
  attn_c::copy(context, memory.data(), text, sizeof text);
  EXPECT_STREQ(static_cast<const char*>(memory.data()), text);
  other = std::move(memory);
  EXPECT_EQ(other.bytes(), 64u);
  const attn_c::Stream stream(context);
  stream.synchronize();
  EXPECT_THROW(stream.begin_capture(), attn_c::Unsupported);
  EXPECT_THROW(stream.end_capture(), attn_c::Unsupported);
  EXPECT_FALSE(attn_c::Graph());
}

void round(const Context& context) {
  const Op op = attention(context);
  const Binding binding(op, Session(context));
  Step step;
  binding.set_tensors(step.inputs(), step.outputs());
  binding.prepare();
  binding.execute();
  ASSERT_TRUE(step.right());
}

// What goes wrong in the middle leaves nothing behind.
void failing_round(const Context& context) {
  const Op op = attention(context);
  const Binding binding(op, Session(context));
  Step step;
  step.last = 7;
  binding.set_tensors(step.inputs(), step.outputs());
  EXPECT_THROW(binding.execute({ATTN_EXECUTE_PREPARE}), attn_c::InvalidArgument);
  EXPECT_THROW(Op(context, "", "NoSuchOperator", 1), attn_c::Unsupported);
}

TEST(WrapperTest, RoundsLeaveNothingBehind) {
  const Context context = quiet_context();
  int64_t middle = 0;
  for (int i = 0; i < 10000; ++i) {
    round(context);
    if (i % 10 == 0) failing_round(context);
    if (i == 5000) middle = attn::native::resident_bytes();
  }
  EXPECT_LT(attn::native::resident_bytes() - middle, ATTN_TEST_GROWTH);
  context.trim();
  const attn_context_stats stats = context.stats();
  EXPECT_EQ(stats.ops_live, 0u);
  EXPECT_EQ(stats.sessions_live, 0u);
  EXPECT_EQ(stats.bindings_live, 0u);
  EXPECT_EQ(stats.plans_live, 0u);
  EXPECT_EQ(stats.scratch_bytes, 0u);
  EXPECT_EQ(stats.executions, 10000u);
}

}  // namespace
