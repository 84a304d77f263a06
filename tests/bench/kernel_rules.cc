// Checks what NaN, infinity and hidden keys do to the SIMD attention engines, rule by rule.
//
//   kernel_rules
//
// Prints every rule that is broken with the engine, level, type and number of query rows.
#include <cmath>
#include <cstdio>
#include <functional>
#include <string>

#include "cpu/engine.h"
#include "kernel_case.h"

namespace attn::bench {
namespace {

constexpr int64_t kKeys = 150;  // more than one block
constexpr int kSize = 64;

struct Setting {
  const cpu::AttentionEngine* engine;
  cpu::SimdLevel level;
  DType type;
  int64_t query_rows;
};

int failed = 0;

void expect(bool good, const Setting& s, const char* rule) {
  if (good) return;
  ++failed;
  std::printf("BROKEN %s (%s, %s, %s, %lld query rows)\n", rule, s.engine->name(), name_of(s.level),
              attn::name_of(s.type), static_cast<long long>(s.query_rows));
}

// Two heads on one key head, keys [0, kKeys), query rows at the end; `change` sets the spec.
Case make_case(const Setting& s, const std::function<void(CaseShape&)>& change) {
  Case c;
  AttentionSpec& spec = c.shape.spec;
  spec.type = s.type;
  spec.q_heads = 2;
  spec.kv_heads = 1;
  spec.head_size = spec.v_head_size = kSize;
  spec.scale = 0.125;
  spec.log_sum_exp = true;
  spec.mask_type = kFloat32;
  c.shape.query_rows = s.query_rows;
  c.shape.capacity = kKeys + 10;
  c.shape.mask_rows = s.query_rows;
  c.shape.mask_columns = kKeys;
  c.shape.rows = {{kKeys - s.query_rows, s.query_rows, kKeys, kKeys - s.query_rows, true}};
  change(c.shape);
  std::mt19937 rng(7);
  make(c, rng, 1);
  return c;
}

void run(const Setting& s, Case& c) {
  cpu::SerialExecutor executor;
  const ShapeRange range{1, s.query_rows, kKeys};
  const size_t bytes = s.engine->workspace_bytes(c.problem.spec, range, 1, s.level);
  std::vector<std::byte> memory(bytes + 64, std::byte{0xff});
  const size_t shift = (64 - reinterpret_cast<uintptr_t>(memory.data()) % 64) % 64;
  s.engine->run(c.problem, c.shape.rows, {memory.data() + shift, bytes}, executor, s.level);
}

int64_t row_at(const Case& c, int64_t head, int64_t i) {
  return head * c.problem.output.head + i * c.problem.output.row;
}

bool row_is(const Case& c, int64_t head, int64_t i, const std::function<bool(double)>& test) {
  for (int d = 0; d < kSize; ++d) {
    if (!test(c.out.at(row_at(c, head, i) + d))) return false;
  }
  return true;
}

bool all_rows(const Case& c, const std::function<bool(double)>& test) {
  for (int64_t i = 0; i < c.problem.query_rows; ++i) {
    if (!row_is(c, 0, i, test) || !row_is(c, 1, i, test)) return false;
  }
  return true;
}

bool is_nan(double x) { return std::isnan(x); }
bool is_zero(double x) { return x == 0; }

void fill_mask(Case& c, float value) {
  for (int64_t i = 0; i < c.mask.count; ++i) c.mask.set(i, value);
}

void set_key(Buffer& rows, int64_t key, float value) {
  for (int d = 0; d < kSize; ++d) rows.set(key * kSize + d, value);
}

// Equal bits with and without `spoil`, which must not be felt.
void unfelt(const Setting& s, const char* rule, const std::function<void(CaseShape&)>& change,
            const std::function<void(Case&)>& both, const std::function<void(Case&)>& spoil) {
  Case clean = make_case(s, change);
  both(clean);
  run(s, clean);
  Case spoilt = make_case(s, change);
  both(spoilt);
  spoil(spoilt);
  run(s, spoilt);
  expect(clean.out.storage == spoilt.out.storage && clean.lse.storage == spoilt.lse.storage, s,
         rule);
}

void check(const Setting& s) {
  const float nan = NAN, inf = INFINITY;
  const int64_t last = s.query_rows - 1;
  const auto nothing = [](auto&) {};
  const auto masked = [](CaseShape& shape) { shape.spec.mask = MaskKind::kAdditive; };
  unfelt(
      s, "NaN in a key that a mask of -infinity hides", masked,
      [&](Case& c) {
        fill_mask(c, 0.5f);
        for (int64_t i = 0; i < s.query_rows; ++i) c.mask.set(i * kKeys + 70, -inf);
      },
      [&](Case& c) { set_key(c.k, 70, nan); });
  unfelt(
      s, "NaN in a key that a boolean mask hides",
      [](CaseShape& shape) { shape.spec.mask = MaskKind::kBoolean; },
      [&](Case& c) {
        for (int64_t i = 0; i < c.mask.count; ++i) {
          static_cast<uint8_t*>(c.mask.data())[i] = i % kKeys != 3;
        }
      },
      [&](Case& c) { set_key(c.k, 3, nan); });
  unfelt(
      s, "NaN in keys and mask cells behind a window",
      [&](CaseShape& shape) {
        masked(shape);
        shape.spec.causal = true;
        shape.spec.left_window = 20;
      },
      [&](Case& c) { fill_mask(c, 0.25f); },
      [&](Case& c) {
        for (int64_t j = 0; j < kKeys - s.query_rows - 20; ++j) {
          set_key(c.k, j, nan);
          for (int64_t i = 0; i < s.query_rows; ++i) c.mask.set(i * kKeys + j, nan);
        }
      });
  unfelt(
      s, "NaN beyond a mask's width",
      [&](CaseShape& shape) {
        masked(shape);
        shape.mask_columns = 100;
      },
      [&](Case& c) { fill_mask(c, 0.25f); }, [&](Case& c) { set_key(c.k, 100, nan); });

  Case c = make_case(s, nothing);
  set_key(c.k, 70, nan);
  run(s, c);
  expect(all_rows(c, is_nan), s, "NaN in a visible key gives NaN");

  c = make_case(s, masked);
  fill_mask(c, 0);
  c.mask.set(last * kKeys + 140, inf);
  run(s, c);
  expect(row_is(c, 0, last, is_nan) && row_is(c, 1, last, is_nan), s,
         "+infinity in the mask gives NaN");
  if (last > 0) {
    expect(row_is(c, 0, 0, [](double x) { return std::isfinite(x); }), s,
           "NaN of one row stays out of the others");
  }

  c = make_case(s, nothing);
  c.v.set(70 * kSize + 5, nan);
  run(s, c);
  expect(is_nan(c.out.at(row_at(c, 0, 0) + 5)), s, "NaN in a visible value reaches its channel");

  for (const Sink sink : {Sink::kNone, Sink::kZero, Sink::kPerHead}) {
    c = make_case(s, [&](CaseShape& shape) {
      masked(shape);
      shape.spec.sink = sink;
    });
    fill_mask(c, -inf);
    for (int64_t j = 0; j < kKeys; ++j) set_key(c.v, j, nan);
    run(s, c);
    expect(all_rows(c, is_zero) && c.lse.at(0) == -inf, s, "nothing visible gives zeros");
  }
  c = make_case(s, [](CaseShape& shape) {
    shape.spec.causal = true;
    shape.rows[0].query_start = -2;
  });
  run(s, c);
  expect(row_is(c, 0, 0, is_zero), s, "a query before the first key gives zeros");
  c = make_case(s, [](CaseShape& shape) { shape.rows[0] = {}; });
  run(s, c);
  expect(all_rows(c, is_zero) && c.lse.at(0) == -inf, s, "an empty slot gives zeros");

  for (const float level : {-1e9f, -3e38f}) {
    c = make_case(s, masked);
    for (int64_t i = 0; i < c.q.count; ++i) c.q.set(i, 0);
    fill_mask(c, level);
    run(s, c);
    double mean = 0;
    for (int64_t j = 0; j < kKeys; ++j) mean += c.v.at(j * kSize + 9) / kKeys;
    expect(std::abs(c.out.at(row_at(c, 1, last) + 9) - mean) < 2e-3, s,
           "a row of equal finite masks is uniform");
  }
}

}  // namespace
}  // namespace attn::bench

int main() {
  using namespace attn;
  int settings = 0;
  for (const auto* engine : {&cpu::simd_decode_engine(), &cpu::simd_prefill_engine()}) {
    for (const cpu::SimdLevel level : cpu::available_simd_levels()) {
      for (const DType type : {kFloat32, kFloat16, kBfloat16}) {
        for (const int64_t rows : {1, 3}) {
          AttentionSpec spec;
          spec.type = type;
          spec.q_heads = spec.kv_heads = 1;
          spec.head_size = spec.v_head_size = 64;
          if (!engine->supports(spec, level, nullptr)) continue;
          bench::check({engine, level, type, rows});
          ++settings;
        }
      }
    }
  }
  std::printf("%d settings, %d rules broken\n", settings, bench::failed);
  return bench::failed == 0 && settings > 0 ? 0 : 1;
}
