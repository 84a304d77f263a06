#include "cuda/attention_engines.h"

namespace attn::cuda {

std::span<const AttentionEngine* const> attention_engines() {
  static const AttentionEngine* const engines[] = {&split_decode_engine(), &wgmma_prefill_engine(),
                                                   &mma_prefill_engine(), &float32_prefill_engine(),
                                                   &generic_engine()};
  return engines;
}

}  // namespace attn::cuda
