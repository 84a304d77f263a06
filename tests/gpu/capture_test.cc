// What a capture refuses, and what it must not disturb.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "gpu/driver.h"
#include "gpu/step.h"

namespace attn::gpu {
namespace {

using test::Outcome;
using test::outcome_of;

class GpuCapture : public GpuTest {};

// A graph that was captured beside a refusal gives the bits of eager steps.
void expect_same_as_eager(const Gpu& gpu, const Stream& stream, Step& step, const Graph& graph,
                          const StepShape& shape, uint64_t seed) {
  Step eager(gpu, stream, shape, seed);
  const test::Handle<attn_session> session = make_session(gpu);
  const std::vector<int64_t> totals(static_cast<size_t>(shape.batch), shape.capacity / 2);
  for (Step* one : {&step, &eager}) {
    one->reset_caches();
    one->set_totals(totals);
    one->set_tokens(3);
  }
  graph.launch(stream);
  stream.wait();
  eager.run(session.get());
  EXPECT_EQ(step.output(), eager.output());
  EXPECT_EQ(step.caches(), eager.caches());
}

TEST_F(GpuCapture, WithoutAFittingPlanItIsRefusedAndTheCaptureGoesOn) {
  const Gpu& gpu = Gpu::first();
  const Stream stream(gpu);
  const StepShape shape;
  StepShape longer = shape;
  longer.capacity = shape.capacity + 100;
  Step step(gpu, stream, shape, 21), other(gpu, stream, longer, 22);
  const test::Handle<attn_session> session = make_session(gpu);
  step.run(session.get());

  test::Handle<attn_binding> unprepared;
  must("binding_create", [&](attn_error* error) {
    attn_binding* raw = nullptr;
    const attn_status status = attn_binding_create(step.op(), session.get(), &raw, error);
    unprepared.reset(raw);
    return status;
  });
  must("binding_set_tensors", [&](attn_error* error) {
    return attn_binding_set_tensors(unprepared.get(), step.inputs().data(), step.inputs().size(),
                                    step.outputs().data(), step.outputs().size(), error);
  });
  attn_execute_desc desc = ATTN_EXECUTE_DESC_INIT;
  desc.stream = stream.get();
  const auto execute_binding = [&](uint32_t flags) {
    desc.flags = flags;
    return outcome_of(
        [&](attn_error* error) { return attn_binding_execute(unprepared.get(), &desc, error); });
  };
  const auto execute_other = [&] {
    attn_execute_desc plain = ATTN_EXECUTE_DESC_INIT;
    plain.stream = stream.get();
    return outcome_of([&](attn_error* error) {
      return attn_plan_execute(step.plan(), session.get(), other.inputs().data(),
                               other.inputs().size(), other.outputs().data(),
                               other.outputs().size(), &plain, error);
    });
  };
  EXPECT_EQ(execute_binding(0).status, ATTN_NOT_PREPARED) << "outside of captures";
  EXPECT_EQ(execute_other().status, ATTN_NOT_PREPARED) << "outside of captures";

  Outcome no_plan, no_fit, asked;
  const Graph graph = Graph::capture(gpu, stream, [&] {
    no_plan = execute_binding(0);
    asked = execute_binding(ATTN_EXECUTE_PREPARE);
    no_fit = execute_other();
    const Outcome good = step.launch(session.get());
    if (!good.ok()) throw std::runtime_error("after the refusals: " + good.message);
  });
  EXPECT_EQ(no_plan.status, ATTN_CAPTURE) << no_plan.message;
  EXPECT_EQ(asked.status, ATTN_CAPTURE)
      << "ATTN_EXECUTE_PREPARE counts outside of captures: " << asked.message;
  EXPECT_EQ(no_fit.status, ATTN_CAPTURE) << no_fit.message;
  EXPECT_NE(no_fit.message.find(std::to_string(longer.capacity)), std::string::npos)
      << "the message does not say what changed: " << no_fit.message;
  expect_same_as_eager(gpu, stream, step, graph, shape, 21);
}

TEST_F(GpuCapture, ScratchDoesNotGrowInsideIt) {
  const Gpu& gpu = Gpu::first();
  const Stream stream(gpu);
  const StepShape shape;
  Step step(gpu, stream, shape, 23);
  attn_plan_info info = ATTN_PLAN_INFO_INIT;
  must("plan_get_info",
       [&](attn_error* error) { return attn_plan_get_info(step.plan(), &info, error); });
  EXPECT_NE(info.capture_flags & ATTN_CAPTURE_SUPPORTED, 0u);
  EXPECT_NE(info.capture_flags & ATTN_CAPTURE_LENGTHS_ON_DEVICE, 0u);
  ASSERT_GT(info.workspace_bytes, 0u);
  const PlainMemory workspace(gpu, info.workspace_bytes);
  const test::Handle<attn_session> fresh = make_session(gpu);
  const uint64_t before = stats_of(gpu).scratch_allocations;
  Outcome grown;
  const Graph graph = Graph::capture(gpu, stream, [&] {
    grown = step.launch(fresh.get());
    const Outcome good = step.launch(fresh.get(), workspace.data(), info.workspace_bytes);
    if (!good.ok()) throw std::runtime_error("with the caller's workspace: " + good.message);
  });
  EXPECT_EQ(grown.status, ATTN_CAPTURE) << grown.message;
  EXPECT_EQ(stats_of(gpu).scratch_allocations, before);
  expect_same_as_eager(gpu, stream, step, graph, shape, 23);
}

// The library's own calls that allocate, load and free, made while another thread captures in the
// mode that forbids them to every thread.
TEST_F(GpuCapture, AnotherThreadsGlobalCaptureIsNotDisturbed) {
  const Gpu& gpu = Gpu::first();
  const Driver& driver = Driver::get();
  const PrimaryContext primary(gpu.id());
  const Stream stream(gpu), elsewhere(gpu);
  const StepShape shape;
  Step step(gpu, stream, shape, 25);
  const test::Handle<attn_session> session = make_session(gpu);
  step.run(session.get());

  std::atomic<bool> capturing{false}, finish{false};
  Driver::Status began = -1, ended = -1;
  Driver::GraphHandle graph = nullptr;
  Outcome launched;
  std::thread other([&] {
    const CurrentContext current(primary.get());
    began = driver.StreamBeginCapture(stream.get(), kCaptureGlobal);
    launched = step.launch(session.get());
    capturing = true;
    while (!finish) std::this_thread::yield();
    ended = driver.StreamEndCapture(stream.get(), &graph);
  });
  while (!capturing) std::this_thread::yield();
  {
    // No copies and no waiting: those are the caller's to keep away from a global capture.
    StepShape unseen = shape;
    unseen.size = 40;  // a kernel that nothing compiled before
    matrix::GqaCase c = [&] {
      test::Random random(26);
      return matrix::build_case(outline_of(unseen), random, false);
    }();
    const Mirror mirror(gpu, c, {});
    const test::Arguments inputs = mirror.inputs(), outputs = mirror.outputs();
    test::Handle<attn_op> op;
    const Outcome created = test::create_op(op, gpu.context(), "com.microsoft",
                                            "GroupQueryAttention", 1, c.attributes());
    EXPECT_TRUE(created.ok()) << created.message;
    attn_prepare_desc desc = ATTN_PREPARE_DESC_INIT;
    desc.inputs = inputs.data();
    desc.input_count = inputs.size();
    desc.outputs = outputs.data();
    desc.output_count = outputs.size();
    test::Handle<attn_plan> plan;
    const Outcome prepared = test::create(plan, [&](attn_plan** out, attn_error* error) {
      return attn_op_prepare(op.get(), &desc, out, error);
    });
    EXPECT_TRUE(prepared.ok()) << prepared.message;
    const test::Handle<attn_session> grows = make_session(gpu);
    attn_execute_desc run = ATTN_EXECUTE_DESC_INIT;
    run.stream = elsewhere.get();
    const Outcome executed = outcome_of([&](attn_error* error) {
      return attn_plan_execute(plan.get(), grows.get(), inputs.data(), inputs.size(),
                               outputs.data(), outputs.size(), &run, error);
    });
    EXPECT_TRUE(executed.ok()) << executed.message;
    const Outcome trimmed =
        outcome_of([&](attn_error* error) { return attn_context_trim(gpu.context(), error); });
    EXPECT_TRUE(trimmed.ok()) << trimmed.message;
  }
  finish = true;
  other.join();
  elsewhere.wait();
  EXPECT_EQ(began, 0);
  EXPECT_TRUE(launched.ok()) << launched.message;
  EXPECT_EQ(ended, 0) << "the other thread's capture was broken";
  if (ended != 0) return;

  const CurrentContext current(primary.get());
  Driver::ExecHandle executable = nullptr;
  must_driver("cuGraphInstantiateWithFlags", driver.GraphInstantiate(&executable, graph, 0));
  // The eager run before the capture had the same lengths and tokens.
  const std::vector<unsigned char> want = step.output();
  step.mirror().upload(step.problem().in[matrix::kPastKey], stream);
  step.problem().out[matrix::kOutput].buffer().fill(0xCD);
  step.mirror().upload(step.problem().out[matrix::kOutput], stream);
  must_driver("cuGraphLaunch", driver.GraphLaunch(executable, stream.get()));
  stream.wait();
  EXPECT_EQ(step.output(), want);
  EXPECT_EQ(poll(session.get()).bits, 0u);
  must_driver("cuGraphExecDestroy", driver.GraphExecDestroy(executable));
  must_driver("cuGraphDestroy", driver.GraphDestroy(graph));
}

// The types of a graph's nodes, in the graph's order.
std::vector<int> capture_node_types(const Gpu& gpu, const Stream& stream, Step& step,
                                    attn_session* session) {
  const Driver& driver = Driver::get();
  const PrimaryContext primary(gpu.id());
  const CurrentContext current(primary.get());
  must_driver("cuStreamBeginCapture", driver.StreamBeginCapture(stream.get(), kCaptureGlobal));
  const Outcome outcome = step.launch(session);
  Driver::GraphHandle graph = nullptr;
  must_driver("cuStreamEndCapture", driver.StreamEndCapture(stream.get(), &graph));
  if (!outcome.ok()) throw std::runtime_error("execute in a capture: " + outcome.message);
  size_t count = 0;
  must_driver("cuGraphGetNodes", driver.GraphGetNodes(graph, nullptr, &count));
  std::vector<void*> nodes(count);
  must_driver("cuGraphGetNodes", driver.GraphGetNodes(graph, nodes.data(), &count));
  std::vector<int> types;
  for (void* node : nodes) {
    int type = -1;
    must_driver("cuGraphNodeGetType", driver.GraphNodeGetType(node, &type));
    types.push_back(type);
  }
  must_driver("cuGraphDestroy", driver.GraphDestroy(graph));
  return types;
}

TEST_F(GpuCapture, CapturedAgainItHasTheSameNodes) {
  const Gpu& gpu = Gpu::first();
  const Stream stream(gpu);
  for (int64_t rows : {1, 70}) {
    StepShape shape;
    shape.rows = rows;
    Step step(gpu, stream, shape, 27), elsewhere(gpu, stream, shape, 28);
    const test::Handle<attn_session> session = make_session(gpu), second = make_session(gpu);
    step.run(session.get());
    elsewhere.run(second.get());
    const std::vector<int> first = capture_node_types(gpu, stream, step, session.get());
    EXPECT_LE(first.size(), 2u) << "a step is at most two launches";
    for (int type : first) EXPECT_EQ(type, 0) << "0 is a kernel node";
    step.set_totals(std::vector<int64_t>(3, rows + 5));
    EXPECT_EQ(capture_node_types(gpu, stream, step, session.get()), first) << "other lengths";
    EXPECT_EQ(capture_node_types(gpu, stream, elsewhere, second.get()), first)
        << "other pointers and another session";
  }
}

// A graph keeps what it uses: session, plan and operator are gone, memory is used anew.
TEST_F(GpuCapture, TheGraphOutlivesSessionPlanAndOperator) {
  const Gpu& gpu = Gpu::first();
  const Stream stream(gpu);
  const StepShape shape;
  Step step(gpu, stream, shape, 29);
  test::Handle<attn_session> session = make_session(gpu);
  step.run(session.get());
  step.reset_caches();
  const Graph graph = Graph::capture(gpu, stream, [&] {
    const Outcome outcome = step.launch(session.get());
    if (!outcome.ok()) throw std::runtime_error(outcome.message);
  });
  session.reset();
  step.forget_plan();
  must("context_trim", [&](attn_error* error) { return attn_context_trim(gpu.context(), error); });
  // Whatever was freed would be handed out here, and overwritten.
  std::vector<test::Handle<attn_session>> sessions;
  std::vector<Memory> memory;
  for (int i = 0; i < 8; ++i) {
    sessions.push_back(make_session(gpu));
    StepShape larger = shape;
    larger.batch = 2 + i;
    Step user(gpu, stream, larger, 30);
    user.run(sessions.back().get());
    for (int64_t bytes : {4096, 20000, 300000, 3000000}) {
      memory.emplace_back(gpu, bytes);
      memory.back().fill(0xFF, stream);
    }
  }
  for (int round = 0; round < 3; ++round) {
    expect_same_as_eager(gpu, stream, step, graph, shape, 29);
  }
  for (Memory& block : memory) {
    std::vector<unsigned char> bytes(static_cast<size_t>(block.size()));
    EXPECT_TRUE(block.download(bytes.data(), stream));
    EXPECT_EQ(bytes, std::vector<unsigned char>(bytes.size(), 0xFF))
        << "the graph wrote to memory that it does not own";
  }
}

}  // namespace
}  // namespace attn::gpu
