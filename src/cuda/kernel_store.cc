#include "cuda/kernel_store.h"

#include <algorithm>
#include <cstring>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/quiet_signals.h"
#include "cuda/kernel_sources.h"

namespace attn::cuda {
namespace {

constexpr int64_t kMaxBlocks = 0x7fffffff;
constexpr int64_t kSharedBytesOfEveryKernel = 48 * 1024;  // more is asked for by an attribute

// What a driver that refuses a cubin is told: each knows the cubins of its own CUDA and of older.
std::string refused_cubin(const Driver& driver, const std::string& origin,
                          const std::string& compiler) {
  return cat("the driver (CUDA ", driver.version / 1000, ".", driver.version % 1000 / 10,
             ") refuses a kernel from ", origin, compiler.empty() ? "" : " made by ", compiler,
             ": update the NVIDIA driver, or use an NVRTC that is not newer than it");
}

// After a launch that the driver refused: is it the stream's context?
void fail_foreign_stream(const Driver& driver, CUstream stream) {
  CUcontext own = nullptr, current = nullptr;
  if (stream == nullptr || driver.StreamGetCtx(stream, &own) != kCudaSuccess ||
      driver.CtxGetCurrent(&current) != kCudaSuccess || own == current) {
    return;
  }
  fail_argument(
      "stream belongs to another CUDA context than the one that this attn_context works "
      "in; create the attn_context with that context as native_context, or give a "
      "stream of this one");
}

}  // namespace

CompiledKernel compile_kernel(const Nvrtc& nvrtc, const std::string& target,
                              const KernelVariant& variant, bool line_info) {
  std::vector<std::pair<std::string, std::string>> headers;
  const char* text = nullptr;
  for (const KernelSource& source : kernel_sources()) {
    const size_t length = std::strlen(source.name);
    if (variant.source == source.name) text = source.text;
    if (length > 2 && std::strcmp(source.name + length - 2, ".h") == 0) {
      headers.emplace_back(source.name, source.text);
    }
  }
  if (text == nullptr) throw_error(ATTN_INTERNAL, cat("no kernel source ", variant.source));
  return nvrtc.compile(variant.source, text, headers, target, variant.definitions, line_info);
}

void check_blocks(int64_t blocks) {
  if (blocks > kMaxBlocks) {
    fail_unsupported("the call needs ", blocks, " blocks, above the device's ", kMaxBlocks);
  }
}

void launch_kernel(const Driver& driver, const LoadedKernel& kernel, int64_t blocks,
                   unsigned threads, CUstream stream, void** arguments, bool overlap) {
  check_blocks(blocks);
  CUlaunchAttribute attribute{};
  attribute.id = kLaunchProgrammaticStreamSerialization;
  attribute.value.programmatic_stream_serialization = 1;
  CUlaunchConfig config{};
  config.grid_x = static_cast<unsigned>(blocks);
  config.grid_y = config.grid_z = 1;
  config.block_x = threads;
  config.block_y = config.block_z = 1;
  config.shared_bytes = kernel.shared_bytes;
  config.stream = stream;
  config.attributes = &attribute;
  config.attribute_count = overlap ? 1 : 0;
  const CUresult result = driver.LaunchKernelEx(&config, kernel.function, arguments, nullptr);
  if (result == kCudaInvalidHandle || result == kCudaInvalidContext) {
    fail_foreign_stream(driver, stream);
  }
  check(driver, result, "cuLaunchKernelEx");
}

LoadedLibraries::~LoadedLibraries() {
  for (CUlibrary library : libraries_) list_->retire_library(library);
}

void LoadedLibraries::add(CUlibrary library) {
  std::lock_guard lock(mutex_);
  libraries_.push_back(library);
}

KernelStore::KernelStore(const CudaContext& context, const CudaOptions& options,
                         std::shared_ptr<RetireList> list)
    : context_(context),
      code_(std::make_shared<LoadedLibraries>(std::move(list))),
      nvrtc_path_(options.nvrtc_path),
      disk_(options.cache_folder, options.cache_limit_bytes, options.disk_cache) {}

// Order: pack, disk, NVRTC under the key's lock (another process may have compiled it meanwhile).
std::string KernelStore::find_cubin(const KernelVariant& variant, Library* out) {
  const std::string text = variant.text();
  if (auto cubin = pack_.find(pack_key(context_.target, text))) {
    out->origin = "pack";
    return *std::move(cubin);
  }
  const Nvrtc* nvrtc = nullptr;
  try {
    nvrtc = &Nvrtc::get(nvrtc_path_);
  } catch (const Error& error) {
    throw_error(error.status(), cat("kernel ", text, " for ", context_.target,
                                    " is not in the pack of ready kernels and must be compiled: ",
                                    error.message()));
  }
  out->compiler = cat("NVRTC ", nvrtc->version_text());
  const std::string key = cat(ATTN_VERSION_STRING, " nvrtc ", nvrtc->version_text(), " ",
                              pack_key(context_.target, text));
  out->origin = "disk cache";
  if (auto cubin = disk_.read(key)) {
    ++disk_hits_;
    return *std::move(cubin);
  }
  DiskCache::Lock lock = disk_.lock(key);
  if (auto cubin = disk_.read(key)) {
    ++disk_hits_;
    return *std::move(cubin);
  }
  ++disk_misses_;
  ++compiles_;
  CompiledKernel compiled = compile_kernel(*nvrtc, context_.target, variant, true);
  disk_.write(key, compiled.cubin);
  out->origin = "NVRTC";
  return std::move(compiled.cubin);
}

const KernelStore::Library& KernelStore::library(const KernelVariant& variant) {
  const std::string text = variant.text();
  std::promise<Library> promise;
  std::shared_future<Library> future;
  {
    std::lock_guard lock(mutex_);
    auto found = libraries_.find(text);
    if (found != libraries_.end()) {
      future = found->second;
    } else {
      libraries_[text] = promise.get_future().share();
    }
  }
  if (!future.valid()) {
    try {
      Library library;
      const std::string cubin = find_cubin(variant, &library);
      ContextScope scope(context_);
      RelaxedCapture relaxed(context_.driver);
      const CUresult result = context_.driver.LibraryLoadData(
          &library.handle, cubin.data(), nullptr, nullptr, 0, nullptr, nullptr, 0);
      if (result == kCudaInvalidImage || result == kCudaNoBinaryForGpu) {
        throw_error(ATTN_DEVICE,
                    cat(error_text(context_.driver, result, "cuLibraryLoadData"), "; ",
                        refused_cubin(context_.driver, library.origin, library.compiler)),
                    native_error(result));
      }
      check(context_.driver, result, "cuLibraryLoadData");
      try {
        code_->add(library.handle);
      } catch (...) {
        context_.driver.LibraryUnload(library.handle);
        throw;
      }
      promise.set_value(std::move(library));
    } catch (...) {
      // Those who wait get the same error; later calls try again.
      promise.set_exception(std::current_exception());
      std::lock_guard lock(mutex_);
      libraries_.erase(text);
      throw;
    }
    std::lock_guard lock(mutex_);
    future = libraries_[text];
  }
  return future.get();
}

const LoadedKernel* KernelStore::find(const std::string& name) {
  const std::lock_guard lock(mutex_);
  const auto found = kernels_.find(name);
  return found != kernels_.end() ? &found->second : nullptr;
}

const LoadedKernel* KernelStore::get(const KernelVariant& variant) {
  const Library& loaded = library(variant);
  const std::string code = cat(variant.text(), " ", variant.entry);
  const std::string name = cat(code, " ", variant.shared_bytes, " ", variant.threads);
  if (const LoadedKernel* known = find(name)) return known;
  // The driver is not called under the lock that every lookup takes.
  const std::lock_guard loading(loading_mutex_);
  if (const LoadedKernel* known = find(name)) return known;
  ContextScope scope(context_);
  RelaxedCapture relaxed(context_.driver);
  const Driver& driver = context_.driver;
  CUkernel kernel = nullptr;
  LoadedKernel out;
  check(driver, driver.LibraryGetKernel(&kernel, loaded.handle, variant.entry.c_str()),
        "cuLibraryGetKernel");
  // The attribute is the code's, whoever launches it: it only grows.
  int64_t& most = most_shared_bytes_[code];
  if (variant.shared_bytes > std::max<int64_t>(most, kSharedBytesOfEveryKernel)) {
    check(driver,
          driver.KernelSetAttribute(kFunctionMaxDynamicShared, variant.shared_bytes, kernel,
                                    context_.device),
          "cuKernelSetAttribute");
    most = variant.shared_bytes;
  }
  check(driver, driver.KernelGetFunction(&out.function, kernel), "cuKernelGetFunction");
  out.threads = static_cast<unsigned>(variant.threads);
  out.shared_bytes = static_cast<unsigned>(variant.shared_bytes);
  out.origin = loaded.origin;
  const std::lock_guard lock(mutex_);
  return &kernels_.emplace(name, std::move(out)).first->second;
}

void KernelStore::prefetch(std::span<const KernelVariant> variants) {
  if (variants.size() < 2) return;
  std::vector<std::exception_ptr> errors(variants.size());
  const auto compile = [&](size_t i) {
    try {
      library(variants[i]);
    } catch (...) {
      errors[i] = std::current_exception();
    }
  };
  {
    std::vector<std::jthread> threads;  // joined whatever happens
    const QuietSignals quiet;
    threads.reserve(variants.size());
    for (size_t i = 0; i < variants.size(); ++i) {
      try {
        threads.emplace_back(compile, i);
      } catch (const std::system_error&) {  // the process may have no more threads
        compile(i);
      }
    }
  }
  for (const std::exception_ptr& error : errors) {
    if (error) std::rethrow_exception(error);
  }
}

}  // namespace attn::cuda
