// Compiled once for each instruction set (Highway's foreach_target). Products and sums are separate
// operations throughout: a fused one would give other bits than the contract in row_transform.h.
#include "cpu/row_transform_simd.h"
#include "cpu/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/row_transform_simd.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// Must come after foreach_target.h.
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
constexpr int kLanes = static_cast<int>(hn::MaxLanes(F32()));
constexpr int kSumLanes = 32;  // of the sum of squares, see row_transform.h

// Conversions give the bits of core/dtype.cc on every target. Where there is no instruction for one
// it is done by integer operations here: Highway's emulations do not all round to nearest, or lose
// infinities.

struct Float32 {
  using T = float;
  static HWY_INLINE VF load(const T* p) { return hn::LoadU(F32(), p); }
  static HWY_INLINE void store(VF v, T* p) { hn::StoreU(v, F32(), p); }
  static float load_one(const T* p) { return *p; }
  static void store_one(float v, T* p) { *p = v; }
};

struct Bfloat16 {
  using T = uint16_t;
  static HWY_INLINE VF load(const T* p) {
    return hn::BitCast(F32(), hn::ShiftLeft<16>(hn::PromoteTo(U32(), hn::LoadU(U16(), p))));
  }
  static HWY_INLINE void store(VF v, T* p) {
    const U32 du;
    const VU wide = hn::BitCast(du, v);
    const VU odd = hn::And(hn::ShiftRight<16>(wide), hn::Set(du, 1));
    const VU rounded = hn::Add(wide, hn::Add(odd, hn::Set(du, 0x7fffu)));
    const VU quiet = hn::Or(wide, hn::Set(du, 0x400000u));
    const VU bits = hn::IfThenElse(hn::RebindMask(du, hn::IsNaN(v)), quiet, rounded);
    const VU high = hn::ShiftRight<16>(bits);
    hn::StoreU(hn::TruncateTo(U16(), high), U16(), p);
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
  static float load_one(const T* p) { return float16_to_float(*p); }
  static void store_one(float v, T* p) { *p = float_to_float16(v); }
};
#endif

template <class Type>
HWY_INLINE const typename Type::T* elements(const void* base, int64_t offset) {
  return static_cast<const typename Type::T*>(base) + offset;
}

template <class Type>
void load_row(const void* base, int32_t count, float* dst) {
  const auto* src = elements<Type>(base, 0);
  int32_t i = 0;
  for (; i + kLanes <= count; i += kLanes) hn::StoreU(Type::load(src + i), F32(), dst + i);
  for (; i < count; ++i) dst[i] = Type::load_one(src + i);
}

template <class Type>
void store_row(const float* src, int32_t count, void* base) {
  auto* dst = static_cast<typename Type::T*>(base);
  int32_t i = 0;
  for (; i + kLanes <= count; i += kLanes) Type::store(hn::LoadU(F32(), src + i), dst + i);
  for (; i < count; ++i) Type::store_one(src[i], dst + i);
}

// The float nearest to each element that Type can hold, in place.
template <class Type>
void round_row(float* row, int32_t count) {
  HWY_ALIGN typename Type::T narrow[kLanes];
  int32_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    Type::store(hn::LoadU(F32(), row + i), narrow);
    hn::StoreU(Type::load(narrow), F32(), row + i);
  }
  for (; i < count; ++i) {
    Type::store_one(row[i], narrow);
    row[i] = Type::load_one(narrow);
  }
}

// 1 / sqrt(mean of squares + epsilon).
float inverse_rms(const float* row, int32_t channels, float epsilon) {
  HWY_ALIGN float lane[kSumLanes];
  VF sum[kSumLanes / kLanes];
  for (VF& s : sum) s = hn::Zero(F32());
  int32_t i = 0;
  for (; i + kSumLanes <= channels; i += kSumLanes) {
    for (int v = 0; v < kSumLanes / kLanes; ++v) {
      const VF x = hn::LoadU(F32(), row + i + v * kLanes);
      sum[v] = hn::Add(sum[v], hn::Mul(x, x));
    }
  }
  for (int v = 0; v < kSumLanes / kLanes; ++v) hn::Store(sum[v], F32(), lane + v * kLanes);
  for (int l = 0; i < channels; ++i, ++l) {
    const float square = row[i] * row[i];
    lane[l] = lane[l] + square;
  }
  for (int half = kSumLanes / 2; half > 0; half /= 2) {
    for (int l = 0; l < half; ++l) lane[l] = lane[l] + lane[l + half];
  }
  const float mean = lane[0] / static_cast<float>(channels);
  return 1.0f / __builtin_sqrtf(mean + epsilon);
}

template <class Type>
void apply_norm(float* row, int32_t channels, float epsilon, const void* weight) {
  const float r = inverse_rms(row, channels, epsilon);
  const VF factor = hn::Set(F32(), r);
  const auto* w = elements<Type>(weight, 0);
  int32_t i = 0;
  for (; i + kLanes <= channels; i += kLanes) {
    const VF scaled = hn::Mul(hn::LoadU(F32(), row + i), factor);
    hn::StoreU(hn::Mul(scaled, Type::load(w + i)), F32(), row + i);
  }
  for (; i < channels; ++i) {
    const float scaled = row[i] * r;
    row[i] = scaled * Type::load_one(w + i);
  }
}

HWY_INLINE void rotate(VF& a, VF& b, VF c, VF s) {
  const VF first = hn::Sub(hn::Mul(a, c), hn::Mul(b, s));
  b = hn::Add(hn::Mul(b, c), hn::Mul(a, s));
  a = first;
}

inline void rotate_one(float& a, float& b, float c, float s) {
  const float ac = a * c, bs = b * s, bc = b * c, as = a * s;
  a = ac - bs;
  b = bc + as;
}

template <class Table>
void apply_rotary(const RowTransformSpec& spec, const RowTransform& transform, int64_t position,
                  float* row) {
  const auto* cos = elements<Table>(transform.cos, position * transform.cos_row);
  const auto* sin = elements<Table>(transform.sin, position * transform.sin_row);
  const int32_t half = spec.width / 2;
  const F32 d;
  int32_t i = 0;
  if (spec.interleaved) {
    for (; i + kLanes <= half; i += kLanes) {
      VF a, b;
      hn::LoadInterleaved2(d, row + 2 * i, a, b);
      rotate(a, b, Table::load(cos + i), Table::load(sin + i));
      hn::StoreInterleaved2(a, b, d, row + 2 * i);
    }
    for (; i < half; ++i) {
      rotate_one(row[2 * i], row[2 * i + 1], Table::load_one(cos + i), Table::load_one(sin + i));
    }
    return;
  }
  for (; i + kLanes <= half; i += kLanes) {
    VF a = hn::LoadU(d, row + i);
    VF b = hn::LoadU(d, row + half + i);
    rotate(a, b, Table::load(cos + i), Table::load(sin + i));
    hn::StoreU(a, d, row + i);
    hn::StoreU(b, d, row + half + i);
  }
  for (; i < half; ++i) {
    rotate_one(row[i], row[half + i], Table::load_one(cos + i), Table::load_one(sin + i));
  }
}

template <class Type>
void transform_typed(const RowTransformSpec& spec, const RowTransform& transform, const void* src,
                     int32_t channels, int64_t position, float* dst) {
  load_row<Type>(src, channels, dst);
  if (spec.norm) apply_norm<Type>(dst, channels, spec.epsilon, transform.weight);
  if (spec.rotary) {
    if (spec.table == kFloat32) {
      apply_rotary<Float32>(spec, transform, position, dst);
    } else {
      apply_rotary<Type>(spec, transform, position, dst);
    }
  }
  if (spec.any()) round_row<Type>(dst, channels);
}

void transform(const RowTransformSpec& spec, const RowTransform& transform, DType type,
               const void* src, int32_t channels, int64_t position, float* dst) {
  if (type == kFloat32) {
    transform_typed<Float32>(spec, transform, src, channels, position, dst);
  } else if (type == kFloat16) {
    transform_typed<Float16>(spec, transform, src, channels, position, dst);
  } else {
    transform_typed<Bfloat16>(spec, transform, src, channels, position, dst);
  }
}

void store(DType type, const float* src, int32_t count, void* dst) {
  if (type == kFloat32) {
    store_row<Float32>(src, count, dst);
  } else if (type == kFloat16) {
    store_row<Float16>(src, count, dst);
  } else {
    store_row<Bfloat16>(src, count, dst);
  }
}

const RowKernels kKernels = {&transform, &store};

}  // namespace HWY_NAMESPACE
}  // namespace attn::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace attn::cpu {

const RowKernels* row_kernels(SimdLevel level) {
  switch (level) {
    ATTN_SIMD_TABLE_CASES(kKernels)
    default:
      return nullptr;
  }
}

}  // namespace attn::cpu
#endif  // HWY_ONCE
