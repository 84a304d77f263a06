// The disk cache: what is damaged or cut is a miss, its size is bounded, processes take turns.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "cuda/disk_cache.h"

namespace attn::cuda {
namespace {

namespace fs = std::filesystem;

class DiskCacheTest : public testing::Test {
 protected:
  DiskCacheTest()
      : folder_(std::string(ATTN_TEST_BINARY_DIR) + "/disk_cache_test/" +
                testing::UnitTest::GetInstance()->current_test_info()->name()) {
    make_writable();
    fs::remove_all(folder_);
  }
  ~DiskCacheTest() override {
    make_writable();
    fs::remove_all(folder_);
  }
  void make_writable() const {
    std::error_code ignored;
    fs::permissions(folder_, fs::perms::owner_all, ignored);
  }
  DiskCache cache(uint64_t limit = 0) const { return DiskCache(folder_, limit, true); }

  std::vector<fs::path> files(const std::string& extension) const {
    std::vector<fs::path> found;
    if (!fs::exists(folder_)) return found;
    for (const auto& item : fs::directory_iterator(folder_)) {
      if (item.path().extension() == extension) found.push_back(item.path());
    }
    return found;
  }
  uint64_t bytes() const {
    uint64_t sum = 0;
    for (const fs::path& file : files(".cubin")) sum += fs::file_size(file);
    return sum;
  }

  std::string folder_;
};

// Runs in a child process; what it returns.
int in_child(const std::function<int()>& work) {
  const pid_t child = fork();
  if (child == 0) _exit(work());
  int status = -1;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST_F(DiskCacheTest, ALimitOfFileSizesIsAMissAndNoSignal) {
  const int result = in_child([this] {
    const rlimit small{1000, 1000};
    if (setrlimit(RLIMIT_FSIZE, &small) != 0) return 2;
    cache().write("key", std::string(100000, 'x'));
    sigset_t blocked;
    pthread_sigmask(SIG_SETMASK, nullptr, &blocked);
    if (sigismember(&blocked, SIGXFSZ) != 0) return 3;
    return cache().read("key") == std::nullopt ? 0 : 1;
  });
  EXPECT_EQ(result, 0);
  EXPECT_TRUE(files(".cubin").empty());
}

TEST_F(DiskCacheTest, GivesBackWhatWasWritten) {
  const std::string content("binary\0content\xff", 15);
  EXPECT_EQ(cache().read("key"), std::nullopt);
  cache().write("key", content);
  EXPECT_EQ(cache().read("key"), content);
  EXPECT_EQ(cache().read("key 2"), std::nullopt);
  cache().write("key", "other");
  EXPECT_EQ(cache().read("key"), "other");
  cache().write("empty", "");
  EXPECT_EQ(cache().read("empty"), "");
}

TEST_F(DiskCacheTest, FolderIsTheUsersAlone) {
  cache().write("key", "content");
  struct stat info{};
  ASSERT_EQ(stat(folder_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700u);
  ASSERT_EQ(stat(files(".cubin").at(0).c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
}

// Every byte of an entry, and every length that is too short.
TEST_F(DiskCacheTest, DamageIsAMiss) {
  cache().write("key", "content of the entry");
  const fs::path file = files(".cubin").at(0);
  std::string good(fs::file_size(file), '\0');
  std::ifstream(file, std::ios::binary)
      .read(good.data(), static_cast<std::streamsize>(good.size()));
  const auto put = [&](const std::string& text) {
    std::ofstream(file, std::ios::binary | std::ios::trunc) << text;
  };
  for (size_t i = 0; i < good.size(); ++i) {
    std::string bad = good;
    bad[i] = static_cast<char>(bad[i] ^ 0x10);
    put(bad);
    EXPECT_EQ(cache().read("key"), std::nullopt) << "byte " << i;
    put(good.substr(0, i));
    EXPECT_EQ(cache().read("key"), std::nullopt) << i << " bytes";
  }
  put(good);
  EXPECT_EQ(cache().read("key"), "content of the entry");
  put("");
  cache().write("key", "new");
  EXPECT_EQ(cache().read("key"), "new") << "a damaged entry is replaced";
}

// Readers see an old entry or a new one, whole, while writers replace it.
TEST_F(DiskCacheTest, EntriesAppearWhole) {
  const std::string one(200000, '1'), two(150000, '2');
  cache().write("key", one);
  std::atomic<bool> stop{false};
  std::thread writer([&] {
    for (int i = 0; i < 40; ++i) cache().write("key", i % 2 == 0 ? two : one);
    stop = true;
  });
  int reads = 0;
  do {
    const auto content = cache().read("key");
    ASSERT_TRUE(content.has_value());
    ASSERT_TRUE(*content == one || *content == two);
    ++reads;
  } while (!stop);
  writer.join();
  EXPECT_GT(reads, 0);
  for (const auto& item : fs::directory_iterator(folder_)) {
    EXPECT_NE(item.path().filename().string().substr(0, 4), "tmp.") << "nothing is left behind";
  }
}

TEST_F(DiskCacheTest, SizeIsBounded) {
  const std::string content(10000, 'x');
  const DiskCache small = cache(35000);
  for (int i = 0; i < 10; ++i) {
    small.write("key " + std::to_string(i), content);
    EXPECT_LE(bytes(), 35000u);
    std::this_thread::sleep_for(std::chrono::milliseconds(15));  // times of use must differ
    if (i >= 1) {
      EXPECT_EQ(small.read("key 0"), content) << "what is used stays, at " << i;
    }
  }
  EXPECT_EQ(files(".cubin").size(), 3u);
  EXPECT_EQ(small.read("key 9"), content);
  EXPECT_EQ(small.read("key 1"), std::nullopt);
  small.write("too large", std::string(50000, 'y'));
  EXPECT_LE(bytes(), 35000u);
}

TEST_F(DiskCacheTest, OtherFilesStay) {
  cache().write("key", "content");
  const std::string name(32, 'a');
  for (const char* other : {"notes.txt", "model.cubin", "short.lock"}) {
    std::ofstream(folder_ + "/" + other) << std::string(5000, 'z');
  }
  const std::string abandoned = folder_ + "/tmp.abcdef", young = folder_ + "/tmp.uvwxyz";
  std::ofstream(abandoned) << "half an entry";
  std::ofstream(young) << "half an entry";
  fs::last_write_time(abandoned, fs::file_time_type::clock::now() - std::chrono::hours(2));
  const DiskCache tiny = cache(100);
  for (int i = 0; i < 5; ++i) tiny.write("key " + std::to_string(i), "content");
  for (const char* other : {"notes.txt", "model.cubin", "short.lock"}) {
    EXPECT_TRUE(fs::exists(folder_ + "/" + other)) << other;
  }
  EXPECT_FALSE(fs::exists(abandoned));
  EXPECT_TRUE(fs::exists(young)) << "somebody may be writing it";
}

TEST_F(DiskCacheTest, CanBeOff) {
  const DiskCache off(folder_, 0, false);
  EXPECT_EQ(off.folder(), "");
  off.write("key", "content");
  EXPECT_EQ(off.read("key"), std::nullopt);
  EXPECT_FALSE(off.lock("key").held());
  EXPECT_FALSE(fs::exists(folder_));
}

TEST_F(DiskCacheTest, WithoutAHomeItIsOff) {
  EXPECT_EQ(in_child([] {
              unsetenv("HOME");
              unsetenv("XDG_CACHE_HOME");
              const DiskCache cache("", 0, true);
              cache.write("key", "content");
              return cache.folder().empty() && !cache.read("key") ? 0 : 1;
            }),
            0);
  EXPECT_EQ(in_child([] {
              setenv("HOME", "relative/home", 1);
              unsetenv("XDG_CACHE_HOME");
              return DiskCache("", 0, true).folder().empty() ? 0 : 1;
            }),
            0);
}

TEST_F(DiskCacheTest, DefaultFolders) {
  EXPECT_EQ(in_child([&] {
              setenv("HOME", folder_.c_str(), 1);
              unsetenv("XDG_CACHE_HOME");
              const DiskCache home("", 0, true);
              home.write("key", "content");
              if (home.folder() != folder_ + "/.cache/attn_c" || !home.read("key")) return 1;
              setenv("XDG_CACHE_HOME", (folder_ + "/xdg").c_str(), 1);
              return DiskCache("", 0, true).folder() == folder_ + "/xdg/attn_c" ? 0 : 2;
            }),
            0);
}

TEST_F(DiskCacheTest, FolderThatCannotBeMade) {
  const DiskCache cache("/proc/attn_c/cache", 0, true);
  cache.write("key", "content");
  EXPECT_EQ(cache.read("key"), std::nullopt);
  EXPECT_FALSE(cache.lock("key").held());
}

// A folder that may only be read serves what it has. Root may write anywhere, so it becomes nobody.
TEST_F(DiskCacheTest, ReadOnlyFolderServesWhatItHas) {
  constexpr uid_t kNobody = 65534;
  const bool root = geteuid() == 0;
  const std::string folder =
      fs::temp_directory_path().string() + "/attn_c_read_only_" + std::to_string(getpid());
  fs::remove_all(folder);
  const int result = in_child([&] {
    if (root && seteuid(kNobody) != 0) return 10;
    const DiskCache cache(folder, 0, true);
    cache.write("key", "content");
    if (chmod(folder.c_str(), 0500) != 0) return 1;
    cache.write("other", "content");
    if (cache.read("key") != "content") return 2;
    if (cache.read("other").has_value()) return 3;
    if (cache.lock("other").held()) return 4;  // no lock file can be made
    return 0;
  });
  fs::permissions(folder, fs::perms::owner_all);
  fs::remove_all(folder);
  EXPECT_EQ(result, 0);
}

TEST_F(DiskCacheTest, FolderThatOthersMayWriteToIsRefused) {
  cache().write("key", "content");
  ASSERT_EQ(cache().read("key"), "content");
  for (const mode_t mode : {0777, 0720, 0702}) {
    ASSERT_EQ(chmod(folder_.c_str(), mode), 0);
    EXPECT_EQ(cache().read("key"), std::nullopt);
    cache().write("key 2", "content");
    EXPECT_FALSE(cache().lock("key").held());
  }
  EXPECT_EQ(files(".cubin").size(), 1u);
}

TEST_F(DiskCacheTest, ForeignFolderIsRefused) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can give a folder away";
  cache().write("key", "content");
  ASSERT_EQ(chown(folder_.c_str(), 65534, 65534), 0);
  EXPECT_EQ(cache().read("key"), std::nullopt);
  cache().write("key 2", "content");
  ASSERT_EQ(chown(folder_.c_str(), 0, 0), 0);
  ASSERT_EQ(cache().read("key"), "content");
  EXPECT_EQ(cache().read("key 2"), std::nullopt);
  // An entry that somebody else put there.
  ASSERT_EQ(chown(files(".cubin").at(0).c_str(), 65534, 65534), 0);
  EXPECT_EQ(cache().read("key"), std::nullopt);
}

TEST_F(DiskCacheTest, LinkInPlaceOfTheFolderIsRefused) {
  const std::string real = folder_ + "_real";
  fs::create_directories(real);
  fs::create_directory_symlink(real, folder_);
  cache().write("key", "content");
  EXPECT_EQ(cache().read("key"), std::nullopt);
  EXPECT_TRUE(fs::is_empty(real));
  fs::remove(folder_);
  fs::remove_all(real);
}

// Processes that want the same key at once: one compiles, the others find its entry.
TEST_F(DiskCacheTest, OneProcessCompiles) {
  const std::string log = folder_ + "/compiles.txt";
  cache().write("first", "");  // makes the folder
  const auto get = [&] {
    const DiskCache cache = this->cache();
    if (cache.read("key")) return 0;
    const DiskCache::Lock lock = cache.lock("key");
    if (!lock.held()) return 1;
    if (cache.read("key")) return 0;
    std::ofstream(log, std::ios::app) << "x";
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    cache.write("key", "content");
    return 0;
  };
  std::vector<pid_t> children;
  for (int i = 0; i < 6; ++i) {
    const pid_t child = fork();
    if (child == 0) _exit(get());
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = -1;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
  }
  EXPECT_EQ(fs::file_size(log), 1u);
  EXPECT_EQ(cache().read("key"), "content");
}

TEST_F(DiskCacheTest, PatienceEnds) {
  const DiskCache::Lock held = cache().lock("key");
  ASSERT_TRUE(held.held());
  EXPECT_FALSE(cache().lock("key", 30).held());
  EXPECT_TRUE(cache().lock("another key", 30).held());
}

// A child that was forked while the lock was held keeps the file open, but not the lock.
TEST_F(DiskCacheTest, ForkedChildDoesNotKeepTheLock) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  pid_t child = -1;
  {
    const DiskCache::Lock lock = cache().lock("key");
    ASSERT_TRUE(lock.held());
    child = fork();
    if (child == 0) {
      close(ends[1]);
      char byte;
      _exit(read(ends[0], &byte, 1) == 0 ? 0 : 1);  // until the parent closes its end
    }
  }
  EXPECT_TRUE(cache().lock("key", 100).held());
  close(ends[1]);
  close(ends[0]);
  waitpid(child, nullptr, 0);
}

}  // namespace
}  // namespace attn::cuda
