// Text that leaves the library: fixed fields of structs and the two-call rule.
#pragma once

#include <cstddef>
#include <string_view>

namespace attn::api {

// The longest prefix of `text` that fits `bytes` and ends with a whole UTF-8 character.
std::string_view utf8_prefix(std::string_view text, size_t bytes);

// Copies as much as fits, always terminated. Returns whether all of it did. A capacity of 0 writes
// nothing. Bytes that are no UTF-8 (paths and variables of the environment hold any) become '?'.
bool copy_text(char* target, size_t capacity, std::string_view text);

template <size_t kCapacity>
bool copy_text(char (&target)[kCapacity], std::string_view text) {
  return copy_text(target, kCapacity, text);
}

// The two-call rule: `*needed` (unless null) becomes the bytes with the terminator, `buffer` gets
// what fits. Throws INVALID_ARGUMENT for a null buffer with a capacity.
void write_text(std::string_view text, char* buffer, size_t capacity, size_t* needed);

}  // namespace attn::api
