// Ready cubins in one file beside the library, so that common shapes need no compiler. Made at
// build time by tools/make_kernel_pack.py.
//
// Layout, little endian: "ATTNPAK1", u64 entries, then for each entry u64 key bytes, u64 content
// offset from the file's start, u64 content bytes, u64 checksum (FNV-1a of the content), the key's
// bytes; then the contents.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>

namespace attn::cuda {

class CubinPack {
 public:
  // Reads the index of the file beside this library; without one every lookup misses.
  CubinPack();
  explicit CubinPack(const std::string& path);
  std::optional<std::string> find(const std::string& key) const;
  size_t size() const { return entries_.size(); }

 private:
  struct Entry {
    uint64_t offset;
    uint64_t bytes;
    uint64_t checksum;
  };
  void read_index();
  std::string path_;
  std::unordered_map<std::string, Entry> entries_;
};

// What the entries are keyed by: target, kernel texts (hashed) and the variant's text. The
// compiler's version is not part of it: a pack is one build's.
std::string pack_key(const std::string& target, const std::string& variant_text);

// FNV-1a over every kernel text, in hexadecimal: changes with any of them.
const std::string& kernel_sources_digest();

}  // namespace attn::cuda
