#include "api/op.h"

#include <cstring>
#include <vector>

#include "api/guard.h"
#include "api/struct_io.h"

namespace attn::api {
namespace {

constexpr uint32_t kMaxAttributes = 256;
constexpr uint32_t kMaxAttributeElements = 1u << 16;

std::string title_of(const char* type, const std::string& label) {
  return label.empty() ? std::string(type) : cat(type, " '", label, "'");
}

Attribute take_attribute(const attn_attribute& source, uint32_t index) {
  if (source.name == nullptr) fail_argument("attribute number ", index, " has no name");
  Attribute attribute;
  attribute.name = source.name;
  attribute.type = source.type;
  const auto check_list = [&source](const char* kind) {
    if (source.count > kMaxAttributeElements) {
      fail_argument("attribute '", source.name, "': count is ", source.count, "; at most ",
                    kMaxAttributeElements, " ", kind, " are accepted");
    }
    if (source.count > 0 && source.data == nullptr) {
      fail_argument("attribute '", source.name, "': data is null, but count is ", source.count);
    }
  };
  switch (source.type) {
    case ATTN_ATTRIBUTE_INT:
      attribute.i = source.i;
      break;
    case ATTN_ATTRIBUTE_FLOAT:
      attribute.f = source.f;
      break;
    case ATTN_ATTRIBUTE_STRING: {
      check_list("bytes");
      if (source.data == nullptr) fail_argument("attribute '", source.name, "': data is null");
      const char* text = static_cast<const char*>(source.data);
      attribute.s.assign(text, source.count != 0 ? source.count : std::strlen(text));
      break;
    }
    case ATTN_ATTRIBUTE_INTS: {
      check_list("elements");
      const auto* values = static_cast<const int64_t*>(source.data);
      attribute.ints.assign(values, values + source.count);
      break;
    }
    case ATTN_ATTRIBUTE_FLOATS: {
      check_list("elements");
      const auto* values = static_cast<const float*>(source.data);
      attribute.floats.assign(values, values + source.count);
      break;
    }
    default:
      fail_argument("attribute '", source.name, "': type ", source.type,
                    " is unknown; accepted are 1 (INT) to 5 (FLOATS)");
  }
  return attribute;
}

std::vector<Attribute> take_attributes(const attn_op_desc& desc) {
  if (desc.attribute_count > kMaxAttributes) {
    fail_argument("desc.attribute_count is ", desc.attribute_count, "; at most ", kMaxAttributes,
                  " are accepted");
  }
  if (desc.attribute_count > 0 && desc.attributes == nullptr) {
    fail_argument("desc.attributes is null, but attribute_count is ", desc.attribute_count);
  }
  std::vector<Attribute> attributes;
  attributes.reserve(desc.attribute_count);
  for (uint32_t i = 0; i < desc.attribute_count; ++i) {
    attributes.push_back(take_attribute(desc.attributes[i], i));
  }
  return attributes;
}

attn_op* create_op(attn_context& context, const attn_op_desc& desc, Subject& subject) {
  check_flags(desc.flags, 0, "desc");
  if (desc.type == nullptr) fail_argument("desc.type is null; it names the operator");
  const std::string label = desc.label == nullptr ? "" : desc.label;
  subject.own(title_of(desc.type, label));
  const std::string domain =
      desc.domain == nullptr || desc.domain[0] == '\0' ? "ai.onnx" : desc.domain;
  const OperatorDefinition& definition = find_operator(domain, desc.type, desc.version);
  const Attributes attributes(*definition.schema, take_attributes(desc));
  return new attn_op(context, definition.create(attributes, desc.version), label);
}

}  // namespace
}  // namespace attn::api

attn_op::attn_op(attn_context& owner, std::unique_ptr<attn::Operator> front_end, std::string name)
    : context(owner),
      contract(std::move(front_end)),
      label(std::move(name)),
      label_number(owner.number_of(label)),
      title(attn::api::title_of(contract->schema().type, label)),
      signature{&contract->schema(), owner.facts.identity},
      live_(owner.stats.ops_live) {}

attn_status attn_op_create(attn_context* context, const attn_op_desc* desc, attn_op** op,
                           attn_error* error) {
  return attn::api::guard(error, [&](attn::api::Subject& subject) {
    attn_context& owner = attn::api::checked(context, "context");
    subject.keep(owner);
    const attn_op_desc options = attn::api::copy_in(desc, "desc");
    if (op == nullptr) attn::fail_argument("op is null; it receives the new op");
    *op = attn::api::create_op(owner, options, subject);
  });
}

void attn_op_release(attn_op* op) { attn::api::release_handle(op); }
