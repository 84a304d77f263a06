// Element conversion, warp reductions and small helpers for device code.
#pragma once

#include "common/params.h"

#define ATTN_DEVICE static __device__ __forceinline__

namespace attnk {

ATTN_DEVICE float bits_to_float(u32 bits) { return __builtin_bit_cast(float, bits); }
ATTN_DEVICE u32 float_to_bits(float value) { return __builtin_bit_cast(u32, value); }
ATTN_DEVICE float infinity() { return bits_to_float(0x7f800000u); }

ATTN_DEVICE float half_to_float(u16 h) {
  float f;
  asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(h));
  return f;
}
ATTN_DEVICE u16 float_to_half(float f) {
  u16 h;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(f));
  return h;
}
ATTN_DEVICE float bfloat_to_float(u16 h) { return bits_to_float(u32(h) << 16); }
ATTN_DEVICE u16 float_to_bfloat(float f) {
  u16 h;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(h) : "f"(f));
  return h;
}

// Two floats to packed 16-bit, `low` in the low half.
template <int type>
ATTN_DEVICE u32 pack2(float low, float high) {
  u32 r;
  if constexpr (type == kTypeFloat16) {
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
  } else {
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
  }
  return r;
}

// What `packed`, made of `low` and `high`, lost in rounding, packed alike.
template <int type>
ATTN_DEVICE u32 pack2_rest(u32 packed, float low, float high) {
  if constexpr (type == kTypeFloat16) {
    return pack2<type>(low - half_to_float((u16)packed), high - half_to_float((u16)(packed >> 16)));
  } else {
    return pack2<type>(low - bits_to_float(packed << 16),
                       high - bits_to_float(packed & 0xffff0000u));
  }
}

template <int type>
ATTN_DEVICE float load_element(const void* base, i64 index) {
  if constexpr (type == kTypeFloat16) return half_to_float(((const u16*)base)[index]);
  if constexpr (type == kTypeBfloat16) return bfloat_to_float(((const u16*)base)[index]);
  return ((const float*)base)[index];
}
template <int type>
ATTN_DEVICE void store_element(void* base, i64 index, float value) {
  if constexpr (type == kTypeFloat16)
    ((u16*)base)[index] = float_to_half(value);
  else if constexpr (type == kTypeBfloat16)
    ((u16*)base)[index] = float_to_bfloat(value);
  else
    ((float*)base)[index] = value;
}
template <int type>
ATTN_DEVICE float round_element(float value) {
  if constexpr (type == kTypeFloat16) return half_to_float(float_to_half(value));
  if constexpr (type == kTypeBfloat16) return bfloat_to_float(float_to_bfloat(value));
  return value;
}
// A type known at run time only (rotary tables, masks).
ATTN_DEVICE float load_any(const void* base, i64 index, int type) {
  if (type == kTypeFloat16) return load_element<kTypeFloat16>(base, index);
  if (type == kTypeBfloat16) return load_element<kTypeBfloat16>(base, index);
  return load_element<kTypeFloat32>(base, index);
}

template <int type>
struct ElementBytes {
  static constexpr int value = type == kTypeFloat32 ? 4 : 2;
};

ATTN_DEVICE float warp_max(float v) {
  for (int h = 16; h; h >>= 1) v = fmaxf(v, __shfl_xor_sync(~0u, v, h));
  return v;
}
ATTN_DEVICE float warp_sum(float v) {
  for (int h = 16; h; h >>= 1) v += __shfl_xor_sync(~0u, v, h);
  return v;
}

ATTN_DEVICE float exp2_fast(float x) {
  float r;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
  return r;
}

// The second kernel of a call may start while the first one runs (programmatic dependent launch):
// the first allows it at its beginning, the second waits here for the first one's results. Without
// that launch attribute, and before sm_90, both do nothing.
ATTN_DEVICE void allow_dependents() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
ATTN_DEVICE void wait_for_previous() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// 16 bytes that are read once and by one thread, and that no thread of the launch writes before:
// past the L1 cache.
ATTN_DEVICE uint4 load_once(const uint4* p) {
  uint4 r;
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(r.x), "=r"(r.y), "=r"(r.z), "=r"(r.w)
               : "l"(p));
  return r;
}

template <class T>
ATTN_DEVICE T min_of(T a, T b) {
  return a < b ? a : b;
}
template <class T>
ATTN_DEVICE T max_of(T a, T b) {
  return a > b ? a : b;
}

}  // namespace attnk
