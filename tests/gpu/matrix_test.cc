// The engine matrix on the device: random problems under every engine that serves them, against
// float64. Workers share one context, each with a session and a stream of its own.
#include <gtest/gtest.h>

#include <algorithm>
#include <iomanip>
#include <iostream>
#include <map>

#include "gpu/seeds.h"
#include "gpu/specialisation.h"
#include "gpu/warm_up.h"
#include "matrix/matrix.h"

namespace attn::gpu {
namespace {

using matrix::GqaCase;
using matrix::GqaOutline;

constexpr int64_t kLeastProblems = 1000;  // that each engine must have accepted
constexpr uint64_t kMostSeeds = 11000;

struct EngineCount {
  int64_t accepted = 0, refused = 0, broken = 0;
  std::map<std::string, matrix::CheckNumbers> worst;  // by type
  std::map<std::string, int64_t> reasons;
};

std::string without_numbers(const std::string& text) {
  std::string out;
  for (char c : text) {
    const bool digit = c >= '0' && c <= '9';
    if (digit && !out.empty() && out.back() == '#') continue;
    out += digit ? '#' : c;
  }
  return out;
}

// One problem by its seed: which specialisation (or none: anything, for the generic engine alone),
// and where total_sequence_length lies.
struct Problem {
  explicit Problem(uint64_t number) : seed(number) {
    test::Random random(test::derive_seed(seed, 9));
    free = random.chance(0.1);
    spec = specialisations()[static_cast<size_t>(
        random.below(static_cast<int64_t>(specialisations().size())))];
    wish = random.pick({Wish::kAny, Wish::kFewRows, Wish::kFastOnes, Wish::kManyRows});
    on_host.bound = random.chance(0.5);
    on_host.lengths = random.chance(0.2);
  }

  GqaCase make(bool broken) const {
    test::Random random(seed);
    GqaOutline outline = free ? matrix::draw_outline(seed, {.cost_limit = 3000000}, random)
                              : draw_inside(spec, seed, wish);
    if (!broken) outline.breach = matrix::Breach::kNone;
    test::Random memory(test::derive_seed(seed, 10));
    return matrix::build_case(outline, memory);
  }

  std::vector<std::string> engines() const {
    if (free) return {"generic"};
    std::vector<std::string> names;
    for (const char* engine : kEngines) {
      if (serves(engine, spec)) names.emplace_back(engine);
    }
    if (seed % 8 == 0) names.emplace_back("");  // the library's choice
    return names;
  }

  uint64_t seed;
  bool free = false;
  Specialisation spec;
  Wish wish = Wish::kAny;
  OnHost on_host;
};

class Totals final : public SeedTotals {
 public:
  void add(const std::string& engine, const GqaCase& c, bool broken, const RunResult& result) {
    const std::lock_guard lock(mutex_);
    EngineCount& count = counts_[engine];
    if (result.verdict == Verdict::kRefused) {
      ++count.refused;
      ++count.reasons[without_numbers(result.text)];
      return;
    }
    ++count.accepted;
    count.broken += broken;
    matrix::CheckNumbers& worst = count.worst[test::name_of(c.outline.type)];
    worst.output_error = std::max(worst.output_error, result.numbers.output_error);
    worst.worst_row = std::max(worst.worst_row, result.numbers.worst_row);
  }

  // Why an engine that accepted nothing is not of this device; null when it is.
  const char* not_here(const std::string& engine) const {
    const auto found = counts_.find(engine);
    if (found == counts_.end()) return nullptr;
    for (const auto& [reason, times] : found->second.reasons) {
      if (reason.find("not on sm_") != std::string::npos) return "not of this architecture";
    }
    return nullptr;
  }

  // `whole`: the run was long enough for each engine to get its share.
  void report(uint64_t drawn, bool whole) {
    std::cout << drawn << " problems drawn\n";
    for (const auto& [engine, count] : counts_) {
      std::cout << "  " << (engine.empty() ? "(chosen)" : engine) << ": accepted " << count.accepted
                << " (" << count.broken << " with broken lengths), refused " << count.refused
                << "\n    worst error (of a whole output / of a row):";
      for (const auto& [type, worst] : count.worst) {
        std::cout << " " << type << " " << std::setprecision(2) << worst.output_error << " / "
                  << worst.worst_row;
      }
      std::cout << "\n";
      for (const auto& [reason, times] : count.reasons) {
        std::cout << "    refused " << times << "x: " << reason << "\n";
      }
    }
    if (!report_failures() || !whole) return;
    for (const char* engine : kEngines) {
      if (const char* why = not_here(engine)) {
        std::cout << "  " << engine << ": " << why << "\n";
        continue;
      }
      EXPECT_GE(counts_[engine].accepted, kLeastProblems) << engine << " accepted too few";
    }
  }

 private:
  bool has_enough() const override {
    return std::all_of(std::begin(kEngines), std::end(kEngines), [&](const char* engine) {
      const auto found = counts_.find(engine);
      return (found != counts_.end() && found->second.accepted >= kLeastProblems) ||
             not_here(engine) != nullptr;
    });
  }
  std::map<std::string, EngineCount> counts_;
};

void run_seed(Lane& lane, uint64_t seed, Totals& totals) {
  const Problem problem(seed);
  GqaCase c = problem.make(true);
  c.log_sum_exp_room = 2;
  const bool broken = c.expected.faults != 0;
  OnHost on_host = problem.on_host;
  on_host.lengths &= !broken;  // the host would refuse them
  for (const std::string& engine : problem.engines()) {
    const RunResult result =
        broken ? run_problem(
                     lane, [&](bool broke) { return problem.make(broke); }, on_host, engine)
               : run_case(lane, c, on_host, engine);
    if (result.verdict != Verdict::kFailed) {
      totals.add(engine, c, broken, result);
      continue;
    }
    totals.fail(seed_failure(
        seed, engine, result.text,
        (problem.free ? "no specialisation" : text_of(problem.spec)) + ", total_sequence_length " +
            (on_host.bound ? "on the host" : "on the device") +
            (on_host.lengths ? ", seqlens_k on the host" : "") + ": " + matrix::text_of(c.outline),
        "GpuMatrix.RotatingSeeds"));
    return;
  }
}

void run_matrix(const SeedRange& range) {
  const Gpu& gpu = Gpu::first();
  warm_up(gpu, {specialisations().begin(), specialisations().end()});
  Totals totals;
  const uint64_t drawn = run_seeds(
      gpu, range, totals, [&](Lane& lane, uint64_t seed) { run_seed(lane, seed, totals); });
  totals.report(drawn, range.whole);
}

class GpuMatrix : public GpuTest {};

TEST_F(GpuMatrix, FixedSeeds) { run_matrix({1, kMostSeeds, true}); }

TEST_F(GpuMatrix, RotatingSeeds) { run_matrix(rotating_seeds(kMostSeeds)); }

// An engine that the tests do not know would go untested.
TEST_F(GpuMatrix, KnowsEveryEngine) {
  std::vector<std::string> known(std::begin(kEngines), std::end(kEngines));
  for (const char* other :
       {"fused-kv-update", "recurrent", "recurrent-serial", "thread-rotary", "thread-scatter"}) {
    known.emplace_back(other);
  }
  std::vector<std::string> named = test::split_names(test::info_of(Gpu::first().context()).engines);
  std::sort(known.begin(), known.end());
  std::sort(named.begin(), named.end());
  EXPECT_EQ(named, known);
}

// The table must stay within what can be compiled in a minute.
TEST(GpuMatrixTable, IsAtMost64Kernels) {
  int kernels = 0;
  for (const Specialisation& spec : specialisations()) {
    for (const char* engine : kEngines) {
      if (std::string(engine) == "generic" || !serves(engine, spec)) continue;
      // The float32 decode kernel has tiles of 4 or of 16 rows, as the group asks.
      const bool two = std::string(engine) == "split-decode" && spec.type == test::Type::kFloat32;
      kernels += two ? 2 : 1;
    }
  }
  EXPECT_LE(kernels + 3 + 3, 64);
}

}  // namespace
}  // namespace attn::gpu
