#include "cuda/cubin_pack.h"

#include <stdlib.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "core/error.h"
#include "cuda/kernel_sources.h"
#include "cuda/shared_library.h"

namespace attn::cuda {
namespace {

constexpr const char* kFileName = "attn_c_kernels.pack";
constexpr uint64_t kMaxKey = 1 << 16;

struct Close {
  void operator()(FILE* file) const { fclose(file); }
};
using File = std::unique_ptr<FILE, Close>;

uint64_t fnv(const char* data, size_t bytes, uint64_t value = 14695981039346656037ull) {
  for (size_t i = 0; i < bytes; ++i) {
    value = (value ^ static_cast<unsigned char>(data[i])) * 1099511628211ull;
  }
  return value;
}

// Beside the library under the name that it was opened by, or beside the file that this links to.
std::string pack_beside_library() {
  std::string self = file_of_symbol(reinterpret_cast<const void*>(&pack_key));
  for (int i = 0; i < 2; ++i) {
    const size_t slash = self.rfind('/');
    if (slash == std::string::npos) return {};
    std::string pack = self.substr(0, slash + 1) + kFileName;
    if (i == 1 || access(pack.c_str(), R_OK) == 0) return pack;
    char* real = realpath(self.c_str(), nullptr);
    if (real == nullptr) return {};
    self = real;
    std::free(real);
  }
  return {};
}

}  // namespace

CubinPack::CubinPack() : CubinPack(pack_beside_library()) {}

CubinPack::CubinPack(const std::string& path) : path_(path) {
  if (!path_.empty()) read_index();
}

void CubinPack::read_index() {
  File file(fopen(path_.c_str(), "rbe"));
  char magic[8];
  uint64_t count = 0;
  if (file == nullptr || fread(magic, 1, 8, file.get()) != 8 ||
      std::memcmp(magic, "ATTNPAK1", 8) != 0 || fread(&count, 8, 1, file.get()) != 1) {
    return;
  }
  for (uint64_t i = 0; i < count; ++i) {
    uint64_t fields[4];
    if (fread(fields, 8, 4, file.get()) != 4 || fields[0] > kMaxKey) return;
    std::string key(fields[0], '\0');
    if (fread(key.data(), key.size(), 1, file.get()) != 1) return;
    entries_[std::move(key)] = {fields[1], fields[2], fields[3]};
  }
}

std::optional<std::string> CubinPack::find(const std::string& key) const {
  const auto entry = entries_.find(key);
  if (entry == entries_.end()) return std::nullopt;
  File file(fopen(path_.c_str(), "rbe"));
  if (file == nullptr || fseek(file.get(), 0, SEEK_END) != 0) return std::nullopt;
  const auto size = static_cast<uint64_t>(ftell(file.get()));
  if (entry->second.offset > size || entry->second.bytes > size - entry->second.offset ||
      fseek(file.get(), static_cast<long>(entry->second.offset), SEEK_SET) != 0) {
    return std::nullopt;
  }
  std::string content(entry->second.bytes, '\0');
  if (fread(content.data(), 1, content.size(), file.get()) != content.size() ||
      fnv(content.data(), content.size()) != entry->second.checksum) {
    return std::nullopt;
  }
  return content;
}

const std::string& kernel_sources_digest() {
  static const std::string* digest = [] {
    uint64_t value = 14695981039346656037ull;
    for (const KernelSource& source : kernel_sources()) {
      value = fnv(source.name, std::strlen(source.name) + 1, value);
      value = fnv(source.text, std::strlen(source.text) + 1, value);
    }
    auto* text = new std::string;
    for (int shift = 60; shift >= 0; shift -= 4) *text += "0123456789abcdef"[value >> shift & 15];
    return text;
  }();
  return *digest;
}

std::string pack_key(const std::string& target, const std::string& variant_text) {
  return cat(target, " ", kernel_sources_digest(), " ", variant_text);
}

}  // namespace attn::cuda
