// The struct_size rule: how growable structs come in and go out. Frozen structs do not pass here.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "core/error.h"

namespace attn::api {

inline constexpr uint32_t kMinStructSize = 8;
// No struct will grow beyond this: a larger struct_size is garbage, and nothing behind it is read.
inline constexpr uint32_t kMaxStructSize = 4096;

// Reads the size word of a struct that need not be aligned.
inline uint32_t struct_size_of(const void* value) {
  uint32_t size;
  std::memcpy(&size, value, sizeof size);
  return size;
}

[[noreturn]] void fail_struct_size(const char* name, uint32_t size, size_t ours);

// Checks a struct_size: throws INVALID_ARGUMENT, calling the struct `name`.
inline uint32_t checked_struct_size(const void* value, const char* name, size_t ours) {
  if (value == nullptr) fail_argument(name, " is null");
  const uint32_t size = struct_size_of(value);
  if (size < kMinStructSize || size > kMaxStructSize) fail_struct_size(name, size, ours);
  return size;
}

// Copies `size` bytes of the caller's struct into `ours` bytes; throws VERSION if a tail that this
// library does not know is not zero, INVALID_ARGUMENT for a size that no struct has.
void copy_struct_tail_checked(const void* source, uint32_t size, void* target, size_t ours,
                              const char* name);

// The caller's struct in this library's size: what it lacks is zero.
template <class T>
void copy_in(const T* source, const char* name, T& target) {
  const uint32_t size = checked_struct_size(source, name, sizeof(T));
  if (size == sizeof(T)) {
    std::memcpy(&target, source, sizeof(T));
  } else {
    copy_struct_tail_checked(source, size, &target, sizeof(T), name);
  }
}

template <class T>
T copy_in(const T* source, const char* name) {
  T target;
  copy_in(source, name, target);
  return target;
}

// For optional structs: null means all defaults.
template <class T>
T copy_in_or_default(const T* source, const char* name) {
  if (source != nullptr) return copy_in(source, name);
  T target{};
  target.struct_size = sizeof(T);
  return target;
}

// A struct that goes out. Made first, so that a bad size is refused before any work; nothing is
// written until `write`.
template <class T>
class OutStruct {
 public:
  OutStruct(T* target, const char* name)
      : target_(target), size_(checked_struct_size(target, name, sizeof(T))) {}

  // Writes what the caller's struct holds; its struct_size stays.
  void write(T& value) const {
    value.struct_size = size_;
    char* bytes = reinterpret_cast<char*>(target_);
    std::memcpy(bytes, &value, std::min<size_t>(size_, sizeof(T)));
    if (size_ > sizeof(T)) std::memset(bytes + sizeof(T), 0, size_ - sizeof(T));
  }

 private:
  T* target_;
  uint32_t size_;
};

// Throws INVALID_ARGUMENT if `flags` has a bit outside `known`.
inline void check_flags(uint32_t flags, uint32_t known, const char* name) {
  if ((flags & ~known) != 0) {
    fail_argument(name, ".flags is ", flags, ", of which ", flags & ~known,
                  " is unknown; the known bits are ", known);
  }
}

inline void check_reserved(uint32_t reserved, const char* name) {
  if (reserved != 0) fail_argument(name, ".reserved is ", reserved, "; it must be 0");
}

}  // namespace attn::api
