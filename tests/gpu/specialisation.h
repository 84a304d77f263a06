// The specialisations that the GPU matrix may use: everything that a kernel is compiled for. Sizes,
// lengths, strides, windows and the rest vary freely inside each.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "matrix/gqa_outline.h"

namespace attn::gpu {

struct Specialisation {
  test::Type type = test::Type::kFloat16;
  int64_t size = 128;
  bool bias = false;
  bool sink = false;    // a value a head
  bool smooth = false;  // a zero in the denominator
  bool softcap = false;
  bool log_sum_exp = false;
  bool transform = false;  // queries are normalised or rotated inside
  bool negative_scale = false;
};

// Every 16-bit row is compiled for three engines, every float32 row for one; the generic engine and
// the KV update are compiled once a type: 14 * 3 + 14 + 3 + 3 = 62 kernels, at most 64.
std::span<const Specialisation> specialisations();

std::string text_of(const Specialisation& spec);

// Whether the engine of this name serves the type of `spec` at all.
bool serves(const std::string& engine, const Specialisation& spec);

// What a draw prefers, so that each engine gets its share of problems.
enum class Wish : uint8_t {
  kAny,
  kFewRows,   // what the decode engine takes: at most 8 query rows, 64 with the heads of a group
  kFastOnes,  // no strides that only the generic engine takes
  kManyRows,  // the same, and at least the 32 query rows that the Hopper engine wants
};

// A random outline inside the specialisation. Equal arguments draw equal outlines.
matrix::GqaOutline draw_inside(const Specialisation& spec, uint64_t seed, Wish wish);

}  // namespace attn::gpu
