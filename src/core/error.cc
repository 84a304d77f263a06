#include "core/error.h"

#include <charconv>

namespace attn {
namespace detail {
namespace {

template <class T>
void append_chars(std::string& out, T value) {
  char text[64];
  const std::to_chars_result result = std::to_chars(text, text + sizeof text, value);
  out.append(text, result.ptr);
}

}  // namespace

void append_number(std::string& out, int64_t value) { append_chars(out, value); }
void append_number(std::string& out, uint64_t value) { append_chars(out, value); }
void append_number(std::string& out, double value) { append_chars(out, value); }

}  // namespace detail

void throw_error(attn_status status, std::string message, NativeError native) {
  throw Error(status, std::move(message), native);
}

}  // namespace attn
