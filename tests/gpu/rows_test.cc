// RotaryEmbedding and TensorScatter on the device: random problems bit for bit, bad positions and
// indices as faults that leave good batch rows right, poisoned calls, and replays with others.
#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>

#include "gpu/run.h"
#include "matrix/matrix.h"
#include "matrix/rotary_case.h"
#include "matrix/scatter_case.h"

namespace attn::gpu {
namespace {

using matrix::RotaryCase;
using matrix::ScatterCase;
using test::Handle;
using test::Outcome;
using test::outcome_of;

constexpr int64_t kFixedSeeds = 600, kRotatingSeeds = 400;

void clear(Lane& lane) {
  must("session_clear_faults", [&](attn_error* error) {
    return attn_session_clear_faults(lane.session.get(), lane.stream.get(), error);
  });
  lane.stream.wait();
}

template <class AnyCase>
std::vector<Mirror::NamedTensor> tensors_of(AnyCase& c) {
  std::vector<Mirror::NamedTensor> tensors;
  for (test::Tensor* tensor : c.all()) {
    tensors.push_back({tensor, "tensor " + std::to_string(tensors.size())});
  }
  return tensors;
}

// A case whose tensors have copies on the device, launched step by step.
template <class AnyCase>
class OnDevice {
 public:
  OnDevice(Lane& lane, AnyCase& c)
      : lane_(lane),
        case_(c),
        mirror_(lane.gpu, c, tensors_of(c)),
        inputs_(mirror_.inputs()),
        outputs_(mirror_.outputs()) {}

  // Empty, or what is wrong.
  std::string prepare(const char* engine) {
    const matrix::OperatorName name = case_.name();
    Outcome outcome = test::create_op(op_, lane_.gpu.context(), name.domain, name.type,
                                      name.version, case_.attributes(), "node");
    if (!outcome.ok()) return "op_create: " + outcome.message;
    attn_prepare_desc desc = ATTN_PREPARE_DESC_INIT;
    if (case_.wide_range) desc = case_.wide_bounds();
    desc.engine = engine;
    desc.inputs = inputs_.data();
    desc.input_count = inputs_.size();
    desc.outputs = outputs_.data();
    desc.output_count = outputs_.size();
    outcome = test::create(plan_, [&](attn_plan** plan, attn_error* error) {
      return attn_op_prepare(op_.get(), &desc, plan, error);
    });
    return outcome.ok() ? "" : "prepare: " + outcome.message;
  }

  void upload() { mirror_.upload(lane_.stream); }

  std::string launch() {
    attn_execute_desc desc = ATTN_EXECUTE_DESC_INIT;
    desc.stream = lane_.stream.get();
    const Outcome outcome = outcome_of([&](attn_error* error) {
      return attn_plan_execute(plan_.get(), lane_.session.get(), inputs_.data(), inputs_.size(),
                               outputs_.data(), outputs_.size(), &desc, error);
    });
    return outcome.ok() ? "" : "execute: " + outcome.message;
  }

  std::string download() {
    lane_.stream.wait();
    return mirror_.download(lane_.stream);
  }

  // As run() and then the case's own check: two calls whose order an operator would leave open.
  std::string run_and_check() {
    std::string findings = run();
    return findings += case_.check(nullptr);
  }

  // Uploads the case as it was built, runs it and brings everything back.
  std::string run() {
    case_.restore();
    upload();
    const std::string failure = launch();
    return failure.empty() ? download() : failure;
  }

 private:
  Lane& lane_;
  AnyCase& case_;
  Mirror mirror_;
  test::Arguments inputs_, outputs_;
  Handle<attn_op> op_;
  Handle<attn_plan> plan_;
};

// Whether every element of the output is zero: what a poisoned RotaryEmbedding leaves.
bool is_zero(const test::View& view) {
  for (int64_t i = 0; i < view.elements(); ++i) {
    if (view.at_linear(i) != 0) return false;
  }
  return true;
}
std::string poisoned_findings(RotaryCase& c) {
  return is_zero(c.all().back()->bound() ? c.all().back()->view() : c.all().front()->view())
             ? ""
             : "  a poisoned call left an output that is not zero\n";
}
std::string poisoned_findings(ScatterCase& c) { return c.untouched(); }

// Empty, or what is wrong with the problem of one seed.
template <class AnyCase>
std::string run_seed(Lane& lane, uint64_t seed, const char* engine, int64_t* faulted) {
  AnyCase c(seed);
  OnDevice<AnyCase> device(lane, c);
  std::string text = device.prepare(engine);
  if (text.empty()) text = device.run_and_check();
  const attn_fault_info found = poll(lane.session.get());
  if (found.bits != c.faults()) {
    text += "  fault bits are " + std::to_string(found.bits) + ", expected " +
            std::to_string(c.faults()) + "\n";
  }
  if (found.bits == 0) return text;
  ++*faulted;
  const auto rows = static_cast<int64_t>(c.bad_batch_rows().size());
  if (found.batch < 0 || found.batch >= rows ||
      !c.bad_batch_rows()[static_cast<size_t>(found.batch)]) {
    text += "  the first fault is said to be of batch row " + std::to_string(found.batch) + "\n";
  }
  text += device.run();
  text += poisoned_findings(c);
  clear(lane);
  text += device.run_and_check();  // as the first time
  clear(lane);
  return text;
}

template <class AnyCase>
void run_seeds(const char* kind, const char* engine, uint64_t first, int64_t count) {
  Lane lane(Gpu::first());
  int64_t faulted = 0;
  int failed = 0;
  for (int64_t i = 0; i < count; ++i) {
    const uint64_t seed = first + static_cast<uint64_t>(i);
    const std::string text = run_seed<AnyCase>(lane, seed, engine, &faulted);
    if (text.empty()) continue;
    ADD_FAILURE() << kind << " seed " << seed << ":\n" << text << "  " << AnyCase(seed).text();
    if (++failed == 5) FAIL() << "further seeds were not tried";
  }
  std::cout << kind << ": " << count << " problems from seed " << first << " on, " << faulted
            << " with faults\n";
  if (count >= 100) {
    EXPECT_GT(faulted, count / 50);
  }
}

class GpuRows : public GpuTest {};

// Few and fixed: for compute-sanitizer.
TEST_F(GpuRows, AFew) {
  run_seeds<RotaryCase>("RotaryEmbedding", "thread-rotary", 1, 25);
  run_seeds<ScatterCase>("TensorScatter", "thread-scatter", 1, 25);
}

TEST_F(GpuRows, RotaryEmbedding) {
  run_seeds<RotaryCase>("RotaryEmbedding", "thread-rotary", 1, kFixedSeeds);
  run_seeds<RotaryCase>("RotaryEmbedding", "thread-rotary", matrix::rotating_seed(),
                        kRotatingSeeds);
}

TEST_F(GpuRows, TensorScatter) {
  run_seeds<ScatterCase>("TensorScatter", "thread-scatter", 1, kFixedSeeds);
  run_seeds<ScatterCase>("TensorScatter", "thread-scatter", matrix::rotating_seed(),
                         kRotatingSeeds);
}

// A captured call reads positions or indices, and everything else, at each replay.
template <class AnyCase>
void replay(const char* kind, const char* engine) {
  Lane lane(Gpu::first());
  int replayed = 0;
  for (uint64_t seed = 5000; replayed < 10; ++seed) {
    AnyCase c(seed);
    if (c.faults() != 0 || c.bad_batch_rows().empty()) continue;
    SCOPED_TRACE(std::string(kind) + " " + c.text());
    OnDevice<AnyCase> device(lane, c);
    ASSERT_EQ(device.prepare(engine), "");
    ASSERT_EQ(device.run_and_check(), "");  // the session has all that it needs
    std::string failure;
    const Graph graph = Graph::capture(lane.gpu, lane.stream, [&] { failure = device.launch(); });
    ASSERT_EQ(failure, "");
    for (int round = 0; round < 2; ++round) {
      c.restore();
      device.upload();
      graph.launch(lane.stream);
      EXPECT_EQ(device.download(), "");
      EXPECT_EQ(c.check(nullptr), "");
    }
    ++replayed;
  }
}

TEST_F(GpuRows, ReplaysRotaryEmbedding) { replay<RotaryCase>("RotaryEmbedding", "thread-rotary"); }
TEST_F(GpuRows, ReplaysTensorScatter) { replay<ScatterCase>("TensorScatter", "thread-scatter"); }

// Bad values that only appear between replays fault, and good ones afterwards are right again.
TEST_F(GpuRows, AReplayMayFault) {
  Lane lane(Gpu::first());
  uint64_t seed = 9000;
  while (true) {  // a cache in place with write indices, none of them bad
    ScatterCase c(++seed);
    const std::vector<test::Tensor*> tensors = c.all();
    const bool in_place = !tensors[3]->bound(), indexed = tensors[2]->bound();
    const bool linear = c.features().count("linear") != 0, empty = c.features().count("empty") != 0;
    if (!in_place || !indexed || !linear || empty || c.faults() != 0) continue;
    SCOPED_TRACE(c.text());
    OnDevice<ScatterCase> device(lane, c);
    ASSERT_EQ(device.prepare("thread-scatter"), "");
    ASSERT_EQ(device.run_and_check(), "");
    std::string failure;
    const Graph graph = Graph::capture(lane.gpu, lane.stream, [&] { failure = device.launch(); });
    ASSERT_EQ(failure, "");
    c.restore();
    const test::View& indices = tensors[2]->view();
    for (int64_t b = 0; b < indices.dim(0); ++b) {
      *static_cast<int64_t*>(indices.address_of(b)) = int64_t{1} << 40;
    }
    device.upload();
    graph.launch(lane.stream);
    ASSERT_EQ(device.download(), "");
    EXPECT_EQ(poll(lane.session.get()).bits, static_cast<uint32_t>(ATTN_FAULT_WRITE_INDEX));
    EXPECT_LT(tensors[0]->buffer().first_change({}), 0) << "the cache was written";
    clear(lane);
    c.restore();
    device.upload();
    graph.launch(lane.stream);
    EXPECT_EQ(device.download(), "");
    EXPECT_EQ(c.check(nullptr), "");
    return;
  }
}

}  // namespace
}  // namespace attn::gpu
