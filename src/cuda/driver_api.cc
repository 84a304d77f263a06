#include "cuda/driver_api.h"

#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <mutex>
#include <utility>
#include <vector>

#include "core/error.h"

namespace attn::cuda {
namespace {

// cuGetProcAddress itself, as drivers since 12.0 export it.
using GetProcAddress = CUresult (*)(const char*, void**, int, uint64_t, int*);

[[noreturn]] void unavailable(const std::string& text) { throw_error(ATTN_UNAVAILABLE, text); }

std::string version_text(int version) { return cat(version / 1000, ".", version % 1000 / 10); }

std::vector<LibraryPlace> driver_places(const std::string& option) {
  if (!option.empty()) return {{option, "driver_path"}};
  std::vector<LibraryPlace> places;
  places.push_back({"libcuda.so.1", "already loaded", true});
  places.push_back({"libcuda.so.1", "system loader"});
  for (const char* folder : {"/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/local/nvidia/lib64",
                             "/usr/lib/wsl/lib", "/usr/lib/aarch64-linux-gnu"}) {
    places.push_back({cat(folder, "/libcuda.so.1"), "system folder"});
  }
  return places;
}

// For a call before the driver's functions are known: its words, where it has some.
std::string failed_start(const char* call, const SharedLibrary& library, CUresult result) {
  const char* words = nullptr;
  auto describe =
      reinterpret_cast<CUresult (*)(CUresult, const char**)>(library.symbol("cuGetErrorString"));
  if (describe != nullptr) describe(result, &words);
  return cat(call, " of ", library.path(), " failed with code ", result,
             result == kCudaNoDevice ? " (no CUDA device)" : "", words != nullptr ? ": " : "",
             words != nullptr ? words : "");
}

std::unique_ptr<Driver> open_driver(const std::string& option) {
  SharedLibrary library = SharedLibrary::open(driver_places(option));
  if (!library.is_open()) {
    unavailable(
        cat("no CUDA driver (libcuda.so.1) could be opened; tried ", text_of(library.failed())));
  }
  auto driver = std::make_unique<Driver>();
  auto get = reinterpret_cast<GetProcAddress>(library.symbol("cuGetProcAddress_v2"));
  auto version = reinterpret_cast<CUresult (*)(int*)>(library.symbol("cuDriverGetVersion"));
  auto initialise = reinterpret_cast<CUresult (*)(unsigned)>(library.symbol("cuInit"));
  if (version == nullptr || initialise == nullptr) {
    unavailable(cat(library.path(), " is no CUDA driver: it lacks cuInit or cuDriverGetVersion"));
  }
  if (CUresult result = version(&driver->version); result != kCudaSuccess) {
    throw_error(ATTN_UNAVAILABLE, failed_start("cuDriverGetVersion", library, result),
                native_error(result));
  }
  if (get == nullptr || driver->version < kMinimumDriverVersion) {
    unavailable(cat("the CUDA driver at ", library.path(), " serves CUDA ",
                    version_text(driver->version), "; attn_c needs a driver for CUDA ",
                    version_text(kMinimumDriverVersion), " or later: update the NVIDIA driver"));
  }
  if (CUresult result = initialise(0); result != kCudaSuccess) {
    throw_error(ATTN_UNAVAILABLE, failed_start("cuInit", library, result), native_error(result));
  }
  std::string missing;
#define X(name, symbol, version, parameters)                                              \
  if (void* address = nullptr;                                                            \
      get(symbol, &address, version, 0, nullptr) == kCudaSuccess && address != nullptr) { \
    driver->name = reinterpret_cast<decltype(driver->name)>(address);                     \
  } else {                                                                                \
    missing += cat(missing.empty() ? "" : ", ", symbol);                                  \
  }
  ATTN_DRIVER_FUNCTIONS(X)
#undef X
  if (!missing.empty()) {
    unavailable(cat("the CUDA driver at ", library.path(), " (CUDA ", version_text(driver->version),
                    ") lacks ", missing));
  }
  std::string file = file_of_symbol(reinterpret_cast<const void*>(initialise));
  driver->path = file.empty() ? library.path() : file;
  return driver;
}

}  // namespace

const Driver& Driver::get(const std::string& option) {
  // Never freed: graphs and finalisers may need the functions until the process ends.
  static std::mutex mutex;
  static std::vector<std::pair<std::string, const Driver*>>* opened = nullptr;
  static pid_t owner = 0;
  std::lock_guard lock(mutex);
  if (opened == nullptr) opened = new std::vector<std::pair<std::string, const Driver*>>;
  if (!opened->empty() && owner != getpid()) {
    unavailable(
        "this process was forked from one that used CUDA; the driver cannot be used here: "
        "start a new process, or fork before the first use");
  }
  for (const auto& [key, driver] : *opened) {
    if (key == option) return *driver;
  }
  opened->emplace_back(option, open_driver(option).release());
  owner = getpid();
  return *opened->back().second;
}

std::string error_text(const Driver& driver, CUresult result, const char* call) {
  const char* name = nullptr;
  const char* words = nullptr;
  driver.GetErrorName(result, &name);
  driver.GetErrorString(result, &words);
  return cat(call, " failed: ", name ? name : "unknown code", " (", result, ")", words ? ", " : "",
             words ? words : "");
}

NativeError native_error(CUresult result) {
  // What a kernel did wrong leaves its context unusable: illegal addresses, asserts, launch
  // failures and hardware errors (cuda.h).
  constexpr CUresult kSticky[] = {214, 700, 702, 710, 714, 715, 716, 717, 718, 719, 720};
  const auto* found = std::find(std::begin(kSticky), std::end(kSticky), result);
  return {result, ATTN_DOMAIN_CUDA, found != std::end(kSticky)};
}

void check(const Driver& driver, CUresult result, const char* call) {
  if (result == kCudaSuccess) return;
  throw_error(result == kCudaOutOfMemory ? ATTN_OUT_OF_MEMORY : ATTN_DEVICE,
              error_text(driver, result, call), native_error(result));
}

}  // namespace attn::cuda
