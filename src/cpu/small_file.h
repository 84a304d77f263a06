// Reading what the system tells in small files.
#pragma once

#include <cstdio>
#include <memory>
#include <string>

namespace attn::cpu {

// The first kilobytes of a small file; empty if it cannot be read.
inline std::string read_small_file(const std::string& path) {
  std::unique_ptr<FILE, int (*)(FILE*)> file(std::fopen(path.c_str(), "re"), &std::fclose);
  if (file == nullptr) return {};
  char text[16384];
  return std::string(text, std::fread(text, 1, sizeof text, file.get()));
}

}  // namespace attn::cpu
