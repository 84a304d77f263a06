// Compiled once for each instruction set (Highway's foreach_target). Products and sums are separate
// operations throughout: a fused one would give other bits than the contract in row_transform.h.
//
// A channel is read once and written once: a Reader gives it widened and normed, a pair is rotated
// in registers, a Sink rounds it and puts it where it belongs.
#include "cpu/row_transform_simd.h"
#include "cpu/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/row_transform_simd.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// Must come after foreach_target.h.
#include "cpu/simd_load-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace attn::cpu {
namespace HWY_NAMESPACE {
constexpr int kSumLanes = 32;  // of the sum of squares, see row_transform.h

template <class Type>
HWY_INLINE const typename Type::Raw* elements(const void* base, int64_t offset) {
  return static_cast<const typename Type::Raw*>(base) + offset;
}

template <class Type>
void load_row(const void* base, int32_t count, float* dst) {
  const auto* src = elements<Type>(base, 0);
  int32_t i = 0;
  for (; i + kLanes <= count; i += kLanes) hn::StoreU(Type::load(kF, src + i), kF, dst + i);
  for (; i < count; ++i) dst[i] = Type::load_one(src + i);
}

template <class Type>
void store_row(const float* src, int32_t count, void* base) {
  auto* dst = static_cast<typename Type::Raw*>(base);
  int32_t i = 0;
  for (; i + kLanes <= count; i += kLanes) Type::store(hn::LoadU(kF, src + i), dst + i);
  for (; i < count; ++i) Type::store_one(src[i], dst + i);
}

// 1 / sqrt(mean of squares + epsilon).
template <class Type>
float inverse_rms(const typename Type::Raw* row, int32_t channels, float epsilon) {
  HWY_ALIGN float lane[kSumLanes];
  VF sum[kSumLanes / kLanes];
  for (VF& s : sum) s = hn::Zero(kF);
  int32_t i = 0;
  for (; i + kSumLanes <= channels; i += kSumLanes) {
    for (int v = 0; v < kSumLanes / kLanes; ++v) {
      const VF x = Type::load(kF, row + i + v * kLanes);
      sum[v] = hn::Add(sum[v], hn::Mul(x, x));
    }
  }
  for (int v = 0; v < kSumLanes / kLanes; ++v) hn::Store(sum[v], kF, lane + v * kLanes);
  for (int l = 0; i < channels; ++i, ++l) {
    const float x = Type::load_one(row + i);
    const float square = x * x;
    lane[l] = lane[l] + square;
  }
  for (int half = kSumLanes / 2; half > 0; half /= 2) {
    for (int l = 0; l < half; ++l) lane[l] = lane[l] + lane[l + half];
  }
  const float mean = lane[0] / static_cast<float>(channels);
  return 1.0f / __builtin_sqrtf(mean + epsilon);
}

// Channels of one row, widened.
template <class Type>
struct PlainReader {
  PlainReader(const RowTransformSpec&, const RowTransform&, const void* src, int32_t)
      : row(elements<Type>(src, 0)) {}
  HWY_INLINE VF vec(int32_t i) const { return Type::load(kF, row + i); }
  HWY_INLINE float one(int32_t i) const { return Type::load_one(row + i); }
  const typename Type::Raw* row;
};

// Channels of one row, widened and normed.
template <class Type>
struct NormReader {
  NormReader(const RowTransformSpec& spec, const RowTransform& transform, const void* src,
             int32_t channels)
      : row(elements<Type>(src, 0)),
        weight(elements<Type>(transform.weight, 0)),
        factor(inverse_rms<Type>(row, channels, spec.epsilon)) {}
  HWY_INLINE VF vec(int32_t i) const {
    return hn::Mul(hn::Mul(Type::load(kF, row + i), hn::Set(kF, factor)),
                   Type::load(kF, weight + i));
  }
  HWY_INLINE float one(int32_t i) const {
    const float scaled = Type::load_one(row + i) * factor;
    return scaled * Type::load_one(weight + i);
  }
  const typename Type::Raw* row;
  const typename Type::Raw* weight;
  float factor;
};

// Rounds to Type and stores that.
template <class Type>
struct TypedSink {
  TypedSink(void* dst, float) : row(static_cast<typename Type::Raw*>(dst)) {}
  HWY_INLINE void vec(int32_t i, VF v) const { Type::store(v, row + i); }
  HWY_INLINE void one(int32_t i, float v) const { Type::store_one(v, row + i); }
  typename Type::Raw* row;
};

// Rounds to Type, multiplies by a factor (or, without kScaled, does not) and stores floats.
template <class Type, bool kScaled>
struct FloatSink {
  FloatSink(void* dst, float by) : row(static_cast<float*>(dst)), scale(by) {}
  HWY_INLINE void vec(int32_t i, VF v) const {
    if constexpr (kScaled) {
      hn::StoreU(hn::Mul(Type::round(v), hn::Set(kF, scale)), kF, row + i);
    } else {
      hn::StoreU(Type::round(v), kF, row + i);
    }
  }
  HWY_INLINE void one(int32_t i, float v) const {
    typename Type::Raw narrow;
    Type::store_one(v, &narrow);
    row[i] = kScaled ? Type::load_one(&narrow) * scale : Type::load_one(&narrow);
  }
  float* row;
  float scale;
};

HWY_INLINE void rotate(VF& a, VF& b, VF c, VF s) {
  const VF first = hn::Sub(hn::Mul(a, c), hn::Mul(b, s));
  b = hn::Add(hn::Mul(b, c), hn::Mul(a, s));
  a = first;
}

HWY_INLINE void rotate_one(float& a, float& b, float c, float s) {
  const float ac = a * c, bs = b * s, bc = b * c, as = a * s;
  a = ac - bs;
  b = bc + as;
}

// The pairs of channels [0, 2 * half), `half` table entries.
template <class Table, class Reader, class Sink>
HWY_INLINE void rotate_channels(const Reader& in, const Sink& out, int32_t half, bool interleaved,
                                const typename Table::Raw* cos, const typename Table::Raw* sin) {
  int32_t i = 0;
  if (interleaved) {
    HWY_ALIGN float pairs[2 * kLanes];
    for (; i + kLanes <= half; i += kLanes) {
      VF a, b;
      hn::Store(in.vec(2 * i), kF, pairs);
      hn::Store(in.vec(2 * i + kLanes), kF, pairs + kLanes);
      hn::LoadInterleaved2(kF, pairs, a, b);
      rotate(a, b, Table::load(kF, cos + i), Table::load(kF, sin + i));
      hn::StoreInterleaved2(a, b, kF, pairs);
      out.vec(2 * i, hn::Load(kF, pairs));
      out.vec(2 * i + kLanes, hn::Load(kF, pairs + kLanes));
    }
  } else {
    for (; i + kLanes <= half; i += kLanes) {
      VF a = in.vec(i);
      VF b = in.vec(half + i);
      rotate(a, b, Table::load(kF, cos + i), Table::load(kF, sin + i));
      out.vec(i, a);
      out.vec(half + i, b);
    }
  }
  const int32_t step = interleaved ? 2 : 1;
  const int32_t partner = interleaved ? 1 : half;
  for (; i < half; ++i) {
    float a = in.one(i * step);
    float b = in.one(i * step + partner);
    rotate_one(a, b, Table::load_one(cos + i), Table::load_one(sin + i));
    out.one(i * step, a);
    out.one(i * step + partner, b);
  }
}

template <class Table, class Reader, class Sink>
void transform_rows(const RowBatch& rows, const RowTransformSpec& spec,
                    const RowTransform& transform, void* dst, int64_t row_bytes, float scale) {
  auto* to = static_cast<char*>(dst);
  for (int r = 0; r < rows.count; ++r, to += row_bytes) {
    const Reader in(spec, transform, rows.source[r], rows.channels);
    const Sink out(to, scale);
    const int64_t position = rows.position[r];
    int32_t i = 0;
    if (spec.rotary && position >= 0 && position < transform.table_rows) {
      rotate_channels<Table>(in, out, spec.width / 2, spec.interleaved,
                             elements<Table>(transform.cos, position * transform.cos_row),
                             elements<Table>(transform.sin, position * transform.sin_row));
      i = spec.width;
    }
    for (; i + kLanes <= rows.channels; i += kLanes) out.vec(i, in.vec(i));
    for (; i < rows.channels; ++i) out.one(i, in.one(i));
  }
}

template <class Type, class Sink>
void transform_typed(const RowBatch& rows, const RowTransformSpec& spec,
                     const RowTransform& transform, void* dst, int64_t row_bytes, float scale) {
  if (spec.table == kFloat32) {
    const auto run = spec.norm ? &transform_rows<F32, NormReader<Type>, Sink>
                               : &transform_rows<F32, PlainReader<Type>, Sink>;
    run(rows, spec, transform, dst, row_bytes, scale);
  } else {
    const auto run = spec.norm ? &transform_rows<Type, NormReader<Type>, Sink>
                               : &transform_rows<Type, PlainReader<Type>, Sink>;
    run(rows, spec, transform, dst, row_bytes, scale);
  }
}

template <class Type>
void to_floats_typed(const RowBatch& rows, const RowTransformSpec& spec,
                     const RowTransform& transform, float scale, float* dst, int64_t stride) {
  const int64_t row_bytes = stride * static_cast<int64_t>(sizeof(float));
  if (!spec.any() && scale == 1.0f) {
    for (int r = 0; r < rows.count; ++r) {
      load_row<Type>(rows.source[r], rows.channels, dst + r * stride);
    }
  } else if (scale == 1.0f) {
    transform_typed<Type, FloatSink<Type, false>>(rows, spec, transform, dst, row_bytes, scale);
  } else {
    transform_typed<Type, FloatSink<Type, true>>(rows, spec, transform, dst, row_bytes, scale);
  }
}

void to_floats(const RowBatch& rows, const RowTransformSpec& spec, const RowTransform& transform,
               float scale, float* dst, int64_t stride) {
  if (rows.type == kFloat32) {
    to_floats_typed<F32>(rows, spec, transform, scale, dst, stride);
  } else if (rows.type == kFloat16) {
    to_floats_typed<F16>(rows, spec, transform, scale, dst, stride);
  } else {
    to_floats_typed<BF16>(rows, spec, transform, scale, dst, stride);
  }
}

void to_rows(const RowBatch& rows, const RowTransformSpec& spec, const RowTransform& transform,
             void* dst, int64_t stride) {
  const int64_t row_bytes = stride * size_of(rows.type);
  if (rows.type == kFloat32) {
    transform_typed<F32, TypedSink<F32>>(rows, spec, transform, dst, row_bytes, 1);
  } else if (rows.type == kFloat16) {
    transform_typed<F16, TypedSink<F16>>(rows, spec, transform, dst, row_bytes, 1);
  } else {
    transform_typed<BF16, TypedSink<BF16>>(rows, spec, transform, dst, row_bytes, 1);
  }
}

void store(DType type, const float* src, int32_t count, void* dst) {
  if (type == kFloat32) {
    store_row<F32>(src, count, dst);
  } else if (type == kFloat16) {
    store_row<F16>(src, count, dst);
  } else {
    store_row<BF16>(src, count, dst);
  }
}

const RowKernels kKernels = {&to_floats, &to_rows, &store};

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
