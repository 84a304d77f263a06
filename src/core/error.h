// The one exception of the library. It is thrown below the C boundary and never crosses it.
#pragma once

#include <cstdint>
#include <exception>
#include <string>
#include <string_view>
#include <type_traits>

#include "attn_c.h"

namespace attn {

// The code of a library or of the system that an error comes from.
struct NativeError {
  int64_t code = 0;
  uint32_t domain = ATTN_DOMAIN_NONE;
  bool sticky = false;  // the device context is lost
};

class Error : public std::exception {
 public:
  Error(attn_status status, std::string message, NativeError native = {})
      : status_(status), native_(native), message_(std::move(message)) {}
  attn_status status() const { return status_; }
  const NativeError& native() const { return native_; }
  const std::string& message() const { return message_; }
  const char* what() const noexcept override { return message_.c_str(); }

 private:
  attn_status status_;
  NativeError native_;
  std::string message_;
};

namespace detail {
inline void append(std::string& out, std::string_view text) { out.append(text); }
inline void append(std::string& out, char c) { out.push_back(c); }
void append_number(std::string& out, int64_t value);
void append_number(std::string& out, uint64_t value);
void append_number(std::string& out, double value);
template <class T>
  requires std::is_arithmetic_v<T>
void append(std::string& out, T value) {
  if constexpr (std::is_floating_point_v<T>) {
    append_number(out, static_cast<double>(value));
  } else if constexpr (std::is_signed_v<T>) {
    append_number(out, static_cast<int64_t>(value));
  } else {
    append_number(out, static_cast<uint64_t>(value));
  }
}
}  // namespace detail

// Concatenates texts and numbers, independent of the caller's locale.
template <class... Parts>
std::string cat(const Parts&... parts) {
  std::string out;
  (detail::append(out, parts), ...);
  return out;
}

[[noreturn]] void throw_error(attn_status status, std::string message, NativeError native = {});

template <class... Parts>
[[noreturn]] void fail_argument(const Parts&... parts) {
  throw_error(ATTN_INVALID_ARGUMENT, cat(parts...));
}
template <class... Parts>
[[noreturn]] void fail_unsupported(const Parts&... parts) {
  throw_error(ATTN_UNSUPPORTED, cat(parts...));
}

}  // namespace attn
