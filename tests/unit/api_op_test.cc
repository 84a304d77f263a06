// Introspection, and creating operators.
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "api_fixture.h"

namespace attn::test {
namespace {

TEST(ApiOperatorTest, ListsOperatorsSlotsAndAttributes) {
  uint32_t count = 0;
  ASSERT_OK(attn_operator_count(&count, &error));
  ASSERT_GE(count, 1u);
  std::set<std::string> types;
  for (uint32_t index = 0; index < count; ++index) {
    attn_operator_info info = ATTN_OPERATOR_INFO_INIT;
    ASSERT_OK(attn_operator_get_info(index, &info, &error));
    types.insert(std::string(info.domain) + " " + info.type);
    EXPECT_LE(info.version_first, info.version_last);
    EXPECT_NE(info.summary[0], '\0');
    std::set<std::string> names;
    bool required = false;
    for (uint32_t i = 0; i < info.input_count; ++i) {
      attn_slot_info slot = ATTN_SLOT_INFO_INIT;
      ASSERT_OK(attn_operator_get_input(index, i, &slot, &error));
      EXPECT_TRUE(names.insert(slot.name).second) << slot.name;
      EXPECT_NE(slot.types[0], '\0');
      EXPECT_NE(slot.shape[0], '\0');
      EXPECT_NE(slot.memory, 0u);
      required = required || slot.optional == 0;
    }
    EXPECT_TRUE(required);
    for (uint32_t i = 0; i < info.output_count; ++i) {
      attn_slot_info slot = ATTN_SLOT_INFO_INIT;
      ASSERT_OK(attn_operator_get_output(index, i, &slot, &error));
      EXPECT_TRUE(slot.may_alias == -1 || slot.may_alias < static_cast<int>(info.input_count));
    }
    for (uint32_t i = 0; i < info.attribute_count; ++i) {
      attn_attribute_info attribute = ATTN_ATTRIBUTE_INFO_INIT;
      ASSERT_OK(attn_operator_get_attribute(index, i, &attribute, &error));
      EXPECT_NE(attribute.name[0], '\0');
      EXPECT_EQ(attribute.required == 1, attribute.default_text[0] == '\0') << attribute.name;
    }
    attn_slot_info slot = ATTN_SLOT_INFO_INIT;
    attn_attribute_info attribute = ATTN_ATTRIBUTE_INFO_INIT;
    EXPECT_REFUSED(attn_operator_get_input(index, info.input_count, &slot, &error),
                   ATTN_INVALID_ARGUMENT, "inputs, counted from 0");
    EXPECT_REFUSED(attn_operator_get_output(index, info.output_count, &slot, &error),
                   ATTN_INVALID_ARGUMENT, "outputs, counted from 0");
    EXPECT_REFUSED(attn_operator_get_attribute(index, info.attribute_count, &attribute, &error),
                   ATTN_INVALID_ARGUMENT, "attributes, counted from 0");
  }
  EXPECT_TRUE(types.count("com.microsoft GroupQueryAttention"));
  attn_operator_info info = ATTN_OPERATOR_INFO_INIT;
  EXPECT_REFUSED(attn_operator_get_info(count, &info, &error), ATTN_INVALID_ARGUMENT,
                 "operators, counted from 0");
}

class ApiOpTest : public ApiTest {
 protected:
  void SetUp() override {
    ApiTest::SetUp();
    desc = ATTN_OP_DESC_INIT;
    desc.domain = "com.microsoft";
    desc.type = "GroupQueryAttention";
    desc.version = 1;
    attributes = {api_int("num_heads", 2), api_int("kv_num_heads", 1)};
  }

  void refuse(attn_status status, const char* words) {
    desc.attributes = attributes.data();
    desc.attribute_count = static_cast<uint32_t>(attributes.size());
    attn_op* made = nullptr;
    EXPECT_REFUSED(attn_op_create(context, &desc, &made, &error), status, words);
    EXPECT_EQ(made, nullptr);
  }

  attn_op_desc desc;
  std::vector<attn_attribute> attributes;
};

TEST_F(ApiOpTest, UnknownOperatorsAreUnsupported) {
  desc.type = "FancyAttention";
  desc.label = "block0";
  refuse(ATTN_UNSUPPORTED, "FancyAttention 'block0': ");
  desc.type = "GroupQueryAttention";
  desc.domain = nullptr;  // the standard's own domain has no such operator
  refuse(ATTN_UNSUPPORTED, "ai.onnx");
  desc.domain = "com.microsoft";
  desc.version = 99;
  refuse(ATTN_UNSUPPORTED, "99");
  desc.type = nullptr;
  refuse(ATTN_INVALID_ARGUMENT, "desc.type is null");
}

TEST_F(ApiOpTest, MalformedAttributesAreRefusedInWords) {
  attributes.push_back(api_int(nullptr, 0));
  refuse(ATTN_INVALID_ARGUMENT, "attribute number 2 has no name");
  attributes.back() = api_int("scale", 0);
  attributes.back().type = 77;
  refuse(ATTN_INVALID_ARGUMENT, "attribute 'scale': type 77 is unknown");
  attributes.back().type = ATTN_ATTRIBUTE_STRING;
  refuse(ATTN_INVALID_ARGUMENT, "attribute 'scale': data is null");
  attributes.back().type = ATTN_ATTRIBUTE_INTS;
  attributes.back().count = 3;
  refuse(ATTN_INVALID_ARGUMENT, "data is null, but count is 3");
  attributes.back().count = 1u << 30;
  refuse(ATTN_INVALID_ARGUMENT, "at most 65536 elements");
  const float values[] = {1, 2};
  attributes.back().type = ATTN_ATTRIBUTE_FLOATS;
  attributes.back().count = 2;
  attributes.back().data = values;
  refuse(ATTN_INVALID_ARGUMENT, "scale");  // a FLOAT, not a list
  const int64_t integers[] = {1, 2};
  attributes.back().type = ATTN_ATTRIBUTE_INTS;
  attributes.back().data = integers;
  refuse(ATTN_INVALID_ARGUMENT, "scale");
  attributes.back() = api_int("num_heads", 2);
  refuse(ATTN_INVALID_ARGUMENT, "num_heads");  // twice

  attributes.pop_back();
  attn_op* made = nullptr;
  desc.attributes = nullptr;
  desc.attribute_count = 2;
  EXPECT_REFUSED(attn_op_create(context, &desc, &made, &error), ATTN_INVALID_ARGUMENT,
                 "desc.attributes is null");
  desc.attribute_count = 100000;
  EXPECT_REFUSED(attn_op_create(context, &desc, &made, &error), ATTN_INVALID_ARGUMENT,
                 "at most 256");
  EXPECT_REFUSED(attn_op_create(context, &desc, nullptr, &error), ATTN_INVALID_ARGUMENT,
                 "op is null");
}

TEST_F(ApiOpTest, TextsAndNumbersOfEveryKind) {
  attn_attribute text{};
  text.name = "k_quant_type";
  text.type = ATTN_ATTRIBUTE_STRING;
  text.data = "NONE and more";
  text.count = 4;
  attributes.push_back(text);
  text.name = "v_quant_type";
  text.data = "NONE";
  text.count = 0;
  attributes.push_back(text);
  attn_attribute real{};
  real.name = "scale";
  real.type = ATTN_ATTRIBUTE_FLOAT;
  real.f = 0.5;
  attributes.push_back(real);
  desc.attributes = attributes.data();
  desc.attribute_count = 5;
  attn_op* made = nullptr;
  ASSERT_OK(attn_op_create(context, &desc, &made, &error));
  attn_op_release(made);
  attributes[2].count = 8;
  refuse(ATTN_INVALID_ARGUMENT, "'NONE and'");
}

}  // namespace
}  // namespace attn::test
