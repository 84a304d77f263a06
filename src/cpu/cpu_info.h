// What this machine is, and how much of it the process may use.
#pragma once

#include <string>
#include <vector>

namespace attn::cpu {

struct CpuInfo {
  std::string name;          // the vendor's, "AMD EPYC 7763 64-Core Processor"; never empty
  std::string architecture;  // "x86-64", "aarch64", or the compiler's machine name
  std::vector<std::string> instruction_sets;  // that engines can profit from: "avx2", "f16c", ...
};

// Asked once; thread-safe.
const CpuInfo& cpu_info();

// Cores that the calling thread may run on: the affinity mask, cut down to the processor quota of
// its control groups (versions 1 and 2), at least 1. Reads a few small files.
int available_cores();

namespace detail {

// Fills name and instruction sets; one file an architecture (cpu_features_*.cc).
void detect_features(CpuInfo& info);

// The smallest ceil(quota / period) on the way from the group to the root of a version 2 hierarchy
// ("cpu.max") or a version 1 one ("cpu.cfs_quota_us", "cpu.cfs_period_us"); 0 = no limit.
// `mount` is the hierarchy's folder, `group` the path inside it ("/a/b").
int quota_cores_v2(const std::string& mount, const std::string& group);
int quota_cores_v1(const std::string& mount, const std::string& group);

// The quota of this process's control groups, of both versions; 0 = no limit. `root` is a folder
// that stands for "/" (tests), empty for "/" itself.
int control_group_cores(const std::string& root);

}  // namespace detail
}  // namespace attn::cpu
