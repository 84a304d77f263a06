// The struct_size rule, flags and reserved fields, in and out.
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "api/struct_io.h"
#include "api_fixture.h"

namespace attn::test {
namespace {

struct Sample {
  uint32_t struct_size;
  uint32_t flags;
  uint64_t value;
};

TEST(ApiStructTest, ShorterInputsHaveAZeroTail) {
  alignas(8) unsigned char bytes[16];
  std::memset(bytes, 0xff, sizeof bytes);
  const uint32_t size = 8;
  std::memcpy(bytes, &size, 4);
  const Sample sample = api::copy_in(reinterpret_cast<const Sample*>(bytes), "sample");
  EXPECT_EQ(sample.flags, 0xffffffffu);
  EXPECT_EQ(sample.value, 0u);
}

TEST(ApiStructTest, LongerInputsNeedAZeroTail) {
  std::vector<uint64_t> words(api::kMaxStructSize / 8, 0);
  auto* bytes = reinterpret_cast<unsigned char*>(words.data());
  const uint32_t size = api::kMaxStructSize;
  std::memcpy(bytes, &size, 4);
  words[1] = 77;
  EXPECT_EQ(api::copy_in(reinterpret_cast<const Sample*>(bytes), "sample").value, 77u);
  bytes[size - 1] = 1;
  try {
    api::copy_in(reinterpret_cast<const Sample*>(bytes), "sample");
    FAIL() << "a used tail was accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), ATTN_VERSION);
    EXPECT_NE(error.message().find("uses byte 4095"), std::string::npos) << error.message();
  }
}

TEST(ApiStructTest, NoStructEndsWithinAField) {
  attn_context* context = nullptr;
  attn_context_desc desc = api_context_desc();
  for (const uint32_t size : {9u, 12u, 52u, 100u}) {
    desc.struct_size = size;
    EXPECT_REFUSED(attn_context_create(&desc, &context, &error), ATTN_INVALID_ARGUMENT,
                   "which is no multiple of 8");
  }
}

// A size word with nothing behind it: reading on would leave the buffer.
TEST(ApiStructTest, ImpossibleSizesAreRefusedUnread) {
  attn_context* context = nullptr;
  for (const uint32_t size : {0u, 1u, 7u, 4097u, 0x80000000u, 0xffffffffu}) {
    const std::vector<uint32_t> word(1, size);
    const auto* desc = reinterpret_cast<const attn_context_desc*>(word.data());
    EXPECT_REFUSED(attn_context_create(desc, &context, &error), ATTN_INVALID_ARGUMENT,
                   "desc.struct_size is " + std::to_string(size));
  }
  EXPECT_EQ(context, nullptr);
}

TEST_F(ApiTest, OutputsAreWrittenToTheirSizeAndZeroedBeyond) {
  alignas(8) unsigned char bytes[1024];
  for (uint32_t size = 8; size <= sizeof bytes; size += 4) {
    std::memset(bytes, 0x5a, sizeof bytes);
    std::memcpy(bytes, &size, 4);
    ASSERT_OK(
        attn_context_get_stats(context, reinterpret_cast<attn_context_stats*>(bytes), &error));
    uint32_t kept;
    std::memcpy(&kept, bytes, 4);
    EXPECT_EQ(kept, size);
    for (size_t i = sizeof(attn_context_stats); i < size; ++i) ASSERT_EQ(bytes[i], 0);
    for (size_t i = size; i < sizeof bytes; ++i) ASSERT_EQ(bytes[i], 0x5a) << "size " << size;
  }
  const uint32_t bad = 4;
  std::memcpy(bytes, &bad, 4);
  EXPECT_REFUSED(
      attn_context_get_stats(context, reinterpret_cast<attn_context_stats*>(bytes), &error),
      ATTN_INVALID_ARGUMENT, "stats.struct_size is 4");
  EXPECT_REFUSED(attn_context_get_stats(context, nullptr, &error), ATTN_INVALID_ARGUMENT,
                 "stats is null");
}

TEST_F(ApiTest, UnknownFlagsAndReservedFieldsAreRefused) {
  attn_context* other = nullptr;
  attn_context_desc context_desc = ATTN_CONTEXT_DESC_INIT;
  context_desc.flags = 64;
  EXPECT_REFUSED(attn_context_create(&context_desc, &other, &error), ATTN_INVALID_ARGUMENT,
                 "desc.flags is 64, of which 64 is unknown");
  context_desc = ATTN_CONTEXT_DESC_INIT;
  context_desc.reserved = 1;
  EXPECT_REFUSED(attn_context_create(&context_desc, &other, &error), ATTN_INVALID_ARGUMENT,
                 "desc.reserved is 1");

  DecodeStep step;
  attn_support support = ATTN_SUPPORT_INIT;
  attn_query_desc query = step.query_desc();
  query.flags = 1;
  EXPECT_REFUSED(attn_op_query(op, &query, &support, &error), ATTN_INVALID_ARGUMENT, "desc.flags");
  query.flags = 0;
  query.reserved = 5;
  EXPECT_REFUSED(attn_op_query(op, &query, &support, &error), ATTN_INVALID_ARGUMENT,
                 "desc.reserved");

  attn_plan* plan = nullptr;
  attn_prepare_desc prepare_desc = step.prepare_desc();
  prepare_desc.flags = 8;
  EXPECT_REFUSED(attn_op_prepare(op, &prepare_desc, &plan, &error), ATTN_INVALID_ARGUMENT,
                 "desc.flags is 8");
  prepare_desc = step.prepare_desc();
  prepare_desc.reserved = 5;
  EXPECT_REFUSED(attn_op_prepare(op, &prepare_desc, &plan, &error), ATTN_INVALID_ARGUMENT,
                 "desc.reserved");
  step.inputs[2].reserved = 9;
  EXPECT_REFUSED(step.prepare(op, &plan, &error), ATTN_INVALID_ARGUMENT,
                 "input slot 2: reserved is 9");
  step.inputs[2].reserved = 0;
  step.t_q.flags = 4;
  EXPECT_REFUSED(step.prepare(op, &plan, &error), ATTN_INVALID_ARGUMENT, "query.flags is 4");

  attn_session_desc session_desc = ATTN_SESSION_DESC_INIT;
  session_desc.flags = 1;
  attn_session* another = nullptr;
  EXPECT_REFUSED(attn_session_create(context, &session_desc, &another, &error),
                 ATTN_INVALID_ARGUMENT, "desc.flags");
}

}  // namespace
}  // namespace attn::test
