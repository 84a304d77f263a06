// Attributes of a node: names, types, defaults, and the registry of operators.
#include <gtest/gtest.h>

#include <limits>

#include "ops_gqa_call.h"

namespace attn::ops_test {
namespace {

constexpr AttributeSchema kAttributes[] = {
    {"count", ATTN_ATTRIBUTE_INT, true, "", "how many"},
    {"factor", ATTN_ATTRIBUTE_FLOAT, false, "0.5", "a factor"},
    {"kind", ATTN_ATTRIBUTE_STRING, false, "NONE", "a kind"},
    {"sizes", ATTN_ATTRIBUTE_INTS, false, "", "some sizes"},
    {"weights", ATTN_ATTRIBUTE_FLOATS, false, "", "some weights"},
};
constexpr OperatorSchema kSchema = {"test", "Test", 1, 1, "", {}, {}, kAttributes};

std::string refusal_of(std::vector<Attribute> values) {
  return refusal([&] { Attributes(kSchema, values); });
}

Attribute make_floats(std::vector<float> values) {
  Attribute attribute;
  attribute.name = "weights";
  attribute.type = ATTN_ATTRIBUTE_FLOATS;
  attribute.floats = std::move(values);
  return attribute;
}

TEST(OpsAttributes, GiveValuesAndDefaults) {
  const Attributes attributes(kSchema, {make_string("kind", "X"), make_int("count", -7)});
  EXPECT_EQ(attributes.integer("count", 3), -7);
  EXPECT_EQ(attributes.text("kind", "NONE"), "X");
  EXPECT_EQ(attributes.real("factor", 0.5), 0.5);
  EXPECT_EQ(attributes.integer("other", 12), 12);
  EXPECT_EQ(attributes.text("other", "y"), "y");
  EXPECT_TRUE(attributes.has("kind"));
  EXPECT_FALSE(attributes.has("factor"));
}

TEST(OpsAttributes, AnIntegerStandsForAFloat) {
  const Attributes attributes(kSchema, {make_int("count", 1), make_int("factor", 3)});
  EXPECT_EQ(attributes.real("factor", 0.5), 3.0);
}

TEST(OpsAttributes, KeepMorePrecisionThanFloat32) {
  const Attributes attributes(kSchema, {make_int("count", 1), make_float("factor", 0.1)});
  EXPECT_EQ(attributes.real("factor", 0), 0.1);
}

TEST(OpsAttributes, RefuseUnknownNames) {
  EXPECT_EQ(refusal_of({make_int("count", 1), make_int("Count", 1)}),
            "1: attribute 'Count' is unknown; known are: count, factor, kind, sizes, weights");
  const OperatorSchema bare = {"test", "Bare", 1, 1, "", {}, {}, {}};
  EXPECT_EQ(refusal([&] { Attributes(bare, {make_int("count", 1)}); }),
            "1: attribute 'count' is unknown; known are: none");
}

TEST(OpsAttributes, RefuseDuplicates) {
  EXPECT_EQ(refusal_of({make_int("count", 1), make_float("factor", 1), make_int("count", 1)}),
            "1: attribute 'count' is given twice");
}

TEST(OpsAttributes, RefuseMissingOnes) {
  EXPECT_EQ(refusal_of({make_float("factor", 1)}),
            "1: attribute 'count' is required (INT: how many)");
}

TEST(OpsAttributes, RefuseOtherTypes) {
  EXPECT_EQ(refusal_of({make_float("count", 1)}), "1: attribute 'count': expected INT; got FLOAT");
  EXPECT_EQ(refusal_of({make_int("count", 1), make_string("factor", "1")}),
            "1: attribute 'factor': expected FLOAT or INT; got STRING");
  Attribute strange = make_int("kind", 1);
  strange.type = 77;
  EXPECT_EQ(refusal_of({make_int("count", 1), strange}),
            "1: attribute 'kind': expected STRING; got the unknown type 77");
  Attribute list = make_floats({1});
  list.name = "sizes";
  EXPECT_EQ(refusal_of({make_int("count", 1), list}),
            "1: attribute 'sizes': expected INTS; got FLOATS");
}

TEST(OpsAttributes, RefuseNumbersThatAreNotFinite) {
  const double inf = std::numeric_limits<double>::infinity();
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(refusal_of({make_int("count", 1), make_float("factor", nan)}),
            "1: attribute 'factor': expected a finite float32; got nan");
  EXPECT_EQ(refusal_of({make_int("count", 1), make_float("factor", -inf)}),
            "1: attribute 'factor': expected a finite float32; got -inf");
  EXPECT_EQ(refusal_of({make_int("count", 1), make_float("factor", 1e39)}),
            "1: attribute 'factor': expected a finite float32; got 1e+39");
  EXPECT_EQ(refusal_of({make_int("count", 1), make_floats({1, static_cast<float>(inf)})}),
            "1: attribute 'weights': expected finite float32 values; got inf at index 1");
  EXPECT_EQ(refusal_of({make_int("count", 1), make_floats({1, 2})}), "");
}

TEST(OpsRegistry, FindsAnOperatorInItsDomainAndVersion) {
  const OperatorDefinition& found = find_operator("com.microsoft", "GroupQueryAttention", 1);
  EXPECT_STREQ(found.schema->type, "GroupQueryAttention");
  EXPECT_STREQ(found.schema->domain, "com.microsoft");
  EXPECT_EQ(&found, operator_definitions().data());
}

TEST(OpsRegistry, RefusesWhatItDoesNotKnow) {
  EXPECT_EQ(refusal([] { find_operator("com.microsoft", "GroupQueryAttention", 2); }),
            "2: version 2 of GroupQueryAttention in domain 'com.microsoft' is not known; known: 1");
  EXPECT_EQ(refusal([] { find_operator("com.microsoft", "GroupQueryAttention", 0); }),
            "2: version 0 of GroupQueryAttention in domain 'com.microsoft' is not known; known: 1");
  for (const char* domain : {"", "ai.onnx"}) {  // one domain under two names
    const std::string text = refusal([&] { find_operator(domain, "GroupQueryAttention", 1); });
    EXPECT_EQ(text.find("2: no operator 'GroupQueryAttention' in domain 'ai.onnx'; known: "), 0u)
        << text;
    EXPECT_NE(text.find("com.microsoft GroupQueryAttention (version 1)"), std::string::npos)
        << text;
  }
}

// The tables that introspection shows agree with the positions that the front end uses.
TEST(OpsRegistry, SchemasAreComplete) {
  for (const OperatorDefinition& definition : operator_definitions()) {
    const OperatorSchema& schema = *definition.schema;
    SCOPED_TRACE(schema.type);
    EXPECT_LE(schema.version_first, schema.version_last);
    EXPECT_STRNE(schema.summary, "");
    for (const std::span<const SlotSchema> slots : {schema.inputs, schema.outputs}) {
      for (const SlotSchema& slot : slots) {
        SCOPED_TRACE(slot.name);
        EXPECT_STRNE(slot.name, "");
        EXPECT_STRNE(slot.types, "");
        EXPECT_STRNE(slot.shape, "");
        EXPECT_NE(slot.memory, 0u);
        EXPECT_LT(slot.may_alias, static_cast<int32_t>(schema.inputs.size()));
      }
    }
    for (const AttributeSchema& attribute : schema.attributes) {
      SCOPED_TRACE(attribute.name);
      EXPECT_EQ(attribute.required, std::string(attribute.default_text).empty());
      EXPECT_STRNE(attribute.summary, "");
    }
  }
}

TEST(OpsRegistry, GroupQueryAttentionHasTheStandardsSlots) {
  const OperatorSchema& schema = kGroupQueryAttentionSchema;
  ASSERT_EQ(schema.inputs.size(), 17u);
  for (uint32_t i = 0; i < 17; ++i) EXPECT_EQ(schema.inputs[i].slot, i);
  ASSERT_EQ(schema.outputs.size(), 5u);
  for (uint32_t i = 0; i < 4; ++i) EXPECT_EQ(schema.outputs[i].slot, i);
  EXPECT_EQ(schema.outputs[4].slot, ATTN_SLOT_LOG_SUM_EXP);
  EXPECT_STREQ(schema.inputs[gqa::kSinCache].name, "sin_cache");
  EXPECT_STREQ(schema.inputs[gqa::kKNormWeight].name, "k_norm_weight");
  EXPECT_EQ(schema.outputs[gqa::kPresentKey].may_alias, 3);
  EXPECT_EQ(schema.outputs[gqa::kPresentValue].may_alias, 4);
  EXPECT_EQ(schema.outputs[gqa::kOutput].may_alias, -1);
  for (const SlotSchema& input : schema.inputs) {
    const bool required = input.slot == gqa::kQuery || input.slot == gqa::kSeqlensK ||
                          input.slot == gqa::kTotalLength;
    EXPECT_EQ(input.optional, !required) << input.name;
    const bool length = input.slot == gqa::kSeqlensK || input.slot == gqa::kTotalLength;
    EXPECT_EQ((input.memory & ATTN_MEMORY_HOST) != 0, length) << input.name;
    EXPECT_NE(input.memory & ATTN_MEMORY_DEVICE, 0u) << input.name;
  }
}

}  // namespace
}  // namespace attn::ops_test
