// Opens a system library by an ordered list of places, and remembers every place that was tried.
#pragma once

#include <string>
#include <vector>

namespace attn::cuda {

// One place to look: a path or a bare SONAME, and what kind of place it is, for messages.
struct LibraryPlace {
  std::string path;
  std::string kind;          // "option", "ATTN_C_NVRTC_PATH", "already loaded", ...
  bool only_loaded = false;  // take it only if the process has it already (RTLD_NOLOAD)
};

// A place that did not serve, and why; no reason: nothing is there.
struct FailedPlace {
  LibraryPlace place;
  std::string why;
};

// "already loaded: libx.so.2 (why), libx.so; system loader: libx.so.2": short, for it must fit a
// message of the C interface.
std::string text_of(const std::vector<FailedPlace>& places);

class SharedLibrary {
 public:
  // Tries the places in order. Never throws; `is_open` tells. A library is never closed: code and
  // callbacks of it may outlive every object of ours.
  static SharedLibrary open(const std::vector<LibraryPlace>& places);

  bool is_open() const { return handle_ != nullptr; }
  const std::string& path() const { return path_; }                   // where it was found
  const std::vector<FailedPlace>& failed() const { return failed_; }  // before it, or all
  void* symbol(const char* name) const;                               // null when missing

 private:
  void* handle_ = nullptr;
  std::string path_;
  std::vector<FailedPlace> failed_;
};

// The absolute path of the file that a symbol of an open library lies in; empty when unknown.
std::string file_of_symbol(const void* address);

// Folders that may hold Python's NVIDIA packages: those around this library, which in a wheel lies
// in site-packages/attn_c. Each without a trailing slash.
std::vector<std::string> python_package_folders();

}  // namespace attn::cuda
