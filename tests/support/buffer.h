// Memory for test tensors: fenced, poisoned, and able to tell what was written.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace attn::test {

// Where the usable bytes lie between the two fences.
enum class Placement : uint8_t {
  kFlushEnd,    // the first byte behind them is not mapped: any overrun faults
  kFlushStart,  // the first byte before them is not mapped, and they are page-aligned
};

// `bytes` of memory between two unmapped pages. What the rounding to pages leaves over is filled
// with a pattern that check() compares. The contents start as 0xCD.
class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(int64_t bytes, Placement placement = Placement::kFlushEnd);
  ~Buffer();
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other) noexcept;
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  unsigned char* data() const { return data_; }
  int64_t size() const { return size_; }
  void fill(int byte);

  // Remembers the contents; restore() brings them back.
  void snapshot();
  void restore();
  const std::vector<unsigned char>& remembered() const { return remembered_; }

  // Whether the fill around the usable bytes is whole.
  bool fences_intact() const;
  // Number of the first byte that differs from the snapshot and is not marked in `written` (one
  // flag a byte; empty: nothing may differ); -1 if there is none.
  int64_t first_change(const std::vector<bool>& written) const;

 private:
  unsigned char* mapping_ = nullptr;
  int64_t mapped_ = 0;
  unsigned char* data_ = nullptr;
  int64_t size_ = 0;
  std::vector<unsigned char> remembered_;
};

}  // namespace attn::test
