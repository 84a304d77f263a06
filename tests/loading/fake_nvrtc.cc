#include "loading/fake_nvrtc.h"

#include <dlfcn.h>

#include <cstddef>
#include <cstdio>
#include <cstring>
#include <mutex>

namespace {

constexpr char kCubin[] = "fake cubin", kBadCubin[] = "no cubin at all";
constexpr int kBuiltinFailure = 7;

attn::test::FakeNvrtc state;
std::mutex options_mutex;

int answer(const char* call) {
  const bool fail = state.fail_call != nullptr && std::strcmp(state.fail_call, call) == 0;
  return fail ? state.fail_code : 0;
}

bool builtins_are_loaded() {
  char name[64];
  std::snprintf(name, sizeof name, "libnvrtc-builtins.so.%d.%d", state.major, state.minor);
  return dlopen(name, RTLD_NOW | RTLD_NOLOAD) != nullptr;
}

}  // namespace

#define ATTN_FAKE_EXPORT __attribute__((visibility("default")))

extern "C" {

ATTN_FAKE_EXPORT attn::test::FakeNvrtc* fake_nvrtc() { return &state; }

ATTN_FAKE_EXPORT int nvrtcVersion(int* major, int* minor) {
  *major = state.major;
  *minor = state.minor;
  return answer("nvrtcVersion");
}

ATTN_FAKE_EXPORT const char* nvrtcGetErrorString(int code) {
  return code == kBuiltinFailure ? "NVRTC_ERROR_BUILTIN_OPERATION_FAILURE"
                                 : "NVRTC_ERROR_OF_THE_FAKE";
}

ATTN_FAKE_EXPORT int nvrtcCreateProgram(void** program, const char*, const char*, int,
                                        const char* const*, const char* const*) {
  if (int code = answer("nvrtcCreateProgram"); code != 0) return code;
  *program = &state;
  ++state.programs;
  return 0;
}

ATTN_FAKE_EXPORT int nvrtcCompileProgram(void*, int count, const char* const* options) {
  ++state.compiles;
  {
    const std::lock_guard lock(options_mutex);
    state.last_options[0] = '\0';
    for (int i = 0; i < count; ++i) {
      const size_t used = std::strlen(state.last_options);
      std::snprintf(state.last_options + used, sizeof state.last_options - used, "%s ", options[i]);
    }
  }
  if (state.needs_builtins && !builtins_are_loaded()) return kBuiltinFailure;
  return answer("nvrtcCompileProgram");
}

ATTN_FAKE_EXPORT int nvrtcGetProgramLogSize(void*, size_t* size) {
  *size = std::strlen(state.log) + 1;
  return answer("nvrtcGetProgramLogSize");
}

ATTN_FAKE_EXPORT int nvrtcGetProgramLog(void*, char* log) {
  std::strcpy(log, state.log);
  return answer("nvrtcGetProgramLog");
}

ATTN_FAKE_EXPORT int nvrtcGetCUBINSize(void*, size_t* size) {
  *size = state.empty_cubin ? 0 : state.bad_cubin ? sizeof kBadCubin : sizeof kCubin;
  return answer("nvrtcGetCUBINSize");
}

#ifndef ATTN_FAKE_NVRTC_WITHOUT_CUBIN
ATTN_FAKE_EXPORT int nvrtcGetCUBIN(void*, char* cubin) {
  std::strcpy(cubin, state.bad_cubin ? kBadCubin : kCubin);
  return answer("nvrtcGetCUBIN");
}
#endif

ATTN_FAKE_EXPORT int nvrtcDestroyProgram(void** program) {
  *program = nullptr;
  --state.programs;
  return 0;
}

}  // extern "C"
