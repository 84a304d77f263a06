#include "cpu/machine_model.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include <gtest/gtest.h>

#include "cpu/cpu_info.h"

namespace attn::cpu {
namespace {

// A folder that stands for "/"; removed at the end.
class FakeRoot {
 public:
  FakeRoot() {
    std::string name = (std::filesystem::temp_directory_path() / "attn-root-XXXXXX").string();
    path_ = mkdtemp(name.data());
  }
  ~FakeRoot() { std::filesystem::remove_all(path_); }

  void write(const std::string& file, const std::string& text) const {
    const std::filesystem::path path = path_ + "/" + file;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text << "\n";
  }
  void write_cache(int processor, int index, const char* level, const char* type, const char* size,
                   const char* sharers) const {
    const std::string folder = "sys/devices/system/cpu/cpu" + std::to_string(processor) +
                               "/cache/index" + std::to_string(index) + "/";
    write(folder + "level", level);
    write(folder + "type", type);
    write(folder + "size", size);
    write(folder + "shared_cpu_list", sharers);
  }
  void write_siblings(int processor, const char* list) const {
    write("sys/devices/system/cpu/cpu" + std::to_string(processor) + "/topology/core_cpus_list",
          list);
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

TEST(MachineModel, ReadsCoresThreadsAndNodes) {
  const FakeRoot root;
  root.write("sys/devices/system/cpu/online", "0-3,8-9");
  root.write("sys/devices/system/node/online", "0-1");
  root.write_siblings(0, "0,8");
  root.write_siblings(8, "0,8");
  root.write_siblings(1, "1,9");
  root.write_siblings(9, "1,9");
  root.write_siblings(2, "2");
  const MachineTopology topology = detail::read_topology(root.path());
  EXPECT_EQ(topology.processors, 6);
  EXPECT_EQ(topology.cores, 4);  // processor 3 says nothing: a core of its own
  EXPECT_EQ(topology.threads_per_core, 2);
  EXPECT_EQ(topology.numa_nodes, 2);
}

TEST(MachineModel, ReadsCachesOfTheFirstProcessorThatIsOnline) {
  const FakeRoot root;
  root.write("sys/devices/system/cpu/online", "2-9");
  root.write_siblings(2, "2-3");
  root.write_cache(2, 0, "1", "Data", "48K", "2-3");
  root.write_cache(2, 1, "1", "Instruction", "64K", "2-3");
  root.write_cache(2, 2, "2", "Unified", "2M", "2-5");  // two cores of two threads
  root.write_cache(2, 3, "3", "Unified", "106496K", "2-9");
  const MachineCaches caches = detail::read_caches(root.path());
  EXPECT_EQ(caches.first_level, 48 << 10);
  EXPECT_EQ(caches.second_level, 1 << 20);
  EXPECT_EQ(caches.last_level, int64_t{106496} << 10);
}

TEST(MachineModel, AMachineWithoutAThirdLevel) {
  const FakeRoot root;
  root.write("sys/devices/system/cpu/online", "0");
  root.write_cache(0, 0, "1", "Data", "65536", "0");
  root.write_cache(0, 1, "2", "Unified", "256K", "0");
  const MachineCaches caches = detail::read_caches(root.path());
  EXPECT_EQ(caches.first_level, 65536);
  EXPECT_EQ(caches.second_level, 256 << 10);
  EXPECT_EQ(caches.last_level, 256 << 10);
}

TEST(MachineModel, WhatCannotBeReadIsThatOfACommonServer) {
  const FakeRoot root;
  const MachineCaches common;
  EXPECT_EQ(detail::read_topology(root.path()).processors, 1);
  EXPECT_EQ(detail::read_caches(root.path()).second_level, common.second_level);
  root.write("sys/devices/system/cpu/online", "0-");
  root.write_cache(0, 0, "1", "Data", "many", "0");
  root.write_cache(0, 1, "two", "Unified", "1M", "0");
  root.write_cache(0, 2, "3", "Unified", "-4K", "x");
  EXPECT_EQ(detail::read_topology(root.path()).processors, 1);
  const MachineCaches caches = detail::read_caches(root.path());
  EXPECT_EQ(caches.first_level, common.first_level);
  EXPECT_EQ(caches.second_level, common.second_level);
  EXPECT_EQ(caches.last_level, common.last_level);
}

TEST(MachineModel, QuotasOfTheProcessesControlGroups) {
  const FakeRoot root;
  EXPECT_EQ(detail::control_group_cores(root.path()), 0);
  root.write("proc/self/cgroup", "5:cpu,cpuacct:/jobs/one\n1:name=systemd:/\n0::/box");
  EXPECT_EQ(detail::control_group_cores(root.path()), 0);
  root.write("sys/fs/cgroup/cpu/jobs/cpu.cfs_quota_us", "600000");
  root.write("sys/fs/cgroup/cpu/jobs/cpu.cfs_period_us", "100000");
  EXPECT_EQ(detail::control_group_cores(root.path()), 6);
  root.write("sys/fs/cgroup/box/cpu.max", "350000 100000");
  EXPECT_EQ(detail::control_group_cores(root.path()), 4);
}

TEST(MachineModel, OfThisMachineIsPlausible) {
  const MachineCaches& caches = machine_caches();
  EXPECT_EQ(&caches, &machine_caches());
  EXPECT_GE(caches.first_level, 4 << 10);
  EXPECT_GE(caches.last_level, caches.first_level);
  const MachineTopology& topology = machine_topology();
  EXPECT_GE(topology.processors, topology.cores);
  EXPECT_GE(topology.cores * topology.threads_per_core, topology.processors);
}

}  // namespace
}  // namespace attn::cpu
