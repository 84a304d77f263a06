// The JSON text of describe: for people and logs, with a schema number of its own
// (docs/errors.md lists the fields).
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "api/plan.h"

namespace attn::api {
namespace {

constexpr int kSchema = 1;

// Writes members one after the other. A tree of values would not do: where memory is short, taking
// it down allocates again, out of a destructor. Values alone go through the JSON library.
class JsonWriter {
 public:
  // Begins an object ('{') or a list ('[') as member `name`; null in a list, and for the whole.
  void begin(const char* name, char bracket) {
    next(name);
    text_ += bracket;
    open_ += bracket == '{' ? '}' : ']';
    first_ = true;
  }

  void end() {
    const char bracket = open_.back();
    open_.pop_back();
    if (!first_) new_line();
    text_ += bracket;
    first_ = false;
  }

  // One number, text, truth or null.
  template <class T>
  void add(const char* name, const T& value) {
    next(name);
    // Labels come from the caller: what is no UTF-8 in them is replaced, not thrown at.
    text_ += nlohmann::json(value).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  }

  std::string take() { return std::move(text_); }

 private:
  void next(const char* name) {
    if (!first_) text_ += ',';
    if (!open_.empty()) new_line();
    if (name != nullptr) text_.append("\"").append(name).append("\": ");
    first_ = false;
  }
  void new_line() { text_.append("\n").append(2 * open_.size(), ' '); }

  std::string text_;
  std::string open_;  // the brackets that are still to come
  bool first_ = true;
};

void write_operator(JsonWriter& json, const attn_op& op) {
  json.begin("operator", '{');
  json.add("domain", op.schema().domain);
  json.add("type", op.schema().type);
  json.add("label", op.label);
  json.end();
}

void write_device(JsonWriter& json, const DeviceFacts& facts) {
  json.begin("device", '{');
  json.add("type", facts.identity.type == ATTN_DEVICE_CUDA ? "cuda" : "cpu");
  json.add("id", facts.identity.id);
  json.add("name", facts.device_name);
  json.add("architecture", facts.architecture);
  if (facts.identity.type == ATTN_DEVICE_CPU) {
    json.add("simd_level", facts.simd_level);
    json.begin("instruction_sets", '[');
    for (const std::string& name : facts.instruction_sets) json.add(nullptr, name);
    json.end();
    json.add("threads", facts.thread_count);
    json.begin("machine", '{');
    for (const auto& [name, value] : facts.machine) json.add(name, value);
    json.end();
  }
  json.end();
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

void write_sizes(JsonWriter& json, const PlanKey& key) {
  json.begin("sizes", '{');
  json.add("max_batch", key.range.batch);
  json.add("max_query_length", key.range.query_rows);
  json.add("max_total_length", key.range.total);
  if (key.attention.has_value()) {
    const AttentionSpec& spec = *key.attention;
    json.add("type", name_of(spec.type));
    json.add("query_heads", spec.q_heads);
    json.add("kv_heads", spec.kv_heads);
    json.add("head_size", spec.head_size);
    json.add("v_head_size", spec.v_head_size);
    json.add("scale", spec.scale);
    json.add("softcap", spec.softcap);
    json.add("causal", spec.causal);
    json.add("left_window", spec.left_window);
    json.add("right_window", spec.right_window);
  } else if (key.linear_attention.has_value()) {
    const LinearAttentionSpec& spec = *key.linear_attention;
    json.add("type", name_of(spec.type));
    json.add("state_type", name_of(spec.state_type));
    json.add("query_heads", spec.q_heads);
    json.add("key_heads", spec.key_heads);
    json.add("kv_heads", spec.kv_heads);
    json.add("head_size", spec.head_size);
    json.add("v_head_size", spec.v_head_size);
    json.add("scale", spec.scale);
    json.add("delta_rule", spec.delta);
    json.add("decay", decay_name(spec.decay));
  } else if (key.rotary.has_value()) {
    json.add("type", name_of(key.rotary->type));
    json.add("heads", key.rotary->heads);
    json.add("head_size", key.rotary->head_size);
    json.add("width", key.rotary->transform.width);
    json.add("interleaved", key.rotary->transform.interleaved);
    json.add("in_place", key.rotary->in_place);
  } else if (key.scatter.has_value()) {
    json.add("type", name_of(key.scatter->type));
    json.add("circular", key.scatter->circular);
    json.add("in_place", key.scatter->in_place);
  } else if (key.kv_update.has_value()) {
    json.add("type", name_of(key.kv_update->type));
    json.add("kv_heads", key.kv_update->kv_heads);
    json.add("head_size", key.kv_update->head_size);
    json.add("v_head_size", key.kv_update->v_head_size);
  }
  if (key.kv_update.has_value()) {
    json.add("key_in_place", key.kv_update->key.in_place);
    json.add("value_in_place", key.kv_update->value.in_place);
  }
  json.end();
}

void write_choice(JsonWriter& json, const PlanKey& key) {
  const PlanRequest request = request_of(key);
  json.begin("asked", '{');
  if (request.engine.empty()) {
    json.add("engine", nullptr);
  } else {
    json.add("engine", request.engine);
  }
  json.add("batch_invariant", request.batch_invariant);
  json.add("allow_tf32", request.allow_tf32);
  json.add("check_on_host", request.check_on_host);
  json.end();
}

void write_stage(JsonWriter& json, const StageReport& stage) {
  json.begin(nullptr, '{');
  json.add("stage", stage.stage);
  json.add("engine", stage.engine);
  json.add("flops", stage.flops);
  json.add("bytes", stage.bytes);
  json.begin("considered", '[');
  for (const EngineVerdict& verdict : stage.considered) {
    json.begin(nullptr, '{');
    json.add("engine", verdict.engine);
    json.add("supported", verdict.supported);
    json.add("reason", verdict.reason);
    json.end();
  }
  json.end();
  json.end();
}

}  // namespace

std::string describe_plan(const attn_op& op, const PlanEntry& entry) {
  const BackendPlan& plan = entry.plan();
  JsonWriter json;
  json.begin(nullptr, '{');
  json.add("schema", kSchema);
  json.add("library", ATTN_VERSION_STRING);
  write_operator(json, op);
  write_device(json, op.context->facts);
  write_sizes(json, entry.key());
  write_choice(json, entry.key());
  json.add("workspace_bytes", plan.workspace_bytes());
  json.begin("capture", '{');
  json.add("supported", plan.capturable());
  json.add("reason", plan.capture_reason());
  json.end();
  json.begin("stages", '[');
  for (const StageReport& stage : plan.report()) write_stage(json, stage);
  json.end();
  json.end();
  return json.take();
}

}  // namespace attn::api
