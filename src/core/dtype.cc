#include "core/dtype.h"

#include <bit>
#include <cmath>
#include <cstdio>
#include <limits>

namespace attn {
namespace {

struct NamedType {
  DType type;
  const char* name;
};

// The codes above 6 are DLPack's for the 8-bit floating types.
constexpr NamedType kNamedTypes[] = {
    {kFloat32, "float32"},
    {kFloat64, "float64"},
    {kFloat16, "float16"},
    {kBfloat16, "bfloat16"},
    {kInt32, "int32"},
    {kInt64, "int64"},
    {kBool, "bool"},
    {{kCodeInt, 4, 1}, "int4"},
    {{kCodeInt, 8, 1}, "int8"},
    {{kCodeInt, 16, 1}, "int16"},
    {{kCodeUInt, 4, 1}, "uint4"},
    {{kCodeUInt, 8, 1}, "uint8"},
    {{kCodeUInt, 16, 1}, "uint16"},
    {{kCodeUInt, 32, 1}, "uint32"},
    {{kCodeUInt, 64, 1}, "uint64"},
    {{10, 8, 1}, "float8e4m3fn"},
    {{11, 8, 1}, "float8e4m3fnuz"},
    {{12, 8, 1}, "float8e5m2"},
    {{13, 8, 1}, "float8e5m2fnuz"},
};

// Texts of unnamed types live in a small ring a thread, so that one message can name several.
const char* unnamed_text(DType type) {
  constexpr int kTexts = 8;
  static thread_local char texts[kTexts][24];
  static thread_local int next = 0;
  char* text = texts[next];
  next = (next + 1) % kTexts;
  std::snprintf(text, sizeof texts[0], "%u/%u/%u", static_cast<unsigned>(type.code),
                static_cast<unsigned>(type.bits), static_cast<unsigned>(type.lanes));
  return text;
}

template <class T>
T load_as(const void* base, int64_t index) {
  T value;
  std::memcpy(&value, static_cast<const char*>(base) + index * static_cast<int64_t>(sizeof(T)),
              sizeof value);
  return value;
}

template <class T>
void store_as(void* base, int64_t index, T value) {
  std::memcpy(static_cast<char*>(base) + index * static_cast<int64_t>(sizeof(T)), &value,
              sizeof value);
}

}  // namespace

const char* name_of(DType type) {
  for (const NamedType& named : kNamedTypes) {
    if (named.type == type) return named.name;
  }
  return unnamed_text(type);
}

// Both conversions work without float32 subnormals, so that a host that flushes them to zero does
// not change results.
float float16_to_float(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16;
  const uint32_t magnitude = bits & 0x7fffu;
  uint32_t wide = magnitude << 13;
  if (magnitude >= 0x7c00u) {
    wide |= 0x7f800000u;
    if (magnitude > 0x7c00u) wide |= 0x400000u;
  } else if (magnitude >= 0x0400u) {
    wide += (127u - 15u) << 23;
  } else {
    // 2^-14 * (1 + m) - 2^-14 is the subnormal 2^-14 * m, exactly.
    const float shifted = std::bit_cast<float>(wide + 0x38800000u) - 0x1p-14f;
    wide = std::bit_cast<uint32_t>(shifted);
  }
  return std::bit_cast<float>(wide | sign);
}

uint16_t float_to_float16(float value) {
  const uint32_t wide = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (wide >> 16) & 0x8000u;
  const uint32_t magnitude = wide & 0x7fffffffu;
  uint32_t half;
  if (magnitude > 0x7f800000u) {
    half = 0x7e00u | ((magnitude >> 13) & 0x3ffu);
  } else if (magnitude >= 0x47800000u) {  // 2^16 and above
    half = 0x7c00u;
  } else if (magnitude >= 0x38800000u) {  // 2^-14: normal; a carry may reach infinity
    half = (magnitude - 0x38000000u + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
  } else {
    // One unit in the last place of 0.5 is 2^-24, that of float16's subnormals: the addition
    // rounds.
    const float rounded = std::bit_cast<float>(magnitude) + 0.5f;
    half = std::bit_cast<uint32_t>(rounded) - 0x3f000000u;
  }
  return static_cast<uint16_t>(half | sign);
}

float load_float(const void* base, int64_t index, DType type) {
  if (type == kFloat32) return load_as<float>(base, index);
  if (type == kFloat16) return float16_to_float(load_as<uint16_t>(base, index));
  if (type == kBfloat16) return bfloat16_to_float(load_as<uint16_t>(base, index));
  if (type == kFloat64) return static_cast<float>(load_as<double>(base, index));
  return std::numeric_limits<float>::quiet_NaN();
}

double load_double(const void* base, int64_t index, DType type) {
  if (type == kFloat64) return load_as<double>(base, index);
  return load_float(base, index, type);
}

void store_float(void* base, int64_t index, DType type, float value) {
  if (type == kFloat32) {
    store_as(base, index, value);
  } else if (type == kFloat16) {
    store_as(base, index, float_to_float16(value));
  } else if (type == kBfloat16) {
    store_as(base, index, float_to_bfloat16(value));
  } else if (type == kFloat64) {
    store_as(base, index, static_cast<double>(value));
  }
}

float round_to(DType type, float value) {
  if (type == kFloat16) return float16_to_float(float_to_float16(value));
  if (type == kBfloat16) return bfloat16_to_float(float_to_bfloat16(value));
  return value;
}

}  // namespace attn
