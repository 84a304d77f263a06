// What must not change a bit: where caches lie, what unused memory holds, and whether a step is
// fused. Every form is also compared with the reference by run_case.
#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "matrix/gqa_case.h"
#include "matrix/run.h"

namespace attn::matrix {
namespace {

const char* const kAttentionEngines[] = {"", "simd-prefill", "simd-decode", "generic",
                                         "amx-prefill-emulated"};
constexpr Type kTypes[] = {Type::kFloat32, Type::kFloat16, Type::kBfloat16};

// A ragged step on caches of 90 rows, with everything that the steps below need.
GqaOutline step_outline(Type type, int64_t rows) {
  GqaOutline o;
  o.seed = 7;
  o.type = type;
  o.size = 64;
  o.heads = 6;
  o.kv_heads = 2;
  o.batch = 3;
  o.rows = o.new_rows = rows;
  o.step = rows == 1 ? Step::kDecode : Step::kChunk;
  o.past = true;
  o.totals = {70, 41, 23};
  o.bound = 70;
  for (CacheOutline* cache : {&o.key, &o.value}) {
    cache->present = {true, 90, true};
    cache->past_rows = 90;
  }
  o.rotary = true;
  o.rotary_width = 64;
  o.table_type = Type::kFloat32;
  return o;
}

GqaCase make(const GqaOutline& outline, uint64_t seed) {
  Random random(seed);
  GqaCase c = build_case(outline, random, false);
  c.wide_range = false;
  return c;
}

// Engines that take few query rows alone, or in bfloat16 many.
bool may_refuse(const std::string& engine, const GqaOutline& o) {
  if (engine == "simd-decode") return o.rows * o.heads / o.kv_heads > 16;
  return engine == "amx-prefill-emulated" && o.type == Type::kBfloat16 && o.rows < 32;
}

class GqaExact : public testing::Test {
 protected:
  // The engine's fixed bits; empty only where it does not take the query rows.
  std::vector<uint64_t> bits(GqaCase& c, const std::string& engine) {
    const RunResult result = run_case(c, device_, engine);
    const GqaOutline& o = c.outline;
    if (may_refuse(engine, o)) {
      EXPECT_NE(result.verdict, Verdict::kFailed) << result.text;
    } else {
      EXPECT_EQ(result.verdict, Verdict::kPassed) << engine << ": " << result.text;
    }
    return result.verdict == Verdict::kPassed ? c.fixed_bits() : std::vector<uint64_t>();
  }

  Device device_ = make_device({});
};

TEST_F(GqaExact, CachesInPlaceOrNotInAllFourCombinations) {
  for (Type type : kTypes) {
    for (int64_t rows : {1, 5}) {
      const GqaCase base = make(step_outline(type, rows), 11);
      for (const std::string engine : kAttentionEngines) {
        std::vector<uint64_t> first;
        for (int combination = 0; combination < 4; ++combination) {
          GqaOutline o = base.outline;
          o.key.present.in_place = combination & 1;
          o.value.present.in_place = combination & 2;
          GqaCase c = make(o, 12);
          transplant_inputs(base, c);
          c.renew();
          const std::vector<uint64_t> now = bits(c, engine);
          if (combination == 0) first = now;
          EXPECT_EQ(now, first) << test::name_of(type) << ", " << rows << " rows, engine " << engine
                                << ", combination " << combination;
        }
      }
    }
  }
}

// Rows [0, total) of K and V by head, and the rotated queries, as the library itself makes them:
// queries are sent through as keys of an attention with as many key heads.
void rotated_queries(const GqaCase& fused, Device& device, GqaCase& unfused) {
  GqaOutline o = fused.outline;
  o.kv_heads = o.heads;
  GqaCase c = make(o, 13);
  transplant_inputs(fused, c);
  const test::View& query = fused.in[kQuery].view();
  for (uint32_t slot : {kQuery, kKey, kValue}) {
    for (int64_t k = 0; k < query.elements(); ++k) {
      std::memcpy(c.in[slot].view().address_of(k), query.address_of(k),
                  static_cast<size_t>(test::size_of(o.type)));
    }
  }
  if (o.norm) {
    for (int64_t d = 0; d < o.size; ++d) {
      c.in[kKNormWeight].view().set({d}, fused.in[kQNormWeight].view().at({d}));
    }
  }
  c.renew();
  const RunResult result = run_case(c, device, "");
  ASSERT_EQ(result.verdict, Verdict::kPassed) << result.text;
  const test::View& keys = c.target(kPresentKey).view();
  const test::View& target = unfused.in[kQuery].view();
  for (int64_t b = 0; b < o.batch; ++b) {
    for (int64_t i = 0; i < o.rows; ++i) {
      for (int64_t head = 0; head < o.heads; ++head) {
        for (int64_t d = 0; d < o.size; ++d) {
          const int64_t row = o.past_of(b) + i;
          target.set({b, i, head * o.size + d}, keys.at({b, head, row, d}));
        }
      }
    }
  }
}

// Fused: norm, rotation and append inside the step. Unfused: a step without any of them, on queries
// that were transformed before and on caches that hold the new rows already.
TEST_F(GqaExact, FusedStepEqualsSeparateSteps) {
  for (Type type : kTypes) {
    for (int64_t rows : {1, 5}) {
      for (const bool norm : {false, true}) {
        for (const std::string engine : kAttentionEngines) {
          GqaOutline o = step_outline(type, rows);
          o.norm = norm;
          o.interleaved = norm;
          GqaCase fused = make(o, 14);
          const std::vector<uint64_t> want = bits(fused, engine);
          if (want.empty()) continue;

          GqaOutline plain = o;
          plain.rotary = plain.norm = false;
          plain.step = Step::kSharedCache;
          plain.new_rows = 0;
          GqaCase unfused = make(plain, 15);
          for (uint32_t slot : {kPresentKey, kPresentValue}) {
            const test::View& from = fused.target(slot).view();
            for (int64_t k = 0; k < from.elements(); ++k) {
              std::memcpy(unfused.target(slot).view().address_of(k), from.address_of(k),
                          static_cast<size_t>(test::size_of(type)));
            }
          }
          fused.restore();
          rotated_queries(fused, device_, unfused);
          unfused.renew();
          EXPECT_EQ(bits(unfused, engine), want) << test::name_of(type) << ", " << rows
                                                 << " rows, norm " << norm << ", engine " << engine;
        }
      }
    }
  }
}

TEST_F(GqaExact, PackedEqualsSeparateTensors) {
  for (Type type : kTypes) {
    for (int64_t rows : {1, 9}) {
      GqaOutline o = step_outline(type, rows);
      GqaCase plain = make(o, 16);
      o.packed = true;
      GqaCase packed = make(o, 17);
      transplant_inputs(plain, packed);
      const test::View& all = packed.in[kQuery].view();
      int64_t first = 0;
      for (uint32_t slot : {kQuery, kKey, kValue}) {
        const test::View& part = plain.in[slot].view();
        for (int64_t b = 0; b < o.batch; ++b) {
          for (int64_t i = 0; i < rows; ++i) {
            for (int64_t d = 0; d < part.dim(2); ++d) {
              all.set({b, i, first + d}, part.at({b, i, d}));
            }
          }
        }
        first += part.dim(2);
      }
      packed.renew();
      for (const std::string engine : kAttentionEngines) {
        EXPECT_EQ(bits(packed, engine), bits(plain, engine)) << engine;
      }
    }
  }
}

// Sets what lies beyond every length, and what outputs and scratch hold before the call.
void fill_unused(GqaCase& c, double value, int byte) {
  const GqaOutline& o = c.outline;
  for (int64_t b = 0; b < o.batch; ++b) {
    for (uint32_t slot : {kPastKey, kPastValue}) {
      const test::View& cache = c.in[slot].view();
      for (int64_t head = 0; cache.bound && head < o.kv_heads; ++head) {
        for (int64_t row = o.past_of(b); row < cache.dim(2); ++row) {
          for (int64_t d = 0; d < o.size; ++d) cache.set({b, head, row, d}, value);
        }
      }
    }
    for (uint32_t slot : {kQuery, kKey, kValue}) {
      const test::View& tokens = c.in[slot].view();
      for (int64_t i = o.totals[static_cast<size_t>(b)] - o.start_of(b); i < o.rows; ++i) {
        for (int64_t d = 0; d < tokens.dim(2); ++d) tokens.set({b, i, d}, value);
      }
    }
  }
  for (test::Tensor& tensor : c.out) tensor.buffer().fill(byte);
  c.own_workspace = byte == 0xFF;
  c.finite_padding = false;
  c.renew();
}

TEST_F(GqaExact, UnusedMemoryIsNeverFelt) {
  const struct {
    double value;
    int byte;
  } fillings[] = {{0, 0},
                  {std::numeric_limits<double>::quiet_NaN(), 0xFF},
                  {std::numeric_limits<double>::infinity(), 0xCD},
                  {-3e4, 0x7F}};
  for (Type type : kTypes) {
    for (int64_t rows : {1, 5, 70}) {
      GqaOutline o = step_outline(type, rows);
      if (rows == 70) o.step = Step::kPrompt;  // right-padded: the lengths are 70, 41 and 23
      o.log_sum_exp = true;
      for (const bool in_place : {false, true}) {
        o.key.present.in_place = o.value.present.in_place = in_place;
        GqaCase c = make(o, 18);
        for (const std::string engine : kAttentionEngines) {
          std::vector<uint64_t> first;
          for (const auto& filling : fillings) {
            c.restore();
            fill_unused(c, filling.value, filling.byte);
            const std::vector<uint64_t> now = bits(c, engine);
            if (first.empty()) first = now;
            EXPECT_EQ(now, first) << test::name_of(type) << ", " << rows << " rows, engine "
                                  << engine << ", filled with " << filling.value;
          }
        }
      }
    }
  }
}

// Finite masks are added as they are, however large: equal ones leave equal scores uniform.
TEST_F(GqaExact, ARowOfEqualFiniteMasksIsUniform) {
  for (Type type : kTypes) {
    for (int64_t rows : {1, 5}) {
      for (double mask : {-1e9, -10000.0, 30000.0}) {
        GqaOutline o = step_outline(type, rows);
        o.bias = o.bias_row = true;
        GqaCase c = make(o, 19);
        const test::View& bias = c.in[kAttentionBias].view();
        for (int64_t k = 0; k < bias.elements(); ++k) {
          bias.set_linear(k, type == Type::kFloat16 && mask == -1e9 ? -60000 : mask);
        }
        const test::View& query = c.in[kQuery].view();
        for (int64_t k = 0; k < query.elements(); ++k) query.set_linear(k, 0);
        c.renew();
        for (const std::string engine : kAttentionEngines) bits(c, engine);
      }
    }
  }
}

}  // namespace
}  // namespace attn::matrix
