#include "gpu/run.h"

#include <utility>

namespace attn::gpu {
namespace {

using test::Arguments;
using test::Outcome;
using test::outcome_of;

RunResult failed(std::string text) { return {Verdict::kFailed, std::move(text), {}}; }

std::string text_of_bits(uint32_t bits) {
  return test::text_of([&](char* buffer, size_t capacity, size_t* needed) {
    return attn_fault_text(bits, buffer, capacity, needed, nullptr);
  });
}

std::string bits_text(uint32_t bits) {
  return std::to_string(bits) + " (" + text_of_bits(bits) + ")";
}

// What the session reports after a run, against what it must.
std::string compare_faults(const ExpectedFaults& want, const attn_fault_info& found,
                           const matrix::GqaCase* c) {
  if (!want.agrees(found.bits)) {
    return "  fault bits are " + bits_text(found.bits) + ", expected " + bits_text(want.bits) +
           "\n";
  }
  if (found.bits == 0) return {};
  if (found.text != text_of_bits(found.bits)) {
    return "  the fault's text is '" + std::string(found.text) + "'\n";
  }
  if (want.bad.empty() || c == nullptr) return {};  // raised by an earlier call
  const auto batch = static_cast<int64_t>(want.bad.size());
  if (found.batch < 0 || found.batch >= batch || !want.bad[static_cast<size_t>(found.batch)]) {
    return "  the first fault is said to be of batch row " + std::to_string(found.batch) + "\n";
  }
  const auto value = static_cast<int64_t>(c->problem.seqlens_k.at_linear(found.batch));
  if (want.bits != ATTN_FAULT_POSITION && found.value != value) {
    return "  the first fault's value is " + std::to_string(found.value) + ", expected " +
           std::to_string(value) + "\n";
  }
  return {};
}

}  // namespace

DeviceCase::DeviceCase(Lane& lane, matrix::GqaCase& c, OnHost on_host, std::string engine)
    : lane_(lane),
      case_(c),
      group_query_(&c),
      engine_(std::move(engine)),
      mirror_(lane.gpu, c, on_host),
      inputs_(mirror_.inputs()),
      outputs_(mirror_.outputs()) {}

DeviceCase::DeviceCase(Lane& lane, matrix::Case& c, const std::vector<Mirror::NamedTensor>& tensors,
                       std::string engine)
    : lane_(lane),
      case_(c),
      engine_(std::move(engine)),
      mirror_(lane.gpu, c, tensors),
      inputs_(mirror_.inputs()),
      outputs_(mirror_.outputs()) {}

RunResult DeviceCase::refused(const Outcome& outcome) {
  if (outcome.status != ATTN_UNSUPPORTED) {
    return failed("refused with status " + std::to_string(outcome.status) + ": " + outcome.message);
  }
  if (engine_.empty() || engine_ == "generic") {
    return failed("a legal problem is not served: " + outcome.message);
  }
  return {Verdict::kRefused, outcome.message, {}};
}

Outcome DeviceCase::ask(attn_support* support) {
  const Arguments inputs = inputs_.shapes(), outputs = outputs_.shapes();
  const std::vector<attn_alias> aliases = case_.aliases();
  attn_query_desc desc = ATTN_QUERY_DESC_INIT;
  desc.inputs = inputs.data();
  desc.input_count = inputs.size();
  desc.outputs = outputs.data();
  desc.output_count = outputs.size();
  desc.aliases = aliases.data();
  desc.alias_count = static_cast<uint32_t>(aliases.size());
  desc.engine = engine_.empty() ? nullptr : engine_.c_str();
  return outcome_of(
      [&](attn_error* error) { return attn_op_query(op_.get(), &desc, support, error); });
}

Outcome DeviceCase::plan() {
  attn_prepare_desc desc = ATTN_PREPARE_DESC_INIT;
  if (case_.wide_range) desc = case_.wide_bounds();
  desc.engine = engine_.empty() ? nullptr : engine_.c_str();
  if (!case_.through_binding) {
    desc.inputs = inputs_.data();
    desc.input_count = inputs_.size();
    desc.outputs = outputs_.data();
    desc.output_count = outputs_.size();
    return test::create(plan_, [&](attn_plan** plan, attn_error* error) {
      return attn_op_prepare(op_.get(), &desc, plan, error);
    });
  }
  Outcome outcome = test::create(binding_, [&](attn_binding** binding, attn_error* error) {
    return attn_binding_create(op_.get(), lane_.session.get(), binding, error);
  });
  if (outcome.ok()) {
    outcome = outcome_of([&](attn_error* error) {
      return attn_binding_set_tensors(binding_.get(), inputs_.data(), inputs_.size(),
                                      outputs_.data(), outputs_.size(), error);
    });
  }
  if (!outcome.ok()) return outcome;
  return outcome_of(
      [&](attn_error* error) { return attn_binding_prepare(binding_.get(), &desc, error); });
}

RunResult DeviceCase::prepare() {
  case_.restore();
  mirror_.upload(lane_.stream);
  const matrix::OperatorName name = case_.name();
  Outcome outcome = test::create_op(op_, lane_.gpu.context(), name.domain, name.type, name.version,
                                    case_.attributes(), "node");
  if (!outcome.ok()) return failed("op_create: " + outcome.message);
  attn_support support = ATTN_SUPPORT_INIT;
  outcome = ask(&support);
  if (!outcome.ok()) return failed("op_query: " + outcome.message);
  outcome = plan();
  if (!case_.wide_range && (support.supported != 0) != outcome.ok()) {
    return failed("the claim gate says " + std::string(support.supported ? "yes" : "no: ") +
                  support.reason + ", prepare says " + (outcome.ok() ? "yes" : outcome.message));
  }
  if (!outcome.ok()) return refused(outcome);
  if (!case_.wide_range && (support.capture_flags & ATTN_CAPTURE_SUPPORTED) == 0) {
    return failed("the claim gate says that the call cannot be captured");
  }
  return {Verdict::kPassed, {}, {}};
}

Outcome DeviceCase::workspace(attn_execute_desc* desc) {
  if (!case_.own_workspace) return {};
  attn_plan_info info = ATTN_PLAN_INFO_INIT;
  const Outcome known = outcome_of([&](attn_error* error) {
    return case_.through_binding ? attn_binding_capture_support(binding_.get(), &info, error)
                                 : attn_plan_get_info(plan_.get(), &info, error);
  });
  if (!known.ok()) return known;
  workspace_ = Memory(lane_.gpu, static_cast<int64_t>(info.workspace_bytes));
  workspace_bytes_.resize(info.workspace_bytes);
  workspace_.fill(0xFF, lane_.stream);  // NaN in every type, -1 as a length
  desc->workspace = workspace_.data();
  desc->workspace_bytes = info.workspace_bytes;
  return {};
}

Outcome DeviceCase::launch() {
  attn_execute_desc desc = ATTN_EXECUTE_DESC_INIT;
  desc.stream = lane_.stream.get();
  const Outcome outcome = workspace(&desc);
  if (!outcome.ok()) return outcome;
  return outcome_of([&](attn_error* error) {
    if (case_.through_binding) return attn_binding_execute(binding_.get(), &desc, error);
    return attn_plan_execute(plan_.get(), lane_.session.get(), inputs_.data(), inputs_.size(),
                             outputs_.data(), outputs_.size(), &desc, error);
  });
}

RunResult DeviceCase::execute(const ExpectedFaults& faults) {
  case_.restore();
  mirror_.upload(lane_.stream);
  const Outcome executed = launch();
  lane_.stream.wait();
  std::string findings = mirror_.download(lane_.stream);
  if (!executed.ok()) {
    findings += case_.untouched();
    if (!findings.empty()) return failed("a refusal, " + executed.message + "\n" + findings);
    // The forced engine may refuse the sizes, strides and addresses of one call.
    if (executed.status == ATTN_UNSUPPORTED) return refused(executed);
    return failed("execute: status " + std::to_string(executed.status) + " " + executed.message);
  }
  RunResult result;
  result.text = findings + compare_faults(faults, poll(lane_.session.get()), group_query_) +
                case_.check(&result.numbers);
  if (case_.own_workspace && !workspace_.download(workspace_bytes_.data(), lane_.stream)) {
    result.text += "  the workspace's fence was written\n";
  }
  result.verdict = result.text.empty() ? Verdict::kPassed : Verdict::kFailed;
  return result;
}

RunResult DeviceCase::execute_for_faults(uint32_t bits) {
  case_.restore();
  mirror_.upload(lane_.stream);
  const Outcome executed = launch();
  lane_.stream.wait();
  if (!executed.ok()) {
    if (executed.status == ATTN_UNSUPPORTED) return refused(executed);
    return failed("execute: status " + std::to_string(executed.status) + " " + executed.message);
  }
  ExpectedFaults faults;
  faults.bits = bits;
  const std::string findings = compare_faults(faults, poll(lane_.session.get()), nullptr);
  must("session_clear_faults", [&](attn_error* error) {
    return attn_session_clear_faults(lane_.session.get(), lane_.stream.get(), error);
  });
  lane_.stream.wait();
  return {findings.empty() ? Verdict::kPassed : Verdict::kFailed, findings, {}};
}

RunResult run_case(Lane& lane, matrix::GqaCase& c, OnHost on_host, const std::string& engine) {
  DeviceCase device(lane, c, on_host, engine);
  const RunResult prepared = device.prepare();
  return prepared.verdict == Verdict::kPassed ? device.execute({}) : prepared;
}

namespace {

RunResult in_phase(const char* phase, RunResult result) {
  result.text = std::string(" ") + phase + ":\n" + result.text;
  if (result.verdict == Verdict::kRefused) result.verdict = Verdict::kFailed;
  return result;
}

void clear(Lane& lane) {
  must("session_clear_faults", [&](attn_error* error) {
    return attn_session_clear_faults(lane.session.get(), lane.stream.get(), error);
  });
  lane.stream.wait();
}

// What follows a fault: poisoned, cleared, right again.
RunResult after_fault(Lane& lane, DeviceCase& device, matrix::GqaCase& broken,
                      const ExpectedFaults& faults, const MakeCase& make, OnHost on_host,
                      const std::string& engine) {
  expect_poisoned(broken);
  ExpectedFaults still = faults;
  still.bad.clear();
  RunResult result = device.execute(still);
  result.text += check_caches_untouched(broken);
  if (result.verdict != Verdict::kPassed || !result.text.empty()) {
    result.verdict = Verdict::kFailed;
    return in_phase("poisoned", std::move(result));
  }
  clear(lane);
  if (const uint32_t bits = poll(lane.session.get()).bits; bits != 0) {
    return failed("fault bits " + bits_text(bits) + " after clear_faults");
  }
  matrix::GqaCase whole = make(false);
  result = run_case(lane, whole, on_host, engine);
  if (result.verdict != Verdict::kPassed) return in_phase("after the clear", std::move(result));
  return result;
}

}  // namespace

RunResult run_problem(Lane& lane, const MakeCase& make, OnHost on_host, const std::string& engine) {
  matrix::GqaCase c = make(true);
  const ExpectedFaults faults = settle_faults(c);
  DeviceCase device(lane, c, on_host, engine);
  RunResult result = device.prepare();
  if (result.verdict != Verdict::kPassed) return result;
  result = device.execute(faults);
  if (faults.bits == 0 || result.verdict == Verdict::kRefused) return result;
  if (result.verdict == Verdict::kPassed) {
    const matrix::CheckNumbers numbers = result.numbers;
    result = after_fault(lane, device, c, faults, make, on_host, engine);
    result.numbers = numbers;
  }
  // Whatever happened, the lane goes on with a session that is not poisoned.
  if (result.verdict == Verdict::kFailed) clear(lane);
  return result;
}

}  // namespace attn::gpu
