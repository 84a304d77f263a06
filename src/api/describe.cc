// The JSON text of describe: for people and logs, with a schema number of its own
// (docs/errors.md lists the fields).
#include <nlohmann/json.hpp>

#include "api/plan.h"

namespace attn::api {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kSchema = 1;

Json operator_json(const attn_op& op) {
  Json json;
  json["domain"] = op.schema().domain;
  json["type"] = op.schema().type;
  json["label"] = op.label;
  return json;
}

Json device_json(const DeviceFacts& facts) {
  Json json;
  json["type"] = facts.identity.type == ATTN_DEVICE_CUDA ? "cuda" : "cpu";
  json["id"] = facts.identity.id;
  json["name"] = facts.device_name;
  json["architecture"] = facts.architecture;
  if (facts.identity.type == ATTN_DEVICE_CPU) {
    json["simd_level"] = facts.simd_level;
    json["instruction_sets"] = facts.instruction_sets;
    json["threads"] = facts.thread_count;
  }
  return json;
}

const char* decay_name(DecayForm decay) {
  switch (decay) {
    case DecayForm::kNone:
      return "none";
    case DecayForm::kPerHead:
      return "per head";
    case DecayForm::kPerKey:
      break;
  }
  return "per key channel";
}

Json sizes_json(const PlanKey& key) {
  Json json;
  json["max_batch"] = key.range.batch;
  json["max_query_length"] = key.range.query_rows;
  json["max_total_length"] = key.range.total;
  if (key.attention.has_value()) {
    const AttentionSpec& spec = *key.attention;
    json["type"] = name_of(spec.type);
    json["query_heads"] = spec.q_heads;
    json["kv_heads"] = spec.kv_heads;
    json["head_size"] = spec.head_size;
    json["v_head_size"] = spec.v_head_size;
    json["scale"] = spec.scale;
    json["softcap"] = spec.softcap;
    json["causal"] = spec.causal;
    json["left_window"] = spec.left_window;
    json["right_window"] = spec.right_window;
  } else if (key.linear_attention.has_value()) {
    const LinearAttentionSpec& spec = *key.linear_attention;
    json["type"] = name_of(spec.type);
    json["state_type"] = name_of(spec.state_type);
    json["query_heads"] = spec.q_heads;
    json["key_heads"] = spec.key_heads;
    json["kv_heads"] = spec.kv_heads;
    json["head_size"] = spec.head_size;
    json["v_head_size"] = spec.v_head_size;
    json["scale"] = spec.scale;
    json["delta_rule"] = spec.delta;
    json["decay"] = decay_name(spec.decay);
  } else if (key.rotary.has_value()) {
    json["type"] = name_of(key.rotary->type);
    json["heads"] = key.rotary->heads;
    json["head_size"] = key.rotary->head_size;
    json["width"] = key.rotary->transform.width;
    json["interleaved"] = key.rotary->transform.interleaved;
    json["in_place"] = key.rotary->in_place;
  } else if (key.scatter.has_value()) {
    json["type"] = name_of(key.scatter->type);
    json["circular"] = key.scatter->circular;
    json["in_place"] = key.scatter->in_place;
  } else if (key.kv_update.has_value()) {
    json["type"] = name_of(key.kv_update->type);
    json["kv_heads"] = key.kv_update->kv_heads;
    json["head_size"] = key.kv_update->head_size;
    json["v_head_size"] = key.kv_update->v_head_size;
  }
  if (key.kv_update.has_value()) {
    json["key_in_place"] = key.kv_update->key.in_place;
    json["value_in_place"] = key.kv_update->value.in_place;
  }
  return json;
}

Json choice_json(const PlanKey& key) {
  const PlanRequest request = request_of(key);
  Json json;
  json["engine"] = request.engine.empty() ? Json(nullptr) : Json(request.engine);
  json["batch_invariant"] = request.batch_invariant;
  json["allow_tf32"] = request.allow_tf32;
  json["check_on_host"] = request.check_on_host;
  return json;
}

Json stage_json(const StageReport& stage) {
  Json json;
  json["stage"] = stage.stage;
  json["engine"] = stage.engine;
  json["flops"] = stage.flops;
  json["bytes"] = stage.bytes;
  json["considered"] = Json::array();
  for (const EngineVerdict& verdict : stage.considered) {
    json["considered"].push_back(
        {{"engine", verdict.engine}, {"supported", verdict.supported}, {"reason", verdict.reason}});
  }
  return json;
}

}  // namespace

std::string describe_plan(const attn_op& op, const PlanEntry& entry) {
  const BackendPlan& plan = entry.plan();
  Json json;
  json["schema"] = kSchema;
  json["library"] = ATTN_VERSION_STRING;
  json["operator"] = operator_json(op);
  json["device"] = device_json(op.context->facts);
  json["sizes"] = sizes_json(entry.key());
  json["asked"] = choice_json(entry.key());
  json["workspace_bytes"] = plan.workspace_bytes();
  json["capture"] = {{"supported", plan.capturable()}, {"reason", plan.capture_reason()}};
  json["stages"] = Json::array();
  for (const StageReport& stage : plan.report()) json["stages"].push_back(stage_json(stage));
  // Labels come from the caller: what is no UTF-8 in them is replaced, not thrown at.
  return json.dump(2, ' ', false, Json::error_handler_t::replace);
}

}  // namespace attn::api
