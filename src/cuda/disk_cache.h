// Cubins on disk, one file a key. Entries appear by atomic rename; a damaged one is a miss; the
// folder is the user's own (0700), bounded in size, and optional: no failure here is an error.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace attn::cuda {

class DiskCache {
 public:
  // `folder` empty: $XDG_CACHE_HOME/attn_c or $HOME/.cache/attn_c; without either the cache is off.
  // `limit_bytes` 0: 256 MiB. Touches nothing yet.
  DiskCache(std::string folder, uint64_t limit_bytes, bool enabled);

  // Held while one process compiles a key, so that the others wait and then find the entry.
  class Lock {
   public:
    explicit Lock(int fd) : fd_(fd) {}
    Lock(Lock&& other) noexcept : fd_(other.fd_) { other.fd_ = -1; }
    Lock& operator=(Lock&&) = delete;
    ~Lock();

   private:
    int fd_;
  };

  std::optional<std::string> read(const std::string& key) const;
  Lock lock(const std::string& key) const;
  void write(const std::string& key, const std::string& content) const;
  const std::string& folder() const { return folder_; }  // empty: off

 private:
  bool make_folder() const;
  void shrink() const;
  std::string path(const std::string& key, const char* suffix) const;
  std::string folder_;
  uint64_t limit_bytes_;
};

}  // namespace attn::cuda
