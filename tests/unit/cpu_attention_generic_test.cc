// The generic engine against a float64 statement of softmax attention, over everything that a
// problem can be.
#include "cpu/attention_generic.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "cpu/executor.h"
#include "cpu/row_transform.h"
#include "support/random.h"

namespace attn::cpu {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
using Bytes = std::vector<unsigned char>;

struct Block {
  Bytes memory;
  View4 view;
  DType type{};

  // Heads may lie inside or outside of rows; channels side by side or two apart; rows reversed.
  void draw(test::Random& random, DType element, int64_t batch, int64_t heads, int64_t rows,
            int64_t channels, bool unit_channel, bool output) {
    type = element;
    view.rows = rows;
    view.channel = unit_channel ? 1 : 2;
    const bool heads_inside = random.chance(0.5);
    const int64_t inner = channels * view.channel + random.pick<int64_t>({0, 0, 3});
    view.row = heads_inside ? heads * inner : inner;
    view.head = heads_inside ? inner : std::max<int64_t>(rows, 1) * inner;
    view.batch = heads * std::max<int64_t>(rows, 1) * inner;
    const int64_t elements = batch * view.batch + 1;
    memory.resize(static_cast<size_t>(elements * size_of(type)), 0xcd);
    for (int64_t i = 0; i < elements && !output; ++i) set(i, random.normal());
    view.data = memory.data();
    if (random.chance(0.2) && rows > 1) {
      view.data = memory.data() + (rows - 1) * view.row * size_of(type);
      view.row = -view.row;
    }
  }
  void set(int64_t index, double value) {
    if (type == kFloat64) {
      std::memcpy(memory.data() + index * 8, &value, 8);
    } else {
      store_float(memory.data(), index, type, static_cast<float>(value));
    }
  }
  int64_t index(int64_t b, int64_t h, int64_t row, int64_t c) const {
    return b * view.batch + h * view.head + row * view.row + c * view.channel;
  }
  double at(int64_t b, int64_t h, int64_t row, int64_t c) const {
    return load_double(view.data, index(b, h, row, c), type);
  }
  void put(int64_t b, int64_t h, int64_t row, int64_t c, double value) {
    const int64_t first = static_cast<unsigned char*>(view.data) - memory.data();
    set(first / size_of(type) + index(b, h, row, c), value);
  }
};

struct Row {  // what one query row must give
  std::vector<double> output, scores;
  double log_sum_exp = -kInfinity;
  double score_error = 1;  // how much larger than 1 the scores' rounding may be
};

struct Problem {
  AttentionProblem p;
  std::vector<RowLengths> rows;
  Block query, key, value, key_fresh, value_fresh, output, scores, log_sum_exp;
  Bytes mask, sink, weight, tables;
  std::vector<double> mask_values;

  // kNone, or a mask over (batch, heads, queries, columns) that broadcasts where a stride is 0.
  void draw_mask(test::Random& random) {
    p.spec.mask = random.pick({MaskKind::kNone, MaskKind::kAdditive, MaskKind::kBoolean});
    if (p.spec.mask == MaskKind::kNone) return;
    p.spec.mask_type = kBool;
    if (p.spec.mask == MaskKind::kAdditive) {
      p.spec.mask_type = p.spec.type == kFloat64 ? random.pick({kFloat64, kFloat32})
                                                 : random.pick({kFloat32, kFloat16, kBfloat16});
    }
    p.mask_columns =
        random.chance(0.7) ? p.max_total + random.between(0, 3) : random.between(0, p.max_total);
    p.mask_column = random.pick<int64_t>({1, 2});
    const int64_t row = p.mask_columns * p.mask_column;
    p.mask_row = random.chance(0.3) ? 0 : row;
    p.mask_head = random.chance(0.4) ? 0 : row * p.query_rows;
    p.mask_batch = random.chance(0.4) ? 0 : row * p.query_rows * p.spec.q_heads;
    const int64_t cells = row * p.query_rows * p.spec.q_heads * p.batch;
    mask.resize(static_cast<size_t>(cells * size_of(p.spec.mask_type)) + 8);
    const double hidden = random.pick({0.0, 0.2, 0.9});
    for (int64_t i = 0; i < cells; ++i) {
      const bool hide = random.chance(hidden);
      if (p.spec.mask == MaskKind::kBoolean) {
        mask[static_cast<size_t>(i)] = hide ? 0 : 1;
      } else if (p.spec.mask_type == kFloat64) {
        const double cell = hide ? -kInfinity : random.normal();
        std::memcpy(mask.data() + i * 8, &cell, 8);
      } else {
        store_float(mask.data(), i, p.spec.mask_type,
                    static_cast<float>(hide ? -kInfinity : random.normal()));
      }
    }
    p.mask = mask.data();
  }

  void draw_lengths(test::Random& random) {
    p.max_total = random.between(1, 90);
    for (int64_t b = 0; b < p.batch; ++b) {
      RowLengths row;
      row.live = random.chance(0.9);
      if (row.live) {
        row.total = random.between(0, p.max_total);
        row.past = random.between(0, row.total);
        row.appended = row.total - row.past;
        row.query_start = random.chance(0.7) ? row.total - p.query_rows : random.between(0, 5);
      }
      rows.push_back(row);
    }
  }

  void draw_transforms(test::Random& random) {
    if (p.spec.type == kFloat64) return;
    tables.resize(512 * 32 * 4);
    for (int64_t i = 0; i < 512 * 32; ++i) {
      store_float(tables.data(), i, kFloat32, static_cast<float>(random.normal()));
    }
    weight.resize(static_cast<size_t>(p.spec.head_size * 4));
    for (int32_t i = 0; i < p.spec.head_size; ++i) store_float(weight.data(), i, p.spec.type, 1);
    for (const bool q : {true, false}) {
      RowTransformSpec& s = q ? p.spec.query_transform : p.spec.key_transform;
      RowTransform& t = q ? p.query_transform : p.key_transform;
      s.norm = random.chance(0.3);
      s.rotary = p.spec.head_size >= 2 && random.chance(0.4);
      s.table = kFloat32;
      s.width = 2;
      s.epsilon = 1e-6f;
      t.weight = weight.data();
      t.cos = tables.data();
      t.sin = tables.data() + 1024;
      t.cos_row = t.sin_row = 1;
      t.table_rows = 200;
    }
  }

  void draw(test::Random& random) {
    AttentionSpec& s = p.spec;
    s.type = random.pick({kFloat32, kFloat16, kBfloat16, kFloat64});
    s.kv_heads = static_cast<int32_t>(random.between(1, 3));
    s.q_heads = s.kv_heads * static_cast<int32_t>(random.between(1, 3));
    s.head_size = static_cast<int32_t>(random.between(1, 70));
    s.v_head_size = static_cast<int32_t>(random.between(1, 70));
    s.scale = random.pick({1.0, -1.0, 0.0}) / std::sqrt(s.head_size);
    s.softcap = random.pick({0.0, 0.0, 2.5});
    s.causal = random.chance(0.5);
    s.left_window = random.pick<int64_t>({-1, -1, 0, 3, std::numeric_limits<int64_t>::max()});
    s.right_window = random.pick<int64_t>({-1, -1, 0, 2, std::numeric_limits<int64_t>::max()});
    s.sink = random.pick({Sink::kNone, Sink::kZero, Sink::kPerHead});
    s.scores = random.pick({ScoreStage::kNone, ScoreStage::kRaw, ScoreStage::kCapped,
                            ScoreStage::kBiased, ScoreStage::kProbabilities});
    s.hidden_score = random.pick({0.0f, -std::numeric_limits<float>::infinity()});
    s.log_sum_exp = random.chance(0.5);
    s.unit_channel = random.chance(0.6);
    s.key_fresh = random.chance(0.4);
    s.value_fresh = random.chance(0.4);
    p.batch = random.between(1, 3);
    p.query_rows = random.between(1, 24);
    draw_lengths(random);
    draw_mask(random);
    draw_transforms(random);
    const auto block = [&](Block& b, int64_t heads, int64_t count, int64_t channels, bool out) {
      b.draw(random, s.type, p.batch, heads, count, channels, s.unit_channel, out);
      return b.view;
    };
    p.query = block(query, s.q_heads, p.query_rows, s.head_size, false);
    p.key = block(key, s.kv_heads, p.max_total, s.head_size, false);
    p.value = block(value, s.kv_heads, p.max_total, s.v_head_size, false);
    p.key_fresh = block(key_fresh, s.kv_heads, p.max_total, s.head_size, false);
    p.value_fresh = block(value_fresh, s.kv_heads, p.max_total, s.v_head_size, false);
    p.output = block(output, s.q_heads, p.query_rows, s.v_head_size, true);
    p.score_columns = p.max_total + random.between(0, 3);
    p.scores = block(scores, s.q_heads, p.query_rows, p.score_columns, true);
    log_sum_exp.draw(random, kFloat32, p.batch, s.q_heads, p.query_rows, 1, true, true);
    p.log_sum_exp = log_sum_exp.view;
    sink.resize(static_cast<size_t>(s.q_heads) * 8);
    for (int32_t h = 0; h < s.q_heads; ++h) store_float(sink.data(), h, s.type, 0.5f * h - 1);
    p.sink = sink.data();
    poison(random);
  }

  // What lies beyond a length holds NaN.
  void poison(test::Random& random) {
    if (random.chance(0.5)) return;
    for (int64_t b = 0; b < p.batch; ++b) {
      const RowLengths& l = rows[static_cast<size_t>(b)];
      for (int64_t h = 0; h < p.spec.kv_heads; ++h) {
        for (int64_t j = 0; j < p.max_total; ++j) {
          if (j >= (p.spec.key_fresh ? l.past : l.total)) key.put(b, h, j, 0, kNan);
          if (j >= (p.spec.value_fresh ? l.past : l.total)) value.put(b, h, j, 0, kNan);
          if (j >= l.appended) key_fresh.put(b, h, j, 0, kNan);
          if (j >= l.appended) value_fresh.put(b, h, j, 0, kNan);
        }
      }
    }
  }

  std::vector<double> loaded(const Block& block, int64_t b, int64_t h, int64_t row,
                             const RowTransformSpec& s, const RowTransform& t,
                             int64_t position) const {
    std::vector<double> out(static_cast<size_t>(p.spec.head_size));
    for (int32_t c = 0; c < p.spec.head_size; ++c) {
      out[static_cast<size_t>(c)] = block.at(b, h, row, c);
    }
    if (!s.any()) return out;
    std::vector<float> narrow(out.begin(), out.end());
    std::vector<float> done(out.size());
    Bytes typed(out.size() * 4);
    for (size_t c = 0; c < out.size(); ++c) {
      store_float(typed.data(), static_cast<int64_t>(c), p.spec.type, narrow[c]);
    }
    transform_row(nullptr, s, t, p.spec.type, typed.data(), 1, p.spec.head_size, b, row, position,
                  done.data());
    return {done.begin(), done.end()};
  }

  bool visible(const RowLengths& l, int64_t i, int64_t j) const {
    const AttentionSpec& s = p.spec;
    const int64_t position = l.query_start + i;
    return l.live && j < l.total && (!s.causal || j <= position) &&
           (s.left_window < 0 || position - j <= s.left_window) &&
           (s.right_window < 0 || j - position <= s.right_window);
  }

  // The mask's value of a cell: -infinity hides.
  double mask_at(int64_t b, int64_t h, int64_t i, int64_t j) const {
    if (p.spec.mask == MaskKind::kNone) return 0;
    if (j >= p.mask_columns) return -kInfinity;
    const int64_t cell = b * p.mask_batch + h * p.mask_head + i * p.mask_row + j * p.mask_column;
    if (p.spec.mask == MaskKind::kBoolean) {
      return mask[static_cast<size_t>(cell)] != 0 ? 0 : -kInfinity;
    }
    return load_double(mask.data(), cell, p.spec.mask_type);
  }

  using Matrix = std::vector<std::vector<double>>;

  // Key rows as attention sees them; rows beyond the length stay empty.
  Matrix keys_of(int64_t b, int64_t kv) const {
    const RowLengths& l = rows[static_cast<size_t>(b)];
    Matrix keys;
    for (int64_t j = 0; l.live && j < l.total; ++j) {
      const bool fresh = p.spec.key_fresh && j >= l.past;
      keys.push_back(
          fresh ? loaded(key_fresh, b, kv, j - l.past, p.spec.key_transform, p.key_transform, j)
                : loaded(key, b, kv, j, {}, {}, j));
    }
    return keys;
  }

  Row reference(int64_t b, int64_t h, int64_t i, const Matrix& key_rows) const {
    const AttentionSpec& s = p.spec;
    const RowLengths& l = rows[static_cast<size_t>(b)];
    const int64_t kv = h / (s.q_heads / s.kv_heads);
    Row result;
    result.output.assign(static_cast<size_t>(s.v_head_size), 0);
    result.scores.assign(static_cast<size_t>(p.score_columns), s.hidden_score);
    std::vector<int64_t> keys;
    std::vector<double> x;
    double maximum = -kInfinity;
    std::vector<double> q;
    if (l.live) {
      q = loaded(query, b, h, i, s.query_transform, p.query_transform, l.query_start + i);
    }
    for (int64_t j = 0; j < p.score_columns; ++j) {
      // The first two stages come before masking: they have a value for every key.
      const bool seen = visible(l, i, j);
      const bool unmasked = s.scores == ScoreStage::kRaw || s.scores == ScoreStage::kCapped;
      if (!seen && !(unmasked && l.live && j < l.total)) continue;
      const std::vector<double>& k = key_rows[static_cast<size_t>(j)];
      double raw = 0;
      double size = 0;
      for (size_t c = 0; c < k.size(); ++c) raw += q[c] * k[c], size += std::abs(q[c] * k[c]);
      raw *= s.scale;
      result.score_error = std::max(result.score_error, size * std::abs(s.scale));
      const double capped = s.softcap == 0 ? raw : s.softcap * std::tanh(raw / s.softcap);
      const double bias = mask_at(b, h, i, j);
      const double biased = bias == -kInfinity ? bias : capped + bias;
      double& cell = result.scores[static_cast<size_t>(j)];
      cell = s.scores == ScoreStage::kRaw ? raw : s.scores == ScoreStage::kCapped ? capped : biased;
      if (s.scores == ScoreStage::kProbabilities) cell = 0;
      if (!seen || bias == -kInfinity) continue;
      keys.push_back(j);
      x.push_back(biased);
      maximum = std::max(maximum, biased);
    }
    if (keys.empty()) return result;
    double sum = 0;
    for (const double score : x) sum += std::exp(score - maximum);
    result.log_sum_exp = maximum + std::log(sum);
    double denominator = sum;
    if (s.sink == Sink::kZero) denominator += std::exp(-maximum);
    if (s.sink == Sink::kPerHead) {
      denominator += std::exp(load_double(sink.data(), h, s.type) - maximum);
    }
    for (size_t n = 0; n < keys.size(); ++n) {
      const double weight_n = std::exp(x[n] - maximum) / denominator;
      const bool fresh = s.value_fresh && keys[n] >= l.past;
      for (int32_t c = 0; c < s.v_head_size; ++c) {
        result.output[static_cast<size_t>(c)] +=
            weight_n *
            (fresh ? value_fresh.at(b, kv, keys[n] - l.past, c) : value.at(b, kv, keys[n], c));
      }
      if (s.scores == ScoreStage::kProbabilities) {
        result.scores[static_cast<size_t>(keys[n])] = weight_n;
      }
    }
    return result;
  }

  void run(Executor& executor) {
    const AttentionEngine& engine = generic_attention_engine();
    const ShapeRange range{p.batch, p.query_rows, p.max_total};
    const size_t need =
        engine.workspace_bytes(p.spec, range, executor.concurrency(), SimdLevel::kGeneric);
    Bytes scratch(need + 64, 0xff);  // NaN in every type
    const size_t skip = (64 - reinterpret_cast<uintptr_t>(scratch.data()) % 64) % 64;
    engine.run(p, rows, {reinterpret_cast<std::byte*>(scratch.data() + skip), need}, executor,
               SimdLevel::kGeneric);
  }
};

double bar_of(DType type) {
  if (type == kFloat64) return 1e-13;
  if (type == kFloat32) return 2e-6;
  return type == kFloat16 ? 1e-3 : 8e-3;
}

void expect_near(double got, double expected, double bar, const std::string& what) {
  if (std::isinf(expected) || std::isnan(expected)) {
    ASSERT_TRUE(got == expected || (std::isnan(got) && std::isnan(expected)))
        << what << ": " << got << ", not " << expected;
  } else {
    ASSERT_NEAR(got, expected, bar * (std::abs(expected) + 1)) << what;
  }
}

void check(const Problem& q) {
  const AttentionSpec& s = q.p.spec;
  const double bar = bar_of(s.type);
  for (int64_t b = 0; b < q.p.batch; ++b) {
    for (int64_t h = 0; h < s.q_heads; ++h) {
      const Problem::Matrix keys = q.keys_of(b, h / (s.q_heads / s.kv_heads));
      for (int64_t i = 0; i < q.p.query_rows; ++i) {
        const Row row = q.reference(b, h, i, keys);
        const std::string where =
            "b " + std::to_string(b) + " h " + std::to_string(h) + " i " + std::to_string(i) + " ";
        const double wide = bar * row.score_error;
        for (int32_t c = 0; c < s.v_head_size; ++c) {
          expect_near(q.output.at(b, h, i, c), row.output[static_cast<size_t>(c)], wide,
                      where + "c " + std::to_string(c));
          if (testing::Test::HasFatalFailure()) return;
        }
        for (int64_t j = 0; j < q.p.score_columns && s.scores != ScoreStage::kNone; ++j) {
          expect_near(q.scores.at(b, h, i, j), row.scores[static_cast<size_t>(j)], wide,
                      where + "score " + std::to_string(j));
          if (testing::Test::HasFatalFailure()) return;
        }
        if (!s.log_sum_exp) continue;
        expect_near(
            q.log_sum_exp.at(b, h, i, 0), row.log_sum_exp,
            std::max(2e-6, bar_of(s.type == kFloat64 ? kFloat32 : s.type) * 1e-2) * row.score_error,
            where + "log-sum-exp");
        if (testing::Test::HasFatalFailure()) return;
      }
    }
  }
}

TEST(CpuAttentionGeneric, AgreesWithFloat64) {
  SerialExecutor serial;
  for (uint64_t draw = 0; draw < 250; ++draw) {
    const uint64_t seed = test::derive_seed(51, draw);
    SCOPED_TRACE("seed " + std::to_string(seed));
    test::Random random(seed);
    Problem problem;
    problem.draw(random);
    std::string why_not;
    ASSERT_TRUE(generic_attention_engine().supports(problem.p.spec, SimdLevel::kGeneric, &why_not))
        << why_not;
    problem.run(serial);
    check(problem);
    if (HasFatalFailure()) return;
  }
}

TEST(CpuAttentionGeneric, ThreadsChangeNothing) {
  for (uint64_t draw = 0; draw < 16; ++draw) {
    const uint64_t seed = test::derive_seed(52, draw);
    SCOPED_TRACE("seed " + std::to_string(seed));
    Bytes first[3];
    for (const int threads : {1, 2, 5}) {
      test::Random random(seed);
      Problem problem;
      problem.draw(random);
      problem.run(*make_pool_executor(threads));
      const Bytes* results[3] = {&problem.output.memory, &problem.scores.memory,
                                 &problem.log_sum_exp.memory};
      for (int r = 0; r < 3; ++r) {
        if (threads == 1) first[r] = *results[r];
        ASSERT_EQ(*results[r], first[r]) << threads << " threads, result " << r;
      }
    }
  }
}

// One head, one query row at position `total - 1`, channels of 1: cases that are easy to state.
struct Tiny {
  Problem q;
  Tiny(std::vector<double> keys, std::vector<double> values, std::vector<double> mask_cells) {
    AttentionSpec& s = q.p.spec;
    const auto total = static_cast<int64_t>(keys.size());
    s.type = kFloat32;
    s.q_heads = s.kv_heads = s.head_size = s.v_head_size = 1;
    s.scale = 1;
    s.log_sum_exp = true;
    q.p.batch = q.p.query_rows = 1;
    q.p.max_total = total;
    q.rows = {{0, total, total, total - 1, true}};
    test::Random random(1);
    const auto block = [&](Block& b, const std::vector<double>& cells) {
      b.draw(random, kFloat32, 1, 1, static_cast<int64_t>(cells.size()), 1, true, true);
      for (size_t j = 0; j < cells.size(); ++j) {
        b.put(0, 0, static_cast<int64_t>(j), 0, cells[j]);
      }
      return b.view;
    };
    q.p.query = block(q.query, {1});
    q.p.key = block(q.key, keys);
    q.p.value = block(q.value, values);
    q.p.output = block(q.output, {-77});
    q.p.log_sum_exp = block(q.log_sum_exp, {-77});
    if (mask_cells.empty()) return;
    s.mask = MaskKind::kAdditive;
    s.mask_type = kFloat32;
    q.mask.resize(mask_cells.size() * 4);
    for (size_t j = 0; j < mask_cells.size(); ++j) {
      store_float(q.mask.data(), static_cast<int64_t>(j), kFloat32,
                  static_cast<float>(mask_cells[j]));
    }
    q.p.mask = q.mask.data();
    q.p.mask_columns = static_cast<int64_t>(mask_cells.size());
  }
  double output() {
    SerialExecutor serial;
    q.run(serial);
    return q.output.at(0, 0, 0, 0);
  }
  double log_sum_exp() const { return q.log_sum_exp.at(0, 0, 0, 0); }
};

TEST(CpuAttentionGeneric, NanIsFeltWhereItIsSeen) {
  EXPECT_TRUE(std::isnan(Tiny({1, kNan, 1}, {1, 2, 3}, {}).output()));
  EXPECT_TRUE(std::isnan(Tiny({1, 1, kNan}, {1, 2, 3}, {}).output()));
  EXPECT_TRUE(std::isnan(Tiny({kNan, 1, 1}, {1, 2, 3}, {}).output()));
  EXPECT_TRUE(std::isnan(Tiny({1, 1, 1}, {1, kNan, 3}, {}).output()));
  EXPECT_TRUE(std::isnan(Tiny({1, 1, 1}, {1, 2, 3}, {0, kNan, 0}).output()));
  EXPECT_TRUE(std::isnan(Tiny({1, 1, 1}, {1, 2, 3}, {0, kInfinity, 0}).output()));
  EXPECT_TRUE(std::isnan(Tiny({1, 1, 1}, {1, 2, 3}, {kInfinity, kInfinity, kInfinity}).output()));
}

TEST(CpuAttentionGeneric, WhatIsHiddenIsNotFelt) {
  EXPECT_FLOAT_EQ(static_cast<float>(Tiny({0, kNan, 0}, {1, kNan, 3}, {0, -kInfinity, 0}).output()),
                  2);
  Tiny window({kNan, 0, 0}, {kNan, 1, 3}, {kNan, 0, 0});
  window.q.p.spec.left_window = 1;
  EXPECT_FLOAT_EQ(static_cast<float>(window.output()), 2);
  Tiny shorter({0, 0, kNan}, {1, 3, kNan}, {0, 0, kNan});
  shorter.q.rows[0].total = 2;
  EXPECT_FLOAT_EQ(static_cast<float>(shorter.output()), 2);
  Tiny causal({0, 0, kNan}, {1, 3, kNan}, {0, 0, kNan});
  causal.q.p.spec.causal = true;
  causal.q.rows[0].query_start = 1;
  EXPECT_FLOAT_EQ(static_cast<float>(causal.output()), 2);
}

TEST(CpuAttentionGeneric, NothingVisibleIsZeroEvenWithASink) {
  Tiny hidden({kNan, 1}, {kNan, kNan}, {-kInfinity, -kInfinity});
  hidden.q.p.spec.sink = Sink::kZero;
  EXPECT_EQ(hidden.output(), 0);
  EXPECT_EQ(hidden.log_sum_exp(), -kInfinity);
  Tiny empty({kNan, 1}, {kNan, kNan}, {});
  empty.q.rows[0] = RowLengths{};
  EXPECT_EQ(empty.output(), 0);
  EXPECT_EQ(empty.log_sum_exp(), -kInfinity);
}

TEST(CpuAttentionGeneric, FiniteMasksAreAddedAsTheyAre) {
  EXPECT_FLOAT_EQ(static_cast<float>(Tiny({0, 0, 0}, {1, 2, 6}, {-1e9, -1e9, -1e9}).output()), 3);
  EXPECT_FLOAT_EQ(static_cast<float>(Tiny({0, 0, 0}, {1, 2, 6}, {-3.4e38, -3.4e38, 0}).output()),
                  6);
  // A mask that is too short hides the rest.
  EXPECT_FLOAT_EQ(static_cast<float>(Tiny({0, 0, 0}, {1, 2, 6}, {0, 0}).output()), 1.5);
}

TEST(CpuAttentionGeneric, SinkAboveEveryScore) {
  Tiny t({0, 0}, {4, 4}, {});
  t.q.p.spec.sink = Sink::kPerHead;
  t.q.sink.resize(4);
  store_float(t.q.sink.data(), 0, kFloat32, 200);  // exp(200) is no float
  t.q.p.sink = t.q.sink.data();
  EXPECT_EQ(t.output(), 0);
  EXPECT_FLOAT_EQ(static_cast<float>(t.log_sum_exp()), std::log(2.0f));
}

TEST(CpuAttentionGeneric, RefusalsSayWhy) {
  AttentionSpec spec;
  spec.type = kInt32;
  std::string why_not;
  const AttentionEngine& engine = generic_attention_engine();
  EXPECT_FALSE(engine.supports(spec, SimdLevel::kGeneric, &why_not));
  EXPECT_EQ(why_not, "no attention of type int32");
  spec.type = kFloat32;
  spec.mask = MaskKind::kAdditive;
  spec.mask_type = kFloat64;
  EXPECT_FALSE(engine.supports(spec, SimdLevel::kGeneric, &why_not));
  EXPECT_EQ(why_not, "no mask of type float64 with float32");
  spec.type = kFloat64;
  EXPECT_TRUE(engine.supports(spec, SimdLevel::kGeneric, nullptr));
  spec.query_transform.rotary = true;
  EXPECT_FALSE(engine.supports(spec, SimdLevel::kGeneric, &why_not));
}

}  // namespace
}  // namespace attn::cpu
