#include "support/scalar.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

namespace attn::test {
namespace {

// 2^exponent for exponents of normal numbers.
double power_of_two(int exponent) {
  return std::bit_cast<double>(static_cast<uint64_t>(exponent + 1023) << 52);
}

// Encodes into a binary format with `mantissa` stored bits, exponent bias `bias` and 15 other bits.
// Works on the value, not on its bits: scale to an integer of ulps, round to even, reassemble.
uint16_t encode(double value, int mantissa, int bias) {
  const uint16_t sign = std::signbit(value) ? 0x8000u : 0u;
  const int exponent_bits = 15 - mantissa;
  const uint16_t infinity = static_cast<uint16_t>(((1u << exponent_bits) - 1u) << mantissa);
  if (std::isnan(value)) {
    return static_cast<uint16_t>(sign | infinity | (1u << (mantissa - 1)));
  }
  const double magnitude = std::fabs(value);
  if (std::isinf(magnitude)) return sign | infinity;
  // The exponent of the leading bit; of numbers that are subnormal in double, one that is too low
  // for any format here.
  const int exponent = static_cast<int>(std::bit_cast<uint64_t>(magnitude) >> 52) - 1023;
  int ulp = exponent - mantissa;
  const int least = 1 - bias - mantissa;  // exponent of the ulp of subnormals
  if (ulp < least) ulp = least;
  const double scaled = magnitude * power_of_two(-ulp);
  // A magnitude beyond every format is not to overflow the integer.
  if (!(scaled < power_of_two(mantissa + 2))) return sign | infinity;
  uint64_t pattern = static_cast<uint64_t>(scaled);
  const double rest = scaled - static_cast<double>(pattern);
  if (rest > 0.5 || (rest == 0.5 && pattern % 2 == 1)) pattern += 1;
  // `pattern` ulps above the subnormal range: consecutive patterns are consecutive numbers, so a
  // carry out of the mantissa moves into the exponent by itself.
  pattern += static_cast<uint64_t>(ulp - least) << mantissa;
  if (pattern >= infinity) return sign | infinity;
  return static_cast<uint16_t>(sign | static_cast<uint16_t>(pattern));
}

double decode(uint16_t bits, int mantissa, int bias) {
  const double sign = (bits & 0x8000u) ? -1.0 : 1.0;
  const int exponent = (bits & 0x7fffu) >> mantissa;
  const int fraction = bits & ((1 << mantissa) - 1);
  const int top = (1 << (15 - mantissa)) - 1;
  if (exponent == top) {
    return fraction ? std::numeric_limits<double>::quiet_NaN()
                    : sign * std::numeric_limits<double>::infinity();
  }
  if (exponent == 0) return sign * std::ldexp(fraction, 1 - bias - mantissa);
  return sign * std::ldexp(fraction + (1 << mantissa), exponent - bias - mantissa);
}

// All values of a 16-bit format by pattern, worked out once.
std::vector<double> decode_all(int mantissa, int bias) {
  std::vector<double> values(0x10000);
  for (size_t bits = 0; bits < values.size(); ++bits) {
    values[bits] = decode(static_cast<uint16_t>(bits), mantissa, bias);
  }
  return values;
}

template <class T>
double read(const void* address) {
  T value;
  std::memcpy(&value, address, sizeof value);
  return static_cast<double>(value);
}

template <class T>
void write(void* address, T value) {
  std::memcpy(address, &value, sizeof value);
}

}  // namespace

int64_t size_of(Type type) {
  switch (type) {
    case Type::kFloat16:
    case Type::kBfloat16:
      return 2;
    case Type::kFloat64:
    case Type::kInt64:
      return 8;
    case Type::kBool:
      return 1;
    case Type::kFloat32:
    case Type::kInt32:
      return 4;
  }
  return 0;
}

std::string name_of(Type type) {
  switch (type) {
    case Type::kFloat32:
      return "float32";
    case Type::kFloat16:
      return "float16";
    case Type::kBfloat16:
      return "bfloat16";
    case Type::kFloat64:
      return "float64";
    case Type::kInt32:
      return "int32";
    case Type::kInt64:
      return "int64";
    case Type::kBool:
      return "bool";
  }
  return "?";
}

double decode_float16(uint16_t bits) {
  static const std::vector<double> values = decode_all(10, 15);
  return values[bits];
}
double decode_bfloat16(uint16_t bits) {
  static const std::vector<double> values = decode_all(7, 127);
  return values[bits];
}
uint16_t encode_float16(double value) { return encode(value, 10, 15); }
uint16_t encode_bfloat16(double value) { return encode(value, 7, 127); }

double load(const void* address, Type type) {
  switch (type) {
    case Type::kFloat32:
      return read<float>(address);
    case Type::kFloat64:
      return read<double>(address);
    case Type::kInt32:
      return read<int32_t>(address);
    case Type::kInt64:
      return read<int64_t>(address);
    case Type::kBool:
      return read<uint8_t>(address) != 0;
    case Type::kFloat16:
    case Type::kBfloat16: {
      uint16_t bits;
      std::memcpy(&bits, address, sizeof bits);
      return type == Type::kFloat16 ? decode_float16(bits) : decode_bfloat16(bits);
    }
  }
  return 0;
}

void store(void* address, Type type, double value) {
  switch (type) {
    case Type::kFloat32:
      return write(address, static_cast<float>(value));
    case Type::kFloat64:
      return write(address, value);
    case Type::kInt32:
      return write(address, static_cast<int32_t>(value));
    case Type::kInt64:
      return write(address, static_cast<int64_t>(value));
    case Type::kBool:
      return write<uint8_t>(address, value != 0);
    case Type::kFloat16:
      return write(address, encode_float16(value));
    case Type::kBfloat16:
      return write(address, encode_bfloat16(value));
  }
}

double round_to(Type type, double value) {
  unsigned char bytes[8];
  store(bytes, type, value);
  return load(bytes, type);
}

double epsilon_of(Type type) {
  switch (type) {
    case Type::kFloat32:
      return std::ldexp(1.0, -23);
    case Type::kFloat16:
      return std::ldexp(1.0, -10);
    case Type::kBfloat16:
      return std::ldexp(1.0, -7);
    default:
      return std::ldexp(1.0, -52);
  }
}

double tiny_of(Type type) {
  switch (type) {
    case Type::kFloat32:
      return std::ldexp(1.0, -149);
    case Type::kFloat16:
      return std::ldexp(1.0, -24);
    case Type::kBfloat16:
      return std::ldexp(1.0, -133);
    default:
      return std::ldexp(1.0, -1074);
  }
}

}  // namespace attn::test
