// Words and helpers that the operators' schemas share.
#pragma once

#include "attn_c.h"
#include "ops/operator.h"

namespace attn::schema {

inline constexpr char kFloats[] = "float32,float16,bfloat16";
inline constexpr uint32_t kDevice = ATTN_MEMORY_DEVICE;
// Lengths may also be given as host values, which are checked at once.
inline constexpr uint32_t kAnywhere = ATTN_MEMORY_HOST | ATTN_MEMORY_DEVICE | ATTN_MEMORY_PINNED;

// An input whose name stands at its slot in `names`.
template <const auto& names>
constexpr SlotSchema named_input(uint32_t slot, bool optional, uint32_t memory, const char* types,
                                 const char* shape) {
  return {slot, names[slot], optional, memory, -1, types, shape};
}

// An output whose name stands at its position in `names`; `may_alias` is an input's slot, or -1.
template <const auto& names>
constexpr SlotSchema named_output(uint32_t slot, int position, bool optional, int32_t may_alias,
                                  const char* types, const char* shape) {
  return {slot, names[position], optional, kDevice, may_alias, types, shape};
}

}  // namespace attn::schema
