// Strided views of tensors, and where a tensor lies.
#pragma once

#include <cstdint>

namespace attn {

// A strided (batch, head, row, channel) view. `data` is the address of element (0, 0, 0, 0); it is
// null while only shapes are known (plan, query) and never read there.
struct View4 {
  void* data = nullptr;
  int64_t batch = 0;
  int64_t head = 0;
  int64_t row = 0;
  int64_t channel = 1;
  int64_t rows = 0;  // rows that the buffer holds: no engine touches a row beyond
};

enum class Placement : uint8_t { kAbsent, kHost, kDevice };

}  // namespace attn
