// A small attention problem on the CPU back end, without an operator in front.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/problem.h"
#include "cpu/cpu_backend.h"
#include "cpu/row_transform.h"
#include "support/random.h"

namespace attn::cpu {

// Bidirectional attention of one batch row, (rows, heads, size) row-major, keys in one buffer.
struct AttentionCall {
  static constexpr int32_t kHeads = 4, kSize = 48;
  int64_t rows, keys;
  DType type;
  std::vector<unsigned char> query, key, value, output;
  Lowering lowering;

  AttentionCall(const AttentionCall&) = delete;  // the problem points into the vectors
  AttentionCall& operator=(const AttentionCall&) = delete;

  // Queries and keys are N(0, 1), values N(0, value_size).
  AttentionCall(DType element, int64_t query_rows, int64_t key_rows, double value_size)
      : rows(query_rows), keys(key_rows), type(element) {
    test::Random random(5);
    const auto fill = [&](std::vector<unsigned char>& memory, int64_t count, double size) {
      memory.resize(static_cast<size_t>(count * size_of(type)));
      for (int64_t i = 0; i < count; ++i) put(memory, i, size * random.normal());
    };
    fill(query, rows * kHeads * kSize, 1);
    fill(key, keys * kHeads * kSize, 1);
    fill(value, keys * kHeads * kSize, value_size);
    output.assign(static_cast<size_t>(rows * kHeads * kSize * size_of(type)), 0xcd);
    lowering.batch = 1;
    lowering.lengths.batch = 1;
    lowering.lengths.query_rows = rows;
    lowering.lengths.new_rows = keys;
    lowering.lengths.past_capacity = lowering.lengths.present_capacity = keys;
    AttentionProblem& a = lowering.attention.emplace();
    a.spec.type = type;
    a.spec.q_heads = a.spec.kv_heads = kHeads;
    a.spec.head_size = a.spec.v_head_size = kSize;
    a.spec.scale = 0.1443;
    a.batch = 1;
    a.query_rows = rows;
    a.max_total = keys;
    const auto view = [](std::vector<unsigned char>& memory, int64_t count) {
      return View4{memory.data(), count * kHeads * kSize, kSize, kHeads * kSize, 1, count};
    };
    a.query = view(query, rows);
    a.key = view(key, keys);
    a.value = view(value, keys);
    a.output = view(output, rows);
  }

  void put(std::vector<unsigned char>& memory, int64_t index, double number) const {
    if (type == kFloat64) {
      reinterpret_cast<double*>(memory.data())[index] = number;
    } else {
      store_float(memory.data(), index, type, static_cast<float>(number));
    }
  }

  double get(const std::vector<unsigned char>& memory, int64_t index) const {
    return load_double(memory.data(), index, type);
  }

  // By this engine; empty: the back end chooses.
  void run(CpuBackend& backend, const std::string& engine) {
    PlanRequest request;
    request.engine = engine;
    const auto session = backend.create_session();
    const auto plan = backend.plan(lowering, {1, rows, keys}, request);
    backend.execute(*plan, lowering, *session, {});
  }
};

}  // namespace attn::cpu
