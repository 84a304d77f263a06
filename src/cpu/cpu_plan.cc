#include "cpu/cpu_plan.h"

#include <algorithm>

#include "core/cost.h"
#include "core/error.h"
#include "cpu/kv_update.h"

namespace attn::cpu {
namespace {

// In order of preference.
std::vector<const KvUpdateEngine*> kv_update_engines() {
  return {&simd_kv_update_engine(), &generic_kv_update_engine()};
}
std::vector<const AttentionEngine*> attention_engines() {
  return {&simd_decode_engine(), &amx_prefill_engine(), &simd_prefill_engine(),
          &generic_attention_engine(), &emulated_amx_prefill_engine()};
}
std::vector<const RotaryEngine*> rotary_engines() {
  return {&simd_rotary_engine(), &generic_rotary_engine()};
}
std::vector<const ScatterEngine*> scatter_engines() {
  return {&block_scatter_engine(), &generic_scatter_engine()};
}
std::vector<const LinearAttentionEngine*> linear_attention_engines() {
  return {&chunked_engine(), &recurrent_engine(), &recurrent_serial_engine()};
}

template <class Engine>
bool only_forced(const Engine&) {
  return false;
}
bool only_forced(const AttentionEngine& engine) { return engine.only_forced(); }

template <class Engine>
bool any_named(const std::vector<const Engine*>& engines, const std::string& name) {
  return std::any_of(engines.begin(), engines.end(),
                     [&](const Engine* engine) { return engine->name() == name; });
}

// Names of a stage's engines with the reasons why none of them serves.
std::string refusal_text(const StageReport& stage) {
  std::string text = cat("no CPU engine runs this ", stage.stage, " stage");
  for (const EngineVerdict& verdict : stage.considered) {
    text += cat("; ", verdict.engine, ": ", verdict.reason);
  }
  return text;
}

// The engines of one stage that support `spec`, in order; every verdict goes into `stage`. A forced
// name of this stage leaves that engine alone.
template <class Engine, class Spec>
std::vector<const Engine*> supporting_engines(const std::vector<const Engine*>& engines,
                                              const Spec& spec, SimdLevel level,
                                              const std::string& forced, StageReport& stage) {
  const bool forces = any_named(engines, forced);
  std::vector<const Engine*> supporting;
  for (const Engine* engine : engines) {
    EngineVerdict verdict;
    verdict.engine = engine->name();
    if (forces && forced != engine->name()) {
      verdict.reason = cat("passed over: ", forced, " is forced");
    } else if (!forces && only_forced(*engine)) {
      verdict.reason = "runs only where it is forced: it checks another engine";
    } else if (engine->supports(spec, level, &verdict.reason)) {
      verdict.supported = true;
      verdict.reason.clear();
      supporting.push_back(engine);
    }
    stage.considered.push_back(std::move(verdict));
  }
  return supporting;
}

EngineVerdict& verdict_of(StageReport& stage, const std::string& engine) {
  return *std::find_if(stage.considered.begin(), stage.considered.end(),
                       [&](const EngineVerdict& verdict) { return verdict.engine == engine; });
}

// The call's problem at the range's shapes.
AttentionProblem at_range(AttentionProblem problem, const ShapeRange& range) {
  problem.batch = range.batch;
  problem.query_rows = range.query_rows;
  problem.max_total = range.total;
  return problem;
}

// Says of each supporting attention engine what it will do; the first that takes the range's shapes
// is the stage's engine.
void describe_attention(const std::vector<const AttentionEngine*>& engines,
                        const AttentionProblem& problem, StageReport& stage) {
  for (const AttentionEngine* engine : engines) {
    EngineVerdict& verdict = verdict_of(stage, engine->name());
    if (!engine->accepts(problem)) {
      verdict.reason = cat("supported, but not at ", problem.query_rows, " query rows and ",
                           problem.max_total, " keys; runs the calls whose shapes it takes");
    } else if (engines.size() > 1 && !engine->pays(problem)) {
      verdict.reason = cat("supported, but slower than others at ", problem.query_rows,
                           " query rows; runs longer calls");
    } else if (stage.engine.empty()) {
      stage.engine = engine->name();
      verdict.reason = "runs: the first in order that takes these shapes";
    } else {
      verdict.reason = cat("supported; ", stage.engine, " comes first at these shapes");
    }
  }
}

// The same for linear attention, whose engines all take any number of tokens.
void describe_linear_attention(const std::vector<const LinearAttentionEngine*>& engines,
                               const LinearAttentionSpec& spec, int64_t tokens, SimdLevel level,
                               StageReport& stage) {
  const LinearAttentionEngine& chosen = choose_linear_attention(engines, spec, tokens, level);
  stage.engine = chosen.name();
  for (const LinearAttentionEngine* engine : engines) {
    EngineVerdict& verdict = verdict_of(stage, engine->name());
    if (engine == &chosen) {
      verdict.reason = "runs: the first in order that is expected to be the fastest";
      if (engines.size() == 1) verdict.reason = "runs: the only one that supports this";
    } else if (engine->prefers(spec, tokens, level)) {
      verdict.reason = cat("supported; ", stage.engine, " comes first");
    } else {
      verdict.reason = cat("supported, but slower than ", stage.engine, " at ", tokens,
                           " tokens; runs the calls with enough of them");
    }
  }
}

StageReport metadata_report(const Lowering& call, const ShapeRange& range) {
  StageReport stage;
  stage.stage = "metadata";
  stage.engine = "host";
  const bool from_values = call.lengths.spec.rule != LengthRule::kUniform;
  stage.considered.push_back({"host", true,
                              from_values
                                  ? "reads and checks the lengths before anything is written"
                                  : "lengths follow from the shapes"});
  if (from_values) stage.bytes = sizeof(int32_t) * static_cast<double>(range.batch);
  return stage;
}

}  // namespace

const LinearAttentionEngine& choose_linear_attention(
    const std::vector<const LinearAttentionEngine*>& engines, const LinearAttentionSpec& spec,
    int64_t tokens, SimdLevel level) {
  for (const LinearAttentionEngine* engine : engines) {
    if (engine->prefers(spec, tokens, level)) return *engine;
  }
  return *engines.back();
}

std::string CpuPlan::capture_reason() const {
  return "the CPU back end is synchronous: execute returns when all is done, there is no stream to "
         "capture";
}

// Makes a plan in steps; the first stage that nothing serves ends it with `refusal`.
class Planner {
 public:
  Planner(const PlanContext& context, const Lowering& call, const ShapeRange& range,
          const PlanRequest& request)
      : context_(context), call_(call), request_(request), plan_(std::make_shared<CpuPlan>()) {
    plan_->range_ = range;
  }

  std::shared_ptr<const CpuPlan> make() {
    if (!name_is_known()) return nullptr;
    plan_->report_.push_back(metadata_report(call_, plan_->range_));
    size_t stage_bytes = 0;
    if (call_.kv_update.has_value() && !plan_kv_update(&stage_bytes)) return nullptr;
    if (call_.attention.has_value() && !plan_attention(&stage_bytes)) return nullptr;
    if (call_.rotary.has_value() && !plan_rotary(&stage_bytes)) return nullptr;
    if (call_.scatter.has_value() && !plan_scatter()) return nullptr;
    if (call_.linear_attention.has_value() && !plan_linear_attention(&stage_bytes)) return nullptr;
    plan_->workspace_bytes_ = kScratchAlignment + rows_bytes(plan_->range_.batch) + stage_bytes;
    return plan_;
  }

  attn_status status() const { return status_; }
  const std::string& refusal() const { return refusal_; }

 private:
  bool refuse(attn_status status, std::string text) {
    status_ = status;
    refusal_ = std::move(text);
    return false;
  }

  bool name_is_known() {
    if (request_.engine.empty()) return true;
    const std::vector<std::string> names = all_engine_names();
    if (std::find(names.begin(), names.end(), request_.engine) != names.end()) return true;
    std::string text = cat("there is no CPU engine \"", request_.engine, "\"; the names are ");
    for (const std::string& name : names) {
      if (&name != &names.front()) text += ", ";
      text += name;
    }
    return refuse(ATTN_INVALID_ARGUMENT, std::move(text));
  }

  // Plans a stage that one engine runs whatever the sizes: the first in order that supports it.
  template <class Engine, class Spec>
  bool plan_stage(const char* name, const std::vector<const Engine*>& all, const Spec& spec,
                  const Cost& cost, const Engine** chosen) {
    StageReport stage;
    stage.stage = name;
    const auto engines = supporting_engines(all, spec, context_.level, request_.engine, stage);
    if (engines.empty()) return refuse(ATTN_UNSUPPORTED, refusal_text(stage));
    *chosen = engines.front();
    stage.engine = engines.front()->name();
    for (const Engine* engine : engines) {
      verdict_of(stage, engine->name()).reason =
          engine == engines.front() ? "runs: the first in order that supports this"
                                    : cat("supported; ", stage.engine, " comes first");
    }
    set_cost(cost, stage);
    plan_->report_.push_back(std::move(stage));
    return true;
  }

  // Scratch of the engine that was chosen.
  template <class Engine, class Spec>
  size_t scratch_of(const Engine& engine, const Spec& spec) const {
    return engine.workspace_bytes(spec, plan_->range_, context_.concurrency, context_.level);
  }

  bool plan_kv_update(size_t* stage_bytes) {
    const KvUpdateSpec& spec = call_.kv_update->spec;
    const Cost cost = kv_update_cost(*call_.kv_update, plan_->range_);
    if (!plan_stage("kv_update", kv_update_engines(), spec, cost, &plan_->kv_update_)) return false;
    *stage_bytes = std::max(*stage_bytes, scratch_of(*plan_->kv_update_, spec));
    return true;
  }

  bool plan_rotary(size_t* stage_bytes) {
    const RotarySpec& spec = call_.rotary->spec;
    const Cost cost = rotary_cost(spec, plan_->range_);
    if (!plan_stage("rotary", rotary_engines(), spec, cost, &plan_->rotary_)) return false;
    *stage_bytes = std::max(*stage_bytes, scratch_of(*plan_->rotary_, spec));
    return true;
  }

  bool plan_scatter() {
    const Cost cost = scatter_cost(*call_.scatter, plan_->range_);
    return plan_stage("scatter", scatter_engines(), call_.scatter->spec, cost, &plan_->scatter_);
  }

  bool plan_linear_attention(size_t* stage_bytes) {
    StageReport stage;
    stage.stage = "linear_attention";
    const LinearAttentionSpec& spec = call_.linear_attention->spec;
    auto& engines = plan_->linear_attention_;
    engines = supporting_engines(linear_attention_engines(), spec, context_.level, request_.engine,
                                 stage);
    if (engines.empty()) return refuse(ATTN_UNSUPPORTED, refusal_text(stage));
    for (const LinearAttentionEngine* engine : engines) {
      *stage_bytes = std::max(*stage_bytes,
                              engine->workspace_bytes(spec, context_.concurrency, context_.level));
    }
    describe_linear_attention(engines, spec, plan_->range_.query_rows, context_.level, stage);
    const Cost cost = linear_attention_cost(spec, plan_->range_);
    stage.flops = cost.flops;
    stage.bytes = cost.bytes;
    plan_->report_.push_back(std::move(stage));
    return true;
  }

  bool plan_attention(size_t* stage_bytes) {
    StageReport stage;
    stage.stage = "attention";
    const AttentionSpec& spec = call_.attention->spec;
    plan_->attention_ =
        supporting_engines(attention_engines(), spec, context_.level, request_.engine, stage);
    if (plan_->attention_.empty()) return refuse(ATTN_UNSUPPORTED, refusal_text(stage));
    for (const AttentionEngine* engine : plan_->attention_) {
      *stage_bytes = std::max(
          *stage_bytes,
          engine->workspace_bytes(spec, plan_->range_, context_.concurrency, context_.level));
    }
    describe_attention(plan_->attention_, at_range(*call_.attention, plan_->range_), stage);
    if (stage.engine.empty()) return refuse(ATTN_UNSUPPORTED, refusal_text(stage));
    const Cost cost = attention_cost(spec, plan_->range_);
    set_cost(cost, stage);
    plan_->report_.push_back(std::move(stage));
    return true;
  }

  const PlanContext& context_;
  const Lowering& call_;
  const PlanRequest& request_;
  const std::shared_ptr<CpuPlan> plan_;
  attn_status status_ = ATTN_OK;
  std::string refusal_;
};

bool can_plan(const PlanContext& context, const Lowering& call, const PlanRequest& request,
              std::string* reason) {
  // Unknown sizes count as the smallest call: what runs one token runs some call of the class.
  ShapeRange range;
  range.batch = std::max<int64_t>(call.batch, 1);
  range.query_rows = 1;
  range.total = 1;
  if (call.attention.has_value()) {
    range.query_rows = std::max<int64_t>(call.attention->query_rows, 1);
    range.total = std::max<int64_t>(call.attention->max_total, 1);
  }
  if (call.linear_attention.has_value()) {
    range.query_rows = std::max<int64_t>(call.linear_attention->tokens, 1);
  }
  Planner planner(context, call, range, request);
  if (planner.make() != nullptr) return true;
  if (reason != nullptr) *reason = planner.refusal();
  return false;
}

std::shared_ptr<const CpuPlan> make_plan(const PlanContext& context, const Lowering& call,
                                         const ShapeRange& range, const PlanRequest& request) {
  Planner planner(context, call, range, request);
  std::shared_ptr<const CpuPlan> plan = planner.make();
  if (plan == nullptr) throw_error(planner.status(), planner.refusal());
  return plan;
}

std::vector<std::string> all_engine_names() {
  std::vector<std::string> names;
  for (const KvUpdateEngine* engine : kv_update_engines()) names.emplace_back(engine->name());
  for (const AttentionEngine* engine : attention_engines()) names.emplace_back(engine->name());
  for (const RotaryEngine* engine : rotary_engines()) names.emplace_back(engine->name());
  for (const ScatterEngine* engine : scatter_engines()) names.emplace_back(engine->name());
  for (const LinearAttentionEngine* engine : linear_attention_engines()) {
    names.emplace_back(engine->name());
  }
  return names;
}

}  // namespace attn::cpu
