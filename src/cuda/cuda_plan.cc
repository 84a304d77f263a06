#include "cuda/cuda_plan.h"

#include <algorithm>

#include "core/bounded_product.h"
#include "core/cost.h"
#include "core/error.h"
#include "core/packed_lengths.h"
#include "cuda/host_lengths.h"
#include "cuda/launch_params.h"
#include "cuda/linear_attention_engines.h"
#include "cuda/row_operators.h"

namespace attn::cuda {
namespace {

constexpr const char* kKvUpdateName = "fused-kv-update";
constexpr const char* kPackedLengthsName = "packed-lengths";  // no choice, so not to be forced

DType type_of(const Lowering& call) {
  return call.attention ? call.attention->spec.type : call.kv_update->spec.type;
}

int channels_of(const Lowering& call) {
  int channels = 0;
  if (call.kv_update) {
    channels = std::max(call.kv_update->spec.head_size, call.kv_update->spec.v_head_size);
  }
  return channels;
}

bool is_attention_name(const std::string& name) {
  for (const AttentionEngine* engine : attention_engines()) {
    if (name == engine->name()) return true;
  }
  return false;
}

void check_engine_name(const std::string& name) {
  if (name.empty() || name == kKvUpdateName || is_attention_name(name)) return;
  if (name == kRotaryName || name == kScatterName || is_linear_attention_name(name)) return;
  std::string known;
  for (const std::string& one : all_engine_names()) known += cat(known.empty() ? "" : ", ", one);
  fail_argument("engine is \"", name, "\", which is no engine of the CUDA back end; there are ",
                known);
}

// Past rows that move as the cache grows in its own memory: they wait in scratch for the update.
size_t moved_bytes(const KvUpdateSpec& spec, const ShapeRange& range) {
  int64_t channels = 0;
  if (spec.key.grows) channels += spec.head_size;
  if (spec.value.grows) channels += spec.v_head_size;
  return bounded_product({range.batch, spec.kv_heads, range.total, channels, size_of(spec.type)});
}

// What the back end cannot take whatever the engine.
bool common_refusal(const Lowering& call, std::string* reason) {
  if (is_row_operator(call)) return false;
  const DType type = type_of(call);
  if (type != kFloat32 && type != kFloat16 && type != kBfloat16) {
    *reason = cat(name_of(type), " is not served on CUDA devices: use a CPU context");
    return true;
  }
  if (channels_of(call) > 1024) {
    *reason = "head sizes above 1024";
    return true;
  }
  return false;
}

// Where a sequence is cut as it asks for itself, a large batch may need more merges at once than a
// session has counters for: the reason, empty where it does not.
std::string many_merges(const CudaContext& context, const AttentionEngine& engine,
                        const AttentionProblem& problem, const ShapeRange& range) {
  AttentionProblem largest = problem;
  largest.batch = range.batch;
  largest.query_rows = std::min<int64_t>(range.query_rows, kDecodeQueries);
  largest.max_total = range.total;
  const LaunchShape shape = engine.shape(largest, context, true);
  const int64_t units = shape.blocks / std::max<int64_t>(shape.splits, 1);
  if (shape.splits <= 1 || units <= kCounters) return {};
  return cat("a batch of ", range.batch, " needs ", units, " merges at once for results that do ",
             "not depend on the batch; there are ", kCounters);
}

// Whether some call of the range comes to the engine, which stands behind those of `before`. All of
// them want aligned calls, so that the number of rows alone decides; the generic engine takes the
// rest.
bool is_reached(const AttentionEngine& engine, const std::vector<const AttentionEngine*>& before,
                const AttentionSpec& spec, const ShapeRange& range) {
  if (&engine == &generic_engine() || before.empty()) return true;
  constexpr int64_t kMany = 128;  // numbers of rows from here on are alike
  for (int64_t rows = std::min(range.query_rows, kMany); rows > 0; --rows) {
    const auto takes = [&](const AttentionEngine* one) { return one->takes_rows(spec, rows); };
    if (takes(&engine) && std::none_of(before.begin(), before.end(), takes)) return true;
  }
  return range.query_rows <= 0;  // any, or none
}

std::vector<EngineVerdict> judge(const CudaContext& context, const AttentionProblem& problem,
                                 const ShapeRange& range, const PlanRequest& request,
                                 std::vector<const AttentionEngine*>* chosen) {
  const AttentionSpec& spec = problem.spec;
  const bool forced = is_attention_name(request.engine);
  std::vector<EngineVerdict> verdicts;
  for (const AttentionEngine* engine : attention_engines()) {
    EngineVerdict verdict;
    verdict.engine = engine->name();
    if (forced && request.engine != verdict.engine) {
      verdict.reason = cat(request.engine, " is forced");
    } else if (engine->supports(spec, context, &verdict.reason)) {
      if (request.batch_invariant) {
        verdict.reason = many_merges(context, *engine, problem, range);
      }
      if (verdict.reason.empty() && !is_reached(*engine, *chosen, spec, range)) {
        verdict.reason = cat("calls of at most ", range.query_rows, " query rows are taken by ",
                             chosen->front()->name());
      }
      verdict.supported = verdict.reason.empty();
      if (verdict.supported) {
        verdict.reason = engine->summary(spec, context);
        chosen->push_back(engine);
      }
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

}  // namespace

void check_workspace(size_t bytes, const ShapeRange& range) {
  constexpr size_t kAddressable = size_t{1} << 47;
  if (bytes <= kAddressable) return;
  fail_unsupported(
      "a range of batch ", range.batch, ", ", range.query_rows, " queries and ", range.total,
      " keys in all needs more workspace than a device addresses: ", "state smaller bounds");
}

std::string CudaPlan::capture_reason() const {
  if (check_on_host) {
    return "lengths are checked on the host at every call, for which a capture cannot wait: "
           "prepare "
           "without ATTN_PREPARE_CHECK_ON_HOST";
  }
  if (store_lengths != nullptr) {
    return "addresses, strides, capacities and the lengths in host memory are fixed by a capture, "
           "the latter only with ATTN_EXECUTE_BAKE_HOST_VALUES; contents are read at every replay";
  }
  return "addresses, strides and capacities are fixed by a capture; lengths and contents are read "
         "on the device at every replay";
}

std::vector<std::string> all_engine_names() {
  std::vector<std::string> names;
  for (const AttentionEngine* engine : attention_engines()) names.emplace_back(engine->name());
  names.emplace_back(kKvUpdateName);
  names.emplace_back(kRotaryName);
  names.emplace_back(kScatterName);
  for (const LinearAttentionEngine* engine : linear_attention_engines()) {
    names.emplace_back(engine->name());
  }
  return names;
}

KernelVariant session_variant(const char* entry) {
  KernelVariant out;
  out.source = "session/session.cu";
  out.entry = entry;
  out.threads = attnk::kStoredLengths;
  return out;
}

KernelVariant kv_update_variant(DType type, int channels) {
  KernelVariant out;
  out.source = "kv/kv_update.cu";
  out.entry = "attn_kv_update";
  out.definitions = {cat("ATTN_TYPE=", type_number(type))};
  out.threads = 256;
  out.shared_bytes = 8 * attnk::rows_at_once(channels) * channels * 4;
  return out;
}

KernelVariant packed_lengths_variant(DType type) {
  KernelVariant out;
  out.source = "packed/packed_lengths.cu";
  out.entry = "attn_packed_lengths";
  out.definitions = {cat("ATTN_TYPE=", type_number(type))};
  out.threads = 256;
  return out;
}

bool can_plan(const CudaContext& context, const Lowering& call, const PlanRequest& request,
              std::string* reason) {
  check_engine_name(request.engine);
  if (call.linear_attention) {
    return can_plan_linear_attention(context, call.linear_attention->spec, request, reason);
  }
  if (common_refusal(call, reason)) return false;
  if (!call.attention) return true;
  std::vector<const AttentionEngine*> chosen;
  const ShapeRange range = {call.batch, call.attention->query_rows, call.attention->max_total};
  const auto verdicts = judge(context, *call.attention, range, request, &chosen);
  if (chosen.empty()) *reason = refusals(verdicts);
  return !chosen.empty();
}

std::shared_ptr<const CudaPlan> make_plan(const CudaContext& context, KernelStore& kernels,
                                          const Lowering& call, const ShapeRange& range,
                                          const PlanRequest& request) {
  check_engine_name(request.engine);
  std::string reason;
  if (call.linear_attention) {
    return plan_linear_attention(context, kernels, *call.linear_attention, range, request);
  }
  if (common_refusal(call, &reason)) throw_error(ATTN_UNSUPPORTED, reason);
  auto plan = std::make_shared<CudaPlan>();
  plan->range = range;
  plan->check_on_host = request.check_on_host;
  plan->batch_invariant = request.batch_invariant;
  if (is_row_operator(call)) {
    plan_rows(kernels, call, *plan);
    return plan;
  }

  const bool packed = is_packed(call);
  const bool grows = call.kv_update && moved_bytes(call.kv_update->spec, range) > 0;
  const KernelVariant update = packed ? packed_lengths_variant(type_of(call))
                                      : kv_update_variant(type_of(call), channels_of(call));
  std::vector<KernelVariant> variants = {update};
  if (grows) variants.push_back(scatter_variant());
  std::vector<const AttentionEngine*> chosen;
  StageReport attention;
  if (call.attention) {
    attention.stage = "attention";
    attention.considered = judge(context, *call.attention, range, request, &chosen);
    if (chosen.empty()) throw_error(ATTN_UNSUPPORTED, refusals(attention.considered));
    const auto takes = std::find_if(chosen.begin(), chosen.end(), [&](const AttentionEngine* one) {
      return one->accepts(*call.attention);
    });
    attention.engine = (takes == chosen.end() ? chosen.front() : *takes)->name();
    set_cost(attention_cost(call.attention->spec, range), attention);
    for (const AttentionEngine* engine : chosen) {
      variants.push_back(engine->variant(call.attention->spec, context));
    }
  }
  kernels.prefetch(variants);

  plan->lengths = kernels.get(update);
  if (grows) plan->rows = kernels.get(scatter_variant());
  plan->end_call = kernels.get(session_variant("attn_end_call"));
  size_t partials = 0;
  for (const AttentionEngine* engine : chosen) {
    const KernelVariant variant = engine->variant(call.attention->spec, context);
    plan->attention.push_back({engine, kernels.get(variant)});
    partials = std::max(partials, engine->partial_bytes(call.attention->spec, range, context,
                                                        request.batch_invariant));
  }
  plan->partials_offset = rows_bytes(range.batch);
  if (are_on_host(call.lengths.spec)) {
    plan->store_lengths = kernels.get(session_variant("attn_store_lengths"));
    plan->partials_offset += stored_lengths_bytes(call.lengths.spec.rule, range.batch);
  }
  plan->moved_offset = (plan->partials_offset + partials + 255) / 256 * 256;
  plan->workspace = plan->moved_offset + 256;
  if (grows) plan->workspace += moved_bytes(call.kv_update->spec, range);
  check_workspace(plan->workspace, range);

  StageReport kv;
  kv.stage = packed ? "lengths" : "kv_update";
  kv.engine = packed ? kPackedLengthsName : kKvUpdateName;
  kv.considered = {
      {kv.engine, true,
       cat(packed  ? "cumulative lengths, faults and tokens of no sequence in one launch"
           : grows ? "past rows to scratch, then lengths, faults, norm, rotary embedding and append"
                   : "lengths, faults, norm, rotary embedding and append in one launch",
           "; kernel from ", plan->lengths->origin)}};
  if (call.kv_update) set_cost(kv_update_cost(*call.kv_update, range), kv);
  plan->stages.push_back(std::move(kv));
  if (call.attention) {
    for (size_t i = 0; i < plan->attention.size(); ++i) {
      for (EngineVerdict& verdict : attention.considered) {
        if (verdict.engine == plan->attention[i].engine->name()) {
          verdict.reason += cat("; kernel from ", plan->attention[i].kernel->origin);
        }
      }
    }
    plan->stages.push_back(std::move(attention));
  }
  return plan;
}

}  // namespace attn::cuda
