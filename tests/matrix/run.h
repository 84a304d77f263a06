// Runs a case through the public C API under one engine and SIMD level.
#pragma once

#include <string>

#include "matrix/case.h"
#include "support/attn.hpp"

namespace attn::matrix {

// A device with one session; what the runs of a process share.
struct Device {
  test::Handle<attn_context> context;
  test::Handle<attn_session> session;
};

enum class Verdict : uint8_t {
  kPassed,
  kRefused,  // the forced engine does not serve this problem; `text` has its reason
  kFailed,   // `text` says what is wrong
};

struct RunResult {
  Verdict verdict = Verdict::kFailed;
  std::string text;
  CheckNumbers numbers;
};

// A text with '#' for each number: reasons as classes of reasons.
std::string without_numbers(const std::string& text);

// Makes the device; throws std::runtime_error with the library's words when it cannot.
Device make_device(const test::ContextOptions& options);

// Asks the claim gate, prepares, executes and checks everything; `engine` empty lets the library
// choose. Claim gate and prepare must agree, a refusal must leave all memory alone, and a problem
// that breaks a rule must be refused as the caller's mistake.
RunResult run_case(Case& c, attn_context* context, attn_session* session,
                   const std::string& engine);
inline RunResult run_case(Case& c, Device& device, const std::string& engine) {
  return run_case(c, device.context.get(), device.session.get(), engine);
}

// Whether the engine is the one for AMX and the run was refused because this machine, or the level,
// has none: it asks for that before anything else.
bool lacks_amx(const std::string& engine, const RunResult& result);

}  // namespace attn::matrix
