// The problems that the fast engines must take: operator, type, head size and feature. Each is run,
// not only asked for.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <tuple>

#include "matrix/gqa_case.h"
#include "matrix/run.h"

namespace attn::matrix {
namespace {

const char* const kFeatures[] = {"causal", "window",        "bias",       "softcap", "sink",
                                 "smooth", "rotary",        "in place",   "group",   "norm",
                                 "ragged", "bidirectional", "log-sum-exp"};

GqaOutline outline(Type type, int64_t size, bool decode, const std::string& feature) {
  GqaOutline o;
  o.seed = 1;
  o.type = type;
  o.size = size;
  o.heads = 4;
  o.kv_heads = 2;
  o.batch = 2;
  o.past = true;
  o.rows = o.new_rows = decode ? 1 : 37;
  o.step = decode ? Step::kDecode : Step::kChunk;
  o.totals = {101, 101};
  o.bound = 120;
  for (CacheOutline* cache : {&o.key, &o.value}) {
    cache->present = {true, 130, feature == "in place"};
    cache->past_rows = 130;
  }
  if (feature == "window") o.window = 40;
  if (feature == "bias") o.bias = o.bias_batch = o.bias_row = true;
  if (feature == "softcap") o.softcap = 20;
  if (feature == "sink") o.sink = true;
  if (feature == "smooth") o.smooth = 1;
  if (feature == "rotary") {
    o.rotary = true;
    o.rotary_width = size;
    o.table_type = type;
  }
  if (feature == "group") o.heads = 14;
  if (feature == "norm") o.norm = true;
  if (feature == "ragged") o.totals = {101, 40};
  if (feature == "bidirectional") o.causal = false;
  if (feature == "log-sum-exp") o.log_sum_exp = true;
  return o;
}

// A fast engine for a step, an element type and a SIMD level.
class GqaAcceptance : public testing::TestWithParam<std::tuple<const char*, Type, std::string>> {};

TEST_P(GqaAcceptance, TakesTheListAndIsRight) {
  const auto& [engine, type, level] = GetParam();
  const bool decode = std::string(engine) == "simd-decode";
  test::ContextOptions options;
  options.threads = 2;
  options.level = level;
  Device device = make_device(options);
  for (int64_t size : {64, 80, 96, 128, 192, 256}) {
    for (const char* feature : kFeatures) {
      Random random(static_cast<uint64_t>(size));
      GqaCase c = build_case(outline(type, size, decode, feature), random, false);
      c.wide_range = false;
      const RunResult result = run_case(c, device, engine);
      if (lacks_amx(engine, result)) GTEST_SKIP() << result.text;
      EXPECT_EQ(result.verdict, Verdict::kPassed)
          << engine << " at " << level << ", " << feature << ", D " << size << ":\n"
          << result.text;
    }
  }
}

std::vector<std::string> fast_levels() {
  std::vector<std::string> levels = test::simd_levels();
  std::erase(levels, "generic");
  return levels;
}

INSTANTIATE_TEST_SUITE_P(Engines, GqaAcceptance,
                         testing::Combine(testing::Values("simd-prefill", "simd-decode",
                                                          "amx-prefill", "amx-prefill-emulated"),
                                          testing::Values(Type::kFloat32, Type::kFloat16,
                                                          Type::kBfloat16),
                                          testing::ValuesIn(fast_levels())),
                         [](const auto& tested) {
                           std::string name = std::string(std::get<0>(tested.param)) + "_" +
                                              test::name_of(std::get<1>(tested.param)) + "_" +
                                              std::get<2>(tested.param);
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

// A prompt without any cache is the plainest use of all.
TEST(GqaAcceptancePrompt, NoCacheAtAll) {
  Device device = make_device({});
  for (Type type : {Type::kFloat32, Type::kFloat16, Type::kBfloat16}) {
    for (int64_t size : {64, 128, 256}) {
      GqaOutline o = outline(type, size, false, "causal");
      o.step = Step::kPrompt;
      o.past = false;
      o.key = o.value = {};
      o.totals = {37, 20};
      o.bound = 37;
      Random random(3);
      GqaCase c = build_case(o, random, false);
      c.wide_range = false;
      const RunResult result = run_case(c, device, "simd-prefill");
      EXPECT_EQ(result.verdict, Verdict::kPassed) << result.text;
    }
  }
}

}  // namespace
}  // namespace attn::matrix
