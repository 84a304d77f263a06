// Element types of test tensors and their conversions, written for the tests alone: nothing here
// comes from the library, so that a wrong conversion there cannot hide behind the same one here.
#pragma once

#include <cstdint>
#include <string>

namespace attn::test {

enum class Type : uint8_t { kFloat32, kFloat16, kBfloat16, kFloat64, kInt32, kInt64, kBool };

int64_t size_of(Type type);
std::string name_of(Type type);

// The number that a binary16 or bfloat16 bit pattern stands for.
double decode_float16(uint16_t bits);
double decode_bfloat16(uint16_t bits);

// Nearest pattern, ties to even, overflow to infinity; rounds once, from double.
uint16_t encode_float16(double value);
uint16_t encode_bfloat16(double value);

// Reads or writes one element at `address` (no alignment needed). Integers convert exactly.
double load(const void* address, Type type);
void store(void* address, Type type, double value);

// The value that `type` holds after storing `value`.
double round_to(Type type, double value);

// Distance between 1 and the next larger number of the type.
double epsilon_of(Type type);
// The smallest positive number of the type (a subnormal one).
double tiny_of(Type type);

}  // namespace attn::test
