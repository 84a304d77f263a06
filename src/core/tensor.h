// A tensor as the library sees it after the C descriptor was checked.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "core/dtype.h"
#include "core/problem.h"

namespace attn {

inline constexpr int kMaxRank = 8;
inline constexpr int64_t kAnyDim = -1;  // in a query: any size

struct Tensor {
  bool present = false;
  Placement placement = Placement::kAbsent;
  DType type{};
  int32_t rank = 0;
  std::array<int64_t, kMaxRank> shape{};
  std::array<int64_t, kMaxRank> strides{};  // elements
  void* data = nullptr;                     // byte_offset applied; null while only shapes are known
  int64_t elements() const;                 // -1 while a size is unknown
  bool contiguous() const;                  // row-major, no gaps
};

std::string shape_text(const Tensor& tensor);  // "(2, 5, 512)", "?" for an unknown size

// The arguments of one call, indexed by position in the operator's schema (not by slot number).
inline constexpr int kMaxInputs = 24;
inline constexpr int kMaxOutputs = 8;

struct Arguments {
  std::array<Tensor, kMaxInputs> in;
  std::array<Tensor, kMaxOutputs> out;
  // Pairs that are said to share memory although no data is bound (query, prepare): bit i of
  // alias[o] means output o aliases input i. With data bound it follows from the addresses.
  std::array<uint32_t, kMaxOutputs> alias{};
  bool aliases(int input, int output) const;
};

}  // namespace attn
