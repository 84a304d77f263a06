// A CUDA driver without a device, for tests of how the library opens and uses one: every call is
// counted and can be made to fail, and whatever is given out must come back.
//
// Built as libcuda.so.1. The test opens the same file and asks fake_driver() for its state.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace attn::test {

struct FakeDriver {
  static constexpr int kMaxCalls = 1 << 16;

  // How it behaves.
  int version = 12040;
  int devices = 2;
  int major = 8, minor = 6;
  bool invalidated = false;       // every stream's capture is, by an error before
  const char* missing = nullptr;  // cuGetProcAddress does not know this name
  // The `fail_at`-th call of `fail_call` (counted from 1; 0: each) answers fail_code. Calls that
  // give something back do so nevertheless, as a driver that reports an earlier error does.
  const char* fail_call = nullptr;
  int fail_at = 1;
  int fail_code = 999;

  // What happened. `calls` holds names in order.
  std::atomic<int> call_count{0};
  const char* calls[kMaxCalls] = {};
  std::atomic<int> failing_calls{0};  // of fail_call so far
  std::atomic<int> newest_version_asked{0};

  // What is out: zero once everything has come back.
  std::atomic<int> device_memory{0}, host_memory{0}, streams{0}, libraries{0}, graphs{0},
      executables{0}, user_objects{0}, primary_contexts{0}, pushed{0};

  void forget_calls() {
    call_count = 0;
    failing_calls = 0;
  }
  void forget_balance() {
    device_memory = host_memory = streams = libraries = graphs = executables = user_objects = 0;
    primary_contexts = pushed = 0;
  }
  int balance() const {
    return device_memory + host_memory + streams + libraries + graphs + executables + user_objects +
           primary_contexts + pushed;
  }
};

}  // namespace attn::test
