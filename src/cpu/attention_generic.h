// The attention engine that takes every problem: any strides, types (double in double), score
// outputs, masks. Correct and deterministic first; the SIMD engines are the fast ones.
#pragma once

#include "cpu/engine.h"

namespace attn::cpu {

// "generic". Blocks of query rows of one head run over tiles of keys with an online softmax; no
// buffer grows with S x T. Score outputs are computed a second time once the row's maximum and sum
// are known.
const AttentionEngine& generic_attention_engine();

}  // namespace attn::cpu
