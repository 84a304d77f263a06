// NVRTC, opened at run time: turns kernel sources into cubins.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "cuda/shared_library.h"

namespace attn::cuda {

using nvrtcResult = int;
struct nvrtcProgram_st;
using nvrtcProgram = nvrtcProgram_st*;

// What came out of a compile.
struct CompiledKernel {
  std::string cubin;
  std::string log;  // the compiler's remarks: registers, spills
};

class Nvrtc {
 public:
  // Opens the library and its builtins from the same folder, searching: `option` (only it, when not
  // empty), what the process has loaded, Python's NVIDIA packages beside this library, the system
  // loader, the toolkit's folder. One that is too old or lacks a function is passed over. Throws
  // UNAVAILABLE with every place that was tried and why it did not serve. Kept for good.
  static const Nvrtc& get(const std::string& option);

  // Compiles one source with its headers (name, text) for `architecture` ("sm_90a") and the macro
  // definitions ("NAME=VALUE"). `line_info`: source lines for profilers, which triple a cubin's
  // size. Throws COMPILE with the compiler's words. Any threads at once.
  CompiledKernel compile(const std::string& name, const std::string& source,
                         const std::vector<std::pair<std::string, std::string>>& headers,
                         const std::string& architecture,
                         const std::vector<std::string>& definitions, bool line_info) const;

  int version() const { return major_ * 1000 + minor_ * 10; }
  std::string version_text() const;
  const std::string& path() const { return path_; }

 private:
  nvrtcResult (*Version)(int*, int*) = nullptr;
  const char* (*GetErrorString)(nvrtcResult) = nullptr;
  nvrtcResult (*CreateProgram)(nvrtcProgram*, const char*, const char*, int, const char* const*,
                               const char* const*) = nullptr;
  nvrtcResult (*CompileProgram)(nvrtcProgram, int, const char* const*) = nullptr;
  nvrtcResult (*GetProgramLogSize)(nvrtcProgram, size_t*) = nullptr;
  nvrtcResult (*GetProgramLog)(nvrtcProgram, char*) = nullptr;
  nvrtcResult (*GetCUBINSize)(nvrtcProgram, size_t*) = nullptr;
  nvrtcResult (*GetCUBIN)(nvrtcProgram, char*) = nullptr;
  nvrtcResult (*DestroyProgram)(nvrtcProgram*) = nullptr;
  static Nvrtc* open(const std::string& option);
  std::string load(const SharedLibrary& library);
  int major_ = 0;
  int minor_ = 0;
  std::string path_;
};

}  // namespace attn::cuda
