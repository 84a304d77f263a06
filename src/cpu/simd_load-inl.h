// Loads and stores of float32, float16 and bfloat16 rows as float vectors, for one target.
#if defined(ATTN_SIMD_LOAD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTN_SIMD_LOAD_INL_H_
#undef ATTN_SIMD_LOAD_INL_H_
#else
#define ATTN_SIMD_LOAD_INL_H_
#endif

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "core/dtype.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace attn::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using DF = hn::ScalableTag<float>;
using VF = hn::Vec<DF>;
using VU = hn::Vec<hn::RebindToUnsigned<DF>>;
using DF4 = hn::FixedTag<float, 4>;
inline constexpr DF kF{};
inline constexpr int kLanes = static_cast<int>(HWY_LANES(float));

// The element types. `load` widens a vector of D, `store` and `round` round a vector to the type,
// the rest does so for one element. All give the bits of core/dtype.cc, NaN payloads included, on
// every target. Where there is no instruction for a conversion it is done by integers, and by sums
// of normal floats: Highway's emulations do not all round to nearest, or lose infinities.

struct F32 {
  using Raw = float;
  template <class D>
  static HWY_INLINE hn::Vec<D> load(D d, const float* p) {
    return hn::LoadU(d, p);
  }
  static HWY_INLINE void store(VF v, float* p) { hn::StoreU(v, kF, p); }
  static HWY_INLINE VF round(VF v) { return v; }
  static float load_one(const float* p) { return *p; }
  static void store_one(float v, float* p) { *p = v; }
};

struct BF16 {
  using Raw = uint16_t;
  template <class D>
  static HWY_INLINE hn::Vec<D> load(D d, const uint16_t* p) {
    const hn::RebindToUnsigned<D> du;
    const hn::Rebind<uint16_t, D> d16;
    return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(du, hn::LoadU(d16, p))));
  }
  static HWY_INLINE void store(VF v, uint16_t* p) {
    const hn::Rebind<uint16_t, DF> d16;
    hn::StoreU(hn::TruncateTo(d16, hn::ShiftRight<16>(rounded_bits(v))), d16, p);
  }
  static HWY_INLINE VF round(VF v) {
    const hn::RebindToUnsigned<DF> du;
    return hn::BitCast(kF, hn::And(rounded_bits(v), hn::Set(du, 0xffff0000u)));
  }
  static float load_one(const uint16_t* p) { return bfloat16_to_float(*p); }
  static void store_one(float v, uint16_t* p) { *p = float_to_bfloat16(v); }

 private:
  // The result is in the upper half of each.
  static HWY_INLINE VU rounded_bits(VF v) {
    const hn::RebindToUnsigned<DF> du;
    const VU bits = hn::BitCast(du, v);
    const VU odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1u));
    const VU rounded = hn::Add(bits, hn::Add(odd, hn::Set(du, 0x7fffu)));
    const VU quiet = hn::Or(bits, hn::Set(du, 0x400000u));
    return hn::IfThenElse(hn::RebindMask(du, hn::IsNaN(v)), quiet, rounded);
  }
};

struct F16 {
  using Raw = uint16_t;
#if HWY_TARGET == HWY_SSE4
  // No conversion instructions.
  template <class D>
  static HWY_INLINE hn::Vec<D> load(D d, const uint16_t* p) {
    const hn::RebindToUnsigned<D> du;
    const hn::RebindToSigned<D> di;
    const hn::Rebind<uint16_t, D> d16;
    const auto bits = hn::PromoteTo(du, hn::LoadU(d16, p));
    const auto magnitude = hn::And(bits, hn::Set(du, 0x7fffu));
    const auto sign = hn::ShiftLeft<16>(hn::Xor(bits, magnitude));
    const auto wide = hn::ShiftLeft<13>(magnitude);
    const auto signed_magnitude = hn::BitCast(di, magnitude);
    const auto special = hn::RebindMask(du, hn::Gt(signed_magnitude, hn::Set(di, 0x7bff)));
    const auto nan = hn::RebindMask(du, hn::Gt(signed_magnitude, hn::Set(di, 0x7c00)));
    const auto normal = hn::RebindMask(du, hn::Gt(signed_magnitude, hn::Set(di, 0x03ff)));
    const auto as_normal = hn::Add(wide, hn::Set(du, 0x38000000u));
    // 2^-14 (1 + m) - 2^-14 is the subnormal 2^-14 m, exactly.
    const auto shifted =
        hn::Sub(hn::BitCast(d, hn::Add(wide, hn::Set(du, 0x38800000u))), hn::Set(d, 0x1p-14f));
    auto result = hn::IfThenElse(normal, as_normal, hn::BitCast(du, shifted));
    result = hn::IfThenElse(special, hn::Or(wide, hn::Set(du, 0x7f800000u)), result);
    result = hn::Or(result, hn::IfThenElseZero(nan, hn::Set(du, 0x400000u)));
    return hn::BitCast(d, hn::Or(result, sign));
  }
  static HWY_INLINE void store(VF v, uint16_t* p) {
    const hn::RebindToUnsigned<DF> du;
    const hn::RebindToSigned<DF> di;
    const hn::Rebind<uint16_t, DF> d16;
    const VU wide = hn::BitCast(du, v);
    const VU sign = hn::And(hn::ShiftRight<16>(wide), hn::Set(du, 0x8000u));
    const VU magnitude = hn::And(wide, hn::Set(du, 0x7fffffffu));
    const auto signed_magnitude = hn::BitCast(di, magnitude);
    const VU mantissa = hn::ShiftRight<13>(magnitude);
    const auto nan = hn::RebindMask(du, hn::Gt(signed_magnitude, hn::Set(di, 0x7f800000)));
    const auto large = hn::RebindMask(du, hn::Gt(signed_magnitude, hn::Set(di, 0x477fffff)));
    const auto normal = hn::RebindMask(du, hn::Gt(signed_magnitude, hn::Set(di, 0x387fffff)));
    const VU odd = hn::And(mantissa, hn::Set(du, 1u));
    const VU as_normal = hn::ShiftRight<13>(
        hn::Add(hn::Sub(magnitude, hn::Set(du, 0x38000000u)), hn::Add(odd, hn::Set(du, 0xfffu))));
    // One unit in the last place of 0.5 is that of the subnormals: the addition rounds.
    const VF rounded = hn::Add(hn::BitCast(kF, magnitude), hn::Set(kF, 0.5f));
    const VU as_subnormal = hn::Sub(hn::BitCast(du, rounded), hn::Set(du, 0x3f000000u));
    VU result = hn::IfThenElse(normal, as_normal, as_subnormal);
    result = hn::IfThenElse(large, hn::Set(du, 0x7c00u), result);
    const VU as_nan = hn::Or(hn::Set(du, 0x7e00u), hn::And(mantissa, hn::Set(du, 0x3ffu)));
    result = hn::Or(hn::IfThenElse(nan, as_nan, result), sign);
    hn::StoreU(hn::TruncateTo(d16, result), d16, p);
  }
  static HWY_INLINE VF round(VF v) {
    HWY_ALIGN uint16_t narrow[kLanes];
    store(v, narrow);
    return load(kF, narrow);
  }
#else
  template <class D>
  static HWY_INLINE hn::Vec<D> load(D d, const uint16_t* p) {
    const hn::Rebind<hwy::float16_t, D> d16;
    return hn::PromoteTo(d, hn::LoadU(d16, reinterpret_cast<const hwy::float16_t*>(p)));
  }
  static HWY_INLINE void store(VF v, uint16_t* p) {
    const hn::Rebind<hwy::float16_t, DF> d16;
    hn::StoreU(hn::DemoteTo(d16, v), d16, reinterpret_cast<hwy::float16_t*>(p));
  }
  static HWY_INLINE VF round(VF v) {
    const hn::Rebind<hwy::float16_t, DF> d16;
    return hn::PromoteTo(kF, hn::DemoteTo(d16, v));
  }
#endif
  static float load_one(const uint16_t* p) { return float16_to_float(*p); }
  static void store_one(float v, uint16_t* p) { *p = float_to_float16(v); }
};

template <class E, class D>
HWY_INLINE hn::Vec<D> load(E, D d, const typename E::Raw* p) {
  return E::load(d, p);
}

// The first n < lanes elements, zeros behind; reads nothing beyond them.
template <class E, class D>
HWY_INLINE hn::Vec<D> load_some(E e, D d, const typename E::Raw* p, size_t n) {
  alignas(64) typename E::Raw buffer[16] = {};
  std::memcpy(buffer, p, n * sizeof(buffer[0]));
  return load(e, d, buffer);
}

template <class E, class D>
HWY_INLINE hn::Vec<D> load_upto(E e, D d, const typename E::Raw* p, int64_t n) {
  return n >= static_cast<int64_t>(hn::Lanes(d)) ? load(e, d, p)
                                                 : load_some(e, d, p, static_cast<size_t>(n));
}

template <class E>
HWY_INLINE void store(E, VF v, typename E::Raw* p) {
  E::store(v, p);
}

// Stores the first n lanes only.
template <class E>
HWY_INLINE void store_upto(E e, VF v, typename E::Raw* p, int64_t n) {
  if (n >= kLanes) {
    store(e, v, p);
    return;
  }
  alignas(64) typename E::Raw buffer[kLanes];
  store(e, v, buffer);
  std::memcpy(p, buffer, static_cast<size_t>(n) * sizeof(buffer[0]));
}

}  // namespace HWY_NAMESPACE
}  // namespace attn::cpu
HWY_AFTER_NAMESPACE();

#endif  // include guard per target
