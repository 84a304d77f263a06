// Bytes of a fuzz input as choices, and caller's memory in which every byte too many is seen.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

namespace attn::fuzz {

// Takes bytes from the front; zeros once they are used up.
class Input {
 public:
  Input(const uint8_t* data, size_t size) : data_(data), left_(size) {}
  ~Input() {
    for (void* block : blocks_) std::free(block);
  }
  Input(const Input&) = delete;
  Input& operator=(const Input&) = delete;

  bool empty() const { return left_ == 0; }

  uint8_t byte() {
    if (left_ == 0) return 0;
    --left_;
    return *data_++;
  }

  template <class T>
  T integer() {
    uint64_t value = 0;
    for (size_t i = 0; i < sizeof(T); ++i) value = value << 8 | byte();
    return static_cast<T>(value);
  }

  // One time in `count`.
  bool rarely(uint8_t count) { return byte() % count == count - 1; }

  template <class T>
  T one_of(std::initializer_list<T> values) {
    return values.begin()[byte() % values.size()];
  }

  // Mostly what is plausible, now and then anything.
  template <class T>
  T number(std::initializer_list<T> plausible) {
    return rarely(8) ? integer<T>() : one_of(plausible);
  }

  // A block of exactly `bytes` that lives until the input does.
  void* block(size_t bytes) {
    void* memory = std::malloc(bytes == 0 ? 1 : bytes);
    if (memory == nullptr) std::abort();
    blocks_.push_back(memory);
    return memory;
  }

  template <class T>
  T* array(size_t count) {
    return static_cast<T*>(block(count * sizeof(T)));
  }

  // Null, one of the names, or a few bytes of the input.
  const char* text(std::initializer_list<const char*> names) {
    const uint8_t choice = byte();
    if (choice % 8 == 7) return nullptr;
    if (choice % 8 == 6) {
      const size_t length = byte() % 24;
      char* copy = array<char>(length + 1);
      for (size_t i = 0; i < length; ++i) copy[i] = static_cast<char>(byte());
      copy[length] = '\0';
      return copy;
    }
    return names.begin()[choice / 8 % names.size()];
  }

  // A struct as careless callers give it: whole, null, shorter, longer, or with a size that lies.
  template <class T>
  T* given(T value) {
    size_t held = sizeof(T);
    value.struct_size = sizeof(T);
    bool dirty = false;
    switch (byte() % 16) {
      case 15:
        return nullptr;
      case 14:
        held = 8 + byte() % (sizeof(T) - 7);
        value.struct_size = static_cast<uint32_t>(held);
        break;
      case 13:
        held = sizeof(T) + 8 + integer<uint16_t>() % (4089 - sizeof(T));
        value.struct_size = static_cast<uint32_t>(held);
        dirty = byte() % 4 == 0;
        break;
      case 12:
        value.struct_size = integer<uint32_t>();
        // What the library may read must be there.
        if (value.struct_size <= 4096 && value.struct_size > held) held = value.struct_size;
        break;
      default:
        break;
    }
    auto* copy = array<char>(held);
    std::memset(copy, 0, held);
    std::memcpy(copy, &value, held < sizeof(T) ? held : sizeof(T));
    if (dirty) copy[held - 1] = 1;  // in the tail that the library does not know
    return reinterpret_cast<T*>(copy);
  }

 private:
  const uint8_t* data_;
  size_t left_;
  std::vector<void*> blocks_;
};

// Live handles of one kind.
template <class T>
class Pool {
 public:
  explicit Pool(void (*release)(T*)) : release_(release) {}
  ~Pool() {
    for (T* handle : handles_) release_(handle);
  }
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  bool full() const { return handles_.size() >= 6; }
  size_t size() const { return handles_.size(); }
  void add(T* handle) {
    if (handle != nullptr) handles_.push_back(handle);
  }
  T* at(size_t index) const {
    return handles_.empty() ? nullptr : handles_[index % handles_.size()];
  }
  void drop(size_t index) {
    if (handles_.empty()) return;
    const size_t position = index % handles_.size();
    release_(handles_[position]);
    handles_.erase(handles_.begin() + static_cast<std::ptrdiff_t>(position));
  }

 private:
  void (*release_)(T*);
  std::vector<T*> handles_;
};

}  // namespace attn::fuzz
