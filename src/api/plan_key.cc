#include "api/plan_key.h"

#include <algorithm>

#include "attn_c.h"
#include "core/error.h"

namespace attn::api {
namespace {

template <class Problem, class Spec>
bool same_spec(const std::optional<Spec>& planned, const std::optional<Problem>& called) {
  if (planned.has_value() != called.has_value()) return false;
  return !planned.has_value() || *planned == called->spec;
}

// A call without batch rows needs no memory, so addresses and strides say nothing of it: the plan's
// facts stand in for what follows from them.

void take_memory_facts(const CacheUpdateSpec& plan, CacheUpdateSpec& call) {
  call.in_place = plan.in_place;
  call.grows = plan.grows;
  call.unit_channel = plan.unit_channel;
  call.transform.unit_strides = plan.transform.unit_strides;
}

bool same_empty_spec(const std::optional<KvUpdateSpec>& planned,
                     const std::optional<KvUpdateProblem>& called) {
  if (!planned.has_value() || !called.has_value()) return same_spec(planned, called);
  KvUpdateSpec spec = called->spec;
  take_memory_facts(planned->key, spec.key);
  take_memory_facts(planned->value, spec.value);
  return *planned == spec;
}

bool same_empty_spec(const std::optional<AttentionSpec>& planned,
                     const std::optional<AttentionProblem>& called) {
  if (!planned.has_value() || !called.has_value()) return same_spec(planned, called);
  AttentionSpec spec = called->spec;
  spec.unit_channel = planned->unit_channel;
  spec.unit_mask_column = planned->unit_mask_column;
  spec.query_transform.unit_strides = planned->query_transform.unit_strides;
  spec.key_transform.unit_strides = planned->key_transform.unit_strides;
  return *planned == spec;
}

bool same_empty_spec(const std::optional<RotarySpec>& planned,
                     const std::optional<RotaryProblem>& called) {
  if (!planned.has_value() || !called.has_value()) return same_spec(planned, called);
  RotarySpec spec = called->spec;
  spec.in_place = planned->in_place;
  spec.unit_channel = planned->unit_channel;
  spec.transform.unit_strides = planned->transform.unit_strides;
  return *planned == spec;
}

bool same_empty_spec(const std::optional<ScatterSpec>& planned,
                     const std::optional<ScatterProblem>& called) {
  if (!planned.has_value() || !called.has_value()) return same_spec(planned, called);
  ScatterSpec spec = called->spec;
  spec.in_place = planned->in_place;
  spec.unit_inner = planned->unit_inner;
  return *planned == spec;
}

bool same_empty_spec(const std::optional<LinearAttentionSpec>& planned,
                     const std::optional<LinearAttentionProblem>& called) {
  if (!planned.has_value() || !called.has_value()) return same_spec(planned, called);
  LinearAttentionSpec spec = called->spec;
  spec.unit_channel = planned->unit_channel;
  return *planned == spec;
}

// Collects "what is X, the plan has Y", joined with "; ".
class Differences {
 public:
  template <class T>
  void compare(const char* what, const T& called, const T& planned) {
    if (called == planned) return;
    add(cat(what, " ", words(called), ", the plan has ", words(planned)));
  }
  void add(const std::string& text) {
    if (!text_.empty()) text_ += "; ";
    text_ += text;
  }
  bool empty() const { return text_.empty(); }
  const std::string& text() const { return text_; }

 private:
  static std::string words(bool value) { return value ? "yes" : "no"; }
  static std::string words(int32_t value) { return cat(value); }
  static std::string words(int64_t value) { return cat(value); }
  static std::string words(double value) { return cat(value); }
  static std::string words(float value) { return cat(value); }
  static std::string words(DType value) { return value.bits == 0 ? "none" : name_of(value); }
  static std::string words(Placement value) {
    switch (value) {
      case Placement::kAbsent:
        return "absent";
      case Placement::kHost:
        return "in host memory";
      case Placement::kDevice:
        break;
    }
    return "in device memory";
  }
  static std::string words(MaskKind value) {
    switch (value) {
      case MaskKind::kNone:
        return "absent";
      case MaskKind::kAdditive:
        return "additive";
      case MaskKind::kBoolean:
        break;
    }
    return "boolean";
  }
  static std::string words(Sink value) {
    switch (value) {
      case Sink::kNone:
        return "absent";
      case Sink::kZero:
        return "zero";
      case Sink::kPerHead:
        break;
    }
    return "one a head";
  }
  static std::string words(ScoreStage value) {
    switch (value) {
      case ScoreStage::kNone:
        return "absent";
      case ScoreStage::kRaw:
        return "raw products";
      case ScoreStage::kCapped:
        return "after softcap";
      case ScoreStage::kBiased:
        return "after the mask";
      case ScoreStage::kProbabilities:
        break;
    }
    return "probabilities";
  }

  std::string text_;
};

void compare_transforms(Differences& out, const RowTransformSpec& call,
                        const RowTransformSpec& plan) {
  out.compare("RMS norm", call.norm, plan.norm);
  out.compare("rotary embedding", call.rotary, plan.rotary);
  out.compare("interleaved rotary embedding", call.interleaved, plan.interleaved);
  out.compare("explicit positions", call.explicit_positions, plan.explicit_positions);
  out.compare("rotated channels", call.width, plan.width);
  out.compare("rotary table type", call.table, plan.table);
  out.compare("unit strides of norm weight and rotary tables", call.unit_strides,
              plan.unit_strides);
}

void compare_caches(Differences& out, const std::string& name, const CacheUpdateSpec& call,
                    const CacheUpdateSpec& plan) {
  out.compare(cat("output present_", name, " bound").c_str(), call.active, plan.active);
  if (call.active != plan.active) return;  // all else follows
  out.compare(cat("past ", name, " bound").c_str(), call.has_past, plan.has_past);
  out.compare(cat(name, " cache in place").c_str(), call.in_place, plan.in_place);
  out.compare(cat(name, " cache growing in place").c_str(), call.grows, plan.grows);
  out.compare(cat("unit channel stride of the ", name, " cache").c_str(), call.unit_channel,
              plan.unit_channel);
}

void compare_attention(Differences& out, const AttentionSpec& call, const AttentionSpec& plan) {
  out.compare("element type", call.type, plan.type);
  out.compare("query heads", call.q_heads, plan.q_heads);
  out.compare("key heads", call.kv_heads, plan.kv_heads);
  out.compare("head size", call.head_size, plan.head_size);
  out.compare("value head size", call.v_head_size, plan.v_head_size);
  out.compare("scale", call.scale, plan.scale);
  out.compare("softcap", call.softcap, plan.softcap);
  out.compare("causal", call.causal, plan.causal);
  out.compare("left window", call.left_window, plan.left_window);
  out.compare("right window", call.right_window, plan.right_window);
  out.compare("sink", call.sink, plan.sink);
  out.compare("mask", call.mask, plan.mask);
  out.compare("mask type", call.mask_type, plan.mask_type);
  out.compare("score output", call.scores, plan.scores);
  out.compare("log-sum-exp output", call.log_sum_exp, plan.log_sum_exp);
  out.compare("unit channel strides", call.unit_channel, plan.unit_channel);
  out.compare("unit mask column stride", call.unit_mask_column, plan.unit_mask_column);
  out.compare("keys read from a cache", call.key_cached, plan.key_cached);
  out.compare("values read from a cache", call.value_cached, plan.value_cached);
  out.compare("new keys read from their input", call.key_fresh, plan.key_fresh);
  out.compare("new values read from their input", call.value_fresh, plan.value_fresh);
  compare_transforms(out, call.query_transform, plan.query_transform);
}

void compare_rotary(Differences& out, const RotarySpec& call, const RotarySpec& plan) {
  out.compare("element type", call.type, plan.type);
  out.compare("heads", call.heads, plan.heads);
  out.compare("head size", call.head_size, plan.head_size);
  out.compare("output in place", call.in_place, plan.in_place);
  out.compare("unit channel strides", call.unit_channel, plan.unit_channel);
  compare_transforms(out, call.transform, plan.transform);
}

void compare_scatter(Differences& out, const ScatterSpec& call, const ScatterSpec& plan) {
  out.compare("element type", call.type, plan.type);
  out.compare("circular cache", call.circular, plan.circular);
  out.compare("write indices", call.indexed, plan.indexed);
  out.compare("cache in place", call.in_place, plan.in_place);
  out.compare("unit stride of the innermost axis", call.unit_inner, plan.unit_inner);
}

void compare_linear_attention(Differences& out, const LinearAttentionSpec& call,
                              const LinearAttentionSpec& plan) {
  out.compare("element type", call.type, plan.type);
  out.compare("state type", call.state_type, plan.state_type);
  out.compare("query heads", call.q_heads, plan.q_heads);
  out.compare("key heads", call.key_heads, plan.key_heads);
  out.compare("value heads", call.kv_heads, plan.kv_heads);
  out.compare("head size", call.head_size, plan.head_size);
  out.compare("value head size", call.v_head_size, plan.v_head_size);
  out.compare("scale", call.scale, plan.scale);
  out.compare("delta rule", call.delta, plan.delta);
  out.compare("decay", call.decay != DecayForm::kNone, plan.decay != DecayForm::kNone);
  out.compare("decay of each key channel", call.decay == DecayForm::kPerKey,
              plan.decay == DecayForm::kPerKey);
  out.compare("folded beta", call.fold_beta, plan.fold_beta);
  out.compare("folded decay", call.fold_decay, plan.fold_decay);
  out.compare("folded exponential", call.fold_exp, plan.fold_exp);
  out.compare("past state bound", call.has_past, plan.has_past);
  out.compare("present state bound", call.has_present, plan.has_present);
  out.compare("unit channel strides", call.unit_channel, plan.unit_channel);
}

void compare_sizes(Differences& out, const ShapeRange& call, const ShapeRange& plan) {
  const auto compare = [&out](const char* what, int64_t called, int64_t planned,
                              const char* field) {
    if (called <= planned) return;
    out.add(cat(what, " ", called, " exceeds the plan's ", planned, "; prepare with ", field));
  };
  compare("batch", call.batch, plan.batch, "max_batch");
  compare("query length", call.query_rows, plan.query_rows, "max_query_length");
  compare("total length", call.total, plan.total, "max_total_length");
}

}  // namespace

bool PlanKey::same_class(const Lowering& call) const {
  if (call.batch == 0) {
    return lengths == call.lengths.spec && same_empty_spec(kv_update, call.kv_update) &&
           same_empty_spec(attention, call.attention) && same_empty_spec(rotary, call.rotary) &&
           same_empty_spec(scatter, call.scatter) &&
           same_empty_spec(linear_attention, call.linear_attention);
  }
  return lengths == call.lengths.spec && same_spec(kv_update, call.kv_update) &&
         same_spec(attention, call.attention) && same_spec(rotary, call.rotary) &&
         same_spec(scatter, call.scatter) && same_spec(linear_attention, call.linear_attention);
}

bool PlanKey::operator==(const PlanKey& other) const {
  return range.batch == other.range.batch && range.query_rows == other.range.query_rows &&
         range.total == other.range.total && flags == other.flags && lengths == other.lengths &&
         kv_update == other.kv_update && attention == other.attention && rotary == other.rotary &&
         scatter == other.scatter && linear_attention == other.linear_attention &&
         engine == other.engine;
}

ShapeRange range_of(const Lowering& call) {
  ShapeRange range = natural_range_of(call);
  if (call.attention.has_value() && call.attention->spec.packed) {
    range.query_rows = range.total = 0;
  }
  return range;
}

ShapeRange natural_range_of(const Lowering& call) {
  ShapeRange range;
  range.batch = call.batch;
  range.query_rows = call.lengths.query_rows;
  if (call.attention.has_value()) {
    range.query_rows = std::max(range.query_rows, call.attention->query_rows);
    range.total = call.attention->max_total;
  } else if (call.kv_update.has_value()) {
    range.total = std::max(call.kv_update->key.present.rows, call.kv_update->value.present.rows);
  } else if (call.scatter.has_value()) {
    range.total = call.scatter->cache_rows;
  }
  return range;
}

bool covers(const ShapeRange& outer, const ShapeRange& inner) {
  return inner.batch <= outer.batch && inner.query_rows <= outer.query_rows &&
         inner.total <= outer.total;
}

PlanKey make_key(const Lowering& call, std::string engine, uint32_t flags,
                 const ShapeRange& range) {
  PlanKey key;
  key.lengths = call.lengths.spec;
  if (call.kv_update.has_value()) key.kv_update = call.kv_update->spec;
  if (call.attention.has_value()) key.attention = call.attention->spec;
  if (call.rotary.has_value()) key.rotary = call.rotary->spec;
  if (call.scatter.has_value()) key.scatter = call.scatter->spec;
  if (call.linear_attention.has_value()) key.linear_attention = call.linear_attention->spec;
  key.engine = std::move(engine);
  key.flags = flags;
  key.range = range;
  return key;
}

PlanRequest request_of(const PlanKey& key) {
  PlanRequest request;
  request.engine = key.engine;
  request.batch_invariant = (key.flags & ATTN_PREPARE_BATCH_INVARIANT) != 0;
  request.allow_tf32 = (key.flags & ATTN_PREPARE_ALLOW_TF32) != 0;
  request.check_on_host = (key.flags & ATTN_PREPARE_CHECK_ON_HOST) != 0;
  return request;
}

std::string mismatch_text(const PlanKey& key, const Lowering& call) {
  Differences out;
  compare_sizes(out, range_of(call), key.range);
  out.compare("lengths", call.lengths.spec.values, key.lengths.values);
  out.compare("bound of the lengths", call.lengths.spec.bound, key.lengths.bound);
  out.compare("empty slots", call.lengths.spec.empty_slots, key.lengths.empty_slots);
  // First, since what attention reads follows from it.
  const KvUpdateSpec called = call.kv_update.has_value() ? call.kv_update->spec : KvUpdateSpec();
  const KvUpdateSpec planned = key.kv_update.value_or(KvUpdateSpec());
  compare_caches(out, "key", called.key, planned.key);
  compare_caches(out, "value", called.value, planned.value);
  if (call.attention.has_value() && key.attention.has_value()) {
    compare_attention(out, call.attention->spec, *key.attention);
  }
  if (call.rotary.has_value() && key.rotary.has_value()) {
    compare_rotary(out, call.rotary->spec, *key.rotary);
  }
  if (call.scatter.has_value() && key.scatter.has_value()) {
    compare_scatter(out, call.scatter->spec, *key.scatter);
  }
  if (call.linear_attention.has_value() && key.linear_attention.has_value()) {
    compare_linear_attention(out, call.linear_attention->spec, *key.linear_attention);
  }
  if (out.empty()) out.add("the call's kind differs from the plan's");
  return cat("the plan does not fit this call: ", out.text());
}

}  // namespace attn::api
