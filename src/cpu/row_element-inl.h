// Elements of rows, for one target: loads and stores with the bits of core/dtype.cc.
//
// Unlike in simd_load-inl.h, NaN payloads and the quiet bit are exactly those of the scalar
// conversions on every target.
#if defined(ATTN_ROW_ELEMENT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTN_ROW_ELEMENT_INL_H_
#undef ATTN_ROW_ELEMENT_INL_H_
#else
#define ATTN_ROW_ELEMENT_INL_H_
#endif

#include <cstdint>

#include "core/dtype.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace attn::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using F32 = hn::CappedTag<float, 16>;
using I32 = hn::RebindToSigned<F32>;
using U32 = hn::RebindToUnsigned<F32>;
using U16 = hn::Rebind<uint16_t, F32>;
using VF = hn::Vec<F32>;
using VU = hn::Vec<U32>;
inline constexpr int kLanes = static_cast<int>(hn::MaxLanes(F32()));

// Conversions give the bits of core/dtype.cc on every target. Where there is no instruction for one
// it is done by integer operations here: Highway's emulations do not all round to nearest, or lose
// infinities.

struct Float32 {
  using T = float;
  static HWY_INLINE VF load(const T* p) { return hn::LoadU(F32(), p); }
  static HWY_INLINE void store(VF v, T* p) { hn::StoreU(v, F32(), p); }
  static HWY_INLINE VF round(VF v) { return v; }
  static float load_one(const T* p) { return *p; }
  static void store_one(float v, T* p) { *p = v; }
};

struct Bfloat16 {
  using T = uint16_t;
  static HWY_INLINE VF load(const T* p) {
    return hn::BitCast(F32(), hn::ShiftLeft<16>(hn::PromoteTo(U32(), hn::LoadU(U16(), p))));
  }
  static HWY_INLINE void store(VF v, T* p) {
    const VU bits = hn::BitCast(U32(), round(v));
    hn::StoreU(hn::TruncateTo(U16(), hn::ShiftRight<16>(bits)), U16(), p);
  }
  static HWY_INLINE VF round(VF v) {
    const U32 du;
    const VU wide = hn::BitCast(du, v);
    const VU odd = hn::And(hn::ShiftRight<16>(wide), hn::Set(du, 1));
    const VU rounded = hn::Add(wide, hn::Add(odd, hn::Set(du, 0x7fffu)));
    const VU quiet = hn::Or(wide, hn::Set(du, 0x400000u));
    const VU bits = hn::IfThenElse(hn::RebindMask(du, hn::IsNaN(v)), quiet, rounded);
    return hn::BitCast(F32(), hn::And(bits, hn::Set(du, 0xffff0000u)));
  }
  static float load_one(const T* p) { return bfloat16_to_float(*p); }
  static void store_one(float v, T* p) { *p = float_to_bfloat16(v); }
};

#if HWY_TARGET == HWY_SSE4
// No conversion instructions.
struct Float16 {
  using T = uint16_t;
  static HWY_INLINE VF load(const T* p) {
    const U32 du;
    const I32 di;
    const VU bits = hn::PromoteTo(du, hn::LoadU(U16(), p));
    const VU sign = hn::ShiftLeft<16>(hn::And(bits, hn::Set(du, 0x8000u)));
    const VU magnitude = hn::And(bits, hn::Set(du, 0x7fffu));
    const VU wide = hn::ShiftLeft<13>(magnitude);
    const auto signed_magnitude = hn::BitCast(di, magnitude);
    const auto special = hn::RebindMask(du, hn::Gt(signed_magnitude, hn::Set(di, 0x7bff)));
    const auto nan = hn::RebindMask(du, hn::Gt(signed_magnitude, hn::Set(di, 0x7c00)));
    const auto normal = hn::RebindMask(du, hn::Gt(signed_magnitude, hn::Set(di, 0x03ff)));
    const VU as_normal = hn::Add(wide, hn::Set(du, 0x38000000u));
    const VF shifted = hn::Sub(hn::BitCast(F32(), hn::Add(wide, hn::Set(du, 0x38800000u))),
                               hn::Set(F32(), 0x1p-14f));
    VU result = hn::IfThenElse(normal, as_normal, hn::BitCast(du, shifted));
    result = hn::IfThenElse(special, hn::Or(wide, hn::Set(du, 0x7f800000u)), result);
    result = hn::Or(result, hn::IfThenElseZero(nan, hn::Set(du, 0x400000u)));
    return hn::BitCast(F32(), hn::Or(result, sign));
  }
  static HWY_INLINE void store(VF v, T* p) {
    const U32 du;
    const I32 di;
    const VU wide = hn::BitCast(du, v);
    const VU sign = hn::And(hn::ShiftRight<16>(wide), hn::Set(du, 0x8000u));
    const VU magnitude = hn::And(wide, hn::Set(du, 0x7fffffffu));
    const auto signed_magnitude = hn::BitCast(di, magnitude);
    const VU mantissa = hn::ShiftRight<13>(magnitude);
    const auto nan = hn::RebindMask(du, hn::Gt(signed_magnitude, hn::Set(di, 0x7f800000)));
    const auto large = hn::RebindMask(du, hn::Gt(signed_magnitude, hn::Set(di, 0x477fffff)));
    const auto normal = hn::RebindMask(du, hn::Gt(signed_magnitude, hn::Set(di, 0x387fffff)));
    const VU odd = hn::And(mantissa, hn::Set(du, 1));
    const VU as_normal = hn::ShiftRight<13>(
        hn::Add(hn::Sub(magnitude, hn::Set(du, 0x38000000u)), hn::Add(odd, hn::Set(du, 0xfffu))));
    const VF rounded = hn::Add(hn::BitCast(F32(), magnitude), hn::Set(F32(), 0.5f));
    const VU as_subnormal = hn::Sub(hn::BitCast(du, rounded), hn::Set(du, 0x3f000000u));
    VU result = hn::IfThenElse(normal, as_normal, as_subnormal);
    result = hn::IfThenElse(large, hn::Set(du, 0x7c00u), result);
    const VU as_nan = hn::Or(hn::Set(du, 0x7e00u), hn::And(mantissa, hn::Set(du, 0x3ffu)));
    result = hn::Or(hn::IfThenElse(nan, as_nan, result), sign);
    hn::StoreU(hn::TruncateTo(U16(), result), U16(), p);
  }
  static HWY_INLINE VF round(VF v) {
    HWY_ALIGN T narrow[kLanes];
    store(v, narrow);
    return load(narrow);
  }
  static float load_one(const T* p) { return float16_to_float(*p); }
  static void store_one(float v, T* p) { *p = float_to_float16(v); }
};
#else
struct Float16 {
  using T = uint16_t;
  using Half = hn::Rebind<hwy::float16_t, F32>;
  static HWY_INLINE VF load(const T* p) {
    return hn::PromoteTo(F32(), hn::LoadU(Half(), reinterpret_cast<const hwy::float16_t*>(p)));
  }
  static HWY_INLINE void store(VF v, T* p) {
    hn::StoreU(hn::DemoteTo(Half(), v), Half(), reinterpret_cast<hwy::float16_t*>(p));
  }
  static HWY_INLINE VF round(VF v) { return hn::PromoteTo(F32(), hn::DemoteTo(Half(), v)); }
  static float load_one(const T* p) { return float16_to_float(*p); }
  static void store_one(float v, T* p) { *p = float_to_float16(v); }
};
#endif

}  // namespace HWY_NAMESPACE
}  // namespace attn::cpu
HWY_AFTER_NAMESPACE();

#endif  // include guard per target
