// Decode: few query rows, the keys of each split over blocks.
#include <algorithm>

#include "core/bounded_product.h"
#include "core/error.h"
#include "cuda/attention_engine_parts.h"

namespace attn::cuda {
namespace {

// Weights of the merge must fit the shared memory of the smallest variant: 16 rows x 4 bytes each.
constexpr int64_t kMaxSplits = 256;
constexpr int kDecodeRows = 16, kDecodeKeys = 16;
// Tops and sums of the warps' rows, and who came last.
constexpr int kDecodeStaticBytes = 1024;

// The warps of a block and the buffers of 16 keys that each of them has.
struct Ring {
  int warps, stages;
};

// Rows of a tile: the float32 kernel has few where a group's heads are few.
int decode_rows(const AttentionSpec& spec) {
  return is_16_bit(spec.type) || group_of(spec) > 4 ? kDecodeRows : 4;
}

int decode_shared_bytes(const AttentionSpec& spec, const Ring& r) {
  if (spec.type == kFloat32) {
    const int rows = decode_rows(spec), dk = (spec.head_size + 31) / 32 * 32 + 4;
    const int queries = rows * spec.head_size + r.warps * kDecodeKeys * rows;
    const int ring = r.warps * r.stages * kDecodeKeys * (dk + spec.v_head_size);
    return 4 * std::max(queries + ring, r.warps * rows * spec.v_head_size);
  }
  const int dk = padded(spec.head_size) + 8, dv = padded(spec.v_head_size) + 8;
  const int ring = r.warps * r.stages * kDecodeKeys * (dk + dv) * 2;
  const int merge = r.warps * kDecodeRows * spec.v_head_size * 4;
  return std::max(kDecodeRows * dk * 2 + ring, merge);
}

// The first ring that fits the device, else the last.
Ring decode_ring(const AttentionSpec& spec, const DeviceTraits& device) {
  const int d = std::max(spec.head_size, spec.v_head_size);
  const int deepest = d <= 64 ? 4 : d <= 192 || spec.type == kFloat32 ? 3 : 2;  // more spill
  constexpr Ring kRings[] = {{4, 4}, {4, 3}, {4, 2}, {2, 3}, {2, 2}, {1, 2}};
  for (const Ring& ring : kRings) {
    const int bytes = decode_shared_bytes(spec, ring) + kDecodeStaticBytes;
    if (ring.stages <= deepest && bytes <= device.shared_bytes_per_block) return ring;
  }
  return kRings[5];
}

class SplitDecode final : public AttentionEngine {
 public:
  const char* name() const override { return "split-decode"; }
  bool supports(const AttentionSpec& spec, const DeviceTraits& device,
                std::string* why_not) const override {
    return fits_tiles(spec, is_16_bit(spec.type) ? 8 : 4, why_not) &&
           fits_shared_memory(variant(spec, device), kDecodeStaticBytes, device, why_not);
  }
  bool takes_rows(const AttentionSpec& spec, int64_t rows) const override {
    return are_few_rows(spec, rows);
  }
  bool accepts(const AttentionProblem& problem) const override {
    return takes_rows(problem.spec, problem.query_rows) && all_aligned(problem);
  }
  KernelVariant variant(const AttentionSpec& spec, const DeviceTraits& device) const override {
    const bool wide = spec.type == kFloat32;
    KernelVariant out{wide ? "softmax/attention_decode_float32.cu" : "softmax/attention_decode.cu",
                      wide ? "attn_attention_decode_float32" : "attn_attention_decode",
                      softmax_definitions(spec)};
    if (wide) define(out, "ROWS", decode_rows(spec));
    const Ring ring = decode_ring(spec, device);
    define(out, "WARPS", ring.warps);
    define(out, "STAGES", ring.stages);
    out.threads = 32 * ring.warps;
    out.shared_bytes = decode_shared_bytes(spec, ring);
    return out;
  }
  size_t partial_bytes(const AttentionSpec& spec, const ShapeRange& range,
                       const DeviceTraits& device, bool batch_invariant) const override {
    int64_t blocks = kWaves * device.multiprocessors;
    if (batch_invariant) {
      const int64_t rows = std::min<int64_t>(range.query_rows, kDecodeQueries) * group_of(spec);
      const int64_t splits =
          std::max(kFewParts, device.multiprocessors / std::max<int64_t>(spec.kv_heads, 1));
      blocks = static_cast<int64_t>(bounded_product(
          {range.batch, spec.kv_heads, divide_up(rows, decode_rows(spec)), splits}));
    }
    return bounded_product({blocks, partial_floats(spec), 4});
  }
  LaunchShape shape(const AttentionProblem& problem, const DeviceTraits& device,
                    bool batch_invariant) const override {
    const int64_t row_tiles =
        divide_up(problem.query_rows * group_of(problem.spec), decode_rows(problem.spec));
    const int64_t of_sequence = problem.spec.kv_heads * row_tiles;
    const int64_t units = problem.batch * of_sequence;
    int64_t splits = splits_of(batch_invariant ? of_sequence : units, problem.max_total, device);
    return {units * splits, splits};
  }
  std::string summary(const AttentionSpec& spec, const DeviceTraits& device) const override {
    const Ring ring = decode_ring(spec, device);
    return cat("keys split over blocks of ", ring.warps, " warps with ", ring.stages,
               " stages, merged by the last block");
  }

 private:
  // Parts of the keys of each of `units` (sequence, key head, row tile).
  static int64_t splits_of(int64_t units, int64_t keys, const DeviceTraits& device) {
    int64_t splits = 1;
    for (int64_t waves = kWaves; waves >= 1; waves /= 2) {
      splits = std::max<int64_t>(1, waves * device.multiprocessors / std::max<int64_t>(units, 1));
      if (splits <= kFewParts && keys / splits >= kLongPart) break;
    }
    splits = std::min(splits, std::max<int64_t>(1, divide_up(keys, 64)));
    return std::min(splits, kMaxSplits);
  }
  static int64_t partial_floats(const AttentionSpec& spec) {
    return kDecodeRows * 2 + kDecodeRows * static_cast<int64_t>(spec.v_head_size);
  }
  // Blocks are equal, multiprocessors are not, and some hold two blocks: where parts stay long and
  // few enough to pay for the merge, each gets several turns (docs/measurements/cuda-h200-gqa.md).
  static constexpr int64_t kWaves = 4, kLongPart = 256, kFewParts = 16;
};

}  // namespace

const AttentionEngine& split_decode_engine() {
  static const SplitDecode engine;
  return engine;
}

}  // namespace attn::cuda
