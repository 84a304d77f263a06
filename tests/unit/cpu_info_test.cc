#include "cpu/cpu_info.h"

#include <sched.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include <gtest/gtest.h>

namespace attn::cpu {
namespace {

// A folder that looks like a control group hierarchy; removed at the end.
class GroupFolder {
 public:
  GroupFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "attn-groups-XXXXXX").string();
    path_ = mkdtemp(name.data());
  }
  ~GroupFolder() { std::filesystem::remove_all(path_); }
  void write(const std::string& group, const std::string& file, const std::string& text) const {
    std::filesystem::create_directories(path_ + group);
    std::ofstream(path_ + group + "/" + file) << text;
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

TEST(CpuInfo, SaysWhatTheMachineIs) {
  const CpuInfo& info = cpu_info();
  EXPECT_FALSE(info.name.empty());
  EXPECT_FALSE(info.architecture.empty());
  EXPECT_EQ(&info, &cpu_info());
}

TEST(CpuInfo, CountsCoresOfTheAffinityMask) {
  cpu_set_t before;
  ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
  const int all = available_cores();
  EXPECT_GE(all, 1);
  EXPECT_LE(all, CPU_COUNT(&before));
  int first = 0;
  while (!CPU_ISSET(first, &before)) ++first;
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(first, &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
  EXPECT_EQ(available_cores(), 1);
  ASSERT_EQ(sched_setaffinity(0, sizeof before, &before), 0);
  EXPECT_EQ(available_cores(), all);
}

TEST(CpuInfo, QuotaOfVersion2IsTheSmallestOnTheWayUp) {
  const GroupFolder groups;
  EXPECT_EQ(detail::quota_cores_v2(groups.path(), "/a/b"), 0);
  groups.write("/a/b", "cpu.max", "max 100000\n");
  EXPECT_EQ(detail::quota_cores_v2(groups.path(), "/a/b"), 0);
  groups.write("/a/b", "cpu.max", "250000 100000\n");
  EXPECT_EQ(detail::quota_cores_v2(groups.path(), "/a/b"), 3);
  groups.write("/a", "cpu.max", "150000 100000\n");
  EXPECT_EQ(detail::quota_cores_v2(groups.path(), "/a/b"), 2);
  groups.write("", "cpu.max", "10000 100000\n");
  EXPECT_EQ(detail::quota_cores_v2(groups.path(), "/a/b/"), 1);
  EXPECT_EQ(detail::quota_cores_v2(groups.path(), "/"), 1);
  groups.write("", "cpu.max", "nonsense\n");
  EXPECT_EQ(detail::quota_cores_v2(groups.path(), "/"), 0);
}

TEST(CpuInfo, QuotaOfVersion1) {
  const GroupFolder groups;
  groups.write("/a", "cpu.cfs_quota_us", "-1\n");
  groups.write("/a", "cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(detail::quota_cores_v1(groups.path(), "/a"), 0);
  groups.write("/a", "cpu.cfs_quota_us", "400000\n");
  EXPECT_EQ(detail::quota_cores_v1(groups.path(), "/a"), 4);
  EXPECT_EQ(detail::quota_cores_v1(groups.path(), "/a/not-there"), 4);
}

}  // namespace
}  // namespace attn::cpu
