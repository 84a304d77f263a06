// The fakes as a test sees them, and a call of the library from context to release.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "loading/fake_driver.h"
#include "loading/fake_nvrtc.h"
#include "support/attn.hpp"

namespace attn::test {

// States of the fakes that ATTN_FAKE_DRIVER and ATTN_FAKE_NVRTC name, opened for good.
FakeDriver& driver();
FakeNvrtc& nvrtc();
// Both as they were at the begin, with nothing counted.
void reset_fakes();

// A path that nobody asked for before: the library remembers what it opened by path, and a link is
// a new one to the same file.
std::string new_path_to(const std::string& library);

// Makes one of the driver's contexts current for a scope.
class CurrentContext {
 public:
  explicit CurrentContext(int device);
  ~CurrentContext();
  CurrentContext(const CurrentContext&) = delete;
  CurrentContext& operator=(const CurrentContext&) = delete;
  void* handle() const { return context_; }

 private:
  int device_;
  void* context_ = nullptr;
};
void* current_context();
int capture_mode();

// Options of the fake device's context: no disk cache, nothing from the environment.
struct CudaOptions {
  int device = 0;
  std::string driver_path = new_path_to(ATTN_FAKE_DRIVER);
  std::string nvrtc_path = new_path_to(ATTN_FAKE_NVRTC);
  void* native_context = nullptr;
  std::string cache_folder;  // empty: no disk cache
  const attn_allocator* allocator = nullptr;
};
Outcome create_cuda_context(Handle<attn_context>& context, const CudaOptions& options);

// A decode step of GroupQueryAttention on the fake device.
class Step {
 public:
  // Prepares everything; `outcome` tells.
  explicit Step(const CudaOptions& options);
  ~Step();
  Step(const Step&) = delete;
  Step& operator=(const Step&) = delete;

  Outcome outcome;
  Outcome execute(uint32_t flags = 0);
  // Captures an execute, launches the graph and releases it; the first failure.
  Outcome capture() {
    return capture([this] { return execute(); });
  }
  // The same with another call; `held` counts what the graph keeps alive.
  Outcome capture(const std::function<Outcome()>& call, int* held = nullptr);
  Outcome clear();
  Outcome trim();
  attn_context* context() const { return context_.get(); }
  void* stream() const { return stream_; }
  std::string describe() const;

 private:
  bool go(const std::function<attn_status(attn_error*)>& call);
  attn_tensor device_tensor(attn_dtype type, std::vector<int64_t> shape);
  void bind();

  int device_;
  Handle<attn_context> context_;
  Handle<attn_op> op_;
  Handle<attn_session> session_;
  Handle<attn_plan> plan_;
  std::vector<void*> memory_;
  void* stream_ = nullptr;
  int32_t total_ = 16;
  Arguments inputs_, outputs_;
};

}  // namespace attn::test
