// Prefill in 16 bits by wgmma: sm_90a.
#include <algorithm>
#include <cstdint>

#include "cuda/attention_prefill_engine.h"

namespace attn::cuda {
namespace {

// As in attention_mma.cu, which takes fewer rows with more products.
constexpr int64_t kAveragingRows = 32;

// Padded to whole rows of 128 bytes.
int swizzled_size(int size) { return (size + 63) / 64 * 64; }

// The barriers.
constexpr int kWgmmaStaticBytes = 1024;

struct WgmmaTile {
  int consumers, keys, producer_registers, consumer_registers;
};

WgmmaTile wgmma_tile(const AttentionSpec& spec) {
  const int d = std::max(swizzled_size(spec.head_size), swizzled_size(spec.v_head_size));
  const bool plain = spec.mask == MaskKind::kNone && spec.softcap == 0 && spec.scale > 0;
  if (d <= 64 && plain) return {3, 128, 32, 160};
  if (d <= 128) return {2, plain ? 128 : 64, 56, 224};
  return {2, 64, 56, 224};
}

// Buffers in shared memory: of query rows, and of keys and values each.
struct WgmmaBuffers {
  int queries = 1, stages = 2, bytes = 0;
};

// The next tile's query rows come ahead where they need no transform and there is room beside two
// stages; then as many stages as there is room for, up to four.
WgmmaBuffers wgmma_buffers(const AttentionSpec& spec, const DeviceTraits& device) {
  const WgmmaTile t = wgmma_tile(spec);
  const int dk = swizzled_size(spec.head_size), dv = swizzled_size(spec.v_head_size);
  const int query_bytes = 2 * 64 * t.consumers * dk, stage_bytes = 2 * t.keys * (dk + dv);
  // Tiles begin on 1024 bytes; a query transform needs a row of floats a consumer warp.
  int rest = 1024 + (spec.query_transform.any() ? 4 * t.consumers * dk * 4 : 0);
  if (spec.mask == MaskKind::kBoolean) rest += 5 * 64 * t.consumers * 8;  // its cells' bits
  const int room = device.shared_bytes_per_block - kWgmmaStaticBytes - rest;
  WgmmaBuffers out;
  if (!spec.query_transform.any() && 2 * query_bytes + 2 * stage_bytes <= room) out.queries = 2;
  while (out.stages < 4 && out.queries * query_bytes + (out.stages + 1) * stage_bytes <= room) {
    ++out.stages;
  }
  out.bytes = rest + out.queries * query_bytes + out.stages * stage_bytes;
  return out;
}

class WgmmaPrefill final : public PrefillEngine {
 public:
  const char* name() const override { return "wgmma-prefill"; }
  bool supports(const AttentionSpec& spec, const DeviceTraits& device,
                std::string* why_not) const override {
    if (device.target != "sm_90a") return refuse(why_not, cat("not on ", device.architecture));
    if (!is_16_bit(spec.type)) return refuse(why_not, "only float16 and bfloat16");
    return fits_tiles(spec, 8, why_not) &&
           fits_shared_memory(variant(spec, device), kWgmmaStaticBytes, device, why_not);
  }
  // Its weights are rounded to 16 bits, which few rows do not average out.
  bool takes_rows(const AttentionSpec&, int64_t rows) const override {
    return rows >= kAveragingRows;
  }
  bool accepts(const AttentionProblem& problem) const override {
    const int64_t tiles = divide_up(problem.query_rows, 64) * problem.batch * problem.spec.q_heads;
    return tiles <= INT32_MAX && PrefillEngine::accepts(problem);
  }
  Tile tile(const AttentionSpec& spec, const DeviceTraits&) const override {
    const WgmmaTile t = wgmma_tile(spec);
    return {64 * t.consumers, t.keys, 4 * (t.consumers + 1)};
  }
  // A block a multiprocessor, which takes tiles until there are no more.
  LaunchShape shape(const AttentionProblem& problem, const DeviceTraits& device,
                    bool batch_invariant) const override {
    const LaunchShape tiles = PrefillEngine::shape(problem, device, batch_invariant);
    return {std::min<int64_t>(tiles.blocks, device.multiprocessors), 1, tiles.tile_rows};
  }
  KernelVariant variant(const AttentionSpec& spec, const DeviceTraits& device) const override {
    const WgmmaTile t = wgmma_tile(spec);
    const WgmmaBuffers buffers = wgmma_buffers(spec, device);
    KernelVariant out{"softmax/attention_wgmma.cu", "attn_attention_wgmma",
                      softmax_definitions(spec)};
    define(out, "BLOCK_N", t.keys);
    define(out, "QUERIES", buffers.queries);
    define(out, "STAGES", buffers.stages);
    define(out, "CONSUMERS", t.consumers);
    define(out, "PRODUCER_REGISTERS", t.producer_registers);
    define(out, "CONSUMER_REGISTERS", t.consumer_registers);
    out.threads = 128 * (t.consumers + 1);
    out.shared_bytes = buffers.bytes;
    return out;
  }
};

}  // namespace

const AttentionEngine& wgmma_prefill_engine() {
  static const WgmmaPrefill engine;
  return engine;
}

}  // namespace attn::cuda
