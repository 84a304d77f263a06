#include "cuda/shared_library.h"

#include <dlfcn.h>

#include "core/error.h"

namespace attn::cuda {
namespace {

// The loader's words without the path, which it puts first; nothing for a file that is not there.
std::string reason(const LibraryPlace& place, std::string words) {
  if (words.find("No such file or directory") != std::string::npos) return {};
  if (words.starts_with(place.path + ": ")) words.erase(0, place.path.size() + 2);
  return words;
}

}  // namespace

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
    // NOLINTNEXTLINE(concurrency-mt-unsafe): one a thread in glibc
    const char* words = dlerror();
    library.failed_.push_back(
        {place, place.only_loaded || words == nullptr ? std::string() : reason(place, words)});
  }
  return library;
}

std::string text_of(const std::vector<FailedPlace>& places) {
  std::string text;
  const std::string* kind = nullptr;
  for (const FailedPlace& failed : places) {
    if (kind == nullptr || *kind != failed.place.kind) {
      text += cat(text.empty() ? "" : "; ", failed.place.kind, ": ");
    } else {
      text += ", ";
    }
    kind = &failed.place.kind;
    text += failed.place.path;
    if (!failed.why.empty()) text += cat(" (", failed.why, ")");
  }
  return text;
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
    const size_t parent = folder.rfind('/');
    if (parent != std::string::npos) folders.push_back(folder.substr(0, parent));
    folders.push_back(folder);
  }
  return folders;
}

}  // namespace attn::cuda
