#include "matrix/matrix.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <iomanip>
#include <sstream>

namespace attn::matrix {
namespace {

// What runs now, for the crash handler: plain memory that a signal handler may read.
char g_running[512] = "nothing ran yet";
struct sigaction g_previous[2];
constexpr int kSignals[2] = {SIGSEGV, SIGBUS};

void on_crash(int signal, siginfo_t*, void*) {
  const char head[] = "\ncrashed while running: ";
  ssize_t ignored = write(STDERR_FILENO, head, sizeof head - 1);
  ignored = write(STDERR_FILENO, g_running, std::strlen(g_running));
  ignored = write(STDERR_FILENO, "\n", 1);
  (void)ignored;
  // The instruction runs again and meets whoever was there before.
  for (int i = 0; i < 2; ++i) {
    if (kSignals[i] == signal) sigaction(signal, &g_previous[i], nullptr);
  }
}

void set_running(const std::string& text) {
  std::strncpy(g_running, text.c_str(), sizeof g_running - 1);
}

}  // namespace

void report_crashes() {
  struct sigaction action = {};
  action.sa_sigaction = on_crash;
  action.sa_flags = SA_SIGINFO;
  for (int i = 0; i < 2; ++i) sigaction(kSignals[i], &action, &g_previous[i]);
}

uint64_t rotating_seed() {
  if (const char* text = std::getenv("ATTN_C_TEST_SEED")) return std::strtoull(text, nullptr, 10);
  return static_cast<uint64_t>(std::time(nullptr)) / 86400 * 1000000;
}

Matrix::Matrix(MatrixOptions options) : options_(std::move(options)) {
  const Device first = make_device({});
  const attn_context_info info = test::info_of(first.context.get());
  engines_ = test::split_names(info.engines);
  levels_ = test::split_names(info.simd_levels);
  if (!options_.engines.empty()) engines_ = options_.engines;
  if (!options_.engine.empty()) engines_ = {options_.engine};
  if (!options_.level.empty()) levels_ = {options_.level};
}

Device& Matrix::device(const std::string& level, int threads) {
  const std::string key = level + "/" + std::to_string(threads);
  auto found = devices_.find(key);
  if (found == devices_.end()) {
    test::ContextOptions options;
    options.threads = threads;
    options.level = level;
    found = devices_.emplace(key, make_device(options)).first;
  }
  return found->second;
}

std::string Matrix::reproduction(const Case& c, const std::string& engine,
                                 const std::string& level) const {
  std::string line = options_.tool;
  line += " --seed " + std::to_string(c.seed()) + " --count 1";
  if (!engine.empty()) line += " --engine " + engine;
  if (!level.empty()) line += " --level " + level;
  return line;
}

std::string Matrix::failure(const Case& c, const std::string& engine, const std::string& level,
                            const std::string& text) const {
  return "seed " + std::to_string(c.seed()) + ", engine " + (engine.empty() ? "(chosen)" : engine) +
         ", level " + level + ":\n" + text + (text.ends_with('\n') ? "" : "\n") + "  " + c.text() +
         "\n  reproduce: " + reproduction(c, engine, level) + "\n";
}

std::string Matrix::run_engine(Case& c, const std::string& engine) {
  EngineCount& count = counts_[engine];
  std::string failures;
  bool accepted = false;
  // Engines without SIMD are the same at every level: they get one each time, in turn.
  std::vector<std::string> levels = levels_;
  const bool generic = engine.starts_with("generic");
  if (generic) levels = {levels_[static_cast<size_t>(c.seed() % levels_.size())]};
  // The others refuse the level without SIMD, which need not be seen each time.
  if (!generic && c.seed() % 16 != 0 && levels.size() > 1) std::erase(levels, "generic");
  for (const std::string& level : levels) {
    set_running(reproduction(c, engine, level) + " (" + c.text() + ")");
    const RunResult result = run_case(c, device(level, 2), engine);
    if (result.verdict == Verdict::kFailed) failures += failure(c, engine, level, result.text);
    if (lacks_amx(engine, result)) ++count.lacking;
    if (result.verdict == Verdict::kRefused) {
      ++count.reasons[without_numbers(result.text)];
      continue;
    }
    accepted = true;
    ++count.runs[level];
    WorstErrors& worst = count.worst[test::name_of(c.type())];
    if (result.numbers.output_error > worst.output) {
      worst.output = result.numbers.output_error;
      worst.output_seed = c.seed();
    }
    if (result.numbers.worst_row > worst.row) {
      worst.row = result.numbers.worst_row;
      worst.row_seed = c.seed();
    }
  }
  // A problem that is refused for its lengths says nothing about an engine's results.
  if (c.faults() != 0) return failures;
  if (!accepted) {
    ++count.refused;
    return failures;
  }
  ++count.problems;
  for (const std::string& feature : c.features()) ++count.features[feature];
  return failures;
}

// The engine that the library chooses must give the same bits whatever the number of threads. A NaN
// in V may reach further rows of a tile, and the tiles may follow the threads: no such problem
// here.
std::string Matrix::run_threads(Case& c) {
  if (!c.fixed_whatever_the_tiles()) return {};
  const std::string& level = levels_[static_cast<size_t>(c.seed() / 5 % levels_.size())];
  std::vector<std::vector<unsigned char>> first;
  for (int threads : {1, 3, 2, 2}) {
    set_running(reproduction(c, "", level) + " (thread counts)");
    const RunResult result = run_case(c, device(level, threads), "");
    if (result.verdict != Verdict::kPassed) return failure(c, "", level, result.text);
    std::vector<std::vector<unsigned char>> bytes;
    for (const test::Buffer* buffer : c.results()) {
      bytes.emplace_back(buffer->data(), buffer->data() + buffer->size());
    }
    if (first.empty()) first = bytes;
    if (bytes != first) {
      return failure(c, "", level,
                     "  other bits with " + std::to_string(threads) + " threads than with 1");
    }
  }
  return {};
}

std::string Matrix::run(uint64_t seed) {
  set_running("drawing seed " + std::to_string(seed));
  const std::unique_ptr<Case> drawn = options_.draw(seed);
  Case& c = *drawn;
  ++drawn_;
  if (c.faults() != 0) ++broken_;
  for (const std::string& feature : c.features()) ++drawn_features_[feature];
  std::string failures;
  for (const std::string& engine : engines_) failures += run_engine(c, engine);
  if (options_.check_threads && seed % 5 == 0) failures += run_threads(c);
  return failures;
}

void Matrix::print_counts(std::ostream& out) const {
  out << "engine matrix: " << drawn_ << " problems drawn, " << broken_
      << " of them to be refused for their lengths\n";
  for (const auto& [engine, count] : counts_) {
    out << "  " << engine << ": accepted " << count.problems << ", refused " << count.refused
        << "; runs";
    for (const auto& [level, runs] : count.runs) out << " " << level << " " << runs;
    out << "\n    worst error of a whole output and of a row (seeds):";
    for (const auto& [type, worst] : count.worst) {
      out << " " << type << std::setprecision(2) << " " << worst.output << " (" << worst.output_seed
          << "), " << worst.row << " (" << worst.row_seed << ");";
    }
    out << "\n";
    std::vector<std::pair<int64_t, std::string>> reasons;
    for (const auto& [reason, times] : count.reasons) reasons.emplace_back(times, reason);
    std::sort(reasons.rbegin(), reasons.rend());
    for (size_t i = 0; i < std::min<size_t>(reasons.size(), 12); ++i) {
      out << "    refused " << reasons[i].first << "x: " << reasons[i].second << "\n";
    }
  }
  out << "  accepted by feature (drawn";
  for (const auto& [engine, count] : counts_) out << " | " << engine;
  out << ")\n";
  for (const auto& [feature, drawn] : drawn_features_) {
    out << "    " << std::left << std::setw(24) << feature << std::right << std::setw(7) << drawn;
    for (const auto& [engine, count] : counts_) {
      const auto found = count.features.find(feature);
      out << std::setw(8) << (found == count.features.end() ? 0 : found->second);
    }
    out << "\n";
  }
}

}  // namespace attn::matrix
