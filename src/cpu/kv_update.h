// Engines that write the caches: norm and rotary of new keys, append, copy of the past, zeros.
#pragma once

#include "cpu/engine.h"

namespace attn::cpu {

// "simd-kv-update": float32, float16, bfloat16 with unit channel strides, at any level but generic.
const KvUpdateEngine& simd_kv_update_engine();

// "generic-kv-update": any strides; float32, float16, bfloat16, and double without a transform. The
// same bits as the SIMD engine.
const KvUpdateEngine& generic_kv_update_engine();

}  // namespace attn::cpu
