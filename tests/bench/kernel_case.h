// Attention problems with data of their own, for the checks and benchmarks of single engines.
#pragma once

#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "core/dtype.h"
#include "core/problem.h"

namespace attn::bench {

// A buffer of one element type that can be filled from floats; guard elements hold a pattern.
struct Buffer {
  DType type;
  std::vector<uint64_t> storage;
  int64_t count = 0;

  Buffer() = default;
  Buffer(DType t, int64_t n) : type(t), storage(static_cast<size_t>(n * size_of(t) + 64) / 8 + 1) {
    count = n;
    std::memset(storage.data(), 0xff, storage.size() * 8);  // NaN in every floating type
  }
  void* data() { return storage.data(); }
  double at(int64_t i) const { return load_double(storage.data(), i, type); }
  void set(int64_t i, float v) { store_float(storage.data(), i, type, v); }
};

// Shapes and options of one case; `make` gives it buffers.
struct CaseShape {
  AttentionSpec spec;
  int64_t batch = 1, query_rows = 1, capacity = 1;
  std::vector<RowLengths> rows;
  bool bshd = false;  // heads inside rows, instead of rows inside heads
  int64_t mask_batch = 1, mask_heads = 1, mask_rows = 1, mask_columns = 0;
};

struct Case {
  CaseShape shape;
  AttentionProblem problem;
  Buffer q, k, v, fresh_k, fresh_v, out, mask, sink, lse;
};

inline View4 view_of(Buffer& buffer, int64_t heads, int64_t rows, int64_t channels, bool bshd) {
  View4 view;
  view.data = buffer.data();
  view.batch = heads * rows * channels;
  view.head = bshd ? channels : rows * channels;
  view.row = bshd ? heads * channels : channels;
  view.rows = rows;
  return view;
}

// Fills all rows with scale * N(0, 1).
inline void fill(Buffer& buffer, std::mt19937& rng, float scale) {
  std::normal_distribution<float> normal(0, scale);
  for (int64_t i = 0; i < buffer.count; ++i) buffer.set(i, normal(rng));
}

// Allocates and fills everything. Key rows beyond each total are left as NaN.
inline void make(Case& c, std::mt19937& rng, float query_scale) {
  const AttentionSpec& s = c.shape.spec;
  const int64_t b = c.shape.batch, n = c.shape.query_rows, cap = c.shape.capacity;
  AttentionProblem& p = c.problem;
  p = {};
  p.spec = s;
  p.batch = b;
  p.query_rows = n;
  c.q = Buffer(s.type, b * s.q_heads * n * s.head_size);
  c.k = Buffer(s.type, b * s.kv_heads * cap * s.head_size);
  c.v = Buffer(s.type, b * s.kv_heads * cap * s.v_head_size);
  c.fresh_k = Buffer(s.type, b * s.kv_heads * cap * s.head_size);
  c.fresh_v = Buffer(s.type, b * s.kv_heads * cap * s.v_head_size);
  c.out = Buffer(s.type, b * s.q_heads * n * s.v_head_size);
  c.lse = Buffer(kFloat32, b * s.q_heads * n);
  p.query = view_of(c.q, s.q_heads, n, s.head_size, c.shape.bshd);
  p.key = view_of(c.k, s.kv_heads, cap, s.head_size, c.shape.bshd);
  p.value = view_of(c.v, s.kv_heads, cap, s.v_head_size, c.shape.bshd);
  p.key_fresh = view_of(c.fresh_k, s.kv_heads, cap, s.head_size, true);
  p.value_fresh = view_of(c.fresh_v, s.kv_heads, cap, s.v_head_size, true);
  p.output = view_of(c.out, s.q_heads, n, s.v_head_size, c.shape.bshd);
  p.log_sum_exp = {c.lse.data(), s.q_heads * n, n, 1, 1, n};
  fill(c.q, rng, query_scale);
  std::normal_distribution<float> normal(0, 1);
  for (int64_t i = 0; i < b; ++i) {
    const RowLengths& rows = c.shape.rows[static_cast<size_t>(i)];
    p.max_total = std::max(p.max_total, rows.total);
    const auto fill_rows = [&](Buffer& old_rows, const View4& old_view, Buffer& new_rows,
                               const View4& new_view, bool fresh, int32_t channels) {
      for (int64_t h = 0; h < s.kv_heads; ++h) {
        for (int64_t j = 0; j < rows.total; ++j) {
          const bool is_new = fresh && j >= rows.past;
          Buffer& to = is_new ? new_rows : old_rows;
          const View4& at = is_new ? new_view : old_view;
          const int64_t row = is_new ? j - rows.past : j;
          for (int32_t d = 0; d < channels; ++d) {
            to.set(i * at.batch + h * at.head + row * at.row + d, normal(rng));
          }
        }
      }
    };
    fill_rows(c.k, p.key, c.fresh_k, p.key_fresh, s.key_fresh, s.head_size);
    fill_rows(c.v, p.value, c.fresh_v, p.value_fresh, s.value_fresh, s.v_head_size);
  }
  if (s.mask != MaskKind::kNone) {
    const int64_t mb = c.shape.mask_batch, mh = c.shape.mask_heads, mr = c.shape.mask_rows,
                  mc = c.shape.mask_columns;
    c.mask = Buffer(s.mask == MaskKind::kBoolean ? kBool : s.mask_type, mb * mh * mr * mc);
    for (int64_t i = 0; i < c.mask.count; ++i) {
      const bool hidden = rng() % 4 == 0;
      if (s.mask == MaskKind::kBoolean) {
        static_cast<uint8_t*>(c.mask.data())[i] = !hidden;
      } else {
        c.mask.set(i, hidden ? -INFINITY : normal(rng));
      }
    }
    p.mask = c.mask.data();
    p.mask_columns = mc;
    p.mask_row = mr > 1 ? mc : 0;
    p.mask_head = mh > 1 ? mr * mc : 0;
    p.mask_batch = mb > 1 ? mh * mr * mc : 0;
  }
  c.sink = Buffer(s.type, s.q_heads);
  fill(c.sink, rng, 2);
  p.sink = c.sink.data();
}

}  // namespace attn::bench
