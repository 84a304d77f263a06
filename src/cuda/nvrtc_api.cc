#include "cuda/nvrtc_api.h"

#include <memory>
#include <mutex>
#include <utility>

#include "core/error.h"

namespace attn::cuda {
namespace {

constexpr int kMinimumVersion = 12000;
constexpr const char* kSonames[] = {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"};

std::vector<LibraryPlace> nvrtc_places(const std::string& option) {
  if (!option.empty()) return {{option, "nvrtc_path"}};
  std::vector<LibraryPlace> places;
  for (const char* soname : kSonames) places.push_back({soname, "already loaded", true});
  for (const std::string& folder : python_package_folders()) {
    places.push_back({folder + "/nvidia/cu13/lib/libnvrtc.so.13", "Python's NVIDIA package"});
    places.push_back({folder + "/nvidia/cuda_nvrtc/lib/libnvrtc.so.12", "Python's NVIDIA package"});
  }
  for (const char* soname : kSonames) places.push_back({soname, "system loader"});
  for (const char* soname : kSonames) {
    places.push_back({cat("/usr/local/cuda/lib64/", soname), "toolkit folder"});
  }
  return places;
}

std::string folder_of(const std::string& path) {
  size_t slash = path.rfind('/');
  return slash == std::string::npos ? std::string() : path.substr(0, slash + 1);
}

// Some builds of NVRTC do not find their builtins by themselves: they must be open before the first
// compile. Its name carries the version; a missing one is not an error, the compile would tell.
void open_builtins(const std::string& nvrtc_path, int major, int minor) {
  std::string folder = folder_of(nvrtc_path);
  if (folder.empty()) return;
  SharedLibrary::open({{cat(folder, "libnvrtc-builtins.so.", major, ".", minor), "beside NVRTC"}});
}

}  // namespace

// Takes the functions; the reason why this library cannot be used, empty when it can.
std::string Nvrtc::load(const SharedLibrary& library) {
  std::string missing;
  const auto take = [&](auto& function, const char* name) {
    void* symbol = library.symbol(name);
    if (symbol == nullptr) missing += cat(missing.empty() ? "lacks " : ", ", name);
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(symbol);
  };
  take(Version, "nvrtcVersion");
  take(GetErrorString, "nvrtcGetErrorString");
  take(CreateProgram, "nvrtcCreateProgram");
  take(CompileProgram, "nvrtcCompileProgram");
  take(GetProgramLogSize, "nvrtcGetProgramLogSize");
  take(GetProgramLog, "nvrtcGetProgramLog");
  take(GetCUBINSize, "nvrtcGetCUBINSize");
  take(GetCUBIN, "nvrtcGetCUBIN");
  take(DestroyProgram, "nvrtcDestroyProgram");
  if (!missing.empty()) return missing;
  if (nvrtcResult result = Version(&major_, &minor_); result != 0) {
    return cat("nvrtcVersion failed with code ", result);
  }
  if (version() < kMinimumVersion) {
    return cat("is version ", version_text(), "; attn_c needs ", kMinimumVersion / 1000, ".",
               kMinimumVersion % 1000 / 10, " or later");
  }
  std::string file = file_of_symbol(reinterpret_cast<const void*>(Version));
  path_ = file.empty() ? library.path() : file;
  return {};
}

Nvrtc* Nvrtc::open(const std::string& option) {
  std::vector<FailedPlace> failed;
  for (const LibraryPlace& place : nvrtc_places(option)) {
    const SharedLibrary library = SharedLibrary::open({place});
    if (library.is_open()) {
      auto nvrtc = std::make_unique<Nvrtc>();
      std::string why = nvrtc->load(library);
      if (why.empty()) {
        open_builtins(nvrtc->path_, nvrtc->major_, nvrtc->minor_);
        return nvrtc.release();
      }
      failed.push_back({place, std::move(why)});
    } else {
      failed.push_back(library.failed().front());
    }
  }
  throw_error(ATTN_UNAVAILABLE,
              cat("no usable NVRTC (libnvrtc.so) was found; tried ", text_of(failed)));
}

const Nvrtc& Nvrtc::get(const std::string& option) {
  static std::mutex mutex;
  static std::vector<std::pair<std::string, Nvrtc*>>* opened = nullptr;  // never freed
  std::lock_guard lock(mutex);
  if (opened == nullptr) opened = new std::vector<std::pair<std::string, Nvrtc*>>;
  for (auto& [key, nvrtc] : *opened) {
    if (key == option) return *nvrtc;
  }
  Nvrtc* nvrtc = open(option);
  opened->emplace_back(option, nvrtc);
  return *nvrtc;
}

std::string Nvrtc::version_text() const { return cat(major_, ".", minor_); }

CompiledKernel Nvrtc::compile(const std::string& name, const std::string& source,
                              const std::vector<std::pair<std::string, std::string>>& headers,
                              const std::string& architecture,
                              const std::vector<std::string>& definitions, bool line_info) const {
  std::vector<const char*> header_names, header_texts;
  for (const auto& [header, text] : headers) {
    header_names.push_back(header.c_str());
    header_texts.push_back(text.c_str());
  }
  nvrtcProgram program = nullptr;
  nvrtcResult result =
      CreateProgram(&program, source.c_str(), name.c_str(), static_cast<int>(headers.size()),
                    header_texts.data(), header_names.data());
  if (result != 0) {
    throw_error(ATTN_COMPILE,
                cat("kernel ", name, ": nvrtcCreateProgram failed: ", GetErrorString(result)),
                {result, ATTN_DOMAIN_NVRTC});
  }
  const auto destroy = [this](nvrtcProgram* made) { DestroyProgram(made); };
  const std::unique_ptr<nvrtcProgram, decltype(destroy)> destroyed(&program, destroy);
  // The two flags about the process: do not raise its stack limit, do not open the driver for a
  // cache of NVRTC's own.
  std::vector<std::string> options = {"--gpu-architecture=" + architecture, "--std=c++20",
                                      "-default-device", "--ptxas-options=-v",
                                      "--ptxas-options=--warn-on-spills"};
  if (version() >= 12090) options.push_back("--no-cache");
  options.push_back("--modify-stack-limit=false");
  if (line_info) options.push_back("-lineinfo");
  for (const std::string& definition : definitions) options.push_back("-D" + definition);
  std::vector<const char*> option_texts;
  option_texts.reserve(options.size());
  for (const std::string& option : options) option_texts.push_back(option.c_str());
  result = CompileProgram(program, static_cast<int>(options.size()), option_texts.data());

  CompiledKernel out;
  size_t size = 0;
  if (GetProgramLogSize(program, &size) == 0 && size > 1) {
    out.log.resize(size);
    GetProgramLog(program, out.log.data());
    out.log.resize(out.log.find('\0') == std::string::npos ? size : out.log.find('\0'));
  }
  const char* call = "nvrtcCompileProgram";
  size = 0;
  if (result == 0) {
    call = "nvrtcGetCUBINSize";
    result = GetCUBINSize(program, &size);
  }
  if (result == 0 && size > 0) {
    call = "nvrtcGetCUBIN";
    out.cubin.resize(size);
    result = GetCUBIN(program, out.cubin.data());
  }
  if (result != 0 || size == 0) {
    throw_error(ATTN_COMPILE,
                cat("kernel ", name, " for ", architecture, ", NVRTC ", version_text(), " at ",
                    path_, ": ", call,
                    result != 0 ? cat(" failed: ", GetErrorString(result))
                                : std::string(" gave an empty cubin: this NVRTC makes none for "
                                              "the architecture"),
                    out.log.empty() ? "" : "\n", out.log),
                {result, result != 0 ? ATTN_DOMAIN_NVRTC : ATTN_DOMAIN_NONE});
  }
  return out;
}

}  // namespace attn::cuda
