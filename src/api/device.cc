#include "api/device.h"

#include "core/error.h"
#include "cpu/cpu_info.h"
#include "cpu/machine_model.h"
#include "cpu/simd_level.h"
#include "cuda/cuda_backend.h"

namespace attn::api {
namespace {

std::string simd_level_list() {
  const std::vector<cpu::SimdLevel>& levels = cpu::available_simd_levels();
  std::vector<std::string> names;
  for (auto level = levels.rbegin(); level != levels.rend(); ++level) {
    names.push_back(cpu::name_of(*level));
  }
  return join(names);
}

std::vector<std::pair<const char*, int64_t>> describe_machine() {
  const cpu::MachineCaches& caches = cpu::machine_caches();
  const cpu::MachineTopology& topology = cpu::machine_topology();
  return {{"first_level_bytes", caches.first_level},
          {"second_level_bytes", caches.second_level},
          {"last_level_bytes", caches.last_level},
          {"processors", topology.processors},
          {"cores", topology.cores},
          {"threads_per_core", topology.threads_per_core},
          {"numa_nodes", topology.numa_nodes},
          {"available", cpu::available_cores()}};
}

OpenDevice open_cpu(const DeviceOptions& options, const Callbacks& callbacks,
                    cpu::CpuStats& stats) {
  if (options.identity.id != 0) {
    fail_argument("device_id is ", options.identity.id, "; the CPU has only device 0");
  }
  if (options.native_context != nullptr) {
    fail_argument("native_context is given; the CPU has none");
  }
  cpu::CpuOptions cpu_options;
  cpu_options.thread_count = options.thread_count;
  cpu_options.simd_level = options.simd_level;
  cpu_options.stats = &stats;
  if (callbacks.has_executor()) {
    const attn_executor& executor = callbacks.executor();
    cpu_options.executor = {executor.user, executor.concurrency, executor.parallel_for};
  }
  std::unique_ptr<cpu::CpuBackend> backend = cpu::make_cpu_backend(cpu_options);

  OpenDevice result;
  result.facts.identity = options.identity;
  result.facts.thread_count = backend->thread_count();
  result.facts.device_name = cpu::cpu_info().name;
  result.facts.architecture = cpu::cpu_info().architecture;
  result.facts.simd_level = backend->simd_level();
  result.facts.simd_levels = simd_level_list();
  result.facts.instruction_sets = cpu::cpu_info().instruction_sets;
  result.facts.machine = describe_machine();
  result.backend = std::move(backend);
  return result;
}

OpenDevice open_cuda(const DeviceOptions& options, const Callbacks& callbacks) {
  cuda::CudaOptions cuda_options;
  cuda_options.device_id = options.identity.id;
  cuda_options.native_context = options.native_context;
  cuda_options.driver_path = options.driver_path;
  cuda_options.nvrtc_path = options.nvrtc_path;
  cuda_options.cache_folder = options.cache_folder;
  cuda_options.cache_limit_bytes = options.cache_limit_bytes;
  cuda_options.disk_cache = options.disk_cache;
  cuda_options.allocator = callbacks.allocator();

  OpenDevice result;
  result.facts.identity = options.identity;
  result.facts.can_capture = true;
  result.facts.workspace_alignment = 256;
  std::unique_ptr<cuda::CudaBackend> backend = cuda::make_cuda_backend(cuda_options);
  cuda::CudaFacts facts = backend->facts();
  result.facts.device_name = std::move(facts.device_name);
  result.facts.architecture = std::move(facts.architecture);
  result.facts.driver_version = std::move(facts.driver_version);
  result.facts.driver_path = std::move(facts.driver_path);
  result.facts.nvrtc_version = std::move(facts.nvrtc_version);
  result.facts.nvrtc_path = std::move(facts.nvrtc_path);
  result.facts.cache_folder = std::move(facts.cache_folder);
  result.facts.uuid = std::move(facts.uuid);
  result.facts.pci_id = std::move(facts.pci_id);
  result.backend = std::move(backend);
  return result;
}

}  // namespace

OpenDevice open_device(const DeviceOptions& options, const Callbacks& callbacks,
                       cpu::CpuStats& stats) {
  OpenDevice result;
  switch (options.identity.type) {
    case ATTN_DEVICE_CPU:
      result = open_cpu(options, callbacks, stats);
      break;
    case ATTN_DEVICE_CUDA:
      result = open_cuda(options, callbacks);
      break;
    default:
      fail_argument("device_type is ", options.identity.type,
                    "; accepted are 1 (CPU) and 2 (CUDA)");
  }
  result.facts.engines = join(result.backend->engine_names());
  return result;
}

std::string join(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) {
    if (!text.empty()) text += ',';
    text += name;
  }
  return text;
}

}  // namespace attn::api
