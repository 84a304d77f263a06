#include "matrix/run.h"

#include <cctype>
#include <stdexcept>

namespace attn::matrix {
namespace {

using test::Arguments;
using test::Handle;
using test::Outcome;
using test::outcome_of;

struct Prepared {
  Handle<attn_plan> plan;
  Handle<attn_binding> binding;
};

class Run {
 public:
  Run(Case& c, attn_context* context, attn_session* session, const std::string& engine)
      : c_(c),
        context_(context),
        session_(session),
        engine_(engine),
        inputs_(c.inputs()),
        outputs_(c.outputs()) {}

  RunResult run() {
    c_.restore();
    const OperatorName name = c_.name();
    const Outcome created = test::create_op(op_, context_, name.domain, name.type, name.version,
                                            c_.attributes(), "node");
    if (!created.ok()) return failed("op_create: " + created.message);
    const Outcome asked = ask();
    if (!asked.ok()) return failed("op_query: " + asked.message);

    const Outcome prepared = prepare();
    const std::string gate = compare_gate(prepared);
    if (!gate.empty()) return failed(gate);
    if (!prepared.ok()) return refused(prepared);

    const Outcome executed = execute();
    if (c_.faults() != 0) {
      if (executed.status != ATTN_INVALID_ARGUMENT) {
        return failed("a broken rule (fault bits " + std::to_string(c_.faults()) +
                      ") gave status " + std::to_string(executed.status) + " " + executed.message);
      }
      const std::string touched = c_.untouched();
      return touched.empty() ? RunResult{Verdict::kPassed, {}, {}} : failed(touched);
    }
    // The forced engine may refuse the sizes of one call.
    if (executed.status == ATTN_UNSUPPORTED) return refused(executed);
    if (!executed.ok()) return failed("execute: " + executed.message);
    RunResult result;
    result.text = c_.check(&result.numbers);
    if (!workspace_.fences_intact()) result.text += "  the workspace's fence was written\n";
    result.verdict = result.text.empty() ? Verdict::kPassed : Verdict::kFailed;
    return result;
  }

 private:
  static RunResult failed(std::string text) { return {Verdict::kFailed, std::move(text), {}}; }

  RunResult refused(const Outcome& outcome) {
    if (outcome.status != ATTN_UNSUPPORTED) {
      return failed("refused with status " + std::to_string(outcome.status) + ": " +
                    outcome.message);
    }
    if (engine_.empty() || engine_.starts_with("generic")) {
      return failed("a legal problem is not served: " + outcome.message);
    }
    const std::string touched = c_.untouched();
    if (!touched.empty()) return failed(touched);
    return {Verdict::kRefused, outcome.message, {}};
  }

  const char* forced() const { return engine_.empty() ? nullptr : engine_.c_str(); }

  Outcome ask() {
    const Arguments inputs = inputs_.shapes(), outputs = outputs_.shapes();
    const std::vector<attn_alias> aliases = c_.aliases();
    attn_query_desc desc = ATTN_QUERY_DESC_INIT;
    desc.inputs = inputs.data();
    desc.input_count = inputs.size();
    desc.outputs = outputs.data();
    desc.output_count = outputs.size();
    desc.aliases = aliases.data();
    desc.alias_count = static_cast<uint32_t>(aliases.size());
    desc.engine = forced();
    support_ = ATTN_SUPPORT_INIT;
    return outcome_of(
        [&](attn_error* error) { return attn_op_query(op_.get(), &desc, &support_, error); });
  }

  // What the claim gate accepts prepare accepts; what it refuses is refused for the same reason. A
  // reason may count keys, which only prepare knows from the values.
  std::string compare_gate(const Outcome& prepared) const {
    if (c_.wide_range) return {};  // the gate was not asked for that range
    if ((support_.supported != 0) != prepared.ok()) {
      return "the claim gate says " + std::string(support_.supported ? "yes" : "no: ") +
             support_.reason + ", prepare says " + (prepared.ok() ? "yes" : prepared.message);
    }
    if (!prepared.ok() &&
        (support_.status != prepared.status ||
         without_numbers(prepared.message).find(without_numbers(support_.reason)) ==
             std::string::npos)) {
      return "the claim gate refuses with " + std::to_string(support_.status) + " " +
             support_.reason + ", prepare with " + std::to_string(prepared.status) + " " +
             prepared.message;
    }
    return {};
  }

  Outcome prepare() {
    attn_prepare_desc desc = ATTN_PREPARE_DESC_INIT;
    if (c_.wide_range) desc = c_.wide_bounds();
    desc.engine = forced();
    if (!c_.through_binding) {
      desc.inputs = inputs_.data();
      desc.input_count = inputs_.size();
      desc.outputs = outputs_.data();
      desc.output_count = outputs_.size();
      return test::create(prepared_.plan, [&](attn_plan** plan, attn_error* error) {
        return attn_op_prepare(op_.get(), &desc, plan, error);
      });
    }
    Outcome outcome =
        test::create(prepared_.binding, [&](attn_binding** binding, attn_error* error) {
          return attn_binding_create(op_.get(), session_, binding, error);
        });
    if (outcome.ok()) {
      outcome = outcome_of([&](attn_error* error) {
        return attn_binding_set_tensors(prepared_.binding.get(), inputs_.data(), inputs_.size(),
                                        outputs_.data(), outputs_.size(), error);
      });
    }
    if (!outcome.ok()) return outcome;
    return outcome_of([&](attn_error* error) {
      return attn_binding_prepare(prepared_.binding.get(), &desc, error);
    });
  }

  Outcome execute() {
    attn_execute_desc desc = ATTN_EXECUTE_DESC_INIT;
    if (c_.own_workspace) {
      attn_plan_info info = ATTN_PLAN_INFO_INIT;
      const Outcome known = outcome_of([&](attn_error* error) {
        return c_.through_binding
                   ? attn_binding_capture_support(prepared_.binding.get(), &info, error)
                   : attn_plan_get_info(prepared_.plan.get(), &info, error);
      });
      if (!known.ok()) return known;
      workspace_ = test::Buffer(static_cast<int64_t>(info.workspace_bytes),
                                info.workspace_bytes % 64 == 0 ? test::Placement::kFlushEnd
                                                               : test::Placement::kFlushStart);
      workspace_.fill(0xFF);  // NaN in every type, -1 as a length
      desc.workspace = workspace_.data();
      desc.workspace_bytes = info.workspace_bytes;
    }
    return outcome_of([&](attn_error* error) {
      if (c_.through_binding) {
        return attn_binding_execute(prepared_.binding.get(), &desc, error);
      }
      return attn_plan_execute(prepared_.plan.get(), session_, inputs_.data(), inputs_.size(),
                               outputs_.data(), outputs_.size(), &desc, error);
    });
  }

  Case& c_;
  attn_context* context_;
  attn_session* session_;
  const std::string& engine_;
  Arguments inputs_, outputs_;
  Handle<attn_op> op_;
  attn_support support_{};
  Prepared prepared_;
  test::Buffer workspace_;
};

}  // namespace

std::string without_numbers(const std::string& text) {
  std::string out;
  for (char c : text) {
    const bool digit = std::isdigit(static_cast<unsigned char>(c)) != 0;
    if (digit && !out.empty() && out.back() == '#') continue;
    out += digit ? '#' : c;
  }
  return out;
}

bool lacks_amx(const std::string& engine, const RunResult& result) {
  return engine == "amx-prefill" && result.verdict == Verdict::kRefused &&
         result.text.find("AMX") != std::string::npos;
}

Device make_device(const test::ContextOptions& options) {
  Device device;
  Outcome outcome = test::create_context(device.context, options);
  if (outcome.ok()) outcome = test::create_session(device.session, device.context.get());
  if (!outcome.ok()) throw std::runtime_error("no context: " + outcome.message);
  return device;
}

RunResult run_case(Case& c, attn_context* context, attn_session* session,
                   const std::string& engine) {
  return Run(c, context, session, engine).run();
}

}  // namespace attn::matrix
