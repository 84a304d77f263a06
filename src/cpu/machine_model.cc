#include "cpu/machine_model.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <string_view>
#include <vector>

#include "cpu/small_file.h"

namespace attn::cpu {
namespace {

constexpr int kMostProcessors = 1 << 16;
constexpr int kMostCaches = 16;

// Numbers of a list such as "0-3,8"; empty where it cannot be read.
std::vector<int> parse_list(std::string_view text) {
  std::vector<int> numbers;
  const char* at = text.data();
  const char* const end = at + text.size();
  while (at != end && *at != '\n') {
    int first = 0;
    auto read = std::from_chars(at, end, first);
    if (read.ec != std::errc{}) return {};
    int last = first;
    at = read.ptr;
    if (at != end && *at == '-') {
      read = std::from_chars(at + 1, end, last);
      if (read.ec != std::errc{}) return {};
      at = read.ptr;
    }
    if (first < 0 || last >= kMostProcessors) return {};
    for (int number = first; number <= last; ++number) numbers.push_back(number);
    if (at != end && *at == ',') ++at;
  }
  return numbers;
}

// "32K", "16M" or bytes; 0 where it cannot be read.
int64_t parse_size(std::string_view text) {
  int64_t size = 0;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), size);
  if (read.ec != std::errc{} || size <= 0 || size > (int64_t{1} << 40)) return 0;
  const char unit = read.ptr == text.data() + text.size() ? '\n' : *read.ptr;
  if (unit == 'K') return size << 10;
  return unit == 'M' ? size << 20 : size;
}

std::string processor_folder(const std::string& root, int processor) {
  return root + "/sys/devices/system/cpu/cpu" + std::to_string(processor);
}

std::vector<int> online(const std::string& root, const char* kind) {
  return parse_list(read_small_file(root + "/sys/devices/system/" + kind + "/online"));
}

// The processors that share a core with this one, as the system writes them.
std::string siblings(const std::string& root, int processor) {
  const std::string folder = processor_folder(root, processor) + "/topology/";
  const std::string list = read_small_file(folder + "core_cpus_list");
  return list.empty() ? read_small_file(folder + "thread_siblings_list") : list;
}

}  // namespace

namespace detail {

MachineTopology read_topology(const std::string& root) {
  MachineTopology topology;
  const std::vector<int> processors = online(root, "cpu");
  if (processors.empty()) return topology;
  topology.processors = static_cast<int>(processors.size());
  std::map<std::string, int> cores;
  for (const int processor : processors) {
    std::string core = siblings(root, processor);
    if (core.empty()) core = "processor " + std::to_string(processor);
    topology.threads_per_core = std::max(topology.threads_per_core, ++cores[core]);
  }
  topology.cores = static_cast<int>(cores.size());
  const size_t nodes = online(root, "node").size();
  topology.numa_nodes = std::max(1, static_cast<int>(nodes));
  return topology;
}

MachineCaches read_caches(const std::string& root) {
  MachineCaches caches;
  const std::vector<int> processors = online(root, "cpu");
  const int first = processors.empty() ? 0 : processors.front();
  const auto threads =
      static_cast<int64_t>(std::max<size_t>(1, parse_list(siblings(root, first)).size()));
  int highest = 0;
  for (int index = 0; index < kMostCaches; ++index) {
    const std::string folder =
        processor_folder(root, first) + "/cache/index" + std::to_string(index) + "/";
    const std::string type = read_small_file(folder + "type");
    if (type.empty()) break;
    const int64_t size = parse_size(read_small_file(folder + "size"));
    int level = 0;
    const std::string text = read_small_file(folder + "level");
    std::from_chars(text.data(), text.data() + text.size(), level);
    if (size == 0 || level == 0 || type.starts_with("Instruction")) continue;
    const auto sharers =
        static_cast<int64_t>(parse_list(read_small_file(folder + "shared_cpu_list")).size());
    if (level == 1) caches.first_level = size;
    if (level == 2) caches.second_level = size / std::max<int64_t>(1, sharers / threads);
    if (level >= highest) {
      highest = level;
      caches.last_level = size;
    }
  }
  return caches;
}

}  // namespace detail

const MachineCaches& machine_caches() {
  static const MachineCaches caches = detail::read_caches("");
  return caches;
}

const MachineTopology& machine_topology() {
  static const MachineTopology topology = detail::read_topology("");
  return topology;
}

}  // namespace attn::cpu
