// How much memory this process holds.
#pragma once

#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>

namespace attn::native {

// Resident bytes of the process; 0 where the system does not tell.
inline int64_t resident_bytes() {
  char line[256] = "";
  std::FILE* file = std::fopen("/proc/self/statm", "r");
  if (file == nullptr) return 0;
  const char* read = std::fgets(line, sizeof line, file);
  std::fclose(file);
  if (read == nullptr) return 0;
  char* second = nullptr;  // pages in all, then those that are resident
  std::strtoll(line, &second, 10);
  return std::strtoll(second, nullptr, 10) * sysconf(_SC_PAGESIZE);
}

}  // namespace attn::native
