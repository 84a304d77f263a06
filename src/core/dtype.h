// Element types, with DLPack's codes, and their conversions to and from float.
#pragma once

#include <cstdint>
#include <cstring>

namespace attn {

// DLPack's DLDataTypeCode values.
enum : uint8_t { kCodeInt = 0, kCodeUInt = 1, kCodeFloat = 2, kCodeBfloat = 4, kCodeBool = 6 };

struct DType {
  uint8_t code = 0;
  uint8_t bits = 0;
  uint16_t lanes = 1;
  bool operator==(const DType&) const = default;
};

inline constexpr DType kFloat32{kCodeFloat, 32, 1};
inline constexpr DType kFloat64{kCodeFloat, 64, 1};
inline constexpr DType kFloat16{kCodeFloat, 16, 1};
inline constexpr DType kBfloat16{kCodeBfloat, 16, 1};
inline constexpr DType kInt32{kCodeInt, 32, 1};
inline constexpr DType kInt64{kCodeInt, 64, 1};
inline constexpr DType kBool{kCodeBool, 8, 1};

inline int64_t size_of(DType type) {
  return (static_cast<int64_t>(type.bits) * type.lanes + 7) / 8;
}

// The ONNX spelling ("float16", "bool"), or "code/bits/lanes" for what has no name here.
const char* name_of(DType type);

inline float bfloat16_to_float(uint16_t bits) {
  uint32_t wide = static_cast<uint32_t>(bits) << 16;
  float value;
  std::memcpy(&value, &wide, sizeof value);
  return value;
}

// Round to nearest, ties to even; NaN stays NaN (quiet).
inline uint16_t float_to_bfloat16(float value) {
  uint32_t wide;
  std::memcpy(&wide, &value, sizeof wide);
  if ((wide & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((wide >> 16) | 0x40u);
  wide += 0x7fffu + ((wide >> 16) & 1u);
  return static_cast<uint16_t>(wide >> 16);
}

float float16_to_float(uint16_t bits);
uint16_t float_to_float16(float value);  // round to nearest even, overflow to infinity

// One element as float, whatever floating type it has (double is narrowed).
float load_float(const void* base, int64_t index, DType type);
void store_float(void* base, int64_t index, DType type, float value);
double load_double(const void* base, int64_t index, DType type);

// The float nearest to `value` that `type` can hold.
float round_to(DType type, float value);

}  // namespace attn
