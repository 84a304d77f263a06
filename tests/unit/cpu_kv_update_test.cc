// Cache updates against a cell-by-cell statement of the rules; whole buffers are compared, so that
// a write anywhere else shows.
#include "cpu/kv_update.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "cpu/executor.h"
#include "cpu/row_transform.h"
#include "support/random.h"

namespace attn::cpu {
namespace {

using Bytes = std::vector<unsigned char>;

// A (batch, head, row, channel) buffer with gaps, and the view of it.
struct Block {
  Bytes memory;
  View4 view;

  void draw(test::Random& random, DType type, int64_t batch, int64_t heads, int64_t rows,
            int64_t channels, bool unit_channel) {
    view.channel = unit_channel ? 1 : 2;
    view.row = channels * view.channel + random.pick<int64_t>({0, 0, 3});
    view.head = std::max<int64_t>(rows, 1) * view.row + random.pick<int64_t>({0, 5});
    view.batch = heads * view.head + random.pick<int64_t>({0, 7});
    if (random.chance(0.3)) {  // rows outside, heads inside
      view.head = channels * view.channel + random.pick<int64_t>({0, 2});
      view.row = heads * view.head;
      view.batch = std::max<int64_t>(rows, 1) * view.row;
    }
    view.rows = rows;
    const int64_t elements = batch * view.batch + 1;
    memory.resize(static_cast<size_t>(elements * size_of(type)));
    for (int64_t i = 0; i < elements; ++i) {
      store_float(memory.data(), i, type, static_cast<float>(random.normal()));
    }
    view.data = memory.data();
  }
};

struct Problem {
  KvUpdateProblem p;
  std::vector<RowLengths> rows;
  Block source[2], past[2], present[2];
  Bytes weight, cos, sin;
  std::vector<int64_t> positions;

  CacheUpdateSpec& spec(int which) { return which == 0 ? p.spec.key : p.spec.value; }
  CacheUpdate& update(int which) { return which == 0 ? p.key : p.value; }
  int32_t channels(int which) const { return which == 0 ? p.spec.head_size : p.spec.v_head_size; }

  void draw(test::Random& random, bool simd_only) {
    p.spec.type = random.pick({kFloat32, kFloat16, kBfloat16});
    if (!simd_only && random.chance(0.2)) p.spec.type = kFloat64;
    p.spec.kv_heads = static_cast<int32_t>(random.between(1, 3));
    p.spec.head_size = static_cast<int32_t>(random.between(2, 80));
    p.spec.v_head_size = static_cast<int32_t>(random.between(1, 80));
    p.batch = random.between(1, 3);
    p.new_rows = random.between(0, 6);
    draw_lengths(random);
    for (const int which : {0, 1}) draw_cache(random, which, simd_only);
    draw_transform(random, simd_only);
  }

  void draw_lengths(test::Random& random) {
    rows.resize(static_cast<size_t>(p.batch));
    for (RowLengths& row : rows) {
      row.live = random.chance(0.8);
      if (!row.live) continue;
      row.past = random.between(0, 9);
      row.appended = p.new_rows;
      row.total = row.past + row.appended;
    }
  }

  void draw_cache(test::Random& random, int which, bool simd_only) {
    CacheUpdateSpec& s = spec(which);
    s.active = random.chance(0.9);
    s.has_past = random.chance(0.7);
    s.in_place = s.has_past && random.chance(0.5);
    s.unit_channel = simd_only || random.chance(0.7);
    if (!s.has_past) {
      // Without a past buffer of its own this cache must not be asked for old rows.
      for (RowLengths& row : rows) row.total = row.appended, row.past = 0;
    }
    source[which].draw(random, p.spec.type, p.batch, p.spec.kv_heads, p.new_rows, channels(which),
                       s.unit_channel);
    // A capacity of less than past + appended happens for padded prompts: the rest is not written.
    past[which].draw(random, p.spec.type, p.batch, p.spec.kv_heads, random.between(9, 12),
                     channels(which), s.unit_channel);
    present[which].draw(random, p.spec.type, p.batch, p.spec.kv_heads, random.between(9, 20),
                        channels(which), s.unit_channel);
    update(which).source = source[which].view;
    update(which).present = present[which].view;
    update(which).past = s.in_place ? present[which].view : past[which].view;
  }

  void draw_transform(test::Random& random, bool simd_only) {
    if (p.spec.type == kFloat64) return;
    RowTransformSpec& s = p.spec.key.transform;
    RowTransform& t = p.key.transform;
    s.norm = random.chance(0.4);
    s.rotary = random.chance(0.6);
    s.interleaved = random.chance(0.5);
    s.explicit_positions = s.rotary && random.chance(0.5);
    s.unit_strides = simd_only || random.chance(0.5);
    s.table = random.chance(0.5) ? kFloat32 : p.spec.type;
    s.width = 2 * static_cast<int32_t>(random.between(1, p.spec.head_size / 2));
    s.epsilon = 1e-6f;
    const int64_t step = s.unit_strides ? 1 : 2;
    const auto fill = [&](Bytes& memory, DType type, int64_t count) {
      memory.resize(static_cast<size_t>(count * size_of(type)));
      for (int64_t i = 0; i < count; ++i) {
        store_float(memory.data(), i, type, static_cast<float>(random.normal()));
      }
      return memory.data();
    };
    t.table_rows = 16;
    t.weight = fill(weight, p.spec.type, p.spec.head_size * step);
    t.weight_stride = step;
    t.cos_row = t.sin_row = s.width / 2 * step;
    t.cos_col = t.sin_col = step;
    t.cos = fill(cos, s.table, t.table_rows * t.cos_row);
    t.sin = fill(sin, s.table, t.table_rows * t.sin_row);
    for (int64_t i = 0; i < p.batch * p.new_rows; ++i) positions.push_back(random.below(16));
    t.positions = positions.data();
    t.position_batch = p.new_rows;
  }

  // The present buffer of one cache as it must be afterwards.
  Bytes expected(int which) {
    Bytes memory = present[which].memory;
    if (!spec(which).active) return memory;
    const View4& to = present[which].view;
    for (int64_t b = 0; b < p.batch; ++b) {
      for (int64_t h = 0; h < p.spec.kv_heads; ++h) {
        for (int64_t row = 0; row < to.rows; ++row) {
          unsigned char* at =
              memory.data() + (b * to.batch + h * to.head + row * to.row) * size_of(p.spec.type);
          expected_row(which, b, h, row, at, to.channel);
        }
      }
    }
    return memory;
  }

  void expected_row(int which, int64_t b, int64_t h, int64_t row, unsigned char* at,
                    int64_t channel) {
    const RowLengths& lengths = rows[static_cast<size_t>(b)];
    const int64_t size = size_of(p.spec.type);
    const auto address = [&](const View4& view, int64_t r) {
      return static_cast<unsigned char*>(view.data) +
             (b * view.batch + h * view.head + r * view.row) * size;
    };
    const int64_t fresh = row - lengths.past;
    if (lengths.live && fresh >= 0 && fresh < lengths.appended) {
      const View4& from = update(which).source;
      const RowTransformSpec& s = spec(which).transform;
      if (!s.any()) {
        for (int32_t c = 0; c < channels(which); ++c) {
          std::memcpy(at + c * channel * size, address(from, fresh) + c * from.channel * size,
                      static_cast<size_t>(size));
        }
        return;
      }
      std::vector<float> values(static_cast<size_t>(channels(which)));
      transform_row(nullptr, s, update(which).transform, p.spec.type, address(from, fresh),
                    from.channel, channels(which), b, fresh, row, values.data());
      for (int32_t c = 0; c < channels(which); ++c) {
        store_float(at, c * channel, p.spec.type, values[static_cast<size_t>(c)]);
      }
      return;
    }
    if (spec(which).in_place) return;
    const bool copied = lengths.live && row < lengths.past && spec(which).has_past;
    for (int32_t c = 0; c < channels(which); ++c) {
      unsigned char* cell = at + c * channel * size;
      if (copied) {
        const View4& from = update(which).past;
        std::memcpy(cell, address(from, row) + c * from.channel * size, static_cast<size_t>(size));
      } else {
        std::memset(cell, 0, static_cast<size_t>(size));
      }
    }
  }

  void run(const KvUpdateEngine& engine, SimdLevel level, Executor& executor) {
    ShapeRange range{p.batch, p.new_rows, 32};
    // Scratch has arbitrary content.
    Bytes scratch(engine.workspace_bytes(p.spec, range, executor.concurrency(), level) + 64, 0xff);
    const size_t skip = (64 - reinterpret_cast<uintptr_t>(scratch.data()) % 64) % 64;
    engine.run(p, rows, {reinterpret_cast<std::byte*>(scratch.data() + skip), scratch.size() - 64},
               executor, level);
  }
};

void expect_update(uint64_t seed, const KvUpdateEngine& engine, SimdLevel level, bool simd_only,
                   Executor& executor) {
  SCOPED_TRACE("seed " + std::to_string(seed) + ", " + engine.name() + ", " + name_of(level));
  test::Random random(seed);
  Problem problem;
  problem.draw(random, simd_only);
  std::string why_not;
  ASSERT_TRUE(engine.supports(problem.p.spec, level, &why_not)) << why_not;
  const Bytes key = problem.expected(0);
  const Bytes value = problem.expected(1);
  problem.run(engine, level, executor);
  ASSERT_EQ(problem.present[0].memory, key);
  ASSERT_EQ(problem.present[1].memory, value);
}

TEST(CpuKvUpdate, GenericEngineFollowsTheRules) {
  SerialExecutor serial;
  for (uint64_t draw = 0; draw < 600; ++draw) {
    expect_update(test::derive_seed(31, draw), generic_kv_update_engine(), SimdLevel::kGeneric,
                  false, serial);
    if (HasFatalFailure()) return;
  }
}

TEST(CpuKvUpdate, SimdEngineGivesTheSameBitsAtEveryLevel) {
  SerialExecutor serial;
  for (const SimdLevel level : available_simd_levels()) {
    if (level == SimdLevel::kGeneric) continue;
    for (uint64_t draw = 0; draw < 400; ++draw) {
      expect_update(test::derive_seed(32, draw), simd_kv_update_engine(), level, true, serial);
      if (HasFatalFailure()) return;
    }
  }
}

// Big enough for several threads and for several work items a head.
TEST(CpuKvUpdate, ThreadsChangeNothing) {
  const int64_t kRows = 300, kHeads = 2, kBatch = 2;
  const int32_t kChannels = 64;
  for (const bool in_place : {false, true}) {
    Problem problem;
    test::Random random(33);
    problem.p.spec.type = kFloat32;
    problem.p.spec.kv_heads = kHeads;
    problem.p.spec.head_size = problem.p.spec.v_head_size = kChannels;
    problem.p.batch = kBatch;
    problem.p.new_rows = kRows;
    problem.rows = {{90, kRows, 90 + kRows, 90, true}, {3, kRows, 3 + kRows, 3, true}};
    for (const int which : {0, 1}) {
      problem.spec(which) = {true, true, in_place, false, true, {}};
      problem.source[which].draw(random, kFloat32, kBatch, kHeads, kRows, kChannels, true);
      problem.past[which].draw(random, kFloat32, kBatch, kHeads, 100, kChannels, true);
      problem.present[which].draw(random, kFloat32, kBatch, kHeads, 400, kChannels, true);
      problem.update(which).source = problem.source[which].view;
      problem.update(which).past = problem.past[which].view;
      problem.update(which).present = problem.present[which].view;
    }
    problem.draw_transform(random, true);
    const Bytes key = problem.expected(0);
    const Bytes value = problem.expected(1);
    for (const int threads : {1, 2, 5}) {
      problem.run(simd_kv_update_engine(), best_simd_level(), *make_pool_executor(threads));
      ASSERT_EQ(problem.present[0].memory, key) << threads;
      ASSERT_EQ(problem.present[1].memory, value) << threads;
    }
  }
}

TEST(CpuKvUpdate, RefusalsSayWhy) {
  KvUpdateSpec spec;
  spec.type = kFloat64;
  spec.kv_heads = 1;
  spec.head_size = spec.v_head_size = 8;
  spec.key.active = spec.value.active = true;
  const SimdLevel level = best_simd_level();
  std::string why_not;
  EXPECT_FALSE(simd_kv_update_engine().supports(spec, level, &why_not));
  EXPECT_EQ(why_not, "no cache of type float64");
  EXPECT_TRUE(generic_kv_update_engine().supports(spec, level, &why_not));
  spec.key.transform.rotary = true;
  EXPECT_FALSE(generic_kv_update_engine().supports(spec, level, &why_not));
  EXPECT_EQ(why_not, "no norm or rotary embedding of type float64");
  spec.type = kFloat32;
  EXPECT_FALSE(simd_kv_update_engine().supports(spec, SimdLevel::kGeneric, &why_not));
  EXPECT_EQ(why_not, "no SIMD code for the level generic");
  spec.key.transform.unit_strides = false;
  EXPECT_FALSE(simd_kv_update_engine().supports(spec, level, nullptr));
  spec.key.transform.unit_strides = true;
  spec.value.unit_channel = false;
  EXPECT_FALSE(simd_kv_update_engine().supports(spec, level, &why_not));
  EXPECT_EQ(why_not, "channels do not lie side by side");
  spec.value.active = false;  // what is not there cannot lie wrong
  EXPECT_TRUE(simd_kv_update_engine().supports(spec, level, nullptr));
  spec.type = kInt32;
  EXPECT_FALSE(generic_kv_update_engine().supports(spec, level, &why_not));
}

}  // namespace
}  // namespace attn::cpu
