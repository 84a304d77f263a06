#include "api/guard.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <iterator>

#include "api/struct_io.h"
#include "api/text.h"

namespace attn::api {
namespace {

constexpr size_t kMessage = offsetof(attn_error, message);

// The caller's struct_size, 0 where nothing may be written.
size_t writable_size(const attn_error* error) {
  if (error == nullptr) return 0;
  const uint32_t size = struct_size_of(error);
  return size < kMinStructSize || size > kMaxStructSize ? 0 : size;
}

}  // namespace

void report_success(attn_error* error) noexcept {
  if (writable_size(error) == 0) return;
  const attn_status status = ATTN_OK;
  std::memcpy(reinterpret_cast<char*>(error) + offsetof(attn_error, status), &status,
              sizeof status);
}

void report_failure(attn_error* error, attn_status status, std::string_view subject,
                    std::string_view message, const NativeError& native) noexcept {
  const size_t size = writable_size(error);
  if (size == 0) return;
  attn_error filled{};
  filled.struct_size = static_cast<uint32_t>(size);
  filled.status = status;
  filled.native_code = native.code;
  filled.native_domain = native.domain;
  if (native.sticky) filled.flags |= ATTN_ERROR_STICKY;

  const size_t room = size > kMessage ? std::min(size, sizeof filled) - kMessage : 0;
  bool whole = room > 0;
  size_t used = 0;
  for (const std::string_view part :
       {subject, std::string_view(subject.empty() ? "" : ": "), message}) {
    if (!whole) break;
    whole = copy_text(filled.message + used, room - used, part);
    used += whole ? part.size() : 0;
  }
  if (!whole) filled.flags |= ATTN_ERROR_TRUNCATED;

  // A number that the caller's struct only holds in part keeps its content.
  size_t bytes = std::min(size, sizeof filled);
  if (bytes < kMessage) {
    constexpr size_t kEnds[] = {offsetof(attn_error, flags), offsetof(attn_error, native_domain),
                                offsetof(attn_error, native_code)};
    bytes = *std::find_if(std::begin(kEnds), std::end(kEnds),
                          [bytes](size_t end) { return end <= bytes; });
  }
  char* target = reinterpret_cast<char*>(error);
  std::memcpy(target, &filled, bytes);
  if (size > sizeof filled) std::memset(target + sizeof filled, 0, size - sizeof filled);
}

}  // namespace attn::api
