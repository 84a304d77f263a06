// Lengths in host memory, lengths that the host checks, and code that a graph keeps.
#include <gtest/gtest.h>

#include <memory>
#include <stdexcept>

#include "gpu/driver.h"
#include "gpu/step.h"

namespace attn::gpu {
namespace {

using test::Outcome;

class GpuLengths : public GpuTest {};

std::vector<unsigned char> replay(const Stream& stream, Step& step, const Graph& graph) {
  graph.launch(stream);
  stream.wait();
  return step.output();
}

// A step whose lengths lie in host memory.
struct HostLengthsStep {
  explicit HostLengthsStep(uint64_t seed) : step(gpu, stream, shape(), seed) {}

  static StepShape shape() {
    StepShape shape;
    shape.on_host = {true, true};
    return shape;
  }

  // Runs it at three lengths, from its first caches on; the output.
  std::vector<unsigned char> run() {
    step.set_totals({100, 7, 260});
    step.reset_caches();
    step.run(session.get());
    return step.output();
  }

  const Gpu& gpu = Gpu::first();
  const Stream stream{gpu};
  Step step;
  const test::Handle<attn_session> session = make_session(gpu);
};

// The same bits as with the lengths on the device, for batches beyond one launch's values too.
TEST_F(GpuLengths, InHostMemoryGiveTheSameBits) {
  const Gpu& gpu = Gpu::first();
  const Stream stream(gpu);
  for (int64_t batch : {1, 3, 700}) {
    StepShape shape;
    shape.batch = batch;
    shape.heads = 2;
    shape.kv_heads = 1;
    shape.capacity = 70;
    StepShape from_host = shape;
    from_host.on_host = {true, true};
    Step plain(gpu, stream, shape, 41), step(gpu, stream, from_host, 41);
    const test::Handle<attn_session> session = make_session(gpu);
    test::Random random(42);
    for (int i = 0; i < 5; ++i) {
      const std::vector<int64_t> totals = draw_totals(random, batch, 1, shape.capacity);
      for (Step* one : {&plain, &step}) {
        one->reset_caches();
        one->set_totals(totals);
        one->set_tokens(static_cast<uint64_t>(i));
        one->run(session.get());
      }
      EXPECT_EQ(step.output(), plain.output()) << "batch " << batch;
      EXPECT_EQ(step.caches(), plain.caches()) << "batch " << batch;
    }
    EXPECT_EQ(poll(session.get()).bits, 0u);
  }
}

// They are read before execute returns: what the caller writes afterwards is not felt.
TEST_F(GpuLengths, InHostMemoryAreReadByValue) {
  HostLengthsStep host(43);
  const std::vector<unsigned char> want = host.run();
  host.step.reset_caches();
  const Outcome outcome = host.step.launch(host.session.get());
  ASSERT_TRUE(outcome.ok()) << outcome.message;
  host.step.set_totals({1, 1, 1});
  host.stream.wait();
  EXPECT_EQ(host.step.output(), want);
}

TEST_F(GpuLengths, InHostMemoryAreCheckedBeforeAnythingIsWritten) {
  HostLengthsStep host(44);
  const std::vector<unsigned char> caches = host.step.caches();
  host.step.set_totals({5, HostLengthsStep::shape().capacity + 1, 6});
  const Outcome refused = host.step.launch(host.session.get());
  host.stream.wait();
  EXPECT_EQ(refused.status, ATTN_INVALID_ARGUMENT) << refused.message;
  for (const char* part : {"GroupQueryAttention", "seqlens_k[1]", "260", "261"}) {
    EXPECT_NE(refused.message.find(part), std::string::npos) << refused.message;
  }
  EXPECT_EQ(host.step.caches(), caches);
  EXPECT_EQ(poll(host.session.get()).bits, 0u) << "nothing ran, nothing faulted";
}

TEST_F(GpuLengths, InHostMemoryAreBakedOnRequestAlone) {
  HostLengthsStep host(45);
  const std::vector<unsigned char> want = host.run();
  host.step.reset_caches();
  Outcome refused, baked;
  const Graph graph = Graph::capture(host.gpu, host.stream, [&] {
    refused = host.step.launch(host.session.get());
    baked = host.step.launch(host.session.get(), nullptr, 0, ATTN_EXECUTE_BAKE_HOST_VALUES);
  });
  EXPECT_EQ(refused.status, ATTN_CAPTURE) << refused.message;
  EXPECT_NE(refused.message.find("ATTN_EXECUTE_BAKE_HOST_VALUES"), std::string::npos);
  ASSERT_TRUE(baked.ok()) << baked.message;
  host.step.set_totals({1, 1, 1});
  EXPECT_EQ(replay(host.stream, host.step, graph), want) << "the lengths of the capture";
  attn_plan_info info = ATTN_PLAN_INFO_INIT;
  must("plan_get_info",
       [&](attn_error* error) { return attn_plan_get_info(host.step.plan(), &info, error); });
  EXPECT_EQ(info.capture_flags & ATTN_CAPTURE_LENGTHS_ON_DEVICE, 0u);
  EXPECT_EQ(info.baked_slot_count, 2u) << "seqlens_k and total_sequence_length";
}

// A plan that checks on the host refuses what would fault on the device.
TEST_F(GpuLengths, CheckedOnTheHostOnRequest) {
  const Gpu& gpu = Gpu::first();
  const Stream stream(gpu);
  for (bool bound_on_host : {false, true}) {
    StepShape shape;
    shape.on_host.bound = bound_on_host;
    shape.prepare_flags = ATTN_PREPARE_CHECK_ON_HOST;
    Step step(gpu, stream, shape, 46);
    const test::Handle<attn_session> session = make_session(gpu);
    step.set_totals({100, 7, 260});
    step.run(session.get());
    const std::vector<unsigned char> caches = step.caches();
    step.set_totals({5, 6, shape.capacity + 1});
    const Outcome refused = step.launch(session.get());
    stream.wait();
    EXPECT_EQ(refused.status, ATTN_INVALID_ARGUMENT) << refused.message;
    EXPECT_NE(refused.message.find("seqlens_k[2]"), std::string::npos) << refused.message;
    EXPECT_EQ(step.caches(), caches);
    EXPECT_EQ(poll(session.get()).bits, 0u);

    step.set_totals({5, 6, 7});
    Outcome captured;
    Graph::capture(gpu, stream, [&] { captured = step.launch(session.get()); });
    EXPECT_EQ(captured.status, ATTN_CAPTURE) << captured.message;
    attn_plan_info info = ATTN_PLAN_INFO_INIT;
    must("plan_get_info",
         [&](attn_error* error) { return attn_plan_get_info(step.plan(), &info, error); });
    EXPECT_EQ(info.capture_flags & ATTN_CAPTURE_SUPPORTED, 0u);
    EXPECT_NE(std::string(info.reason).find("ATTN_PREPARE_CHECK_ON_HOST"), std::string::npos)
        << info.reason;
  }
}

// A graph of the caller's own goes on when the library's context is gone: code, scratch and words.
TEST_F(GpuLengths, AGraphOutlivesTheLibrarysContext) {
  const Gpu& gpu = Gpu::first();
  const Driver& driver = Driver::get();
  const Stream stream(gpu);
  const StepShape shape;
  const PrimaryContext primary(gpu.id());
  const CurrentContext current(primary.get());
  Step step(gpu, stream, shape, 47);  // its memory is of the context that stays
  const test::Handle<attn_session> session = make_session(gpu);
  step.set_totals({100, 7, 260});
  step.reset_caches();
  step.run(session.get());
  const std::vector<unsigned char> want = step.output();

  Driver::GraphHandle graph = nullptr;
  {
    const Gpu second(gpu.id());
    const Stream its_own(second);
    test::Handle<attn_session> its_session = make_session(second);
    test::Handle<attn_op> op;
    must("op_create", [&](attn_error*) {
      return test::create_op(op, second.context(), "com.microsoft", "GroupQueryAttention", 1,
                             step.problem().attributes(), "second")
          .status;
    });
    attn_prepare_desc desc = ATTN_PREPARE_DESC_INIT;
    desc.inputs = step.inputs().data();
    desc.input_count = step.inputs().size();
    desc.outputs = step.outputs().data();
    desc.output_count = step.outputs().size();
    test::Handle<attn_plan> plan;
    must("op_prepare", [&](attn_error*) {
      return test::create(plan,
                          [&](attn_plan** out, attn_error* error) {
                            return attn_op_prepare(op.get(), &desc, out, error);
                          })
          .status;
    });
    attn_execute_desc execute = ATTN_EXECUTE_DESC_INIT;
    execute.stream = its_own.get();
    const auto launch = [&] {
      return test::outcome_of([&](attn_error* error) {
        return attn_plan_execute(plan.get(), its_session.get(), step.inputs().data(),
                                 step.inputs().size(), step.outputs().data(), step.outputs().size(),
                                 &execute, error);
      });
    };
    ASSERT_TRUE(launch().ok());
    its_own.wait();
    must_driver("cuStreamBeginCapture", driver.StreamBeginCapture(its_own.get(), kCaptureGlobal));
    const Outcome outcome = launch();
    must_driver("cuStreamEndCapture", driver.StreamEndCapture(its_own.get(), &graph));
    ASSERT_TRUE(outcome.ok()) << outcome.message;
  }
  Driver::ExecHandle executable = nullptr;
  must_driver("cuGraphInstantiate", driver.GraphInstantiate(&executable, graph, 0));
  for (int i = 0; i < 3; ++i) {
    step.reset_caches();
    must_driver("cuGraphLaunch", driver.GraphLaunch(executable, stream.get()));
    stream.wait();
    EXPECT_EQ(step.output(), want);
  }
  must_driver("cuGraphExecDestroy", driver.GraphExecDestroy(executable));
  must_driver("cuGraphDestroy", driver.GraphDestroy(graph));
}

}  // namespace
}  // namespace attn::gpu
