// Runs a case on the device through the public C API under one engine and checks everything.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "gpu/broken_lengths.h"
#include "gpu/device.h"
#include "gpu/mirror.h"
#include "matrix/gqa_case.h"
#include "matrix/gqa_check.h"

namespace attn::gpu {

enum class Verdict : uint8_t {
  kPassed,
  kRefused,  // the forced engine does not serve this problem; `text` has its reason
  kFailed,   // `text` says what is wrong
};

struct RunResult {
  Verdict verdict = Verdict::kFailed;
  std::string text;
  matrix::CheckNumbers numbers;
};

// What one order of executions needs; one a thread.
struct Lane {
  explicit Lane(const Gpu& on) : gpu(on), stream(on), session(make_session(on)) {}
  const Gpu& gpu;
  Stream stream;
  test::Handle<attn_session> session;
};

// A case with its device memory, its operator and its plan.
class DeviceCase {
 public:
  // `engine` empty lets the library choose.
  DeviceCase(Lane& lane, matrix::GqaCase& c, OnHost on_host, std::string engine);
  DeviceCase(Lane& lane, matrix::Case& c, const std::vector<Mirror::NamedTensor>& tensors,
             std::string engine);
  DeviceCase(const DeviceCase&) = delete;
  DeviceCase& operator=(const DeviceCase&) = delete;

  // Claim gate and prepare, which must agree. Refused when the engine does not serve the problem.
  RunResult prepare();
  // Uploads the case as it was built, runs it, brings the bytes back, and compares them with the
  // case's expectation; `faults` is what the session must report afterwards.
  RunResult execute(const ExpectedFaults& faults);
  // Uploads the case, runs it, and compares what the session reports alone; then clears it.
  RunResult execute_for_faults(uint32_t bits);

 private:
  RunResult refused(const test::Outcome& outcome);
  test::Outcome ask(attn_support* support);
  test::Outcome plan();
  test::Outcome launch();
  test::Outcome workspace(attn_execute_desc* desc);

  Lane& lane_;
  matrix::Case& case_;
  const matrix::GqaCase* group_query_ = nullptr;  // the case, where it is one
  std::string engine_;
  Mirror mirror_;
  test::Arguments inputs_, outputs_;
  test::Handle<attn_op> op_;
  test::Handle<attn_plan> plan_;
  test::Handle<attn_binding> binding_;
  Memory workspace_;
  std::vector<unsigned char> workspace_bytes_;
};

// Builds the case of a broken or whole problem, by the same draws.
using MakeCase = std::function<matrix::GqaCase(bool broken)>;

// The whole path of one problem under one engine. A problem whose lengths break a rule must fault
// and leave good batch rows right; then the session is poisoned, then cleared, then the same
// problem with good lengths is right again.
RunResult run_problem(Lane& lane, const MakeCase& make, OnHost on_host, const std::string& engine);

// The same with a case that is there already, for problems that break no rule.
RunResult run_case(Lane& lane, matrix::GqaCase& c, OnHost on_host, const std::string& engine);

}  // namespace attn::gpu
