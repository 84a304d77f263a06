// Attention of few query rows ("simd-decode"): how a problem is cut, and the kernels of one level.
//
// An item is (batch row, kv head) with the query rows of all heads of its group. Its keys are cut
// into spans: each is an online softmax of its own, over blocks of at most kDecodeBlock keys, and
// the spans' results are merged from left to right. Where there are fewer items than threads want,
// the spans of an item run on several threads and are kept until the last one is done.
//
// Cuts depend on the keys that the item's rows can see, on nothing else. Whoever computes a span,
// in whatever order, the merge is the same, so that no bit depends on threads or on the batch.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "core/problem.h"
#include "cpu/engine.h"
#include "cpu/row_transform_simd.h"
#include "cpu/simd_rows.h"

namespace attn::cpu {

inline constexpr int kMaxDecodeRows = 16;  // query positions times heads of a group
inline constexpr int kDecodeBlock = 64;    // most keys of a softmax step
inline constexpr int64_t kSpanKeys = 256;  // keys of a span, or a multiple
inline constexpr int64_t kMaxSpans = 64;   // of an item

// How the keys that an item sees are cut.
struct SpanCut {
  int64_t begin = 0;  // a multiple of kDecodeBlock
  int64_t end = 0;
  int64_t span = kSpanKeys;  // keys a span
  int64_t count() const { return ceil_div(end - begin, span); }
};

inline SpanCut cut_spans(const KeyRange& seen) {
  SpanCut cut;
  if (seen.empty()) return cut;
  cut.begin = seen.begin / kDecodeBlock * kDecodeBlock;
  cut.end = seen.end;
  cut.span = kSpanKeys * std::max<int64_t>(1, ceil_div(cut.end - cut.begin, kSpanKeys * kMaxSpans));
  return cut;
}

// Sizes of one run, or bounds of them.
struct DecodeGeometry {
  int rows = 0;        // query rows of an item
  int depth = 0;       // head_size, padded
  int v_channels = 0;  // v_head_size, padded
};

// Keys of a softmax step of an item with so many rows: a divisor of kDecodeBlock.
int decode_block(const AttentionSpec& spec, int rows);

// Softmax sums of an item's rows over some keys.
struct DecodeSums {
  float* max;     // (rows)
  float* sum;     // (rows)
  float* output;  // (rows, v_channels)
};

// Scratch of one worker.
struct DecodeScratch {
  float* query;      // (rows, depth), scaled
  float* scores;     // (rows, kDecodeBlock) and room for an overrun
  float* factors;    // (rows)
  KeyRange* ranges;  // (rows) what each row may see
  DecodeSums span, total;
};

// Lays scratch out from `base`; with a null base only the size is right. Returns the bytes.
size_t lay_out(const DecodeGeometry& geometry, std::byte* base, DecodeScratch* scratch);
size_t lay_out(const DecodeGeometry& geometry, std::byte* base, DecodeSums* sums);

// One run, shared by its workers.
struct DecodeJob {
  const AttentionProblem* problem;
  std::span<const RowLengths> rows;
  const RowKernels* row_kernels;  // of the level
  DecodeGeometry geometry;
  int64_t items;
  int64_t units;      // items, or items times max_spans when they are split
  int64_t max_spans;  // 0: an item is one unit
  std::atomic<int64_t> next{0};
  std::byte* scratch;  // of slot 0
  size_t scratch_stride;
  std::byte* kept;  // sums of span s of item i at (i * max_spans + s) * kept_stride
  size_t kept_stride;
  std::atomic<int32_t>* open_spans;  // (items) not done yet, when split
};

// Works on units until none is left; `slot` picks the scratch.
using DecodeWorker = void (*)(DecodeJob& job, int slot);

struct DecodeKernels {
  DecodeWorker float32, float16, bfloat16;
};

// Null for a level without SIMD or that is not of this architecture.
const DecodeKernels* decode_kernels(SimdLevel level);

}  // namespace attn::cpu
