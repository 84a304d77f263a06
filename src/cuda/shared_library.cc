#include "cuda/shared_library.h"

#include <dlfcn.h>

#include "core/error.h"

namespace attn::cuda {

SharedLibrary SharedLibrary::open(const std::vector<LibraryPlace>& places) {
  SharedLibrary library;
  for (const LibraryPlace& place : places) {
    int flags = RTLD_NOW | RTLD_LOCAL;
    if (place.only_loaded) flags |= RTLD_NOLOAD;
    void* handle = dlopen(place.path.c_str(), flags);
    if (handle != nullptr) {
      library.handle_ = handle;
      library.path_ = place.path;
      return library;
    }
    const char* why = dlerror();
    if (!library.tried_.empty()) library.tried_ += '\n';
    library.tried_ += cat(place.path, " (", place.kind, "): ",
                          place.only_loaded ? "not loaded in this process"
                          : why != nullptr  ? why
                                            : "cannot be opened");
  }
  return library;
}

void* SharedLibrary::symbol(const char* name) const {
  return handle_ == nullptr ? nullptr : dlsym(handle_, name);
}

std::string file_of_symbol(const void* address) {
  Dl_info info{};
  if (dladdr(address, &info) == 0 || info.dli_fname == nullptr) return {};
  return info.dli_fname;
}

std::vector<std::string> python_package_folders() {
  std::vector<std::string> folders;
  // In a wheel this library lies in site-packages/attn_c/, NVIDIA's in site-packages/nvidia/.
  std::string self = file_of_symbol(reinterpret_cast<const void*>(&python_package_folders));
  size_t slash = self.rfind('/');
  if (slash != std::string::npos) {
    std::string folder = self.substr(0, slash);
    folders.push_back(folder + "/..");
    folders.push_back(folder);
  }
  return folders;
}

}  // namespace attn::cuda
