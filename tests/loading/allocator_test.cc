// Where a session's memory on a device comes from, and goes, under a host's allocator.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <vector>

#include "loading/fakes.h"

namespace attn::test {
namespace {

// What the library asked for and has not given back; every request in order.
class Allocator {
 public:
  struct Request {
    uint32_t kind;
    uint64_t bytes;
    void* stream;
    bool current_context, relaxed;
  };

  Allocator() {
    callbacks_.user = this;
    callbacks_.allocate = [](void* user, uint32_t kind, uint64_t bytes, uint64_t alignment,
                             void* stream) {
      return static_cast<Allocator*>(user)->allocate(kind, bytes, alignment, stream);
    };
    callbacks_.deallocate = [](void* user, uint32_t kind, void* memory, uint64_t bytes,
                               void* stream) {
      static_cast<Allocator*>(user)->deallocate(kind, memory, bytes, stream);
    };
    callbacks_.release_user = [](void* user) { ++static_cast<Allocator*>(user)->releases; };
  }

  const attn_allocator* get() const { return &callbacks_; }
  int held(uint32_t kind) const {
    return static_cast<int>(std::count_if(live_.begin(), live_.end(),
                                          [&](const Live& live) { return live.kind == kind; }));
  }

  std::vector<Request> allocated, freed;
  uint32_t refused_kind = 0;     // gets null
  uint32_t misaligned_kind = 0;  // gets an address that is one off
  int releases = 0;

 private:
  struct Live {
    uint32_t kind;
    void* memory;
    uint64_t bytes;
    void* block;
  };

  static Request request(uint32_t kind, uint64_t bytes, void* stream) {
    constexpr int kRelaxed = 2;
    return {kind, bytes, stream, current_context() != nullptr, capture_mode() == kRelaxed};
  }

  void* allocate(uint32_t kind, uint64_t bytes, uint64_t alignment, void* stream) {
    if (kind == refused_kind) return nullptr;
    allocated.push_back(request(kind, bytes, stream));
    void* block = std::aligned_alloc(alignment, (bytes / alignment + 2) * alignment);
    void* memory = static_cast<char*>(block) + (kind == misaligned_kind ? 1 : 0);
    live_.push_back({kind, memory, bytes, block});
    return memory;
  }

  void deallocate(uint32_t kind, void* memory, uint64_t bytes, void* stream) {
    freed.push_back(request(kind, bytes, stream));
    const auto found = std::find_if(live_.begin(), live_.end(), [&](const Live& live) {
      return live.kind == kind && live.memory == memory && live.bytes == bytes;
    });
    ASSERT_NE(found, live_.end()) << "given back what was not given";
    std::free(found->block);
    live_.erase(found);
  }

  attn_allocator callbacks_ = ATTN_ALLOCATOR_INIT;
  std::vector<Live> live_;
};

class CudaAllocator : public testing::Test {
 protected:
  CudaAllocator() { reset_fakes(); }
  ~CudaAllocator() override { EXPECT_EQ(driver().balance(), 0); }

  CudaOptions options() const {
    CudaOptions out;
    out.allocator = allocator_.get();
    return out;
  }

  Allocator allocator_;
};

TEST_F(CudaAllocator, GivesAllThatASessionHolds) {
  {
    Step step(options());
    ASSERT_TRUE(step.outcome.ok()) << step.outcome.message;
    ASSERT_EQ(allocator_.allocated.size(), 2u) << "fault words and their mirror";
    EXPECT_EQ(allocator_.held(ATTN_MEMORY_DEVICE), 1);
    EXPECT_EQ(allocator_.held(ATTN_MEMORY_PINNED), 1);
    EXPECT_EQ(allocator_.allocated[0].stream, nullptr);
    EXPECT_EQ(allocator_.allocated[1].stream, nullptr);

    ASSERT_TRUE(step.execute().ok());
    ASSERT_EQ(allocator_.allocated.size(), 3u) << "scratch";
    const Allocator::Request& scratch = allocator_.allocated[2];
    EXPECT_EQ(scratch.kind, ATTN_MEMORY_DEVICE);
    EXPECT_EQ(scratch.stream, step.stream());
    ASSERT_TRUE(step.execute().ok());
    EXPECT_EQ(allocator_.allocated.size(), 3u) << "is kept";

    ASSERT_TRUE(step.trim().ok());
    ASSERT_EQ(allocator_.freed.size(), 1u);
    EXPECT_EQ(allocator_.freed[0].bytes, scratch.bytes);
    EXPECT_EQ(allocator_.freed[0].stream, nullptr);
    ASSERT_TRUE(step.execute().ok());
    EXPECT_EQ(allocator_.releases, 0);
  }
  EXPECT_EQ(allocator_.held(ATTN_MEMORY_DEVICE), 0);
  EXPECT_EQ(allocator_.held(ATTN_MEMORY_PINNED), 0);
  EXPECT_EQ(allocator_.releases, 1);
  for (const auto* requests : {&allocator_.allocated, &allocator_.freed}) {
    for (const Allocator::Request& request : *requests) {
      EXPECT_TRUE(request.current_context) << "kind " << request.kind;
      EXPECT_TRUE(request.relaxed) << "kind " << request.kind;
    }
  }
}

TEST_F(CudaAllocator, KeepsWhatAGraphHolds) {
  Step step(options());
  ASSERT_TRUE(step.outcome.ok()) << step.outcome.message;
  ASSERT_TRUE(step.execute().ok());
  ASSERT_TRUE(step.capture().ok());  // and releases the graph
  const size_t before = allocator_.freed.size();
  ASSERT_TRUE(step.trim().ok());
  EXPECT_EQ(allocator_.freed.size(), before + 1) << "once, graph and session having let go";
}

TEST_F(CudaAllocator, WithoutMemoryTheCallSaysWhich) {
  allocator_.refused_kind = ATTN_MEMORY_PINNED;
  {
    const Step step(options());
    EXPECT_EQ(step.outcome.status, ATTN_OUT_OF_MEMORY);
    EXPECT_NE(step.outcome.message.find("allocator gave no pinned memory of "), std::string::npos)
        << step.outcome.message;
  }
  allocator_.refused_kind = 0;
  Step step(options());
  ASSERT_TRUE(step.outcome.ok()) << step.outcome.message;
  allocator_.refused_kind = ATTN_MEMORY_DEVICE;
  driver().forget_calls();
  const Outcome outcome = step.execute();
  EXPECT_EQ(outcome.status, ATTN_OUT_OF_MEMORY);
  EXPECT_NE(outcome.message.find("allocator gave no device memory of "), std::string::npos)
      << outcome.message;
  const std::vector<std::string> calls(driver().calls, driver().calls + driver().call_count);
  EXPECT_EQ(std::count(calls.begin(), calls.end(), "cuLaunchKernelEx"), 0) << "nothing was written";
  allocator_.refused_kind = 0;
  EXPECT_TRUE(step.execute().ok()) << "a later call gets its memory";
}

TEST_F(CudaAllocator, MisalignedMemoryIsRefusedAndGivenBack) {
  Step step(options());
  ASSERT_TRUE(step.outcome.ok()) << step.outcome.message;
  allocator_.misaligned_kind = ATTN_MEMORY_DEVICE;
  const Outcome outcome = step.execute();
  EXPECT_EQ(outcome.status, ATTN_INVALID_ARGUMENT);
  EXPECT_NE(outcome.message.find("device memory that is not aligned to 256 bytes"),
            std::string::npos)
      << outcome.message;
  ASSERT_EQ(allocator_.freed.size(), 1u);
  EXPECT_EQ(allocator_.freed[0].stream, step.stream());
}

TEST_F(CudaAllocator, WhereADriverCallFailsNothingIsLost) {
  for (const char* call : {"cuMemHostGetDevicePointer", "cuStreamCreate", "cuMemsetD8Async"}) {
    driver().fail_call = call;
    driver().forget_calls();
    const Step step(options());
    EXPECT_FALSE(step.outcome.ok()) << call;
    driver().fail_call = nullptr;
  }
  EXPECT_EQ(allocator_.held(ATTN_MEMORY_DEVICE), 0);
  EXPECT_EQ(allocator_.held(ATTN_MEMORY_PINNED), 0);
}

}  // namespace
}  // namespace attn::test
