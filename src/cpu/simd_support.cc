#include "cpu/simd_support.h"

#include "cpu/simd_rows.h"

namespace attn::cpu {

const char* simd_refusal(const AttentionSpec& spec) {
  const bool known_type = spec.type == kFloat32 || spec.type == kFloat16 || spec.type == kBfloat16;
  if (!known_type) return "the element type is none of float32, float16, bfloat16";
  if (spec.head_size > kMaxHeadSize || spec.v_head_size > kMaxHeadSize) {
    return "a head is larger than 1024";
  }
  if (!spec.unit_channel) return "a channel stride of query, key, value or output is not 1";
  if (spec.scores != ScoreStage::kNone) return "a score output is asked for";
  if (spec.mask == MaskKind::kAdditive && spec.mask_type != kFloat32 &&
      spec.mask_type != kFloat16 && spec.mask_type != kBfloat16) {
    return "the mask's type is none of bool, float32, float16, bfloat16";
  }
  return nullptr;
}

}  // namespace attn::cpu
