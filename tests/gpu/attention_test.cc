// The engine matrix of ai.onnx Attention on the GPU: random problems, under the generic engine and
// under the one that the library chooses, against the float64 reference.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <iostream>
#include <map>
#include <mutex>
#include <thread>

#include "gpu/run.h"
#include "gpu/warm_up.h"
#include "matrix/attention_case.h"

namespace attn::gpu {
namespace {

using matrix::AttentionBreach;
using matrix::AttentionCase;
using matrix::KeyForm;

constexpr int64_t kProblems = 500;  // that the generic engine must have accepted
constexpr int64_t kChosen = 96;     // problems under the engine of the library's choice
constexpr uint64_t kMostSeeds = 3000;
constexpr size_t kMostFailures = 8;

// What CUDA devices do not take, by a part of the words that they say.
constexpr std::array kRefusals = {"float64"};

class Totals {
 public:
  void add(const std::string& engine, const RunResult& result) {
    const std::lock_guard lock(mutex_);
    if (result.verdict == Verdict::kRefused) {
      ++refused_[result.text];
      return;
    }
    ++accepted_[engine];
  }
  void fail(std::string text) {
    const std::lock_guard lock(mutex_);
    failures_.push_back(std::move(text));
  }
  int64_t accepted(const std::string& engine) {
    const std::lock_guard lock(mutex_);
    return accepted_[engine];
  }
  bool done() {
    const std::lock_guard lock(mutex_);
    return failures_.size() >= kMostFailures || accepted_["generic"] >= kProblems;
  }
  void report(uint64_t drawn) {
    std::cout << drawn << " problems drawn\n";
    for (const auto& [engine, count] : accepted_) {
      std::cout << "  " << (engine.empty() ? "(chosen)" : engine) << ": accepted " << count << "\n";
    }
    for (const auto& [reason, count] : refused_) {
      std::cout << "  refused " << count << "x: " << reason << "\n";
    }
    for (const std::string& failure : failures_) ADD_FAILURE() << failure;
    if (failures_.empty()) {
      EXPECT_GE(accepted_["generic"], kProblems) << "too few problems were served";
    }
  }

 private:
  std::mutex mutex_;
  std::map<std::string, int64_t> accepted_, refused_;
  std::vector<std::string> failures_;
};

// A refusal that the device may give, as one: the run takes it for a failure of a legal problem.
RunResult judged(RunResult result) {
  if (result.verdict != Verdict::kFailed) return result;
  for (const char* words : kRefusals) {
    if (result.text.find("is not served: ") == std::string::npos ||
        result.text.find(words) == std::string::npos) {
      continue;
    }
    return {Verdict::kRefused, words, {}};
  }
  return result;
}

void run_seed(Lane& lane, uint64_t seed, Totals& totals) {
  const matrix::MatrixOptions options = matrix::attention_matrix_options();
  for (const std::string& engine : {std::string("generic"), std::string()}) {
    if (engine.empty() && totals.accepted(engine) >= kChosen) continue;
    const std::unique_ptr<matrix::Case> drawn = options.draw(seed);
    auto& c = dynamic_cast<AttentionCase&>(*drawn);
    if (c.outline.breach != AttentionBreach::kNone) return;
    DeviceCase device(lane, c, tensors_of(c), engine);
    RunResult result = device.prepare();
    if (result.verdict == Verdict::kPassed) {
      // A mask may end before the new keys do: the case then expects nothing but the fault.
      result = c.faults() == 0 ? device.execute({}) : device.execute_for_faults(c.faults());
    }
    result = judged(std::move(result));
    if (result.verdict != Verdict::kFailed) {
      totals.add(engine, result);
      continue;
    }
    totals.fail("seed " + std::to_string(seed) + ", engine " +
                (engine.empty() ? "(chosen)" : engine) + ":\n" + result.text + "\n  " + c.text() +
                "\n  repeat: ATTN_C_TEST_SEED=" + std::to_string(seed) +
                " ATTN_C_TEST_COUNT=1 gpu_tests --gtest_filter=GpuAttention.*");
    return;
  }
}

class GpuAttention : public GpuTest {};

TEST_F(GpuAttention, RotatingSeeds) {
  const Gpu& gpu = Gpu::first();
  const uint64_t first = matrix::rotating_seed();
  const auto most = static_cast<uint64_t>(
      number_from_environment("ATTN_C_TEST_COUNT", static_cast<int64_t>(kMostSeeds)));
  std::cout << "seeds begin at " << first << " (ATTN_C_TEST_SEED repeats them)\n";
  Totals totals;
  std::atomic<uint64_t> next{0};
  std::vector<std::thread> workers;
  for (int w = 0; w < worker_count(); ++w) {
    workers.emplace_back([&] {
      try {
        Lane lane(gpu);
        while (!totals.done() || most < kMostSeeds) {
          const uint64_t i = next++;
          if (i >= most) break;
          run_seed(lane, first + i, totals);
        }
      } catch (const std::exception& error) {
        totals.fail(error.what());
      }
    });
  }
  for (std::thread& worker : workers) worker.join();
  totals.report(std::min(next.load(), most));
}

}  // namespace
}  // namespace attn::gpu
