// attn_error, the boundary's mapping of exceptions, and the two-call rule for text.
#include <gtest/gtest.h>

#include <cstring>
#include <new>
#include <stdexcept>
#include <string>

#include "api/guard.h"
#include "api/text.h"
#include "api_fixture.h"
#include "core/error.h"

namespace attn::test {
namespace {

TEST(ApiErrorTest, SuccessWritesOnlyTheStatus) {
  attn_error error;
  std::memset(&error, 0x5a, sizeof error);
  error.struct_size = sizeof error;
  uint32_t count = 0;
  ASSERT_EQ(attn_operator_count(&count, &error), ATTN_OK);
  EXPECT_EQ(error.status, ATTN_OK);
  EXPECT_EQ(error.struct_size, sizeof error);
  const auto* bytes = reinterpret_cast<const unsigned char*>(&error);
  for (size_t i = 8; i < sizeof error; ++i) ASSERT_EQ(bytes[i], 0x5a) << "byte " << i;
}

TEST(ApiErrorTest, NullErrorIsAllowed) {
  EXPECT_EQ(attn_operator_count(nullptr, nullptr), ATTN_INVALID_ARGUMENT);
}

TEST(ApiErrorTest, FailureFillsAndSetsNothingStale) {
  attn_error error;
  std::memset(&error, 0x5a, sizeof error);
  error.struct_size = sizeof error;
  EXPECT_EQ(attn_operator_count(nullptr, &error), ATTN_INVALID_ARGUMENT);
  EXPECT_EQ(error.status, ATTN_INVALID_ARGUMENT);
  EXPECT_EQ(error.native_code, 0);
  EXPECT_EQ(error.native_domain, ATTN_DOMAIN_NONE);
  EXPECT_EQ(error.flags, 0u);
  EXPECT_STREQ(error.message, "count is null; it receives the number");
}

// Every size: nothing beyond it is touched, and the message is cut to fit.
TEST(ApiErrorTest, AnyShorterSizeIsHonoured) {
  for (uint32_t size = 0; size <= 80; ++size) {
    attn_error error;
    std::memset(&error, 0x5a, sizeof error);
    error.struct_size = size;
    EXPECT_EQ(attn_operator_count(nullptr, &error), ATTN_INVALID_ARGUMENT);
    const auto* bytes = reinterpret_cast<const unsigned char*>(&error);
    const size_t writable = size < 8 ? 4 : size;
    for (size_t i = writable; i < sizeof error; ++i) {
      ASSERT_EQ(bytes[i], 0x5a) << "size " << size << " byte " << i;
    }
    if (size >= 8) {
      EXPECT_EQ(error.status, ATTN_INVALID_ARGUMENT);
    }
    if (size > 24 && size < 24 + 38) {
      EXPECT_EQ(error.flags, ATTN_ERROR_TRUNCATED) << "size " << size;
      EXPECT_EQ(std::strlen(error.message), size - 25);
      EXPECT_EQ(std::string("count is null; it receives the number").find(error.message), 0u);
    }
    if (size >= 24 + 38) {
      EXPECT_EQ(error.flags, 0u) << "size " << size;
    }
  }
}

TEST(ApiErrorTest, LongerStructsAreZeroedBeyond) {
  struct Longer {
    attn_error error;
    unsigned char more[64];
  } longer;
  std::memset(&longer, 0x5a, sizeof longer);
  longer.error.struct_size = sizeof longer;
  EXPECT_EQ(attn_operator_count(nullptr, &longer.error), ATTN_INVALID_ARGUMENT);
  for (const unsigned char byte : longer.more) EXPECT_EQ(byte, 0);
}

TEST(ApiErrorTest, ImpossibleSizesAreLeftAlone) {
  attn_error error;
  std::memset(&error, 0x5a, sizeof error);
  error.struct_size = 0x7fffffff;
  EXPECT_EQ(attn_operator_count(nullptr, &error), ATTN_INVALID_ARGUMENT);
  EXPECT_EQ(static_cast<uint32_t>(error.status), 0x5a5a5a5au);
}

TEST(ApiErrorTest, LongMessagesAreCutAtACharacter) {
  const std::string umlauts = [] {
    std::string text;
    for (int i = 0; i < 600; ++i) text += "\xc3\xa4";
    return text;
  }();
  ApiError error;
  const attn_status status = api::guard(&error, [&] { fail_argument("x", umlauts); });
  EXPECT_EQ(status, ATTN_INVALID_ARGUMENT);
  EXPECT_EQ(error.flags, ATTN_ERROR_TRUNCATED);
  EXPECT_EQ(error.text().size(), 999u);  // "x" and 499 whole characters
  EXPECT_EQ(error.text().back(), '\xa4');
}

TEST(ApiErrorTest, ExceptionsBecomeStatuses) {
  ApiError error;
  EXPECT_EQ(api::guard(&error, [] { throw std::bad_alloc(); }), ATTN_OUT_OF_MEMORY);
  EXPECT_EQ(error.text(), "not enough host memory");
  EXPECT_EQ(api::guard(&error, [] { throw std::runtime_error("odd"); }), ATTN_INTERNAL);
  EXPECT_EQ(error.text(), "odd");
  EXPECT_EQ(api::guard(&error, [] { throw 3; }), ATTN_INTERNAL);
  EXPECT_EQ(error.status, ATTN_INTERNAL);
  EXPECT_EQ(api::guard(&error,
                       [](api::Subject& subject) {
                         subject.set("Op 'x'");
                         throw_error(ATTN_UNAVAILABLE, "gone");
                       }),
            ATTN_UNAVAILABLE);
  EXPECT_EQ(error.text(), "Op 'x': gone");
}

TEST_F(ApiTest, MessagesNameOperatorAndLabel) {
  attn_binding* binding = bind();
  EXPECT_REFUSED(attn_binding_execute(binding, nullptr, &error), ATTN_INVALID_ARGUMENT,
                 "GroupQueryAttention 'layer3': query: the input in slot 0 is required");
  attn_binding_release(binding);

  attn_op* unnamed = make_gqa(context);
  attn_plan* plan = nullptr;
  EXPECT_REFUSED(attn_op_prepare(unnamed, nullptr, &plan, &error), ATTN_INVALID_ARGUMENT,
                 "GroupQueryAttention: desc is null");
  attn_op_release(unnamed);
}

TEST(ApiTextTest, TwoCallRule) {
  const uint32_t bits = ATTN_FAULT_PAST_NEGATIVE | ATTN_FAULT_TOTAL_BOUND;
  size_t needed = 0;
  ASSERT_OK(attn_fault_text(bits, nullptr, 0, &needed, &error));
  ASSERT_GT(needed, 10u);
  std::string whole(needed, '#');
  ASSERT_OK(attn_fault_text(bits, whole.data(), whole.size(), &needed, &error));
  EXPECT_EQ(needed, whole.size());
  EXPECT_EQ(whole.back(), '\0');
  EXPECT_NE(whole.find("; "), std::string::npos);

  std::string part(8, '#');
  ASSERT_OK(attn_fault_text(bits, part.data(), 5, &needed, &error));
  EXPECT_EQ(needed, whole.size());
  EXPECT_EQ(part, whole.substr(0, 4) + std::string(1, '\0') + "###");

  ASSERT_OK(attn_fault_text(0, part.data(), part.size(), &needed, &error));
  EXPECT_EQ(needed, 1u);
  EXPECT_EQ(part[0], '\0');
  ASSERT_OK(attn_fault_text(bits, part.data(), part.size(), nullptr, &error));
  EXPECT_REFUSED(attn_fault_text(bits, nullptr, 5, &needed, &error), ATTN_INVALID_ARGUMENT,
                 "buffer is null, but capacity is 5");
}

TEST(ApiTextTest, Utf8Prefix) {
  const std::string text = "a\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80";  // 1, 2, 3, 4 bytes
  const size_t ends[] = {0, 1, 1, 3, 3, 3, 6, 6, 6, 6, 10, 10};
  for (size_t bytes = 0; bytes < 12; ++bytes) {
    EXPECT_EQ(api::utf8_prefix(text, bytes).size(), ends[bytes]) << bytes;
  }
}

TEST(ApiTextTest, WhatIsNoUtf8IsReplacedByteForByte) {
  const auto copied = [](std::string_view text) {
    char target[64];
    EXPECT_TRUE(api::copy_text(target, text));
    return std::string(target);
  };
  for (const char* good : {"", "plain", "a\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80", "\xed\x9f\xbf",
                           "\xee\x80\x80", "\xf4\x8f\xbf\xbf", "\xe0\xa0\x80"}) {
    EXPECT_EQ(copied(good), good);
  }
  EXPECT_EQ(copied("\xff/\xfe"), "?/?");
  EXPECT_EQ(copied("\x80\xbf"), "??");
  EXPECT_EQ(copied("\xc0\xaf \xc1\xbf"), "?? ??");  // overlong
  EXPECT_EQ(copied("\xe0\x9f\xbf \xf0\x8f\xbf\xbf"), "??? ????");
  EXPECT_EQ(copied("\xed\xa0\x80"), "???");                             // a surrogate
  EXPECT_EQ(copied("\xf4\x90\x80\x80 \xf5\x80\x80\x80"), "???? ????");  // beyond U+10FFFF
  EXPECT_EQ(copied("\xe2\x82"), "??");                                  // ends too early
  EXPECT_EQ(copied("\xe2\x82x\xc3\xa4"), "??x\xc3\xa4");
}

}  // namespace
}  // namespace attn::test
