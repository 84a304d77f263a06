// How much memory this process holds.
#pragma once

#include <unistd.h>

#include <cstdint>
#include <cstdio>

namespace attn::native {

// Resident bytes of the process; 0 where the system does not tell.
inline int64_t resident_bytes() {
  long long total = 0, resident = 0;
  std::FILE* file = std::fopen("/proc/self/statm", "r");
  if (file == nullptr) return 0;
  if (std::fscanf(file, "%lld %lld", &total, &resident) != 2) resident = 0;
  std::fclose(file);
  return resident * sysconf(_SC_PAGESIZE);
}

}  // namespace attn::native
