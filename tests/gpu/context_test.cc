// What a caller's program must not notice: his current context, allocations of later calls, other
// devices. And what is refused before anything is launched.
#include <gtest/gtest.h>

#include <thread>

#include "gpu/driver.h"
#include "gpu/run.h"
#include "gpu/step.h"

namespace attn::gpu {
namespace {

using test::Outcome;
using test::outcome_of;
using test::Type;

class GpuContext : public GpuTest {};

Driver::Context current() {
  Driver::Context context = nullptr;
  must_driver("cuCtxGetCurrent", Driver::get().CtxGetCurrent(&context));
  return context;
}

// Calls everything that a program calls, and compares the current context after each.
void call_everything(Driver::Context expected) {
  const auto same = [&](const char* after) {
    EXPECT_EQ(current(), expected) << "after " << after;
    return !testing::Test::HasFailure();
  };
  const Gpu gpu(Gpu::usable().front());
  if (!same("context_create")) return;
  {
    const Stream stream(gpu);
    same("host_stream_create");
    const StepShape shape;
    Step step(gpu, stream, shape, 91);
    same("memory, op_create and op_prepare");
    test::Handle<attn_session> session = make_session(gpu);
    same("session_create");
    step.run(session.get());
    same("plan_execute");
    attn_tensor unfit = *step.inputs().data()[0].tensor;
    unfit.shape[2] += 8;
    test::Arguments wrong;
    wrong.add(0, unfit);
    const Outcome refused = outcome_of([&](attn_error* error) {
      return attn_plan_execute(step.plan(), session.get(), wrong.data(), wrong.size(),
                               step.outputs().data(), step.outputs().size(), nullptr, error);
    });
    EXPECT_FALSE(refused.ok());
    same("a refused execute");
    poll(session.get());
    same("session_poll_faults");
    must("session_clear_faults", [&](attn_error* error) {
      return attn_session_clear_faults(session.get(), stream.get(), error);
    });
    same("session_clear_faults");
    Graph graph = Graph::capture(gpu, stream, [&] {
      same("host_graph_begin_capture");
      const Outcome launched = step.launch(session.get());
      EXPECT_TRUE(launched.ok()) << launched.message;
      same("execute in a capture");
    });
    same("host_graph_end_capture");
    graph.launch(stream);
    same("host_graph_launch");
    stream.wait();
    graph = Graph();
    same("host_graph_release");
    session.reset();
    same("session_release");
    must("context_trim",
         [&](attn_error* error) { return attn_context_trim(gpu.context(), error); });
    same("context_trim");
  }
  same("releases");
}

TEST_F(GpuContext, TheCallersCurrentContextStaysWithoutOne) {
  Gpu::first();  // so that the primary context is there
  std::thread([] {
    EXPECT_EQ(current(), nullptr);
    call_everything(nullptr);
    EXPECT_EQ(current(), nullptr) << "after context_release";
  }).join();
}

TEST_F(GpuContext, TheCallersCurrentContextStaysWithOneOfHis) {
  std::thread([] {
    Gpu::first();
    Driver::Context own = nullptr;
    int device = 0;
    must_driver("cuDeviceGet", Driver::get().DeviceGet(&device, Gpu::usable().front()));
    must_driver("cuCtxCreate", Driver::get().CtxCreate(&own, 0, device));
    call_everything(own);  // the library works in it
    EXPECT_EQ(current(), own) << "after context_release";

    // A library context that was fixed to the primary one, used while another is current.
    const Gpu& gpu = Gpu::first();
    {
      const Stream stream(gpu);
      Step step(gpu, stream, {}, 92);
      const test::Handle<attn_session> session = make_session(gpu);
      step.run(session.get());
      EXPECT_EQ(poll(session.get()).bits, 0u);
      EXPECT_EQ(current(), own);

      // A stream of the caller's own context is not one of the library's.
      Driver::StreamHandle foreign = nullptr;
      must_driver("cuStreamCreate", Driver::get().StreamCreate(&foreign, 1));
      attn_execute_desc desc = ATTN_EXECUTE_DESC_INIT;
      desc.stream = foreign;
      const Outcome refused = outcome_of([&](attn_error* error) {
        return attn_plan_execute(step.plan(), session.get(), step.inputs().data(),
                                 step.inputs().size(), step.outputs().data(), step.outputs().size(),
                                 &desc, error);
      });
      EXPECT_EQ(refused.status, ATTN_INVALID_ARGUMENT) << refused.message;
      must_driver("cuStreamDestroy", Driver::get().StreamDestroy(foreign));
    }
    EXPECT_EQ(current(), own);
    must_driver("cuCtxDestroy", Driver::get().CtxDestroy(own));
  }).join();
}

TEST_F(GpuContext, TheSecondCallOfAShapeClassAllocatesNothing) {
  const Gpu gpu(Gpu::usable().front());
  const Stream stream(gpu);
  Step step(gpu, stream, {}, 93);
  const test::Handle<attn_session> session = make_session(gpu);
  step.run(session.get());
  const attn_context_stats before = stats_of(gpu);
  EXPECT_GE(before.scratch_allocations, 1u) << "the first call took scratch";
  EXPECT_GT(before.scratch_bytes, 0u);
  EXPECT_GE(before.plans_created, 1u);
  const PrimaryContext primary(gpu.id());
  const auto free_bytes = [&] {
    const CurrentContext scope(primary.get());
    size_t free = 0, total = 0;
    must_driver("cuMemGetInfo", Driver::get().MemGetInfo(&free, &total));
    return free;
  };
  // Other processes use the device too: one round that they left alone is enough.
  constexpr int kRounds = 20;
  int rounds = 0;
  bool same = false;
  for (; rounds < kRounds && !same; ++rounds) {
    const size_t free_before = free_bytes();
    for (int64_t length = 1; length <= 60; ++length) {
      step.set_totals({length, 4 * length, 61 - length});
      step.run(session.get());
    }
    same = free_bytes() == free_before;
  }
  EXPECT_TRUE(same) << "every one of " << kRounds << " rounds changed the device's free memory";
  const attn_context_stats after = stats_of(gpu);
  EXPECT_EQ(after.scratch_allocations, before.scratch_allocations);
  EXPECT_EQ(after.scratch_bytes, before.scratch_bytes);
  EXPECT_EQ(after.plans_created, before.plans_created);
  EXPECT_EQ(after.kernel_compiles, before.kernel_compiles);
  EXPECT_EQ(after.executions, before.executions + 60 * static_cast<uint64_t>(rounds));
}

TEST_F(GpuContext, PreparingAgainCompilesNothing) {
  const Gpu gpu(Gpu::usable().front());
  const Stream stream(gpu);
  const Step first(gpu, stream, {}, 94);
  const attn_context_stats before = stats_of(gpu);
  EXPECT_GT(before.kernel_compiles + before.disk_cache_hits, 0u)
      << "kernels come from somewhere, and the statistics say where";
  const Step second(gpu, stream, {}, 95);
  const attn_context_stats after = stats_of(gpu);
  EXPECT_EQ(after.plans_created, before.plans_created);
  EXPECT_EQ(after.kernel_compiles, before.kernel_compiles);
  EXPECT_GT(after.plan_cache_hits, before.plan_cache_hits);
}

TEST_F(GpuContext, InfoNamesTheDevice) {
  const attn_context_info info = test::info_of(Gpu::first().context());
  EXPECT_EQ(info.device_type, ATTN_DEVICE_CUDA);
  EXPECT_EQ(info.device_id, Gpu::first().id());
  for (const char* text : {info.device_name, info.architecture, info.driver_version,
                           info.driver_path, info.uuid, info.pci_id}) {
    EXPECT_STRNE(text, "");
  }
  EXPECT_EQ(std::string(info.architecture).substr(0, 3), "sm_");
}

TEST_F(GpuContext, TwoDevicesInOneProcess) {
  if (Gpu::usable().size() < 2) GTEST_SKIP() << "this machine has one usable GPU";
  const Gpu second(Gpu::usable()[1]);
  const Gpu& first = Gpu::first();
  const StepShape shape;
  const auto steps = [&](const Gpu& gpu) {
    std::vector<std::vector<unsigned char>> outputs;
    const Stream stream(gpu);
    Step step(gpu, stream, shape, 96);
    const test::Handle<attn_session> session = make_session(gpu);
    test::Random random(97);
    for (int i = 0; i < 200; ++i) {
      step.set_totals(draw_totals(random, shape.batch, 1, shape.capacity));
      step.set_tokens(random.next());
      step.run(session.get());
      outputs.push_back(step.output());
    }
    EXPECT_EQ(poll(session.get()).bits, 0u);
    return outputs;
  };
  std::vector<std::vector<unsigned char>> here, there;
  std::thread other([&] { there = steps(second); });
  here = steps(first);
  other.join();
  EXPECT_TRUE(here == there) << "two devices of one kind give the same bits";

  // A tensor of the other device is refused.
  const Stream stream(first);
  Step step(first, stream, shape, 98);
  const test::Handle<attn_session> session = make_session(first);
  test::Arguments inputs;
  for (uint32_t i = 0; i < step.inputs().size(); ++i) {
    attn_tensor tensor = *step.inputs().data()[i].tensor;
    if (i == 0) tensor.device_id = second.id();
    inputs.add(step.inputs().data()[i].slot, tensor);
  }
  const Outcome refused = outcome_of([&](attn_error* error) {
    return attn_plan_execute(step.plan(), session.get(), inputs.data(), inputs.size(),
                             step.outputs().data(), step.outputs().size(), nullptr, error);
  });
  EXPECT_EQ(refused.status, ATTN_INVALID_ARGUMENT) << refused.message;
}

}  // namespace
}  // namespace attn::gpu
