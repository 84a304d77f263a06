// The operators that the library knows.
#include "core/error.h"
#include "ops/attention.h"
#include "ops/group_query_attention.h"
#include "ops/linear_attention.h"
#include "ops/operator.h"
#include "ops/rotary_embedding.h"
#include "ops/tensor_scatter.h"
#include "ops/varlen_attention.h"

namespace attn {
namespace {

constexpr OperatorDefinition kDefinitions[] = {
    {&kGroupQueryAttentionSchema, &create_group_query_attention},
    {&kAttentionSchema, &create_attention},
    {&kLinearAttentionSchema, &create_linear_attention},
    {&kStandardLinearAttentionSchema, &create_standard_linear_attention},
    {&kRotaryEmbeddingSchema, &create_rotary_embedding},
    {&kTensorScatterSchema, &create_tensor_scatter},
    {&kVarlenAttentionSchema, &create_varlen_attention},
    {&kPackedVarlenAttentionSchema, &create_packed_varlen_attention},
};

// The empty domain is the standard's own.
std::string_view normal_domain(std::string_view domain) {
  return domain.empty() ? std::string_view("ai.onnx") : domain;
}

std::string versions_text(const OperatorSchema& schema) {
  if (schema.version_first == schema.version_last) return cat(schema.version_first);
  return cat(schema.version_first, " to ", schema.version_last);
}

}  // namespace

std::span<const OperatorDefinition> operator_definitions() { return kDefinitions; }

const OperatorDefinition& find_operator(std::string_view domain, std::string_view type,
                                        int32_t version) {
  const std::string_view wanted = normal_domain(domain);
  std::string versions;  // of the operators with this name
  std::string all;
  for (const OperatorDefinition& definition : kDefinitions) {
    const OperatorSchema& schema = *definition.schema;
    const std::string text = versions_text(schema);
    all += cat(all.empty() ? "" : ", ", schema.domain, " ", schema.type, " (version ", text, ")");
    if (wanted != normal_domain(schema.domain) || type != schema.type) continue;
    if (version >= schema.version_first && version <= schema.version_last) return definition;
    versions += cat(versions.empty() ? "" : ", ", text);
  }
  if (!versions.empty()) {
    fail_unsupported("version ", version, " of ", type, " in domain '", wanted,
                     "' is not known; known: ", versions);
  }
  constexpr size_t kMostOfAName = 80;  // longer ones would hide what is known
  const std::string_view name = type.substr(0, kMostOfAName);
  fail_unsupported("no operator '", name, name.size() < type.size() ? "..." : "", "' in domain '",
                   wanted, "'; known: ", all);
}

}  // namespace attn
