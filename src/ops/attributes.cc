// Attributes of a node against an operator's schema.
#include <cmath>
#include <limits>
#include <utility>

#include "core/error.h"
#include "ops/operator.h"

namespace attn {
namespace {

struct TypeName {
  uint32_t type;
  const char* name;
};

constexpr TypeName kTypeNames[] = {
    {ATTN_ATTRIBUTE_INT, "INT"},       {ATTN_ATTRIBUTE_FLOAT, "FLOAT"},
    {ATTN_ATTRIBUTE_STRING, "STRING"}, {ATTN_ATTRIBUTE_INTS, "INTS"},
    {ATTN_ATTRIBUTE_FLOATS, "FLOATS"},
};

std::string type_text(uint32_t type) {
  for (const TypeName& known : kTypeNames) {
    if (known.type == type) return known.name;
  }
  return cat("the unknown type ", type);
}

std::string known_names(const OperatorSchema& schema) {
  std::string names;
  for (const AttributeSchema& known : schema.attributes) {
    if (!names.empty()) names += ", ";
    names += known.name;
  }
  return names.empty() ? "none" : names;
}

const AttributeSchema& schema_of(const OperatorSchema& schema, const Attribute& value) {
  for (const AttributeSchema& known : schema.attributes) {
    if (value.name == known.name) return known;
  }
  fail_argument("attribute '", value.name, "' is unknown; known are: ", known_names(schema));
}

// Turns an INT into the FLOAT that is expected and refuses every other difference.
void check_type(const AttributeSchema& known, Attribute& value) {
  if (value.type == ATTN_ATTRIBUTE_INT && known.type == ATTN_ATTRIBUTE_FLOAT) {
    value.type = ATTN_ATTRIBUTE_FLOAT;
    value.f = static_cast<double>(value.i);
  }
  if (value.type != known.type) {
    fail_argument("attribute '", value.name, "': expected ", type_text(known.type),
                  known.type == ATTN_ATTRIBUTE_FLOAT ? " or INT" : "", "; got ",
                  type_text(value.type));
  }
}

// A FLOAT of a model is a float32; here it may be more precise, but not larger.
void check_finite(const Attribute& value) {
  constexpr double kLargest = std::numeric_limits<float>::max();
  if (value.type == ATTN_ATTRIBUTE_FLOAT && !(std::abs(value.f) <= kLargest)) {
    fail_argument("attribute '", value.name, "': expected a finite float32; got ", value.f);
  }
  if (value.type != ATTN_ATTRIBUTE_FLOATS) return;
  for (size_t i = 0; i < value.floats.size(); ++i) {
    if (std::isfinite(value.floats[i])) continue;
    fail_argument("attribute '", value.name, "': expected finite float32 values; got ",
                  value.floats[i], " at index ", i);
  }
}

}  // namespace

Attributes::Attributes(const OperatorSchema& schema, std::vector<Attribute> values)
    : values_(std::move(values)) {
  for (size_t i = 0; i < values_.size(); ++i) {
    check_type(schema_of(schema, values_[i]), values_[i]);
    check_finite(values_[i]);
    for (size_t earlier = 0; earlier < i; ++earlier) {
      if (values_[earlier].name != values_[i].name) continue;
      fail_argument("attribute '", values_[i].name, "' is given twice");
    }
  }
  for (const AttributeSchema& known : schema.attributes) {
    if (known.required && !has(known.name)) {
      fail_argument("attribute '", known.name, "' is required (", type_text(known.type), ": ",
                    known.summary, ")");
    }
  }
}

const Attribute* Attributes::find(std::string_view name) const {
  for (const Attribute& value : values_) {
    if (value.name == name) return &value;
  }
  return nullptr;
}

int64_t Attributes::integer(std::string_view name, int64_t otherwise) const {
  const Attribute* value = find(name);
  return value == nullptr ? otherwise : value->i;
}

double Attributes::real(std::string_view name, double otherwise) const {
  const Attribute* value = find(name);
  return value == nullptr ? otherwise : value->f;
}

std::string_view Attributes::text(std::string_view name, std::string_view otherwise) const {
  const Attribute* value = find(name);
  return value == nullptr ? otherwise : std::string_view(value->s);
}

}  // namespace attn
