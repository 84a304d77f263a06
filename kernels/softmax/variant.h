// What a softmax kernel is specialised for. The host defines every macro (cuda/kernel_variant.h).
//   ATTN_TYPE, HEAD_SIZE, V_HEAD_SIZE
//   MASK_KIND 0 none, 1 additive, 2 boolean    SINK_KIND 0 none, 1 zero, 2 a head
//   SOFTCAP, HAS_LSE, QUERY_TRANSFORM, PACKED 0 or 1    PLAIN_SCALE 1: the scale is positive
#pragma once

#include "common/params.h"

namespace attnk {

constexpr int kType = ATTN_TYPE;
constexpr int kD = HEAD_SIZE, kDv = V_HEAD_SIZE;
constexpr int kMaskKind = MASK_KIND, kSinkKind = SINK_KIND;
constexpr bool kSoftcap = SOFTCAP, kHasLse = HAS_LSE, kQueryTransform = QUERY_TRANSFORM;
constexpr bool kPlainScale = PLAIN_SCALE, kPacked = PACKED;

}  // namespace attnk
