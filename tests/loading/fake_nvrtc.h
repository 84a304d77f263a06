// An NVRTC that compiles nothing: it hands out a fixed text as cubin, and fails as it is told to.
//
// Built as libnvrtc.so.13. The test opens the same file and asks fake_nvrtc() for its state.
#pragma once

#include <atomic>

namespace attn::test {

struct FakeNvrtc {
  int major = 13, minor = 5;
  const char* fail_call = nullptr;  // answers fail_code
  int fail_code = 6;
  bool empty_cubin = false;
  bool bad_cubin = false;       // one that the fake driver refuses
  bool needs_builtins = false;  // compiles only with the builtins library loaded
  const char* log = "words of the compiler";

  std::atomic<int> programs{0};  // created and not destroyed
  std::atomic<int> compiles{0};
  char last_options[2048] = {};  // of the last compile, joined with spaces
};

}  // namespace attn::test
