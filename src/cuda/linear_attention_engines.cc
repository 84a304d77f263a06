#include "cuda/linear_attention_engines.h"

#include <algorithm>

#include "core/bounded_product.h"
#include "core/error.h"

namespace attn::cuda {
namespace {

int type_number(DType type) {
  if (type == kFloat16) return attnk::kTypeFloat16;
  if (type == kBfloat16) return attnk::kTypeBfloat16;
  return attnk::kTypeFloat32;
}

attnk::View view(const View4& v) { return {v.data, v.batch, v.head, v.row, v.channel, v.rows}; }

bool refuse(std::string* why_not, std::string reason) {
  if (why_not != nullptr) *why_not = std::move(reason);
  return false;
}

int64_t blocks_of(const LinearAttentionSpec& spec, int columns) {
  return (spec.v_head_size + columns - 1) / columns;
}

attnk::LinearParams params_of(const LinearAttentionProblem& problem) {
  const LinearAttentionSpec& spec = problem.spec;
  attnk::LinearParams out{};
  out.query = view(problem.query);
  out.key = view(problem.key);
  out.value = view(problem.value);
  out.decay = view(problem.decay);
  out.beta = view(problem.beta);
  out.past = view(problem.past);
  out.present = view(problem.present);
  out.output = view(problem.output);
  out.dt_bias = problem.dt_bias.data;
  out.decay_scale = problem.decay_scale.data;
  out.bias_head = problem.dt_bias.head;
  out.bias_channel = problem.dt_bias.channel;
  out.scale_head = problem.decay_scale.head;
  out.scale_channel = problem.decay_scale.channel;
  out.batch = problem.batch;
  out.tokens = problem.tokens;
  out.q_heads = spec.q_heads;
  out.key_heads = spec.key_heads;
  out.kv_heads = spec.kv_heads;
  out.head_size = spec.head_size;
  out.v_head_size = spec.v_head_size;
  out.scale = static_cast<float>(spec.scale);
  out.delta = spec.delta;
  out.decay_form = spec.decay == DecayForm::kNone      ? attnk::kDecayNone
                   : spec.decay == DecayForm::kPerHead ? attnk::kDecayPerHead
                                                       : attnk::kDecayPerKey;
  out.state_type = type_number(spec.state_type);
  out.fold_beta = spec.fold_beta;
  out.fold_decay = spec.fold_decay;
  out.fold_exp = spec.fold_exp;
  out.has_past = spec.has_past;
  out.has_present = spec.has_present;
  out.in_place = spec.has_past && spec.has_present && problem.past.data == problem.present.data;
  out.outputs = static_cast<int32_t>(outputs_of_state(spec));
  return out;
}

// ---- recurrent ----------------------------------------------------------------------------------

// As in kernels/linear/recurrent.cu.
constexpr int kThreads = 128;
constexpr int kMostOutputs = 8;

int lanes_of(int depth) { return depth <= 32 ? 1 : depth <= 64 ? 2 : depth <= 128 ? 4 : 8; }

int padded_of(int depth) {
  const int step = 4 * lanes_of(depth);
  return (depth + step - 1) / step * step;
}

int shared_bytes_of(const LinearAttentionSpec& spec, int tokens) {
  const int depth = spec.head_size, padded = padded_of(depth);
  const int columns = kThreads / lanes_of(depth);
  const int outputs = static_cast<int>(outputs_of_state(spec));
  const bool keyed = spec.decay == DecayForm::kPerKey;
  const int floats = padded * ((keyed ? 3 : 1) + outputs) + columns;
  const int raw = depth * ((keyed ? 2 : 1) + outputs) + columns;
  return tokens * (floats * 4 + raw * static_cast<int>(size_of(spec.type)));
}

// Tokens of a tile: what the device's shared memory holds. 0 where not even two fit.
int tokens_of(const LinearAttentionSpec& spec, const DeviceTraits& device) {
  constexpr int kStaticBytes = 2048;
  int tokens = outputs_of_state(spec) <= 2 ? 16 : 8;
  while (tokens > 1 &&
         shared_bytes_of(spec, tokens) + kStaticBytes > device.shared_bytes_per_block) {
    tokens /= 2;
  }
  return tokens > 1 ? tokens : 0;
}

class Recurrent final : public LinearAttentionEngine {
 public:
  const char* name() const override { return "recurrent"; }

  bool supports(const LinearAttentionSpec& spec, const DeviceTraits& device,
                std::string* why_not) const override {
    if (!spec.unit_channel) return refuse(why_not, "channels are not contiguous");
    if (spec.head_size > 256) {
      return refuse(why_not, cat("head size ", spec.head_size, " is above 256"));
    }
    const int64_t in_16_bytes = 16 / size_of(spec.type);
    if (spec.head_size % in_16_bytes != 0 || spec.v_head_size % in_16_bytes != 0) {
      return refuse(why_not, cat("a head of ", spec.head_size, " or ", spec.v_head_size,
                                 " elements is no multiple of 16 bytes"));
    }
    if (outputs_of_state(spec) > kMostOutputs) {
      return refuse(why_not, cat(outputs_of_state(spec), " query heads share a state, more than ",
                                 kMostOutputs));
    }
    if (tokens_of(spec, device) == 0) {
      return refuse(why_not, cat("two tokens need ", shared_bytes_of(spec, 2),
                                 " bytes of shared memory a block, ", device.architecture, " has ",
                                 device.shared_bytes_per_block));
    }
    return true;
  }

  bool accepts(const LinearAttentionProblem& problem) const override {
    const int64_t mask = 16 / size_of(problem.spec.type) - 1;
    const auto aligned = [mask](const View4& v) {
      return (reinterpret_cast<uintptr_t>(v.data) & 15) == 0 && (v.batch & mask) == 0 &&
             (v.head & mask) == 0 && (v.row & mask) == 0;
    };
    return aligned(problem.query) && aligned(problem.key) && aligned(problem.value) &&
           (problem.spec.decay != DecayForm::kPerKey || aligned(problem.decay));
  }

  KernelVariant variant(const LinearAttentionSpec& spec,
                        const DeviceTraits& device) const override {
    const int tokens = tokens_of(spec, device);
    KernelVariant out{"linear/recurrent.cu", "attn_linear_recurrent", {}};
    out.definitions = {
        cat("ATTN_TYPE=", type_number(spec.type)), cat("HEAD_SIZE=", spec.head_size),
        cat("OUTPUTS=", outputs_of_state(spec)),   cat("DECAY_FORM=", static_cast<int>(spec.decay)),
        cat("DELTA=", spec.delta ? 1 : 0),         cat("TOKENS=", tokens)};
    out.threads = kThreads;
    out.shared_bytes = shared_bytes_of(spec, tokens);
    return out;
  }

  int columns(const LinearAttentionSpec& spec) const override {
    return kThreads / lanes_of(spec.head_size);
  }
  size_t scratch_bytes(const LinearAttentionSpec&, const ShapeRange&) const override { return 0; }
  std::string summary(const LinearAttentionSpec& spec, const DeviceTraits& device) const override {
    return cat("blocks of ", columns(spec), " state columns in registers, tiles of ",
               tokens_of(spec, device), " tokens");
  }
};
static_assert(static_cast<int>(DecayForm::kPerHead) == attnk::kDecayPerHead &&
              static_cast<int>(DecayForm::kPerKey) == attnk::kDecayPerKey);

// ---- recurrent-serial ---------------------------------------------------------------------------

class RecurrentSerial final : public LinearAttentionEngine {
 public:
  const char* name() const override { return "recurrent-serial"; }
  bool supports(const LinearAttentionSpec&, const DeviceTraits&, std::string*) const override {
    return true;
  }
  bool accepts(const LinearAttentionProblem&) const override { return true; }
  KernelVariant variant(const LinearAttentionSpec& spec, const DeviceTraits&) const override {
    KernelVariant out{"linear/recurrent_serial.cu",
                      "attn_linear_recurrent_serial",
                      {cat("ATTN_TYPE=", type_number(spec.type))}};
    out.threads = kThreads;
    return out;
  }
  int columns(const LinearAttentionSpec&) const override { return kThreads; }
  size_t scratch_bytes(const LinearAttentionSpec& spec, const ShapeRange& range) const override {
    return bounded_product({range.batch, spec.kv_heads, spec.head_size, spec.v_head_size, 4});
  }
  std::string summary(const LinearAttentionSpec&, const DeviceTraits&) const override {
    return "a thread a state column, sums in double";
  }
};

std::vector<EngineVerdict> judge(const DeviceTraits& device, const LinearAttentionSpec& spec,
                                 const PlanRequest& request,
                                 std::vector<const LinearAttentionEngine*>* chosen) {
  const bool forced = is_linear_attention_name(request.engine);
  std::vector<EngineVerdict> verdicts;
  for (const LinearAttentionEngine* engine : linear_attention_engines()) {
    EngineVerdict verdict;
    verdict.engine = engine->name();
    if (forced && request.engine != verdict.engine) {
      verdict.reason = cat(request.engine, " is forced");
    } else if (engine->supports(spec, device, &verdict.reason)) {
      verdict.supported = true;
      verdict.reason = engine->summary(spec, device);
      chosen->push_back(engine);
    }
    verdicts.push_back(std::move(verdict));
  }
  return verdicts;
}

std::string refusals(const std::vector<EngineVerdict>& verdicts) {
  std::string text = "no engine of the CUDA back end runs this:";
  for (const EngineVerdict& verdict : verdicts) {
    text += cat(" ", verdict.engine, ": ", verdict.reason, ";");
  }
  text.pop_back();
  return text;
}

// docs/numerics.md has the formulas.
void add_cost(const LinearAttentionSpec& spec, const ShapeRange& range, StageReport& stage) {
  const double tokens = static_cast<double>(range.batch) * static_cast<double>(range.query_rows);
  const double cells = static_cast<double>(spec.head_size) * spec.v_head_size * spec.kv_heads;
  const double outputs = static_cast<double>(outputs_of_state(spec));
  const double products =
      2 + 2 * outputs + (spec.delta ? 2 : 0) + (spec.decay != DecayForm::kNone ? 1 : 0);
  stage.flops = tokens * cells * products;
  const double channels = static_cast<double>(spec.head_size) * (spec.q_heads + spec.key_heads) +
                          static_cast<double>(spec.v_head_size) * spec.kv_heads * (1 + outputs);
  stage.bytes = tokens * channels * static_cast<double>(size_of(spec.type)) +
                static_cast<double>(range.batch) * cells * (spec.has_past + spec.has_present) *
                    static_cast<double>(size_of(spec.state_type));
}

}  // namespace

std::span<const LinearAttentionEngine* const> linear_attention_engines() {
  static const Recurrent recurrent;
  static const RecurrentSerial serial;
  static const LinearAttentionEngine* const engines[] = {&recurrent, &serial};
  return engines;
}

bool is_linear_attention_name(const std::string& name) {
  const auto engines = linear_attention_engines();
  return std::any_of(engines.begin(), engines.end(),
                     [&](const LinearAttentionEngine* one) { return name == one->name(); });
}

bool can_plan_linear_attention(const DeviceTraits& device, const LinearAttentionSpec& spec,
                               const PlanRequest& request, std::string* reason) {
  std::vector<const LinearAttentionEngine*> chosen;
  const auto verdicts = judge(device, spec, request, &chosen);
  if (chosen.empty()) *reason = refusals(verdicts);
  return !chosen.empty();
}

std::shared_ptr<const CudaPlan> plan_linear_attention(const CudaContext& context,
                                                      KernelStore& kernels,
                                                      const LinearAttentionProblem& problem,
                                                      const ShapeRange& range,
                                                      const PlanRequest& request) {
  auto plan = std::make_shared<CudaPlan>();
  plan->range = range;
  StageReport stage;
  stage.stage = "linear_attention";
  std::vector<const LinearAttentionEngine*> chosen;
  stage.considered = judge(context, problem.spec, request, &chosen);
  if (chosen.empty()) throw_error(ATTN_UNSUPPORTED, refusals(stage.considered));
  std::vector<KernelVariant> variants;
  variants.reserve(chosen.size());
  for (const LinearAttentionEngine* engine : chosen) {
    variants.push_back(engine->variant(problem.spec, context));
  }
  kernels.prefetch(variants);
  size_t scratch = 0;
  for (size_t i = 0; i < chosen.size(); ++i) {
    const LoadedKernel* kernel = kernels.get(variants[i]);
    plan->linear_attention.push_back({chosen[i], kernel});
    scratch = std::max(scratch, chosen[i]->scratch_bytes(problem.spec, range));
    if (stage.engine.empty() && chosen[i]->accepts(problem)) stage.engine = chosen[i]->name();
    for (EngineVerdict& verdict : stage.considered) {
      if (verdict.engine == chosen[i]->name()) {
        verdict.reason += cat("; kernel from ", kernel->origin);
      }
    }
  }
  if (stage.engine.empty()) stage.engine = chosen.front()->name();
  add_cost(problem.spec, range, stage);
  plan->workspace = scratch + 256;
  check_workspace(plan->workspace, range);
  plan->stages.push_back(std::move(stage));
  return plan;
}

void launch_linear_attention(const Driver& driver, const CudaPlan& plan,
                             const LinearAttentionProblem& problem, attnk::FaultState* faults,
                             CUdeviceptr scratch, CUstream stream) {
  for (const LinearAttentionChoice& choice : plan.linear_attention) {
    if (!choice.engine->accepts(problem)) continue;
    attnk::LinearParams params = params_of(problem);
    params.blocks = blocks_of(problem.spec, choice.engine->columns(problem.spec));
    params.states = reinterpret_cast<float*>(scratch);
    params.faults = faults;
    void* arguments[] = {&params};
    launch_kernel(driver, *choice.kernel, problem.batch * problem.spec.kv_heads * params.blocks,
                  choice.kernel->threads, stream, arguments, false);
    return;
  }
  fail_unsupported("the engine ", plan.linear_attention.front().engine->name(),
                   " is forced but does not take these strides or addresses");
}

}  // namespace attn::cuda
