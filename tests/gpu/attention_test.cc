// The engine matrix of ai.onnx Attention on the GPU: random problems, under the generic engine and
// under the one that the library chooses, against the float64 reference.
#include <gtest/gtest.h>

#include <array>
#include <iostream>
#include <map>

#include "gpu/seeds.h"
#include "matrix/attention_case.h"

namespace attn::gpu {
namespace {

using matrix::AttentionBreach;
using matrix::AttentionCase;
using matrix::KeyForm;

constexpr int64_t kProblems = 500;  // that the generic engine must have accepted
constexpr int64_t kChosen = 96;     // problems under the engine of the library's choice
constexpr uint64_t kMostSeeds = 3000;

// What CUDA devices do not take, by a part of the words that they say.
constexpr std::array kRefusals = {"float64"};

class Totals final : public SeedTotals {
 public:
  void add(const std::string& engine, const RunResult& result) {
    const std::lock_guard lock(mutex_);
    ++(result.verdict == Verdict::kRefused ? refused_[result.text] : accepted_[engine]);
  }
  int64_t accepted(const std::string& engine) {
    const std::lock_guard lock(mutex_);
    return accepted_[engine];
  }
  void report(uint64_t drawn, bool whole) {
    std::cout << drawn << " problems drawn\n";
    for (const auto& [engine, count] : accepted_) {
      std::cout << "  " << (engine.empty() ? "(chosen)" : engine) << ": accepted " << count << "\n";
    }
    for (const auto& [reason, count] : refused_) {
      std::cout << "  refused " << count << "x: " << reason << "\n";
    }
    if (!report_failures() || !whole) return;
    EXPECT_TRUE(has_enough()) << "too few problems were served";
  }

 private:
  bool has_enough() const override {
    const auto found = accepted_.find("generic");
    return found != accepted_.end() && found->second >= kProblems;
  }
  std::map<std::string, int64_t> accepted_, refused_;
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
    totals.fail(seed_failure(seed, engine, result.text, c.text(), "GpuAttention.RotatingSeeds"));
    return;
  }
}

class GpuAttention : public GpuTest {};

TEST_F(GpuAttention, RotatingSeeds) {
  const SeedRange range = rotating_seeds(kMostSeeds);
  Totals totals;
  const uint64_t drawn = run_seeds(Gpu::first(), range, totals, [&](Lane& lane, uint64_t seed) {
    run_seed(lane, seed, totals);
  });
  totals.report(drawn, range.whole);
}

}  // namespace
}  // namespace attn::gpu
