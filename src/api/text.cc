#include "api/text.h"

#include <cstring>

#include "core/error.h"

namespace attn::api {

std::string_view utf8_prefix(std::string_view text, size_t bytes) {
  if (text.size() <= bytes) return text;
  const auto continues = [&text](size_t at) {
    return (static_cast<unsigned char>(text[at]) & 0xc0u) == 0x80u;
  };
  while (bytes > 0 && continues(bytes)) --bytes;
  return text.substr(0, bytes);
}

bool copy_text(char* target, size_t capacity, std::string_view text) {
  if (capacity == 0) return text.empty();
  const std::string_view part = utf8_prefix(text, capacity - 1);
  if (!part.empty()) std::memcpy(target, part.data(), part.size());
  target[part.size()] = '\0';
  return part.size() == text.size();
}

void write_text(std::string_view text, char* buffer, size_t capacity, size_t* needed) {
  if (buffer == nullptr && capacity != 0) {
    fail_argument("buffer is null, but capacity is ", capacity, "; to ask for the size pass 0");
  }
  if (needed != nullptr) *needed = text.size() + 1;
  copy_text(buffer, capacity, text);
}

}  // namespace attn::api
