#include "cpu/row_transform.h"

#include <cmath>
#include <cstring>

#include "cpu/row_transform_simd.h"

namespace attn::cpu {
namespace {

constexpr int kSumLanes = 32;

void apply_norm(const RowTransformSpec& spec, const RowTransform& transform, DType type,
                int32_t channels, float* row) {
  float lane[kSumLanes] = {};
  for (int32_t i = 0; i < channels; ++i) {
    const float square = row[i] * row[i];
    lane[i % kSumLanes] = lane[i % kSumLanes] + square;
  }
  for (int half = kSumLanes / 2; half > 0; half /= 2) {
    for (int l = 0; l < half; ++l) lane[l] = lane[l] + lane[l + half];
  }
  const float mean = lane[0] / static_cast<float>(channels);
  const float r = 1.0f / std::sqrt(mean + spec.epsilon);
  for (int32_t i = 0; i < channels; ++i) {
    const float scaled = row[i] * r;
    row[i] = scaled * load_float(transform.weight, i * transform.weight_stride, type);
  }
}

void apply_rotary(const RowTransformSpec& spec, const RowTransform& transform, int64_t position,
                  float* row) {
  const int32_t half = spec.width / 2;
  const int32_t step = spec.interleaved ? 2 : 1;
  const int32_t partner = spec.interleaved ? 1 : half;
  for (int32_t i = 0; i < half; ++i) {
    const float c =
        load_float(transform.cos, position * transform.cos_row + i * transform.cos_col, spec.table);
    const float s =
        load_float(transform.sin, position * transform.sin_row + i * transform.sin_col, spec.table);
    const float a = row[i * step];
    const float b = row[i * step + partner];
    const float ac = a * c, bs = b * s, bc = b * c, as = a * s;
    row[i * step] = ac - bs;
    row[i * step + partner] = bc + as;
  }
}

void transform_at(const RowTransformSpec& spec, const RowTransform& transform, DType type,
                  const void* src, int64_t src_stride, int32_t channels, int64_t position,
                  float* dst) {
  for (int32_t i = 0; i < channels; ++i) dst[i] = load_float(src, i * src_stride, type);
  if (spec.norm) apply_norm(spec, transform, type, channels, dst);
  if (spec.rotary) apply_rotary(spec, transform, position, dst);
  if (!spec.any() || type == kFloat32) return;
  for (int32_t i = 0; i < channels; ++i) dst[i] = round_to(type, dst[i]);
}

template <class T>
void copy_elements(const void* src, int64_t src_stride, int32_t count, void* dst,
                   int64_t dst_stride) {
  const auto* from = static_cast<const T*>(src);
  auto* to = static_cast<T*>(dst);
  for (int32_t i = 0; i < count; ++i) to[i * dst_stride] = from[i * src_stride];
}

}  // namespace

void transform_row(const RowKernels* kernels, const RowTransformSpec& spec,
                   const RowTransform& transform, DType type, const void* src, int64_t src_stride,
                   int32_t channels, int64_t batch, int64_t row, int64_t position, float* dst) {
  const int64_t at = spec.rotary ? row_position(spec, transform, batch, row, position) : -1;
  // Outside the table (or without rotary) the row gets a spec that does not rotate.
  RowTransformSpec inside;
  const RowTransformSpec* use = &spec;
  if (spec.rotary && (at < 0 || at >= transform.table_rows)) {
    inside = spec;
    inside.rotary = false;
    use = &inside;
  }
  if (kernels != nullptr && src_stride == 1 && spec.unit_strides) {
    const RowBatch one{type, channels, 1, &src, &at};
    kernels->to_floats(one, *use, transform, 1.0f, dst, channels);
  } else {
    transform_at(*use, transform, type, src, src_stride, channels, at, dst);
  }
}

void store_row(const RowKernels* kernels, DType type, const float* src, int32_t count, void* dst,
               int64_t dst_stride) {
  if (kernels != nullptr && dst_stride == 1) {
    kernels->store(type, src, count, dst);
    return;
  }
  for (int32_t i = 0; i < count; ++i) store_float(dst, i * dst_stride, type, src[i]);
}

void copy_row(DType type, const void* src, int64_t src_stride, int32_t count, void* dst,
              int64_t dst_stride) {
  const int64_t size = size_of(type);
  if (src_stride == 1 && dst_stride == 1) {
    std::memcpy(dst, src, static_cast<size_t>(count * size));
    return;
  }
  switch (size) {
    case 1:
      return copy_elements<uint8_t>(src, src_stride, count, dst, dst_stride);
    case 2:
      return copy_elements<uint16_t>(src, src_stride, count, dst, dst_stride);
    case 4:
      return copy_elements<uint32_t>(src, src_stride, count, dst, dst_stride);
    default:
      return copy_elements<uint64_t>(src, src_stride, count, dst, dst_stride);
  }
}

}  // namespace attn::cpu
