// Every engine and form once, small: what compute-sanitizer can watch in minutes.
#include <gtest/gtest.h>

#include <string>

#include "gpu/run.h"
#include "gpu/specialisation.h"
#include "gpu/step.h"

namespace attn::gpu {
namespace {

using matrix::GqaCase;
using matrix::GqaOutline;
using test::Type;

// One step with its cache in place, or copied into another buffer, or without any.
enum class Cache : uint8_t { kInPlace, kSeparate, kNone };

struct Small {
  const char* name;
  Type type;
  int64_t size, rows;
  std::vector<int64_t> totals;
  Cache cache;
  int64_t window = -1;
  bool plain = true;  // no rotary embedding
};

void PrintTo(const Small& small, std::ostream* out) { *out << small.name; }

const Small kSmall[] = {
    {"DecodeBf16", Type::kBfloat16, 128, 1, {130, 17, 1}, Cache::kInPlace, -1, false},
    {"DecodeF16", Type::kFloat16, 64, 1, {65, 300, 64}, Cache::kInPlace},
    {"DecodeSeparate", Type::kBfloat16, 128, 1, {33, 70, 12}, Cache::kSeparate},
    {"DecodeFloat32", Type::kFloat32, 64, 1, {130, 17, 1}, Cache::kInPlace, -1, false},
    {"PromptBf16", Type::kBfloat16, 128, 150, {150, 20, 149}, Cache::kSeparate, -1, false},
    {"PromptF16NoCache", Type::kFloat16, 64, 131, {131, 131, 1}, Cache::kNone},
    {"PromptWindow", Type::kBfloat16, 128, 140, {140, 140, 7}, Cache::kSeparate, 33},
    {"PromptFloat32", Type::kFloat32, 64, 140, {140, 130, 7}, Cache::kSeparate, -1, false},
    {"ChunkF16", Type::kFloat16, 64, 37, {200, 37, 129}, Cache::kInPlace, -1, false},
    // More tiles than two turns of the multiprocessors take, whose queries the consumers load.
    {"TurnsBf16", Type::kBfloat16, 128, 70, std::vector<int64_t>(70, 70), Cache::kSeparate, -1,
     false},
    {"ChunkFloat32", Type::kFloat32, 64, 37, {200, 37, 129}, Cache::kInPlace},
};

GqaOutline outline(const Small& small) {
  GqaOutline o;
  o.seed = 4;
  o.type = small.type;
  o.size = small.size;
  o.heads = 4;
  o.kv_heads = 2;
  o.batch = static_cast<int64_t>(small.totals.size());
  o.rows = o.new_rows = small.rows;
  o.totals = small.totals;
  const bool prompt = small.totals[0] == small.rows;
  o.step = prompt            ? matrix::Step::kPrompt
           : small.rows == 1 ? matrix::Step::kDecode
                             : matrix::Step::kChunk;
  o.bound = prompt ? small.rows : o.longest() + 3;
  o.past = small.cache != Cache::kNone && !prompt;
  for (matrix::CacheOutline* cache : {&o.key, &o.value}) {
    if (small.cache == Cache::kNone) continue;
    cache->present = {true, o.longest() + 5, small.cache == Cache::kInPlace};
    if (o.past) cache->past_rows = cache->present.rows;
  }
  o.window = small.window;
  o.rotary = !small.plain;
  o.rotary_width = o.rotary ? small.size : 0;
  o.table_type = small.type;
  return o;
}

class GpuSmall : public GpuTest, public testing::WithParamInterface<Small> {};

TEST_P(GpuSmall, EveryEngine) {
  Lane lane(Gpu::first());
  test::Random random(5);
  GqaCase c = matrix::build_case(outline(GetParam()), random, false);
  int served = 0;
  for (const char* engine : kEngines) {
    for (bool own_workspace : {false, true}) {
      c.own_workspace = own_workspace;
      const RunResult result = run_case(lane, c, {own_workspace}, engine);
      EXPECT_NE(result.verdict, Verdict::kFailed) << engine << ":\n" << result.text;
      served += result.verdict == Verdict::kPassed;
    }
  }
  EXPECT_GE(served, 4) << "the generic engine and a faster one, twice";
}

INSTANTIATE_TEST_SUITE_P(Forms, GpuSmall, testing::ValuesIn(kSmall),
                         [](const auto& one) { return std::string(one.param.name); });

}  // namespace
}  // namespace attn::gpu
