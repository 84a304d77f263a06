#include "cuda/nvrtc_api.h"

#include <mutex>
#include <utility>

#include "core/error.h"

namespace attn::cuda {
namespace {

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
  SharedLibrary::open(
      {{cat(folder, "libnvrtc-builtins.so.", major, ".", minor), "beside NVRTC"}});
}

}  // namespace

Nvrtc* Nvrtc::open(const std::string& option) {
  SharedLibrary library = SharedLibrary::open(nvrtc_places(option));
  if (!library.is_open()) {
    throw_error(ATTN_UNAVAILABLE,
                cat("no NVRTC (libnvrtc.so) could be opened; tried:\n", library.tried()));
  }
  auto* nvrtc = new Nvrtc;
  auto load = [&](auto& function, const char* name) {
    void* symbol = library.symbol(name);
    if (symbol == nullptr) {
      delete nvrtc;
      throw_error(ATTN_UNAVAILABLE, cat(library.path(), " is no usable NVRTC: it lacks ", name));
    }
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(symbol);
  };
  load(nvrtc->Version, "nvrtcVersion");
  load(nvrtc->GetErrorString, "nvrtcGetErrorString");
  load(nvrtc->CreateProgram, "nvrtcCreateProgram");
  load(nvrtc->CompileProgram, "nvrtcCompileProgram");
  load(nvrtc->GetProgramLogSize, "nvrtcGetProgramLogSize");
  load(nvrtc->GetProgramLog, "nvrtcGetProgramLog");
  load(nvrtc->GetCUBINSize, "nvrtcGetCUBINSize");
  load(nvrtc->GetCUBIN, "nvrtcGetCUBIN");
  load(nvrtc->DestroyProgram, "nvrtcDestroyProgram");
  if (nvrtc->Version(&nvrtc->major_, &nvrtc->minor_) != 0 || nvrtc->version() < 12000) {
    std::string text = nvrtc->version_text();
    delete nvrtc;
    throw_error(ATTN_UNAVAILABLE, cat("NVRTC at ", library.path(), " is version ", text,
                                      "; attn_c needs 12.0 or later"));
  }
  std::string file = file_of_symbol(reinterpret_cast<const void*>(nvrtc->Version));
  nvrtc->path_ = file.empty() ? library.path() : file;
  open_builtins(nvrtc->path_, nvrtc->major_, nvrtc->minor_);
  return nvrtc;
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
                              const std::vector<std::string>& definitions) const {
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
    throw_error(ATTN_COMPILE, cat("nvrtcCreateProgram: ", GetErrorString(result)));
  }
  // The two flags about the process: do not raise its stack limit, do not open the driver for a
  // cache of NVRTC's own.
  std::vector<std::string> options = {"--gpu-architecture=" + architecture,
                                      "--std=c++20",
                                      "-default-device",
                                      "-lineinfo",
                                      "--ptxas-options=-v",
                                      "--ptxas-options=--warn-on-spills"};
  if (version() >= 12090) options.push_back("--no-cache");
  if (version() >= 12000) options.push_back("--modify-stack-limit=false");
  for (const std::string& definition : definitions) options.push_back("-D" + definition);
  std::vector<const char*> option_texts;
  for (const std::string& option : options) option_texts.push_back(option.c_str());
  result = CompileProgram(program, static_cast<int>(options.size()), option_texts.data());

  CompiledKernel out;
  size_t size = 0;
  if (GetProgramLogSize(program, &size) == 0 && size > 1) {
    out.log.resize(size);
    GetProgramLog(program, out.log.data());
    out.log.resize(out.log.find('\0') == std::string::npos ? size : out.log.find('\0'));
  }
  size = 0;
  if (result == 0 && GetCUBINSize(program, &size) == 0 && size > 0) {
    out.cubin.resize(size);
    if (GetCUBIN(program, out.cubin.data()) != 0) out.cubin.clear();
  }
  DestroyProgram(&program);
  if (out.cubin.empty()) {
    throw_error(ATTN_COMPILE, cat("kernel ", name, " for ", architecture, ": ",
                                  GetErrorString(result), "\n", out.log));
  }
  return out;
}

}  // namespace attn::cuda
