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
using DF4 = hn::FixedTag<float, 4>;
inline constexpr DF kF{};
inline constexpr int kLanes = static_cast<int>(HWY_LANES(float));

struct F32 {
  using Raw = float;
};
struct F16 {
  using Raw = uint16_t;
};
struct BF16 {
  using Raw = uint16_t;
};

template <class D>
HWY_INLINE hn::Vec<D> load(F32, D d, const float* p) {
  return hn::LoadU(d, p);
}

template <class D>
HWY_INLINE hn::Vec<D> load(F16, D d, const uint16_t* p) {
#if HWY_TARGET == HWY_SSE4
  // No conversion instruction: move the 15 bits under float's exponent and rescale by 2^112, which
  // is exact for subnormals too; infinity and NaN get their exponent back by hand.
  const hn::RebindToUnsigned<D> du;
  const hn::Rebind<uint16_t, D> d16;
  const auto bits = hn::PromoteTo(du, hn::LoadU(d16, p));
  const auto magnitude = hn::And(bits, hn::Set(du, 0x7fffu));
  const auto sign = hn::ShiftLeft<16>(hn::Xor(bits, magnitude));
  const auto scaled =
      hn::Mul(hn::BitCast(d, hn::ShiftLeft<13>(magnitude)), hn::Set(d, 5.192296858534828e33f));
  const hn::RebindToSigned<D> di;
  const auto special = hn::RebindMask(du, hn::Gt(hn::BitCast(di, magnitude), hn::Set(di, 0x7bff)));
  const auto value =
      hn::Or(hn::BitCast(du, scaled), hn::IfThenElseZero(special, hn::Set(du, 0x7f800000u)));
  return hn::BitCast(d, hn::Or(value, sign));
#else
  const hn::Rebind<hwy::float16_t, D> d16;
  return hn::PromoteTo(d, hn::LoadU(d16, reinterpret_cast<const hwy::float16_t*>(p)));
#endif
}

template <class D>
HWY_INLINE hn::Vec<D> load(BF16, D d, const uint16_t* p) {
  const hn::RebindToUnsigned<D> du;
  const hn::Rebind<uint16_t, D> d16;
  return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(du, hn::LoadU(d16, p))));
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

HWY_INLINE void store(F32, VF v, float* p) { hn::StoreU(v, kF, p); }

HWY_INLINE void store(F16, VF v, uint16_t* p) {
#if HWY_TARGET == HWY_SSE4
  alignas(64) float lanes[kLanes];
  hn::Store(v, kF, lanes);
  for (int i = 0; i < kLanes; ++i) p[i] = float_to_float16(lanes[i]);
#else
  const hn::Rebind<hwy::float16_t, DF> d16;
  hn::StoreU(hn::DemoteTo(d16, v), d16, reinterpret_cast<hwy::float16_t*>(p));
#endif
}

HWY_INLINE void store(BF16, VF v, uint16_t* p) {
  const hn::RebindToUnsigned<DF> du;
  const hn::Rebind<uint16_t, DF> d16;
  const auto bits = hn::BitCast(du, v);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1u));
  const auto rounded = hn::Add(bits, hn::Add(odd, hn::Set(du, 0x7fffu)));
  const auto quiet = hn::Or(bits, hn::Set(du, 0x400000u));
  const auto is_nan = hn::RebindMask(du, hn::IsNaN(v));
  const auto high = hn::ShiftRight<16>(hn::IfThenElse(is_nan, quiet, rounded));
  hn::StoreU(hn::TruncateTo(d16, high), d16, p);
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
