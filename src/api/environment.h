// The ATTN_C_... variables: help for debugging, without a contract (docs/environment.md).
#pragma once

#include <cstdint>
#include <string>

namespace attn::api {

// What the environment says; empty or 0 where it says nothing.
struct Environment {
  int32_t thread_count = 0;
  int32_t log_level = 0;  // ATTN_LOG_...
  bool cache_off = false;
  std::string simd_level;
  std::string engine;
  std::string driver_path;
  std::string nvrtc_path;
  std::string cache_folder;
};

// Reads it with secure_getenv: a process with raised rights sees nothing. Throws INVALID_ARGUMENT,
// naming the variable, for a value that cannot be understood.
Environment read_environment();

// ATTN_C_DRIVER_PATH alone, for the device list.
std::string environment_driver_path();

}  // namespace attn::api
