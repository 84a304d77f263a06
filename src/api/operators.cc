// Introspection: the operators, their slots and attributes.
#include "api/guard.h"
#include "api/struct_io.h"
#include "ops/operator.h"

namespace attn::api {
namespace {

const OperatorSchema& schema_at(uint32_t index) {
  const auto definitions = operator_definitions();
  if (index >= definitions.size()) {
    fail_argument("index is ", index, "; there are ", definitions.size(),
                  " operators, counted from 0");
  }
  return *definitions[index].schema;
}

template <class T>
const T& item_at(std::span<const T> items, uint32_t position, const char* kind,
                 const OperatorSchema& schema) {
  if (position >= items.size()) {
    fail_argument("position is ", position, "; ", schema.type, " has ", items.size(), " ", kind,
                  ", counted from 0");
  }
  return items[position];
}

attn_slot_info slot_info(const SlotSchema& slot) {
  attn_slot_info info{};
  info.slot = slot.slot;
  info.optional = slot.optional ? 1 : 0;
  info.memory = slot.memory;
  info.may_alias = slot.may_alias;
  info.name = slot.name;
  info.types = slot.types;
  info.shape = slot.shape;
  return info;
}

}  // namespace
}  // namespace attn::api

using attn::api::guard;
using attn::api::OutStruct;

attn_status attn_operator_count(uint32_t* count, attn_error* error) {
  return guard(error, [&] {
    if (count == nullptr) attn::fail_argument("count is null; it receives the number");
    *count = static_cast<uint32_t>(attn::operator_definitions().size());
  });
}

attn_status attn_operator_get_info(uint32_t index, attn_operator_info* info, attn_error* error) {
  return guard(error, [&] {
    const OutStruct out(info, "info");
    const attn::OperatorSchema& schema = attn::api::schema_at(index);
    attn_operator_info filled{};
    filled.version_first = schema.version_first;
    filled.version_last = schema.version_last;
    filled.input_count = static_cast<uint32_t>(schema.inputs.size());
    filled.output_count = static_cast<uint32_t>(schema.outputs.size());
    filled.attribute_count = static_cast<uint32_t>(schema.attributes.size());
    filled.domain = schema.domain;
    filled.type = schema.type;
    filled.summary = schema.summary;
    out.write(filled);
  });
}

attn_status attn_operator_get_input(uint32_t index, uint32_t position, attn_slot_info* info,
                                    attn_error* error) {
  return guard(error, [&] {
    const OutStruct out(info, "info");
    const attn::OperatorSchema& schema = attn::api::schema_at(index);
    attn_slot_info filled =
        attn::api::slot_info(attn::api::item_at(schema.inputs, position, "inputs", schema));
    out.write(filled);
  });
}

attn_status attn_operator_get_output(uint32_t index, uint32_t position, attn_slot_info* info,
                                     attn_error* error) {
  return guard(error, [&] {
    const OutStruct out(info, "info");
    const attn::OperatorSchema& schema = attn::api::schema_at(index);
    attn_slot_info filled =
        attn::api::slot_info(attn::api::item_at(schema.outputs, position, "outputs", schema));
    out.write(filled);
  });
}

attn_status attn_operator_get_attribute(uint32_t index, uint32_t position,
                                        attn_attribute_info* info, attn_error* error) {
  return guard(error, [&] {
    const OutStruct out(info, "info");
    const attn::OperatorSchema& schema = attn::api::schema_at(index);
    const attn::AttributeSchema& attribute =
        attn::api::item_at(schema.attributes, position, "attributes", schema);
    attn_attribute_info filled{};
    filled.type = attribute.type;
    filled.required = attribute.required ? 1 : 0;
    filled.name = attribute.name;
    filled.default_text = attribute.default_text;
    filled.summary = attribute.summary;
    out.write(filled);
  });
}
