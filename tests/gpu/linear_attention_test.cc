// LinearAttention on the device: random problems under every engine that serves them, and the forms
// that models use, against the float64 reference.
#include <gtest/gtest.h>

#include <chrono>
#include <iostream>
#include <map>

#include "gpu/run.h"
#include "matrix/linear_case.h"

namespace attn::gpu {
namespace {

using matrix::LinearCase;
using matrix::LinearOutline;
using test::Arguments;
using test::Outcome;
using test::outcome_of;
using test::Type;

constexpr const char* kLinearEngines[] = {"recurrent", "recurrent-serial"};
constexpr int64_t kLeastProblems = 500;  // that each engine must have accepted
constexpr uint64_t kMostSeeds = 3000;
constexpr int kMostFailures = 5;

std::vector<Mirror::NamedTensor> tensors_of(LinearCase& c) {
  std::vector<Mirror::NamedTensor> tensors;
  tensors.reserve(c.in.size() + c.out.size());
  for (uint32_t slot = 0; slot < c.in.size(); ++slot) {
    tensors.push_back({&c.in[slot], "input " + std::to_string(slot)});
  }
  for (uint32_t slot = 0; slot < c.out.size(); ++slot) {
    tensors.push_back({&c.out[slot], "output " + std::to_string(slot)});
  }
  return tensors;
}

RunResult run(Lane& lane, LinearCase& c, const std::string& engine) {
  c.restore();
  Mirror memory(lane.gpu, c, tensors_of(c));
  memory.upload(lane.stream);
  const Arguments inputs = memory.inputs(), outputs = memory.outputs();
  test::Handle<attn_op> op;
  const matrix::OperatorName name = c.name();
  Outcome outcome = test::create_op(op, lane.gpu.context(), name.domain, name.type, name.version,
                                    c.attributes(), "node");
  if (!outcome.ok()) return {Verdict::kFailed, "op_create: " + outcome.message, {}};
  attn_prepare_desc desc = ATTN_PREPARE_DESC_INIT;
  if (c.wide_range) desc = c.wide_bounds();
  desc.engine = engine.empty() ? nullptr : engine.c_str();
  desc.inputs = inputs.data();
  desc.input_count = inputs.size();
  desc.outputs = outputs.data();
  desc.output_count = outputs.size();
  test::Handle<attn_plan> plan;
  outcome = test::create(plan, [&](attn_plan** out, attn_error* error) {
    return attn_op_prepare(op.get(), &desc, out, error);
  });
  const bool may_refuse = outcome.status == ATTN_UNSUPPORTED && engine == "recurrent";
  if (!outcome.ok() && may_refuse) return {Verdict::kRefused, outcome.message, {}};
  if (!outcome.ok()) return {Verdict::kFailed, "prepare: " + outcome.message, {}};
  attn_execute_desc execute = ATTN_EXECUTE_DESC_INIT;
  execute.stream = lane.stream.get();
  outcome = outcome_of([&](attn_error* error) {
    return attn_plan_execute(plan.get(), lane.session.get(), inputs.data(), inputs.size(),
                             outputs.data(), outputs.size(), &execute, error);
  });
  if (outcome.status == ATTN_UNSUPPORTED && engine == "recurrent") {
    return {Verdict::kRefused, outcome.message, {}};  // addresses and strides
  }
  if (!outcome.ok()) return {Verdict::kFailed, "execute: " + outcome.message, {}};
  lane.stream.wait();
  RunResult result;
  result.text = memory.download(lane.stream);
  result.text += c.check(&result.numbers);
  result.verdict = result.text.empty() ? Verdict::kPassed : Verdict::kFailed;
  return result;
}

using GpuLinear = GpuTest;

// Few kernels to compile, many problems: sizes that models use, where any serve.
LinearCase draw_case(uint64_t seed) {
  LinearOutline outline = matrix::draw_linear_outline(seed);
  test::Random random(test::derive_seed(seed, 12));
  if (random.chance(0.85)) {
    outline.head_size = random.pick<int64_t>({64, 80, 128});
    outline.v_head_size = random.pick<int64_t>({64, 128, 80});
    outline.odd_layouts = outline.odd_layouts && random.chance(0.3);
    if (outline.q_heads / outline.kv_heads > 1) outline.q_heads = 2 * outline.kv_heads;
    outline.tokens = std::min<int64_t>(outline.tokens, 40);
  }
  return matrix::build_linear_case(outline, random);
}

// Few and fixed: for compute-sanitizer.
TEST_F(GpuLinear, AFew) {
  Lane lane(Gpu::first());
  for (uint64_t seed = 1; seed <= 8; ++seed) {
    LinearCase c = draw_case(seed);
    for (const char* engine : kLinearEngines) {
      const RunResult result = run(lane, c, engine);
      EXPECT_NE(result.verdict, Verdict::kFailed) << seed << ": " << result.text << c.text();
    }
  }
}

TEST_F(GpuLinear, Matrix) {
  Lane lane(Gpu::first());
  const uint64_t first = matrix::rotating_seed();
  std::cout << "seeds begin at " << first << " (set ATTN_C_TEST_SEED to repeat them)\n";
  std::map<std::string, int64_t> accepted;
  std::map<std::string, matrix::CheckNumbers> worst;
  int failures = 0;
  for (uint64_t seed = first; seed < first + kMostSeeds; ++seed) {
    LinearCase c = draw_case(seed);
    for (const char* engine : kLinearEngines) {
      const RunResult result = run(lane, c, engine);
      if (result.verdict == Verdict::kPassed) {
        ++accepted[engine];
        matrix::CheckNumbers& most = worst[std::string(engine) + " " + test::name_of(c.type())];
        most.output_error = std::max(most.output_error, result.numbers.output_error);
        most.worst_row = std::max(most.worst_row, result.numbers.worst_row);
      }
      if (result.verdict != Verdict::kFailed) continue;
      ADD_FAILURE() << "seed " << seed << ", " << engine << ":\n" << result.text << c.text();
      if (++failures == kMostFailures) FAIL() << "further seeds were not tried";
    }
    if (accepted["recurrent"] >= kLeastProblems && accepted["recurrent-serial"] >= kLeastProblems) {
      break;
    }
  }
  for (const char* engine : kLinearEngines) EXPECT_GE(accepted[engine], kLeastProblems) << engine;
  for (const auto& [key, numbers] : worst) {
    std::cout << key << ": worst output " << numbers.output_error << ", worst row "
              << numbers.worst_row << "\n";
  }
}

LinearOutline model_outline(Type type, int64_t tokens, int64_t kv_heads) {
  LinearOutline o;
  o.seed = 2;
  o.type = type;
  o.state_type = type;
  o.tokens = tokens;
  o.q_heads = o.key_heads = 16;
  o.kv_heads = kv_heads;
  o.head_size = o.v_head_size = 128;
  o.past = o.in_place = true;
  return o;
}

// The shapes of models: one token, and a prompt.
TEST_F(GpuLinear, ShapesOfModels) {
  Lane lane(Gpu::first());
  for (const Type type : {Type::kFloat16, Type::kBfloat16, Type::kFloat32}) {
    for (const int64_t tokens : {1, 70}) {
      test::Random random(3);
      LinearCase c = matrix::build_linear_case(model_outline(type, tokens, 32), random);
      for (const char* engine : {"", "recurrent", "recurrent-serial"}) {
        const RunResult result = run(lane, c, engine);
        EXPECT_EQ(result.verdict, Verdict::kPassed) << engine << ":\n" << result.text << c.text();
      }
    }
  }
}

TEST_F(GpuLinear, ManyTokens) {
  Lane lane(Gpu::first());
  for (const Type type : {Type::kFloat32, Type::kFloat16, Type::kBfloat16}) {
    for (const matrix::DecayKind decays : {matrix::DecayKind::kWeak, matrix::DecayKind::kSteady}) {
      for (const bool per_key : {false, true}) {
        LinearOutline o = model_outline(type, 4096, 1);
        o.q_heads = o.key_heads = 1;
        o.head_size = o.v_head_size = 32;
        o.state_type = Type::kFloat32;
        o.decays = decays;
        o.decay_per_key = per_key;
        test::Random random(4);
        LinearCase c = matrix::build_linear_case(o, random);
        for (const char* engine : kLinearEngines) {
          const RunResult result = run(lane, c, engine);
          EXPECT_EQ(result.verdict, Verdict::kPassed) << engine << ":\n" << result.text << c.text();
        }
      }
    }
  }
}

// How long a prompt of 8,192 tokens takes, 16/16/48 heads of 128, and whether it gives the same
// bits each time. The numbers are random; the sums were compared above.
TEST_F(GpuLinear, LongPrompt) {
  Lane lane(Gpu::first());
  LinearOutline o = model_outline(Type::kFloat16, 8192, 48);
  const std::vector<int64_t> widths = {16 * 128, 16 * 128, 48 * 128, 0, 48, 48};
  PlainMemory memory(Gpu::first(), uint64_t{1} << 30);
  std::vector<uint16_t> noise(size_t{1} << 24);
  test::Random random(6);
  for (uint16_t& bits : noise) bits = test::encode_float16(0.08 * random.normal());
  uint64_t used = 0;
  const auto place = [&](std::vector<int64_t> shape, bool negative) {
    attn_tensor tensor = ATTN_TENSOR_INIT;
    tensor.device_type = ATTN_DEVICE_CUDA;
    tensor.device_id = lane.gpu.id();
    tensor.dtype = test::dtype_of(Type::kFloat16);
    tensor.ndim = static_cast<int32_t>(shape.size());
    int64_t elements = 1;
    for (int axis = tensor.ndim - 1; axis >= 0; --axis) {
      tensor.shape[axis] = shape[static_cast<size_t>(axis)];
      tensor.strides[axis] = elements;
      elements *= tensor.shape[axis];
    }
    tensor.data = memory.data() + used;
    std::vector<uint16_t> values(static_cast<size_t>(elements));
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = noise[i % noise.size()] & 0x7fff;
      values[i] = static_cast<uint16_t>(negative ? values[i] | 0x8000 : noise[i % noise.size()]);
    }
    copy(lane.gpu, tensor.data, values.data(), values.size() * 2, lane.stream);
    used += (static_cast<uint64_t>(elements) * 2 + 255) / 256 * 256;
    return tensor;
  };
  Arguments inputs, outputs;
  for (uint32_t slot = 0; slot < widths.size(); ++slot) {
    if (slot != 3) inputs.add(slot, place({1, o.tokens, widths[slot]}, slot == 4));
  }
  const attn_tensor state = place({1, 48, 128, 128}, false);
  const attn_tensor result = place({1, o.tokens, 48 * 128}, false);
  outputs.add(0, result);
  outputs.add(1, state);
  test::Handle<attn_op> op;
  test::Attributes attributes;
  attributes.set_int("q_num_heads", 16).set_int("kv_num_heads", 48);
  ASSERT_TRUE(
      test::create_op(op, lane.gpu.context(), "com.microsoft", "LinearAttention", 1, attributes)
          .ok());
  attn_prepare_desc desc = ATTN_PREPARE_DESC_INIT;
  desc.inputs = inputs.data();
  desc.input_count = inputs.size();
  desc.outputs = outputs.data();
  desc.output_count = outputs.size();
  test::Handle<attn_plan> plan;
  const Outcome prepared = test::create(plan, [&](attn_plan** out, attn_error* error) {
    return attn_op_prepare(op.get(), &desc, out, error);
  });
  ASSERT_TRUE(prepared.ok()) << prepared.message;
  attn_execute_desc execute = ATTN_EXECUTE_DESC_INIT;
  execute.stream = lane.stream.get();
  std::vector<uint16_t> first, again(static_cast<size_t>(o.tokens * 48 * 128));
  double best = 1e9;
  for (int repeat = 0; repeat < 4; ++repeat) {
    const auto begin = std::chrono::steady_clock::now();
    const Outcome outcome = outcome_of([&](attn_error* error) {
      return attn_plan_execute(plan.get(), lane.session.get(), inputs.data(), inputs.size(),
                               outputs.data(), outputs.size(), &execute, error);
    });
    ASSERT_TRUE(outcome.ok()) << outcome.message;
    lane.stream.wait();
    const auto took = std::chrono::steady_clock::now() - begin;
    best = std::min(best, std::chrono::duration<double, std::milli>(took).count());
    copy(lane.gpu, again.data(), result.data, again.size() * 2, lane.stream);
    if (first.empty()) first = again;
    EXPECT_TRUE(first == again) << "other bits in run " << repeat;
  }
  std::cout << "T=8192, 16/16/48 heads of 128, float16: " << best << " ms\n";
}

}  // namespace
}  // namespace attn::gpu
