// Prefill in float32, of products of cut numbers on tensor cores.
#include <algorithm>

#include "cuda/attention_prefill_engine.h"

namespace attn::cuda {
namespace {

int float32_shared_bytes(const AttentionSpec& spec, const Tile& t) {
  const int dk = padded(spec.head_size) + 4, dv = padded(spec.v_head_size) + 4;
  return 4 * (t.rows * dk + t.keys * (dk + dv));
}

Tile float32_tile(const AttentionSpec& spec, const DeviceTraits& device) {
  const int d = std::max(spec.head_size, spec.v_head_size);
  if (d <= 64) return {128, 64, 8};
  constexpr Tile kTiles[] = {{128, 32, 8}, {64, 32, 4}, {64, 16, 4}};
  constexpr Tile kWideTiles[] = {{128, 16, 8}, {64, 16, 4}};  // more keys spill
  return d <= 192 ? first_that_fits(kTiles, spec, device, float32_shared_bytes)
                  : first_that_fits(kWideTiles, spec, device, float32_shared_bytes);
}

// Blocks that a multiprocessor is to hold at once, for which the compiler then limits registers; 0
// leaves them to it. Two hide each other's waits, where that takes no spilled register.
int float32_blocks(const AttentionSpec& spec, const Tile& t, const DeviceTraits& device) {
  const int d = std::max(padded(spec.head_size), padded(spec.v_head_size));
  const bool fits = 2 * (float32_shared_bytes(spec, t) + 1024) <= device.shared_bytes_per_block;
  return d == 128 && fits ? 2 : 0;
}

class Float32Prefill final : public PrefillEngine {
 public:
  const char* name() const override { return "float32-prefill"; }
  bool supports(const AttentionSpec& spec, const DeviceTraits& device,
                std::string* why_not) const override {
    if (spec.type != kFloat32) return refuse(why_not, "only float32");
    return fits_tiles(spec, 4, why_not) &&
           fits_shared_memory(variant(spec, device), 0, device, why_not);
  }
  // Sums of cut products are as precise as the decode engine's only over many rows.
  bool takes_rows(const AttentionSpec& spec, int64_t rows) const override {
    return !are_few_rows(spec, rows);
  }
  Tile tile(const AttentionSpec& spec, const DeviceTraits& device) const override {
    return float32_tile(spec, device);
  }
  KernelVariant variant(const AttentionSpec& spec, const DeviceTraits& device) const override {
    const Tile t = float32_tile(spec, device);
    KernelVariant out{"softmax/attention_float32.cu", "attn_attention_float32",
                      softmax_definitions(spec)};
    define(out, "BLOCK_M", t.rows);
    define(out, "BLOCK_N", t.keys);
    define(out, "WARPS", t.warps);
    define(out, "BLOCKS", float32_blocks(spec, t, device));
    out.threads = 32 * t.warps;
    out.shared_bytes = float32_shared_bytes(spec, t);
    return out;
  }
};

}  // namespace

const AttentionEngine& float32_prefill_engine() {
  static const Float32Prefill engine;
  return engine;
}

}  // namespace attn::cuda
