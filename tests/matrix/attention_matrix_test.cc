// The matrix of Attention as a test: fixed seeds, and seeds that change with the day.
#include <gtest/gtest.h>

#include <algorithm>

#include "matrix/attention_case.h"
#include "matrix/matrix_seeds.h"
#include "matrix/run.h"

namespace attn::matrix {
namespace {

constexpr int kBlocks = 12;  // tests, so that shards share the work
constexpr MatrixSize kSize = {.fixed_seeds = 48 / ATTN_MATRIX_DIVISOR,
                              .rotating_seeds = 96 / ATTN_MATRIX_DIVISOR,
                              .least_problems = 500 / ATTN_MATRIX_DIVISOR};

MatrixSeeds& seeds() {
  static MatrixSeeds instance(attention_matrix_options(), kSize);
  return instance;
}
const testing::Environment* const kTotals = add_totals(seeds);

class AttentionMatrix : public testing::TestWithParam<int> {};

TEST_P(AttentionMatrix, FixedSeeds) { seeds().run_fixed(GetParam()); }
TEST_P(AttentionMatrix, RotatingSeeds) { seeds().run_rotating(GetParam()); }

INSTANTIATE_TEST_SUITE_P(Blocks, AttentionMatrix, testing::Range(0, kBlocks));

// ---- what the fast engines must take ------------------------------------------------------------

const char* const kFeatures[] = {
    "plain", "causal", "bool mask", "additive mask", "one row",  "short",  "window", "softcap",
    "Dv",    "group",  "nonpad",    "past",          "capacity", "frozen", "3-D",    "log-sum-exp"};

AttentionOutline accepted_outline(Type type, int64_t size, bool decode,
                                  const std::string& feature) {
  AttentionOutline o;
  o.seed = 1;
  o.type = type;
  o.size = o.v_size = size;
  o.heads = o.kv_heads = 4;
  o.batch = 2;
  o.version = 25;
  o.rows = decode ? 1 : 37;
  o.new_rows = 101;
  const auto mask = [&](Type mask_type, std::vector<int64_t> shape) {
    o.mask = true;
    o.mask_type = mask_type;
    o.mask_shape = std::move(shape);
  };
  const auto cache = [&](KeyForm form, int64_t past, int64_t capacity) {
    o.form = form;
    o.new_rows = o.rows;
    o.past_rows = past;
    o.present_key = o.present_value = o.aliased_key = o.aliased_value = true;
    o.key_capacity = o.value_capacity = capacity;
  };
  if (feature == "causal") o.causal = true;
  if (feature == "bool mask") mask(Type::kBool, {2, 4, o.rows, 101});
  if (feature == "additive mask") mask(type, {2, 1, o.rows, 101});
  if (feature == "one row") mask(Type::kFloat32, {101});
  if (feature == "short") mask(Type::kBool, {o.rows, 77});
  if (feature == "window") o.left_window = o.right_window = 20;
  if (feature == "softcap") o.softcap = 20;
  if (feature == "Dv") o.v_size = 48;
  if (feature == "group") o.kv_heads = 2;
  if (feature == "nonpad") {
    o.form = KeyForm::kNonpad;
    o.lengths = {101, 40};
  }
  if (feature == "past") {
    cache(KeyForm::kDense, 64, 64 + o.rows);
    o.aliased_key = o.aliased_value = false;
  }
  if (feature == "capacity") cache(KeyForm::kCapacity, 64, 140);
  if (feature == "frozen") {
    cache(KeyForm::kFrozen, 120, 120);
    mask(Type::kBool, {2, 1, 1, 120});
    o.lengths = {101, 60};
  }
  if (feature == "3-D") o.query_rank = o.key_rank = o.value_rank = 3;
  if (feature == "log-sum-exp") o.log_sum_exp = true;
  return o;
}

class AttentionAcceptance
    : public testing::TestWithParam<std::tuple<const char*, Type, std::string>> {};

TEST_P(AttentionAcceptance, TakesTheListAndIsRight) {
  const auto& [engine, type, level] = GetParam();
  const bool decode = std::string(engine) == "simd-decode";
  test::ContextOptions options;
  options.threads = 2;
  options.level = level;
  Device device = make_device(options);
  for (int64_t size : {64, 80, 96, 128, 192, 256}) {
    for (const char* feature : kFeatures) {
      Random random(static_cast<uint64_t>(size));
      AttentionCase c =
          build_attention_case(accepted_outline(type, size, decode, feature), random, false);
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

INSTANTIATE_TEST_SUITE_P(Engines, AttentionAcceptance,
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

}  // namespace
}  // namespace attn::matrix
