// Prefill in 16 bits by mma.sync: sm_80 and later.
#include <algorithm>

#include "cuda/attention_prefill_engine.h"

namespace attn::cuda {
namespace {

// Bytes of the Q tile and of one K and one V tile, rows padded by 16 bytes. The Q tile also takes
// the output, in 16-bit kernels.
int mma_shared_bytes(const AttentionSpec& spec, const Tile& t) {
  const int dk = padded(spec.head_size) + 8, dv = padded(spec.v_head_size) + 8;
  return 2 * (t.rows * std::max(dk, dv) + t.keys * (dk + dv));
}

Tile mma_tile(const AttentionSpec& spec, const DeviceTraits& device) {
  const int d = std::max(spec.head_size, spec.v_head_size);
  if (d <= 64) return {128, 64, 4};
  constexpr Tile kTiles[] = {{128, 64, 8}, {64, 32, 4}};
  return first_that_fits(kTiles, spec, device, mma_shared_bytes);
}

class MmaPrefill final : public PrefillEngine {
 public:
  const char* name() const override { return "mma-prefill"; }
  bool supports(const AttentionSpec& spec, const DeviceTraits& device,
                std::string* why_not) const override {
    if (!is_16_bit(spec.type)) return refuse(why_not, "only float16 and bfloat16");
    return fits_tiles(spec, 8, why_not) &&
           fits_shared_memory(variant(spec, device), 0, device, why_not);
  }
  Tile tile(const AttentionSpec& spec, const DeviceTraits& device) const override {
    return mma_tile(spec, device);
  }
  KernelVariant variant(const AttentionSpec& spec, const DeviceTraits& device) const override {
    const Tile t = mma_tile(spec, device);
    KernelVariant out{"softmax/attention_mma.cu", "attn_attention_mma", softmax_definitions(spec)};
    define(out, "BLOCK_M", t.rows);
    define(out, "BLOCK_N", t.keys);
    define(out, "WARPS", t.warps);
    out.threads = 32 * t.warps;
    out.shared_bytes = mma_shared_bytes(spec, t);
    return out;
  }
};

}  // namespace

const AttentionEngine& mma_prefill_engine() {
  static const MmaPrefill engine;
  return engine;
}

}  // namespace attn::cuda
