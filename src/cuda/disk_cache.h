// Cubins on disk, one file a key. Entries appear by atomic rename; a damaged one is a miss; the
// folder is made for the user alone (0700), bounded in size, and optional: no failure here is an
// error. A folder of somebody else's, or one that others may write to, is not used at all. Any
// threads and processes at once.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace attn::cuda {

class DiskCache {
 public:
  // `folder` empty: $XDG_CACHE_HOME/attn_c or $HOME/.cache/attn_c; without either the cache is off.
  // `limit_bytes` 0: 256 MiB. Touches nothing yet.
  DiskCache(std::string folder, uint64_t limit_bytes, bool enabled);

  // Held while one process compiles a key, so that the others wait and then find the entry. Empty
  // where there is no cache, or where the holder took longer than any compile does: the caller
  // then compiles by itself.
  class Lock {
   public:
    explicit Lock(int fd) : fd_(fd) {}
    bool held() const { return fd_ >= 0; }
    Lock(Lock&& other) noexcept : fd_(other.fd_) { other.fd_ = -1; }
    Lock& operator=(Lock&&) = delete;
    ~Lock();

   private:
    int fd_;
  };

  std::optional<std::string> read(const std::string& key) const;
  Lock lock(const std::string& key, int patience_milliseconds = 60000) const;
  void write(const std::string& key, const std::string& content) const;
  const std::string& folder() const { return folder_; }  // empty: off

 private:
  bool folder_is_safe() const;
  bool make_folder() const;
  void shrink() const;
  std::string path(const std::string& key, std::string_view suffix) const;
  std::string folder_;
  uint64_t limit_bytes_;
};

}  // namespace attn::cuda
