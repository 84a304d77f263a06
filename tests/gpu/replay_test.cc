// Captured once, replayed with lengths and contents that change on the device: the bits of eager
// runs. ATTN_C_LONG=1 replays 100,000 times.
#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>

#include "gpu/step.h"
#include "matrix/matrix.h"

namespace attn::gpu {
namespace {

using test::Type;

int64_t replays() {
  const int64_t usual = number_from_environment("ATTN_C_LONG", 0) != 0 ? 100000 : 2000;
  return number_from_environment("ATTN_C_TEST_REPLAYS", usual);
}

// The captured step and its eager twin.
class Pair {
 public:
  Pair(const StepShape& shape, uint64_t seed)
      : gpu_(Gpu::first()),
        stream_(gpu_),
        shape_(shape),
        captured_(gpu_, stream_, shape, seed),
        eager_(gpu_, stream_, shape, seed),
        captured_session_(make_session(gpu_)),
        eager_session_(make_session(gpu_)) {
    // Scratch of a session grows outside of captures only.
    captured_.run(captured_session_.get());
    captured_.reset_caches();
    eager_.reset_caches();
    graph_ = Graph::capture(gpu_, stream_, [&] {
      const test::Outcome outcome = captured_.launch(captured_session_.get());
      if (!outcome.ok()) throw std::runtime_error("execute in a capture: " + outcome.message);
    });
  }

  // One step with these lengths and tokens both ways; the graph is launched twice in a row.
  void set(const std::vector<int64_t>& totals, uint64_t tokens) {
    for (Step* step : {&captured_, &eager_}) {
      step->set_totals(totals);
      step->set_tokens(tokens);
    }
  }
  std::string compare(bool whole_caches) {
    graph_.launch(stream_);
    graph_.launch(stream_);
    eager_.run(eager_session_.get());
    if (captured_.output() != eager_.output()) return "other outputs than eager";
    if (whole_caches && captured_.caches() != eager_.caches()) return "other caches than eager";
    const uint32_t bits = poll(captured_session_.get()).bits | poll(eager_session_.get()).bits;
    return bits == 0 ? "" : "fault bits " + std::to_string(bits);
  }
  // A replay against float64, with NaN in every row that was not written.
  std::string check(const std::vector<int64_t>& totals, uint64_t tokens) {
    captured_.set_totals(totals);
    captured_.set_tokens(tokens);
    captured_.poison_unwritten_rows();
    captured_.expect();
    graph_.launch(stream_);
    graph_.launch(stream_);
    stream_.wait();
    std::string findings = captured_.check();
    captured_.reset_caches();
    eager_.reset_caches();
    return findings;
  }
  const StepShape& shape() const { return shape_; }

 private:
  Gpu& gpu_;
  Stream stream_;
  StepShape shape_;
  Step captured_, eager_;
  test::Handle<attn_session> captured_session_, eager_session_;
  Graph graph_;
};

std::string lengths_text(const std::vector<int64_t>& totals) {
  std::string text;
  for (int64_t total : totals) text += " " + std::to_string(total);
  return text;
}

class GpuReplay : public GpuTest {};

// Lengths from 1 to the capacity, each batch row from another end.
TEST_F(GpuReplay, EveryLengthFromOneToTheCapacity) {
  for (bool bound_on_host : {false, true}) {
    StepShape shape;
    shape.on_host.bound = bound_on_host;
    Pair pair(shape, 11);
    for (int64_t length = 1; length <= shape.capacity; ++length) {
      const std::vector<int64_t> totals = {length, shape.capacity + 1 - length,
                                           (length * 7) % shape.capacity + 1};
      pair.set(totals, static_cast<uint64_t>(length));
      ASSERT_EQ(pair.compare(length % 32 == 0), "") << "lengths" << lengths_text(totals);
      if (length % 50 == 1) {
        ASSERT_EQ(pair.check(totals, static_cast<uint64_t>(length)), "")
            << "lengths" << lengths_text(totals);
      }
    }
  }
}

TEST_F(GpuReplay, RandomLengthsOftenInEveryType) {
  const uint64_t seed = matrix::rotating_seed();
  std::cout << "seed " << seed << ", " << replays() << " replays of each\n";
  StepShape shapes[3];
  shapes[1].type = Type::kFloat16;
  shapes[1].size = 64;
  shapes[1].heads = shapes[1].kv_heads = 4;
  shapes[2].type = Type::kFloat32;
  shapes[2].size = 64;
  shapes[2].batch = 2;
  for (const StepShape& shape : shapes) {
    Pair pair(shape, seed);
    test::Random random(seed);
    // The long run is of the first shape; the others vary the type.
    const int64_t count = &shape == shapes ? replays() : std::min<int64_t>(replays(), 2000);
    for (int64_t i = 0; i < count; ++i) {
      const std::vector<int64_t> totals = draw_totals(random, shape.batch, 1, shape.capacity);
      const uint64_t tokens = random.next();
      pair.set(totals, tokens);
      ASSERT_EQ(pair.compare(i % 500 == 499), "")
          << "replay " << i << ", lengths" << lengths_text(totals);
      if (i % 1000 == 999) {
        ASSERT_EQ(pair.check(totals, tokens), "")
            << "replay " << i << ", lengths" << lengths_text(totals);
      }
    }
  }
}

// A captured chunk of a prompt under each prefill engine.
TEST_F(GpuReplay, PrefillChunks) {
  const bool hopper = Gpu::first().architecture() == "sm_90" || Gpu::first().architecture().empty();
  for (const char* engine : {"mma-prefill", "wgmma-prefill", "float32-prefill", "generic", ""}) {
    if (std::string(engine) == "wgmma-prefill" && !hopper) continue;
    StepShape shape;
    shape.engine = engine;
    if (shape.engine == "float32-prefill") {
      shape.type = Type::kFloat32;
      shape.size = 64;
    }
    shape.rows = 70;
    shape.capacity = 333;
    Pair pair(shape, 17);
    test::Random random(18);
    for (int64_t i = 0; i < std::min<int64_t>(replays(), 40); ++i) {
      const std::vector<int64_t> totals =
          draw_totals(random, shape.batch, shape.rows, shape.capacity);
      pair.set(totals, random.next());
      ASSERT_EQ(pair.compare(i % 8 == 7), "") << engine << ", lengths" << lengths_text(totals);
      if (i % 10 == 9) {
        ASSERT_EQ(pair.check(totals, random.next()), "")
            << engine << ", lengths" << lengths_text(totals);
      }
    }
  }
}

}  // namespace
}  // namespace attn::gpu
