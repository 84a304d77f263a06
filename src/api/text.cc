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

namespace {

// Bytes of the UTF-8 character that `text` begins with, 0 where it begins with none: no overlong
// form, no surrogate, nothing beyond U+10FFFF.
size_t character_bytes(std::string_view text) {
  const auto byte = [&text](size_t at) -> unsigned {
    return at < text.size() ? static_cast<unsigned char>(text[at]) : 0u;
  };
  const unsigned lead = byte(0);
  if (lead < 0x80u) return 1;
  const size_t bytes = lead >= 0xf0u ? 4 : lead >= 0xe0u ? 3 : 2;
  const unsigned least = lead == 0xe0u ? 0xa0u : lead == 0xf0u ? 0x90u : 0x80u;
  const unsigned most = lead == 0xedu ? 0x9fu : lead == 0xf4u ? 0x8fu : 0xbfu;
  if (lead < 0xc2u || lead > 0xf4u || byte(1) < least || byte(1) > most) return 0;
  for (size_t at = 2; at < bytes; ++at) {
    if ((byte(at) & 0xc0u) != 0x80u) return 0;
  }
  return bytes;
}

}  // namespace

bool copy_text(char* target, size_t capacity, std::string_view text) {
  if (capacity == 0) return text.empty();
  const std::string_view part = utf8_prefix(text, capacity - 1);
  if (!part.empty()) std::memcpy(target, part.data(), part.size());
  target[part.size()] = '\0';
  for (size_t at = 0; at < part.size();) {
    const size_t bytes = character_bytes(part.substr(at));
    if (bytes == 0) target[at] = '?';
    at += bytes == 0 ? 1 : bytes;
  }
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
