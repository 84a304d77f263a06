#include "api/environment.h"

#include <charconv>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <string_view>

#include "attn_c.h"
#include "core/error.h"

namespace attn::api {
namespace {

// An empty variable counts as not set.
std::string_view read(const char* name) {
  const char* value = secure_getenv(name);
  return value == nullptr ? std::string_view() : std::string_view(value);
}

int32_t read_thread_count(const char* name) {
  const std::string_view text = read(name);
  if (text.empty()) return 0;
  int32_t value = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (problem != std::errc() || end != text.data() + text.size() || value < 1) {
    fail_argument("environment variable ", name, " is '", text, "'; a number from 1 is accepted");
  }
  return value;
}

int32_t read_log_level(const char* name) {
  const std::string_view text = read(name);
  if (text.empty()) return 0;
  constexpr std::string_view kLevels[] = {"debug", "info", "warning", "error"};
  for (size_t i = 0; i < std::size(kLevels); ++i) {
    if (text == kLevels[i]) return ATTN_LOG_DEBUG + static_cast<int32_t>(i);
  }
  fail_argument("environment variable ", name, " is '", text,
                "'; accepted are debug, info, warning, error");
}

bool read_switch(const char* name) {
  const std::string_view text = read(name);
  if (text.empty() || text == "0") return false;
  if (text == "1") return true;
  fail_argument("environment variable ", name, " is '", text, "'; accepted are 0 and 1");
}

}  // namespace

Environment read_environment() {
  Environment result;
  result.thread_count = read_thread_count("ATTN_C_THREAD_COUNT");
  result.log_level = read_log_level("ATTN_C_LOG_LEVEL");
  result.cache_off = read_switch("ATTN_C_CACHE_OFF");
  result.simd_level = read("ATTN_C_SIMD_LEVEL");
  result.engine = read("ATTN_C_ENGINE");
  result.driver_path = read("ATTN_C_DRIVER_PATH");
  result.nvrtc_path = read("ATTN_C_NVRTC_PATH");
  result.cache_folder = read("ATTN_C_CACHE_FOLDER");
  return result;
}

std::string environment_driver_path() { return std::string(read("ATTN_C_DRIVER_PATH")); }

}  // namespace attn::api
