// Every rule of the lengths, broken on the device alone and together with others: bits, record,
// good rows right, poison, clear. And two sessions of which one faults.
#include <gtest/gtest.h>

#include <thread>

#include "gpu/run.h"
#include "gpu/step.h"

namespace attn::gpu {
namespace {

using matrix::GqaCase;
using matrix::GqaOutline;
using test::Type;

// A way to break the rules: an outline with good lengths, and what replaces them.
struct Break {
  const char* name;
  uint32_t bits;
  int64_t rows, new_rows;           // S and N
  int64_t past_rows, present_rows;  // equal: in place
  int64_t bound;
  std::vector<int64_t> good;    // totals of the whole problem
  std::vector<int64_t> broken;  // seqlens_k of the broken one
  bool rotary = false;
  int64_t short_table = 0;  // rows of the rotary table, 0: enough
};

constexpr int64_t kMost = 2147483647;

const Break kBreaks[] = {
    {"Overflow", 1, 1, 1, 40, 40, 40, {20, 9, 30}, {19, kMost, 29}, true},
    {"PastNegative", 2, 1, 3, 40, 40, 40, {20, 9, 30}, {19, 8, 1}},
    {"NegativeValue", 2 | 4, 1, 1, 40, 40, 40, {20, 9, 30}, {-7, 8, 29}},
    {"QueryStart", 4, 3, 0, 40, 40, 40, {20, 9, 30}, {1, 8, 29}, true},
    {"PastBeyond", 8, 1, 1, 10, 44, 40, {10, 9, 11}, {9, 20, 10}},
    {"TotalBeyond", 16, 1, 1, 60, 20, 50, {20, 9, 15}, {19, 8, 20}, true},
    {"TotalBound", 64, 1, 1, 60, 60, 30, {20, 9, 30}, {30, 8, 29}, true},
    {"Position", 32, 1, 1, 60, 60, 60, {20, 9, 30}, {19, 8, 59}, true, 31},
    {"NewKeysAndQueries", 2 | 4, 4, 4, 40, 40, 40, {20, 9, 30}, {19, 2, 29}, true},
    {"PastTotalAndBound", 8 | 16 | 64, 1, 1, 20, 20, 18, {18, 9, 15}, {17, 21, 14}},
    {"PastAndTotal", 8 | 16, 1, 1, 20, 20, 40, {20, 9, 15}, {19, 25, 14}, true},
    {"TwoRowsTwoRules", 2 | 4 | 64, 2, 2, 60, 60, 30, {20, 9, 30}, {0, 8, 40}},
    {"EveryRowBad", 1 | 64, 1, 1, 60, 60, 30, {20, 9, 30}, {kMost, 30, 31}},
    {"PaddedPromptBeyondBound", 64, 6, 6, 30, 30, 6, {6, 4, 1}, {5, 6, 0}, true},
};

GqaOutline outline(const Break& rule, Type type) {
  GqaOutline o;
  o.seed = 3;
  o.type = type;
  o.size = type == Type::kFloat32 ? 64 : 128;
  o.heads = 4;
  o.kv_heads = 2;
  o.batch = static_cast<int64_t>(rule.good.size());
  o.rows = rule.rows;
  o.new_rows = rule.new_rows;
  o.step = rule.bound == rule.rows      ? matrix::Step::kPrompt
           : rule.new_rows == 0         ? matrix::Step::kSharedCache
           : rule.new_rows != rule.rows ? matrix::Step::kFreeKeys
           : rule.rows == 1             ? matrix::Step::kDecode
                                        : matrix::Step::kChunk;
  o.totals = rule.good;
  o.bound = rule.bound;
  o.past = true;
  for (matrix::CacheOutline* cache : {&o.key, &o.value}) {
    cache->past_rows = rule.past_rows;
    cache->present = {true, rule.present_rows, rule.past_rows == rule.present_rows};
  }
  o.rotary = rule.rotary;
  o.rotary_width = rule.rotary ? o.size : 0;
  o.table_type = type;
  return o;
}

GqaCase make(const Break& rule, Type type, bool broken) {
  test::Random random(41);
  GqaCase c = matrix::build_case(outline(rule, type), random, false);
  c.wide_range = false;
  if (rule.short_table > 0) {
    for (uint32_t slot : {matrix::kCosCache, matrix::kSinCache}) {
      c.in[slot] = test::Tensor(type, {rule.short_table, c.outline.size / 2});
      test::fill_normal(c.in[slot].view(), random, 0.5);
    }
    c.problem.cos_cache = c.in[matrix::kCosCache].view();
    c.problem.sin_cache = c.in[matrix::kSinCache].view();
  }
  for (size_t b = 0; broken && b < rule.broken.size(); ++b) {
    c.in[matrix::kSeqlensK].view().set_linear(static_cast<int64_t>(b),
                                              static_cast<double>(rule.broken[b]));
  }
  c.renew();
  return c;
}

void PrintTo(const Break& rule, std::ostream* out) { *out << rule.name; }

// The table's own check: the reference sees the bits that it names.
class GpuFaultTable : public testing::TestWithParam<Break> {};

TEST_P(GpuFaultTable, NamesTheBits) {
  for (Type type : {Type::kBfloat16, Type::kFloat32}) {
    GqaCase broken = make(GetParam(), type, true);
    EXPECT_EQ(settle_faults(broken).bits, GetParam().bits);
    EXPECT_EQ(make(GetParam(), type, false).expected.faults, 0u);
  }
}

INSTANTIATE_TEST_SUITE_P(Rules, GpuFaultTable, testing::ValuesIn(kBreaks),
                         [](const auto& one) { return std::string(one.param.name); });

class GpuFaults : public GpuTest, public testing::WithParamInterface<Break> {};

TEST_P(GpuFaults, BitsGoodRowsPoisonAndClear) {
  const Break& rule = GetParam();
  const Gpu& gpu = Gpu::first();
  Lane lane(gpu);
  for (Type type : {Type::kBfloat16, Type::kFloat32}) {
    for (const char* engine : kEngines) {
      for (bool bound_on_host : {false, true}) {
        const RunResult result = run_problem(
            lane, [&](bool broke) { return make(rule, type, broke); }, {bound_on_host}, engine);
        EXPECT_NE(result.verdict, Verdict::kFailed)
            << engine << ", " << test::name_of(type) << ":\n"
            << result.text;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Rules, GpuFaults, testing::ValuesIn(kBreaks),
                         [](const auto& one) { return std::string(one.param.name); });

class GpuSessions : public GpuTest {};

TEST_F(GpuSessions, TheFirstFaultIsRecordedWithItsOperator) {
  const Gpu& gpu = Gpu::first();
  const Stream stream(gpu);
  const StepShape shape;
  Step step(gpu, stream, shape, 43);
  const test::Handle<attn_session> session = make_session(gpu);
  EXPECT_EQ(poll(session.get()).bits, 0u);
  step.set_totals({5, shape.capacity + 9, 7});
  step.run(session.get());
  attn_fault_info info = poll(session.get());
  // The rotary table may or may not reach that far.
  EXPECT_EQ(info.bits & ~32u, 8u | 16u | 64u) << info.text;
  EXPECT_EQ(info.batch, 1);
  EXPECT_EQ(info.value, shape.capacity + 8);
  EXPECT_STREQ(info.label, "step");
  // A later fault of a poisoned session adds nothing: the first one stands.
  step.set_totals({0, 9, 7});
  step.run(session.get());
  info = poll(session.get());
  EXPECT_EQ(info.batch, 1);
  EXPECT_EQ(info.value, shape.capacity + 8);
}

// A replay that faults poisons as an eager step does, and the graph serves again after the clear.
TEST_F(GpuSessions, AReplayFaultsAndRecovers) {
  const Gpu& gpu = Gpu::first();
  const Stream stream(gpu);
  const StepShape shape;
  Step step(gpu, stream, shape, 44);
  const test::Handle<attn_session> session = make_session(gpu);
  step.run(session.get());
  step.reset_caches();
  const Graph graph = Graph::capture(gpu, stream, [&] {
    const test::Outcome outcome = step.launch(session.get());
    if (!outcome.ok()) throw std::runtime_error(outcome.message);
  });
  const std::vector<unsigned char> caches = step.caches();
  step.set_totals({5, 0, 7});
  graph.launch(stream);
  stream.wait();
  EXPECT_EQ(poll(session.get()).bits, 2u | 4u);
  const std::vector<unsigned char> after_fault = step.caches();
  step.set_totals({6, 6, 6});
  graph.launch(stream);
  stream.wait();
  EXPECT_EQ(step.caches(), after_fault) << "a poisoned replay wrote to a cache";
  const std::vector<unsigned char> zeros(step.output().size(), 0);
  EXPECT_EQ(step.output(), zeros) << "a poisoned replay gives zeros";
  must("session_clear_faults", [&](attn_error* error) {
    return attn_session_clear_faults(session.get(), stream.get(), error);
  });
  stream.wait();
  EXPECT_EQ(poll(session.get()).bits, 0u);
  step.reset_caches();
  EXPECT_EQ(step.caches(), caches);
  step.set_totals({60, 100, 200});
  step.expect();
  graph.launch(stream);
  stream.wait();
  EXPECT_EQ(step.check(), "");
}

// Two sessions on two streams at once: what one breaks the other does not feel.
TEST_F(GpuSessions, OneFaultsTheOtherDoesNot) {
  const Gpu& gpu = Gpu::first();
  const StepShape shape;
  constexpr int kSteps = 300;
  std::vector<std::vector<unsigned char>> want;
  const auto totals = [&](int i) {
    return std::vector<int64_t>{i % 250 + 1, (i * 5) % 250 + 1, 250 - i % 250};
  };
  const auto good_steps = [&](std::vector<std::vector<unsigned char>>& outputs) {
    const Stream stream(gpu);
    Step step(gpu, stream, shape, 45);
    const test::Handle<attn_session> session = make_session(gpu);
    for (int i = 0; i < kSteps; ++i) {
      step.set_totals(totals(i));
      step.set_tokens(static_cast<uint64_t>(i));
      step.run(session.get());
      outputs.push_back(step.output());
    }
    return poll(session.get()).bits;
  };
  EXPECT_EQ(good_steps(want), 0u);

  std::string failure;
  int clears = 0;
  std::thread bad([&] {
    try {
      const Stream stream(gpu);
      Step step(gpu, stream, shape, 46);
      const test::Handle<attn_session> session = make_session(gpu);
      for (int i = 0; i < kSteps; ++i) {
        std::vector<int64_t> lengths = totals(i);
        if (i % 3 == 0) lengths[static_cast<size_t>(i / 3 % 3)] = shape.capacity + 1 + i;
        step.set_totals(lengths);
        step.run(session.get());
        const bool poisoned = poll(session.get()).bits != 0;
        if (!poisoned) failure = "step " + std::to_string(i) + " must leave the session poisoned";
        if (i % 3 != 2) continue;
        ++clears;
        must("session_clear_faults", [&](attn_error* error) {
          return attn_session_clear_faults(session.get(), stream.get(), error);
        });
        stream.wait();
      }
    } catch (const std::exception& error) {
      failure = error.what();
    }
  });
  std::vector<std::vector<unsigned char>> got;
  EXPECT_EQ(good_steps(got), 0u);
  bad.join();
  EXPECT_EQ(failure, "");
  EXPECT_EQ(clears, kSteps / 3);
  for (int i = 0; i < kSteps; ++i) {
    ASSERT_EQ(got[static_cast<size_t>(i)], want[static_cast<size_t>(i)]) << "step " << i;
  }
}

}  // namespace
}  // namespace attn::gpu
