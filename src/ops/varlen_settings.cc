#include "ops/varlen_settings.h"

#include <limits>

#include "core/error.h"
#include "ops/attention_settings.h"
#include "ops/score_scale.h"
#include "ops/shape_check.h"

namespace attn {

VarlenSettings read_varlen_settings(const Attributes& attributes) {
  VarlenSettings settings;
  settings.q_heads = head_count_of(attributes, "num_heads");
  settings.kv_heads =
      attributes.has("kv_num_heads") ? head_count_of(attributes, "kv_num_heads") : settings.q_heads;
  if (settings.q_heads % settings.kv_heads != 0) {
    fail_argument("attribute 'num_heads': expected a multiple of kv_num_heads ", settings.kv_heads,
                  "; got ", settings.q_heads);
  }
  settings.causal = flag_of(attributes, "is_causal");
  settings.has_scale = attributes.has("scale");
  settings.scale = literal_scale_of(attributes);
  settings.softcap = softcap_of(attributes);
  return settings;
}

void check_varlen_types(const Tensor& query, const Tensor& key, const Tensor& value) {
  const DType type = query.type;
  if (type != kFloat32 && type != kFloat16 && type != kBfloat16) {
    fail_type("query", query, "float32, float16 or bfloat16");
  }
  check_type_of("key", key, type, "query");
  check_type_of("value", value, type, "query");
}

void check_head_size(const char* name, const Tensor& tensor, int64_t size) {
  if (size == 0) {
    fail_argument(name, ": expected a head size of at least 1; got ", shape_text(tensor));
  }
  if (size > std::numeric_limits<int32_t>::max()) {
    fail_unsupported(name, ": head sizes beyond ", std::numeric_limits<int32_t>::max(),
                     " are not built; got ", size);
  }
}

void set_varlen_spec(const VarlenSettings& settings, DType type, int64_t head_size,
                     int64_t v_head_size, AttentionSpec& spec) {
  spec.type = type;
  spec.q_heads = settings.q_heads;
  spec.kv_heads = settings.kv_heads;
  spec.head_size = static_cast<int32_t>(head_size);
  spec.v_head_size = static_cast<int32_t>(v_head_size);
  spec.scale = scale_or_default(settings.has_scale, settings.scale, head_size);
  spec.softcap = settings.softcap;
  spec.causal = settings.causal;
}

void set_varlen_views(const View4& query, const View4& key, const View4& value, const View4* output,
                      AttentionProblem& problem) {
  problem.query = query;
  problem.key = key;
  problem.value = value;
  bool& unit = problem.spec.unit_channel;
  unit = query.channel == 1 && key.channel == 1 && value.channel == 1;
  if (output == nullptr) return;
  problem.output = *output;
  unit = unit && output->channel == 1;
}

}  // namespace attn
