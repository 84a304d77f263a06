#include "cpu/cpu_info.h"

#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdint>
#include <memory>
#include <string_view>
#include <thread>

#include "cpu/small_file.h"

namespace attn::cpu {
namespace {

// The integer that `text` begins with; false for anything else ("max").
bool parse_integer(std::string_view text, int64_t* value) {
  return std::from_chars(text.data(), text.data() + text.size(), *value).ec == std::errc{};
}

int quota_to_cores(int64_t quota, int64_t period) {
  if (quota <= 0 || period <= 0) return 0;
  return static_cast<int>(std::clamp<int64_t>((quota + period - 1) / period, 1, 1 << 20));
}

int smaller_limit(int a, int b) {
  if (a == 0) return b;
  if (b == 0) return a;
  return std::min(a, b);
}

// Calls `limit_of(folder)` for the group's folder and all of its ancestors up to the mount.
template <class LimitOf>
int smallest_on_the_way_up(const std::string& mount, std::string group, LimitOf limit_of) {
  int limit = 0;
  for (;;) {
    while (!group.empty() && group.back() == '/') group.pop_back();
    limit = smaller_limit(limit, limit_of(mount + group));
    if (group.empty()) return limit;
    const size_t slash = group.rfind('/');
    group.resize(slash == std::string::npos ? 0 : slash);
  }
}

int affinity_cores() {
  // The mask may be wider than cpu_set_t on large machines.
  for (int bits = 1024; bits <= (1 << 20); bits *= 2) {
    std::unique_ptr<cpu_set_t, void (*)(cpu_set_t*)> set(CPU_ALLOC(bits),
                                                         [](cpu_set_t* s) { CPU_FREE(s); });
    if (set == nullptr) break;
    const size_t size = CPU_ALLOC_SIZE(bits);
    if (sched_getaffinity(0, size, set.get()) == 0) return CPU_COUNT_S(size, set.get());
    if (errno != EINVAL) break;
  }
  return static_cast<int>(std::thread::hardware_concurrency());
}

}  // namespace

namespace detail {

int quota_cores_v2(const std::string& mount, const std::string& group) {
  return smallest_on_the_way_up(mount, group, [](const std::string& folder) {
    const std::string text =
        read_small_file(folder + "/cpu.max");  // "quota period" or "max period"
    int64_t quota = 0;
    int64_t period = 0;
    const size_t space = text.find(' ');
    if (space == std::string::npos || !parse_integer(text, &quota) ||
        !parse_integer(std::string_view(text).substr(space + 1), &period)) {
      return 0;
    }
    return quota_to_cores(quota, period);
  });
}

int quota_cores_v1(const std::string& mount, const std::string& group) {
  return smallest_on_the_way_up(mount, group, [](const std::string& folder) {
    int64_t quota = 0;
    int64_t period = 0;
    if (!parse_integer(read_small_file(folder + "/cpu.cfs_quota_us"), &quota) ||
        !parse_integer(read_small_file(folder + "/cpu.cfs_period_us"), &period)) {
      return 0;
    }
    return quota_to_cores(quota, period);  // a quota of -1 is none
  });
}

// One line of /proc/self/cgroup is "id:controllers:path"; version 2 has id 0 and no controllers.
int control_group_cores(const std::string& root) {
  int limit = 0;
  const std::string groups = read_small_file(root + "/proc/self/cgroup");
  std::string_view rest = groups;
  while (!rest.empty()) {
    const size_t end = std::min(rest.find('\n'), rest.size());
    const std::string_view line = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    const size_t first = line.find(':');
    const size_t second = first == std::string_view::npos ? first : line.find(':', first + 1);
    if (second == std::string_view::npos) continue;
    std::string controllers = ",";
    controllers.append(line.substr(first + 1, second - first - 1)).append(",");
    const std::string path(line.substr(second + 1));
    if (controllers == ",,") {
      limit = smaller_limit(limit, quota_cores_v2(root + "/sys/fs/cgroup", path));
    } else if (controllers.find(",cpu,") != std::string::npos) {
      limit = smaller_limit(limit, quota_cores_v1(root + "/sys/fs/cgroup/cpu", path));
    }
  }
  return limit;
}

}  // namespace detail

const CpuInfo& cpu_info() {
  static const CpuInfo info = [] {
    CpuInfo made;
    detail::detect_features(made);
    return made;
  }();
  return info;
}

int available_cores() {
  return std::max(1, smaller_limit(std::max(1, affinity_cores()), detail::control_group_cores("")));
}

}  // namespace attn::cpu
