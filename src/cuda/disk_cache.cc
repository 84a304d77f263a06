#include "cuda/disk_cache.h"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <ctime>
#include <string_view>
#include <thread>
#include <vector>

#include "core/error.h"

namespace attn::cuda {
namespace {

constexpr uint64_t kDefaultLimit = uint64_t{256} << 20;
constexpr char kMagic[8] = {'a', 't', 't', 'n', 'c', 'u', 'b', '1'};

struct Header {
  char magic[8];
  uint64_t key_bytes;
  uint64_t content_bytes;
  uint64_t checksum;  // of key and content
};

// FNV-1a: finds damage, not tampering.
uint64_t hash(const std::string& text, uint64_t seed) {
  uint64_t value = 14695981039346656037ull ^ seed;
  for (unsigned char c : text) value = (value ^ c) * 1099511628211ull;
  return value;
}

std::string hex(uint64_t value) {
  std::string out(16, '0');
  for (int i = 15; i >= 0; --i, value >>= 4) out[i] = "0123456789abcdef"[value & 15];
  return out;
}

bool read_all(int fd, void* target, size_t bytes) {
  auto* at = static_cast<char*>(target);
  while (bytes > 0) {
    ssize_t got = ::read(fd, at, bytes);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    at += got;
    bytes -= static_cast<size_t>(got);
  }
  return true;
}

// A file that grows beyond the process's limit is a failed write, not the signal that would end the
// process: it is blocked in this thread, and taken if it came.
class NoFileSizeSignal {
 public:
  NoFileSizeSignal() {
    sigemptyset(&signal_);
    sigaddset(&signal_, SIGXFSZ);
    sigset_t pending;
    was_pending_ = sigpending(&pending) == 0 && sigismember(&pending, SIGXFSZ) == 1;
    pthread_sigmask(SIG_BLOCK, &signal_, &before_);
  }
  ~NoFileSizeSignal() {
    const timespec now{};
    if (!was_pending_) sigtimedwait(&signal_, nullptr, &now);
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  NoFileSizeSignal(const NoFileSizeSignal&) = delete;
  NoFileSizeSignal& operator=(const NoFileSizeSignal&) = delete;

 private:
  sigset_t signal_, before_;
  bool was_pending_;
};

bool write_all(int fd, const void* source, size_t bytes) {
  const auto* at = static_cast<const char*>(source);
  while (bytes > 0) {
    ssize_t put = ::write(fd, at, bytes);
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) return false;
    at += put;
    bytes -= static_cast<size_t>(put);
  }
  return true;
}

class File {
 public:
  explicit File(int fd) : fd_(fd) {}
  ~File() {
    if (fd_ >= 0) close(fd_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  operator int() const { return fd_; }

 private:
  int fd_;
};

// Names of ours in the folder: 32 hexadecimal digits with a suffix, and files being written.
constexpr std::string_view kEntry = ".cubin", kLock = ".lock", kTemporary = "tmp.";
constexpr size_t kDigits = 32;
constexpr time_t kAbandonedAfter = 3600;  // seconds that no write takes

bool is_ours(std::string_view name, std::string_view suffix) {
  return name.size() == kDigits + suffix.size() && name.ends_with(suffix) &&
         name.find_first_not_of("0123456789abcdef") == kDigits;
}

std::string default_folder() {
  const char* base = secure_getenv("XDG_CACHE_HOME");
  if (base != nullptr && base[0] == '/') return std::string(base) + "/attn_c";
  base = secure_getenv("HOME");
  if (base != nullptr && base[0] == '/') return std::string(base) + "/.cache/attn_c";
  return {};
}

}  // namespace

DiskCache::DiskCache(std::string folder, uint64_t limit_bytes, bool enabled)
    : folder_(folder.empty() ? default_folder() : std::move(folder)),
      limit_bytes_(limit_bytes == 0 ? kDefaultLimit : limit_bytes) {
  if (!enabled) folder_.clear();
}

DiskCache::Lock::~Lock() {
  if (fd_ < 0) return;
  flock(fd_, LOCK_UN);  // a process forked meanwhile may hold the same file open
  close(fd_);
}

std::string DiskCache::path(const std::string& key, std::string_view suffix) const {
  return cat(folder_, "/", hex(hash(key, 0)), hex(hash(key, 0x9e3779b97f4a7c15ull)), suffix);
}

// A directory of the user's that nobody else may write to.
bool DiskCache::folder_is_safe() const {
  struct stat info{};
  return !folder_.empty() && lstat(folder_.c_str(), &info) == 0 && S_ISDIR(info.st_mode) &&
         info.st_uid == geteuid() && (info.st_mode & 022) == 0;
}

bool DiskCache::make_folder() const {
  if (folder_.empty()) return false;
  for (size_t slash = folder_.find('/', 1);; slash = folder_.find('/', slash + 1)) {
    mkdir(folder_.substr(0, slash).c_str(), 0700);
    if (slash == std::string::npos) break;
  }
  return folder_is_safe();
}

std::optional<std::string> DiskCache::read(const std::string& key) const {
  if (!folder_is_safe()) return std::nullopt;
  const std::string name = path(key, kEntry);
  File file(open(name.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  Header header{};
  struct stat info{};
  if (file < 0 || fstat(file, &info) != 0 || info.st_uid != geteuid() ||
      !read_all(file, &header, sizeof header) ||
      std::memcmp(header.magic, kMagic, sizeof kMagic) != 0 || header.key_bytes != key.size() ||
      header.content_bytes > static_cast<uint64_t>(info.st_size)) {
    return std::nullopt;
  }
  std::string stored(header.key_bytes, '\0'), content(header.content_bytes, '\0');
  if (!read_all(file, stored.data(), stored.size()) || stored != key ||
      !read_all(file, content.data(), content.size()) ||
      hash(content, hash(stored, 0)) != header.checksum) {
    return std::nullopt;
  }
  futimens(file, nullptr);  // recently used, for shrink()
  return content;
}

DiskCache::Lock DiskCache::lock(const std::string& key, int patience_milliseconds) const {
  using Clock = std::chrono::steady_clock;
  if (!make_folder()) return Lock(-1);
  const std::string name = path(key, kLock);
  const int fd = open(name.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0) return Lock(-1);
  const auto deadline = Clock::now() + std::chrono::milliseconds(patience_milliseconds);
  while (flock(fd, LOCK_EX | LOCK_NB) != 0) {
    if ((errno != EWOULDBLOCK && errno != EINTR) || Clock::now() >= deadline) {
      close(fd);
      return Lock(-1);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return Lock(fd);
}

void DiskCache::write(const std::string& key, const std::string& content) const {
  if (!make_folder()) return;
  const NoFileSizeSignal no_signal;
  std::string temporary = cat(folder_, "/tmp.XXXXXX");
  const int fd = mkostemp(temporary.data(), O_CLOEXEC);
  if (fd < 0) return;
  Header header{};
  std::memcpy(header.magic, kMagic, sizeof kMagic);
  header.key_bytes = key.size();
  header.content_bytes = content.size();
  header.checksum = hash(content, hash(key, 0));
  bool good = write_all(fd, &header, sizeof header) && write_all(fd, key.data(), key.size()) &&
              write_all(fd, content.data(), content.size()) && fsync(fd) == 0;
  close(fd);
  if (!good || rename(temporary.c_str(), path(key, kEntry).c_str()) != 0) {
    unlink(temporary.c_str());
    return;
  }
  shrink();
}

// Removes the entries that were used longest ago until the folder fits its limit, and what a writer
// left behind that did not live to rename it. What is not ours stays.
void DiskCache::shrink() const {
  struct Entry {
    std::string path;
    uint64_t bytes;
    int64_t used;
  };
  std::vector<Entry> entries;
  uint64_t total = 0;
  DIR* folder = opendir(folder_.c_str());
  if (folder == nullptr) return;
  // NOLINTNEXTLINE(concurrency-mt-unsafe): safe on a stream of its own
  while (const dirent* item = readdir(folder)) {
    const std::string_view file = item->d_name;
    const bool temporary = file.starts_with(kTemporary);
    if (!temporary && !is_ours(file, kEntry)) continue;
    std::string name = cat(folder_, "/", file);
    struct stat info{};
    if (lstat(name.c_str(), &info) != 0 || !S_ISREG(info.st_mode)) continue;
    if (temporary) {
      if (time(nullptr) - info.st_mtim.tv_sec > kAbandonedAfter) unlink(name.c_str());
      continue;
    }
    entries.push_back({name, static_cast<uint64_t>(info.st_size),
                       info.st_mtim.tv_sec * int64_t{1000000000} + info.st_mtim.tv_nsec});
    total += entries.back().bytes;
  }
  closedir(folder);
  std::sort(entries.begin(), entries.end(),
            [](const Entry& a, const Entry& b) { return a.used < b.used; });
  for (const Entry& entry : entries) {
    if (total <= limit_bytes_) break;
    if (unlink(entry.path.c_str()) != 0) continue;
    total -= entry.bytes;
    // Its lock too: at worst, two processes compile this key at once.
    std::string lock = entry.path;
    lock.replace(lock.size() - kEntry.size(), kEntry.size(), kLock);
    unlink(lock.c_str());
  }
}

}  // namespace attn::cuda
