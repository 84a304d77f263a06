// Everything that a problem can be, one block a query row: any strides, head sizes to 1024, masks,
// fresh rows with a transform, score outputs. Slow and plain.
//
// 128 threads. Per tile of 128 keys: a thread computes the score of one key, the block agrees on
// the running maximum, then each thread adds the tile to its own channels c, c + 128, ... of the
// output. Probabilities as an output take a second walk, once maximum and sum are known.
#include "common/device.h"
#include "common/faults.h"
#include "common/row_transform.h"
#include "common/visibility.h"

namespace attnk {

constexpr int kType = ATTN_TYPE;
constexpr int kThreads = 128, kWarps = 4, kMaxChannels = 1024;

struct Key {
  const void* base;  // the row, null: a fresh row that is transformed
  i64 channel;
};

ATTN_DEVICE i64 row_offset(const View& v, i64 b, i64 h, i64 row) {
  return b * v.batch + h * v.head + row * v.row;
}

// The sequence's first query and key row, which are not 0 where sequences are packed.
struct FirstRows {
  i64 query, key;
};

ATTN_DEVICE float block_reduce(float value, bool maximum, float* scratch) {
  value = maximum ? warp_max(value) : warp_sum(value);
  __syncthreads();
  if ((threadIdx.x & 31) == 0) scratch[threadIdx.x >> 5] = value;
  __syncthreads();
  float out = scratch[0];
  for (int w = 1; w < kWarps; w++) out = maximum ? fmaxf(out, scratch[w]) : out + scratch[w];
  return out;
}

// Not copied to every call: what takes the compiler longest is a kernel's size.
static __device__ __noinline__ void transform(const TransformParams& t, float* row, int channels,
                                              i64 b, i64 index, i64 implied_position) {
  transform_row<kType>(t, row, channels, b, index, implied_position);
}

extern "C" __global__ void __launch_bounds__(kThreads)
    attn_attention_generic(const __grid_constant__ AttentionParams p) {
  __shared__ float q[kMaxChannels], weights[kThreads], scratch[kWarps], rows[kWarps][kMaxChannels];
  const int tid = threadIdx.x, lane = tid & 31, warp = tid >> 5;
  const i64 i = blockIdx.x % p.query_rows, bh = blockIdx.x / p.query_rows;
  const i64 b = bh / p.q_heads, h = bh % p.q_heads, hk = h / (p.q_heads / p.kv_heads);
  wait_for_previous();
  const RowLengths lengths = p.rows[b];
  const bool live = lengths.live && !p.faults->call_poisoned;
  if (p.last && blockIdx.x == 0 && tid == 0) end_call(p.faults, p.record);
  if (p.packed && i >= lengths.query_rows) return;
  const FirstRows first = {p.packed ? lengths.query_offset : 0, p.packed ? lengths.key_offset : 0};
  const int total = live ? lengths.total : 0;
  const int d = (int)p.head_size, dv = (int)p.v_head_size;
  const Visibility view = visibility_of(p, total);
  const Interval seen = visible_keys(view, lengths.query_start + (int)i);
  const i64 mask_base = mask_row_offset(p, b, h, i);

  const i64 qo = row_offset(p.query, b, h, first.query + i);
  for (int c = tid; c < d; c += kThreads)
    q[c] = load_element<kType>(p.query.data, qo + c * p.query.channel);
  __syncthreads();
  if (p.has_query_transform && live) {
    if (warp == 0) transform(p.query_transform, q, d, b, i, lengths.query_start + i);
    __syncthreads();
  }

  // x: the score of key j before the mask; raw: before softcap.
  auto dot = [&](int j) {
    const bool fresh = p.key_is_fresh && j >= lengths.past;
    const View& v = fresh ? p.key_fresh : p.key;
    const i64 at = row_offset(v, b, hk, fresh ? j - lengths.past : first.key + j);
    // Eight sums, added in pairs: a long chain would lose digits of large scores.
    float x[8] = {};
    int c = 0;
    for (; c + 8 <= d; c += 8) {
#pragma unroll
      for (int e = 0; e < 8; e++) {
        x[e] = fmaf(q[c + e], load_element<kType>(v.data, at + (c + e) * v.channel), x[e]);
      }
    }
    for (; c < d; c++) x[0] = fmaf(q[c], load_element<kType>(v.data, at + c * v.channel), x[0]);
    return ((x[0] + x[1]) + (x[2] + x[3])) + ((x[4] + x[5]) + (x[6] + x[7]));
  };
  // Scores of a tile of 128 keys from j0, one a thread; keys outside [low, high) are not read.
  auto tile_scores = [&](int j0, int low, int high) {
    if (p.has_key_transform && p.key_is_fresh && j0 + kThreads > lengths.past) {
      __syncwarp();
      float mine = 0.f;
#pragma unroll 1
      for (int k = 0; k < 32; k++) {
        const int j = j0 + warp * 32 + k;
        if (j < low || j >= high) continue;
        const bool fresh = j >= lengths.past;
        const View& v = fresh ? p.key_fresh : p.key;
        const i64 row = fresh ? j - lengths.past : j, at = row_offset(v, b, hk, row);
        for (int c = lane; c < d; c += 32)
          rows[warp][c] = load_element<kType>(v.data, at + c * v.channel);
        __syncwarp();
        if (fresh) transform(p.key_transform, rows[warp], d, b, row, j);
        float x = 0.f;
        for (int c = lane; c < d; c += 32) x = fmaf(q[c], rows[warp][c], x);
        x = warp_sum(x);
        if (k == lane) mine = x;
        __syncwarp();
      }
      return mine;
    }
    const int j = j0 + tid;
    return j >= low && j < high ? dot(j) : 0.f;
  };
  auto cap = [&](float x) { return p.softcap != 0.f ? p.softcap * tanhf(x / p.softcap) : x; };
  // Whether the row sees key j, and what the mask adds to its score. Weights take the row's top
  // from that first: a large bias would cost the score its digits.
  auto masked = [&](int j, float& bias) {
    bias = 0.f;
    if (j < seen.low || j >= seen.high) return false;
    if (p.mask_kind == kMaskBoolean) return apply_mask<kMaskBoolean>(p, mask_base, j, bias);
    if (p.mask_kind == kMaskAdditive) return apply_mask<kMaskAdditive>(p, mask_base, j, bias);
    return true;
  };
  const bool raw_scores = p.score_stage == kScoresRaw || p.score_stage == kScoresCapped;
  const bool biased_scores = p.score_stage == kScoresBiased;
  const i64 score_base = row_offset(p.scores, b, h, i);
  if (p.score_stage != kScoresNone) {
    for (i64 j = tid; j < p.score_columns; j += kThreads) {
      store_element<kType>(p.scores.data, score_base + j * p.scores.channel, p.hidden_score);
    }
    __syncthreads();
  }

  float acc[kMaxChannels / kThreads] = {};
  float top = -infinity(), sum = 0.f;
  // Raw stages show hidden keys too, up to the length.
  const int low = raw_scores ? 0 : seen.low, high = raw_scores ? total : seen.high;
  for (int j0 = low / kThreads * kThreads; j0 < high; j0 += kThreads) {
    const int j = j0 + tid;
    const float raw = tile_scores(j0, low, high) * p.scale;
    float x = cap(raw);
    if (raw_scores && j < high && j < p.score_columns) {
      store_element<kType>(p.scores.data, score_base + j * p.scores.channel,
                           p.score_stage == kScoresRaw ? raw : x);
    }
    float bias;
    const bool visible = masked(j, bias);
    if (biased_scores && j >= seen.low && j < seen.high && j < p.score_columns) {
      store_element<kType>(p.scores.data, score_base + j * p.scores.channel,
                           visible ? x + bias : -infinity());
    }
    if (!visible) x = -infinity();
    const float next = fmaxf(top, block_reduce(x + bias, true, scratch));
    const float origin = next == -infinity() ? 0.f : next;
    const float rescale = expf(top - origin);
    const float weight = expf(x + (bias - origin));
    weights[tid] = visible ? weight : -1.f;  // -1: hidden; its V is not felt
    sum = sum * rescale + block_reduce(visible ? weight : 0.f, false, scratch);
    top = next;
    const int keys = min_of(kThreads, total - j0);
    for (int c = tid, n = 0; c < dv; c += kThreads, n++) {
      float sums = 0.f;  // of this tile alone, for the same reason
      for (int k = max_of(0, seen.low - j0); k < keys && j0 + k < seen.high; k++) {
        const bool fresh = p.value_is_fresh && j0 + k >= lengths.past;
        const View& v = fresh ? p.value_fresh : p.value;
        const i64 at = row_offset(v, b, hk, fresh ? j0 + k - lengths.past : first.key + j0 + k);
        const float w = weights[k];
        if (w != -1.f) sums = fmaf(w, load_element<kType>(v.data, at + c * v.channel), sums);
      }
      acc[n] = fmaf(acc[n], rescale, sums);
    }
    __syncthreads();
  }

  const bool empty = sum == 0.f;
  if (p.has_lse && tid == 0) {
    ((float*)p.lse.data)[row_offset(p.lse, b, h, first.query + i)] =
        empty ? -infinity() : top + logf(sum);
  }
  float factor = 1.f;
  if (p.sink_kind != kSinkNone && !empty) {
    const float sink =
        p.sink_kind == kSinkPerHead ? load_element<kType>(p.sink, h * p.sink_stride) : 0.f;
    const float joint = fmaxf(top, sink);
    factor = expf(top - joint);
    sum = sum * factor + expf(sink - joint);
  }
  const i64 oo = row_offset(p.output, b, h, first.query + i);
  for (int c = tid, n = 0; c < dv; c += kThreads, n++) {
    store_element<kType>(p.output.data, oo + c * p.output.channel,
                         empty ? 0.f : acc[n] * factor / sum);
  }
  if (p.score_stage == kScoresProbabilities && !empty) {
    for (int j0 = seen.low / kThreads * kThreads; j0 < seen.high; j0 += kThreads) {
      const int j = j0 + tid;
      const float x = cap(tile_scores(j0, seen.low, seen.high) * p.scale);
      float bias;
      const bool visible = masked(j, bias);
      if (j >= seen.low && j < seen.high && j < p.score_columns) {
        store_element<kType>(p.scores.data, score_base + j * p.scores.channel,
                             visible ? expf(x + (bias - top)) * factor / sum : 0.f);
      }
    }
  }
}

}  // namespace attnk
