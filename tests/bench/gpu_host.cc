// What the library costs the host on a CUDA device, printed as one JSON object:
//
//   gpu_host load --library FILE                    seconds of opening the library
//   gpu_host first --library FILE [step options]    seconds until a fresh process has a result
//   gpu_host execute --library FILE [step options]  nanoseconds of a prepared execute, and of as
//                                                   many launches made directly
//
// Step options: --type T --head-size D --rotary 0|1; --no-disk-cache 1 for `first`. The driver has
// been initialised and the primary context made before a clock starts.
#include <algorithm>
#include <cstring>
#include <functional>
#include <map>

#include "bench/gpu_step.h"

namespace attn::bench {
namespace {

double seconds_between(Clock::time_point begin, Clock::time_point end) {
  return std::chrono::duration<double>(end - begin).count();
}
double seconds_since(Clock::time_point begin) { return seconds_between(begin, Clock::now()); }

std::map<std::string, std::string> read_options(int argc, char** argv) {
  std::map<std::string, std::string> options;
  for (int i = 2; i + 1 < argc; i += 2) {
    if (std::strncmp(argv[i], "--", 2) != 0) fail(std::string("unknown argument ") + argv[i]);
    options[argv[i] + 2] = argv[i + 1];
  }
  if (options["library"].empty()) fail("--library is missing");
  return options;
}

int64_t number_of(const std::string& text) {
  char* end = nullptr;
  const long long number = std::strtoll(text.c_str(), &end, 10);
  if (text.empty() || *end != '\0') fail(text + " is no number");
  return number;
}

StepOptions step_options(const std::map<std::string, std::string>& options) {
  StepOptions out;
  const auto find = [&](const char* name, const std::string& otherwise) {
    const auto found = options.find(name);
    return found == options.end() ? otherwise : found->second;
  };
  out.type = find("type", out.type);
  out.head_size = number_of(find("head-size", "128"));
  out.rotary = find("rotary", "1") == "1";
  return out;
}

// The driver with device 0's primary context current.
Driver start_driver() {
  const Driver driver = open_driver();
  int device = 0;
  void* context = nullptr;
  must("cuDeviceGet", driver.DeviceGet(&device, 0));
  must("cuDevicePrimaryCtxRetain", driver.DevicePrimaryCtxRetain(&context, device));
  must("cuCtxSetCurrent", driver.CtxSetCurrent(context));
  return driver;
}

void load(const std::map<std::string, std::string>& options) {
  const auto begin = Clock::now();
  open_library(options.at("library"));
  std::printf("{\"seconds\": %.9f}\n", seconds_since(begin));
}

void first(const std::map<std::string, std::string>& options) {
  const StepOptions step_of = step_options(options);
  const Driver driver = start_driver();
  Step step(driver, step_of);
  void* stream = nullptr;
  must("cuStreamCreate", driver.StreamCreate(&stream, kNonBlocking));
  const attn_api& api = open_library(options.at("library"));
  const uint32_t flags = options.count("no-disk-cache") != 0 ? ATTN_CONTEXT_NO_DISK_CACHE : 0u;

  const auto begin = Clock::now();
  Prepared prepared(api, step, step_of, flags);
  const double prepare = seconds_since(prepared.ordered);
  attn_execute_desc desc = ATTN_EXECUTE_DESC_INIT;
  desc.stream = stream;
  prepared.execute_binding(desc);
  must("cuStreamSynchronize", driver.StreamSynchronize(stream));
  const double all = seconds_since(begin);

  attn_error error = ATTN_ERROR_INIT;
  attn_context_stats stats = ATTN_CONTEXT_STATS_INIT;
  check(api.context_get_stats(prepared.context, &stats, &error), error);
  if (!step.is_written()) fail("the output of the first execute is wrong");
  std::printf(
      "{\"seconds\": %.9f, \"context\": %.9f, \"session\": %.9f, \"prepare\": %.9f, "
      "\"compiles\": %llu, \"disk_hits\": %llu}\n",
      all, seconds_between(begin, prepared.opened),
      seconds_between(prepared.opened, prepared.ordered), prepare,
      static_cast<unsigned long long>(stats.kernel_compiles),
      static_cast<unsigned long long>(stats.disk_cache_hits));
}

// The kernels that one execute launches, as a capture shows them.
std::vector<KernelNode> launches_of(const Driver& driver, Prepared& prepared,
                                    const attn_execute_desc& desc, void** graph) {
  must("cuStreamBeginCapture", driver.StreamBeginCapture(desc.stream, kCaptureThreadLocal));
  prepared.execute_binding(desc);
  must("cuStreamEndCapture", driver.StreamEndCapture(desc.stream, graph));
  size_t count = 0;
  must("cuGraphGetNodes", driver.GraphGetNodes(*graph, nullptr, &count));
  std::vector<void*> nodes(count);
  must("cuGraphGetNodes", driver.GraphGetNodes(*graph, nodes.data(), &count));
  std::vector<KernelNode> launches;
  for (void* node : nodes) {
    int type = -1;
    must("cuGraphNodeGetType", driver.GraphNodeGetType(node, &type));
    if (type != kKernelNode) fail("an execute captured a node that is no kernel");
    launches.push_back({});
    must("cuGraphKernelNodeGetParams", driver.GraphKernelNodeGetParams(node, &launches.back()));
  }
  return launches;
}

constexpr char kEmptyKernel[] =
    ".version 7.0\n.target sm_80\n.address_size 64\n.visible .entry empty() { ret; }\n";

constexpr int kCalls = 100;  // between two synchronisations: the launch queue never fills

// Nanoseconds a call of each function: medians over rounds in which all of them take turns, after
// one that is not counted.
template <size_t n>
std::vector<double> time_each(const Driver& driver, void* stream, int64_t rounds,
                              const std::function<void()> (&functions)[n]) {
  std::vector<std::vector<double>> times(n);
  for (int64_t round = 0; round <= std::max<int64_t>(rounds, 1); ++round) {
    for (size_t f = 0; f < n; ++f) {
      const auto begin = Clock::now();
      for (int call = 0; call < kCalls; ++call) functions[f]();
      const double seconds = seconds_since(begin);
      must("cuStreamSynchronize", driver.StreamSynchronize(stream));
      if (round > 0) times[f].push_back(seconds / kCalls * 1e9);
    }
  }
  std::vector<double> medians;
  for (std::vector<double>& one : times) {
    std::sort(one.begin(), one.end());
    medians.push_back(one[one.size() / 2]);
  }
  return medians;
}

void execute(const std::map<std::string, std::string>& options) {
  const StepOptions step_of = step_options(options);
  const Driver driver = start_driver();
  int device = 0, major = 0;
  must("cuDeviceGet", driver.DeviceGet(&device, 0));
  must("cuDeviceGetAttribute", driver.DeviceGetAttribute(&major, kComputeCapabilityMajor, device));
  Step step(driver, step_of);
  attn_execute_desc desc = ATTN_EXECUTE_DESC_INIT;
  must("cuStreamCreate", driver.StreamCreate(&desc.stream, kNonBlocking));
  const attn_api& api = open_library(options.at("library"));
  Prepared prepared(api, step, step_of, 0);
  prepared.make_plan();
  prepared.execute_binding(desc);
  prepared.execute_plan(desc);
  must("cuStreamSynchronize", driver.StreamSynchronize(desc.stream));
  if (!step.is_written()) fail("the output of execute is wrong");

  void* graph = nullptr;
  const std::vector<KernelNode> launches = launches_of(driver, prepared, desc, &graph);
  void *module = nullptr, *empty = nullptr;
  must("cuModuleLoadData", driver.ModuleLoadData(&module, kEmptyKernel));
  must("cuModuleGetFunction", driver.ModuleGetFunction(&empty, module, "empty"));
  LaunchAttribute overlap{};
  overlap.id = kProgrammaticStreamSerialization;
  overlap.value.programmatic_stream_serialization = 1;

  // The library's own kernels with its own arguments, by nothing but the driver's call. All but the
  // first overlap the one before, where the device can do that.
  const auto bare = [&] {
    for (size_t i = 0; i < launches.size(); ++i) {
      const KernelNode& node = launches[i];
      LaunchConfig config{};
      std::copy(node.grid, node.grid + 3, config.grid);
      std::copy(node.block, node.block + 3, config.block);
      config.shared_bytes = node.shared_bytes;
      config.stream = desc.stream;
      config.attributes = &overlap;
      config.attribute_count = i > 0 && major >= 9 ? 1 : 0;
      void* function = node.function != nullptr ? node.function : node.kernel;
      must("cuLaunchKernelEx",
           driver.LaunchKernelEx(&config, function, node.arguments, node.extra));
    }
  };
  const auto nothing = [&] {
    LaunchConfig config{{1, 1, 1}, {32, 1, 1}, 0, desc.stream, nullptr, 0};
    for (size_t i = 0; i < launches.size(); ++i) {
      must("cuLaunchKernelEx", driver.LaunchKernelEx(&config, empty, nullptr, nullptr));
    }
  };
  const std::function<void()> calls[] = {[&] { prepared.execute_binding(desc); },
                                         [&] { prepared.execute_plan(desc); }, bare, nothing};
  const int64_t rounds = options.count("rounds") != 0 ? number_of(options.at("rounds")) : 101;
  const std::vector<double> ns = time_each(driver, desc.stream, rounds, calls);
  std::printf(
      "{\"launches\": %zu, \"binding_ns\": %.1f, \"plan_ns\": %.1f, \"same_kernels_ns\": %.1f, "
      "\"empty_kernels_ns\": %.1f}\n",
      launches.size(), ns[0], ns[1], ns[2], ns[3]);
}

}  // namespace
}  // namespace attn::bench

int main(int argc, char** argv) {
  using namespace attn::bench;
  const std::string mode = argc > 1 ? argv[1] : "";
  const auto options = read_options(argc, argv);
  if (mode == "load") {
    load(options);
  } else if (mode == "first") {
    first(options);
  } else if (mode == "execute") {
    execute(options);
  } else {
    fail("expected load, first or execute");
  }
  return 0;
}
