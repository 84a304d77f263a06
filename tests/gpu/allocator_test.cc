// Sessions on memory of the host: stream-ordered scratch, and pinned fault words.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "gpu/driver.h"
#include "gpu/step.h"

namespace attn::gpu {
namespace {

class GpuAllocator : public GpuTest {};

// Hands out cuMemAllocAsync where there is a stream, and counts.
class PoolAllocator {
 public:
  PoolAllocator() {
    callbacks_.user = this;
    callbacks_.allocate = [](void* user, uint32_t kind, uint64_t bytes, uint64_t, void* stream) {
      return static_cast<PoolAllocator*>(user)->allocate(kind, bytes, stream);
    };
    callbacks_.deallocate = [](void* user, uint32_t kind, void* memory, uint64_t, void* stream) {
      static_cast<PoolAllocator*>(user)->deallocate(kind, memory, stream);
    };
  }
  const attn_allocator* get() const { return &callbacks_; }
  size_t held() const { return kinds_.size(); }
  int ordered_allocations = 0, ordered_frees = 0;

 private:
  void* allocate(uint32_t kind, uint64_t bytes, void* stream) {
    const Driver& driver = Driver::get();
    void* memory = nullptr;
    unsigned long long address = 0;
    int status = 0;
    if (kind == ATTN_MEMORY_PINNED) {
      status = driver.MemHostAlloc(&memory, bytes, 0);
    } else if (stream != nullptr) {
      ++ordered_allocations;
      status = driver.MemAllocAsync(&address, bytes, stream);
    } else {
      status = driver.MemAlloc(&address, bytes);
    }
    if (status != 0) return nullptr;
    if (kind == ATTN_MEMORY_DEVICE) memory = reinterpret_cast<void*>(address);
    kinds_[memory] = kind;
    return memory;
  }

  void deallocate(uint32_t kind, void* memory, void* stream) {
    const Driver& driver = Driver::get();
    EXPECT_EQ(kinds_.count(memory), 1u);
    EXPECT_EQ(kinds_[memory], kind);
    kinds_.erase(memory);
    const auto address = reinterpret_cast<unsigned long long>(memory);
    int status = 0;
    if (kind == ATTN_MEMORY_PINNED) {
      status = driver.MemFreeHost(memory);
    } else if (stream != nullptr) {
      ++ordered_frees;
      status = driver.MemFreeAsync(address, stream);
    } else {
      status = driver.MemFree(address);
    }
    EXPECT_EQ(status, 0);
  }

  attn_allocator callbacks_ = ATTN_ALLOCATOR_INIT;
  std::map<void*, uint32_t> kinds_;
};

// Scratch grows from step to step in the stream's order, and every step is right.
TEST_F(GpuAllocator, StreamOrderedScratchGrowsBetweenStepsThatRun) {
  PoolAllocator allocator;
  {
    const Gpu gpu(Gpu::usable().front(), allocator.get());
    const Stream stream(gpu);
    const test::Handle<attn_session> session = make_session(gpu);
    EXPECT_EQ(allocator.held(), 2u) << "fault words and their mirror";
    std::vector<std::unique_ptr<Step>> steps;
    for (const int64_t batch : {2, 5, 40}) {
      StepShape shape;
      shape.batch = batch;
      shape.capacity = 600;
      steps.push_back(std::make_unique<Step>(gpu, stream, shape, 31 + batch));
      Step& step = *steps.back();
      step.set_totals(std::vector<int64_t>(static_cast<size_t>(batch), 599));
      step.expect();
    }
    for (const auto& step : steps) {
      const test::Outcome outcome = step->launch(session.get());
      ASSERT_TRUE(outcome.ok()) << outcome.message;
    }
    stream.wait();
    for (const auto& step : steps) EXPECT_EQ(step->check(), "");
    EXPECT_GE(allocator.ordered_allocations, 2);
    EXPECT_EQ(allocator.ordered_frees, allocator.ordered_allocations - 1);
    EXPECT_EQ(poll(session.get()).bits, 0u);
    EXPECT_EQ(stats_of(gpu).scratch_allocations,
              static_cast<uint64_t>(allocator.ordered_allocations));
  }
  EXPECT_EQ(allocator.held(), 0u);
}

// The graph's scratch stays where it is when the session is trimmed, and comes back after it.
TEST_F(GpuAllocator, AGraphKeepsTheHostsScratch) {
  PoolAllocator allocator;
  {
    const Gpu gpu(Gpu::usable().front(), allocator.get());
    const Stream stream(gpu);
    Step step(gpu, stream, {}, 37);
    const test::Handle<attn_session> session = make_session(gpu);
    step.run(session.get());
    const size_t held = allocator.held();
    {
      const Graph graph = Graph::capture(gpu, stream, [&] { step.launch(session.get()); });
      must("context_trim",
           [&](attn_error* error) { return attn_context_trim(gpu.context(), error); });
      EXPECT_EQ(allocator.held(), held);
      step.reset_caches();
      step.set_totals(std::vector<int64_t>(3, 200));
      step.expect();
      graph.launch(stream);
      stream.wait();
      EXPECT_EQ(step.check(), "");
    }
    // The driver lets go of what a graph held some time after it.
    for (int wait = 0; wait < 1000 && allocator.held() == held; ++wait) {
      must("context_trim",
           [&](attn_error* error) { return attn_context_trim(gpu.context(), error); });
    }
    EXPECT_EQ(allocator.held(), held - 1);
  }
  EXPECT_EQ(allocator.held(), 0u);
}

}  // namespace
}  // namespace attn::gpu
