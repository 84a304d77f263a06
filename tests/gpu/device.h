// The CUDA device that the tests run on: its context, memory and streams through the C API.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "attn_c_host.h"
#include "support/attn.hpp"

namespace attn::gpu {

// Engines of the CUDA back end that solve attention, as the tests force them.
inline constexpr const char* kEngines[] = {"split-decode", "wgmma-prefill", "mma-prefill",
                                           "float32-prefill", "generic"};

// Calls a function of the C API; a failure throws std::runtime_error with its words.
template <class Call>
void must(const char* what, Call&& call) {
  const test::Outcome outcome = test::outcome_of(std::forward<Call>(call));
  if (!outcome.ok()) {
    throw std::runtime_error(std::string(what) + ": status " + std::to_string(outcome.status) +
                             " " + outcome.message);
  }
}

// One device of this machine. Lives until the process ends: nothing runs at exit.
class Gpu {
 public:
  attn_context* context() const { return context_.get(); }
  int32_t id() const { return id_; }
  // "sm_90"; empty where the library does not tell.
  std::string architecture() const { return test::info_of(context()).architecture; }

  // Ids of the devices that can be used, and why there is none.
  static const std::vector<int32_t>& usable();
  static const std::string& why_none();
  // The first usable device. Throws where it cannot be opened.
  static Gpu& first();
  // A context of its own on device `id`.
  explicit Gpu(int32_t id, const attn_allocator* allocator = nullptr);

 private:
  int32_t id_;
  test::Handle<attn_context> context_;
};

// Skips every test of a suite, with the reason, on a machine without a device.
class GpuTest : public testing::Test {
 protected:
  void SetUp() override {
    if (Gpu::usable().empty()) GTEST_SKIP() << Gpu::why_none();
  }
};

// A stream of a device.
class Stream {
 public:
  explicit Stream(const Gpu& gpu);
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  void* get() const { return stream_; }
  void wait() const;

 private:
  attn_context* context_;
  void* stream_ = nullptr;
};

// Device memory between two fences, which check() compares. With ATTN_C_TEST_EXACT in the
// environment there is no fence behind it: then compute-sanitizer sees the first byte beyond.
class Memory {
 public:
  Memory() = default;
  // `address_like`: the low eight bits of the address are those of this one.
  Memory(const Gpu& gpu, int64_t bytes, const void* address_like = nullptr);
  ~Memory();
  Memory(Memory&& other) noexcept { *this = std::move(other); }
  Memory& operator=(Memory&& other) noexcept;
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  unsigned char* data() const { return data_; }
  int64_t size() const { return size_; }

  // Writes the usable bytes and the fences; waits for the stream.
  void upload(const void* host, const Stream& stream);
  // Reads the usable bytes; false when a fence was written. Waits for the stream.
  bool download(void* host, const Stream& stream);
  // Fills the usable bytes, as upload() does.
  void fill(int byte, const Stream& stream);

 private:
  attn_context* context_ = nullptr;
  void* block_ = nullptr;
  unsigned char* data_ = nullptr;
  int64_t size_ = 0, before_ = 0, behind_ = 0;
  std::vector<unsigned char> image_;
};

// Large device memory without fences.
class PlainMemory {
 public:
  PlainMemory(const Gpu& gpu, uint64_t bytes);
  ~PlainMemory();
  PlainMemory(const PlainMemory&) = delete;
  PlainMemory& operator=(const PlainMemory&) = delete;
  unsigned char* data() const { return static_cast<unsigned char*>(memory_); }
  uint64_t size() const { return bytes_; }

 private:
  attn_context* context_;
  void* memory_ = nullptr;
  uint64_t bytes_;
};

// Copies in the stream's order and waits.
void copy(const Gpu& gpu, void* target, const void* source, uint64_t bytes, const Stream& stream);

// A graph of captured executions.
class Graph {
 public:
  Graph() = default;
  // Captures what `launch` puts into the stream.
  template <class Launch>
  static Graph capture(const Gpu& gpu, const Stream& stream, Launch&& launch) {
    begin(gpu, stream);
    try {
      launch();
    } catch (...) {
      attn_host_graph* broken = nullptr;
      attn_host_graph_end_capture(gpu.context(), stream.get(), &broken, nullptr);
      attn_host_graph_release(broken);
      throw;
    }
    return end(gpu, stream);
  }
  static void begin(const Gpu& gpu, const Stream& stream);
  static Graph end(const Gpu& gpu, const Stream& stream);
  void launch(const Stream& stream) const;

 private:
  struct Release {
    void operator()(attn_host_graph* graph) const { attn_host_graph_release(graph); }
  };
  std::unique_ptr<attn_host_graph, Release> graph_;
};

test::Handle<attn_session> make_session(const Gpu& gpu);
attn_fault_info poll(attn_session* session);
attn_context_stats stats_of(const Gpu& gpu);

// A number from the environment, or `otherwise`.
int64_t number_from_environment(const char* name, int64_t otherwise);

}  // namespace attn::gpu
