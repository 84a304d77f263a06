#include "support/buffer.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <new>
#include <utility>

namespace attn::test {
namespace {

constexpr unsigned char kFence = 0xA5;

int64_t page_bytes() {
  static const int64_t bytes = sysconf(_SC_PAGESIZE);
  return bytes;
}

}  // namespace

Buffer::Buffer(int64_t bytes, Placement placement) : size_(bytes) {
  const int64_t page = page_bytes();
  const int64_t usable = (bytes + page - 1) / page * page + (bytes == 0 ? page : 0);
  mapped_ = usable + 2 * page;
  void* mapping =
      mmap(nullptr, static_cast<size_t>(mapped_), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapping == MAP_FAILED) throw std::bad_alloc();
  mapping_ = static_cast<unsigned char*>(mapping);
  if (mprotect(mapping_ + page, static_cast<size_t>(usable), PROT_READ | PROT_WRITE) != 0) {
    munmap(mapping_, static_cast<size_t>(mapped_));
    throw std::bad_alloc();
  }
  std::memset(mapping_ + page, kFence, static_cast<size_t>(usable));
  data_ = mapping_ + page + (placement == Placement::kFlushEnd ? usable - bytes : 0);
  fill(0xCD);
}

Buffer::~Buffer() {
  if (mapping_) munmap(mapping_, static_cast<size_t>(mapped_));
}

Buffer::Buffer(Buffer&& other) noexcept { *this = std::move(other); }

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  std::swap(mapping_, other.mapping_);
  std::swap(mapped_, other.mapped_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(remembered_, other.remembered_);
  return *this;
}

void Buffer::fill(int byte) {
  if (size_ > 0) std::memset(data_, byte, static_cast<size_t>(size_));
}

void Buffer::snapshot() { remembered_.assign(data_, data_ + size_); }

void Buffer::restore() {
  if (size_ > 0) std::memcpy(data_, remembered_.data(), static_cast<size_t>(size_));
}

bool Buffer::fences_intact() const {
  if (!mapping_) return true;
  const unsigned char* first = mapping_ + page_bytes();
  const unsigned char* last = mapping_ + mapped_ - page_bytes();
  for (const unsigned char* at = first; at < data_; ++at) {
    if (*at != kFence) return false;
  }
  for (const unsigned char* at = data_ + size_; at < last; ++at) {
    if (*at != kFence) return false;
  }
  return true;
}

int64_t Buffer::first_change(const std::vector<bool>& written) const {
  if (size_ == 0 || std::memcmp(data_, remembered_.data(), static_cast<size_t>(size_)) == 0) {
    return -1;
  }
  for (int64_t i = 0; i < size_; ++i) {
    const size_t at = static_cast<size_t>(i);
    if (data_[i] != remembered_[at] && (written.empty() || !written[at])) return i;
  }
  return -1;
}

}  // namespace attn::test
